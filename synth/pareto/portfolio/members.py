"""Members of the algorithm portfolio, with names such as ``step/cadical``, ``quotient@1/minicard`` and ``tree``.

member      encoding[@subgroup][/solver]      the subgroup is an index into `symmetry.subgroups`, largest first
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from synth.encodings import ALIASES, ENCODINGS, REQUIRES, SOLVERS
from synth.model.outcome import Sat, Unsat
from synth.model.registry import find, load
from synth.model.schedule import Problem, Step
from synth.solvers.deadline import Budget


@dataclass(frozen=True)
class Member:
    """An encoding with a solver, or an engine that solves by itself.

    `solver` is "" for engines, `subgroup` None where the encoding takes none.
    """

    encoding: str
    solver: str = ""
    subgroup: int | None = None

    def __str__(self) -> str:
        at = "" if self.subgroup is None else f"@{self.subgroup}"
        return f"{self.encoding}{at}/{self.solver}" if self.solver else f"{self.encoding}{at}"

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that its process imports before the clock starts."""
        brings = self.solver or self.encoding
        library = REQUIRES[brings][:1] if brings in REQUIRES else ()
        # Solvers of one library share a fork server.
        alike = [SOLVERS[name] for name in SOLVERS if library and REQUIRES[name][:1] == library]
        if self.solver and alike:
            targets = alike
        else:
            targets = [(SOLVERS if self.solver else ENCODINGS).get(brings, "")]
        targets += [ENCODINGS["step"], ENCODINGS["quotient"]]
        modules = {target.partition(":")[0] for target in targets if target}
        return ("synth.pareto.portfolio.members", *library, *sorted(modules))


@dataclass(frozen=True)
class MemberResult:
    """The result of a member: the steps of a schedule, or None and the reason (`status`, `detail`)."""

    steps: tuple[Step, ...] | None
    status: str
    detail: str = ""
    cpu: float = 0.0  # seconds of encode + solve, imports apart
    profile: dict | None = None


def run_member(
    member: Member, problem: Problem, generators: tuple, budget: Budget, conflicts: int | None = None
) -> MemberResult:
    """Run one member to its end, in this process. `problem` must not combine (see `portfolio.solve`)."""
    began = time.process_time()
    if member.solver:
        result = _model(member, problem, generators, budget, conflicts)
    else:
        result = _engine(member, problem, budget)
    return replace(result, cpu=time.process_time() - began)


def _engine(member: Member, problem: Problem, budget: Budget) -> MemberResult:
    verdict = named("encodings", member.encoding, ENCODINGS)(problem, budget)
    match verdict:
        case Sat():
            return MemberResult(verdict.schedule.steps, "sat", profile=verdict.cost.detail)
        case Unsat():
            return MemberResult(None, "unsat", verdict.reason)
        case _:
            return MemberResult(None, verdict.reason, verdict.detail)


def _model(member: Member, problem: Problem, generators: tuple, budget: Budget, conflicts: int | None) -> MemberResult:
    began = time.process_time()
    factory = named("encodings", member.encoding, ENCODINGS)
    encoding = factory(generators) if member.subgroup is not None else factory()
    model, inverse = encoding.apply(problem)
    encoded = time.process_time()
    solver = named("solvers", member.solver, SOLVERS)(seed=budget.seed)
    if conflicts is not None:
        solver = replace(solver, conflicts=conflicts)
    answer = solver.solve(model)
    profile = {"encode": encoded - began, "solve": time.process_time() - encoded}
    profile |= {"variables": model.variables, "clauses": len(model.clauses), "counts": len(model.counts)}
    if answer.status == "sat":
        return MemberResult(encoding.invert(inverse, answer.values).steps, "sat", profile=profile)
    if answer.status == "unsat" and not encoding.complete:
        return MemberResult(None, "gave-up", "no schedule with this symmetry", profile=profile)
    return MemberResult(None, answer.status, answer.detail, profile=profile)


def named(kind: str, name: str, built_in: Mapping[str, str]) -> Any:
    """Return the object of a name, as `registry.find`, without a search of installed packages for a built-in name."""
    return load(built_in[name]) if name in built_in else find(kind, name, built_in)


def parse(name: str) -> tuple[str, int | None, str]:
    """Return encoding, subgroup and solver of a member's name. Absent parts are None or ""."""
    encoding, _, solver = name.lower().partition("/")
    encoding, _, at = encoding.partition("@")
    return ALIASES.get(encoding, encoding), int(at) if at.isdigit() else None, solver
