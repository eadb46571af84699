"""A machine in coarser units, for schedules whose steps last parts of a round.

Where links have 8, 25, 50 and 100 units, 128 trees of one unit each carry 128 chunks at once, and a pipeline of them
has thousands. In units eight times as large links have 1, 3, 6 and 12, and 16 trees carry as much, but for one unit of
25. A round of this machine is an eighth of one of the other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

from synth.model.topology import Topology

MOST_CARRIED = 4  # coarse units of the narrowest link or limit
LEAST_USED = Fraction(7, 8)  # share of the units of each link and limit that are whole coarse units


def coarse_parts(capacities: Collection[int]) -> int:
    """Return a number of units that make a coarse unit in which links and limits of these capacities keep nearly all;
    1 where there is none.

    It is the greatest of those of which the narrowest one has 1 to `MOST_CARRIED`, with the least left over.

    >>> coarse_parts([8, 25, 50, 100]), coarse_parts([25, 32]), coarse_parts([2, 3])
    (8, 8, 1)
    """
    different, narrowest = set(capacities), min(capacities, default=1)
    for carried in range(1, MOST_CARRIED + 1):
        parts = narrowest // carried
        if all(units // parts * parts >= LEAST_USED * units for units in different):
            return parts
    return 1


def coarse_machine(machine: Topology, parts: int) -> Topology:
    """Return `machine` with a unit of `parts` of its units, of which links and limits have whole numbers.

    A schedule on it is one on `machine`, whose steps last as many parts of a round as they have rounds.
    """
    unit = machine.unit_bandwidth() * parts

    def rounded(bandwidth: Fraction) -> Fraction:
        return bandwidth // unit * unit

    links = tuple(replace(link, bandwidth=rounded(link.bandwidth)) for link in machine.links)
    limits = tuple(replace(limit, bandwidth=rounded(limit.bandwidth)) for limit in machine.limits)
    return replace(machine, links=links, limits=limits, unit=unit)
