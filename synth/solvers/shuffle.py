"""Shuffled formulas: SAT times are heavy-tailed, so runs are compared over several shuffles of a formula."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence


def shuffled(variables: int, clauses: list[list[int]], seed: int) -> tuple[int, list[list[int]], list[int] | None]:
    """Return the formula with variables renumbered and clauses in another order, at random by `seed`.

    Returns (`variables`, clauses, new), where ``new[v]`` is the new number of variable v, and ``new[0]`` is unused.
    Seed 0 leaves the formula as it is, and `new` is None.
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
    """Return the clauses with variable ``new[v]`` in the place of each variable v."""
    literal = [*new, *[-v for v in reversed(new[1:])]]  # literal[-v] is the negation of literal[v]
    result = []
    for clause in clauses:
        result.append([literal[x] for x in clause])
    return result
