"""Who may take part in a race: names such as ``step/cadical``, ``quotient@1/cpsat``, ``tree``, and what each one runs.

racer      encoding[@subgroup][/solver]      the subgroup is an index into `symmetry.subgroups`, largest first
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from synth.encodings import ALIASES, ENCODINGS, REQUIRES, SOLVERS
from synth.model.outcome import Budget, Sat, Unsat
from synth.model.registry import find, load
from synth.model.schedule import Problem, Step


@dataclass(frozen=True)
class Racer:
    """One way to attack a problem. `solver` is "" for engines, `subgroup` None where the encoding takes none.

    `limits` are further arguments of an engine: those of SCCL's encoding that its schedules shall keep.
    """

    encoding: str
    solver: str = ""
    subgroup: int | None = None
    limits: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        at = "" if self.subgroup is None else f"@{self.subgroup}"
        return f"{self.encoding}{at}/{self.solver}" if self.solver else f"{self.encoding}{at}"

    @property
    def imports(self) -> tuple[str, ...]:
        """What its process imports before the clock starts."""
        brings = self.solver or self.encoding
        library = REQUIRES[brings][:1] if brings in REQUIRES else ()
        alike = [SOLVERS[name] for name in SOLVERS if library and REQUIRES[name][:1] == library]  # they share a nursery
        targets = alike if self.solver and alike else [(SOLVERS if self.solver else ENCODINGS).get(brings, "")]
        modules = {
            target.partition(":")[0] for target in (*targets, ENCODINGS["step"], ENCODINGS["quotient"]) if target
        }
        return ("synth.pareto.portfolio.members", *library, *sorted(modules))


@dataclass(frozen=True)
class Attempt:
    """The result of a racer: the steps of a schedule, or None and the reason (`status`, `detail`); `cpu` is CPU
    seconds."""

    steps: tuple[Step, ...] | None
    status: str
    detail: str = ""
    cpu: float = 0.0  # seconds of encode + solve, imports apart
    profile: dict | None = None


def attempt(racer: Racer, problem: Problem, generators: tuple, budget: Budget, conflicts: int | None = None) -> Attempt:
    """Runs one racer to its end, in this process. `problem` must not combine (see `race.solve`)."""
    began = time.process_time()
    found = _model(racer, problem, generators, budget, conflicts) if racer.solver else _engine(racer, problem, budget)
    return replace(found, cpu=time.process_time() - began)


def _engine(racer: Racer, problem: Problem, budget: Budget) -> Attempt:
    verdict = named("encodings", racer.encoding, ENCODINGS)(problem, budget, **dict(racer.limits))
    match verdict:
        case Sat():
            return Attempt(verdict.schedule.steps, "sat", profile=verdict.cost.detail)
        case Unsat():
            return Attempt(None, "unsat", verdict.reason)
        case _:
            return Attempt(None, verdict.reason, verdict.detail)


def _model(racer: Racer, problem: Problem, generators: tuple, budget: Budget, conflicts: int | None) -> Attempt:
    began = time.process_time()
    factory = named("encodings", racer.encoding, ENCODINGS)
    encoding = factory(generators) if racer.subgroup is not None else factory()
    model, inverse = encoding.apply(problem)
    encoded = time.process_time()
    solver = named("solvers", racer.solver, SOLVERS)(seed=budget.seed)
    if conflicts is not None:
        solver = replace(solver, conflicts=conflicts)
    answer = solver.solve(model)
    profile = {"encode": encoded - began, "solve": time.process_time() - encoded}
    profile |= {"variables": model.variables, "clauses": len(model.clauses), "counts": len(model.counts)}
    if answer.status == "sat":
        return Attempt(encoding.invert(inverse, answer.values).steps, "sat", profile=profile)
    if answer.status == "unsat" and not encoding.complete:
        return Attempt(None, "gave-up", "no schedule with this symmetry", profile=profile)
    return Attempt(None, answer.status, answer.detail, profile=profile)


def named(kind: str, name: str, built_in: Mapping[str, str]) -> Any:
    """As `registry.find`, without looking through the installed packages for a built-in name."""
    return load(built_in[name]) if name in built_in else find(kind, name, built_in)


def parse(name: str) -> tuple[str, int | None, str]:
    """``encoding``, subgroup and solver of a racer's name; parts that are not given are None or ""."""
    encoding, _, solver = name.lower().partition("/")
    encoding, _, at = encoding.partition("@")
    return ALIASES.get(encoding, encoding), int(at) if at.isdigit() else None, solver
