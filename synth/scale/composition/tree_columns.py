"""Column generation over trees that are placed in the steps.

    minimise sum of r_t   over   x[tree] >= 0 with sum of weight * x = 1 for every unit,
                                 sum of load[k, t] x <= capacity[k] r_t for every resource k and step t

The restricted master program is solved in its dual form, where a new tree is a new row, so that the dual simplex method
goes on from the last basis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from synth.scale.composition.phases import Template
from synth.scale.composition.pipelining_lp import TOLERANCE
from synth.solvers.column_generation import SmoothedPrices, generate_columns
from synth.solvers.deadline import NEVER, Deadline, check_deadline
from synth.solvers.linear_program import LinearProgram

# Fraction below which savings by further trees are not worth a larger program.
SLIGHT = 1e-3
# Number of turns of column generation that together must save as much, or it ends.
SLOW_TURNS = 30
# Number of turns after which, if all of them find no new tree at the same prices, it ends, too.
LAST_TURNS = 12

# Called with ``prices[resource, step]``, yields cheap trees.
Search = Callable[[np.ndarray], Iterator[Template]]


class TreeColumns:
    """The restricted master program and its trees.

    Attributes:
        value: rounds per chunk, after `generate`.
        prices: ``prices[resource, step]`` of a chunk's load, after `generate`.
    """

    def __init__(
        self, capacity: np.ndarray, steps: int, units: Sequence[int],
        loads: Callable[[Sequence[Template]], list[np.ndarray]],
    ) -> None:  # fmt: skip
        """Prepare the program without trees. `loads` returns ``loads[resource, step]`` of each of some trees."""
        self._loads = loads
        self._even = np.repeat(1 / (len(capacity) * capacity[:, None]), steps, axis=1)
        self._trees: list[Template] = []
        self._known: set[Template] = set()
        self.value, self.prices = np.inf, self._even
        count = self._even.size
        self._column = {unit: count + i for i, unit in enumerate(units)}
        self._program = LinearProgram([0.0] * count + [-1.0] * len(units))
        for t in range(steps):
            row = {k * steps + t: float(c) for k, c in enumerate(capacity)}
            self._program.add_rows([(None, row, 1.0)])
        self._rows: list[tuple[None, dict[int, float], float]] = []
        self._costs: dict[int, list[np.ndarray]] = {unit: [] for unit in units}
        self._shares: list[float] = []

    def add(self, trees: Iterable[Template]) -> int:
        """Add those trees that are new; return their number."""
        new = [tree for tree in dict.fromkeys(trees) if tree not in self._known]
        self._known.update(new)
        self._trees += new
        for tree, load in zip(new, self._loads(new), strict=True):
            flat = load.ravel()
            row = {int(i): -float(flat[i]) for i in np.flatnonzero(flat)}
            row[self._column[tree.unit]] = float(tree.weight)
            self._rows.append((None, row, 0.0))
            self._costs[tree.unit].append(flat / tree.weight)
        return len(new)

    def generate(self, search: Search, deadline: Deadline = NEVER) -> bool:
        """Add trees of `search` while they save rounds, until `deadline`; return False where there is no solution."""
        self.add(search(self._even))
        smoothed = SmoothedPrices(self._even)
        values: list[float] = []

        def price(prices: np.ndarray) -> int:
            added = self.add(search(prices))
            flat = prices.ravel()
            least = 0.0
            for loads in self._costs.values():
                least += float((np.array(loads) @ flat).min()) if loads else np.inf
            smoothed.update(prices, least)
            return added

        def stop() -> bool:
            check_deadline()
            if deadline.over:
                return True
            values.append(self.value)
            before = values[-1 - SLOW_TURNS] if len(values) > SLOW_TURNS else np.inf
            return before * (1 - SLIGHT) < self.value

        own_prices = [lambda: price(self.prices)] * LAST_TURNS  # each one searches for other trees
        pricers = (lambda: price(smoothed.smooth(self.prices)), *own_prices)
        return generate_columns(self._solve, stop, pricers).ending != "unsolved"

    def used(self) -> list[Template]:
        """Return the trees that carry data after `generate`."""
        pairs = zip(self._trees, self._shares, strict=False)  # the last trees have no shares yet
        return [tree for tree, share in pairs if share > TOLERANCE]

    def _solve(self) -> bool:
        self._program.add_rows(self._rows)
        self._rows = []
        solved = self._program.solve()
        if solved is None:
            return False
        value, x, duals = solved
        self.value = -value
        self.prices = np.maximum(np.array(x[: self._even.size]).reshape(self._even.shape), 0.0)
        self._shares = [max(0.0, -dual) for dual in duals[self._even.shape[1] :]]
        return True
