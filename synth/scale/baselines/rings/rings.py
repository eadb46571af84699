"""Result of every ring search: rings with the links that they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.scale.baselines.rings.cut_bound import RingBound

Ring = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Rings:
    """Rings that fit the links together.

    `rings`: directed Hamiltonian cycles ((rank, rank, ..), units), checked link by link. `proved_maximum`: it is proved
    that no other rings carry more in all. `links[k][i]`: number of the link that ring k takes from its i-th rank.
    `bound`: a cut bound on the units of all rings together. `complete`: False where a time limit ended the search.
    """

    rings: tuple[Ring, ...]
    proved_maximum: bool
    links: tuple[tuple[int, ...], ...] = ()
    bound: RingBound | None = None
    complete: bool = True

    @property
    def units(self) -> int:
        """Units of all rings together."""
        return sum(units for _, units in self.rings)


def merged(rings: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> Rings:
    """Return rings given as (ranks, links, units), equal ones joined into one ring with the sum of their units."""
    units: Counter[tuple[int, ...]] = Counter()
    ranks: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order, links, width in rings:
        start = int(np.argmin(order))
        cycle = tuple(np.roll(links, -start).tolist())
        ranks[cycle] = tuple(np.roll(order, -start).tolist())
        units[cycle] += width
    cycles = sorted(units, key=lambda cycle: (ranks[cycle], cycle))
    return Rings(tuple((ranks[cycle], units[cycle]) for cycle in cycles), False, tuple(cycles))
