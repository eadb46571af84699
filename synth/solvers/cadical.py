"""CaDiCaL 1.9.5 (Biere et al., "CaDiCaL 2.0", CAV 2024) through python-sat: the fastest here on the CNF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from synth.errors import MissingDependencyError
from synth.solvers.boolean_model import Answer, Model
from synth.solvers.shuffle import shuffled

try:
    from pysat.solvers import Cadical195
except ImportError:
    Cadical195 = None

# Clauses read, and propagations, per second, about, on a core of a few GHz.
CLAUSES, PROPAGATIONS = 1e6, 6e6


@dataclass(frozen=True)
class Cadical:
    """A CDCL solver. `conflicts` bounds the search deterministically (None: until done or killed)."""

    native_counts: ClassVar[bool] = False
    proofs: ClassVar[bool] = True
    status: ClassVar[Mapping[bool | None, Literal["sat", "unsat", "gave-up"]]] = {
        True: "sat",
        False: "unsat",
        None: "gave-up",
    }

    seed: int = 0
    conflicts: int | None = None

    def solve(self, model: Model) -> Answer:
        """Decide the model. Only the end of the process interrupts it. Raises MissingDependencyError."""
        if Cadical195 is None:
            raise MissingDependencyError("solver cadical needs python-sat; run: pip install 'python-sat==1.9.dev17'")
        if [] in model.clauses:
            return Answer("unsat")
        variables, clauses, back = shuffled(*model.cnf(), self.seed)
        with Cadical195() as solver:
            if self.seed:
                solver.configure({"seed": self.seed})
            add = solver.add_clause
            for clause in clauses:
                add(clause)
            if self.conflicts is not None:
                solver.conf_budget(self.conflicts)
            status = self.status[solver.solve_limited() if self.conflicts is not None else solver.solve()]
            if status != "sat":
                detail = "conflicts" if status == "gave-up" else ""
                return Answer(status, detail=detail, work=_work(solver, len(clauses)))
            values = [False] * (variables + 1)
            for literal in solver.get_model() or ():
                if literal > 0:
                    values[literal] = True
            work = _work(solver, len(clauses))
        if back is not None:
            values = [values[v] for v in back]
        return Answer("sat", values, work=work)


def _work(solver: Any, clauses: int) -> float:
    """Return the seconds that this work takes on an idle core of a few GHz."""
    return clauses / CLAUSES + (solver.accum_stats() or {}).get("propagations", 0) / PROPAGATIONS
