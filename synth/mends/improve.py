"""The mends of a program, in order: relay hops, no blocks of steps, rotation, regrowth, pacing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from synth.checker.schedule import replay
from synth.errors import SynthError, UsageError
from synth.language.algorithm import ChunkAlgorithm, Compiled, CompileOptions
from synth.language.settings import SETTINGS as LANGUAGE
from synth.mends.regrowth import regrown
from synth.mends.rotation import rotated
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.rational import counted
from synth.model.schedule import Schedule
from synth.model.topology import Topology

# A bound on the rounds per chunk of a schedule, in as many steps or in any; None where it is not known.
BoundOf = Callable[[Schedule], LowerBound | None]
# Chunks of a paced schedule, as multiples of those that the program needs.
PACED_MULTIPLES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Mend:
    """One mend of a program, and what it made.

    Attributes
    ----------
    name : of the mend.
    schedule : what it made of the result of those before; None where it has no gain.
    taken : True if the next mends begin from its schedule.
    note : what it did, or why it is not taken.
    """

    name: str
    schedule: Schedule | None
    taken: bool
    note: str = ""


@dataclass(frozen=True)
class Improvement:
    """A program's schedule and its mends.

    Attributes
    ----------
    written : the program as it was compiled, with relay hops where links are missing.
    start : its schedule.
    schedule : after all mends that were taken: never more rounds per chunk than `start`. Replayed.
    mends : the mends in their order.
    """

    written: Compiled
    start: Schedule
    schedule: Schedule
    mends: tuple[Mend, ...]


def written(
    program: ChunkAlgorithm, machine: Topology, task: Collective | None, options: CompileOptions
) -> tuple[Compiled, Schedule]:
    """Return a program's schedule with relay hops where links are missing.

    Raises UsageError for the programs of a large machine by symmetries, whose sends are not listed.
    """
    compiled = program.compile(machine, task, replace(options, relays=True))
    if not isinstance(compiled.schedule, Schedule):
        raise UsageError("--improve: the sends of a symmetric program on so many ranks are not listed")
    return compiled, compiled.schedule


@dataclass(frozen=True)
class Mending:
    """The mends of one program on a machine.

    Attributes
    ----------
    program, machine, task, options : as `ChunkAlgorithm.compile` has them.
    bound_of : bounds of schedules.
    most_steps : mends may take so many steps; None: as many as the program.
    """

    program: ChunkAlgorithm
    machine: Topology
    task: Collective | None
    options: CompileOptions
    bound_of: BoundOf
    most_steps: int | None = None

    def improve(self, compiled: Compiled, start: Schedule) -> Improvement:
        """Return the mends of what `written` returned."""
        best, mends = start, []
        most = max(start.step_count, self.most_steps or 0)
        if compiled.relayed:
            places = [f"{counted(count, 'way')} at {place}" for place, count in compiled.relayed.items()]
            mends.append(Mend("relay hops", start, True, ", ".join(places)))
        for mend in self._tried(compiled, start):
            made = mend(best)
            if made.schedule is not None:
                replay.schedule(made.schedule)
                if not _better(made.schedule, best):
                    made = replace(made, schedule=None, note="no gain")
                elif made.schedule.step_count > most:
                    made = replace(made, note=f"needs --most-steps {made.schedule.step_count}; {made.note}")
                else:
                    made, best = replace(made, taken=True), made.schedule
            mends.append(made)
        return Improvement(compiled, start, best, tuple(mends))

    def _tried(self, compiled: Compiled, start: Schedule) -> Iterator[Callable[[Schedule], Mend]]:
        mode = self.options.steps or self.program.steps
        yield self._rotated
        if mode == "written" and any(row.step >= 0 for row in compiled.plan.ops.rows):
            yield lambda best: self._without_blocks()
        yield self._regrown
        if not mode.startswith("paced"):
            yield lambda best: self._paced(len(compiled.plan.ops.needed))

    def _compiled(self, options: CompileOptions) -> Schedule | None:
        """Return the schedule with other options; None where there is none."""
        try:
            schedule = self.program.compile(self.machine, self.task, replace(options, relays=True)).schedule
        except SynthError:
            return None
        return schedule if isinstance(schedule, Schedule) else None

    def _without_blocks(self) -> Mend:
        found = self._compiled(replace(self.options, steps="asap"))
        if found is None:
            return Mend("no blocks", None, False, "no gain")
        return Mend("no blocks", *_turned(found, "--steps asap"))

    def _rotated(self, best: Schedule) -> Mend:
        made = rotated(best)
        if made is None:
            return Mend("rotation", None, False, "no gain")
        return Mend("rotation", made[0], False, f"{made[1]} images under symmetries, each on a part of the data")

    def _regrown(self, best: Schedule) -> Mend:
        bound = self.bound_of(best)
        if bound is not None and best.rounds_per_chunk <= bound.value:
            return Mend("regrowth", None, False, "at the bound")
        made = regrown(best, bound)
        if made is None:
            return Mend("regrowth", None, False, "no gain")
        return Mend("regrowth", made, False, "new trees of some chunks, where others leave room")

    def _paced(self, operations: int) -> Mend:
        """Return the paced schedule with the fewest rounds per chunk, rotated where that takes fewer."""
        found: list[tuple[Schedule, bool, str]] = []
        for multiple in PACED_MULTIPLES if self.options.multiple is None else (self.options.multiple,):
            if found and operations * multiple > LANGUAGE.maximum_levelled:
                break
            schedule = self._compiled(replace(self.options, steps="paced", multiple=multiple))
            if schedule is not None:
                found.append(_turned(schedule, f"--steps paced --chunks {multiple}"))
        if not found:
            return Mend("pacing", None, False, "no gain")
        return Mend("pacing", *min(found, key=lambda row: (row[0].rounds_per_chunk, row[0].step_count)))


def _turned(schedule: Schedule, note: str) -> tuple[Schedule, bool, str]:
    """Return the schedule, rotated where that takes fewer rounds, not taken yet, and what was done."""
    made = rotated(schedule)
    return (schedule, False, note) if made is None else (made[0], False, f"{note}, {made[1]} images")


def _better(made: Schedule, best: Schedule) -> bool:
    """Return True for fewer rounds per chunk, or as few in fewer steps."""
    here, there = made.rounds_per_chunk, best.rounds_per_chunk
    return here < there or (here == there and made.step_count < best.step_count)
