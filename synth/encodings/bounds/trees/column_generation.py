"""Column generation over trees: the least R/C at S steps of any schedule whose chunks travel whole.

Every chunk of a schedule travels along a time-expanded arborescence, a *tree*. So a schedule of C chunks a unit is a
solution, with multiplicities k/C, of

    minimise Σ r_t   over   x[tree] ≥ 0 with Σ x = 1 per unit,   load[k,t] ≤ bandwidth_k · r_t

Conversely a rational solution is a schedule for some C once every r_t ≥ 1/C is an integer multiple of 1/C. So the
optimum is the infimum of R/C over all C, as soon as R ≥ S. Averaging over automorphisms keeps the optimum. Loads are
therefore kept for each orbit of constraints, and trees for one representative unit of each orbit of units.

The restricted master is solved in its dual form, where a new tree is a new row and the last basis stays feasible for
the dual simplex method. The loop is that of `synth.solvers.column_generation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from synth.encodings.bounds.cut_lp import cap_permutation
from synth.encodings.bounds.trees.cheapest_trees import SteinerTreeDP, make_pricer
from synth.encodings.bounds.trees.time_expanded_trees import Tree, TreeSearch
from synth.model.collective import Collective
from synth.model.symmetry.stabilisers import Generator, orbits
from synth.model.topology import Network
from synth.solvers.column_generation import SmoothedPrices, generate_columns
from synth.solvers.deadline import NEVER, Deadline
from synth.solvers.linear_program import LinearProgram


@dataclass(frozen=True)
class ColumnGenerationSettings:
    """Limits of column generation over trees.

    Attributes:
        epsilon: Relative tolerance for float comparisons of costs.
        most_new: Maximum number of trees of one unit that join the master in one round of pricing.
        pool: Number of trees that a heuristic search improves at once; many cost hardly more time than few.
        known: Maximum number of known trees that such a search starts from.
        efforts: Numbers of turns of a heuristic search, the next where one finds nothing new.
        iterations: Maximum number of times that the restricted master is solved.
    """

    epsilon: float = 1e-7
    most_new: int = 60
    pool: int = 96
    known: int = 72
    efforts: tuple[int, ...] = (1, 4, 16, 64)
    iterations: int = 400


SETTINGS = ColumnGenerationSettings()


class FoldedProblem:
    """Bandwidth constraints and units of a problem at `steps` steps, one for each orbit of an automorphism group.

    Attributes:
        constraints: ``(routes, units)`` of each constraint: the routes one by one, then the shared limits.
        orbit: number of the orbit of each constraint.
        capacity: sum of the units of the constraints of each orbit, in chunks per round.
        use: ``use[route, o]`` is the number of constraints of orbit o on a route.
        units: representatives of the orbits of units of data.
        weight: size of the orbit of each representative.
    """

    def __init__(
        self, network: Network, collective: Collective, steps: int, generators: Sequence[Generator] = ()
    ) -> None:
        self.network, self.collective, self.steps, self.generators = network, collective, steps, tuple(generators)
        routes = len(network.routes)
        self.constraints = [((i,), r.units) for i, r in enumerate(network.routes)]
        self.constraints += [(c.routes, c.units) for c in network.caps]
        moves = []
        for g in self.generators:
            moves.append([*g.routes, *(routes + k for k in cap_permutation(network, g))])
        least = orbits(len(self.constraints), moves)
        number = {k: o for o, k in enumerate(sorted(set(least)))}
        self.orbit = np.array([number[k] for k in least])
        self.capacity = np.bincount(self.orbit, weights=[units for _, units in self.constraints])
        self.use = np.zeros((routes, len(number)))
        for k, (members, _) in enumerate(self.constraints):
            np.add.at(self.use[:, self.orbit[k]], list(members), 1)
        self._uses: list[list[tuple[int, float]]] = []  # the nonzero entries of `use`, by route
        for row in self.use:
            self._uses.append([(int(o), float(row[o])) for o in np.flatnonzero(row)])
        home = orbits(collective.units, [g.units for g in self.generators])
        active = [u for u in range(collective.units) if not collective.post[u] <= collective.pre[u]]
        self.units = sorted({home[u] for u in active})
        self.weight = {u: home.count(u) for u in self.units}

    def pricer(self, unit: int, seed: int) -> SteinerTreeDP | TreeSearch:
        """Return a pricer of the trees of `unit`, from its holders to all ranks that want it."""
        pre, post = self.collective.pre[unit], self.collective.post[unit]
        return make_pricer(self.network, self.steps, pre, post, seed)

    def no_loads(self) -> np.ndarray:
        """Return ``loads[o, t - 1]`` = 0 for each constraint orbit o and step t."""
        return np.zeros((len(self.capacity), self.steps))

    def loads(self, tree: Tree) -> np.ndarray:
        """Return ``loads[o, t - 1]``, the load of one chunk on `tree` on constraint orbit o in step t."""
        loads = self.no_loads()
        for place, amount in self.sparse(tree).items():
            loads.flat[place] = amount
        return loads

    def sparse(self, tree: Tree) -> dict[int, float]:
        """Return the nonzero entries of `loads`, by ``orbit * steps + step - 1``."""
        entries: dict[int, float] = {}
        for step, route in tree:
            for o, amount in self._uses[route]:
                place = o * self.steps + step - 1
                entries[place] = entries.get(place, 0.0) + amount
        return entries


@dataclass
class Columns:
    """Result of column generation, in floats.

    Attributes:
        value: the optimum over the known trees, an upper bound on the infimum of R/C.
        trees: the known trees of each representative unit.
        share: their multiplicities in the optimal solution.
        rounds: r_t of each step.
        prices: ``prices[o, t - 1]`` are the dual prices of constraint orbits.
        unit_duals: the dual value of each representative unit.
        iterations: number of times that the restricted master was solved.
    """

    folded: FoldedProblem
    value: float = float("inf")
    trees: dict[int, list[Tree]] = field(default_factory=dict)
    share: dict[int, list[float]] = field(default_factory=dict)
    rounds: list[float] = field(default_factory=list)
    prices: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    unit_duals: dict[int, float] = field(default_factory=dict)
    iterations: int = 0

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.folded.steps

    def reduced_costs(self, unit: int) -> np.ndarray:
        """Return the reduced cost of each tree of `unit`: its cost at `prices` minus the unit's dual value. It is zero
        on trees in use."""
        weight = self.folded.weight[unit]
        price = (self.folded.use @ self.prices).tolist()
        costs = []
        for tree in self.trees[unit]:
            costs.append(weight * sum(price[r][t - 1] for t, r in tree) - self.unit_duals[unit])
        return np.array(costs)


class RestrictedMaster:
    """Restricted master over the known trees, in its dual form: prices y, slack s_t and dual values w_u of units.

        maximise Σ w_u + floor · Σ s_t   with   Σ_o capacity_o · y[o, t] + s_t = 1   for each step t
                                         and    w_u ≤ weight_u · (load of tree) · y   for each tree of unit u

    Every tree is a row, so the last basis stays dual feasible when trees are added. After `solve`: `value`, `prices`,
    `route_prices[route][step - 1]`, `unit_duals`, `rounds`, `slack` and `share`, the multiplicities of the trees of
    each unit.
    """

    def __init__(self, folded: FoldedProblem, floor: float = 0.0) -> None:
        self.folded, self.steps = folded, folded.steps
        steps = folded.steps
        self.value = float("inf")
        self.count = len(folded.capacity) * steps
        self.lp = LinearProgram([0.0] * self.count + [-floor] * steps + [-1.0] * len(folded.units))
        self.unit_column = {u: self.count + steps + i for i, u in enumerate(folded.units)}
        rows = []
        for t in range(steps):
            row = {o * steps + t: float(capacity) for o, capacity in enumerate(folded.capacity)}
            rows.append((1.0, row | {self.count + t: 1.0}, 1.0))
        self.lp.add_rows(rows)
        self.columns: list[tuple[int, Tree]] = []
        self.trees: dict[int, list[Tree]] = {u: [] for u in folded.units}
        self.places: dict[int, list[np.ndarray]] = {u: [] for u in folded.units}
        self.known: set[tuple[int, Tree]] = set()
        self.pending_rows: list[tuple[float | None, dict[int, float], float | None]] = []

    def set_demand(self, need: dict[int, float], loads: np.ndarray, floors: Sequence[float]) -> None:
        """Change the right-hand sides of the primal program, for the chunks that are not yet fixed.

        `need[u]`: total multiplicity of the trees of unit u. ``loads[o, t - 1]``: load of the fixed chunks on
        constraint orbit o in step t. ``floors[t - 1]``: minimum of r_t.
        """
        costs = [-float(x) for x in (*loads.ravel(), *floors)]
        self.lp.change_costs(costs + [-need[u] for u in self.folded.units])

    def add(self, unit: int, tree: Tree) -> bool:
        """Add a tree; return False if it is known already."""
        if (unit, tree) in self.known:
            return False
        self.known.add((unit, tree))
        self.columns.append((unit, tree))
        self.trees[unit].append(tree)
        self.places[unit].append(np.array([route * self.steps + step - 1 for step, route in tree]))
        entries = self.folded.sparse(tree)
        row = {place: -self.folded.weight[unit] * amount for place, amount in entries.items()}
        self.pending_rows.append((None, row | {self.unit_column[unit]: 1.0}, 0.0))
        return True

    def add_improving(self, unit: int, trees: Iterable[Tree], maximum: int) -> int:
        """Add the trees, in order, whose reduced cost is below 0, at most `maximum`; return the number that was new.

        Call after `solve`.
        """
        weight, limit = self.folded.weight[unit], self.unit_duals[unit]
        limit -= SETTINGS.epsilon * max(1.0, limit)
        added = 0
        for tree in trees:
            cost = weight * sum(self.route_prices[route][step - 1] for step, route in tree)
            if cost < limit and self.add(unit, tree):
                added += 1
                if added == maximum:
                    break
        return added

    def cheapest(self, unit: int, price: np.ndarray, count: int) -> list[Tree]:
        """Return at most `count` trees of `unit`, the cheapest at ``price[route, step - 1]``."""
        trees, places = self.trees[unit], self.places[unit]
        if len(trees) <= count:
            return list(trees)
        starts = np.cumsum([0, *map(len, places[:-1])])
        cost = np.add.reduceat(price.ravel()[np.concatenate(places)], starts)
        return [trees[i] for i in np.argsort(cost, kind="stable")[:count]]

    def solve(self) -> bool:
        """Solve to optimality, from the last basis; return False if the solver fails."""
        self.lp.add_rows(self.pending_rows)
        self.pending_rows = []
        answer = self.lp.solve()
        if answer is None:
            return False
        value, x, duals = answer  # the row duals of this dual program are the primal solution, with signs reversed
        self.value = -value
        self.prices = np.maximum(np.array(x[: self.count]), 0.0).reshape(-1, self.steps)
        self.route_prices: list[list[float]] = (self.folded.use @ self.prices).tolist()
        self.unit_duals = {u: x[i] for u, i in self.unit_column.items()}
        self.rounds = [-d for d in duals[: self.steps]]
        self.slack = x[self.count : self.count + self.steps]
        self.share: dict[int, list[float]] = {u: [] for u in self.folded.units}
        for (unit, _), dual in zip(self.columns, duals[self.steps :], strict=True):
            self.share[unit].append(max(0.0, -dual))
        return True


def generate(
    folded: FoldedProblem,
    target: float = 0.0,
    *,
    floor: float = 0.0,
    deadline: Deadline = NEVER,
    seed: int = 0,
) -> Columns | None:
    """Run column generation over trees; return its result, or None if a destination cannot be reached in time.

    It stops when the optimum over the known trees is at most `target` (a known lower bound on R/C), after
    `SETTINGS.iterations`, at the deadline, or when no pricer finds a tree that improves it. `floor`: minimum of each
    r_t (1/C when a schedule of C chunks is wanted).
    """
    pricing = _Pricing(folded, floor, seed)
    master = pricing.master
    if not pricing.add_first_trees():
        return None

    def stop() -> bool:
        return deadline.over or master.value * (1 - SETTINGS.epsilon) <= max(target, pricing.bound)

    # First at smoothed prices, then at the master's own, where heuristic searches take more and more turns.
    pricers: list[Callable[[], int]] = [lambda: pricing.add_cheap_trees(pricing.smoothed.smooth(master.prices), 1)]
    for effort in SETTINGS.efforts[:1] if pricing.exact else SETTINGS.efforts:
        pricers.append(partial(pricing.add_at_own_prices, effort))
    iterations = generate_columns(master.solve, stop, pricers, SETTINGS.iterations).iterations
    result = Columns(folded, master.value, master.trees, rounds=master.rounds, prices=master.prices)
    result.unit_duals, result.iterations = master.unit_duals, iterations
    for u, share in master.share.items():
        total = max(1.0, sum(share))  # above 1 where a further chunk costs nothing
        result.share[u] = [x / total for x in share]
    return result


class _Pricing:
    """The pricers of all units of a folded problem, and the master that their trees join.

    Attributes:
        exact: the pricers return cheapest trees.
        bound: a lower bound on the optimum over all trees if they do, else 0.
    """

    def __init__(self, folded: FoldedProblem, floor: float, seed: int) -> None:
        self.folded, self.master = folded, RestrictedMaster(folded, floor)
        self.pricers = {u: folded.pricer(u, seed + 7919 * u) for u in folded.units}
        self.exact = all(pricer.exact for pricer in self.pricers.values())
        self.smoothed = SmoothedPrices(np.full((len(folded.capacity), folded.steps), 1.0 / folded.capacity.sum()))

    @property
    def bound(self) -> float:
        return self.smoothed.bound if self.exact else 0.0

    def add_first_trees(self) -> bool:
        """Add cheap trees of every unit at even prices; return False if a unit has none."""
        for u, pricer in self.pricers.items():
            priced = pricer.search(self.folded.use @ self.smoothed.best, [], SETTINGS.pool, 1)
            if not priced:
                return False
            for _, tree in priced[: SETTINGS.most_new]:
                self.master.add(u, tree)
        return True

    def add_at_own_prices(self, effort: int) -> int:
        """Add trees that are cheap at the master's prices; return their number."""
        return self.add_cheap_trees(self.master.prices, effort)

    def add_cheap_trees(self, prices: np.ndarray, effort: int) -> int:
        """Add improving trees among those that are cheap at ``prices[o, t - 1]``; return their number.

        `effort`: turns of a heuristic search.
        """
        price, total, added = self.folded.use @ prices, 0.0, 0
        for u, pricer in self.pricers.items():
            priced = pricer.search(price, self.master.cheapest(u, price, SETTINGS.known), SETTINGS.pool, effort)
            total += self.folded.weight[u] * priced[0][0]
            added += self.master.add_improving(u, (tree for _, tree in priced), SETTINGS.most_new)
        self.smoothed.update(prices, total)
        return added
