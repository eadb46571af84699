"""Integer programs by CP-SAT of OR-tools (Perron and Didier)."""

from __future__ import annotations

from typing import Any

from synth.errors import MissingDependencyError

try:
    from ortools.sat.python import cp_model
except ImportError:
    cp_model = None


def new_program() -> Any:
    """Return an empty `cp_model.CpModel`, to be filled by its own methods. Raises MissingDependencyError without
    ortools."""
    if cp_model is None:
        raise MissingDependencyError("CP-SAT needs ortools; run: pip install ortools")
    return cp_model.CpModel()


def solve_program(program: Any, seconds: float, seed: int, linearization: int = 1) -> Any:
    """Search for a solution of `program` with one worker.

    `seconds`: limit by CP-SAT's deterministic measure of work, about seconds of one core, so that the load of the
    machine does not change the answer. Returns the `cp_model.CpSolver` that holds the solution, the best one found if
    there is an objective; None if there is none or none was found. `linearization`: CP-SAT's level, 0 without a linear
    program. Raises MissingDependencyError without ortools.
    """
    if cp_model is None:
        raise MissingDependencyError("CP-SAT needs ortools; run: pip install ortools")
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = max(0.01, seconds)
    solver.parameters.max_time_in_seconds = max(1.0, 4 * seconds)  # that measure leaves out some of its work
    solver.parameters.linearization_level = linearization
    return solver if solver.solve(program) in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
