"""Demands of a collective: for each unit of data the ranks that have it and the rank that must receive it."""

from __future__ import annotations

from typing import NamedTuple

from synth.model.collective import Collective


class Demand(NamedTuple):
    """A transport that every schedule performs: data travels from one of `sources` to `dst`, which is none of them."""

    sources: frozenset[int]
    dst: int


def demands(collective: Collective, unit: int) -> tuple[Demand, ...]:
    """Return the demands of a unit. If the collective combines, each wanted contribution is a demand of its own, from
    its one contributor.

    In every schedule some send crosses each cut between the sources and the destination.
    """
    result: set[Demand] = set()
    for dst in collective.post[unit]:
        if collective.combining:
            result |= {Demand(frozenset((i,)), dst) for i in collective.wanted(unit, dst) if i != dst}
        elif dst not in collective.pre[unit]:
            result.add(Demand(collective.pre[unit], dst))
    return tuple(sorted(result, key=lambda d: (d.dst, sorted(d.sources))))


def sends_of_a_chunk(collective: Collective) -> int:
    """Return the least number of sends of a chunk, by the rank that completes first (docs/proofs.md); 0 if unknown."""
    if collective.units != 1 or not collective.combining or collective.wants is not None:
        return 0
    return 2 * (len(collective.pre[0]) - 1) if collective.pre == collective.post else 0
