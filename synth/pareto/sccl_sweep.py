"""The sweep of the SCCL paper (PPoPP 2021, Pareto-Synthesize), as a baseline: it uses no bound but the static one.

For each S it asks pairs (R, C) by growing R/C, with R >= S and C up to a limit, and takes the first schedule. It
proves nothing beyond the C that it tried, and its points say so. As there, an allreduce is a reduce-scatter and an
allgather with the same C, S and R. In SCCL's encoding one z3 solver has all questions of the sweep, in this process;
with other encodings they go to the portfolio.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from math import ceil

from synth.encodings import bounds
from synth.encodings.bounds import too_few_steps
from synth.errors import UsageError
from synth.model.frontier import LowerBound, Open, Point, QueryRecord
from synth.model.outcome import Sat, Unknown, Verdict
from synth.model.schedule import Problem
from synth.pareto.combining.sccl_questions import QuestionsOfParts
from synth.pareto.portfolio.members import check_names
from synth.pareto.step_search import point
from synth.pareto.sweep import STEPS_BEYOND, Sweep

# Maximum C where `Options.max_chunks` gives none.
MAX_CHUNKS = 6
COMPOSED = "as in SCCL, an allreduce is a reduce-scatter and then an allgather here; no other schedule was looked for"


class ScclSweep(Sweep):
    """The sweep as published.

    `Options.max_chunks` is the maximum C (default 6), `Options.max_extra_rounds` its k (R <= S + k). Those of an
    allreduce are of the whole, whose C, S and R are `ranks`, 2 and 2 times those of a part.
    """

    @cached_property
    def questions(self) -> QuestionsOfParts | None:
        """SCCL's encoding, for all questions of the sweep. None where the options name another one."""
        if check_names(self.options.encoding, self.options.solver)[0] != "sccl":
            return None
        return QuestionsOfParts(self.network, self.collective, self.options.seed, self.options.memory)

    def _sweep(self, first: int) -> Iterator[Point | LowerBound]:
        """Yield the first schedule at each S, by growing R/C, or an open interval."""
        found, floor = self.found, self._static()
        yield floor

        # S, C, their limits and the bound on R/C: those of a part
        options, questions, least = self.options, self.questions, floor.value
        scale_chunks, scale_steps, scale_rounds = (1, 1, 1) if questions is None else questions.scale
        best = Fraction(self.collective.units * self.network.ranks * scale_chunks)
        composed = questions is not None and questions.composed
        if questions is not None and composed:
            self.found.note(COMPOSED)
            first = max(int(too_few_steps.steps(*part).value) for part in questions.parts)
            least = max(bounds.flow(*part, None).value for part in questions.parts)
        most_chunks = MAX_CHUNKS if options.max_chunks is None else options.max_chunks // scale_chunks
        end = first + STEPS_BEYOND if options.max_steps is None else options.max_steps // scale_steps
        if end < first or most_chunks < 1:
            raise UsageError(
                f"a reduce-scatter and an allgather take {scale_steps * first} steps and {scale_chunks} chunks or more "
                f"here; raise --max-steps and --max-chunks, or leave --sweep blind out"
            )

        for steps in range(first, end + 1):
            began, undecided = time.monotonic(), None
            whole_steps = scale_steps * steps
            earlier = next(self.resumed(whole_steps), None)
            if earlier is not None:
                yield earlier
            if earlier is not None and found.best(whole_steps) == earlier.rounds_per_chunk:
                best = earlier.rounds_per_chunk * scale_chunks / scale_rounds
                pairs = []
            else:
                pairs = []
                for c in range(1, most_chunks + 1):
                    for r in range(max(steps, ceil(least * c)), ceil(best * c)):
                        if scale_rounds * r <= options.max_rounds(whole_steps):
                            pairs.append((Fraction(r, c), c, r))
            for ratio, chunks, rounds in sorted(pairs):
                if self.out_of_time:
                    undecided = "time"
                    break
                problem = Problem(
                    self.network, self.collective, scale_chunks * chunks, whole_steps, scale_rounds * rounds
                )
                verdict = self._ask(problem)
                if isinstance(verdict, Sat):
                    yield point(verdict, floor, began)
                    if found.best(whole_steps) == verdict.schedule.rounds_per_chunk:
                        best = ratio
                        break
                    undecided = "gave-up"
                if isinstance(verdict, Unknown):
                    undecided = verdict.reason
            found.visited = whole_steps
            if found.best() != floor.value:
                reason = undecided or f"decided up to C = {scale_chunks * most_chunks}, no proof beyond"
                found.open.append(Open(whole_steps, floor.value, found.best(), reason, floor.certificate))
            if best == least or self.out_of_time:
                break
        found.complete = found.best() == floor.value and not found.open and not composed
        found.last = None if found.best() == floor.value else scale_steps * end

    def _ask(self, problem: Problem) -> Verdict:
        questions, seconds = self.questions, self.point_seconds()
        if questions is None:
            return self.query_portfolio(problem, seconds)
        return self.asked(problem, lambda: questions.decide(problem, self.budget(seconds).deadline))

    def answered(self, answer: QueryRecord) -> None:
        """Record an answer; that the parts of an allreduce have no schedule says nothing of other schedules of it."""
        if answer.verdict != "infeasible" or self.questions is None or not self.questions.composed:
            super().answered(answer)
