"""Cutting-plane linear program of the flow bounds on R/C, for every number of chunks, with a separate flow for each
destination.

The linear program, per chunk: loads g[unit, route, step] that carry a unit flow from the sources to each destination
on its own (time-expanded over S steps; g is shared, the flows are not), and rounds r[step] with

    Σ_units Σ_{routes of k} g  ≤  bandwidth_k · r[step]   for every link and limit k;      minimise Σ r

"Carries a unit flow" is written as its cuts: Σ g over the sends that enter a deadline cut ≥ 1, and cuts are added where
a maximum flow finds one that is violated. The dual of the last master is a packing of deadline cuts: the certificate.
Loads are kept on orbits of routes under the stabiliser of one representative unit per orbit, which loses nothing:
averaging a solution over the group keeps it a solution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from synth.encodings.bounds.demands import Demand, demands
from synth.encodings.bounds.receive_covers import Cover, covered_sends, covers
from synth.model.collective import Collective
from synth.model.symmetry.stabilisers import Generator, orbit, orbits, stabiliser
from synth.model.topology import Network
from synth.solvers.linear_program import CutProgram, CutRow, LinearProgram
from synth.solvers.max_flow import growing_flow

Cut = tuple[int, ...]  # θ: rank n is inside from time 0 through time θ[n]; -1: never
CutOrCover = Cut | Cover

# Flow units of a load of 1 in the integer maximum flows.
SCALE = 1 << 40
# Relative violation below which a cut counts as satisfied.
TOLERANCE = 1e-8
# Rounds of cut separation, at most.
MAX_CYCLES = 400
# Ranks up to which covers are searched for, and every program is solved to its optimum, by the cuts that this violates.
EXACT_RANKS = 16
# Columns above which the cuts of other programs are separated between the optimum of the relaxation and a feasible
# point, and the part of the way from that point to the optimum.
MANY_COLUMNS, PART = 1_000, 0.25
# Rounds of such a separation that together must close so much of the gap to the best feasible point, or it ends; from
# twice as many rounds on.
SLOW_CYCLES, SLIGHT = 10, 0.06


def entering_sends(network: Network, cut: Cut, steps: int) -> list[tuple[int, int]]:
    """Return the (route, step) pairs, steps 1 to `steps`, whose sends enter the cut: from outside before to inside
    after."""
    sends = []
    for i, route in enumerate(network.routes):
        first, last = max(1, cut[route.src] + 2), min(steps, cut[route.dst])
        if first <= last:
            sends += [(i, t) for t in range(first, last + 1)]
    return sends


def counted_sends(network: Network, item: CutOrCover, steps: int) -> list[tuple[int, int]]:
    """Return the (route, step) pairs whose sends a cut (those that enter it) or a cover counts."""
    return covered_sends(network, item, steps) if isinstance(item, Cover) else entering_sends(network, item, steps)


def least_sends(item: CutOrCover) -> int:
    """Return a lower bound on the number of sends of each chunk that the cut or cover counts."""
    return item.sends if isinstance(item, Cover) else 1


@dataclass
class UnitOrbit:
    """A representative `unit` of an orbit of units.

    Attributes:
        orbit: number of units in the orbit.
        group: generators of the stabiliser of the unit.
        demands: the demands of the unit, one of each orbit under `group`, each with the steps that the data take to
            each rank, and those from each rank to the destination.
        covers: its cover inequalities.
        routes: for each route the first one of its orbit under `group`.
        columns: column of the load of each (route, step); those in one orbit under `group` share a column.
    """

    unit: int
    orbit: int
    group: tuple[Generator, ...]
    demands: dict[Demand, tuple[list, list]]
    covers: list[Cover]
    routes: list[int]
    columns: dict[tuple[int, int], int] = field(default_factory=dict)


LabelledRow = CutRow[tuple[UnitOrbit, CutOrCover]]


class CutLP:
    """The cutting-plane linear program, on orbits under `generators`. Call `run`, then `duals`.

    `steps` None gives the static program: a single layer, without time. `floor`: minimum of each r[step] (1/C for the
    least R at C chunks). `count`: number of sends that each chunk needs in all.
    """

    def __init__(
        self, network: Network, collective: Collective, steps: int | None, generators: Sequence[Generator],
        floor: float = 0.0, count: int = 0,
    ) -> None:  # fmt: skip
        self.network, self.collective, self.generators = network, collective, tuple(generators)
        self.static, self.steps, self.count = steps is None, steps or 1, count
        self.routes = orbits(len(network.routes), [g.routes for g in generators])
        self.caps = orbits(len(network.caps), [cap_permutation(network, g) for g in generators])

        # a unit of each orbit, with a demand of each orbit under its stabiliser
        self.shares: list[UnitOrbit] = []
        back = network.reversed()
        for unit, size in sorted(Counter(orbits(collective.units, [g.units for g in generators])).items()):
            group = stabiliser(unit, self.generators, lambda g, u: g.units[u])
            every, kept, seen = demands(collective, unit), {}, set[Demand]()
            for demand in every:
                if demand not in seen:
                    early = network.distances_from(sorted(demand.sources))
                    kept[demand] = early, back.distances_from([demand.dst])
                    seen.update(orbit(demand, group, move_demand) or ())
            if kept:
                few = not self.static and network.ranks <= EXACT_RANKS
                found = covers(network, every, self.steps) if few else []
                routes = orbits(len(network.routes), [g.routes for g in group])
                self.shares.append(UnitOrbit(unit, size, group, kept, found, routes))

        # a column for the load of each orbit of routes in each step in which it is of use
        self.size = self.steps
        for share in self.shares:
            useful: set[tuple[int, int]] = set()
            for early, late in share.demands.values():
                for first, route in zip(share.routes, network.routes, strict=True):
                    before, after = early[route.src], late[route.dst]
                    if before is not None and after is not None:
                        times = range(1, 2) if self.static else range(before + 1, self.steps - after + 1)
                        useful.update((first, t) for t in times)
            fresh: dict[tuple[int, int], int] = {}
            for i, first in enumerate(share.routes):
                for t in range(1, self.steps + 1):
                    # what counts sends, or covers, is paid by those of no use too
                    if count or share.covers or (first, t) in useful:
                        share.columns[i, t] = fresh.setdefault((first, t), self.size + len(fresh))
            self.size += len(fresh)

        # a row Σ load - Σ bandwidth · r ≤ 0 for each orbit of links or limits and step
        self.capacities: dict[tuple[str, int, int], dict[int, float]] = {}
        for share in self.shares:
            for (i, t), column in share.columns.items():
                for kind, k in (("link", self.routes[i]), *(("limit", self.caps[k]) for k in network.caps_of[i])):
                    row = self.capacities.setdefault((kind, k, t), {})
                    row[column] = row.get(column, 0.0) + share.orbit
        units = Counter[tuple[str, int]]()
        for k, route in zip(self.routes, network.routes, strict=True):
            units["link", k] += route.units
        for k, cap in zip(self.caps, network.caps, strict=True):
            units["limit", k] += cap.units
        for (kind, k, t), row in self.capacities.items():
            row[t - 1] = -float(units[kind, k])

        others = [0.0] * (self.size - self.steps)
        lp = LinearProgram([1.0] * self.steps + others, [floor] * self.steps + others)
        lp.add_rows([(None, row, 0.0) for row in self.capacities.values()])
        if count:
            tally = Counter(self.shares[0].columns.values())
            lp.add_rows([(float(count), {column: float(n) for column, n in tally.items()}, None)])
        self.program: CutProgram[tuple[UnitOrbit, CutOrCover]] = CutProgram(lp)

    def run(self) -> float:
        """Add violated cuts until there are none, and return the optimum, the least Σ r.

        After `MAX_CYCLES` rounds of cuts, and where a large program converges slowly, it is a lower bound on the
        optimum. Raises ArithmeticError where the solver fails.
        """
        # the cuts around the sources and around the destination of each demand, and the covers
        for share in self.shares:
            for demand in share.demands:
                out, into = [self.steps] * self.network.ranks, [-1] * self.network.ranks
                for n in demand.sources:
                    out[n] = -1
                into[demand.dst] = self.steps
                cuts = [self.tight(tuple(theta), share, demand) for theta in (out, into)]
                self.program.add([self.row(share, cut) for cut in cuts])
        for share in self.shares:
            self.program.add([self.row(share, cover) for cover in share.covers])

        searches = [_Search(self, share) for share in self.shares]

        def violated(loads: list[float]) -> Iterator[LabelledRow]:
            for search in searches:
                yield from search.violated(loads)

        large = self.network.ranks > EXACT_RANKS and self.size > MANY_COLUMNS
        separate = InOutSeparation(self, searches, violated).violated if large else violated
        self.program.run(separate, MAX_CYCLES)
        if not self.program.solution:
            raise ArithmeticError("the linear solver found no optimum")
        return self.program.optimum

    def tight(self, cut: Cut, share: UnitOrbit, demand: Demand) -> Cut:
        """Return the cut moved so that only sends that can serve the demand in time enter it.

        The total load of the sends that enter it does not grow.
        """
        if self.static:
            return cut
        moved = []
        for theta, a, b in zip(cut, *share.demands[demand], strict=True):
            low = self.steps if a is None else a - 1
            high = -1 if b is None else self.steps - b
            moved.append(min(self.steps, max(low, -1, min(theta, high))))
        return tuple(moved)

    def row(self, share: UnitOrbit, item: CutOrCover) -> LabelledRow:
        """Return the constraint of a cut or cover."""
        row: dict[int, float] = {}
        for place in counted_sends(self.network, item, self.steps):
            column = share.columns.get(place)
            if column is not None:
                row[column] = row.get(column, 0.0) + 1.0
        return CutRow((share, item), row, float(least_sends(item)))

    def duals(self) -> tuple[dict[tuple[str, int, int], float], list[tuple[UnitOrbit, CutOrCover, float]], float]:
        """Return the dual solution after `run`, a fractional packing of cuts.

        It is (prices, cuts, count): the price at (kind, representative link or limit, step), a triple (unit orbit, cut
        or cover, weight) for each one of positive weight, and the dual value of the constraint on `count`.
        """
        row_duals = self.program.duals
        prices = {key: -mu for key, mu in zip(self.capacities, row_duals, strict=False) if mu < -1e-12}
        cuts = [(share, cut, a / share.orbit) for (share, cut), a in self.program.weights if a > 1e-12]
        return prices, cuts, row_duals[-1] if self.count else 0.0


class InOutSeparation:
    """Separation of points between the optimum of the relaxation and feasible loads, which takes fewer rounds.

    As in Ben-Ameur and Neto, "Acceleration of cutting-plane and column generation algorithms" (Networks, 2007).

    The feasible loads are balanced ones at first, then the best of the separated points, scaled up. It ends where the
    bound rises slowly.
    """

    def __init__(
        self, master: CutLP, searches: Sequence[_Search], violated: Callable[[list[float]], Iterator[LabelledRow]]
    ) -> None:
        self.master, self.searches, self.separate = master, searches, violated
        self.best, self.inside = inf, [0.0] * master.size
        self.bounds: list[float] = []

        # loads that fill every link or limit in one round of each step, as far as no other one is in the way
        loads = [1.0] * master.steps + [0.0] * (master.size - master.steps)
        for (_, _, t), row in master.capacities.items():
            share = -row[t - 1] / (sum(row.values()) - row[t - 1])
            for column in row:
                if column != t - 1:
                    loads[column] = min(loads[column] or share, share)
        self._cuts(loads)

    def violated(self, loads: list[float]) -> Iterable[LabelledRow]:
        """Return cuts that the loads, or points between them and the feasible ones, violate; none at the end."""
        bounds = self.bounds
        bounds.append(self.master.program.optimum)
        if len(bounds) >= 2 * SLOW_CYCLES and bounds[-1] - bounds[-SLOW_CYCLES] < SLIGHT * (self.best - bounds[-1]):
            return []
        between = [x + PART * (y - x) for x, y in zip(self.inside, loads, strict=True)]
        cuts = self._cuts(between)
        for _, row, least in cuts:
            if sum(coefficient * loads[column] for column, coefficient in row.items()) < least - TOLERANCE:
                return cuts
        return [*cuts, *self._cuts(loads)]

    def _cuts(self, loads: list[float]) -> list[LabelledRow]:
        """Return cuts that the loads violate; scaled up until they violate none, they may be the best feasible ones."""
        cuts = list(self.separate(loads))
        flow = min(search.least_flow for search in self.searches)
        if TOLERANCE < flow < inf:
            scaled = [load / flow for load in loads]
            needed = [0.0] * self.master.steps  # rounds of each step
            for (_, _, t), row in self.master.capacities.items():
                total = sum(coefficient * scaled[column] for column, coefficient in row.items() if column != t - 1)
                needed[t - 1] = max(needed[t - 1], -total / row[t - 1])
            if sum(needed) < self.best:
                self.best, self.inside = sum(needed), scaled
        return cuts


class _Search:
    """Separation of violated cuts of one representative unit by maximum flow.

    `least_flow`: of the flows at the last loads, in relation to what is needed.
    """

    def __init__(self, master: CutLP, share: UnitOrbit) -> None:
        self.master, self.share, self.graph = master, share, growing_flow()
        self.least_flow = inf
        self.layers = 0 if master.static else master.steps
        ranks, graph, plenty = master.network.ranks, self.graph, SCALE << 12

        # arcs for the loads, and in time from a rank to itself
        self.arcs = []
        for (i, t), column in share.columns.items():
            route = master.network.routes[i]
            tail, head = self._node(route.src, t - 1), self._node(route.dst, t)
            self.arcs.append((graph.add_arc_with_capacity(tail, head, 0), column))
        for n in range(ranks):
            for t in range(self.layers):
                graph.add_arc_with_capacity(self._node(n, t), self._node(n, t + 1), plenty)

        # the node from which each set of sources starts
        self.start: dict[frozenset[int], int] = {}
        spare = ranks * (self.layers + 1)
        for sources in dict.fromkeys(demand.sources for demand in share.demands):
            if len(sources) == 1:
                self.start[sources] = self._node(min(sources), 0)
                continue
            self.start[sources], spare = spare, spare + 1
            for n in sorted(sources):
                graph.add_arc_with_capacity(self.start[sources], self._node(n, 0), plenty)

    def _node(self, rank: int, time: int) -> int:
        return rank if self.layers == 0 else rank * (self.layers + 1) + time

    def violated(self, loads: list[float]) -> Iterator[LabelledRow]:
        """Yield cuts that the loads of columns violate."""
        graph, layers = self.graph, self.layers
        for arc, column in self.arcs:
            graph.set_arc_capacity(arc, int(loads[column] * SCALE) if loads[column] > 0 else 0)
        self.least_flow = inf
        for demand in self.share.demands:
            graph.solve(self.start[demand.sources], self._node(demand.dst, layers))
            flow = graph.optimal_flow() / SCALE
            self.least_flow = min(self.least_flow, flow)
            if flow >= 1 - TOLERANCE:
                continue
            inside = set(graph.get_sink_side_min_cut())
            theta = []
            for n in range(self.master.network.ranks):
                outside = (t for t in range(layers + 1) if self._node(n, t) not in inside)
                theta.append(next(outside, max(2, layers + 1)) - 1)  # in the static program 1 stands for inside
            yield self.master.row(self.share, self.master.tight(tuple(theta), self.share, demand))


def cap_permutation(network: Network, g: Generator) -> tuple[int, ...]:
    """Return the image of each shared limit under an automorphism, by its number in `network.caps`."""
    places: dict[tuple, list[int]] = {}
    for k, cap in enumerate(network.caps):
        places.setdefault((tuple(sorted(cap.routes)), cap.units), []).append(k)
    taken: dict[tuple, int] = {}
    image = []
    for cap in network.caps:
        key = tuple(sorted(g.routes[i] for i in cap.routes)), cap.units
        image.append(places[key][taken.get(key, 0)])
        taken[key] = taken.get(key, 0) + 1
    return tuple(image)


def move_demand(g: Generator, demand: Demand) -> Demand:
    """Return the image of `demand` under the automorphism `g`."""
    return Demand(frozenset(g.ranks[n] for n in demand.sources), g.ranks[demand.dst])
