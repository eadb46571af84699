"""Who takes part in a race: the encodings, solvers and subgroups that suit a problem, the most promising first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from synth.encodings import ENCODINGS, ENGINES, REQUIRES, SOLVERS
from synth.errors import MissingDependencyError, UsageError
from synth.model.registry import find, installed
from synth.model.schedule import Problem
from synth.pareto.portfolio.members import Racer, named, parse

LARGE = 100_000  # send variables above which quotients go before the whole formula
QUICK = "minicard"  # the solver that most small problems need; its racers go before all others


@lru_cache(maxsize=16)
def _subgroups(network: object, collective: object) -> tuple:
    from synth.model.symmetry import subgroups

    return tuple(group for group in subgroups(network, collective) if group)  # type: ignore[arg-type]


def entrants(
    problem: Problem, encoding: str, solver: str, limits: Mapping[str, int] = MappingProxyType({})
) -> list[tuple[Racer, tuple]]:
    """The racers, the most promising first, each with the generators it needs. `limits`: what only SCCL's encoding can
    keep."""
    name, subgroup, own_solver = parse(encoding)
    solver = own_solver or solver.lower()
    if limits:
        if name not in ("auto", "sccl"):
            named = " and ".join(f"--{limit}" for limit in limits).replace("_", "-")
            raise UsageError(f"only SCCL's encoding keeps {named}; leave --encoding {name} out")
        name = "sccl"
    if name != "auto":
        _known("encodings", name, ENCODINGS)
        _have(name)
    if solver != "auto":
        _known("solvers", solver, SOLVERS)
        _have(solver)
    if name != "auto" and is_engine(name):
        if solver not in ("auto", "z3" if name == "sccl" else "auto"):
            raise UsageError(f"encoding {name} brings its own solver; remove --solver {solver}")
        return [(Racer(name, limits=tuple(limits.items())), ())]
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
        chosen = [subgroup] if subgroup is not None else range(len(groups))
        return [(Racer(name, "cadical" if solver == "auto" else solver, k), groups[k]) for k in chosen]
    if name != "auto":
        return [(Racer(name, "cadical" if solver == "auto" else solver), ())]
    everybody = [entry for entry in _everybody(groups, solver) if _available(entry[0])]
    if size(problem) > LARGE:
        everybody.sort(key=lambda entry: _late_when_large(entry[0], _first(solver)))
    return everybody


def is_engine(name: str) -> bool:
    """Whether an encoding, built in or a plug-in, solves by itself; the others have `apply` and need a solver."""
    return name in ENGINES if name in ENCODINGS else not hasattr(named("encodings", name, ENCODINGS), "apply")


def _late_when_large(racer: Racer, solver: str) -> int:
    """The largest subgroup first, then trees, then the quick and the other subgroups; what sees the whole problem comes
    last."""
    if racer.encoding == "tree":
        return 1
    if racer.solver == QUICK:
        return 2
    if racer.solver != solver or racer.subgroup is None:
        return 3
    return 0 if racer.subgroup == 0 and racer.encoding == "quotient" else 2


def size(problem: Problem) -> int:
    """About how many send variables the whole formula has."""
    return problem.collective.units * problem.chunks * len(problem.network.routes) * problem.steps


def _first(solver: str) -> str:
    """The solver that "auto" means where one is needed."""
    return "cadical" if solver == "auto" else solver


def _everybody(groups: Sequence[tuple], solver: str) -> list[tuple[Racer, tuple]]:
    first = _first(solver)
    racers: list[tuple[Racer, tuple]] = []
    if solver == "auto":
        racers += [(Racer("quotient", QUICK, k), group) for k, group in enumerate(groups[:2])]
        racers.append((Racer("step", QUICK), ()))
    if groups:
        racers.append((Racer("quotient", first, 0), groups[0]))
    racers.append((Racer("step", first), ()))
    if solver == "auto":
        racers.append((Racer("tree"), ()))
    if solver == "z3":
        racers.append((Racer("sccl"), ()))
    for k in range(1, min(3, len(groups))):
        racers.append((Racer("quotient", first, k), groups[k]))
        if k == 1:
            racers.append((Racer("quotient-mono", first, k), groups[k]))
    if solver == "auto":
        racers.append((Racer("step", "z3"), ()))
    racers.append((Racer("step-mono", first), ()))
    if groups:
        racers.append((Racer("quotient-mono", first, 0), groups[0]))
    if solver == "auto":
        if groups:
            racers.append((Racer("quotient", "cpsat", 0), groups[0]))
        racers.append((Racer("step", "cpsat"), ()))
    return racers


def _available(racer: Racer) -> bool:
    from importlib.util import find_spec

    if find_spec(ENCODINGS[racer.encoding].partition(":")[0]) is None:
        return False
    return all(
        installed(REQUIRES[name][0].partition(".")[0]) for name in (racer.encoding, racer.solver) if name in REQUIRES
    )


def _known(kind: str, name: str, built_in: Mapping[str, str]) -> None:
    """Raises UsageError for a name that neither `built_in` nor a plug-in has; loads nothing built in."""
    if name not in built_in:
        find(kind, name, built_in)


def _have(name: str) -> None:
    if name in REQUIRES and not installed(REQUIRES[name][0].partition(".")[0]):
        module, install = REQUIRES[name]
        raise MissingDependencyError(f"{name} needs {module.partition('.')[0]}, which is not installed; run: {install}")
