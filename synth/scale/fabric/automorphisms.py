"""Automorphisms of a fabric: permutations of the ranks extended to all nodes, and free commuting groups of them.

Every permutation is checked: it maps edges to edges of equal capacity, and the links of gadgets, which have no edges of
their own, to links of equal bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from synth.model.link_table import widths
from synth.scale.fabric.fabric import Fabric

# Limit on the ranks of a box for which rotations and exchanges inside it are guessed.
MOST_GUESSED = 64


def symmetries(
    fabric: Fabric, candidates: Iterable[Sequence[int] | np.ndarray] | None = None
) -> tuple[np.ndarray, ...]:
    """Return the automorphisms of the fabric among `candidates`, each as a permutation of all nodes.

    `candidates` are permutations of the ranks, by default the topology's declared generators and a few guesses.
    """
    if candidates is None:
        candidates = [*fabric.topology.generators, *_guesses(fabric)]
    identity = np.arange(fabric.ranks)
    edges = _Edges(fabric)
    automorphisms = []
    for pi in candidates:
        ranks = np.asarray(pi, np.int64)
        if len(ranks) == fabric.ranks and (np.sort(ranks) == identity).all() and (ranks != identity).any():
            image = edges.extended(ranks)
            if image is not None:
                automorphisms.append(image)
    return tuple(automorphisms)


def _guesses(fabric: Fabric) -> list[np.ndarray]:
    """Return permutations that clusters often have and few topologies declare.

    They rotate the boxes, or rotate or exchange the ranks inside all boxes at once.
    """
    box, ranks = fabric.topology.nodes, fabric.ranks
    size = box.count(box[0]) if len(box) == ranks else 0
    if not 1 < size <= ranks or list(box) != [box[r - r % size] for r in range(ranks)] or ranks % size:
        return []
    rank = np.arange(ranks)
    base, inner = rank - rank % size, rank % size
    guesses = [(rank + size) % ranks] if size < ranks else []
    if size <= MOST_GUESSED:
        guesses += [base + (inner + d) % size for d in range(1, size // 2 + 1) if size % d == 0]
        bits = [1 << k for k in range(size.bit_length())]
        guesses += [base + (inner ^ bit) for bit in bits if size % (2 * bit) == 0]
    return guesses


def edge_images(fabric: Fabric, permutation: np.ndarray) -> np.ndarray | None:
    """Return the image of each edge under a permutation of nodes, or None where it is no automorphism.

    Parallel edges of equal capacity keep their order.
    """
    return _Edges(fabric).images(permutation)


class _Edges:
    """The edges sorted by ends and capacity, for comparison with their images."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.order = np.lexsort((fabric.cap, fabric.src * fabric.nodes + fabric.dst))
        self.keys, self.caps = self._sorted(fabric.src, fabric.dst, self.order)
        inner = np.concatenate([np.zeros(0, np.int64), *fabric.gadget_links])  # links of gadgets
        self.tail, self.head = fabric.tail[inner], fabric.head[inner]
        names, which = widths(fabric.topology.links) if len(inner) else ([], inner)
        self.width, self.kinds = np.asarray(which, np.int64)[inner], max(1, len(names))

    @cached_property
    def links(self) -> np.ndarray:
        """The ends and bandwidths of all links of gadgets, as sorted integers."""
        return self._linked(np.arange(self.fabric.nodes))

    def _linked(self, permutation: np.ndarray) -> np.ndarray:
        """Return the ends and bandwidths of the images of all links of gadgets, as sorted integers."""
        ends = permutation[self.tail] * self.fabric.nodes + permutation[self.head]
        return np.sort(ends * self.kinds + self.width)

    def _keeps_links(self, permutation: np.ndarray) -> bool:
        """Return True if a permutation maps links of gadgets to links of gadgets of equal bandwidth."""
        return np.array_equal(self._linked(permutation), self.links)

    def _sorted(self, src: np.ndarray, dst: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (src * self.fabric.nodes + dst)[order], self.fabric.cap[order]

    def images(self, permutation: np.ndarray) -> np.ndarray | None:
        """Return the result of `edge_images`."""
        src, dst = permutation[self.fabric.src], permutation[self.fabric.dst]
        order = np.lexsort((self.fabric.cap, src * self.fabric.nodes + dst))
        keys, caps = self._sorted(src, dst, order)
        if (keys != self.keys).any() or (caps != self.caps).any() or not self._keeps_links(permutation):
            return None
        image = np.empty(len(order), np.int64)
        image[order] = self.order
        return image

    def extended(self, ranks: np.ndarray) -> np.ndarray | None:
        """Return an automorphism that extends a permutation of the ranks to all nodes, or None where none is found."""
        nodes, count = self.fabric.nodes, len(ranks)
        if nodes == count:
            return ranks if self.images(ranks) is not None else None
        before, after = self._colours(ranks), self._colours(np.arange(count))
        if before is None or after is None or sorted(before[count:]) != sorted(after[count:]):
            return None
        image = np.empty(nodes, np.int64)
        image[:count] = ranks
        # Nodes of the same colour are matched in their order. The check below rejects a wrong match.
        image[count + np.argsort(before[count:], kind="stable")] = count + np.argsort(after[count:], kind="stable")
        return image if self.images(image) is not None else None

    def _colours(self, ranks: np.ndarray) -> np.ndarray:
        """Return a colour for each node by colour refinement, where rank r starts with a hash of ``ranks[r]``.

        Colours are 64-bit hashes, so that different nodes may have equal colours.
        """
        fabric, count = self.fabric, len(ranks)
        colour = np.concatenate(
            [_mixed(ranks.astype(np.uint64) + np.uint64(1)), np.zeros(fabric.nodes - count, np.uint64)]
        )
        known = 0
        while True:
            fresh = colour.copy()
            for end, other, salt in ((fabric.dst, fabric.src, 3), (fabric.src, fabric.dst, 5)):
                seen = colour[other] * np.uint64(2 * salt + 1) + fabric.cap.astype(np.uint64) * np.uint64(7919 + salt)
                np.add.at(fresh, end, _mixed(seen))
            colour[count:] = _mixed(fresh[count:])
            classes = len(np.unique(colour[count:]))
            if classes <= known:
                return colour
            known = classes


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return the integers hashed by the finalizer of SplitMix64."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def orbits(size: int, permutations: Iterable[np.ndarray]) -> np.ndarray:
    """Return for each of 0..`size`-1 the least member of its orbit under the group that `permutations` generate."""
    label = np.arange(size)
    moves = list(permutations)
    while True:
        least = label.copy()
        for pi in moves:
            np.minimum(least, label[pi], out=least)
            np.minimum.at(least, pi, label)
        least = least[least]
        if (least == label).all():
            return label
        label = least


def free_group(permutations: Sequence[np.ndarray], ranks: int) -> tuple[np.ndarray, ...]:
    """Return commuting permutations that generate a group in which only the identity fixes a rank.

    A greedy search makes the group as large as it can, from the best of six starts.
    """
    pool = list({pi.tobytes(): pi for pi in permutations if _free(pi, ranks)}.values())
    best: tuple[np.ndarray, ...] = ()
    for start in range(min(len(pool), 6)):
        basis: list[np.ndarray] = []
        size = 1
        for pi in (pool[start], *pool):
            if size == ranks:
                break
            if any((pi[b] != b[pi]).any() for b in basis):
                continue
            order = _order([*basis, pi], ranks)
            if order > size:
                basis.append(pi)
                size = order
        if size > _order(best, ranks):
            best = tuple(basis)
        if size == ranks:
            break
    return best


def _free(pi: np.ndarray, ranks: int) -> bool:
    """Return True if all cycles of `pi` on the ranks have the same length, greater than 1."""
    if (pi[:ranks] == np.arange(ranks)).any():
        return False
    sizes = np.bincount(orbits(ranks, [pi[:ranks]]))
    return len(np.unique(sizes[sizes > 0])) == 1


def _order(basis: Sequence[np.ndarray], ranks: int) -> int:
    """Return the order of the abelian group generated by `basis` if it acts freely on the ranks, else 0."""
    if not basis:
        return 1
    label = orbits(ranks, [pi[:ranks] for pi in basis])
    sizes = np.bincount(label)
    sizes = sizes[sizes > 0]
    if len(np.unique(sizes)) > 1:
        return 0
    order = int(sizes[0])
    return order if len(sizes) == 1 or len(group_images(basis, np.unique(label), order + 1)) == order else 0


def group_images(basis: Sequence[np.ndarray], points: np.ndarray, most: int) -> list[np.ndarray]:
    """Return distinct images of the list `points` under the group that `basis` generates, at most `most`.

    The first is `points` itself.
    """
    images = {points.tobytes(): points}
    queue = [points]
    for image in queue:
        for pi in basis:
            moved = pi[image]
            if moved.tobytes() not in images:
                if len(images) >= most:
                    return queue
                images[moved.tobytes()] = moved
                queue.append(moved)
    return queue
