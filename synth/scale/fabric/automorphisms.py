"""Automorphisms of a fabric: permutations of the ranks extended to all nodes, and free commuting groups of them.

Every permutation is checked: it maps edges to edges of equal capacity, and the links of gadgets, which have no edges of
their own, to links of equal bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from synth.errors import SynthError
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
    automorphisms = []
    for pi in candidates:
        ranks = np.asarray(pi, np.int64)
        if len(ranks) == fabric.ranks and (np.sort(ranks) == identity).all() and (ranks != identity).any():
            image = _extended(fabric, ranks)
            if image is not None and edge_images(fabric, image) is not None:
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

    Parallel edges of equal capacity keep their order. Links of gadgets must be mapped to links of equal bandwidth.
    """
    order, image_order = fabric.edge_order, fabric.order_of_edges(permutation)
    src, dst = permutation[fabric.src[image_order]], permutation[fabric.dst[image_order]]
    same_ends = np.array_equal(src, fabric.src[order]) and np.array_equal(dst, fabric.dst[order])
    if not same_ends or not np.array_equal(fabric.cap[image_order], fabric.cap[order]):
        return None
    if not np.array_equal(fabric.links_in_gadgets(permutation), fabric.links_in_gadgets(np.arange(fabric.nodes))):
        return None
    image = np.empty(len(order), np.int64)
    image[image_order] = order
    return image


def edge_orbits(fabric: Fabric, group: Iterable[np.ndarray]) -> np.ndarray:
    """Return for each edge the least edge of its orbit. Raises SynthError where a permutation is no automorphism."""
    images = []
    for pi in group:
        image = edge_images(fabric, pi)
        if image is None:
            raise SynthError(f"{fabric.name}: a declared symmetry does not keep the links")
        images.append(image)
    return orbits(len(fabric.src), images)


def _extended(fabric: Fabric, ranks: np.ndarray) -> np.ndarray | None:
    """Return a permutation of all nodes that may extend one of the ranks to an automorphism; None where none can.

    Nodes of the same colour are matched in their order, which may be wrong where several have it.
    """
    count = fabric.ranks
    if fabric.nodes == count:
        return ranks
    before, after = (_colours(fabric, start)[count:] for start in (ranks, np.arange(count)))
    if not np.array_equal(np.sort(before), np.sort(after)):
        return None
    image = np.empty(fabric.nodes, np.int64)
    image[:count] = ranks
    image[count + np.argsort(before, kind="stable")] = count + np.argsort(after, kind="stable")
    return image


def _colours(fabric: Fabric, ranks: np.ndarray) -> np.ndarray:
    """Return a colour for each node by colour refinement, where rank r starts with a hash of ``ranks[r]``.

    Colours are 64-bit hashes, so that different nodes may have equal colours.
    """
    count, cap = fabric.ranks, fabric.cap.astype(np.uint64)
    colour = np.zeros(fabric.nodes, np.uint64)
    colour[:count] = _mixed(ranks.astype(np.uint64) + np.uint64(1))
    known = 0
    while True:
        # A node takes the sum of what its edges say: the colour at the other end, and the capacity.
        fresh = colour.copy()
        for end, other, salt in ((fabric.dst, fabric.src, 3), (fabric.src, fabric.dst, 5)):
            np.add.at(fresh, end, _mixed(colour[other] * np.uint64(2 * salt + 1) + cap * np.uint64(7919 + salt)))
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
    distinct = {pi.tobytes(): pi for pi in permutations}
    pool = [pi for pi in distinct.values() if _order([pi], ranks) > 1]
    best: tuple[np.ndarray, ...] = ()
    size = 1
    for start in pool[:6]:
        basis: list[np.ndarray] = []
        order = 1
        for pi in (start, *pool):
            commutes = all((pi[b] == b[pi]).all() for b in basis)
            if order < ranks and commutes and _order([*basis, pi], ranks) > order:
                basis.append(pi)
                order = _order(basis, ranks)
        if order > size:
            best, size = tuple(basis), order
    return best


def _order(basis: Sequence[np.ndarray], ranks: int) -> int:
    """Return the order of the abelian group generated by `basis` if it acts freely on the ranks, else 0."""
    label = orbits(ranks, [pi[:ranks] for pi in basis])
    firsts, sizes = np.unique(label, return_counts=True)
    if len(set(sizes.tolist())) > 1:
        return 0
    order = int(sizes[0])
    return order if len(sizes) == 1 or len(group_images(basis, firsts, order + 1)) == order else 0


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
