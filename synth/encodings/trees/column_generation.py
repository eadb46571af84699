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

import numpy as np

from synth.encodings.bounds.cut_lp import cap_permutation
from synth.encodings.trees.cheapest_trees import SteinerTreeDP, make_pricer
from synth.encodings.trees.time_expanded_trees import Tree, TreeSearch
from synth.model.collective import Collective
from synth.model.symmetry.stabilisers import Generator, orbits
from synth.model.topology import Network
from synth.solvers.column_generation import SmoothedPrices, generate_columns
from synth.solvers.deadline import NEVER, Deadline
from synth.solvers.linear_program import LinearProgram

# Relative tolerance for float comparisons of costs.
EPSILON = 1e-7
# Trees of one unit that join the master in one round of pricing, at most.
MOST_NEW = 60
# Trees that a heuristic search improves at once, and known trees that it starts from, at most.
POOL, KNOWN = 96, 72
# Turns of a heuristic search, the next where one finds nothing new.
EFFORTS = (1, 4, 16, 64)
# Solutions of the restricted master, at most.
ITERATIONS = 400


class FoldedProblem:
    """Bandwidth constraints and units of a problem at `steps` steps, one for each orbit of an automorphism group.

    Attributes:
        orbit: number of the orbit of each constraint: the routes one by one, then the shared limits.
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
        constraints = [((i,), r.units) for i, r in enumerate(network.routes)]
        constraints += [(c.routes, c.units) for c in network.caps]
        moves = []
        for g in self.generators:
            moves.append([*g.routes, *(routes + k for k in cap_permutation(network, g))])
        least = orbits(len(constraints), moves)
        number = {k: o for o, k in enumerate(sorted(set(least)))}
        self.orbit = np.array([number[k] for k in least])
        self.capacity = np.bincount(self.orbit, weights=[units for _, units in constraints])
        self.use = np.zeros((routes, len(number)))
        for k, (members, _) in enumerate(constraints):
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


class RestrictedMaster:
    """Restricted master over the known trees, in its dual form: prices y, slack s_t and dual values w_u of units.

        maximise Σ w_u + floor · Σ s_t   with   Σ_o capacity_o · y[o, t] + s_t = 1   for each step t
                                         and    w_u ≤ weight_u · (load of tree) · y   for each tree of unit u

    Every tree is a row, so the last basis stays dual feasible when trees are added. After `solve`, in floats: `value`,
    the optimum over the known `trees`, an upper bound on the infimum of R/C; ``prices[o, t - 1]``, the dual prices of
    constraint orbits; `route_prices[route][step - 1]`, `unit_duals`, `rounds`, `slack` and `share`, the multiplicities
    of the trees of each unit. `iterations`: solutions in `generate`.
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
        self.iterations = 0

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
        limit -= EPSILON * max(1.0, limit)
        added = 0
        for tree in trees:
            cost = weight * sum(self.route_prices[route][step - 1] for step, route in tree)
            if cost < limit and self.add(unit, tree):
                added += 1
                if added == maximum:
                    break
        return added

    def reduced_costs(self, unit: int) -> list[float]:
        """Return the cost of each tree of `unit` at `prices` minus the unit's dual value: zero on trees in use."""
        costs = []
        for tree in self.trees[unit]:
            cost = sum(self.route_prices[route][step - 1] for step, route in tree)
            costs.append(self.folded.weight[unit] * cost - self.unit_duals[unit])
        return costs

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
    folded: FoldedProblem, target: float = 0.0, *, floor: float = 0.0, deadline: Deadline = NEVER, seed: int = 0
) -> RestrictedMaster | None:
    """Run column generation over trees; return the master at its end, or None if a destination cannot be reached in
    time.

    It stops when the optimum over the known trees is at most `target` (a known lower bound on R/C), after `ITERATIONS`,
    at the deadline, or when no pricer finds a tree that improves it. `floor`: minimum of each r_t (1/C when a schedule
    of C chunks is wanted).
    """
    # cheap trees of every unit at even prices
    master = RestrictedMaster(folded, floor)
    pricers = {u: folded.pricer(u, seed + 7919 * u) for u in folded.units}
    exact = all(pricer.exact for pricer in pricers.values())
    smoothed = SmoothedPrices(np.full((len(folded.capacity), folded.steps), 1.0 / folded.capacity.sum()))
    for u, pricer in pricers.items():
        priced = pricer.search(folded.use @ smoothed.best, [], POOL, 1)
        if not priced:
            return None
        for _, tree in priced[:MOST_NEW]:
            master.add(u, tree)

    def stop() -> bool:
        bound = smoothed.bound if exact else 0.0  # on the optimum over all trees
        return deadline.over or master.value * (1 - EPSILON) <= max(target, bound)

    def add_cheap_trees(prices: np.ndarray, effort: int) -> int:
        """Add improving trees among those that are cheap at ``prices[o, t - 1]``; return their number."""
        price, total, added = folded.use @ prices, 0.0, 0
        for u, pricer in pricers.items():
            priced = pricer.search(price, master.cheapest(u, price, KNOWN), POOL, effort)
            total += folded.weight[u] * priced[0][0]
            added += master.add_improving(u, (tree for _, tree in priced), MOST_NEW)
        smoothed.update(prices, total)
        return added

    # first at smoothed prices, then at the master's own, where heuristic searches take more and more turns
    turns: list[Callable[[], int]] = [lambda: add_cheap_trees(smoothed.smooth(master.prices), 1)]
    for effort in EFFORTS[:1] if exact else EFFORTS:
        turns.append(lambda effort=effort: add_cheap_trees(master.prices, effort))
    master.iterations = generate_columns(master.solve, stop, turns, ITERATIONS).iterations
    for u, share in master.share.items():
        total = max(1.0, sum(share))  # above 1 where a further chunk costs nothing
        master.share[u] = [x / total for x in share]
    return master
