"""Shuffled formulas: SAT times are heavy-tailed, so runs are compared over several shuffles of a formula."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence


def shuffled(variables: int, clauses: list[list[int]], seed: int) -> tuple[int, list[list[int]], list[int] | None]:
    """Return the number of variables, the clauses in an order by `seed`, and the new number of each variable.

    Index 0 of these numbers is unused. Seed 0 leaves the formula as it is, and the numbers are None.
    """
    if not seed:
        return variables, clauses, None
    rng = random.Random(seed)
    names = list(range(1, variables + 1))
    rng.shuffle(names)
    new = [0, *names]
    clauses = renumbered(clauses, new)
    rng.shuffle(clauses)
    return variables, clauses, new


def renumbered(clauses: Iterable[Sequence[int]], new: Sequence[int]) -> list[list[int]]:
    """Return the clauses with `new[v]` for each variable v."""
    literal = [*new, *[-v for v in reversed(new[1:])]]  # literal[-v] is the negation of literal[v]
    result = []
    for clause in clauses:
        result.append([literal[x] for x in clause])
    return result
