"""Schedules of combining collectives that are no reversal of a copying one, for more ranks than solvers reach: scans
and custom ones.

Schedules for one chunk are planned backwards in time with every rule (`synth.encodings.prefix_planning.prefix_rules`,
`synth.encodings.prefix_planning.prioritized_planner`), first with few and then with many free steps before each demand,
then again with other seeds. List scheduling superposes many chunks: each takes one of these plans, shifted to the steps
where it adds the fewest rounds. Every schedule is replayed. It is a heuristic: to find none proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from random import Random

import numpy as np

from synth.checker.schedule import replay
from synth.encodings.prefix_planning.plan_cells import PlanningFailed
from synth.encodings.prefix_planning.prefix_rules import Prefixes, Rule, rules
from synth.encodings.prefix_planning.prioritized_planner import Planner
from synth.encodings.prefix_planning.settings import SETTINGS as PLANNING_SETTINGS
from synth.errors import VerificationError
from synth.model.collective import Collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import Deadline, TimeUp, check_deadline, current_deadline, time_limited


@dataclass(frozen=True)
class ChunkAssemblySettings:
    """Limits of planning and of list scheduling.

    Attributes:
        few_ranks: Number of ranks up to which solvers find better schedules, so that none is planned.
        first: Number of rules that are tried with every guard before the other rules are tried at all.
        chances: Maximum number of seeds with which each rule and guard are tried.
        enough: Maximum number of successful plans.
        effort: Wall seconds for all of it where nobody limited the time.
        planned: Share of a time limit that planning may take; the rest is for list scheduling.
        kept: Maximum number of plans that list scheduling chooses from.
        quick: Number of the least step counts that come before the greatest, as they take little time.
        most_sends: Number of sends of a schedule beyond which no further chunk is added.
        most_chunks: Maximum number of chunks of a schedule.
        longer: Further step counts at which chunks are assembled: steps beyond the fewest.
        times: Multiples of the S of the plan of least load, at which chunks are assembled too.
    """

    few_ranks: int = 16
    first: int = 3
    chances: int = 2
    enough: int = 24
    effort: float = 15.0
    planned: float = 0.5
    kept: int = 6
    quick: int = 4
    most_sends: int = 8_000
    most_chunks: int = 64
    longer: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    times: tuple[Fraction, ...] = (Fraction(3, 2), Fraction(2), Fraction(3), Fraction(4))


SETTINGS = ChunkAssemblySettings()
QUICK_RULES = (Rule("nearest"), Rule("sklansky"))
GUARDS = ((0, True), (0, False), (4, False), (8, True))  # `guard` and `latest_first` of the planners, in trying order


def applies(network: Network, collective: Collective) -> bool:
    """Return True for collectives that are planned here: many ranks, and neither a reversal nor reduce-broadcast trees
    give schedules."""
    everyone = frozenset(range(network.ranks))
    alike = collective.wants is None and all(x == everyone for x in (*collective.pre, *collective.post))
    return collective.combining and not collective.reversible and not alike and network.ranks > SETTINGS.few_ranks


@dataclass(frozen=True)
class ChunkPlan:
    """A schedule for one chunk of each unit.

    Attributes:
        schedule: the schedule.
        name: the name of the rule that it was planned with.
        loads: three arrays of one length: resource, step and number of sends, for each resource and step with a load.
        maximum_load: the greatest load of a resource over all steps, in rounds.
    """

    schedule: Schedule
    name: str
    loads: tuple[np.ndarray, np.ndarray, np.ndarray]
    maximum_load: float

    @property
    def steps(self) -> int:
        """S."""
        return len(self.schedule.steps)

    def dominates(self, other: ChunkPlan) -> bool:
        """Return True if this plan has at most the steps, the rounds and the maximum load of `other`."""
        return (
            self.steps <= other.steps
            and self.schedule.rounds <= other.schedule.rounds
            and self.maximum_load <= other.maximum_load
        )


def schedules(
    network: Network, collective: Collective, seed: int = 0, whole: bool = False
) -> Iterator[tuple[str, Schedule]]:
    """Yield (construction, schedule), replayed, one for each number of steps that is tried.

    The least numbers of steps come first, then in turn the least and the greatest of the others. Ends early, by
    TimeUp, under a time limit (`synth.solvers.processes.deadline`), and after `SETTINGS.effort` seconds where there is
    none, unless `whole`.
    """
    assembly = ChunkAssembly(network, collective, seed)
    deadline = Deadline.after(None if current_deadline().limited or whole else SETTINGS.effort)

    with time_limited(deadline):
        plans = assembly.single_chunk_plans
    if not plans:
        return
    fewest = min(plan.steps for plan in plans)
    least_loaded = min(plans, key=lambda plan: (plan.maximum_load, plan.steps)).steps
    step_counts = {plan.steps for plan in plans}
    step_counts |= {fewest + more for more in SETTINGS.longer}
    step_counts |= {int(least_loaded * factor) for factor in SETTINGS.times}
    ascending = sorted(step_counts)
    both_ends = (s for pair in zip(ascending, reversed(ascending), strict=True) for s in pair)
    for steps in dict.fromkeys((*ascending[: SETTINGS.quick], *both_ends)):
        with time_limited(deadline):  # not around the yield: the time that the caller takes does not count
            result = assembly.superpose(steps)
        if result is not None:
            yield result


def quick_plans(network: Network, collective: Collective) -> Iterator[tuple[str, Schedule]]:
    """Yield (rule, schedule of one chunk) of the rules whose plans take the least time; not replayed."""
    assembly = ChunkAssembly(network, collective)
    for rule in QUICK_RULES:
        plan = assembly.plan(rule, 0, latest_first=False, seed=assembly.seed)
        if plan is not None:
            yield rule.name, plan.schedule


@dataclass
class ChunkAssembly:
    """Plans for one chunk of a network and a collective, and schedules that superpose them for many chunks."""

    network: Network
    collective: Collective
    seed: int = 0

    @cached_property
    def units(self) -> np.ndarray:
        """Capacity of each resource in a round, in sends: routes first, then shared limits."""
        resources = (*self.network.routes, *self.network.caps)
        return np.array([resource.units for resource in resources], dtype=np.int64)

    @cached_property
    def single_chunk_plans(self) -> list[ChunkPlan]:
        """Best plans: at most `SETTINGS.kept` of those that no other plan dominates."""
        best: list[ChunkPlan] = []
        with suppress(TimeUp), time_limited(current_deadline().share(SETTINGS.planned)):
            for plan in self._planned():
                if not any(other.dominates(plan) for other in best):
                    best = [other for other in best if not plan.dominates(other)] + [plan]
        by_steps = sorted(best, key=lambda plan: (plan.steps, plan.maximum_load))
        by_load = sorted(best, key=lambda plan: (plan.maximum_load, plan.steps))
        alternating = [plan for pair in zip(by_steps, by_load, strict=True) for plan in pair]
        distinct = {id(plan): plan for plan in alternating[: SETTINGS.kept]}
        return sorted(distinct.values(), key=lambda plan: (plan.steps, plan.maximum_load))

    @cached_property
    def diameter(self) -> int:
        """Steps between the ranks farthest from each other."""
        return max((d for row in self.network.distances for d in row if d is not None), default=0)

    def _planned(self) -> Iterator[ChunkPlan]:
        """Yield at most `SETTINGS.enough` plans: every rule with every guard, then again with other seeds."""
        is_large = self.diameter > PLANNING_SETTINGS.near
        all_rules = list(rules(self.network.ranks, self.diameter))
        # On a large network the first rules are tried with every guard before the others.
        groups = (all_rules[: SETTINGS.first], all_rules[SETTINGS.first :]) if is_large else (all_rules,)
        guards = GUARDS if is_large else GUARDS[:2]
        planned = 0
        for chance in range(SETTINGS.chances):
            for group in groups:
                for guard, latest_first in guards:
                    for rule in group:
                        plan = self.plan(rule, guard, latest_first, self.seed + chance)
                        if plan is not None:
                            planned += 1
                            yield plan
                        if planned == SETTINGS.enough:
                            return

    def plan(self, rule: Rule, guard: int, latest_first: bool, seed: int) -> ChunkPlan | None:
        """Plan one chunk of each unit, all ending together; None if the planner fails for one of them."""
        sends_at: dict[int, list[Send]] = {}
        rng = Random(seed)
        reach = 2 * self.diameter + rule.size + 2
        for unit in range(self.collective.units):
            prefixes = Prefixes(self.network, self.collective, unit, rule, rng)
            planner = Planner(
                self.network,
                rng,
                prefixes,
                reach,
                guard=guard,
                latest_first=latest_first,
                allow_detours=self.diameter > PLANNING_SETTINGS.near,
                poll=check_deadline,
            )
            try:
                planned = planner.plan(prefixes.wanted)
            except PlanningFailed:
                return None
            for time, sends in planned.items():
                sends_at.setdefault(time, []).extend(send._replace(chunk=unit) for send in sends)
        first = 0
        for time, sends in sends_at.items():
            if any(not send.local for send in sends):
                first = min(first, time)
        steps = [Step(1, tuple(sorted(sends_at.get(time, [])))) for time in range(first, 1)]
        return self._with_rounds(Schedule(self.network, self.collective, 1, tuple(steps)), rule.name)

    def _with_rounds(self, schedule: Schedule, name: str) -> ChunkPlan:
        """Return the plan of a schedule, with the fewest rounds in each step."""
        counts = Counter[tuple[int, int]]()
        for t, step in enumerate(schedule.steps):
            for send in step.sends:
                if not send.local:
                    counts.update((resource, t) for resource in self._resources(send))
        table = np.array([(*key, count) for key, count in sorted(counts.items())], dtype=np.int64).reshape(-1, 3)
        resources, times, sends = table.T
        totals = np.zeros(len(self.units), dtype=np.int64)
        np.add.at(totals, resources, sends)
        rounds = np.ones(len(schedule.steps), dtype=np.int64)
        np.maximum.at(rounds, times, -(-sends // self.units[resources]))
        steps = tuple(Step(int(r), step.sends) for r, step in zip(rounds, schedule.steps, strict=True))
        return ChunkPlan(
            replace(schedule, steps=steps), name, (resources, times, sends), float((totals / self.units).max())
        )

    def _resources(self, send: Send) -> list[int]:
        """Return the route of a send, and behind the numbers of all routes those of its limits."""
        route = self.network.route_index[send.src, send.dst, send.via]
        return [route, *(len(self.network.routes) + cap for cap in self.network.caps_of[route])]

    # ------------------------------------------------------------ many chunks

    def superpose(self, steps: int, chunks: int | None = None) -> tuple[str, Schedule] | None:
        """Superpose shifted single-chunk plans in `steps` steps; return the construction's name and the schedule.

        The number of chunks is the one with the fewest rounds per chunk, or `chunks` of each unit, if given and if the
        time allows it. Returns None if every plan has more than `steps` steps.
        """
        shifted_plans = [(plan, begin) for plan in self.single_chunk_plans for begin in range(steps - plan.steps + 1)]
        if not shifted_plans:
            return None
        load = np.zeros((len(self.units), steps), dtype=np.int64)
        rounds = np.ones(steps, dtype=np.int64)
        chosen: list[tuple[ChunkPlan, int]] = []
        best: tuple[Fraction, int] | None = None
        sends = 0
        while len(chosen) < (chunks or SETTINGS.most_chunks) and (chunks or sends <= SETTINGS.most_sends):
            try:
                check_deadline()
            except TimeUp:
                break
            plan, begin = min(shifted_plans, key=lambda shifted: self._added_rounds(shifted, load, rounds))
            resource, time, n = plan.loads
            load[resource, time + begin] += n
            np.maximum.at(rounds, time + begin, -(-load[resource, time + begin] // self.units[resource]))
            chosen.append((plan, begin))
            sends += sum(len(step.sends) for step in plan.schedule.steps)
            rounds_per_chunk = Fraction(int(rounds.sum()), len(chosen))
            if chunks or best is None or rounds_per_chunk < best[0]:
                best = rounds_per_chunk, len(chosen)
        if best is None:
            return None
        chosen = chosen[: best[1]]
        schedule = self._superposed(steps, chosen)
        try:
            replay.schedule(schedule)
        except VerificationError:  # a plan whose sums do not add up
            return None
        return "planned chunks, " + " and ".join(dict.fromkeys(plan.name for plan, _ in chosen)), schedule

    def _added_rounds(self, shifted: tuple[ChunkPlan, int], load: np.ndarray, rounds: np.ndarray) -> tuple[int, float]:
        """Return the rounds that another chunk adds, and as a tie-break the load of what it uses weighted by its own
        sends."""
        plan, begin = shifted
        resource, time, n = plan.loads
        after = (load[resource, time + begin] + n) / self.units[resource]
        needed = np.zeros(len(rounds), dtype=np.int64)
        np.maximum.at(needed, time + begin, np.ceil(after).astype(np.int64))
        return int(np.maximum(needed - rounds, 0).sum()), float((after * n).sum())

    def _superposed(self, steps: int, chosen: Sequence[tuple[ChunkPlan, int]]) -> Schedule:
        """Return the schedule in which chunk k of each unit follows ``chosen[k]``, a plan and its first step."""
        chunks = len(chosen)
        sends: list[list[Send]] = [[] for _ in range(steps)]
        for k, (plan, begin) in enumerate(chosen):
            for t, step in enumerate(plan.schedule.steps):
                sends[begin + t] += [send._replace(chunk=send.chunk * chunks + k) for send in step.sends]
        rows = tuple(Step(1, tuple(sorted(row))) for row in sends)
        return prune(Schedule(self.network, self.collective, chunks, rows))
