"""Tori and meshes of any number of dimensions, the last one fastest: their edges and symmetries."""

from __future__ import annotations

import math
from collections.abc import Callable

from synth.topologies.builders import Permutation


def grid(sizes: tuple[int, ...], wrap: bool) -> tuple[list[tuple[int, int]], list[Permutation]]:
    """Edges, rank by rank, and permutations: shifts (where it wraps), mirrors, exchanges of equal dimensions."""
    n = math.prod(sizes)
    stride = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]

    def at(rank: int, d: int) -> int:
        return rank // stride[d] % sizes[d]

    def moved(d: int, to: Callable[[int], int]) -> Permutation:
        return tuple(i + (to(at(i, d)) - at(i, d)) * stride[d] for i in range(n))

    edges = [
        (i, i + ((at(i, d) + 1) % size - at(i, d)) * stride[d])
        for i in range(n)
        for d, size in enumerate(sizes)
        if size > 1 and (wrap or at(i, d) + 1 < size)
    ]
    symmetries: list[Permutation] = []
    for d, size in enumerate(sizes):
        if wrap:
            symmetries.append(moved(d, lambda x, size=size: (x + 1) % size))
        symmetries.append(moved(d, lambda x, size=size: -x % size if wrap else size - 1 - x))
        later = [e for e in range(d + 1, len(sizes)) if sizes[e] == size]
        if later:
            e = later[0]
            symmetries.append(
                tuple(i + (at(i, e) - at(i, d)) * stride[d] + (at(i, d) - at(i, e)) * stride[e] for i in range(n))
            )
    return edges, symmetries
