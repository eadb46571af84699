"""Column generation: the loop over a restricted master program and its pricing, and smoothed dual prices.

Reference: Desaulniers, Desrosiers and Solomon (eds.), "Column Generation", 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

# Weight of the best prices so far against the master's prices.
SMOOTHING = 0.7


class Generation(NamedTuple):
    """Result of `generate_columns`.

    Attributes:
        ending: "stopped" by `stop`; "no column" where no pricer added one, so that the master's solution is optimal as
            far as the pricers can tell; "unsolved" where the master has no solution; or "iterations" used up.
        iterations: number of times that the master was solved.
    """

    ending: Literal["stopped", "no column", "unsolved", "iterations"]
    iterations: int


def generate_columns(
    solve: Callable[[], bool],
    stop: Callable[[], bool],
    pricers: Sequence[Callable[[], int | bool]],
    iterations: int | None = None,
) -> Generation:
    """Solve a restricted master program and add columns in turns.

    ``solve()`` solves the master over the known columns and returns False where it has no solution. Then ``stop()`` may
    end the loop. Each of `pricers`, from the fastest to the most thorough, adds columns that may improve the master's
    solution and returns their number; the first that adds any ends the turn. The loop ends after `iterations` turns
    (None: no limit). The master's last solution covers all columns that were added, unless there is none.
    """
    iteration = 0
    while True:
        iteration += 1
        if not solve():
            return Generation("unsolved", iteration)
        if stop():
            return Generation("stopped", iteration)
        if iteration == iterations:
            return Generation("iterations", iteration)
        if not any(pricer() for pricer in pricers):
            return Generation("no column", iteration)


class SmoothedPrices:
    """Dual prices smoothed towards the best so far, so that they oscillate less (Wentges, "Weighted Dantzig-Wolfe
    decomposition for linear mixed-integer programming", ITOR 4, 1997).

    Attributes:
        best: the prices with the greatest dual bound so far.
        bound: the dual bound at `best`, which is the least total cost of columns there; 0 at first.
    """

    def __init__(self, first: np.ndarray) -> None:
        self.best, self.bound = first, 0.0

    def smooth(self, prices: np.ndarray) -> np.ndarray:
        """Return the mean of the best prices, with weight `SMOOTHING`, and the master's `prices`."""
        return SMOOTHING * self.best + (1 - SMOOTHING) * prices

    def update(self, prices: np.ndarray, bound: float) -> None:
        """Replace the best prices by `prices` if their bound is greater."""
        if bound > self.bound:
            self.best, self.bound = prices, bound
