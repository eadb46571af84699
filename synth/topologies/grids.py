"""Tori and meshes of any number of dimensions, the last one fastest: their edges and symmetries, in arrays where they
are many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from synth.topologies.builders import Permutation

if TYPE_CHECKING:
    import numpy as np


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


def large_grid(sizes: tuple[int, ...], wrap: bool) -> tuple[np.ndarray, Iterable[Permutation]]:
    """As `grid`; edges are rows of an array."""
    import numpy as np

    rank = np.arange(math.prod(sizes)).reshape(sizes)
    ends, there = [], []
    for d, size in enumerate(sizes):
        ends.append(np.roll(rank, -1, axis=d).reshape(-1))
        joined = (np.arange(size) + 1 < size) | (wrap and size > 1)
        shape = [1] * len(sizes)
        shape[d] = size
        there.append(np.broadcast_to(joined.reshape(shape), sizes).reshape(-1))
    kept = np.stack(there, axis=1)
    edges = np.stack(np.broadcast_arrays(rank.reshape(-1, 1), np.stack(ends, axis=1)), axis=2)[kept]

    def symmetries() -> Iterable[Permutation]:
        for d, size in enumerate(sizes):
            if wrap:
                yield tuple(np.roll(rank, -1, axis=d).reshape(-1).tolist())
            mirrored = np.flip(rank, axis=d)
            yield tuple((np.roll(mirrored, 1, axis=d) if wrap else mirrored).reshape(-1).tolist())
            later = [e for e in range(d + 1, len(sizes)) if sizes[e] == size]
            if later:
                yield tuple(np.swapaxes(rank, d, later[0]).reshape(-1).tolist())

    return edges, symmetries()
