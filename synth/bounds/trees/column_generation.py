"""Column generation over trees: the least R/C at S steps of any schedule, for chunks that travel whole.

Every chunk of a schedule travels along a tree (`arborescence`), so a schedule of C chunks a unit is a solution, with
multiplicities k/C, of

    minimise Σ r_t   over   x[tree] ≥ 0 with Σ x = 1 per unit,   load[k,t] ≤ bandwidth_k · r_t

and conversely a rational solution is a schedule for some C once every r_t ≥ 1/C is an integer multiple of 1/C: the
optimum is the infimum of R/C over all C, as soon as R ≥ S. Averaging over automorphisms keeps the optimum, so loads
are kept per orbit of constraints and trees for one representative unit per orbit of units.

The master is solved in its dual form, where a new tree is a new row and the last basis stays feasible for the dual
simplex method; prices are smoothed towards the
best seen so far (Wentges, Int. Trans. Oper. Res. 4, 1997).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.bounds.trees.cheapest_trees import pricer
from synth.bounds.trees.time_expanded_trees import Tree
from synth.model.collective import Collective
from synth.model.symmetry.stabilisers import Generator, orbits
from synth.model.topology import Network
from synth.solvers.linear_program import LinearProgram

SMOOTHING = 0.7
EPSILON = 1e-7
MOST_NEW = 60  # trees of a unit in a round of pricing
POOL, KNOWN = 96, 72  # trees searched at once, and the known ones they start from: many cost hardly more than few
MOST_EFFORT = 48  # turns of one search, where fewer find nothing new


class Space:
    """Bandwidth constraints and units of a problem, folded by automorphisms.

    `constraints[k]` is ``(routes, units)``: the routes one by one, then the caps. `orbit[k]` numbers its orbit,
    `capacity[o]` sums the units of an orbit, `use[route, o]` counts the constraints of orbit o on a route.
    `units` are the representatives, `weight` the sizes of their orbits.
    """

    def __init__(self, network: Network, collective: Collective, generators: Sequence[Generator]) -> None:
        self.network, self.collective, self.generators = network, collective, tuple(generators)
        routes = len(network.routes)
        self.constraints = [((i,), r.units) for i, r in enumerate(network.routes)] + [
            (c.routes, c.units) for c in network.caps
        ]
        cap_at = {(tuple(sorted(c.routes)), c.units): routes + k for k, c in enumerate(network.caps)}
        moves = []
        for g in self.generators:
            caps = [cap_at[tuple(sorted(g.routes[i] for i in c.routes)), c.units] for c in network.caps]
            moves.append([*g.routes, *caps])
        least = orbits(len(self.constraints), moves)
        number = {k: o for o, k in enumerate(sorted(set(least)))}
        self.orbit = np.array([number[k] for k in least])
        self.capacity = np.bincount(self.orbit, weights=[units for _, units in self.constraints])
        self.use = np.zeros((routes, len(number)))
        for k, (members, _) in enumerate(self.constraints):
            np.add.at(self.use[:, self.orbit[k]], list(members), 1)
        self._uses = [[(int(o), float(self.use[r, o])) for o in np.flatnonzero(self.use[r])] for r in range(routes)]
        home = orbits(collective.units, [g.units for g in self.generators])
        active = [u for u in range(collective.units) if not collective.post[u] <= collective.pre[u]]
        self.units = sorted({home[u] for u in active})
        self.weight = {u: home.count(u) for u in self.units}

    def loads(self, tree: Tree, steps: int) -> np.ndarray:
        """`loads[o, t - 1]`: how much a chunk on `tree` uses of orbit o in step t."""
        found = np.zeros((self.use.shape[1], steps))
        for place, amount in self.sparse(tree, steps).items():
            found.flat[place] = amount
        return found

    def sparse(self, tree: Tree, steps: int) -> dict[int, float]:
        """The entries of `loads` that are not 0, by ``orbit * steps + step - 1``."""
        found: dict[int, float] = {}
        for step, route in tree:
            for o, amount in self._uses[route]:
                place = o * steps + step - 1
                found[place] = found.get(place, 0.0) + amount
        return found


@dataclass
class Columns:
    """What column generation ended with.

    `value`: the optimum over the trees found, an upper bound on the infimum of R/C; `lower`: a lower bound from exact
    pricing (floats; certificates come from `trees`). `trees[u]` are the trees of representative unit u, `share` their
    multiplicities, `rounds` the r_t. `prices[o, t - 1]` are the dual prices of constraint orbits.
    """

    space: Space
    steps: int
    value: float = float("inf")
    lower: float = 0.0
    trees: dict[int, list[Tree]] = field(default_factory=dict)
    share: dict[int, list[float]] = field(default_factory=dict)
    rounds: list[float] = field(default_factory=list)
    prices: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    worth: dict[int, float] = field(default_factory=dict)
    iterations: int = 0
    optimal: bool = False

    def reduced_costs(self, unit: int) -> np.ndarray:
        """What each tree of `unit` costs at `prices` beyond the cheapest worth of the unit; zero on optimal ones."""
        weight = self.space.weight[unit]
        price = (self.space.use @ self.prices).tolist()
        return np.array(
            [weight * sum(price[r][t - 1] for t, r in tree) - self.worth[unit] for tree in self.trees[unit]]
        )


class _Warm(LinearProgram):
    """A linear program whose costs may change; the last basis is kept."""

    def price(self, costs: Sequence[float]) -> None:
        """Set the costs of all columns."""
        self._solver.changeColsCost(len(costs), list(range(len(costs))), list(costs))


class Restricted:
    """The dual of the restricted master: prices y, slack s_t, worth of units; every tree is a row, so the basis stays
    warm.

    maximise Σ worth + floor · Σ s   with   Σ capacity · y[., t] + s_t = 1   and   worth_u ≤ weight_u · (load of tree) ·
                                                                                   y
    """

    def __init__(self, space: Space, steps: int, floor: float) -> None:
        self.space, self.steps = space, steps
        self.count = len(space.capacity) * steps
        self.lp = _Warm([0.0] * self.count + [-floor] * steps + [-1.0] * len(space.units))
        self.worth_at = {u: self.count + steps + i for i, u in enumerate(space.units)}
        rows = []
        for t in range(steps):
            row = {o * steps + t: float(capacity) for o, capacity in enumerate(space.capacity)}
            rows.append((1.0, row | {self.count + t: 1.0}, 1.0))
        self.lp.add_rows(rows)
        self.columns: list[tuple[int, Tree]] = []
        self.trees: dict[int, list[Tree]] = {u: [] for u in space.units}
        self.places: dict[int, list[np.ndarray]] = {u: [] for u in space.units}
        self.known: set[tuple[int, Tree]] = set()
        self.waiting: list[tuple[float | None, dict[int, float], float | None]] = []

    def ask(self, need: dict[int, float], loads: np.ndarray, floors: Sequence[float]) -> None:
        """Change the right-hand sides: how much of each unit is to be placed beside `loads`, and the least rounds of
        each step."""
        costs = [-float(x) for x in loads.ravel()] + [-float(f) for f in floors] + [-need[u] for u in self.space.units]
        self.lp.price(costs)

    def add(self, unit: int, tree: Tree) -> bool:
        """Add a tree; False where it is there already."""
        if (unit, tree) in self.known:
            return False
        self.known.add((unit, tree))
        self.columns.append((unit, tree))
        self.trees[unit].append(tree)
        self.places[unit].append(np.array([route * self.steps + step - 1 for step, route in tree]))
        row = {
            place: -self.space.weight[unit] * amount for place, amount in self.space.sparse(tree, self.steps).items()
        }
        self.waiting.append((None, row | {self.worth_at[unit]: 1.0}, 0.0))
        return True

    def cheapest(self, unit: int, price: np.ndarray, count: int) -> list[Tree]:
        """As many trees of `unit` as `count`, the cheapest at ``price[route, step - 1]``."""
        trees, places = self.trees[unit], self.places[unit]
        if len(trees) <= count:
            return list(trees)
        starts = np.cumsum([0, *map(len, places[:-1])])
        cost = np.add.reduceat(price.ravel()[np.concatenate(places)], starts)
        return [trees[i] for i in np.argsort(cost, kind="stable")[:count]]

    def solve(self) -> bool:
        """Solve to optimality, from the last basis; False where the solver failed."""
        self.lp.add_rows(self.waiting)
        self.waiting = []
        answer = self.lp.solve()
        if answer is None:
            return False
        value, x, duals = answer
        self.value = -value
        self.prices = np.maximum(np.array(x[: self.count]), 0.0).reshape(-1, self.steps)
        self.worth = {u: x[i] for u, i in self.worth_at.items()}
        self.rounds = [-d for d in duals[: self.steps]]
        self.slack = x[self.count : self.count + self.steps]
        self.share: dict[int, list[float]] = {u: [] for u in self.space.units}
        for (unit, _), dual in zip(self.columns, duals[self.steps :], strict=True):
            self.share[unit].append(max(0.0, -dual))
        return True


def generate(
    network: Network,
    collective: Collective,
    steps: int,
    generators: Sequence[Generator] = (),
    *,
    target: float = 0.0,
    floor: float = 0.0,
    seconds: float | None = None,
    iterations: int = 400,
    seed: int = 0,
    exact: Callable[[Space, int, np.ndarray, float], tuple[float, Tree | None]] | None = None,
) -> Columns | None:
    """Column generation at `steps` steps; None where some destination cannot be reached in time.

    Stops at `target` (a lower bound on R/C that is known), at `iterations` or `seconds`, or when pricing finds nothing.
    `floor` is the least r_t (1/C when a schedule of C chunks is wanted). `exact(space, unit, price, limit)` settles
    what the heuristic pricing leaves open: it returns a lower bound on the price of any tree of `unit` and a tree
    below `limit`, if there is one.
    """
    started = time.process_time()
    space = Space(network, collective, generators)
    result = Columns(space, steps)
    growers = {u: pricer(network, steps, collective.pre[u], collective.post[u], seed + 7919 * u) for u in space.units}
    sure = all(grower.exact for grower in growers.values())
    master = Restricted(space, steps, floor)
    centre = np.full((len(space.capacity), steps), 1.0 / space.capacity.sum())
    for u, grower in growers.items():
        found = grower.search(space.use @ centre, [], POOL, 1)
        if not found:
            return None
        for _, tree in found[:MOST_NEW]:
            master.add(u, tree)
    centre_value = 0.0
    effort = 1
    stalled = False
    while True:
        if not master.solve():
            break
        result.value, prices, worth = master.value, master.prices, master.worth
        result.iterations += 1
        out_of_time = seconds is not None and time.process_time() - started > seconds
        if result.value <= target * (1 + EPSILON) or result.iterations >= iterations or out_of_time:
            break
        weight = 0.0 if stalled else SMOOTHING
        probe = weight * centre + (1 - weight) * prices
        price, judge = space.use @ probe, (space.use @ prices).tolist()
        total, added = 0.0, 0
        for u, grower in growers.items():
            known = master.cheapest(u, price, KNOWN)
            found = grower.search(price, known, POOL, effort)
            total += space.weight[u] * found[0][0]
            fresh = 0
            for _, tree in found:
                cost = space.weight[u] * sum(judge[r][t - 1] for t, r in tree)
                if cost < worth[u] - EPSILON * max(1.0, worth[u]) and master.add(u, tree):
                    fresh += 1
                    if fresh >= MOST_NEW:
                        break
            added += fresh
        if total > centre_value:
            centre, centre_value = probe, total
        if sure:
            result.lower = centre_value
            result.optimal = result.lower >= result.value * (1 - EPSILON)
            if result.optimal or (stalled and not added):
                break
        if added:
            stalled, effort = False, 1
            continue
        if not stalled:
            stalled = True
            continue
        if effort < MOST_EFFORT:
            effort *= 4
            continue
        if exact is None:
            break
        bound = 0.0
        for u in growers:
            least, tree = exact(space, u, np.array(judge), worth[u] / space.weight[u])
            bound += space.weight[u] * least
            if tree is not None and master.add(u, tree):
                added += 1
        result.lower = max(result.lower, bound)
        if not added:
            result.optimal = result.lower >= result.value * (1 - 1e-6)
            break
        stalled = False
    result.trees, result.prices, result.worth = master.trees, master.prices, master.worth
    result.share = {
        u: [x / max(1.0, sum(mine)) for x in mine] for u, mine in master.share.items()
    }  # more than one chunk costs nothing
    result.rounds = master.rounds
    return result


def enrich(columns: Columns, slack: float, count: int, seed: int) -> int:
    """Add trees whose reduced cost is at most `slack` to `columns`, as many as `count` for a unit; how many were new.

    Only such trees can be part of a schedule whose R/C exceeds `columns.value` by `slack` or less.
    """
    space, new = columns.space, 0
    price = space.use @ columns.prices
    for u in space.units:
        grower = pricer(
            space.network, columns.steps, space.collective.pre[u], space.collective.post[u], seed + 7919 * u
        )
        known = set(columns.trees[u])
        start = _cheapest(columns.trees[u], price, 64)
        limit = columns.worth[u] / space.weight[u] + max(slack, EPSILON) + 1e-6
        found = [tree for cost, tree in grower.search(price, start, 64, 16) if cost <= limit and tree not in known]
        columns.trees[u].extend(found[:count])
        columns.share[u].extend([0.0] * len(found[:count]))
        new += len(found[:count])
    return new


def _cheapest(trees: Sequence[Tree], price: np.ndarray, count: int) -> list[Tree]:
    if len(trees) <= count:
        return list(trees)
    cost = [sum(price[r, t - 1] for t, r in tree) for tree in trees]
    return [trees[i] for i in np.argsort(cost, kind="stable")[:count]]
