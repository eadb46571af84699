"""Periods of trees: whole numbers of trees that together fill whole rounds, where steps do not count.

A period moves the same number of chunks of every unit. Periods that follow each other level by level have equal loads
in every step, so that little is lost by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from synth.scale.composition.settings import SETTINGS
from synth.solvers.highs import integer

# Tolerance of sums of loads in relation to the capacity.
EXACT = 1e-9


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees of which a period is put together.

    ``loads[tree, resource]`` in relation to the capacity. `owners`: the unit of each tree. `value`: the least rounds
    for a tree of each unit, by a linear program.
    """

    loads: np.ndarray
    owners: Sequence[int]
    value: float

    def rounds(self, count: int) -> int:
        """Return the least number of rounds of a period of `count` trees of each unit."""
        return max(1, ceil(self.value * count * (1 - SETTINGS.slight)))


def period(kinds: Sequence[Trees]) -> tuple[float, list[list[int]]]:
    """Return the rounds for each tree of a unit in a period, and the indices of its trees of each kind.

    A period has equally many trees of each unit and kind; kinds follow each other. Periods are tried by ascending
    rounds for each tree. Where none is found the rounds are infinite.
    """
    sizes = []
    for count in range(1, SETTINGS.most_period + 1):
        sizes.append((sum(trees.rounds(count) for trees in kinds) / count, count))
    for rate, count in sorted(sizes)[: SETTINGS.periods_tried]:
        chosen = []
        for trees in kinds:
            chosen.append(_selection(trees, count))
            if chosen[-1] is None:
                break
        else:
            return rate, chosen
    return np.inf, []


def _selection(trees: Trees, count: int) -> list[int] | None:
    """Return the indices of `count` trees of each unit that fit into the rounds; None where the search ends before.

    An integer program chooses how often each tree is taken.
    """
    owners, rounds = np.array(trees.owners), trees.rounds(count)
    members = (owners == np.unique(owners)[:, None]).astype(float)
    rows = [(members, count, count), (trees.loads.T, -np.inf, rounds)]
    solution = integer(np.zeros(len(owners)), rows, count, node_limit=SETTINGS.period_nodes)
    if solution.x is None:
        return None
    times = np.rint(solution.x).astype(np.int64)
    fits = (times @ trees.loads <= rounds + EXACT).all() and (members @ times == count).all()
    return np.repeat(np.arange(len(owners)), times).tolist() if fits else None
