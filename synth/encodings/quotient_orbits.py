"""Orbits of (unit, rank) and (unit, route) under a group given by generators; trivial when there are none.

Each orbit is named by its least member, so its unit is the least of the unit's orbit. Orbits are searched over the
generators, in time linear in units x routes x generators; the group is never enumerated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from synth.model.schedule import Problem
from synth.model.symmetry.permutations import orbits as least_members


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
    """Orbit representatives.

    Attributes:
        units: number of units of data.
        copies: number of chunks of each unit.
        pre: ranks that have each unit.
        post: ranks that want each unit.
        unit_rep: representative of each unit.
        rank_rep: ``rank_rep[u][n]`` is the rank m with (unit_rep[u], m) the representative of (u, n).
        route_rep: as `rank_rep`, for routes.
        ranks: representatives of the orbits of ranks.
        routes: representatives of the orbits of routes.
        caps: representatives of the orbits of shared limits.
    """

    units: int
    copies: int
    pre: tuple[frozenset[int], ...]
    post: tuple[frozenset[int], ...]
    unit_rep: list[int]
    rank_rep: list[list[int]]
    route_rep: list[list[int]]
    ranks: list[int]
    routes: list[int]
    caps: list[int]


def orbits(problem: Problem, generators: Sequence[Automorphism] = ()) -> QuotientOrbits:
    """Return the orbits of a problem under `generators`."""
    net, coll = problem.network, problem.collective
    ranks, routes, units, copies = net.ranks, len(net.routes), coll.units, problem.chunks
    pre, post = coll.pre, coll.post
    moves = [list(g.units) for g in generators]
    if not generators:
        same_ranks, same_routes, caps = list(range(ranks)), list(range(routes)), list(range(len(net.caps)))
        return QuotientOrbits(
            units, copies, pre, post, list(range(units)), [same_ranks] * units, [same_routes] * units,
            same_ranks, same_routes, caps,
        )  # fmt: skip
    rank_moves = [list(g.ranks) for g in generators]
    route_moves = [list(g.routes) for g in generators]
    where = {tuple(sorted(cap.routes)): k for k, cap in enumerate(net.caps)}
    cap_moves: list[list[int]] = []
    for move in route_moves:
        images = [tuple(sorted(map(move.__getitem__, cap.routes))) for cap in net.caps]
        cap_moves.append([where[image] for image in images])
    return QuotientOrbits(
        units, copies, pre, post, least_members(units, moves),
        _pairs(units, ranks, moves, rank_moves), _pairs(units, routes, moves, route_moves),
        _least(least_members(ranks, rank_moves)), _least(least_members(routes, route_moves)),
        _least(least_members(len(net.caps), cap_moves)),
    )  # fmt: skip


def _least(rep: list[int]) -> list[int]:
    return [i for i, r in enumerate(rep) if i == r]


def _pairs(units: int, width: int, unit_moves: list[list[int]], moves: list[list[int]]) -> list[list[int]]:
    """Return ``found[u][x]``, the y for which (representative of u, y) is the representative of the orbit of (u, x).

    `unit_moves`, `moves`: the images of the units, and of x, under each generator of the symmetries.
    """
    joint: list[list[int]] = []
    for by_unit, by_x in zip(unit_moves, moves, strict=True):
        joint.append([u * width + x for u in by_unit for x in by_x])
    second = [r % width for r in least_members(units * width, joint)]
    return [second[u * width : (u + 1) * width] for u in range(units)]
