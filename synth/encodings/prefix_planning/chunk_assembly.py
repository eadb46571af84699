"""Schedules of combining collectives that are no reversal of a copying one, for more ranks than solvers reach: scans
and custom ones.

Ways for one chunk are planned backwards in time by every rule there is (`synth.encodings.prefix_planning.prefix_rules`,
`synth.encodings.prefix_planning.prioritized_planner`), in a loom with little or much room before each need, then with
more chances. Chunks that take such ways, each beginning in any step, are put together one after another where they add
the fewest rounds. Everything is replayed; that nothing is found says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from random import Random
from time import monotonic

import numpy as np

from synth.checker.schedule import replay
from synth.encodings.prefix_planning.plan_cells import Stuck
from synth.encodings.prefix_planning.prefix_rules import NEAR, Prefixes, Rule, rules
from synth.encodings.prefix_planning.prioritized_planner import Loom
from synth.errors import VerificationError
from synth.model.collective import Collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import TimeUp, check, left, until

FEW_RANKS = 16  # up to here solvers find better ones
ROOM = ((0, True), (0, False), (4, False), (8, True))  # guards of looms, and whether the latest need is met first
FIRST = 3  # rules that come before all others, with every room
CHANCES = 2  # how often each rule is tried with each of these, at most
ENOUGH = 24  # ways that are planned, at most
EFFORT = 15.0  # wall seconds for all of it, where nobody limited the time
PLANNED = 0.5  # of a time limit: what planning may take, the rest is for putting chunks together
KEPT = 6  # ways that are mixed
QUICK = 4  # numbers of steps, the least ones, that come before the greatest
MOST_SENDS = 8_000
MOST_CHUNKS = 64
LONGER = (1, 2, 3, 4, 5, 6)  # steps beyond the fewest at which chunks are put together
TIMES = (
    Fraction(3, 2),
    Fraction(2),
    Fraction(3),
    Fraction(4),
)  # and of a way that loads links least: how many times its own


def applies(network: Network, collective: Collective) -> bool:
    """Whether schedules are planned this way: for many ranks, where neither reversal nor hubs do."""
    everyone = frozenset(range(network.ranks))
    alike = collective.wants is None and all(x == everyone for x in (*collective.pre, *collective.post))
    return collective.combining and not collective.reversible and not alike and network.ranks > FEW_RANKS


@dataclass(frozen=True)
class Way:
    """A schedule for one chunk of each unit; `sent`: resource, step and load of each resource and step that it
    loads."""

    schedule: Schedule
    name: str
    sent: tuple[np.ndarray, np.ndarray, np.ndarray]
    most: float

    @property
    def steps(self) -> int:
        """S."""
        return len(self.schedule.steps)


def schedules(
    network: Network, collective: Collective, seed: int = 0, whole: bool = False
) -> Iterator[tuple[str, Schedule]]:
    """(construction, schedule), replayed, one for each S that is tried: a few of the least, then from both ends.

    Ends early, by TimeUp, under a time limit (`synth.solvers.processes.deadline`), and after `EFFORT` seconds where
    there is none, unless `whole`.
    """
    found = Weaving(network, collective, seed)
    end = monotonic() + EFFORT if left() is None and not whole else None

    def rest() -> AbstractContextManager[None]:
        return until(None if end is None else end - monotonic())

    with rest():
        ways = found.ways
    if not ways:
        return
    fewest = min(way.steps for way in ways)
    lean = min(ways, key=lambda way: (way.most, way.steps)).steps
    chosen = {*(way.steps for way in ways), *(fewest + more for more in LONGER), *(int(lean * t) for t in TIMES)}
    ordered = sorted(chosen)
    ends = (s for pair in zip(ordered, reversed(ordered), strict=True) for s in pair)
    for steps in dict.fromkeys((*ordered[:QUICK], *ends)):  # the few steps take little time
        with rest():  # not around the yield, which others work in
            made = found.together(steps)
        if made is not None:
            yield made


@dataclass
class Weaving:
    """The ways for one chunk of a network and a collective, and what many chunks make of them."""

    network: Network
    collective: Collective
    seed: int = 0

    @cached_property
    def units(self) -> np.ndarray:
        """What each resource carries in a round: routes, then limits."""
        return np.array([r.units for r in self.network.routes] + [c.units for c in self.network.caps], dtype=np.int64)

    @cached_property
    def ways(self) -> list[Way]:
        """The best ways that are found: no other one has no more steps, no more rounds and loads no link less."""
        found: list[Way] = []
        seconds = left()
        with suppress(TimeUp), until(None if seconds is None else seconds * PLANNED):
            for way in self._planned():
                if not any(_beats(other, way) for other in found):
                    found = [other for other in found if not _beats(way, other)] + [way]
        by_steps = sorted(found, key=lambda way: (way.steps, way.most))
        by_load = sorted(found, key=lambda way: (way.most, way.steps))
        kept = [way for pair in zip(by_steps, by_load, strict=True) for way in pair]
        return sorted({id(way): way for way in kept[:KEPT]}.values(), key=lambda way: (way.steps, way.most))

    @cached_property
    def far(self) -> int:
        """Steps between the ranks farthest from each other."""
        return max((d for row in self.network.distances for d in row if d is not None), default=0)

    def _planned(self) -> Iterator[Way]:
        far = self.far
        some, planned = list(rules(self.network.ranks, far)), 0
        for chance in range(CHANCES):
            for these in (some[:FIRST], some[FIRST:]) if far > NEAR else (some,):
                for guard, latest in ROOM if far > NEAR else ROOM[:2]:
                    for rule in these:
                        way = self._plan(rule, guard, latest, self.seed + chance, 2 * far + rule.size + 2)
                        if way is not None:
                            planned += 1
                            yield way
                        if planned == ENOUGH:
                            return

    def _plan(self, rule: Rule, guard: int, latest: bool, seed: int, reach: int) -> Way | None:
        """One chunk of each unit planned, all ending together; None where one gets stuck."""
        at: dict[int, list[Send]] = {}
        rng = Random(seed)
        for unit in range(self.collective.units):
            prefixes = Prefixes(self.network, self.collective, unit, rule, rng)
            loom = Loom(self.network, rng, prefixes, reach, guard, latest, self.far > NEAR, check)
            try:
                planned = loom.plan(prefixes.wanted)
            except Stuck:
                return None
            for time, sends in planned.items():
                at.setdefault(time, []).extend(send._replace(chunk=unit) for send in sends)
        first = min((time for time, sends in at.items() if any(not send.local for send in sends)), default=0)
        steps = [Step(1, tuple(sorted(at.get(time, [])))) for time in range(first, 1)]
        return self._way(Schedule(self.network, self.collective, 1, tuple(steps)), rule.name)

    @cached_property
    def _index(self) -> dict[tuple, int]:
        return {(r.src, r.dst, r.via): i for i, r in enumerate(self.network.routes)}

    def _way(self, made: Schedule, name: str) -> Way:
        load: dict[tuple[int, int], int] = {}
        routes = len(self.network.routes)
        for t, step in enumerate(made.steps):
            for send in step.sends:
                if not send.local:
                    r = self._index[send.src, send.dst, send.via]
                    for resource in (r, *(routes + c for c in self.network.caps_of[r])):
                        load[resource, t] = load.get((resource, t), 0) + 1
        rows = np.array([(e, t, n) for (e, t), n in sorted(load.items())], dtype=np.int64).reshape(-1, 3)
        whole = np.zeros(len(self.units), dtype=np.int64)
        np.add.at(whole, rows[:, 0], rows[:, 2])
        rounds = np.ones(len(made.steps), dtype=np.int64)
        np.maximum.at(rounds, rows[:, 1], -(-rows[:, 2] // self.units[rows[:, 0]]))
        made = replace(made, steps=tuple(Step(int(r), step.sends) for r, step in zip(rounds, made.steps, strict=True)))
        return Way(made, name, (rows[:, 0], rows[:, 1], rows[:, 2]), float((whole / self.units).max()))

    # ------------------------------------------------------------ many chunks

    def together(self, steps: int, chunks: int | None = None) -> tuple[str, Schedule] | None:
        """Chunks put together in so many steps; None where no way is so short.

        As many as give the fewest rounds per chunk, or `chunks` of each unit where that is given and the time allows
        it.
        """
        columns = [(way, begin) for way in self.ways for begin in range(steps - way.steps + 1)]
        if not columns:
            return None
        load = np.zeros((len(self.units), steps), dtype=np.int64)
        rounds = np.ones(steps, dtype=np.int64)
        chosen: list[tuple[Way, int]] = []
        best: tuple[Fraction, int] | None = None
        sends = 0
        while len(chosen) < (chunks or MOST_CHUNKS) and (chunks or sends <= MOST_SENDS):
            try:
                check()
            except TimeUp:
                break
            way, begin = min(columns, key=lambda column: self._added(column, load, rounds))
            resource, time, n = way.sent
            load[resource, time + begin] += n
            np.maximum.at(rounds, time + begin, -(-load[resource, time + begin] // self.units[resource]))
            chosen.append((way, begin))
            sends += sum(len(step.sends) for step in way.schedule.steps)
            ratio = Fraction(int(rounds.sum()), len(chosen))
            if chunks or best is None or ratio < best[0]:
                best = ratio, len(chosen)
        if best is None:
            return None
        made = self._joined(steps, chosen[: best[1]])
        try:
            replay.schedule(made)
        except VerificationError:  # a plan that does not add up is none
            return None
        return "woven, " + " and ".join(dict.fromkeys(way.name for way, _ in chosen[: best[1]])), made

    def _added(self, column: tuple[Way, int], load: np.ndarray, rounds: np.ndarray) -> tuple[int, float]:
        """The rounds that another chunk adds, and how full it makes what it uses."""
        way, begin = column
        resource, time, n = way.sent
        after = (load[resource, time + begin] + n) / self.units[resource]
        more = np.zeros(len(rounds), dtype=np.int64)
        np.maximum.at(more, time + begin, np.ceil(after).astype(np.int64))
        return int(np.maximum(more - rounds, 0).sum()), float((after * n).sum())

    def _joined(self, steps: int, chosen: Sequence[tuple[Way, int]]) -> Schedule:
        """The schedule of chunks that take these ways from these steps on."""
        chunks = len(chosen)
        sends: list[list[Send]] = [[] for _ in range(steps)]
        for k, (way, begin) in enumerate(chosen):
            for t, step in enumerate(way.schedule.steps):
                sends[begin + t] += [send._replace(chunk=send.chunk * chunks + k) for send in step.sends]
        return prune(
            Schedule(self.network, self.collective, chunks, tuple(Step(1, tuple(sorted(row))) for row in sends))
        )


def _beats(one: Way, other: Way) -> bool:
    return one.steps <= other.steps and one.schedule.rounds <= other.schedule.rounds and one.most <= other.most
