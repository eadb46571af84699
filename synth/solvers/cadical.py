"""CaDiCaL 1.9.5 (Biere et al., "CaDiCaL 2.0", CAV 2024) through python-sat: the fastest here on the CNF."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from synth.solvers.boolean_model import Answer, Model
from synth.solvers.python_sat import PythonSat, python_sat_missing

try:
    from pysat.solvers import Cadical195
except ImportError:
    Cadical195 = None

# Approximate rates of a core of a few GHz, by which counters become seconds.
CLAUSES_PER_SECOND, PROPAGATIONS_PER_SECOND = 1e6, 6e6


@dataclass(frozen=True)
class Cadical(PythonSat):
    """CaDiCaL on the clauses of a model."""

    def solve(self, model: Model) -> Answer:
        """Decide the model. Only the end of the process interrupts it. Raises MissingDependencyError without
        python-sat."""
        if Cadical195 is None:
            raise python_sat_missing("solver cadical")
        if [] in model.clauses:
            return Answer("unsat")
        variables, clauses = model.cnf()
        with Cadical195() as solver:
            if self.seed:
                solver.configure({"seed": self.seed})
            add = solver.add_clause
            for clause in clauses:
                add(clause)
            answer = self.search(solver, variables)
            return replace(answer, work=_work(solver, len(clauses)))


def _work(solver: Any, clauses: int) -> float:
    """Return the seconds that this work takes on an idle core of a few GHz."""
    return clauses / CLAUSES_PER_SECOND + (solver.accum_stats() or {}).get("propagations", 0) / PROPAGATIONS_PER_SECOND
