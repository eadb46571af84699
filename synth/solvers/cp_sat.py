"""CP-SAT of OR-tools (Perron and Didier): cardinality constraints stay as they are, which wins on some quotients."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from synth.errors import MissingDependencyError
from synth.solvers.boolean_model import Answer, Count, Model

try:
    from ortools.sat.python import cp_model
except ImportError:
    cp_model = None


@dataclass(frozen=True)
class CpSat:
    """CP-SAT with one worker thread, as the portfolio runs several processes.

    `conflicts`: maximum number of conflicts of a search (None: no limit).
    """

    proofs: ClassVar[bool] = False
    status: ClassVar[Mapping[str, Literal["sat", "unsat", "gave-up"]]] = {
        "OPTIMAL": "sat", "FEASIBLE": "sat", "INFEASIBLE": "unsat", "UNKNOWN": "gave-up",
    }  # fmt: skip

    seed: int = 0
    conflicts: int | None = None

    def solve(self, model: Model) -> Answer:
        """Decide the model. Raises MissingDependencyError without ortools."""
        if cp_model is None:
            raise MissingDependencyError("solver cpsat needs ortools; run: pip install ortools")
        if [] in model.clauses:
            return Answer("unsat")
        names = list(range(model.variables))
        clauses = model.clauses
        if self.seed:
            rng = random.Random(self.seed)
            rng.shuffle(names)
            clauses = rng.sample(clauses, len(clauses))
        program = cp_model.CpModel()
        proto = program.Proto()
        for _ in range(model.variables):
            proto.variables.add().domain.extend((0, 1))
        literal = [0, *names] + [-1 - x for x in reversed(names)]  # literal[-v] is the negation of v
        constraints = proto.constraints
        for clause in clauses:
            constraints.add().bool_or.literals.extend([literal[x] for x in clause])
        for count in model.counts:
            _linear(constraints.add().linear, count, names)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self.seed
        if self.conflicts is not None:
            solver.parameters.max_number_of_conflicts = self.conflicts
        name = solver.status_name(solver.solve(program))
        if name not in self.status:
            return Answer("crash", detail=f"CP-SAT says {name}")
        status = self.status[name]
        if status != "sat":
            return Answer(status, detail="conflicts" if status == "gave-up" else "")
        solution = list(solver.response_proto.solution)
        return Answer("sat", [False, *(bool(solution[x]) for x in names)])


def _linear(linear, count: Count, names: list[int]) -> None:
    """Add literals - scale * levels <= scale to `linear`, with 1 - variable for a negative literal."""
    weights: dict[int, int] = {}
    limit = count.scale
    for literals, weight in ((count.literals, 1), (count.levels, -count.scale)):
        for x in literals:
            sign = weight if x > 0 else -weight
            weights[abs(x)] = weights.get(abs(x), 0) + sign
            limit -= weight if x < 0 else 0
    linear.vars.extend([names[v - 1] for v in weights])
    linear.coeffs.extend(list(weights.values()))
    linear.domain.extend((limit if count.full else -(1 << 40), limit))


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
