"""Exact synthesis as an engine: a sweep over numbers of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synth.encodings.engine import FrontierProblem
from synth.model.frontier import LowerBound, Point
from synth.pareto.found import Found
from synth.solvers.deadline import Deadline


@dataclass(frozen=True)
class ExactSweep:
    """The sweep over numbers of steps, guided by bounds, or with the option `sweep` "blind" SCCL's."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True: exact synthesis takes every collective."""
        return True

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point | LowerBound]:
        """Yield points and bounds. Raises InfeasibleError where no schedule exists."""
        if found.options.sweep == "blind":
            from synth.pareto.sccl_sweep import ScclSweep as Sweep
        else:
            from synth.pareto.sweep import Sweep
        yield from Sweep(found, deadline).run()
