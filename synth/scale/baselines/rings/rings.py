"""Rings that were found, with the links that they take: what every search returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.scale.baselines.rings.cut_bound import RingBound

Ring = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Rings:
    """`rings`: ((rank, rank, ..), units): cycles that fit the links together, checked. `most`: proved that no others
    carry more.

    `ways[k][i]` is the link, by its number, that ring k takes from its i-th rank. `bound`: a limit to what rings carry.
    `whole`: False where a time limit ended the search.
    """

    rings: tuple[Ring, ...]
    most: bool
    ways: tuple[tuple[int, ...], ...] = ()
    bound: RingBound | None = None
    whole: bool = True

    @property
    def units(self) -> int:
        """Of all rings together."""
        return sum(units for _, units in self.rings)


def merged(rings: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> Rings:
    """Rings as (ranks, links, units): equal ones are one ring, the wider."""
    made: Counter[tuple[int, ...]] = Counter()
    ways: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order, links, width in rings:
        start = int(np.argmin(order))
        way = tuple(np.roll(links, -start).tolist())
        ways[way] = tuple(np.roll(order, -start).tolist())
        made[way] += width
    chosen = sorted(made, key=lambda way: (ways[way], way))
    return Rings(tuple((ways[way], made[way]) for way in chosen), False, tuple(chosen))
