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

# Tolerance of sums of loads in relation to the capacity.
EXACT = 1e-9


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees of which a period is put together.

    ``loads[tree, resource]`` in relation to the capacity. `owners`: the unit of each tree. `shares` of the trees in the
    solution of a linear program, where a tree of each unit takes `value` rounds.
    """

    loads: np.ndarray
    owners: Sequence[int]
    shares: Sequence[float]
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
        rate = sum(trees.rounds(count) for trees in kinds) / count
        sizes += [(rate, count, seed) for seed in range(SETTINGS.period_seeds)]
    for rate, count, seed in sorted(sizes)[: SETTINGS.periods_tried]:
        chosen = []
        for trees in kinds:
            chosen.append(_Selection(trees, count, seed).search())
            if chosen[-1] is None:
                break
        else:
            return rate, chosen
    return np.inf, []


class _Selection:
    """Trees whose loads must not exceed 1: one tree after the other is exchanged for the best one in its place.

    An exchange that does not lower the sum of the excess loads is made where it does not raise it. Excess that stays is
    weighted more and more (Morris, "The breakout method for escaping from local minima", AAAI 1993).
    """

    def __init__(self, trees: Trees, count: int, seed: int) -> None:
        self.loads, self.random = trees.loads / trees.rounds(count), np.random.default_rng(seed)
        self.options: list[np.ndarray] = []  # of each place
        chosen = []
        for owner in sorted(set(trees.owners)):
            members = np.array([i for i, other in enumerate(trees.owners) if other == owner])
            part = np.array(trees.shares)[members]
            self.options += [members] * count
            chosen += self.random.choice(members, count, p=part / part.sum()).tolist()
        self.trees = chosen

    def search(self) -> list[int] | None:
        """Return the trees, or None where too many exchanges were tried."""
        weights = np.ones(self.loads.shape[1])
        total = self.loads[self.trees].sum(axis=0)
        for exchange in range(SETTINGS.exchanges):
            excess = np.maximum(total - 1 - EXACT, 0)
            if not excess.any():
                return self.trees
            if exchange % SETTINGS.breakout == SETTINGS.breakout - 1:
                weights += excess / excess.max()
            place = int(self.random.integers(len(self.trees)))
            options = self.options[place]
            rest = total - self.loads[self.trees[place]]
            costs = np.maximum(rest + self.loads[options] - 1 - EXACT, 0) @ weights
            self.trees[place] = int(options[self.random.choice(np.flatnonzero(costs <= costs.min() + EXACT))])
            total = rest + self.loads[self.trees[place]]
        return None
