"""Symmetries of a fabric: rank permutations carried over to its nodes and checked edge by edge, and groups to build
with.

Nothing is believed: every permutation returned maps the edges onto edges of equal capacity, and the links of gadgets,
which have no edges of their own, onto links of equal bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from synth.model.link_table import widths
from synth.scale.fabric.fabric import Fabric

# Products and conjugates tried when the given generators do not act alike on all ranks.
POOL = 160
# Ranks of a box up to which turns and exchanges inside it are guessed.
MOST_GUESSED = 64


def symmetries(
    fabric: Fabric, candidates: Iterable[Sequence[int] | np.ndarray] | None = None
) -> tuple[np.ndarray, ...]:
    """Permutations of all nodes, by default the topology's declared generators and a few guesses; those that fail are
    left out."""
    given = [*fabric.topology.generators, *_guesses(fabric)] if candidates is None else candidates
    identity = np.arange(fabric.ranks)
    edges = _Edges(fabric)
    found = []
    for pi in given:
        ranks = np.asarray(pi, np.int64)
        if len(ranks) == fabric.ranks and (np.sort(ranks) == identity).all() and (ranks != identity).any():
            image = edges.extended(ranks)
            if image is not None:
                found.append(image)
    return tuple(found)


def _guesses(fabric: Fabric) -> list[np.ndarray]:
    """What clusters often have and few builders declare: all boxes turned, and ranks turned or exchanged alike in all
    boxes."""
    box, ranks = fabric.topology.nodes, fabric.ranks
    size = box.count(box[0]) if len(box) == ranks else 0
    if not 1 < size <= ranks or list(box) != [box[r - r % size] for r in range(ranks)] or ranks % size:
        return []
    rank = np.arange(ranks)
    base, inner = rank - rank % size, rank % size
    found = [(rank + size) % ranks] if size < ranks else []
    if size <= MOST_GUESSED:
        found += [base + (inner + d) % size for d in range(1, size // 2 + 1) if size % d == 0]
        found += [base + (inner ^ bit) for bit in (1 << k for k in range(size.bit_length())) if size % (2 * bit) == 0]
    return found


def edge_images(fabric: Fabric, permutation: np.ndarray) -> np.ndarray | None:
    """Where a permutation of nodes sends each edge; None where it does not keep capacities. Parallel edges keep their
    order."""
    return _Edges(fabric).images(permutation)


class _Edges:
    """The edges in order of ends and capacity, to compare with their images."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.order = np.lexsort((fabric.cap, fabric.src * fabric.nodes + fabric.dst))
        self.keys, self.caps = self._sorted(fabric.src, fabric.dst, self.order)
        inner = np.concatenate([np.zeros(0, np.int64), *fabric.ways])  # links of gadgets
        self.tail, self.head = fabric.tail[inner], fabric.head[inner]
        names, which = widths(fabric.topology.links) if len(inner) else ([], inner)
        self.width, self.kinds = np.asarray(which, np.int64)[inner], max(1, len(names))
        self.links = self._linked(np.arange(fabric.nodes))

    def _linked(self, permutation: np.ndarray) -> np.ndarray:
        """Ends and bandwidths of the images of all links of gadgets, in order."""
        ends = permutation[self.tail] * self.fabric.nodes + permutation[self.head]
        return np.sort(ends * self.kinds + self.width)

    def _sorted(self, src: np.ndarray, dst: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (src * self.fabric.nodes + dst)[order], self.fabric.cap[order]

    def images(self, permutation: np.ndarray) -> np.ndarray | None:
        """As `edge_images`."""
        src, dst = permutation[self.fabric.src], permutation[self.fabric.dst]
        order = np.lexsort((self.fabric.cap, src * self.fabric.nodes + dst))
        keys, caps = self._sorted(src, dst, order)
        if (keys != self.keys).any() or (caps != self.caps).any() or (self._linked(permutation) != self.links).any():
            return None
        image = np.empty(len(order), np.int64)
        image[order] = self.order
        return image

    def extended(self, ranks: np.ndarray) -> np.ndarray | None:
        """The permutation of nodes that moves the ranks so, with images of the other nodes that fit."""
        nodes, count = self.fabric.nodes, len(ranks)
        if nodes == count:
            return ranks if self.images(ranks) is not None else None
        before, after = self._colours(ranks), self._colours(np.arange(count))
        if before is None or after is None or sorted(before[count:]) != sorted(after[count:]):
            return None
        image = np.empty(nodes, np.int64)
        image[:count] = ranks
        # Nodes alike in all that refinement sees are matched in their order; the check below decides.
        image[count + np.argsort(before[count:], kind="stable")] = count + np.argsort(after[count:], kind="stable")
        return image if self.images(image) is not None else None

    def _colours(self, ranks: np.ndarray) -> np.ndarray:
        """A name for each node, by what the ranks around it are called: 64-bit mixing, so that equal names are only a
        guess."""
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
    """SplitMix64's finalizer."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def orbits(size: int, permutations: Iterable[np.ndarray]) -> np.ndarray:
    """For each of 0..size-1 the least member of its orbit."""
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
    """Commuting permutations that generate a group in which only the identity fixes a rank: as large as a greedy search
    finds.

    Members are sought among those given, then among their products and conjugates.
    """
    pool = _distinct([pi for pi in permutations if _free(pi, ranks)])
    best = _grown(pool, ranks)
    if _order(best, ranks) == ranks or not permutations:
        return best
    other = _grown(_wider(permutations, pool, ranks), ranks)
    return other if _order(other, ranks) > _order(best, ranks) else best


def _wider(permutations: Sequence[np.ndarray], pool: list[np.ndarray], ranks: int) -> list[np.ndarray]:
    """`pool` with free products and conjugates of what is known, up to `POOL` of them."""
    found = {pi.tobytes(): pi for pi in pool}
    queue = _distinct([*pool, *permutations])
    seen = {pi.tobytes() for pi in queue}
    for b in queue:
        for a in permutations:
            back = np.argsort(a)
            for made in (a[b[back]], b[a], a[b][a[b[back]]]):
                key = made.tobytes()
                if key not in seen and len(seen) < 4 * POOL:
                    seen.add(key)
                    queue.append(made)
                    if _free(made, ranks):
                        found[key] = made
        if len(found) >= POOL or len(seen) >= 4 * POOL:
            break
    return list(found.values())


def _distinct(permutations: Sequence[np.ndarray]) -> list[np.ndarray]:
    return list({pi.tobytes(): pi for pi in permutations}.values())


def _free(pi: np.ndarray, ranks: int) -> bool:
    """Whether all cycles of `pi` on ranks have one length, more than one."""
    if (pi[:ranks] == np.arange(ranks)).any():
        return False
    sizes = np.bincount(orbits(ranks, [pi[:ranks]]))
    return len(np.unique(sizes[sizes > 0])) == 1


def _grown(pool: list[np.ndarray], ranks: int) -> tuple[np.ndarray, ...]:
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


def _order(basis: Sequence[np.ndarray], ranks: int) -> int:
    """The order of the abelian group of `basis` if it is free on the ranks, else 0."""
    if not basis:
        return 1
    label = orbits(ranks, [pi[:ranks] for pi in basis])
    sizes = np.bincount(label)
    sizes = sizes[sizes > 0]
    if len(np.unique(sizes)) > 1:
        return 0
    order = int(sizes[0])
    return order if len(sizes) == 1 or len(elements(basis, np.unique(label), order + 1)) == order else 0


def elements(basis: Sequence[np.ndarray], points: np.ndarray, most: int) -> list[np.ndarray]:
    """Images of `points` under distinct elements of the group, the identity first, until there are `most`."""
    found = {points.tobytes(): points}
    queue = [points]
    for image in queue:
        for pi in basis:
            made = pi[image]
            if made.tobytes() not in found:
                if len(found) >= most:
                    return queue
                found[made.tobytes()] = made
                queue.append(made)
    return queue
