"""Model: the interface between encodings and solvers. Boolean variables, clauses, and cardinality constraints.

    Model   variables clauses counts
    Count   literals scale levels vectors     true literals  <=  scale * (1 + true levels)

Literals are DIMACS integers. MiniCard takes `counts` as they are. For other solvers `Model.cnf` expands them by
totalizers (Bailleux and Boufkhad, "Efficient CNF encoding of Boolean cardinality constraints", CP 2003): true inputs
force true outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from synth.model.outcome import Why


class Count(NamedTuple):
    """At most ``scale * (1 + true levels)`` of `literals` are true. A literal may occur several times.

    `levels` is a unary number: level j + 1 implies level j. `vectors`: lengths of consecutive runs of `literals`, each
    of which is such a number, too; () where none is known to be.
    """

    literals: list[int]
    scale: int
    levels: Sequence[int] = ()
    vectors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The answer of a solver to a Model.

    Attributes:
        status: "sat", "unsat", or the reason why the model is undecided.
        values: the value of each variable v at index v if "sat" (index 0 is unused), else empty.
        detail: what limited the search, in words, if it is undecided.
        work: approximate seconds of one core, from the solver's own counters, so that the load of the machine does not
            change it; 0 if unknown.
    """

    status: Literal["sat", "unsat"] | Why
    values: Sequence[bool] = ()
    detail: str = ""
    work: float = 0.0


class Model:
    """A growing formula over the Boolean variables 1..`variables`: `clauses` and cardinality constraints `counts`."""

    __slots__ = ("clauses", "counts", "variables")

    def __init__(self) -> None:
        self.variables = 0
        self.clauses: list[list[int]] = []
        self.counts: list[Count] = []

    def var(self) -> int:
        """Return a new variable."""
        self.variables += 1
        return self.variables

    def block(self, size: int) -> int:
        """Add `size` consecutive variables; return the first."""
        first = self.variables + 1
        self.variables += size
        return first

    def clause(self, literals: list[int]) -> None:
        """Require at least one of `literals`. An empty list makes the model infeasible."""
        self.clauses.append(literals)

    def at_most(
        self, literals: list[int], scale: int, levels: Sequence[int] = (), vectors: tuple[int, ...] = ()
    ) -> None:
        """Require at most ``scale * (1 + true levels)`` of `literals` (see `Count`)."""
        if len(literals) > scale:
            self.counts.append(Count(literals, scale, levels, vectors))

    def unary_count(self, literals: Sequence[int], up_to: int) -> list[int]:
        """Return `up_to` new variables o, or one for each literal if these are fewer, by a totalizer.

        o[k] is forced true when more than k of `literals` are. It is not forced false otherwise.
        """
        expand = _Totalizer(self.variables, self.clauses)
        outputs = expand.sorted([[x] for x in literals], up_to)
        self.variables = expand.variables
        return outputs

    def cnf(self) -> tuple[int, list[list[int]]]:
        """Return the number of variables and the clauses of an equisatisfiable CNF that keeps the model's variables."""
        clauses = self.clauses.copy()
        expand = _Totalizer(self.variables, clauses)
        for count in self.counts:
            if count.scale == 1 and not count.levels and not count.vectors:
                expand.one(count.literals)
            elif len(count.literals) > count.scale:
                expand.bound(count)
        return expand.variables, clauses


class _Totalizer:
    """Expands counts into `clauses`, numbering new variables from `variables` + 1 on."""

    def __init__(self, variables: int, clauses: list[list[int]]) -> None:
        self.variables, self.clauses = variables, clauses

    def sorted(self, vectors: list[list[int]], limit: int) -> list[int]:
        """Return one sorted vector, at most `limit` long, out of several, by a balanced tree of merges.

        True inputs force outputs true.
        """
        while len(vectors) > 1:
            merged = [self._merge(vectors[i], vectors[i + 1], limit) for i in range(0, len(vectors) - 1, 2)]
            if len(vectors) % 2:
                merged.append(vectors[-1])
            vectors = merged
        return vectors[0][:limit] if vectors else []

    def one(self, literals: Sequence[int]) -> None:
        """Add clauses for at most one literal, by a sequential counter (Sinz, CP 2005)."""
        clauses = self.clauses
        if len(literals) <= 4:
            clauses.extend([[-x, -y] for i, x in enumerate(literals) for y in literals[:i]])
            return
        seen = self.variables + 1
        self.variables += len(literals) - 1
        clauses.append([-literals[0], seen])
        for x in literals[1:-1]:
            clauses += [-seen, -x], [-x, seen + 1], [-seen, seen + 1]
            seen += 1
        clauses.append([-seen, -literals[-1]])

    def bound(self, count: Count) -> None:
        """Add the clauses of one count. The last merge uses the levels themselves as outputs."""
        scale, levels, clauses = count.scale, count.levels, self.clauses
        vectors = _runs(count)
        most = min(scale * (len(levels) + 1) + 1, len(count.literals))
        half = (len(vectors) + 1) // 2
        left = self.sorted(vectors[:half], most)
        right = self.sorted(vectors[half:], most)
        p, q = len(left), len(right)
        for m in range(len(levels) + 1):
            total = scale * (m + 1) + 1
            if total > p + q:
                break
            tail = [levels[m]] if m < len(levels) else []
            for i in range(max(0, total - q), min(p, total) + 1):
                j = total - i
                if not i:
                    clauses.append([-right[j - 1], *tail])
                elif not j:
                    clauses.append([-left[i - 1], *tail])
                else:
                    clauses.append([-left[i - 1], -right[j - 1], *tail])

    def _merge(self, a: list[int], b: list[int], limit: int) -> list[int]:
        """Return the merge of two sorted vectors, up to `limit` long.

        True a[i] and b[j] force output i + j + 1 true.
        """
        p, q = len(a), len(b)
        size = min(p + q, limit)
        first = self.variables + 1
        self.variables += size
        clauses = self.clauses
        clauses.extend([[-x, o] for x, o in zip(a, range(first, first + size), strict=False)])
        clauses.extend([[-x, o] for x, o in zip(b, range(first, first + size), strict=False)])
        for i in range(min(p, size - 1)):
            x, base = -a[i], first + i + 1
            clauses.extend([[x, -b[j], base + j] for j in range(min(q, size - i - 1))])
        return list(range(first, first + size))


def _runs(count: Count) -> list[list[int]]:
    """Return the inputs as sorted vectors. Equal literals side by side make one vector."""
    literals = count.literals
    if count.vectors:
        runs, at = [], 0
        for size in count.vectors:
            runs.append(literals[at : at + size])
            at += size
        return runs
    if len(set(literals)) == len(literals):
        return [[x] for x in literals]
    times: dict[int, int] = {}
    for x in literals:
        times[x] = times.get(x, 0) + 1
    return [[x] * n for x, n in times.items()]
