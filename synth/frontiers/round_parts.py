"""Parts of a round that steps may last.

Where the narrowest link has 25 units, each step of whole rounds carries up to 25 chunks on it, and a schedule of many
steps has thousands of chunks. In steps of 1/25 round it has one chunk in the place of 25. But in 1/25 round a link of
32 units carries one chunk, too, and 7 units are left over. In 1/8 round the links carry 3 and 4 chunks, which are 24
and 32 units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from synth.model.topology import Topology

MOST_CARRIED = 4  # chunks in a part of a round on one of the links that parts are chosen by
LEAST_USED = Fraction(7, 8)  # share of each capacity in the parts of a coarse machine


def round_parts(capacities: Iterable[int]) -> list[int]:
    """Return numbers of parts of a round in which links of these capacities, in units, leave little over.

    1 is the first one, the others fall. In each part one of the capacities carries at most `MOST_CARRIED` chunks, and
    all carry at least one.

    >>> round_parts([25, 32])
    [1, 25, 16, 12, 10, 8, 6]
    """
    different = set(capacities)
    parts = {capacity // carried for capacity in different for carried in range(1, MOST_CARRIED + 1)}
    return [1, *sorted(parts.intersection(range(2, min(different, default=1) + 1)), reverse=True)]


def most_parts(capacities: Sequence[int]) -> int:
    """Return the greatest of `round_parts` in which no capacity loses much; 1 where there is none.

    >>> most_parts([8, 25, 50, 100])
    8
    """
    fitting = [p for p in round_parts(capacities) if all(c // p * p >= LEAST_USED * c for c in capacities)]
    return max(fitting)


def coarse(machine: Topology, parts: int) -> Topology:
    """Return a machine whose unit is `parts` units of `machine`, and whose links and limits carry whole units.

    A schedule on it is one on `machine` in which each round is one of so many parts of a round.
    """
    unit = machine.unit_bandwidth() * parts

    def carried(bandwidth: Fraction) -> Fraction:
        return bandwidth // unit * unit

    links = tuple(replace(link, bandwidth=carried(link.bandwidth)) for link in machine.links)
    limits = tuple(replace(limit, bandwidth=carried(limit.bandwidth)) for limit in machine.limits)
    return replace(machine, links=links, limits=limits, unit=unit)
