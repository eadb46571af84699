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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from synth.encodings.bounds.demands import Demand, demands
from synth.encodings.bounds.receive_covers import Cover, covered_sends, covers
from synth.model.collective import Collective
from synth.model.symmetry.stabilisers import Generator, orbit, orbits, stabiliser
from synth.model.topology import Network
from synth.solvers.cutting_planes import CutProgram, CutRow
from synth.solvers.linear_program import LinearProgram
from synth.solvers.max_flow import growing_flow

Cut = tuple[int, ...]  # θ: rank n is inside from time 0 through time θ[n]; -1: never
CutOrCover = Cut | Cover


@dataclass(frozen=True)
class CutLPSettings:
    """Limits of the cutting-plane linear program.

    Attributes:
        scale: Flow units of a load of 1 in the integer maximum flows.
        tolerance: Relative violation below which a cut counts as satisfied.
        max_cycles: Maximum number of rounds of cut separation.
        exact_ranks: Number of ranks up to which covers are searched for, and every program is solved to its optimum, by
            the cuts that this violates.
        many_columns: Number of columns above which the cuts of other programs are separated between the optimum of the
            relaxation and a feasible point.
        step: Part of the way from the feasible point to that optimum at which they are separated.
        slow_cycles: Number of rounds of such a separation that together must close the part `slight` of the gap to the
            best feasible point, or it ends; from twice as many rounds on.
        slight: Part of that gap.
    """

    scale: int = 1 << 40
    tolerance: float = 1e-8
    max_cycles: int = 400
    exact_ranks: int = 16
    many_columns: int = 1_000
    step: float = 0.25
    slow_cycles: int = 10
    slight: float = 0.06


SETTINGS = CutLPSettings()


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
        demands: the demands of the unit, one of each orbit under `group`.
        covers: its cover inequalities.
        columns: column of the load of each (route, step); those in one orbit under `group` share a column.
        routes: for each route the first one of its orbit under `group`.
    """

    unit: int
    orbit: int
    group: tuple[Generator, ...]
    demands: tuple[Demand, ...]
    covers: list[Cover] = field(default_factory=list)
    columns: dict[tuple[int, int], int] = field(default_factory=dict)
    routes: list[int] = field(default_factory=list)


class CutLP:
    """The cutting-plane linear program, on orbits under `generators`. Call `run`, then `duals`.

    `steps` None gives the static program: a single layer, without time. `floor`: minimum of each r[step] (1/C for the
    least R at C chunks). `count`: number of sends that each chunk needs in all.
    """

    def __init__(
        self, network: Network, collective: Collective, steps: int | None, generators: Sequence[Generator],
        floor: float = 0.0, count: int = 0,
    ) -> None:  # fmt: skip
        self.network, self.static, self.steps, self.generators = network, steps is None, steps or 1, tuple(generators)
        self.collective = collective
        self.routes = orbits(len(network.routes), [g.routes for g in generators])
        self.caps = orbits(len(network.caps), [cap_permutation(network, g) for g in generators])
        self.shares = [self._share(*pair) for pair in _representatives(collective, generators)]
        self.shares = [s for s in self.shares if s.demands]
        if not self.static and network.ranks <= SETTINGS.exact_ranks:
            for share in self.shares:
                share.covers = covers(network, share.demands, self.steps)
        self.count = count
        self._number_columns()
        lp = LinearProgram(
            [1.0] * self.steps + [0.0] * (self.size - self.steps),
            [floor] * self.steps + [0.0] * (self.size - self.steps),
        )
        rows = self._capacity_rows()
        self.capacities = rows
        lp.add_rows([(None, row, 0.0) for row in rows.values()])
        if count:
            tally: dict[int, float] = {}
            for column in self.shares[0].columns.values():
                tally[column] = tally.get(column, 0.0) + 1.0
            lp.add_rows([(float(count), tally, None)])
        self.program: CutProgram[tuple[UnitOrbit, CutOrCover]] = CutProgram(lp)

    def _share(self, unit: int, size: int) -> UnitOrbit:
        group = stabiliser(unit, self.generators, lambda g, u: g.units[u])
        return UnitOrbit(unit, size, group, demands(self.collective, unit))

    def _number_columns(self) -> None:
        self.size = self.steps
        self.far: dict[tuple[int, Demand], tuple[list, list]] = {}
        back = self.network.reversed()
        for share in self.shares:
            same = share.routes = orbits(len(self.network.routes), [g.routes for g in share.group])
            share.demands = _demand_representatives(share.demands, share.group)
            useful: set[tuple[int, int]] = set()  # the first route of an orbit, and a step
            for demand in share.demands:
                reach = self.far[share.unit, demand] = self._reach(demand, back)
                for i, route in zip(same, self.network.routes, strict=True):
                    useful.update((i, t) for t in self._times(reach[0][route.src], reach[1][route.dst]))
            if self.count or share.covers:  # these are paid by sends of no use too
                useful = {(i, t) for i in range(len(same)) for t in range(1, self.steps + 1)}
            fresh: dict[tuple[int, int], int] = {}
            for i, first in enumerate(same):
                for t in range(1, self.steps + 1):
                    if (first, t) in useful:
                        share.columns[i, t] = fresh.setdefault((first, t), self.size + len(fresh))
            self.size += len(fresh)

    def _reach(self, demand: Demand, back: Network) -> tuple[list, list]:
        """Return the steps that the data take to each rank, and those from each rank to the destination."""
        return self.network.distances_from(sorted(demand.sources)), back.distances_from([demand.dst])

    def _times(self, early: int | None, late: int | None) -> range:
        if early is None or late is None:
            return range(0)
        return range(1, 2) if self.static else range(early + 1, self.steps - late + 1)

    def _capacity_rows(self) -> dict[tuple[str, int, int], dict[int, float]]:
        """Return the rows of Σ load - Σ bandwidth · r ≤ 0, one per orbit of links or limits and step."""
        rows: dict[tuple[str, int, int], dict[int, float]] = {}
        of_route: list[list[tuple[str, int]]] = []
        for i, limits in enumerate(self.network.caps_of):
            of_route.append([("link", self.routes[i]), *(("limit", self.caps[k]) for k in limits)])
        for share in self.shares:
            for (i, t), column in share.columns.items():
                for kind, k in of_route[i]:
                    row = rows.setdefault((kind, k, t), {})
                    row[column] = row.get(column, 0.0) + share.orbit
        for kind, resources, same in (
            ("link", self.network.routes, self.routes), ("limit", self.network.caps, self.caps)
        ):  # fmt: skip
            total: dict[int, int] = {}
            for k, resource in zip(same, resources, strict=True):
                total[k] = total.get(k, 0) + resource.units
            for k, units in total.items():
                for t in range(1, self.steps + 1):
                    if (kind, k, t) in rows:
                        rows[kind, k, t][t - 1] = -float(units)
        return rows

    def run(self) -> float:
        """Add violated cuts until there are none, and return the optimum, the least Σ r.

        After `SETTINGS.max_cycles` rounds of cuts, and where a large program converges slowly, it is a lower bound on
        the optimum. Raises ArithmeticError where the solver fails.
        """
        searches = [_Search(self, share) for share in self.shares]
        for share in self.shares:
            for demand in share.demands:
                self.program.add(self._row(share, cut) for cut in self._first_cuts(share, demand))
        for share in self.shares:
            self.program.add(self._row(share, cover) for cover in share.covers)

        def violated(loads: list[float]) -> Iterator[CutRow[tuple[UnitOrbit, CutOrCover]]]:
            for search in searches:
                for cut in search.violated(loads):
                    yield self._row(search.share, cut)

        large = self.network.ranks > SETTINGS.exact_ranks and self.size > SETTINGS.many_columns
        separate = InOutSeparation(self, searches, violated).violated if large else violated
        self.program.run(separate, SETTINGS.max_cycles)
        if not self.program.solution:
            raise ArithmeticError("the linear solver found no optimum")
        return self.program.optimum

    def balanced_loads(self) -> list[float]:
        """Return loads that fill every link or limit in one round of each step, as far as no other one is in the
        way."""
        loads = [1.0] * self.steps + [0.0] * (self.size - self.steps)
        for (_, _, t), row in self.capacities.items():
            total = sum(coefficient for column, coefficient in row.items() if column != t - 1)
            for column in row:
                if column != t - 1:
                    share = -row[t - 1] / total
                    loads[column] = min(loads[column] or share, share)
        return loads

    def needed_rounds(self, loads: Sequence[float]) -> float:
        """Return the rounds of all steps that the loads take."""
        needed = [0.0] * self.steps
        for (_, _, t), row in self.capacities.items():
            total = sum(coefficient * loads[column] for column, coefficient in row.items() if column != t - 1)
            needed[t - 1] = max(needed[t - 1], -total / row[t - 1])
        return sum(needed)

    def _first_cuts(self, share: UnitOrbit, demand: Demand) -> list[Cut]:
        out, into = [self.steps] * self.network.ranks, [-1] * self.network.ranks
        for n in demand.sources:
            out[n] = -1
        into[demand.dst] = self.steps
        return [self.tight(tuple(out), share, demand), self.tight(tuple(into), share, demand)]

    def tight(self, cut: Cut, share: UnitOrbit, demand: Demand) -> Cut:
        """Return the cut moved so that only sends that can serve the demand in time enter it.

        The total load of the sends that enter it does not grow.
        """
        if self.static:
            return cut
        early, late = self.far[share.unit, demand]
        moved = []
        for theta, a, b in zip(cut, early, late, strict=True):
            low = self.steps if a is None else a - 1
            high = -1 if b is None else self.steps - b
            moved.append(min(self.steps, max(low, -1, min(theta, high))))
        return tuple(moved)

    def _row(self, share: UnitOrbit, item: CutOrCover) -> CutRow[tuple[UnitOrbit, CutOrCover]]:
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
        self, master: CutLP, searches: Sequence[_Search],
        violated: Callable[[list[float]], Iterator[CutRow[tuple[UnitOrbit, CutOrCover]]]],
    ) -> None:  # fmt: skip
        self.master, self.searches, self.separate = master, searches, violated
        self.best, self.inside = inf, [0.0] * master.size
        self.bounds: list[float] = []
        self._cuts(master.balanced_loads())

    def violated(self, loads: list[float]) -> Iterable[CutRow[tuple[UnitOrbit, CutOrCover]]]:
        """Return cuts that the loads, or points between them and the feasible ones, violate; none at the end."""
        self.bounds.append(self.master.program.optimum)
        if self._is_slow():
            return []
        between = [x + SETTINGS.step * (y - x) for x, y in zip(self.inside, loads, strict=True)]
        cuts = self._cuts(between)
        for _, row, least in cuts:
            if sum(coefficient * loads[column] for column, coefficient in row.items()) < least - SETTINGS.tolerance:
                return cuts
        return [*cuts, *self._cuts(loads)]

    def _is_slow(self) -> bool:
        cycles = SETTINGS.slow_cycles
        if len(self.bounds) < 2 * cycles:
            return False
        return self.bounds[-1] - self.bounds[-cycles] < SETTINGS.slight * (self.best - self.bounds[-1])

    def _cuts(self, loads: list[float]) -> list[CutRow[tuple[UnitOrbit, CutOrCover]]]:
        cuts = list(self.separate(loads))
        flow = min(search.least_flow for search in self.searches)
        if SETTINGS.tolerance < flow < inf:
            scaled = [load / flow for load in loads]
            value = self.master.needed_rounds(scaled)
            if value < self.best:
                self.best, self.inside = value, scaled
        return cuts


class _Search:
    """Separation of violated cuts of one representative unit by maximum flow.

    `least_flow`: of the flows at the last loads, in relation to what is needed.
    """

    def __init__(self, master: CutLP, share: UnitOrbit) -> None:
        self.master, self.share, self.graph = master, share, growing_flow()
        self.least_flow = inf
        layers = 0 if master.static else master.steps
        self.layers = layers
        self.arcs = []
        for (i, t), column in share.columns.items():
            route = master.network.routes[i]
            tail, head = self._node(route.src, t - 1), self._node(route.dst, t)
            self.arcs.append((self.graph.add_arc_with_capacity(tail, head, 0), column))
        plenty = SETTINGS.scale << 12
        for n in range(master.network.ranks):
            for t in range(layers):
                self.graph.add_arc_with_capacity(self._node(n, t), self._node(n, t + 1), plenty)
        self.start: dict[frozenset[int], int] = {}
        spare = master.network.ranks * (layers + 1)
        for sources in dict.fromkeys(d.sources for d in share.demands):
            if len(sources) == 1:
                self.start[sources] = self._node(min(sources), 0)
                continue
            self.start[sources], spare = spare, spare + 1
            for n in sorted(sources):
                self.graph.add_arc_with_capacity(self.start[sources], self._node(n, 0), plenty)

    def _node(self, rank: int, time: int) -> int:
        return rank if self.layers == 0 else rank * (self.layers + 1) + time

    def violated(self, loads: list[float]) -> Iterator[Cut]:
        """Yield cuts that the loads of columns violate."""
        for arc, column in self.arcs:
            self.graph.set_arc_capacity(arc, int(loads[column] * SETTINGS.scale) if loads[column] > 0 else 0)
        self.least_flow = inf
        for demand in self.share.demands:
            self.graph.solve(self.start[demand.sources], self._node(demand.dst, self.layers))
            flow = self.graph.optimal_flow() / SETTINGS.scale
            self.least_flow = min(self.least_flow, flow)
            if flow >= 1 - SETTINGS.tolerance:
                continue
            inside = set(self.graph.get_sink_side_min_cut())
            yield self.master.tight(self._theta(inside), self.share, demand)

    def _theta(self, inside: set[int]) -> Cut:
        if self.layers == 0:
            theta = [-1] * self.master.network.ranks
            for n in range(len(theta)):
                if n in inside:
                    theta[n] = 1
            return tuple(theta)
        theta = []
        for n in range(self.master.network.ranks):
            first_outside = next((t for t in range(self.layers + 1) if self._node(n, t) not in inside), self.layers + 1)
            theta.append(first_outside - 1)
        return tuple(theta)


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


def _representatives(collective: Collective, generators: Sequence[Generator]) -> list[tuple[int, int]]:
    sizes: dict[int, int] = {}
    for u in orbits(collective.units, [g.units for g in generators]):
        sizes[u] = sizes.get(u, 0) + 1
    return sorted(sizes.items())


def _demand_representatives(found: tuple[Demand, ...], group: tuple[Generator, ...]) -> tuple[Demand, ...]:
    seen: set[Demand] = set()
    kept = []
    for demand in found:
        if demand not in seen:
            kept.append(demand)
            seen.update(orbit(demand, group, move_demand) or ())
    return tuple(kept)


def move_demand(g: Generator, demand: Demand) -> Demand:
    """Return the image of `demand` under the automorphism `g`."""
    return Demand(frozenset(g.ranks[n] for n in demand.sources), g.ranks[demand.dst])
