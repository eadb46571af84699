"""Column generation over trees that are placed in the steps.

    minimise sum of r_t   over   x[tree] >= 0 with sum of weight * x = 1 for every unit,
                                 sum of load[k, t] x <= capacity[k] r_t for every resource k and step t

The trees of an allreduce may be given in halves, reductions and copies of a group of blocks, so that one tree is found
for both sides of many. In every step t of every group as much data must be reduced as copied:

    sum of weight * x over copies that begin by step t  <=  sum of weight * x over reductions that end before step t

The restricted master program is solved in its dual form, where a new tree is a new row, so that the dual simplex method
goes on from the last basis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from synth.scale.composition.phases import Template, in_sequence
from synth.scale.composition.pipelining_lp import TOLERANCE
from synth.scale.composition.settings import SETTINGS
from synth.solvers.column_generation import SmoothedPrices, generate_columns
from synth.solvers.linear_program import LinearProgram
from synth.solvers.processes.deadline import NEVER, Deadline, check_deadline


class HalfTree(NamedTuple):
    """The reductions or the copies of an allreduce's tree, placed in the steps, for a group of blocks.

    `step`: the step after the last reduction, or that of the first copy.
    """

    template: Template
    group: int
    reduces: bool
    step: int


# Called with ``prices[resource, step]``, yields cheap trees.
Search = Callable[[np.ndarray], Iterator[Template | HalfTree]]


class TreeColumns:
    """The restricted master program and its trees.

    Attributes:
        value: rounds per chunk, after `generate`.
        prices: ``prices[resource, step]`` of a chunk's load, after `generate`.
    """

    def __init__(
        self, capacity: np.ndarray, steps: int, units: Sequence[int],
        loads: Callable[[Sequence[Template]], list[np.ndarray]], groups: int = 0,
    ) -> None:  # fmt: skip
        """Prepare the program without trees.

        `loads` returns ``loads[resource, step]`` of each of some trees. `groups`: number of groups that may have halves
        of trees.
        """
        self._loads, self._steps = loads, steps
        self._even = np.repeat(1 / (len(capacity) * capacity[:, None]), steps, axis=1)
        self._columns: list[Template | HalfTree] = []
        self._known: set[Template | HalfTree] = set()
        self.value, self.prices = np.inf, self._even
        count = self._even.size
        self._column = {unit: count + i for i, unit in enumerate(units)}
        self._order_column = count + len(units)  # of group 0 in step 0, followed by those of its other steps
        self._program = LinearProgram([0.0] * count + [-1.0] * len(units) + [0.0] * (groups * steps))
        for t in range(steps):
            row = {k * steps + t: float(c) for k, c in enumerate(capacity)}
            self._program.add_rows([(None, row, 1.0)])
        self._rows: list[tuple[None, dict[int, float], float]] = []
        self._costs: dict[int, list[np.ndarray]] = {unit: [] for unit in units}
        self._halves: dict[tuple[int, bool], list[tuple[int, np.ndarray]]] = {}
        self._unit_of: dict[int, int] = {}
        self._shares: list[float] = []

    def add(self, trees: Iterable[Template | HalfTree]) -> int:
        """Add those trees that are new; return their number."""
        new = [tree for tree in dict.fromkeys(trees) if tree not in self._known]
        self._known.update(new)
        self._columns += new
        loads = self._loads([_template(tree) for tree in new])
        for tree, load in zip(new, loads, strict=True):
            self._rows.append((None, self._row(tree, load.ravel()), 0.0))
        return len(new)

    def _row(self, tree: Template | HalfTree, flat: np.ndarray) -> dict[int, float]:
        """Return the row of a new tree of these loads in the program's dual form, and store its cost."""
        template = _template(tree)
        weight = float(template.weight)
        row = {int(i): -float(flat[i]) for i in np.flatnonzero(flat)}
        if isinstance(tree, HalfTree):
            self._halves.setdefault((tree.group, tree.reduces), []).append((tree.step, flat / weight))
            self._unit_of[tree.group] = template.unit
            first = self._order_column + tree.group * self._steps
            for t in range(tree.step, self._steps):
                row[first + t] = weight if tree.reduces else -weight
            if tree.reduces:
                return row
        else:
            self._costs[template.unit].append(flat / weight)
        row[self._column[template.unit]] = weight
        return row

    def generate(self, search: Search, deadline: Deadline = NEVER) -> bool:
        """Add trees of `search` while they save rounds, until `deadline`; return False where there is no solution."""
        self.add(search(self._even))
        smoothed = SmoothedPrices(self._even)
        values: list[float] = []

        def price(prices: np.ndarray) -> int:
            added = self.add(search(prices))
            smoothed.update(prices, self._least_cost(prices))
            return added

        def stop() -> bool:
            check_deadline()
            if deadline.over:
                return True
            values.append(self.value)
            before = values[-1 - SETTINGS.slow_turns] if len(values) > SETTINGS.slow_turns else np.inf
            return before * (1 - SETTINGS.slight) < self.value

        own_prices = [lambda: price(self.prices)] * SETTINGS.last_turns  # each one searches for other trees
        pricers = (lambda: price(smoothed.smooth(self.prices)), *own_prices)
        return generate_columns(self._solve, stop, pricers).ending != "unsolved"

    def vary(self, search: Search, turns: int) -> None:
        """Add trees that are cheap at prices about the master's. They make other sums of loads possible."""
        random = np.random.default_rng(len(self._columns))
        prices = np.maximum(self.prices, SETTINGS.least_varied * self.prices.mean())
        for _ in range(turns):
            check_deadline()
            self.add(search(prices * np.exp(SETTINGS.variation * random.standard_normal(prices.shape))))

    @property
    def trees(self) -> list[Template]:
        """The whole trees so far, in the order in which they were added."""
        return [tree for tree in self._columns if isinstance(tree, Template)]

    @property
    def shares(self) -> list[float]:
        """The share of each of `trees` after `generate`, 0 of later ones."""
        shares = self._shares + [0.0] * (len(self._columns) - len(self._shares))
        return [share for tree, share in zip(self._columns, shares, strict=True) if isinstance(tree, Template)]

    def used(self) -> list[Template]:
        """Return the trees that carry data; of halves those that they make together."""
        whole = [tree for tree, share in zip(self.trees, self.shares, strict=True) if share > TOLERANCE]
        return whole + list(self._joined())

    def _joined(self) -> Iterator[Template]:
        """Yield the trees of which halves carry data: of each group the earliest reductions with the first copies."""
        halves: dict[tuple[int, bool], list[tuple[int, float, Template]]] = {}
        for tree, share in zip(self._columns, self._shares, strict=False):
            if isinstance(tree, HalfTree) and share > TOLERANCE:
                halves.setdefault((tree.group, tree.reduces), []).append((tree.step, share, tree.template))
        for (group, reduces), last in halves.items():
            first = [] if reduces else sorted(halves.get((group, True), []), key=itemgetter(0))
            last = sorted(last, key=itemgetter(0))
            while first and last:
                (end, reduced, reductions), (start, copied, copies) = first.pop(0), last.pop(0)
                if end <= start:  # as in the program, up to rounding
                    yield in_sequence(reductions, copies)
                if reduced > copied + TOLERANCE:
                    first.insert(0, (end, reduced - copied, reductions))
                if copied > reduced + TOLERANCE:
                    last.insert(0, (start, copied - reduced, copies))

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

    def _least_cost(self, prices: np.ndarray) -> float:
        """Return the sum over the units of the least price of a chunk, on the trees so far."""
        flat = prices.ravel()
        least = dict.fromkeys(self._costs, np.inf)
        for unit, loads in self._costs.items():
            if loads:
                least[unit] = float((np.array(loads) @ flat).min())
        for group, unit in self._unit_of.items():
            least[unit] = min(least[unit], self._least_pair(group, flat))
        return sum(least.values())

    def _least_pair(self, group: int, prices: np.ndarray) -> float:
        """Return the least price of reductions and copies of a group, in this order."""
        least = np.full(self._steps + 1, np.inf)  # of reductions by the step in which they have ended
        for step, load in self._halves.get((group, True), []):
            least[step:] = np.minimum(least[step:], load @ prices)
        pairs = [least[step] + load @ prices for step, load in self._halves.get((group, False), [])]
        return float(min(pairs, default=np.inf))


def _template(tree: Template | HalfTree) -> Template:
    """Return the tree as a template."""
    return tree.template if isinstance(tree, HalfTree) else tree
