"""Allreduce through many hubs at once: what fraction of the data goes which way, and whole chunks of that.

A chunk is summed up along a tree that ends at one rank, its hub, or at two neighbours that swap what they have, and
spreads along another tree from there: 2(N - 1) sends, the least there are. Column generation says whether fractions of
such chunks fit into the rounds. Down is up read backwards on the reversed network, so that the cheapest way at any
prices comes from two walks over the sets of ranks that hold the data (`synth.bounds.trees.cheapest_trees`): what is
left to pay from a hub, or from two, after any step. Whole chunks are made of the fractions in two steps: how many have
which hubs and swap when, such that fractions of such chunks still fit; then local search (`evening`). Where none are
found nothing is proved: other schedules may do with less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synth.bounds.trees.cheapest_trees import Holders
from synth.bounds.trees.column_generation import Restricted, Space
from synth.bounds.trees.time_expanded_trees import Tree
from synth.encodings.hubs.annealing import Chunk, Rows, even_out
from synth.encodings.translated_chunks import Translation
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.symmetry.permutations import compose
from synth.model.symmetry.stabilisers import Generator
from synth.model.topology import Network

NEW = 40  # ways that join at one price, the cheapest
SMOOTHING = 0.7
SURE = 1e-7
ITERATIONS = 100
RUNS, PROPOSALS = 2, 60_000  # of local search from the same fractions, and how long each
A_TURN = 0.01  # seconds of a core for a turn of column generation, about


class Way(NamedTuple):
    """`hubs`: one, or two that swap in the last step of `up` + 1; others send up in steps 1 to `up` and receive after
    step `middle`."""

    cost: float
    hubs: tuple[int, ...]
    up: int
    middle: int


class Ways:
    """The cheapest ways of a chunk within `steps` steps, for each pair of hubs and each step of the swap; `fits` says
    where."""

    def __init__(self, network: Network, steps: int) -> None:
        self.network, self.steps = network, steps
        everyone = range(network.ranks)
        self.falling, self.rising = (Holders(side, steps, (), everyone) for side in (network, network.reversed()))
        self.route = {(r.src, r.dst): i for i, r in enumerate(network.routes)}
        self.pairs = sorted((a, b) for a, b in self.route if a < b and (b, a) in self.route)
        self.read: dict[Tree, Way] = {}  # how each tree that was read off goes

    @staticmethod
    def fits(network: Network) -> bool:
        """Whether there are few enough ranks, and one route at most from each to each other."""
        return Holders.fits(network, ()) and len({(r.src, r.dst) for r in network.routes}) == len(network.routes)

    def price(self, prices: np.ndarray) -> list[Way]:
        """All ways at ``prices[route, step - 1]``, a cheapest first; `tree` gives the sends of one until the next
        call."""
        steps = self.steps
        self.falling.price(prices)
        self.rising.price(prices[:, ::-1])
        rise, fall, paid = self.rising.rest, self.falling.rest, prices.tolist()
        found = [
            Way(float(rise[steps - t, 1 << n] + fall[t, 1 << n]), (n,), t, t)
            for n in range(self.network.ranks)
            for t in range(steps)
        ]
        for a, b in self.pairs:
            both, there, back = 1 << a | 1 << b, paid[self.route[a, b]], paid[self.route[b, a]]
            for t in range(1, steps + 1):
                cost = float(rise[steps - t + 1, both] + fall[t, both]) + there[t - 1] + back[t - 1]
                found.append(Way(cost, (a, b), t - 1, t))
        return sorted(way for way in found if way.cost < np.inf)

    def tree(self, way: Way) -> Tree:
        """The sends ``(step, route)`` of a way."""
        held = sum(1 << n for n in way.hubs)
        sends = [(self.steps + 1 - t, i) for t, i in self.rising.onwards(self.steps - way.up, held)]
        sends += self.falling.onwards(way.middle, held)
        if len(way.hubs) == 2:
            a, b = way.hubs
            sends += [(way.middle, self.route[a, b]), (way.middle, self.route[b, a])]
        made = tuple(sorted(sends))
        self.read.setdefault(made, way)
        return made

    def chunk(self, tree: Tree) -> Chunk:
        """A tree that was read off, as what `evening` works on."""
        way, routes = self.read[tree], self.network.routes
        swap, up, down = 0, {}, {}
        for step, i in tree:
            if len(way.hubs) == 2 and step == way.middle and {routes[i].src, routes[i].dst} == set(way.hubs):
                swap = step
            elif step <= way.up:
                up[routes[i].src] = (step, i)
            else:
                down[routes[i].dst] = (step, i)
        return Chunk(way.hubs, swap, up, down)


@dataclass(frozen=True)
class Found:
    """`reached`: whether fractions fit, in whatever rounds of each step; `schedule` where whole chunks were found too.

    `work`: seconds of a core, by what was done.
    """

    reached: bool
    schedule: Schedule | None
    work: float


def rounds_of(rounds: int, steps: int) -> list[int]:
    """How many rounds each step has: about as many each, the same from both ends, and what is over at the ends."""
    each, over = divmod(rounds, steps)
    found = [each] * steps
    if over % 2 and steps % 2:
        found[steps // 2] += 1
    for t in range(over // 2):
        found[t] += 1
        found[-1 - t] += 1
    if over % 2 and not steps % 2:
        found[over // 2] += 1
    return found


def solve(translation: Translation, steps: int, rounds: int, starts: int, seed: int) -> Found:
    """Allreduce of the chunks of `translation`, which has no inner symmetry, with `rounds_of` rounds in each step.

    Where routes are alike both ways and the numbers allow it, half of the chunks are the other half read backwards,
    which leaves about half as much to search. Begins so often from other fractions. Deterministic.
    """
    work, each, count = 0.0, rounds_of(rounds, steps), len(translation.representatives)
    limits, back = _limits(translation, each)
    for start in range(starts):
        ways = Ways(translation.network, steps)
        share, spent = fractions(ways, translation, each, seed + start)
        work += spent
        if share is None:
            free, spent = fractions(ways, translation, each, seed, exact=False)
            return Found(free is not None, None, work + spent)
        trees = _whole(share, count // 2 if back else count)
        fits, spent = _fits(ways, translation, trees, each, bool(back))
        work += spent
        for run in range(RUNS if fits else 0):
            chunks = [ways.chunk(tree) for tree in trees]
            done, spent = even_out(chunks, translation.network, steps, limits, PROPOSALS, RUNS * (seed + start) + run)
            work += spent
            if done:
                chunks += [chunk.mirrored(steps, back) for chunk in chunks] if back else []
                return Found(True, _schedule(translation, steps, chunks, ways.route), work)
    return Found(True, None, work)


def _limits(translation: Translation, rounds: Sequence[int]) -> tuple[Rows, list[int]]:
    """The loads of each step; and for each route that the other way, where chunks may come with what they are read
    backwards, else [].

    A load and the one that it becomes read backwards are one row then.
    """
    network, steps = translation.network, len(rounds)
    weights = [dict(load.weights) for load in translation.loads]
    room = [[load.most(r) for r in rounds] for load in translation.loads]
    ends = {(r.src, r.dst, r.units): i for i, r in enumerate(network.routes)}
    back = [ends.get((r.dst, r.src, r.units), -1) for r in network.routes]
    turned = [{back[i]: w for i, w in weight.items()} for weight in weights]
    at = [weights.index(weight) if weight in weights else -1 for weight in turned]
    paired = (
        -1 not in back
        and -1 not in at
        and len(translation.representatives) % 2 == 0
        and list(rounds) == list(rounds)[::-1]
    )
    number: dict[tuple[int, int], int] = {}
    most: list[int] = []
    for k in range(len(weights)):
        for t in range(steps):
            other = (at[k], steps - 1 - t) if paired else (k, t)
            if other in number:
                number[k, t] = number[other]
                most[number[other]] = min(most[number[other]], room[k][t])
            else:
                number[k, t] = len(most)
                most.append(room[k][t] // 2 if paired and other == (k, t) else room[k][t])
    of = [
        [
            tuple(number[k, t] for k, weight in enumerate(weights) for _ in range(weight.get(i, 0)) if t >= 0)
            for t in range(-1, steps)
        ]
        for i in range(len(network.routes))
    ]
    return Rows(of, most), back if paired else []


def _schedule(
    translation: Translation, steps: int, chunks: list[Chunk], route: Mapping[tuple[int, int], int]
) -> Schedule:
    made: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(steps)]
    for rep, chunk in enumerate(chunks):
        for step, i, kind in chunk.sends(route):
            made[step - 1].setdefault(rep, []).append((i, kind))
    return translation.expand(made)


def fractions(
    ways: Ways, translation: Translation, rounds: Sequence[int], seed: int, exact: bool = True
) -> tuple[dict[Tree, float] | None, float]:  # fmt: skip
    """How much of the data goes which way in so many rounds of each step; None where it does not fit. And the work.

    Without `exact` steps may share the rounds in any way: None says that no schedule through hubs has so few (in
    floats).
    """
    space, copies, steps = _space(translation, 1), len(translation.moves), ways.steps
    floors = [copies * r / translation.chunks for r in rounds]
    goal = sum(floors)
    master = Restricted(space, steps, 0.0)
    if exact:
        master.ask({0: 1.0}, np.zeros((len(space.capacity), steps)), floors)
    centre = np.random.default_rng(seed).random((len(space.capacity), steps)) / space.capacity.sum()
    for way in ways.price(space.use @ centre):
        master.add(0, ways.tree(way))

    def found(price: np.ndarray) -> Iterator[tuple[float, Tree]]:
        return ((way.cost, ways.tree(way)) for way in ways.price(price)[:NEW])

    reached, turns = improve(master, centre, goal, ITERATIONS, found)
    return (dict(zip(master.trees[0], master.share[0], strict=True)) if reached else None), turns * A_TURN


def improve(
    master: Restricted,
    centre: np.ndarray,
    goal: float,
    iterations: int,
    found: Callable[[np.ndarray], Iterable[tuple[float, Tree]]],
) -> tuple[bool, int]:
    """Column generation for the one unit of `master`, until it attains `goal` or nothing more is found. Whether it
    does; and the turns.

    ``found(price)`` gives ways with what they cost at ``price[route, step - 1]``, a cheapest first. Prices are smoothed
    towards the best so far, at first `centre`.
    """
    use, weight = master.space.use, master.space.weight[0]
    best, stalled, turn = 0.0, False, 0
    for turn in range(1, iterations + 1) if master.columns else ():
        if not master.solve():
            break
        if master.value <= goal * (1 + SURE):
            return True, turn
        judge, worth, added = (use @ master.prices).tolist(), master.worth[0] / weight, 0
        probe = master.prices if stalled else SMOOTHING * centre + (1 - SMOOTHING) * master.prices
        for place, (cost, tree) in enumerate(found(use @ probe)):
            if place == 0 and cost > best:
                best, centre = cost, probe
            added += sum(judge[i][t - 1] for t, i in tree) < worth - SURE and master.add(0, tree)
        if stalled and not added:
            break
        stalled = not added
    return False, turn


def _fits(
    ways: Ways, translation: Translation, trees: list[Tree], rounds: Sequence[int], paired: bool
) -> tuple[bool, float]:
    """Whether fractions fit when as many chunks have the hubs and the step of the swap that those on `trees` have. And
    the work.

    `paired`: and as many that are those read backwards. Local search changes hardly any of that.
    """
    orbits = {way.hubs: () for way in ways.read.values()}
    for hubs in orbits:
        orbits[hubs] = min(tuple(sorted(g.ranks[n] for n in hubs)) for g in translation.moves)

    def kind(way: Way) -> tuple[int, tuple[int, ...]]:
        return way.middle if len(way.hubs) == 2 else 0, orbits.get(way.hubs, ())

    kinds = [kind(ways.read[tree]) for tree in trees]
    counts = Counter(kinds + [(swap and ways.steps + 1 - swap, hubs) for swap, hubs in kinds] if paired else kinds)
    copies, steps = len(translation.moves), ways.steps
    space = _space(translation, len(counts))
    unit = dict(zip(sorted(counts), space.units, strict=True))
    master = Restricted(space, steps, 0.0)
    for tree, way in ways.read.items():
        if kind(way) in unit:
            master.add(unit[kind(way)], tree)
    none = np.zeros((len(space.capacity), steps))
    master.ask({unit[k]: float(n) for k, n in counts.items()}, none, [float(r) for r in rounds])
    turn = 0
    for turn in range(1, ITERATIONS + 1):
        if not master.solve():
            break
        if master.value <= sum(rounds) * (1 + SURE):
            return True, turn * A_TURN
        added = 0
        for way in ways.price(space.use @ master.prices):
            u = unit.get(kind(way))
            if u is not None and way.cost * copies < master.worth[u] - SURE:
                tree = ways.tree(way)
                added += kind(ways.read[tree]) == kind(way) and master.add(u, tree)
        if not added:
            break
    return False, turn * A_TURN


def _space(translation: Translation, kinds: int) -> Space:
    """The bandwidth, folded by the moves, and for each kind of chunk one unit of data for each move, which they move
    freely.

    How the data travels is `Ways`' to say, not the stand-in's.
    """
    at = {g.ranks: k for k, g in enumerate(translation.moves)}
    copies, everyone = len(at), frozenset(range(translation.network.ranks))
    moved = []
    for g in translation.moves:
        to = [at[compose(h.ranks, g.ranks)] for h in translation.moves]
        moved.append(Generator(g.ranks, g.routes, tuple(kind * copies + k for kind in range(kinds) for k in to)))
    data = Collective("hubs", len(everyone), (frozenset([0]),) * (copies * kinds), (everyone,) * (copies * kinds))
    return Space(translation.network, data, moved)


def _whole(share: dict[Tree, float], count: int) -> list[Tree]:
    """`count` trees, each about as often as its share says: the greatest remainders are rounded up."""
    total = sum(share.values())
    exact = {tree: count * x / total for tree, x in share.items()}
    times = {tree: int(x + SURE) for tree, x in exact.items()}
    for tree in sorted(exact, key=lambda tree: times[tree] - exact[tree])[: count - sum(times.values())]:
        times[tree] += 1
    return [tree for tree, n in times.items() for _ in range(n)]
