"""The sweep of the SCCL paper (PPoPP'21, Pareto-Synthesize), as a baseline: it uses no bound but the static one.

For each S it queries pairs (R, C) by growing R/C, with R >= S and C up to a limit, and takes the first schedule. It
proves nothing beyond the C that it tried, and its points say so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Sat, Unknown
from synth.model.schedule import Problem
from synth.pareto.queries import point, query_portfolio
from synth.pareto.sweep import STEPS_BEYOND, Sweep

# Maximum C where `Options.max_chunks` gives none.
MAX_CHUNKS = 6


class ScclSweep(Sweep):
    """The sweep as published.

    `Options.max_chunks` is the maximum C (default 6), `Options.max_extra_rounds` its k (R <= S + k).
    """

    def _sweep(self, first: int) -> Iterator[Point | LowerBound]:
        floor = self._static()
        yield floor
        end = self.options.max_steps or first + STEPS_BEYOND
        for steps in range(first, end + 1):
            yield from self._query_pairs(steps, floor)
            self.found.visited = steps
            if self.found.best() == floor.value or self.out_of_time:
                break
        self.found.last = None if self.found.best() == floor.value else end

    def _query_pairs(self, steps: int, floor: LowerBound) -> Iterator[Point]:
        """Yield the first schedule at `steps`, by growing R/C, or leave an interval open."""
        began, best = time.monotonic(), self.found.best()
        chunks_limit = self.options.max_chunks or MAX_CHUNKS
        ceiling = best if best is not None else Fraction(self.collective.units * self.network.ranks)
        pairs = sorted(
            {(Fraction(r, c), c, r) for c in range(1, chunks_limit + 1) for r in range(steps, int(ceiling * c) + 1)
             if floor.value * c <= r <= self.options.max_rounds(steps)}
        )  # fmt: skip
        undecided = None
        for ratio, chunks, rounds in pairs:
            if ratio >= ceiling:
                break
            if self.out_of_time:
                undecided = "time"
                break
            verdict = query_portfolio(
                self, Problem(self.network, self.collective, chunks, steps, rounds), self.point_seconds()
            )
            if isinstance(verdict, Sat):
                yield point(verdict, floor, began)
                if self.found.best(steps) == ratio:
                    break
                undecided = "gave-up"
            if isinstance(verdict, Unknown):
                undecided = verdict.reason
        reached = self.found.best(steps)
        if reached != floor.value:
            reason = undecided or f"no proof beyond C = {chunks_limit}"
            self.found.open.append(Open(steps, floor.value, reached, reason, floor.certificate))
