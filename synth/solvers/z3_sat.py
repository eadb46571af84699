"""z3's SAT solver on the CNF, behind its `simplify` tactic (de Moura and Bjørner, "Z3: an efficient SMT solver", TACAS
2008)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from synth.errors import MissingDependencyError
from synth.solvers.boolean_model import Answer, Model

try:
    import z3
except ImportError:
    z3 = None


def reason(text: str) -> tuple[Literal["time", "memory", "interrupted", "gave-up"], str]:
    """Return (reason, `text`) for `text`, z3's words for an answer "unknown". z3 swallows Ctrl-C and answers
    "unknown"."""
    known: Mapping[str, Literal["time", "memory", "interrupted"]] = {
        "timeout": "time", "memout": "memory", "max. memory exceeded": "memory", "out of memory": "memory",
        "canceled": "interrupted", "interrupted": "interrupted", "interrupted from keyboard": "interrupted",
    }  # fmt: skip
    return known.get(text.lower(), "gave-up"), text


@dataclass(frozen=True)
class Z3Sat:
    """z3's SAT solver, in a new context for each model. `conflicts`: their maximum in a search (None: no limit)."""

    status: ClassVar[Mapping[str, Literal["sat", "unsat"]]] = {"sat": "sat", "unsat": "unsat"}

    seed: int = 0
    conflicts: int | None = None

    def solve(self, model: Model) -> Answer:
        """Decide the model. Raises MissingDependencyError without z3."""
        if z3 is None:
            raise MissingDependencyError("solver z3 needs z3-solver; run: pip install z3-solver")
        if [] in model.clauses:
            return Answer("unsat")
        variables, clauses = model.cnf()
        context = z3.Context()
        solver = z3.Then("simplify", "sat", ctx=context).solver()
        if self.seed:
            solver.set("random_seed", self.seed)
        if self.conflicts is not None:
            solver.set("max_conflicts", self.conflicts)
        lines = [" ".join(map(str, clause)) + " 0\n" for clause in clauses]
        solver.from_string(f"p cnf {variables} {len(clauses)}\n" + "".join(lines))
        status = str(solver.check())
        if status not in self.status:
            why, text = reason(solver.reason_unknown())
            return Answer(why, detail="conflicts" if "conflicts" in text else text)
        if status == "unsat":
            return Answer("unsat")
        values = [False] * (variables + 1)
        solution = solver.model()
        for symbol in solution.decls():
            values[int(symbol.name()[2:])] = z3.is_true(solution[symbol])
        return Answer("sat", values)
