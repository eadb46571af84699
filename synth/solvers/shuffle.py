"""Seeds: SAT times are heavy-tailed, so runs are compared over shuffled formulas, not single ones."""

from __future__ import annotations

import random


def shuffled(variables: int, clauses: list[list[int]], seed: int) -> tuple[int, list[list[int]], list[int] | None]:
    """The same formula with variables renumbered and clauses reordered by `seed`; seed 0 leaves it as it is.

    The third part maps old variables to new ones (index 0 unused), None for seed 0.
    """
    if not seed:
        return variables, clauses, None
    rng = random.Random(seed)
    names = list(range(1, variables + 1))
    rng.shuffle(names)
    new = [0, *names]
    clauses = [[new[x] if x > 0 else -new[-x] for x in clause] for clause in clauses]
    rng.shuffle(clauses)
    return variables, clauses, new
