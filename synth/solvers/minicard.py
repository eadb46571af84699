"""MiniCard (Liffiton and Maglalang, "A cardinality solver: more expressive constraints for free", SAT 2012) through
python-sat.

It is MiniSat with cardinality constraints as they are. Nothing is expanded into clauses, which would be most of the
work on small problems. On problems that take long CaDiCaL is often better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from synth.solvers.boolean_model import Answer, Count, Model
from synth.solvers.python_sat import PythonSat, python_sat_missing

try:
    from pysat.solvers import Minicard as Library
except ImportError:
    Library = None


@dataclass(frozen=True)
class MiniCard(PythonSat):
    """MiniCard on the clauses of a model and its counts as they are."""

    def solve(self, model: Model) -> Answer:
        """Decide the model. Only the end of the process interrupts it. Raises MissingDependencyError without
        python-sat."""
        if Library is None:
            raise python_sat_missing("solver minicard")
        if [] in model.clauses:
            return Answer("unsat")
        names = _Names(model.variables)
        sums = [names.sum(count) for count in model.counts]
        with Library() as solver:
            add = solver.add_clause
            for clause in (*model.clauses, *names.clauses):
                add(clause)
            for literals, limit in sums:
                if len(literals) > limit:
                    solver.add_atmost(literals, limit)
            answer = self.search(solver, names.variables)
        return replace(answer, values=answer.values[: model.variables + 1])


class _Names:
    """Counts as limits on sums of distinct literals. A literal that counts twice gets a copy, a new variable."""

    def __init__(self, variables: int) -> None:
        self.variables, self.clauses = variables, []

    def sum(self, count: Count) -> tuple[list[int], int]:
        """Return literals of which at most so many are true, for ``literals - scale * levels <= scale``.

        There are no coefficients: level by level, `scale` copies of a negated level stand for its coefficient.
        """
        literals, scale = count.literals, count.scale
        if len(set(literals)) < len(literals):
            seen: set[int] = set()
            distinct: list[int] = []
            for x in literals:
                distinct.append(self._copy(x) if x in seen else x)
                seen.add(x)
            literals = distinct
        levels = list(count.levels) if scale else []
        levels += [-self._copy(-x) for _ in range(scale - 1) for x in count.levels]
        return literals + [-x for x in levels], scale + len(levels)

    def _copy(self, literal: int) -> int:
        """Return a new variable that is true if `literal` is."""
        self.variables += 1
        self.clauses.append([-literal, self.variables])
        return self.variables
