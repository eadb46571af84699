"""Selection of portfolio members: the encodings, solvers and subgroups for a problem, the most promising first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from synth.encodings import ENCODINGS, ENGINES, REMOVED, REQUIRES, SOLVERS
from synth.errors import MissingDependencyError, UsageError
from synth.model.registry import find, installed
from synth.model.schedule import Problem
from synth.pareto.portfolio.members import Member, named, parse

# Number of send variables above which quotients come before the formula without symmetry.
LARGE = 100_000
# The solver that decides most small problems soonest. Its members come before all others.
QUICK = "minicard"
# Encodings of sketches' rules for ways and phases.
KEEP_RULES = ("step", "quotient")


@lru_cache(maxsize=16)
def _subgroups(network: object, collective: object) -> tuple:
    from synth.model.symmetry import subgroups

    return tuple(group for group in subgroups(network, collective) if group)  # type: ignore[arg-type]


def select_members(
    problem: Problem, encoding: str, solver: str, limits: Mapping[str, int] = MappingProxyType({})
) -> list[tuple[Member, tuple]]:
    """Return (member, generators of its subgroup) for all members that suit `problem`, the most promising first.

    `limits`: limits that only SCCL's encoding keeps; it is the only member then. Raises UsageError for unknown names
    and combinations that do not fit, MissingDependencyError for a solver that is not installed.
    """
    name, subgroup, member_solver = parse(encoding)
    solver = member_solver or solver.lower()
    if limits:
        if name not in ("auto", "sccl"):
            named = " and ".join(f"--{limit}" for limit in limits).replace("_", "-")
            raise UsageError(f"only SCCL's encoding keeps {named}; leave --encoding {name} out")
        name = "sccl"
    if name in REMOVED:
        raise UsageError(f"encoding {name} was removed; use --encoding {REMOVED[name]}")
    if name != "auto":
        _check_name("encodings", name, ENCODINGS)
        _check_installed(name)
    if solver != "auto":
        _check_name("solvers", solver, SOLVERS)
        _check_installed(solver)
    if problem.network.rules is not None and name not in ("auto", *KEEP_RULES):
        raise UsageError(f"encoding {name} keeps no rules of a sketch; use --encoding {' or '.join(KEEP_RULES)}")
    if name != "auto" and is_engine(name):
        if solver not in ("auto", "z3" if name == "sccl" else "auto"):
            raise UsageError(f"encoding {name} brings its own solver; remove --solver {solver}")
        return [(Member(name, limits=tuple(limits.items())), ())]
    groups = _subgroups(problem.network, problem.collective) if name == "auto" or name.startswith("quotient") else ()
    if name.startswith("quotient"):
        if not groups:
            raise UsageError(
                f"{problem.network.name}: no symmetry was found for {problem.collective.name}; use --encoding step"
            )
        if subgroup is not None and subgroup >= len(groups):
            raise UsageError(
                f"{name}@{subgroup}: {problem.network.name} has {len(groups)} subgroups, 0 to {len(groups) - 1}"
            )
        indices = [subgroup] if subgroup is not None else range(len(groups))
        return [(Member(name, _default_solver(solver), k), groups[k]) for k in indices]
    if name != "auto":
        return [(Member(name, _default_solver(solver)), ())]
    selection = [entry for entry in _all_members(groups, solver) if _available(entry[0])]
    if problem.network.rules is not None:
        selection = [entry for entry in selection if entry[0].encoding in KEEP_RULES]
    if size(problem) > LARGE:
        selection.sort(key=lambda entry: _rank_when_large(entry[0], _default_solver(solver)))
    return selection


def is_engine(name: str) -> bool:
    """Return True for an encoding, built in or a plug-in, that solves by itself.

    The other encodings have `apply` and need a solver.
    """
    return name in ENGINES if name in ENCODINGS else not hasattr(named("encodings", name, ENCODINGS), "apply")


def _rank_when_large(member: Member, solver: str) -> int:
    """Return the sort key of a member for large problems.

    The largest subgroup comes first, then trees, then quick solvers and other subgroups, then formulas without
    symmetry.
    """
    if member.encoding == "tree":
        return 1
    if member.solver == QUICK:
        return 2
    if member.solver != solver or member.subgroup is None:
        return 3
    return 0 if member.subgroup == 0 and member.encoding == "quotient" else 2


def size(problem: Problem) -> int:
    """Return an estimate of the number of send variables of the formula of `problem` without symmetry."""
    return problem.collective.units * problem.chunks * len(problem.network.routes) * problem.steps


def _default_solver(solver: str) -> str:
    """Return `solver`, or the one that "auto" stands for where an encoding needs one."""
    return "cadical" if solver == "auto" else solver


def _all_members(groups: Sequence[tuple], solver: str) -> list[tuple[Member, tuple]]:
    """Return (member, generators) for every member, the most promising of small problems first."""
    first = _default_solver(solver)
    members: list[tuple[Member, tuple]] = []
    if solver == "auto":
        members += [(Member("quotient", QUICK, k), group) for k, group in enumerate(groups[:2])]
        members.append((Member("step", QUICK), ()))
    if groups:
        members.append((Member("quotient", first, 0), groups[0]))
    members.append((Member("step", first), ()))
    if solver == "auto":
        members.append((Member("tree"), ()))
    if solver == "z3":
        members.append((Member("sccl"), ()))
    for k in range(1, min(3, len(groups))):
        members.append((Member("quotient", first, k), groups[k]))
    if solver == "auto":
        members.append((Member("step", "z3"), ()))
        if groups:
            members.append((Member("quotient", "cpsat", 0), groups[0]))
        members.append((Member("step", "cpsat"), ()))
    return members


def _available(member: Member) -> bool:
    from importlib.util import find_spec

    if find_spec(ENCODINGS[member.encoding].partition(":")[0]) is None:
        return False
    return all(
        installed(REQUIRES[name][0].partition(".")[0]) for name in (member.encoding, member.solver) if name in REQUIRES
    )


def _check_name(kind: str, name: str, built_in: Mapping[str, str]) -> None:
    """Raise UsageError for a name that neither `built_in` nor a plug-in has. Nothing built in is loaded."""
    if name not in built_in:
        find(kind, name, built_in)


def _check_installed(name: str) -> None:
    """Raise MissingDependencyError where a solver or encoding needs a module that is not installed."""
    if name in REQUIRES and not installed(REQUIRES[name][0].partition(".")[0]):
        module, install = REQUIRES[name]
        raise MissingDependencyError(f"{name} needs {module.partition('.')[0]}, which is not installed; run: {install}")
