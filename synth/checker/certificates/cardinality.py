"""Clauses that bound how many literals of a list are true: sequential counters and totalizers. Part of the checker.

A *sorted vector* is a list of literals of which the first are true: o[k] must be true where more than k inputs are.
New variables are numbered upwards, and clauses are appended, in one order that the hash of a proof's formula fixes.
"""

from __future__ import annotations

from collections.abc import Sequence


class Clauses:
    """A growing formula: `variables` is the highest variable, `rows` are the clauses in DIMACS literals."""

    def __init__(self, variables: int, rows: list[list[int]]) -> None:
        self.variables, self.rows = variables, rows

    def at_most_one(self, literals: Sequence[int]) -> None:
        """Add clauses by which at most one of `literals` is true.

        They are pairs for up to four literals, else a sequential counter (Sinz, CP 2005).

        Variable prefix[i] of the counter is true where one of literals[0..i] is.
        """
        last = len(literals) - 1
        if last < 4:
            for i in range(1, last + 1):
                self.rows.extend([-literals[i], -literals[j]] for j in range(i))
            return
        prefix = range(self.variables + 1, self.variables + 1 + last)
        self.variables += last
        self.rows.append([-literals[0], prefix[0]])
        for i in range(1, last):
            self.rows.append([-prefix[i - 1], -literals[i]])
            self.rows.append([-literals[i], prefix[i]])
            self.rows.append([-prefix[i - 1], prefix[i]])
        self.rows.append([-prefix[-1], -literals[last]])

    def at_most(self, vectors: list[list[int]], scale: int, levels: Sequence[int]) -> None:
        """Add clauses by which at most `scale` · (1 + true levels) literals of the sorted `vectors` are true.

        `levels` is a sorted vector, too.

        One totalizer sorts the first half of the vectors, one the second half. Where m levels are true, i of the first
        and j of the second half with i + j = scale · (m + 1) + 1 would be one too many, unless level m is true.
        """
        count = sum(map(len, vectors))
        longest = min(scale * (len(levels) + 1) + 1, count)
        middle = (len(vectors) + 1) // 2
        first = self.merged(vectors[:middle], longest)
        second = self.merged(vectors[middle:], longest)
        for m in range(len(levels) + 1):
            excess = scale * (m + 1) + 1
            escape = list(levels[m : m + 1])
            for i in range(max(0, excess - len(second)), min(len(first), excess) + 1):
                row = [-first[i - 1]] if i else []
                if i < excess:
                    row.append(-second[excess - i - 1])
                self.rows.append(row + escape)

    def merged(self, vectors: list[list[int]], longest: int) -> list[int]:
        """Return a sorted vector of at most `longest` literals that counts the true literals of all sorted `vectors`.

        Its clauses are added: a totalizer (Bailleux and Boufkhad, CP 2003), where neighbours are merged until one is
        left.
        """
        while len(vectors) > 1:
            pairs = [self._merge(*vectors[i : i + 2], longest) for i in range(0, len(vectors) - 1, 2)]
            vectors = pairs + vectors[len(pairs) * 2 :]
        return vectors[0][:longest] if vectors else []

    def _merge(self, a: list[int], b: list[int], longest: int) -> list[int]:
        """Return the sorted vector o of two: a[i] → o[i], b[j] → o[j], and a[i] ∧ b[j] → o[i + j + 1]."""
        size = min(len(a) + len(b), longest)
        o = range(self.variables + 1, self.variables + 1 + size)
        self.variables += size
        self.rows.extend([-x, y] for x, y in zip(a, o, strict=False))
        self.rows.extend([-x, y] for x, y in zip(b, o, strict=False))
        for i, x in enumerate(a[: size - 1]):
            self.rows.extend([-x, -y, z] for y, z in zip(b, o[i + 1 :], strict=False))
        return list(o)
