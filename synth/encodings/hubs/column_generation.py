"""Allreduce by column generation over trees through hubs: the least R/C of fractional solutions at S steps, and
schedules of whole chunks near them.

The columns are the pairs of trees through the exchanges of `synth.encodings.hubs.exchanges`, priced exactly. The rounds
are divided over the steps freely. So column generation ends with the least R/C of all mixtures of such trees. On
machines without much symmetry that is mostly the lower bound itself. If the solution consists of whole chunks, not too
many, it is a schedule. Otherwise dives make whole chunks of its fractions: for numbers of chunks that lose little, and
for those that may lose nothing.

To find none proves nothing: not every allreduce goes through hubs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

import numpy as np

from synth.encodings.hubs.exchanges import MOST_HUBS, HubPathPricer, Sends
from synth.encodings.translated_chunks import TranslatedChunks
from synth.encodings.trees.column_generation import FoldedProblem, RestrictedMaster
from synth.encodings.trees.diving import LastChunks, dive
from synth.encodings.trees.time_expanded_trees import Tree
from synth.model.collective import Collective
from synth.model.permutations import compose
from synth.model.schedule import Schedule
from synth.model.symmetry import Generator
from synth.solvers.column_generation import SmoothedPrices, generate_columns
from synth.solvers.deadline import Deadline

# Tolerance for float comparisons, relative to R/C.
SURE = 1e-7
# Trees that join the master in one round of pricing, at most.
NEW = 40
# Iterations of column generation, at most.
ITERATIONS = 400
# Chunks up to which a solution of whole chunks is taken at once, and of any schedule.
FEW, MOST = 64, 600
# Denominators of an R/C up to which numbers of chunks are tried that lose nothing.
FINE = 256
# Share of the time left for one number of chunks.
SHARE = 0.4
# Numbers of chunks that lose nothing and are tried, at most.
WHOLE = 4
# Share lost by rounding R up, and C for each step at least.
LOSSES = ((1 / 30, 24), (1 / 80, 36), (1 / 200, 36))
# Share of such a loss that is used at least, since dives take longer with less slack.
ENOUGH = 0.7
# Chunks of a dive that are left to CP-SAT, and its limit, in its deterministic time.
LAST, LAST_SECONDS = 24, 1.0


@dataclass(frozen=True)
class HubTreeResult:
    """Result of column generation over trees through hubs.

    Attributes:
        value: the least R/C of fractional solutions (a float); None if no tree has so few steps.
        schedule: a schedule of whole chunks, if one was found.
    """

    value: float | None
    schedule: Schedule | None


def search_hub_trees(
    translation: TranslatedChunks, steps: int, least: Fraction, below: Fraction | None, seconds: float, seed: int,
    alike: bool = False,
) -> HubTreeResult:  # fmt: skip
    """Search for an allreduce schedule of `steps` steps with R/C less than `below`, of images under a group.

    `translation`: the group, which permutes its own elements freely, and a network that `HubPathPricer.fits` accepts.
    `least` is a lower bound on R/C, at which the search ends. Dives take at most `seconds` of CPU time. With `alike`
    all ranks end with the same bits; without, they do where that costs nothing.
    """
    # fractions, first of trees after which all ranks have the same bits
    mixture = HubMixture(translation, steps, seed, alike=True)
    feasible = mixture.learn(float(least))
    if not alike and (not feasible or mixture.value > float(least) * (1 + SURE)):
        other = HubMixture(translation, steps, seed, alike=False)
        if other.learn(float(least)) and not (feasible and mixture.value <= other.value * (1 + SURE)):
            mixture, feasible = other, True
    if not feasible:
        return HubTreeResult(None, None)
    value = mixture.value
    if below is not None and value >= float(below) * (1 - SURE):
        return HubTreeResult(value, None)

    # whole chunks
    best = mixture.whole_chunks(MOST if seconds > 0 else FEW)
    if best is not None and below is not None and mixture.rate(best) >= below:
        best = None
    if best is None or len(best) * mixture.copies > FEW:
        deadline = Deadline.after(seconds, cpu=True)
        for count, rounds in mixture.sizes() if seconds > 0 else ():
            if best is not None and (below is None or mixture.rate(best) < below):
                below = mixture.rate(best)
            if deadline.over:
                break
            if below is None or Fraction(rounds, count * mixture.copies) < below:
                best = mixture.dive(count, rounds, deadline.share(SHARE), seed) or best
    schedule = None if best is None else mixture.schedule(best)
    return HubTreeResult(value, schedule)


class HubMixture:
    """Restricted master over the known trees through hubs, folded by the group of the translation.

    For the master both trees of a chunk together are one "tree" of a unit of a stand-in collective, which has a unit
    for each element of the group; `kinds` maps it to the sends with their kinds.
    """

    def __init__(
        self, translation: TranslatedChunks, steps: int, seed: int, alike: bool, most_hubs: int = MOST_HUBS
    ) -> None:
        self.translation, self.steps, self.copies = translation, steps, len(translation.translations)
        network, everyone = translation.network, frozenset(range(translation.network.ranks))
        place = {g.ranks: k for k, g in enumerate(translation.translations)}
        generators = []
        for g in translation.translations[1:]:
            units = tuple(place[compose(h.ranks, g.ranks)] for h in translation.translations)
            generators.append(Generator(g.ranks, g.routes, units))
        stand_in = Collective("hubs", network.ranks, (frozenset([0]),) * self.copies, (everyone,) * self.copies)
        self.folded = FoldedProblem(network, stand_in, steps, generators)
        self.paths = HubPathPricer(network, steps, alike, most_hubs)
        self.master = RestrictedMaster(self.folded)
        self.kinds: dict[Tree, Sends] = {}
        self.random = np.random.default_rng(seed)
        self.iterations = 0

    @property
    def value(self) -> float:
        """The least R/C of fractions of the known trees."""
        return self.master.value / self.copies

    def cheapest(self, price: np.ndarray, most: int = NEW) -> Iterator[tuple[float, Tree]]:
        """Yield the cheapest trees with their costs at ``price[route, step - 1]``."""
        for path in self.paths.price(price)[:most]:
            sends = self.paths.sends(path)
            tree = tuple((step, route) for step, route, _ in sends)
            self.kinds.setdefault(tree, sends)
            yield path.cost, tree

    def learn(self, least: float) -> bool:
        """Generate columns to optimality or to `least`; return False if there is no tree at all."""
        master = self.master
        first = self.random.random((len(self.folded.capacity), self.steps)) / self.folded.capacity.sum()
        for _, tree in self.cheapest(self.folded.use @ first):
            master.add(0, tree)
        if not master.columns:
            return False
        smoothed = SmoothedPrices(first)

        def price(prices: np.ndarray) -> int:
            priced = list(self.cheapest(self.folded.use @ prices))
            if priced:
                smoothed.update(prices, self.copies * priced[0][0])
            return master.add_improving(0, [tree for _, tree in priced], NEW)

        pricers = [lambda: price(smoothed.smooth(master.prices)), lambda: price(master.prices)]
        done = generate_columns(master.solve, lambda: self.value <= least * (1 + SURE), pricers, ITERATIONS)
        self.iterations = done.iterations
        return True

    def whole_chunks(self, maximum: int) -> list[Tree] | None:
        """Return the representatives' trees if the solution is one of whole chunks, of `maximum` chunks at most."""
        share = np.array(self.master.share[0])
        used = np.flatnonzero(share > SURE)
        amounts = np.array([*share[used], *self.master.rounds])
        for count in range(1, maximum // self.copies + 1):
            is_whole = np.abs(count * amounts - np.rint(count * amounts)).max() < 1e-5
            if is_whole and count * min(self.master.rounds) > 0.5:
                trees: list[Tree] = []
                for i, times in zip(used, np.rint(count * share[used]).astype(int), strict=True):
                    trees += [self.master.trees[0][i]] * int(times)
                return trees
        return None

    def rate(self, trees: Sequence[Tree]) -> Fraction:
        """Return R/C where the representatives take `trees`."""
        loads = self.folded.no_loads()
        for tree in trees:
            loads = loads + self.copies * self.folded.loads(tree)
        rounds = 0
        for step_loads in loads.T:
            needed = (ceil(load / capacity) for load, capacity in zip(step_loads, self.folded.capacity, strict=True))
            rounds += max(1, *needed)
        return Fraction(rounds, self.copies * len(trees))

    def sizes(self) -> list[tuple[int, int]]:
        """Return (number of representatives, rounds) in the order in which they are tried.

        The first loses about 3% by rounding R up and is found soon. Then come sizes at which R is whole, which lose
        nothing and may be infeasible, then sizes that lose less than the first.
        """
        value, whole, close = self.master.value, [], []
        ratio = Fraction(value).limit_denominator(FINE)
        if abs(ratio - value) <= SURE * value:
            first = ceil(Fraction(self.steps, ratio.numerator))
            for m in range(first, first + WHOLE):
                if m * ratio.denominator * self.copies <= MOST:
                    whole.append((m * ratio.denominator, m * ratio.numerator))
        most = MOST // self.copies
        for loss, chunks_of_a_step in LOSSES:
            for count in range(ceil(chunks_of_a_step * self.steps / self.copies), most + 1):
                rounds = max(self.steps, floor(value * count * (1 + loss)))
                if rounds >= value * count * (1 + ENOUGH * loss) or count == most:
                    close.append((count, rounds))
                    break
        return [*close[:1], *whole, *close[1:]]

    def dive(self, count: int, rounds: int, deadline: Deadline, seed: int) -> list[Tree] | None:
        """Return trees of `count` representatives in `rounds` rounds, None where a dive finds none."""
        known = {0: list(self.master.trees[0])}
        taken, _ = dive(self.folded, count, rounds, known, seed, deadline, {0: self}, choose_last)
        return None if taken is None else taken[0]

    exact = True  # as a pricer of a dive

    def search(self, prices: np.ndarray, known: Sequence[Tree], size: int, turns: int) -> list[tuple[float, Tree]]:
        """Return the cheapest trees at ``prices[route, step - 1]``."""
        return list(self.cheapest(np.maximum(prices, 0.0)))

    def schedule(self, trees: Sequence[Tree]) -> Schedule:
        """Return the schedule of the images of representatives that take `trees`."""
        sends: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(self.steps)]
        for representative, tree in enumerate(trees):
            for step, route, kind in self.kinds[tree]:
                sends[step - 1].setdefault(representative, []).append((route, kind))
        return replace(self.translation, chunks=len(trees) * self.copies, copies=1).expand(sends)


def choose_last(last: LastChunks) -> bool:
    """Choose the last chunks of a dive by CP-SAT, among all trees that it knows."""
    from synth.solvers.cp_sat import new_program, solve_program

    folded, need, program = last.folded, last.need[0], new_program()
    if need > LAST:
        return False
    use = [program.new_int_var(0, need, "") for _ in last.known[0]]
    program.add(sum(use) == need)
    terms: dict[int, list] = {}
    for tree, x in zip(last.known[0], use, strict=True):
        for place, amount in folded.sparse(tree).items():
            terms.setdefault(place, []).append(int(folded.weight[0] * amount) * x)
    for place, row in terms.items():
        program.add(sum(row) <= int(last.capacity.flat[place]))
    solver = solve_program(program, min(LAST_SECONDS, last.seconds), last.seed)
    if solver is None:
        return False
    for tree, x in zip(last.known[0], use, strict=True):
        last.taken[0] += [tree] * solver.value(x)
    return True
