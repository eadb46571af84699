"""Members of the algorithm portfolio, with names such as ``step/cadical``, ``quotient@1/minicard`` and ``tree``.

member      encoding[@subgroup][/solver]      the subgroup is an index into `symmetry.subgroups`, largest first
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from synth.encodings import ALIASES, ENCODINGS, REQUIRES, SOLVE_ALONE, SOLVERS
from synth.errors import MissingDependencyError, UsageError
from synth.model.outcome import Sat, Unknown, Unsat
from synth.model.registry import find, installed, load
from synth.model.schedule import Problem, Step
from synth.solvers.deadline import Budget

# Number of send variables above which the largest quotient and column generation come before all formulas.
LARGE = 100_000
# The solver that decides most small problems soonest. Its members come before all others.
QUICK = "minicard"


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
        targets.append(ENCODINGS["step"])
        modules = {target.partition(":")[0] for target in targets if target}
        return ("synth.pareto.portfolio.members", *library, *sorted(modules))


@dataclass(frozen=True)
class MemberResult:
    """The result of a member: the steps of a schedule, or None and the reason (`status`, `detail`)."""

    steps: tuple[Step, ...] | None
    status: str
    detail: str = ""
    cpu: float = 0.0  # seconds of encode + solve, imports apart


def run_member(
    member: Member, problem: Problem, generators: tuple, budget: Budget, conflicts: int | None = None
) -> MemberResult:
    """Run one member to its end, in this process. `problem` must not combine (see `portfolio.solve`)."""
    began = time.process_time()
    if member.solver:
        result = _model(member, problem, generators, budget, conflicts)
    else:
        match named("encodings", member.encoding, ENCODINGS)(problem, budget):
            case Sat(schedule):
                result = MemberResult(schedule.steps, "sat")
            case Unsat(reason):
                result = MemberResult(None, "unsat", reason)
            case Unknown(reason, detail):
                result = MemberResult(None, reason, detail)
    return replace(result, cpu=time.process_time() - began)


def _model(member: Member, problem: Problem, generators: tuple, budget: Budget, conflicts: int | None) -> MemberResult:
    factory = named("encodings", member.encoding, ENCODINGS)
    encoding = factory(generators) if member.subgroup is not None else factory()
    model, inverse = encoding.apply(problem)
    solver = named("solvers", member.solver, SOLVERS)(seed=budget.seed)
    if conflicts is not None:
        solver = replace(solver, conflicts=conflicts)
    answer = solver.solve(model)
    if answer.status == "sat":
        return MemberResult(encoding.invert(inverse, answer.values).steps, "sat")
    if answer.status == "unsat" and not encoding.complete:
        return MemberResult(None, "gave-up", "no schedule with this symmetry")
    return MemberResult(None, answer.status, answer.detail)


def named(kind: str, name: str, built_in: Mapping[str, str]) -> Any:
    """Return the object of a name, as `registry.find`, without a search of installed packages for a built-in name."""
    return load(built_in[name]) if name in built_in else find(kind, name, built_in)


def parse(name: str) -> tuple[str, int | None, str]:
    """Return encoding, subgroup and solver of a member's name. Absent parts are None or ""."""
    encoding, _, solver = name.lower().partition("/")
    encoding, _, at = encoding.partition("@")
    return ALIASES.get(encoding, encoding), int(at) if at.isdigit() else None, solver


@lru_cache(maxsize=16)
def _subgroups(network: object, collective: object) -> tuple:
    from synth.model.symmetry import subgroups

    return tuple(group for group in subgroups(network, collective) if group)  # type: ignore[arg-type]


def check_names(encoding: str, solver: str) -> tuple[str, int | None, str]:
    """Return the encoding, its subgroup (None: any, or it takes none) and the solver that two options mean.

        encoding              solvers
        auto                  auto: cadical and minicard; cadical, minicard; z3: also for sccl, beside the others
        step, quotient@K      auto: cadical; cadical, minicard, z3, a plug-in's
        sccl                  auto, z3: its own
        tree, other engines   auto: their own

    Raises UsageError for unknown names and those that do not go together, MissingDependencyError for what is not
    installed.
    """
    name, subgroup, named_solver = parse(encoding)
    solver = solver.lower()
    if named_solver and solver not in ("auto", named_solver):
        raise UsageError(f"encoding {encoding} names its solver; leave --solver {solver} out")
    solver = named_solver or solver
    for kind, given, built_in in (("encodings", name, ENCODINGS), ("solvers", solver, SOLVERS)):
        if given != "auto":
            if given not in built_in:
                find(kind, given, built_in)  # raises UsageError for a name that no plug-in has
            if not _installed(given):
                module, install = REQUIRES[given]
                raise MissingDependencyError(
                    f"{given} needs {module.partition('.')[0]}, which is not installed; run: {install}"
                )
    if name != "auto" and is_engine(name) and solver not in ("auto", "z3" if name == "sccl" else "auto"):
        raise UsageError(f"encoding {name} brings its own solver; leave --solver {solver} out")
    return name, subgroup, solver


def select_members(problem: Problem, encoding: str, solver: str) -> list[tuple[Member, tuple]]:
    """Return (member, generators of its subgroup) for all members that suit `problem`, the most promising first.

    Raises as `check_names`, and UsageError for a quotient of a problem without symmetry.
    """
    name, subgroup, solver = check_names(encoding, solver)
    if name != "auto" and is_engine(name):
        return [(Member(name), ())]
    first = "cadical" if solver == "auto" else solver
    quotients = name.startswith("quotient")
    if name != "auto" and not quotients:
        return [(Member(name, first), ())]
    groups = _subgroups(problem.network, problem.collective)
    if quotients:
        if not groups:
            raise UsageError(
                f"{problem.network.name}: no symmetry was found for {problem.collective.name}; use --encoding step"
            )
        if subgroup is not None and subgroup >= len(groups):
            raise UsageError(
                f"{name}@{subgroup}: {problem.network.name} has {len(groups)} subgroups, 0 to {len(groups) - 1}"
            )
        indices = [subgroup] if subgroup is not None else range(len(groups))
        return [(Member(name, first, k), groups[k]) for k in indices]

    # All members: quick ones, then the largest quotient, the whole formula, column generation and smaller quotients.
    quick: list[tuple[Member, tuple]] = []
    if solver == "auto":
        quick = [(Member("quotient", QUICK, k), group) for k, group in enumerate(groups[:2])]
        quick.append((Member("step", QUICK), ()))
    largest = [(Member("quotient", first, 0), group) for group in groups[:1]]
    whole: list[tuple[Member, tuple]] = [(Member("step", first), ())]
    engine = {"auto": "tree", "z3": "sccl"}.get(solver)
    engines = [(Member(engine), ())] if engine else []
    smaller = [(Member("quotient", first, k), groups[k]) for k in range(1, min(3, len(groups)))]
    selection = [*quick, *largest, *whole, *engines, *smaller]
    if size(problem) > LARGE:
        selection = [*largest, *engines, *quick, *smaller, *whole]
    return [entry for entry in selection if all(map(_installed, (entry[0].encoding, entry[0].solver)))]


def is_engine(name: str) -> bool:
    """Return True for an encoding, built in or a plug-in, that solves by itself.

    The other encodings have `apply` and need a solver.
    """
    return name in SOLVE_ALONE if name in ENCODINGS else not hasattr(named("encodings", name, ENCODINGS), "apply")


def size(problem: Problem) -> int:
    """Return an estimate of the number of send variables of the formula of `problem` without symmetry."""
    return problem.collective.units * problem.chunks * len(problem.network.routes) * problem.steps


def _installed(name: str) -> bool:
    """Return True where the module that an encoding or solver needs, if any, is installed."""
    return name not in REQUIRES or installed(REQUIRES[name][0].partition(".")[0])
