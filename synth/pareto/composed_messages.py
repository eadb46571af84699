"""Messages from one rank to one rank each, such as those of a scatter, composed of phases over the boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from synth.encodings.engine import Findings, FrontierProblem
from synth.model.frontier import Point
from synth.model.schedule import Schedule
from synth.pareto.direct_sends import MAX_SENDS, few_sends
from synth.solvers.deadline import Deadline

# Messages are composed until R/C is above the bound by no more than this fraction.
WORTH = Fraction(1, 100)


@dataclass(frozen=True)
class ComposedMessages:
    """Messages over several boxes; an alltoall of these is one of the flow methods."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True for messages on several boxes."""
        task = problem.collective
        if not problem.several_boxes or task.combining or task.name == "alltoall" or not few_sends(task):
            return False
        return all(len(post - pre) < 2 for pre, post in zip(task.pre, task.post, strict=True))

    def improve(self, problem: FrontierProblem, found: Findings, deadline: Deadline) -> Iterator[Point]:
        """Yield points, each of fewer rounds per chunk than those with no more steps, until one is near the bound."""
        enough = found.floor.value / (1 - WORTH)
        if any(rate <= enough for _, rate in found.rates):
            return
        from synth.scale.composition.compose import composed_messages

        network, task, machine = problem.network, problem.collective, problem.machine.live()
        known = list(found.rates)
        for candidate in composed_messages(machine, task, most_sends=MAX_SENDS, known=known, enough=enough):
            schedule = Schedule(network, task, candidate.chunks, candidate.make().written_out(task).steps)
            yield Point.of(schedule, found.floor, candidate.construction)
