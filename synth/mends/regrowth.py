"""Regrowth: the trees of some chunks are grown again in the bandwidth that the others leave, with a round less.

One step at a time loses a round. The chunks that are too many there, those first whose ways cost most beyond what the
bound's prices need, are taken out, and CP-SAT looks for trees of them that fit (`encodings.tree_packing.completion`).
A collective that only sums along trees is reversed first; others that combine are left alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from synth.bounds.blame import blame
from synth.bounds.trees.column_generation import FoldedProblem
from synth.checker.schedule import replay
from synth.encodings.tree_packing.completion import complete
from synth.errors import SynthError
from synth.language.step_plan import routed
from synth.model.dead_sends import prune
from synth.model.frontier import LowerBound
from synth.model.schedule import Schedule, Send, Step


@dataclass(frozen=True)
class RegrowthSettings:
    """Limits of regrowth.

    Attributes:
        multiples: In turn chunks are cut into so many, since a part of a chunk's bandwidth saves a round sooner.
        variables: Maximum number of variables of a program of CP-SAT, one a chunk, route and step.
        seconds: Maximum deterministic time of one program.
        failures: Maximum number of programs without a result for one schedule.
    """

    multiples: tuple[int, ...] = (1, 2, 2)
    variables: int = 20_000
    seconds: float = 0.5
    failures: int = 10


SETTINGS = RegrowthSettings()


def regrown(schedule: Schedule, bound: LowerBound | None = None, seed: int = 0) -> Schedule | None:
    """Return a schedule of as many steps and fewer rounds per chunk.

    `bound`: on the rounds per chunk in so many steps or in any; its prices say which chunks take detours, and at its
    value nothing is left to gain. None where nothing was found, and for schedules that are no trees of chunks, or whose
    steps last parts of a round.
    """
    if schedule.uses_multicast or not schedule.sends or schedule.parts_of_round > 1:
        return None
    backwards = schedule.collective.combining
    start = prune(schedule)
    kinds = {send.kind for step in start.steps for send in step.sends}
    if kinds != {"reduce" if backwards else "copy"}:
        return None
    if backwards:
        start = start.reversed()
        if any(len(ranks) != 1 for ranks in start.collective.pre):
            return None  # units that every rank ends with, such as those of allreduce, are no trees
    try:
        replay.schedule(start)  # sums that are no trees have no reversal
    except SynthError:
        return None
    failures, current = SETTINGS.failures, start
    for multiple in SETTINGS.multiples:
        growth = _Growth(current, multiple, seed, failures)
        if bound is not None and not backwards:
            growth.detours = _detours(growth.schedule(), bound)
        growth.run(None if bound is None else bound.value)
        failures = growth.failures
        if growth.grown:
            current = growth.schedule()
        if failures <= 0 or growth.size * growth.chunks > SETTINGS.variables:
            break
    if current is start:
        return None
    return current.reversed() if backwards else current


def _detours(schedule: Schedule, bound: LowerBound) -> dict[int, Fraction]:
    """Return what the sends of each chunk cost beyond what the bound needs; nothing without prices."""
    chunk_of = {}
    for t, step in enumerate(schedule.steps, 1):
        for send in step.sends:
            chunk_of[t, send.chunk, send.src, send.dst] = send.chunk
    found = blame(schedule, bound, chunk_of)
    lines = () if found is None else found.lines
    return {int(row.line): row.parts.detours for row in lines if row.line}


class _Growth:
    """The sends of each chunk, and the rounds of each step, while chunks are grown again."""

    def __init__(self, schedule: Schedule, multiple: int, seed: int, failures: int) -> None:
        self.seed, self.failures = seed, failures
        network, task = schedule.network, schedule.collective
        rows = [step.sends for step in schedule.steps]
        steps = routed(network, rows, multiple)
        self.chunks = schedule.chunks * multiple
        self.network, self.task = network, task
        self.folded = FoldedProblem(network, task, len(steps))
        self.rounds = [int(step.rounds) for step in steps]  # `routed` gives whole rounds
        self.trees: dict[int, list[tuple[int, int]]] = {}
        for t, step in enumerate(steps, 1):
            for send in step.sends:
                route = network.route_index[send.src, send.dst, send.via]
                self.trees.setdefault(send.chunk, []).append((t, route))
        self.detours: dict[int, Fraction] = {}
        self.grown = False

    @property
    def size(self) -> int:
        """The variables of one chunk."""
        return len(self.network.routes) * len(self.rounds)

    def run(self, floor: Fraction | None) -> None:
        """Save rounds while it can be done, the steps with most rounds first; none below `floor` per chunk."""
        saved = True
        while saved:
            saved = False
            for t in sorted(range(len(self.rounds)), key=lambda t: -self.rounds[t]):
                least = Fraction(sum(self.rounds) - 1, self.chunks)
                if self.failures <= 0 or (floor is not None and least < floor):
                    return
                if self.rounds[t] > 1 and self._save(t):
                    saved = self.grown = True
                    break

    def _save(self, t: int) -> bool:
        """Try to take a round from a step."""
        taken = self._too_many(t)
        if taken is None or len(taken) * self.size > SETTINGS.variables:
            return False
        rest = {chunk: tree for chunk, tree in self.trees.items() if chunk not in taken}
        rounds = [count - (i == t) for i, count in enumerate(self.rounds)]
        capacity = self.folded.no_loads()
        for step, count in enumerate(rounds):
            capacity[:, step] = self.folded.capacity * count
        for tree in rest.values():
            for place, amount in self.folded.sparse(tuple(tree)).items():
                capacity.flat[place] -= amount
        need = Counter(chunk // self.chunks for chunk in taken)
        found = complete(self.folded, capacity, dict(need), SETTINGS.seconds, self.seed)
        if found is None:
            self.failures -= 1
            return False
        for chunk in sorted(taken):
            rest[chunk] = list(found[chunk // self.chunks].pop())
        self.trees, self.rounds = rest, rounds
        return True

    def _too_many(self, t: int) -> set[int] | None:
        """Return chunks without which no link or limit is over-full in step `t` with a round less.

        As many again are taken with them, as far as variables allow, so that there is room to choose. None where there
        are no such chunks.
        """
        loads = self.folded.no_loads()
        for tree in self.trees.values():
            for place, amount in self.folded.sparse(tuple(tree)).items():
                loads.flat[place] += amount
        over = loads[:, t] - self.folded.capacity * (self.rounds[t] - 1)
        crossing: dict[int, list[int]] = {}
        for chunk, tree in self.trees.items():
            for step, route in tree:
                if step == t + 1:
                    crossing.setdefault(chunk, []).append(route)
        taken: set[int] = set()
        order = sorted(crossing, key=lambda chunk: (-self.detours.get(chunk, 0), chunk))
        while (over > 0).any():
            left = [chunk for chunk in order if chunk not in taken]
            worth = {}
            for chunk in left:
                worth[chunk] = int((self.folded.use[crossing[chunk]].sum(axis=0) * (over > 0)).sum())
            chosen = max(left, key=lambda chunk: worth[chunk], default=None)
            if chosen is None or not worth[chosen]:
                return None
            over -= self.folded.use[crossing[chosen]].sum(axis=0)
            taken.add(chosen)
        others = sorted(set(self.trees) - taken)
        others.sort(key=lambda chunk: (-self.detours.get(chunk, 0), chunk not in crossing))
        most = min(2 * len(taken), SETTINGS.variables // self.size)
        return taken | set(others[: max(0, most - len(taken))])

    def schedule(self) -> Schedule:
        """Return the schedule of the trees."""
        sends: list[list[Send]] = [[] for _ in self.rounds]
        for chunk, tree in self.trees.items():
            for t, i in tree:
                route = self.network.routes[i]
                sends[t - 1].append(Send(chunk, route.src, route.dst, "copy", route.via))
        steps = []
        for rounds, row in zip(self.rounds, sends, strict=True):
            steps.append(Step(rounds, tuple(sorted(row))))
        return prune(Schedule(self.network, self.task, self.chunks, tuple(steps)))
