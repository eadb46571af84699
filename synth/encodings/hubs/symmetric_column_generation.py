"""Allreduce by column generation over trees through one hub or two, for chunks that are images of few representatives
under a group: fractional solutions, and schedules of whole chunks near them.

A chunk is summed up along a tree that ends at one rank, its hub, or at two neighbours that swap their sums, and spreads
along another tree from there: 2(N - 1) sends, the fewest possible. Column generation decides whether fractions of such
chunks fit into the rounds. A tree down is a tree up reversed in time on the reversed network, so the cheapest trees at
any prices come from two dynamic programs over the sets of ranks that hold the data
(`synth.encodings.bounds.trees.cheapest_trees`).

Whole chunks are made of the fractions in two stages. First the fractions are rounded to trees, and a linear program
checks that fractional chunks with the same hubs and swap steps still fit. Then simulated annealing
(`synth.encodings.hubs.annealing`) moves the sends. To find none proves nothing: other schedules may do with less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synth.encodings.bounds.trees.cheapest_trees import SteinerTreeDP
from synth.encodings.bounds.trees.column_generation import FoldedProblem, RestrictedMaster
from synth.encodings.bounds.trees.time_expanded_trees import Tree
from synth.encodings.hubs.annealing import ChunkTrees, LoadLimits, anneal_loads
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.symmetry.permutations import compose
from synth.model.symmetry.stabilisers import Generator
from synth.model.topology import Network
from synth.solvers.column_generation import Generation, SmoothedPrices, generate_columns
from synth.solvers.rationalise import largest_remainders


@dataclass(frozen=True)
class SymmetricHubSettings:
    """Limits of column generation over symmetric chunks, and of the annealing that rounds it.

    Attributes:
        new: Maximum number of trees that join the master in one round of pricing, the cheapest.
        sure: Tolerance for float comparisons, relative to R/C.
        iterations: Maximum number of iterations of column generation.
        runs: Number of annealing runs from the same fractions.
        proposals: Maximum number of proposals of one annealing run.
        a_turn: Seconds of a core for one iteration of column generation, about; converts iterations into work.
    """

    new: int = 40
    sure: float = 1e-7
    iterations: int = 100
    runs: int = 2
    proposals: int = 60_000
    a_turn: float = 0.01


SETTINGS = SymmetricHubSettings()


class SymmetricHubPath(NamedTuple):
    """A cheapest pair of trees through given hubs.

    Attributes:
        cost: at the prices it was computed for.
        hubs: one hub, or two that swap in step `middle`.
        up: the other ranks pass their sums on in steps 1 to `up`; `middle` - 1 for two hubs, `middle` for one.
        middle: the step after which the total spreads.
    """

    cost: float
    hubs: tuple[int, ...]
    up: int
    middle: int


class SymmetricHubPathPricer:
    """Pricer of chunks: the cheapest trees within `steps` steps for each hub or pair of hubs and each step of the swap.

    Only for networks that `fits` accepts.
    """

    def __init__(self, network: Network, steps: int) -> None:
        self.network, self.steps = network, steps
        everyone = range(network.ranks)
        self.falling = SteinerTreeDP(network, steps, (), everyone)
        self.rising = SteinerTreeDP(network.reversed(), steps, (), everyone)
        self.route = {(r.src, r.dst): i for i, r in enumerate(network.routes)}
        self.pairs = sorted((a, b) for a, b in self.route if a < b and (b, a) in self.route)
        self.path_of: dict[Tree, SymmetricHubPath] = {}  # of each tree that `tree` returned

    @staticmethod
    def fits(network: Network) -> bool:
        """Return True if the network has few enough ranks, and at most one route from each rank to each other."""
        return SteinerTreeDP.fits(network, ()) and len({(r.src, r.dst) for r in network.routes}) == len(network.routes)

    def price(self, prices: np.ndarray) -> list[SymmetricHubPath]:
        """Return all paths at ``prices[route, step - 1]``, a cheapest first.

        The next call overwrites the tables from which `tree` reads the sends of a path.
        """
        steps = self.steps
        self.falling.price(prices)
        self.rising.price(prices[:, ::-1])
        rise, fall, send_cost = self.rising.cost_to_go, self.falling.cost_to_go, prices.tolist()
        paths = []
        for n in range(self.network.ranks):
            for t in range(steps):
                paths.append(SymmetricHubPath(float(rise[steps - t, 1 << n] + fall[t, 1 << n]), (n,), t, t))
        for a, b in self.pairs:
            both, there, back = 1 << a | 1 << b, send_cost[self.route[a, b]], send_cost[self.route[b, a]]
            for t in range(1, steps + 1):
                cost = float(rise[steps - t + 1, both] + fall[t, both]) + there[t - 1] + back[t - 1]
                paths.append(SymmetricHubPath(cost, (a, b), t - 1, t))
        return sorted(path for path in paths if path.cost < np.inf)

    def tree(self, path: SymmetricHubPath) -> Tree:
        """Return the sends ``(step, route)`` of a path."""
        hubs = sum(1 << n for n in path.hubs)
        sends = [(self.steps + 1 - t, i) for t, i in self.rising.optimal_sends(self.steps - path.up, hubs)]
        sends += self.falling.optimal_sends(path.middle, hubs)
        if len(path.hubs) == 2:
            a, b = path.hubs
            sends += [(path.middle, self.route[a, b]), (path.middle, self.route[b, a])]
        tree = tuple(sorted(sends))
        self.path_of.setdefault(tree, path)
        return tree

    def chunk(self, tree: Tree) -> ChunkTrees:
        """Return a tree that `tree` returned as a chunk for annealing."""
        path, routes = self.path_of[tree], self.network.routes
        swap, up, down = 0, {}, {}
        for step, i in tree:
            if len(path.hubs) == 2 and step == path.middle and {routes[i].src, routes[i].dst} == set(path.hubs):
                swap = step
            elif step <= path.up:
                up[routes[i].src] = (step, i)
            else:
                down[routes[i].dst] = (step, i)
        return ChunkTrees(path.hubs, swap, up, down)


@dataclass(frozen=True)
class HubSearchResult:
    """Result of `solve`.

    Attributes:
        reached: fractions of chunks fit into the rounds, however these are divided among the steps.
        schedule: a schedule of whole chunks, if one was found.
        work: deterministic measure of the time spent, about seconds of a core.
    """

    reached: bool
    schedule: Schedule | None
    work: float


def rounds_of(rounds: int, steps: int) -> list[int]:
    """Return the rounds of each step: nearly equal, symmetric in time, with the remainder at both ends."""
    each, remainder = divmod(rounds, steps)
    result = [each] * steps
    if remainder % 2 and steps % 2:
        result[steps // 2] += 1
    for t in range(remainder // 2):
        result[t] += 1
        result[-1 - t] += 1
    if remainder % 2 and not steps % 2:
        result[remainder // 2] += 1
    return result


def solve(translation: TranslatedChunks, steps: int, rounds: int, starts: int, seed: int) -> HubSearchResult:
    """Search for an allreduce schedule of the chunks of `translation` with `rounds_of` rounds in each step.

    `translation` has no stabilizer group. If routes are alike in both directions and the numbers allow it, half of the
    chunks are the other half reversed in time, which leaves about half as much to search. The search begins at most
    `starts` times, each time from other fractions. Deterministic.
    """
    work, rounds_of_step, count = 0.0, rounds_of(rounds, steps), len(translation.representatives)
    limits, back = _limits(translation, rounds_of_step)
    for start in range(starts):
        pricer = SymmetricHubPathPricer(translation.network, steps)
        share, spent = fractions(pricer, translation, rounds_of_step, seed + start)
        work += spent
        if share is None:
            free, spent = fractions(pricer, translation, rounds_of_step, seed, exact=False)
            return HubSearchResult(free is not None, None, work + spent)
        trees: list[Tree] = []
        counts = largest_remainders(list(share.values()), count // 2 if back else count)
        for tree, times in zip(share, counts, strict=True):
            trees += [tree] * times
        fits, spent = _kinds_fit(pricer, translation, trees, rounds_of_step, bool(back))
        work += spent
        for run in range(SETTINGS.runs if fits else 0):
            chunks = [pricer.chunk(tree) for tree in trees]
            run_seed = SETTINGS.runs * (seed + start) + run
            done, spent = anneal_loads(chunks, translation.network, steps, limits, SETTINGS.proposals, run_seed)
            work += spent
            if done:
                if back:
                    chunks += [chunk.mirrored(steps, back) for chunk in chunks]
                return HubSearchResult(True, _schedule(translation, steps, chunks, pricer.route), work)
    return HubSearchResult(True, None, work)


def _limits(translation: TranslatedChunks, rounds: Sequence[int]) -> tuple[LoadLimits, list[int]]:
    """Return the load limits of each step, and the opposite route of each route if chunks may be paired with their
    reversals in time, else [].

    Then a load and its reversal in time are one row.
    """
    network, steps = translation.network, len(rounds)
    weights = [dict(load.weights) for load in translation.loads]
    maximum = []
    for load in translation.loads:
        maximum.append([load.max_count(r) for r in rounds])
    ends = {(r.src, r.dst, r.units): i for i, r in enumerate(network.routes)}
    back = [ends.get((r.dst, r.src, r.units), -1) for r in network.routes]
    reversed_load = []  # of each load, -1 where there is none
    for weight in weights:
        image = {back[i]: w for i, w in weight.items()}
        reversed_load.append(weights.index(image) if image in weights else -1)
    paired = (
        -1 not in back
        and -1 not in reversed_load
        and len(translation.representatives) % 2 == 0
        and list(rounds) == list(rounds)[::-1]
    )
    row_of: dict[tuple[int, int], int] = {}
    capacity: list[int] = []
    for k in range(len(weights)):
        for t in range(steps):
            other = (reversed_load[k], steps - 1 - t) if paired else (k, t)
            if other in row_of:
                row_of[k, t] = row_of[other]
                capacity[row_of[other]] = min(capacity[row_of[other]], maximum[k][t])
            else:
                # A load that is its own reversal counts each chunk and its reversal: half of it is for either.
                own_reversal = paired and other == (k, t)
                row_of[k, t] = len(capacity)
                capacity.append(maximum[k][t] // 2 if own_reversal else maximum[k][t])
    rows: list[list[tuple[int, ...]]] = []
    for i in range(len(network.routes)):
        of_route: list[tuple[int, ...]] = [()]  # steps begin at 1
        for t in range(steps):
            of_step: list[int] = []
            for k, weight in enumerate(weights):
                of_step += [row_of[k, t]] * weight.get(i, 0)
            of_route.append(tuple(of_step))
        rows.append(of_route)
    return LoadLimits(rows, capacity), back if paired else []


def _schedule(
    translation: TranslatedChunks, steps: int, chunks: list[ChunkTrees], route: Mapping[tuple[int, int], int]
) -> Schedule:
    sends: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(steps)]
    for rep, chunk in enumerate(chunks):
        for step, i, kind in chunk.sends(route):
            sends[step - 1].setdefault(rep, []).append((i, kind))
    return translation.expand(sends)


def fractions(
    pricer: SymmetricHubPathPricer, translation: TranslatedChunks, rounds: Sequence[int], seed: int, exact: bool = True
) -> tuple[dict[Tree, float] | None, float]:  # fmt: skip
    """Return the share of the data on each tree, None if it does not fit into `rounds` of each step, and the work.

    Without `exact` the rounds may be divided among the steps freely. Then None means that no schedule through hubs has
    so few rounds (in floats).
    """
    folded, copies = _stand_in(translation, pricer.steps, 1), len(translation.translations)
    floors = [copies * r / translation.chunks for r in rounds]
    goal = sum(floors)
    master = RestrictedMaster(folded)
    if exact:
        master.set_demand({0: 1.0}, folded.no_loads(), floors)
    first = np.random.default_rng(seed).random((len(folded.capacity), pricer.steps)) / folded.capacity.sum()
    for path in pricer.price(folded.use @ first):
        master.add(0, pricer.tree(path))

    def cheapest(price: np.ndarray) -> Iterator[tuple[float, Tree]]:
        return ((path.cost, pricer.tree(path)) for path in pricer.price(price)[: SETTINGS.new])

    generation = improve(master, first, goal, SETTINGS.iterations, cheapest)
    work = generation.iterations * SETTINGS.a_turn
    return (dict(zip(master.trees[0], master.share[0], strict=True)) if generation.ending == "stopped" else None), work


def improve(
    master: RestrictedMaster,
    first: np.ndarray,
    goal: float,
    iterations: int,
    cheapest: Callable[[np.ndarray], Iterable[tuple[float, Tree]]],
) -> Generation:
    """Generate columns for the one unit of `master` until its value is at most `goal` or no column improves it.

    ``cheapest(price)`` returns at most `SETTINGS.new` trees with their costs at ``price[route, step - 1]``, a cheapest
    first.
    Prices are smoothed towards the best so far, at first `first`.
    """
    if not master.columns:
        return Generation("unsolved", 0)
    smoothed = SmoothedPrices(first)

    def price(prices: np.ndarray) -> int:
        priced = list(cheapest(master.folded.use @ prices))
        if priced:
            smoothed.update(prices, priced[0][0])
        return master.add_improving(0, [tree for _, tree in priced], SETTINGS.new)

    pricers = [lambda: price(smoothed.smooth(master.prices)), lambda: price(master.prices)]
    return generate_columns(master.solve, lambda: master.value <= goal * (1 + SETTINGS.sure), pricers, iterations)


def _kinds_fit(
    pricer: SymmetricHubPathPricer,
    translation: TranslatedChunks,
    trees: list[Tree],
    rounds: Sequence[int],
    paired: bool,
) -> tuple[bool, float]:
    """Return True if fractional chunks of the same kinds as `trees` fit, and the work.

    The kind of a chunk is the orbit of its hubs and the step of its swap. With `paired` the reversals in time count
    too. Annealing changes hardly any kind, so there is no use in it otherwise.
    """
    orbits: dict[tuple[int, ...], tuple[int, ...]] = {path.hubs: () for path in pricer.path_of.values()}
    for hubs in orbits:
        images: list[tuple[int, ...]] = []
        for g in translation.translations:
            images.append(tuple(sorted(g.ranks[n] for n in hubs)))
        orbits[hubs] = min(images)

    def kind(path: SymmetricHubPath) -> tuple[int, tuple[int, ...]]:
        return path.middle if len(path.hubs) == 2 else 0, orbits.get(path.hubs, ())

    kinds = [kind(pricer.path_of[tree]) for tree in trees]
    if paired:
        kinds += [(swap and pricer.steps + 1 - swap, hubs) for swap, hubs in kinds]
    counts = Counter(kinds)
    copies = len(translation.translations)
    folded = _stand_in(translation, pricer.steps, len(counts))
    unit = dict(zip(sorted(counts), folded.units, strict=True))
    master = RestrictedMaster(folded)
    for tree, path in pricer.path_of.items():
        if kind(path) in unit:
            master.add(unit[kind(path)], tree)
    demand = {unit[k]: float(n) for k, n in counts.items()}
    master.set_demand(demand, folded.no_loads(), list(map(float, rounds)))

    def price() -> int:
        added = 0
        for path in pricer.price(folded.use @ master.prices):
            u = unit.get(kind(path))
            if u is not None and path.cost * copies < master.unit_duals[u] - SETTINGS.sure:
                tree = pricer.tree(path)
                added += kind(pricer.path_of[tree]) == kind(path) and master.add(u, tree)
        return added

    generation = generate_columns(
        master.solve, lambda: master.value <= sum(rounds) * (1 + SETTINGS.sure), [price], SETTINGS.iterations
    )
    return generation.ending == "stopped", generation.iterations * SETTINGS.a_turn


def _stand_in(translation: TranslatedChunks, steps: int, kinds: int) -> FoldedProblem:
    """Return the capacities, folded by the group, with a stand-in collective: for each kind of chunk one unit of data
    for each group element, which the group permutes freely.

    The trees of these units come from `SymmetricHubPathPricer`, not from the stand-in's holders.
    """
    at = {g.ranks: k for k, g in enumerate(translation.translations)}
    copies, everyone = len(at), frozenset(range(translation.network.ranks))
    generators = []
    for g in translation.translations:
        images = [at[compose(h.ranks, g.ranks)] for h in translation.translations]
        units: list[int] = []
        for kind in range(kinds):
            units += [kind * copies + k for k in images]
        generators.append(Generator(g.ranks, g.routes, tuple(units)))
    data = Collective("hubs", len(everyone), (frozenset([0]),) * (copies * kinds), (everyone,) * (copies * kinds))
    return FoldedProblem(translation.network, data, steps, generators)
