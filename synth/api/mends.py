"""Mends of programs of the chunk language, beside the certified bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from synth.api.algorithms import Distance, distances
from synth.api.arguments import keywords_checked
from synth.api.inputs import TopologyLike, named_topology
from synth.model.rational import number_or_text
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.language.algorithm import ChunkAlgorithm, CompileOptions
    from synth.mends.improve import Improvement
    from synth.model.collective import Collective
    from synth.model.frontier import LowerBound


@dataclass(frozen=True)
class Improved:
    """A program's schedule before and after its mends, and the bounds on the rounds per chunk.

    Attributes
    ----------
    improvement : the schedules and the mends.
    distance : of the schedule as written; None without bounds.
    at_least : the bound in each number of steps that a schedule of a mend has; empty without bounds.
    """

    improvement: Improvement
    distance: Distance | None
    at_least: Mapping[int, Fraction | None]

    @property
    def schedule(self) -> Schedule:
        """The schedule after all mends that were taken."""
        return self.improvement.schedule

    def to_json(self) -> list[dict[str, Any]]:
        """Return the mends as JSON documents."""
        rows = []
        for mend in self.improvement.mends:
            row: dict[str, Any] = {"mend": mend.name, "taken": mend.taken, "note": mend.note}
            if mend.schedule is not None:
                least = self.at_least.get(mend.schedule.step_count)
                row |= {
                    "steps": mend.schedule.step_count, "rounds": number_or_text(mend.schedule.rounds),
                    "chunks": mend.schedule.chunks, "rounds_per_chunk": str(mend.schedule.rounds_per_chunk),
                    "bound_at_steps": None if least is None else str(least),
                }  # fmt: skip
            rows.append(row)
        return rows


@keywords_checked
def improve(
    program: ChunkAlgorithm,
    topology: TopologyLike,
    *,
    collective: Collective | None = None,
    options: CompileOptions | None = None,
    most_steps: int | None = None,
    bounds: bool = True,
    time_limit: float | None = None,
) -> Improved:
    """Return a program's schedule with fewer rounds, and what each mend gains. It never takes more rounds per chunk.

    Tried in turn: relay hops where links are missing; steps as early as the data allow; images of the schedule under
    symmetries, side by side on parts of the data; new trees for chunks that take detours; pipelined steps of one round.

    Parameters
    ----------
    program : of the chunk language, or of the library.
    topology : the machine.
    collective : as `ChunkAlgorithm.compile` has it.
    options : how it is compiled.
    most_steps : mends may take so many steps. None: as many as the program.
    bounds : compute the lower bounds, which say where nothing is left to gain.
    time_limit : wall seconds for them. None: `synth.api.algorithms.DISTANCE_SECONDS`.

    Examples
    --------
    >>> import synth
    >>> from synth.algorithms import recursive_doubling
    >>> found = synth.api.improve(recursive_doubling.allgather, "hypercube:8")
    >>> found.distance.rounds_per_chunk, found.schedule.rounds_per_chunk, found.at_least[3]
    (Fraction(7, 1), Fraction(7, 3), Fraction(7, 3))
    """
    from synth.language.algorithm import CompileOptions
    from synth.mends.improve import Mending, written

    machine = named_topology(topology)
    chosen = options or CompileOptions()
    compiled, start = written(program, machine, collective, chosen)
    (distance,) = distances([start], machine, time_limit=time_limit) if bounds else (None,)
    known: dict[int, Distance | None] = {start.step_count: distance}

    def bound_of(schedule: Schedule) -> LowerBound | None:
        count = schedule.step_count
        if count not in known:
            (known[count],) = distances([schedule], machine, time_limit=time_limit) if bounds else (None,)
        found = known[count]
        return None if found is None else found.bound

    mending = Mending(program, machine, collective, chosen, bound_of, most_steps)
    improvement = mending.improve(compiled, start)
    for mend in improvement.mends:
        if mend.schedule is not None:
            bound_of(mend.schedule)
    at_least = {steps: found.at_steps for steps, found in known.items() if found is not None}
    return Improved(improvement, distance, at_least)
