"""MiniCard (Liffiton and Maglalang, "A cardinality solver: more expressive constraints for free", SAT 2012) through
python-sat.

MiniSat with cardinalities as they are: nothing is expanded into clauses, which is most of the work on small problems.
On problems that take long to solve CaDiCaL is often better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from synth.errors import MissingDependencyError
from synth.solvers.boolean_model import Answer, Count, Model
from synth.solvers.shuffle import shuffled

try:
    from pysat.solvers import Minicard as Library
except ImportError:
    Library = None


@dataclass(frozen=True)
class MiniCard:
    """A CDCL solver. `conflicts` bounds the search deterministically (None: until done or killed)."""

    native_counts: ClassVar[bool] = True
    proofs: ClassVar[bool] = False
    status: ClassVar[Mapping[bool | None, Literal["sat", "unsat", "gave-up"]]] = {
        True: "sat",
        False: "unsat",
        None: "gave-up",
    }

    seed: int = 0
    conflicts: int | None = None

    def solve(self, model: Model) -> Answer:
        """Decides the model. Raises MissingDependencyError without python-sat. Cannot be interrupted: kill the
        process."""
        if Library is None:
            raise MissingDependencyError("solver minicard needs python-sat; run: pip install 'python-sat==1.9.dev17'")
        if [] in model.clauses:
            return Answer("unsat")
        names = _Names(model.variables)
        sums = [row for count in model.counts for row in names.sums(count)]
        variables, clauses, new = shuffled(names.variables, [*model.clauses, *names.clauses], self.seed)
        with Library() as solver:
            add = solver.add_clause
            for clause in clauses:
                add(clause)
            for literals, most in sums:
                if most < 0:
                    return Answer("unsat")
                solver.add_atmost(literals if new is None else [new[x] if x > 0 else -new[-x] for x in literals], most)
            if self.conflicts is not None:
                solver.conf_budget(self.conflicts)
            status = self.status[solver.solve_limited() if self.conflicts is not None else solver.solve()]
            if status != "sat":
                return Answer(status, detail="conflicts" if status == "gave-up" else "")
            values = [False] * (variables + 1)
            for literal in solver.get_model() or ():
                if literal > 0:
                    values[literal] = True
        return Answer(
            "sat", values[: model.variables + 1] if new is None else [values[v] for v in new[: model.variables + 1]]
        )


class _Names:
    """Counts as sums of different literals that at most so many may hold: where one counts twice, its copy gets a
    name."""

    def __init__(self, variables: int) -> None:
        self.variables, self.clauses = variables, []

    def sums(self, count: Count) -> list[tuple[list[int], int]]:
        """``literals - scale * levels <= scale``, and with `full` the reverse, without coefficients or signs."""
        literals, scale, both = count.literals, count.scale, count.full
        if len(set(literals)) < len(literals):
            seen: set[int] = set()
            literals = [self._copy(x, both) if x in seen or seen.add(x) else x for x in literals]
        more = list(count.levels) if scale else []
        more += [-self._copy(-x, both) for _ in range(scale - 1) for x in count.levels]
        size, found = len(literals), []
        if size > scale:
            found.append(([*literals, *[-x for x in more]], scale + len(more)))
        if both:
            found.append(([*[-x for x in literals], *more], size - scale))
        return found

    def _copy(self, literal: int, both: bool) -> int:
        """A new variable that holds if `literal` does; with `both`, only if."""
        self.variables += 1
        self.clauses.append([-literal, self.variables])
        if both:
            self.clauses.append([literal, -self.variables])
        return self.variables


def incremental_minisat(clauses: list[list[int]]) -> Any:
    """Return python-sat's incremental MiniSat (GitHub version) with `clauses`; its `delete` frees it.

    MiniSat reports cores of assumptions and is quick on many small questions. Raises MissingDependencyError without
    python-sat.
    """
    try:
        from pysat.solvers import MinisatGH
    except ImportError:
        raise MissingDependencyError(
            "placing chunks needs python-sat; run: pip install 'python-sat==1.9.dev17'"
        ) from None
    return MinisatGH(bootstrap_with=clauses)
