"""The common part of python-sat's solvers (Ignatiev, Morgado and Marques-Silva, "PySAT", SAT 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from synth.errors import MissingDependencyError
from synth.solvers.boolean_model import Answer


@dataclass(frozen=True)
class PythonSat:
    """A CDCL solver. `conflicts`: maximum number of conflicts of a search (None: until done or killed)."""

    status: ClassVar[Mapping[bool | None, Literal["sat", "unsat", "gave-up"]]] = {
        True: "sat",
        False: "unsat",
        None: "gave-up",
    }

    seed: int = 0
    conflicts: int | None = None

    def search(self, solver: Any, variables: int) -> Answer:
        """Decide the formula that `solver` holds over `variables` variables."""
        if self.conflicts is not None:
            solver.conf_budget(self.conflicts)
        status = self.status[solver.solve_limited() if self.conflicts is not None else solver.solve()]
        if status != "sat":
            return Answer(status, detail="conflicts" if status == "gave-up" else "")
        values = [False] * (variables + 1)
        for literal in solver.get_model() or ():
            if literal > 0:
                values[literal] = True
        return Answer("sat", values)


def python_sat_missing(purpose: str) -> MissingDependencyError:
    """Return the error that python-sat is not installed, with the command that installs it."""
    return MissingDependencyError(f"{purpose} needs python-sat; run: pip install 'python-sat==1.9.dev17'")
