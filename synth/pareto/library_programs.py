"""Programs of the library as first rows of a frontier: every one that fits the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synth.encodings.engine import Findings, FrontierProblem
from synth.errors import UsageError, VerificationError
from synth.model.frontier import Point
from synth.model.scale_collectives import COLLECTIVES as SCALE_COLLECTIVES
from synth.model.schedule import Schedule
from synth.solvers.deadline import Deadline

# Scale methods have better rows of more ranks in the time that programs of so many sends take.
MOST_RANKS = 16


@dataclass(frozen=True)
class LibraryPrograms:
    """The library's programs: on few ranks, and of collectives that flow methods do not know, such as scans.

    Those of an alltoall are direct sends again, in other steps.
    """

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True on few ranks, and for other collectives than those of flow methods."""
        name = problem.collective.name
        few = problem.machine.ranks <= MOST_RANKS and name != "alltoall"
        return few or name not in SCALE_COLLECTIVES

    def improve(self, problem: FrontierProblem, found: Findings, deadline: Deadline) -> Iterator[Point]:
        """Yield a point of each program that fits."""
        from synth.checker.schedule import replay
        from synth.language.library import LIBRARY

        for program in LIBRARY:
            # packed trees take long to find, and are an engine of their own
            if program.collective != problem.collective.name or program.name == "packed-trees":
                continue
            try:
                made = program.schedule(problem.machine, problem.collective)
                schedule = Schedule(problem.network, problem.collective, made.chunks, made.steps)
                replay.schedule(schedule)
            except (UsageError, VerificationError):  # no link or another shape, or other data than the name says
                continue
            yield Point.of(schedule, found.floor, program.name)
