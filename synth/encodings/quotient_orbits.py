"""Orbits of (unit, rank) and (unit, route) under a group given by generators; trivial when there are none.

Each orbit is named by its least member, so its unit is the least of the unit's orbit. Orbits are searched over the
generators, in time linear in units x routes x generators; the group is never enumerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from synth.model.permutations import orbits as least_members
from synth.model.schedule import Problem


class Automorphism(Protocol):
    """A symmetry of a network and a collective: permutations of ranks, routes and units."""

    @property
    def ranks(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def routes(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def units(self) -> Sequence[int]: ...  # noqa: D102


@dataclass(frozen=True)
class QuotientOrbits:
    """The orbits of a problem's units, ranks, routes and limits, by a representative of each.

    Attributes:
        unit_rep: representative of each unit.
        rank_rep: ``rank_rep[u][n]`` is the rank m with (unit_rep[u], m) the representative of (u, n).
        route_rep: as `rank_rep`, for routes.
        routes: representatives of the orbits of routes.
        caps: representatives of the orbits of shared limits.
    """

    unit_rep: list[int]
    rank_rep: list[list[int]]
    route_rep: list[list[int]]
    routes: list[int]
    caps: list[int]


def orbits(problem: Problem, generators: Sequence[Automorphism] = ()) -> QuotientOrbits:
    """Return the orbits of a problem under `generators`."""
    net, units = problem.network, problem.collective.units
    ranks, routes, caps = range(net.ranks), range(len(net.routes)), range(len(net.caps))
    if not generators:
        return QuotientOrbits(list(range(units)), [list(ranks)] * units, [list(routes)] * units, [*routes], [*caps])
    unit_moves = [list(g.units) for g in generators]
    route_moves = [list(g.routes) for g in generators]
    where = {tuple(sorted(cap.routes)): k for k, cap in enumerate(net.caps)}
    cap_moves: list[list[int]] = []
    for move in route_moves:
        images = [tuple(sorted(map(move.__getitem__, cap.routes))) for cap in net.caps]
        cap_moves.append([where[image] for image in images])

    # of (unit, rank) and (unit, route): the second part of the least member of the orbit of each pair
    pairs: list[list[list[int]]] = []
    for width, moves in ((net.ranks, [g.ranks for g in generators]), (len(routes), route_moves)):
        joint: list[list[int]] = []
        for by_unit, by_x in zip(unit_moves, moves, strict=True):
            joint.append([u * width + x for u in by_unit for x in by_x])
        second = [least % width for least in least_members(units * width, joint)]
        pairs.append([second[u * width : (u + 1) * width] for u in range(units)])
    same_routes, same_caps = least_members(len(routes), route_moves), least_members(len(caps), cap_moves)
    return QuotientOrbits(
        least_members(units, unit_moves),
        *pairs,
        routes=[i for i in routes if same_routes[i] == i],
        caps=[k for k in caps if same_caps[k] == k],
    )
