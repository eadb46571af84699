"""What every schedule must move: for each unit of data, from which ranks to which rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from synth.model.collective import Collective
from synth.model.topology import Network


class Demand(NamedTuple):
    """Data must travel from one of `sources` to `dst`, which is none of them."""

    sources: frozenset[int]
    dst: int


def demands(collective: Collective, unit: int) -> tuple[Demand, ...]:
    """The demands of a unit. Combining: each wanted contribution is a demand of its own, from its one contributor.

    Either way some send must cross every cut between the sources and the destination, whatever the schedule does.
    """
    found = set()
    for dst in collective.post[unit]:
        if collective.combining:
            found |= {Demand(frozenset((i,)), dst) for i in collective.wanted(unit, dst) if i != dst}
        elif dst not in collective.pre[unit]:
            found.add(Demand(collective.pre[unit], dst))
    return tuple(sorted(found, key=lambda d: (d.dst, sorted(d.sources))))


def distances_from(network: Network, sources: Iterable[int]) -> list[int | None]:
    """Fewest routes from the nearest of `sources` to each rank; None where there is no way."""
    far: list[int | None] = [None] * network.ranks
    queue = deque(sources)
    for n in queue:
        far[n] = 0
    while queue:
        u = queue.popleft()
        for i in network.out[u]:
            v = network.routes[i].dst
            if far[v] is None:
                far[v] = far[u] + 1  # type: ignore[operator]
                queue.append(v)
    return far
