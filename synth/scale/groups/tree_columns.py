"""Multicommodity tree packing of process groups: trees and paths of all groups packed together by column generation.

A *plan* moves one chunk of a part: sends in an order in which each reads what earlier sends left, first sums up, then
copies down. The master program chooses the share of each part that follows each plan, so that the load of the fullest
link or limit is least (a fractional packing, as Garg and Könemann's, FOCS 1998, solved as a linear program). Its duals
are lengths of the resources, and new plans are cheapest for these lengths: shortest paths for alltoall, trees grown
along shortest paths for the others, through any rank of the machine.
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
from synth.scale.fabric.graphs import shortest_path_trees
from synth.solvers.column_generation import generate_columns
from synth.solvers.highs import linear
from synth.solvers.processes.deadline import TimeUp, check_deadline


@dataclass(frozen=True)
class TreeColumnSettings:
    """Limits and tolerances of the packing of trees of several groups.

    Attributes:
        maximum_rounds: Rounds of column generation.
        tolerance: Shares below this are dropped, and plans that improve the master program relatively less than
            this are not added.
        depth_cost: Cost of one hop of a plan's depth relative to the load, so that of equal packings the
            shallow one is chosen.
    """

    maximum_rounds: int = 40
    tolerance: float = 1e-6
    depth_cost: float = 1e-5


SETTINGS = TreeColumnSettings()


class Hop(NamedTuple):
    """One send of a plan over a route; `sums`: it is reduced at the receiver."""

    route: int
    sums: bool


Plan = tuple[Hop, ...]


@dataclass(frozen=True)
class FractionalPacking:
    """A fractional packing.

    A commodity is `(group, parts)`: the parts of a group that one rank starts (alltoall), or a single part.
    `plans[j]`: (share, a plan for each part) of commodity j; its shares add up to 1. `load`: the load of the fullest
    resource.
    """

    commodities: tuple[tuple[int, tuple[int, ...]], ...]
    plans: tuple[tuple[tuple[float, tuple[Plan, ...]], ...], ...]
    load: float


class RouteCapacities:
    """Resources that chunks on routes take: the caps, and each route with fewer units than any of its caps.

    `capacity[k]`: units of resource k. `of[i]`: the resources of route i.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.capacity = [c.units for c in network.caps]
        self.of: list[tuple[int, ...]] = []
        for i, route in enumerate(network.routes):
            resources = list(network.caps_of[i])
            if all(network.caps[k].units > route.units for k in network.caps_of[i]):
                resources.append(len(self.capacity))
                self.capacity.append(route.units)
            self.of.append(tuple(resources))


def pack_trees(network: Network, groups: Sequence[Group]) -> tuple[tuple[FractionalPacking, ...], bool]:
    """Pack trees and paths of all groups; return (packings, True if no time limit cut the search short).

    The first packing has the least load. The second, of rings, stars and shortest paths alone, may be easier to
    schedule. A time limit leaves the best packing so far, or raises TimeUp where there is none. Sizes are in relative
    bytes, capacities in units. Raises SynthError where a linear program fails.
    """
    return _Master(network, groups).run()


class _Column(NamedTuple):
    """A column of the master program.

    `options`: alternatives of equal share for commodity `commodity`, each with one plan for each part. `load`: bytes on
    each resource. `depth`: the greatest depth of its plans.
    """

    commodity: int
    options: list[tuple[Plan, ...]]
    load: np.ndarray
    depth: int


class _Master:
    """The master program and its pricing. `ends[i]`: source and destination of route i."""

    def __init__(self, network: Network, groups: Sequence[Group]) -> None:
        self.network, self.groups = network, groups
        self.resources = RouteCapacities(network)
        self.pairs = [(r.src, r.dst) for r in network.routes]
        self.ends = np.array(self.pairs, np.int64).reshape(-1, 2)
        self.capacity = np.array(self.resources.capacity, float)
        self.commodities: list[tuple[int, tuple[int, ...]]] = []
        for g, group in enumerate(groups):
            step = len(group.ranks) - 1 if group.collective == "alltoall" else 1
            for first in range(0, len(group.parts), step):
                self.commodities.append((g, tuple(range(first, first + step))))
        self.columns: list[_Column] = []
        self.known: set[tuple[int, tuple]] = set()
        self.turn = 0  # number of times that the master program was solved for its duals
        self.lengths, self.worth, self.mean_lengths = np.empty(0), np.empty(0), np.empty(0)

    def run(self) -> tuple[tuple[FractionalPacking, ...], bool]:
        """Generate columns; see `pack_trees`."""
        price = self._route_prices([1.0 / units for units in self.resources.capacity])  # narrow routes are dear
        self._add_rings_and_stars(_ShortestPaths(self, price))
        self._add_cheapest(_ShortestPaths(self, price), None, 0)
        simple, complete = len(self.columns), True
        try:
            self._generate_columns()
        except TimeUp:
            complete = False
        packings = []
        for count in sorted({simple, len(self.columns)}, reverse=True):
            packings.append(self._shares(self._solve(count)[0]))
        return tuple(packings), complete

    def _route_prices(self, lengths: Sequence[float] | np.ndarray) -> np.ndarray:
        """Price of each route: the sum of the lengths of its resources."""
        return np.array([self._price(route, lengths) for route in range(len(self.pairs))])

    def _price(self, route: int, lengths: Sequence[float] | np.ndarray) -> float:
        return sum(lengths[k] for k in self.resources.of[route])

    def _generate_columns(self) -> None:
        """Add columns until none improves the master program. Raises TimeUp.

        Lengths are smoothed by the mean with earlier ones, so that they oscillate less. Where the smoothed lengths
        price out no column, the duals themselves are tried.
        """
        pricers = [lambda: self._add_cheap(self.mean_lengths), lambda: self._add_cheap(self.lengths)]
        generate_columns(self._solve_duals, lambda: False, pricers, SETTINGS.maximum_rounds + 1)

    def _solve_duals(self) -> bool:
        """Solve the master program over all columns: sets its duals, and the mean of lengths. Raises TimeUp."""
        check_deadline()
        _, self.lengths, self.worth = self._solve(len(self.columns))
        self.mean_lengths = self.lengths if not self.turn else (self.mean_lengths + self.lengths) / 2
        self.turn += 1
        return True

    def _add_cheap(self, lengths: np.ndarray) -> bool:
        """Add the cheapest plans at `lengths` that improve the master program; return False if there are none."""
        paths = _ShortestPaths(self, self._route_prices(lengths))
        return self._add_cheapest(paths, (self.lengths, self.worth), self.turn)

    def _shares(self, answer: np.ndarray) -> FractionalPacking:
        """The packing of an answer of the master program."""
        plans: list[list[tuple[float, tuple[Plan, ...]]]] = [[] for _ in self.commodities]
        for x, column in zip(answer[:-1], self.columns, strict=False):
            if x > SETTINGS.tolerance:
                share = x / len(column.options)
                plans[column.commodity] += [(share, option) for option in column.options]
        return FractionalPacking(tuple(self.commodities), tuple(map(tuple, plans)), float(answer[-1]))

    def _solve(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Solve the master program over the first `count` columns.

        Returns (shares of the columns and then the load, lengths of the resources, dual of each commodity). Rows: the
        load of each resource is at most `load` x capacity, and the shares of each commodity add up to 1.
        """
        from scipy import sparse

        rows, columns = len(self.capacity), self.columns[:count]
        loads = sparse.csr_matrix(np.array([column.load for column in columns] + [-self.capacity]).T)
        commodity = np.array([column.commodity for column in columns])
        shape = (len(self.commodities), count + 1)
        one = sparse.coo_matrix((np.ones(count), (commodity, np.arange(count))), shape=shape).tocsr()
        first_bytes = sum(column.load.sum() for column in columns[: len(self.commodities)])
        scale = max(float(first_bytes / self.capacity.sum()), 1e-9)
        depth_cost = [SETTINGS.depth_cost * scale * column.depth / len(self.commodities) for column in columns]
        solution = linear(
            np.array([*depth_cost, 1.0]),
            A_ub=loads,
            b_ub=np.zeros(rows),
            A_eq=one,
            b_eq=np.ones(len(self.commodities)),
            method="highs",
        )
        if solution.x is None:
            raise SynthError(
                f"{self.network.name}: the packing of the groups ended without an answer: {solution.message}"
            )
        return solution.x, np.maximum(-solution.ineqlin.marginals, 0), solution.eqlin.marginals

    def _add(self, j: int, options: list[tuple[Plan, ...]]) -> bool:
        """Add a column of commodity j; False if it is known already."""
        key = (j, tuple(options))
        if key in self.known:
            return False
        self.known.add(key)
        load = np.zeros(len(self.capacity))
        part_bytes = float(self.groups[self.commodities[j][0]].part) / len(options)
        deepest = 0
        for option in options:
            for plan in option:
                deepest = max(deepest, depth(plan, self.pairs))
                for hop in plan:
                    for k in self.resources.of[hop.route]:
                        load[k] += part_bytes
        self.columns.append(_Column(j, options, load, deepest))
        return True

    def _add_rings_and_stars(self, paths: _ShortestPaths) -> None:
        """Add rings both ways round and stars, which are optimal on symmetric machines."""
        for j, (g, parts) in enumerate(self.commodities):
            group = self.groups[g]
            if group.collective == "alltoall":
                continue
            for order in (list(group.ranks), list(group.ranks)[::-1]):
                self._add(j, [(plan,) for plan in _ring_plans(paths, group, parts[0], order)])
            self._add(j, [(plan,) for plan in _star_plans(paths, group, parts[0])])

    def _add_cheapest(self, paths: _ShortestPaths, duals: tuple[np.ndarray, np.ndarray] | None, turn: int) -> bool:
        """Add the cheapest plans that improve the master program, all of them without `duals`; True if there was one.

        `duals`: lengths of the resources, and what each commodity is worth. `turn` selects the root of an allreduce.
        """
        added = False
        for j, (g, parts) in enumerate(self.commodities):
            check_deadline()
            option = tuple(_cheapest(paths, self.groups[g], part, turn) for part in parts)
            if duals is not None:
                lengths, worth = duals
                cost = sum(lengths[k] for plan in option for hop in plan for k in self.resources.of[hop.route])
                if cost * float(self.groups[g].part) > worth[j] * (1 - SETTINGS.tolerance) - 1e-15:
                    continue
            added |= self._add(j, [option])
        return added


class _ShortestPaths:
    """Shortest paths between all ranks at given prices of routes, forwards and backwards.

    `distance` and `predecessor` belong to paths from a rank, `distance_to` and `successor` to paths to it. `route` is
    the cheapest route of each pair, by source x ranks + destination.
    """

    def __init__(self, master: _Master, price: np.ndarray) -> None:
        n = master.network.ranks
        self.ends = master.ends
        floor = price.max(initial=0.0) * 1e-7 + 1e-12  # among free paths the one with the fewest hops is shortest
        order = np.argsort(price, kind="stable")
        keys, first = np.unique(self.ends[order, 0] * n + self.ends[order, 1], return_index=True)
        self.route = dict(zip(keys.tolist(), order[first].tolist(), strict=True))
        self.ranks = n
        src, dst, lengths = keys // n, keys % n, price[order[first]] + floor
        self.distance, self.predecessor = shortest_path_trees(n, src, dst, lengths)
        self.distance_to, self.successor = shortest_path_trees(n, dst, src, lengths)

    def tree(self, root: int, members: Sequence[int], inward: bool) -> list[int]:
        """Routes of a cheap tree that joins the root and all members.

        It leads from the root, parents first, or if `inward` to the root, children first. The nearest member is joined
        next, by a shortest path from the tree (Takahashi and Matsuyama's heuristic).
        """
        distance, predecessor = self.distance, self.predecessor
        if inward:
            distance, predecessor = self.distance_to, self.successor
        remaining = np.array([r for r in members if r != root], np.int64)
        nearest, source = distance[root, remaining].copy(), np.full(len(remaining), root)
        inside = {root}
        depth = {root: 0}
        routes: list[int] = []
        depth_price = float(distance[distance < np.inf].max()) * 1e-6  # among equal paths, those from shallow ranks
        while len(remaining):
            at = int(np.argmin(nearest))
            member = int(remaining[at])
            path = [member]
            while path[-1] not in inside:
                path.append(int(predecessor[source[at], path[-1]]))
            path.reverse()
            for a, b in pairwise(path):
                routes.append(self.route[b * self.ranks + a] if inward else self.route[a * self.ranks + b])
                inside.add(b)
                depth[b] = depth[a] + 1
                through = distance[b, remaining] + depth_price * depth[b]
                better = through < nearest
                nearest[better], source[better] = through[better], b
            keep = remaining != member
            keep &= ~np.isin(remaining, path)
            remaining, nearest, source = remaining[keep], nearest[keep], source[keep]
        return routes[::-1] if inward else routes

    def path(self, a: int, b: int) -> list[int]:
        """Routes of the shortest path from a to b."""
        nodes = [b]
        while nodes[-1] != a:
            nodes.append(int(self.predecessor[a, nodes[-1]]))
        nodes.reverse()
        return [self.route[x * self.ranks + y] for x, y in pairwise(nodes)]

    def chain(self, ranks: Sequence[int]) -> list[int]:
        """Routes of the shortest paths from each rank to the next."""
        routes = []
        for a, b in pairwise(ranks):
            routes += self.path(a, b)
        return routes


def _copies(group: Group) -> bool:
    """True for a collective that sends results on, after sums if there are any."""
    return group.collective not in ("reduce-scatter", "reduce")


def _cheapest(paths: _ShortestPaths, group: Group, part: int, turn: int) -> Plan:
    """The cheapest plan of a part: a path for alltoall, trees for the others."""
    owners, targets = group.parts[part]
    if group.collective == "alltoall":
        return _plan((), paths.path(min(owners), min(targets)))
    if group.collective == "allreduce":
        root = group.ranks[turn % len(group.ranks)]
        return _plan(paths.tree(root, group.ranks, True), paths.tree(root, group.ranks, False))
    if group.collective in SUMS:
        return _plan(paths.tree(min(targets), group.ranks, True), ())
    return _plan((), paths.tree(min(owners), group.ranks, False))


def _ring_plans(paths: _ShortestPaths, group: Group, part: int, order: Sequence[int]) -> list[Plan]:
    """Plans along a ring: one, or for an allreduce one for each rank where sums end.

    Trees where the paths of the ring meet a rank twice.
    """
    owners, targets = group.parts[part]
    m = len(order)
    if not np.isfinite(paths.distance[np.ix_(order, order)]).all():
        return [_cheapest(paths, group, part, 0)]
    sums, copies = group.collective in SUMS, _copies(group)
    starts = order
    if group.collective != "allreduce":
        starts = [min(targets if sums else owners)]
    plans = []
    for start in starts:
        at = order.index(start)
        ring = [order[(at + i) % m] for i in range(m)]
        down = paths.chain(ring)
        up = paths.chain(ring[1:] + ring[:1])
        if (sums and not _simple(paths, up)) or (copies and not _simple(paths, down)):
            return [_cheapest(paths, group, part, 0)]
        used_up = up if sums else ()
        used_down = down if copies else ()
        plans.append(_plan(used_up, used_down))
    return plans


def _star_plans(paths: _ShortestPaths, group: Group, part: int) -> list[Plan]:
    """Plans straight from or to one rank, for an allreduce each rank in turn. Trees where paths are not single hops."""
    owners, targets = group.parts[part]
    hubs: Sequence[int] = group.ranks
    if group.collective != "allreduce":
        hubs = tuple(targets if group.collective in SUMS else owners)
    plans = []
    for hub in hubs:
        others = [r for r in group.ranks if r != hub]
        up: list[int] = []
        down: list[int] = []
        for r in others:
            up += paths.path(r, hub) if group.collective in SUMS else ()
            down += paths.path(hub, r) if _copies(group) else ()
        if max(len(up), len(down)) > len(others):
            up = paths.tree(hub, group.ranks, True) if up else []
            down = paths.tree(hub, group.ranks, False) if down else []
        plans.append(_plan(up, down))
    return plans


def _simple(paths: _ShortestPaths, routes: Sequence[int]) -> bool:
    """Return whether consecutive routes visit no rank twice."""
    visited = [int(paths.ends[i, 1]) for i in routes]
    return len(set(visited)) == len(visited) and (not visited or int(paths.ends[routes[0], 0]) not in visited)


def _plan(up: Sequence[int], down: Sequence[int]) -> Plan:
    """The plan that sums along the routes `up`, then copies along the routes `down`."""
    sums = [Hop(int(i), True) for i in up]
    copies = [Hop(int(i), False) for i in down]
    return (*sums, *copies)


def depth(plan: Plan, ends: Sequence[tuple[int, int]]) -> int:
    """Return the number of steps of a plan whose hops start as soon as they can; `ends[i]`: source and destination of
    route i."""
    ready: dict[int, int] = {}
    for hop in plan:
        a, b = ends[hop.route]
        ready[b] = max(ready.get(b, 0), ready.get(a, 0) + 1)
    return max(ready.values(), default=0)
