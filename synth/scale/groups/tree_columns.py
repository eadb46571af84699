"""How the data of process groups goes: trees and ways of all groups packed together, by column generation.

A *plan* moves one chunk of a part: sends in an order in which each reads what earlier ones left, first sums up, then
copies down. The master program chooses how much of each part follows which plan so that the fullest link or limit has
least to do (a fractional packing, as Garg and Könemann's, FOCS 1998, solved as a linear program); its duals are
lengths, by which new plans are the cheapest: shortest ways for alltoall, trees grown along shortest ways for the
others, through any rank of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError
from synth.model.process_groups import SUMS, Group
from synth.model.topology import Network
from synth.solvers.highs import linear
from synth.solvers.processes.deadline import TimeUp, check

MOST_TURNS = 40
EVEN = 1e-6
# What a hop of a plan's depth costs beside the load, so that of equal packings the shallow one is taken.
DEEP = 1e-5


class Hop(NamedTuple):
    """One send of a plan, over a route."""

    route: int
    sums: bool


Plan = tuple[Hop, ...]


@dataclass(frozen=True)
class Shares:
    """For each commodity its plans with their shares, which add up to 1; `load` is what the fullest resource has to do.

    A commodity is `(group, parts)`: the parts of a group that one rank starts (alltoall: one plan for each of them).
    """

    commodities: tuple[tuple[int, tuple[int, ...]], ...]
    plans: tuple[tuple[tuple[float, tuple[Plan, ...]], ...], ...]
    load: float


class Resources:
    """Caps, and the routes that no cap keeps as narrow: what a chunk on a route takes room of."""

    def __init__(self, network: Network) -> None:
        self.network = network
        bare = {
            i for i, r in enumerate(network.routes) if all(network.caps[k].units > r.units for k in network.caps_of[i])
        }
        self.room = [c.units for c in network.caps]
        self.of: list[tuple[int, ...]] = []
        for i, route in enumerate(network.routes):
            mine = list(network.caps_of[i])
            if i in bare:
                mine.append(len(self.room))
                self.room.append(route.units)
            self.of.append(tuple(mine))


def packed(network: Network, groups: Sequence[Group]) -> tuple[tuple[Shares, ...], bool]:
    """The packing of least load, and that of rings, stars and shortest ways alone, which may be easier to give steps.

    And whether the search ended by itself: a time limit leaves the best packing so far, or raises TimeUp where there is
    none. Sizes are in relative bytes, room in units. Raises SynthError where a linear program fails.
    """
    return _Master(network, groups).run()


class _Master:
    def __init__(self, network: Network, groups: Sequence[Group]) -> None:
        self.network, self.groups = network, groups
        self.resources = Resources(network)
        self.ends = np.array([(r.src, r.dst) for r in network.routes], np.int64).reshape(-1, 2)
        self.pairs = [(r.src, r.dst) for r in network.routes]
        self.room = np.array(self.resources.room, float)
        self.commodities: list[tuple[int, tuple[int, ...]]] = []
        for g, group in enumerate(groups):
            m = len(group.ranks)
            count = len(group.parts)
            step = m - 1 if group.collective == "alltoall" else 1
            self.commodities += [(g, tuple(range(at, at + step))) for at in range(0, count, step)]
        # columns: commodity, alternatives of equal share (each one plan a part), load
        self.columns: list[tuple[int, list[tuple[Plan, ...]], np.ndarray, int]] = []
        self.known: set[tuple[int, tuple]] = set()

    def run(self) -> tuple[tuple[Shares, ...], bool]:
        # routes are the dearer the narrower, all the same otherwise
        price = np.array([sum(1.0 / self.resources.room[k] for k in mine) for mine in self.resources.of])
        self._rings(_Ways(self, price))
        self._price(_Ways(self, price), None, 0)
        simple, whole = len(self.columns), True
        try:
            self._improve()
        except TimeUp:
            whole = False
        return tuple(
            self._shares(self._solve(count)[0]) for count in sorted({simple, len(self.columns)}, reverse=True)
        ), whole

    def _improve(self) -> None:
        best = None
        for turn in range(1, MOST_TURNS + 1):
            check()
            _, lengths, worth = self._solve(len(self.columns))
            best = lengths if best is None else (best + lengths) / 2
            for tried in (best, lengths):
                per_route = np.array([sum(tried[k] for k in mine) for mine in self.resources.of])
                if self._price(_Ways(self, per_route), (lengths, worth), turn):
                    break
            else:
                break

    def _shares(self, answer: np.ndarray) -> Shares:
        plans: list[list[tuple[float, tuple[Plan, ...]]]] = [[] for _ in self.commodities]
        for x, (j, options, _, _) in zip(answer[:-1], self.columns, strict=False):
            if x > EVEN:
                plans[j] += [(x / len(options), option) for option in options]
        return Shares(tuple(self.commodities), tuple(map(tuple, plans)), float(answer[-1]))

    def _solve(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Shares of the first `count` columns and the load, lengths of resources, and what each commodity is worth."""
        from scipy import sparse

        rows, columns = len(self.room), self.columns[:count]
        loads = sparse.csr_matrix(np.array([load for _, _, load, _ in columns] + [-self.room]).T)
        which = np.array([j for j, _, _, _ in columns])
        one = sparse.coo_matrix(
            (np.ones(count), (which, np.arange(count))), shape=(len(self.commodities), count + 1)
        ).tocsr()
        scale = max(
            float(sum(load.sum() for _, _, load, _ in columns[: len(self.commodities)]) / self.room.sum()), 1e-9
        )
        cost = np.array([DEEP * scale * deepest / len(self.commodities) for _, _, _, deepest in columns] + [1.0])
        found = linear(
            cost, A_ub=loads, b_ub=np.zeros(rows), A_eq=one, b_eq=np.ones(len(self.commodities)), method="highs"
        )
        if found.x is None:
            raise SynthError(f"{self.network.name}: the packing of the groups ended without an answer: {found.message}")
        return found.x, np.maximum(-found.ineqlin.marginals, 0), found.eqlin.marginals

    def _add(self, j: int, options: list[tuple[Plan, ...]]) -> bool:
        key = (j, tuple(options))
        if key in self.known:
            return False
        self.known.add(key)
        load = np.zeros(len(self.room))
        bytes_ = float(self.groups[self.commodities[j][0]].part) / len(options)
        deepest = 0
        for option in options:
            for plan in option:
                deepest = max(deepest, depth(plan, self.pairs))
                for hop in plan:
                    for k in self.resources.of[hop.route]:
                        load[k] += bytes_
        self.columns.append((j, options, load, deepest))
        return True

    def _rings(self, ways: _Ways) -> None:
        """Rings both ways round and stars: what symmetric machines need."""
        for j, (g, parts) in enumerate(self.commodities):
            group = self.groups[g]
            if group.collective == "alltoall":
                continue
            for order in (list(group.ranks), list(group.ranks)[::-1]):
                self._add(j, [(plan,) for plan in _around(ways, group, parts[0], order)])
            self._add(j, [(plan,) for plan in _star(ways, group, parts[0])])

    def _price(self, ways: _Ways, duals: tuple[np.ndarray, np.ndarray] | None, turn: int) -> bool:
        """Adds the cheapest plans that would improve the master; whether there was one."""
        found = False
        for j, (g, parts) in enumerate(self.commodities):
            check()
            option = tuple(_cheapest(ways, self.groups[g], part, turn) for part in parts)
            if duals is not None:
                lengths, worth = duals
                cost = sum(lengths[k] for plan in option for hop in plan for k in self.resources.of[hop.route])
                if cost * float(self.groups[g].part) > worth[j] * (1 - EVEN) - 1e-15:
                    continue
            found |= self._add(j, [option])
        return found


class _Ways:
    """Shortest ways at given prices of routes, forwards and backwards."""

    def __init__(self, master: _Master, price: np.ndarray) -> None:
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import dijkstra

        n = master.network.ranks
        self.ends = master.ends
        floor = price.max(initial=0.0) * 1e-7 + 1e-12  # of free ways the shorter
        order = np.argsort(price, kind="stable")
        keys, first = np.unique(self.ends[order, 0] * n + self.ends[order, 1], return_index=True)
        self.route = dict(zip(keys.tolist(), order[first].tolist(), strict=True))
        self.ranks = n
        graph = csr_matrix((price[order[first]] + floor, (keys // n, keys % n)), shape=(n, n))
        self.far, self.before = dijkstra(graph, return_predecessors=True)
        self.back, self.after = dijkstra(graph.T.tocsr(), return_predecessors=True)

    def tree(self, root: int, members: Sequence[int], turned: bool) -> list[int]:
        """Routes of a cheap tree from the root to all members, parents first; `turned`: of one to the root, children
        first."""
        far, before = (self.back, self.after) if turned else (self.far, self.before)
        left = np.array([r for r in members if r != root], np.int64)
        near, source = far[root, left].copy(), np.full(len(left), root)
        inside = {root}
        depth = {root: 0}
        routes: list[int] = []
        tiny = float(far[far < np.inf].max()) * 1e-6
        while len(left):
            at = int(np.argmin(near))
            v, path = int(left[at]), [int(left[at])]
            while path[-1] not in inside:
                path.append(int(before[source[at], path[-1]]))
            path.reverse()
            for a, b in pairwise(path):
                routes.append(self.route[b * self.ranks + a] if turned else self.route[a * self.ranks + b])
                inside.add(b)
                depth[b] = depth[a] + 1
                closer = far[b, left] + tiny * depth[b]
                better = closer < near
                near[better], source[better] = closer[better], b
            keep = left != v
            keep &= ~np.isin(left, path)
            left, near, source = left[keep], near[keep], source[keep]
        return routes[::-1] if turned else routes

    def path(self, a: int, b: int) -> list[int]:
        """Routes of the shortest way."""
        nodes = [b]
        while nodes[-1] != a:
            nodes.append(int(self.before[a, nodes[-1]]))
        nodes.reverse()
        return [self.route[x * self.ranks + y] for x, y in pairwise(nodes)]


def _cheapest(ways: _Ways, group: Group, part: int, turn: int) -> Plan:
    have, want = group.parts[part]
    if group.collective == "alltoall":
        return _plan((), ways.path(min(have), min(want)))
    if group.collective == "allreduce":
        root = group.ranks[turn % len(group.ranks)]
        return _plan(ways.tree(root, group.ranks, True), ways.tree(root, group.ranks, False))
    if group.collective in SUMS:
        return _plan(ways.tree(min(want), group.ranks, True), ())
    return _plan((), ways.tree(min(have), group.ranks, False))


def _around(ways: _Ways, group: Group, part: int, order: Sequence[int]) -> list[Plan]:
    """Along the ring: one plan, or for an allreduce one for each place where sums end. Where a ring meets a rank twice,
    trees."""
    have, want = group.parts[part]
    m = len(order)
    if not np.isfinite(ways.far[np.ix_(order, order)]).all():
        return [_cheapest(ways, group, part, 0)]
    starts = order if group.collective == "allreduce" else [min(want if group.collective in SUMS else have)]
    found = []
    for start in starts:
        at = order.index(start)
        turn = [order[(at + i) % m] for i in range(m)]
        down = [r for a, b in pairwise(turn) for r in ways.path(a, b)]
        up_turn = turn[1:] + turn[:1]
        up = [r for a, b in pairwise(up_turn) for r in ways.path(a, b)]
        sums, copies = group.collective in SUMS, group.collective not in ("reduce-scatter", "reduce")
        if (sums and not _simple(ways, up)) or (copies and not _simple(ways, down)):
            return [_cheapest(ways, group, part, 0)]
        found.append(_plan(up if sums else (), down if copies else ()))
    return found


def _star(ways: _Ways, group: Group, part: int) -> list[Plan]:
    """Straight from or to one rank; for an allreduce every rank in turn. Where ways share ranks, trees."""
    have, want = group.parts[part]
    hubs = group.ranks if group.collective == "allreduce" else tuple(want if group.collective in SUMS else have)
    found = []
    for hub in hubs:
        others = [r for r in group.ranks if r != hub]
        up = [i for r in others for i in ways.path(r, hub)] if group.collective in SUMS else []
        down = (
            [i for r in others for i in ways.path(hub, r)]
            if group.collective not in ("reduce-scatter", "reduce")
            else []
        )
        if max(len(up), len(down)) > len(others):
            up = ways.tree(hub, group.ranks, True) if up else []
            down = ways.tree(hub, group.ranks, False) if down else []
        found.append(_plan(up, down))
    return found


def _simple(ways: _Ways, routes: Sequence[int]) -> bool:
    """Whether no rank is met twice."""
    met = [int(ways.ends[i, 1]) for i in routes]
    return len(set(met)) == len(met) and (not met or int(ways.ends[routes[0], 0]) not in met)


def _plan(up: Sequence[int], down: Sequence[int]) -> Plan:
    return (*(Hop(int(i), True) for i in up), *(Hop(int(i), False) for i in down))


def depth(plan: Plan, ends: Sequence[tuple[int, int]]) -> int:
    """Steps that a chunk needs from the first hop to the last; `ends`: those of each route."""
    ready: dict[int, int] = {}
    for hop in plan:
        a, b = ends[hop.route]
        ready[b] = max(ready.get(b, 0), ready.get(a, 0) + 1)
    return max(ready.values(), default=0)
