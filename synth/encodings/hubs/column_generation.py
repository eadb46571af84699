"""Allreduce by column generation over trees through hubs: the least R/C of fractional solutions at S steps, and
schedules of whole chunks near them.

The columns are the pairs of trees through the exchanges of `synth.encodings.hubs.exchanges`, priced exactly. The rounds
are divided over the steps freely. So column generation ends with the least R/C of all mixtures of such trees. On
machines without much symmetry that is mostly the lower bound itself. If the solution consists of whole chunks, not too
many, it is a schedule. Otherwise an LP diving heuristic (`synth.encodings.tree_packing.diving`) rounds it: for numbers
of chunks that lose nothing, then for numbers that lose little.

To find none proves nothing: not every allreduce goes through hubs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from synth.bounds.trees.column_generation import FoldedProblem, RestrictedMaster
from synth.bounds.trees.time_expanded_trees import Tree
from synth.encodings.hubs.exchanges import HubPathPricer, Sends
from synth.encodings.hubs.symmetric_column_generation import SETTINGS as SYMMETRIC_SETTINGS
from synth.encodings.hubs.symmetric_column_generation import improve
from synth.encodings.tree_packing.diving import Dive, Partial
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import Deadline


@dataclass(frozen=True)
class HubColumnSettings:
    """Limits of column generation over trees through hubs, and of the dives that round it.

    Attributes:
        iterations: Maximum number of iterations of column generation.
        few: Number of chunks up to which a solution of whole chunks is taken without diving.
        most: Maximum number of chunks of any schedule.
        whole: Number of sizes tried at which C·(R/C) is whole, so that rounding loses nothing.
        fine: Maximum denominator of an R/C for which such sizes are tried.
        losses: (share lost by rounding R up, least chunks for each step).
        whole_share: Share of the remaining time for a size without loss.
        close_share: Share of the remaining time for a size with loss.
        enough: Least share of the allowed loss that a size must use; diving takes longer with less slack.
        vectors: Number of divisions of the rounds among the steps that are tried for one size.
        last: Maximum number of remaining chunks that a dive leaves to CP-SAT.
        last_seconds: CP-SAT's limit for them, in seconds of its deterministic time.
    """

    iterations: int = 400
    few: int = 64
    most: int = 600
    whole: int = 4
    fine: int = 256
    losses: tuple[tuple, ...] = ((1 / 30, 24), (1 / 80, 36), (1 / 200, 36))
    whole_share: float = 0.4
    close_share: float = 0.3
    enough: float = 0.7
    vectors: int = 2
    last: int = 24
    last_seconds: float = 1.0


SETTINGS = HubColumnSettings()


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
    network: Network,
    collective: Collective,
    steps: int,
    least: Fraction,
    below: Fraction | None,
    seconds: float,
    seed: int,
    alike: bool = False,
) -> HubTreeResult:
    """Search for an allreduce schedule of `steps` steps with R/C less than `below`, on a network that
    `HubPathPricer.fits` accepts.

    `least` is a lower bound on R/C, at which the search ends. Diving takes at most `seconds` of CPU time. With `alike`
    all ranks end with the same bits; without, they do where that costs nothing.
    """
    sure, mixture = SYMMETRIC_SETTINGS.sure, _HubMixture(network, steps, seed, alike=True)
    feasible = mixture.learn(float(least))
    if not alike and (not feasible or mixture.master.value > float(least) * (1 + sure)):
        other = _HubMixture(network, steps, seed, alike=False)
        if other.learn(float(least)) and not (feasible and mixture.master.value <= other.master.value * (1 + sure)):
            mixture, feasible = other, True
    if not feasible:
        return HubTreeResult(None, None)
    value = mixture.master.value
    if below is not None and value >= float(below) * (1 - sure):
        return HubTreeResult(value, None)
    exact = mixture.whole_chunks(SETTINGS.most if seconds > 0 else SETTINGS.few)
    if exact is not None and len(exact[0]) <= SETTINGS.few:
        options = [exact]
    else:
        options = [option for option in (mixture.dive(below, seconds, seed), exact) if option is not None]
    best = min(options, key=lambda option: Fraction(sum(option[1]), len(option[0])), default=None)
    schedule = None if best is None else mixture.schedule(collective, *best)
    if schedule is not None and below is not None and schedule.rounds_per_chunk >= below:
        schedule = None
    return HubTreeResult(value, schedule)


class _HubMixture:
    """Restricted master over the known trees through hubs.

    For the master and for dives, both trees of a chunk together are one "tree" of the only unit of a stand-in
    collective; `kinds` maps it to the sends with their kinds.
    """

    def __init__(self, network: Network, steps: int, seed: int, alike: bool) -> None:
        self.network, self.steps = network, steps
        everyone = frozenset(range(network.ranks))
        stand_in = Collective("hubs", network.ranks, (frozenset([0]),), (everyone,))
        self.folded = FoldedProblem(network, stand_in, steps)
        self.paths = HubPathPricer(network, steps, alike)
        self.master = RestrictedMaster(self.folded)
        self.kinds: dict[Tree, Sends] = {}
        self.random = np.random.default_rng(seed)

    def cheapest(self, price: np.ndarray) -> Iterator[tuple[float, Tree]]:
        """Yield the cheapest trees with their costs at ``price[route, step - 1]``."""
        for path in self.paths.price(price)[: SYMMETRIC_SETTINGS.new]:
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
        improve(master, first, least, SETTINGS.iterations, self.cheapest)
        return bool(master.columns)

    def whole_chunks(self, maximum: int) -> tuple[list[Tree], list[int]] | None:
        """Return the solution as (tree of each chunk, rounds of each step) if it consists of whole chunks for some
        number of chunks up to `maximum`."""
        share = np.array(self.master.share[0])
        used = np.flatnonzero(share > SYMMETRIC_SETTINGS.sure)
        amounts = np.array([*share[used], *self.master.rounds])
        for chunks in range(1, maximum + 1):
            is_whole = np.abs(chunks * amounts - np.rint(chunks * amounts)).max() < 1e-5
            if is_whole and chunks * min(self.master.rounds) > 0.5:
                trees: list[Tree] = []
                for i, times in zip(used, np.rint(chunks * share[used]).astype(int), strict=True):
                    trees += [self.master.trees[0][i]] * int(times)
                return trees, self.rounds(trees)
        return None

    def rounds(self, trees: Sequence[Tree]) -> list[int]:
        """Return the rounds that each step needs when the chunks take `trees`."""
        loads = self.folded.no_loads()
        for tree in trees:
            loads = loads + self.folded.loads(tree)
        rounds = []
        for step_loads in loads.T:
            needed = (ceil(load / capacity) for load, capacity in zip(step_loads, self.folded.capacity, strict=True))
            rounds.append(max(1, *needed))
        return rounds

    def dive(self, below: Fraction | None, seconds: float, seed: int) -> tuple[list[Tree], list[int]] | None:
        """Return (tree of each chunk, rounds of each step) of least R/C that diving finds; None if it finds none below
        `below`."""
        deadline, best = Deadline.after(seconds, cpu=True), None
        for chunks, rounds, share in self._candidate_sizes():
            if deadline.over:
                break
            if below is not None and Fraction(rounds, chunks) >= below:
                continue
            result = self._dive_at(chunks, rounds, deadline.share(share), seed)
            if result is not None:
                best, below = result, Fraction(rounds, chunks)
        return best

    def _dive_at(self, chunks: int, rounds: int, deadline: Deadline, seed: int) -> tuple[list[Tree], list[int]] | None:
        """Dive for `chunks` chunks in `rounds` rounds, up to the deadline."""
        known = {0: list(self.master.trees[0])}
        dive = Dive(self.folded, chunks, rounds, known, seed, {0: _Pricer(self)})
        for vector, _ in zip(dive.feasible_rounds(deadline), range(SETTINGS.vectors), strict=False):
            done = dive.run(vector, deadline, lambda partial, need: self._complete(dive, partial, need[0], seed))
            if done is not None:
                return done.taken[0], vector
        return None

    def _candidate_sizes(self) -> list[tuple[int, int, float]]:
        """Return (chunks, rounds, share of the remaining time) in the order in which they are tried.

        The first size loses about 3 % by rounding and is found quickly. Then come sizes at which C·(R/C) is whole,
        which lose nothing and may be infeasible, then sizes with less loss than the first.
        """
        value = self.master.value
        ratio, whole = Fraction(value).limit_denominator(SETTINGS.fine), []
        if abs(ratio - value) <= SYMMETRIC_SETTINGS.sure * value:
            first = ceil(Fraction(self.steps, ratio.numerator))
            for m in range(first, first + SETTINGS.whole):
                if m * ratio.denominator <= SETTINGS.most:
                    whole.append((m * ratio.denominator, m * ratio.numerator, SETTINGS.whole_share))
        close = []
        for loss, least in SETTINGS.losses:
            for chunks in range(least * self.steps, SETTINGS.most + 1):
                rounds = max(self.steps, floor(value * chunks * (1 + loss)))
                if rounds >= value * chunks * (1 + SETTINGS.enough * loss) or chunks == SETTINGS.most:
                    close.append((chunks, rounds, SETTINGS.close_share))
                    break
        return [*close[:1], *whole, *close[1:]]

    def _complete(self, dive: Dive, partial: Partial, need: int, seed: int) -> Partial | None:
        """Choose the last `need` chunks among all trees that the dive knows, by CP-SAT; None for too many, or where
        none fit."""
        if need > SETTINGS.last:
            return None
        from synth.solvers.cp_sat import new_program, solve_program

        capacity = self.folded.capacity[:, None] * np.array(partial.floors) - partial.loads
        trees, program = dive.master.trees[0], new_program()
        use = [program.new_int_var(0, need, "") for _ in trees]
        program.add(sum(use) == need)
        terms: dict[int, list] = {}
        for tree, x in zip(trees, use, strict=True):
            for place, amount in self.folded.sparse(tree).items():
                terms.setdefault(place, []).append(int(amount) * x)
        for place, row in terms.items():
            program.add(sum(row) <= int(capacity.flat[place]))
        solver = solve_program(program, SETTINGS.last_seconds, seed)
        if solver is None:
            return None
        taken = list(partial.taken[0])
        for tree, x in zip(trees, use, strict=True):
            taken += [tree] * solver.value(x)
        return Partial({0: taken}, partial.loads, partial.floors)

    def schedule(self, collective: Collective, trees: Sequence[Tree], rounds: Sequence[int]) -> Schedule:
        """Return the schedule in which chunk i takes ``trees[i]``."""
        sends: list[list[Send]] = [[] for _ in range(self.steps)]
        for chunk, tree in enumerate(trees):
            for step, route, kind in self.kinds[tree]:
                r = self.network.routes[route]
                sends[step - 1].append(Send(chunk, r.src, r.dst, kind, r.via))
        steps = tuple(Step(n, tuple(sorted(row))) for n, row in zip(rounds, sends, strict=True))
        return Schedule(self.network, collective, len(trees), steps)


class _Pricer:
    """Exact pricer of trees through hubs, for dives (`synth.encodings.tree_packing.diving.Pricer`)."""

    exact = True

    def __init__(self, mixture: _HubMixture) -> None:
        self.mixture = mixture

    def search(self, prices: np.ndarray, known: Sequence[Tree], size: int, turns: int) -> list[tuple[float, Tree]]:
        """Return the cheapest trees at ``prices[route, step - 1]``; the arguments of heuristic searches have no
        effect."""
        del known, size, turns
        return list(self.mixture.cheapest(np.maximum(prices, 0.0)))
