"""LP diving: fix whole chunks on trees one after another, and price new trees for the remaining chunks.

Column generation ends with fractions. A dive rounds them: the rounds of each step first, then the trees with the
largest shares. After each decision it solves the linear program of the remaining chunks and prices new trees for it
(Sadykov et al., INFORMS J. on Computing 31, 2019). The last chunks are left to CP-SAT. Only for groups under which no
automorphism but the identity fixes a unit, so that every tree may be taken alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor
from typing import Protocol

import numpy as np

from synth.bounds.trees.column_generation import SETTINGS as COLUMN_SETTINGS
from synth.bounds.trees.column_generation import FoldedProblem, RestrictedMaster
from synth.bounds.trees.time_expanded_trees import Tree
from synth.solvers.column_generation import generate_columns
from synth.solvers.processes.deadline import Deadline


@dataclass(frozen=True)
class DivingSettings:
    """Limits of a dive.

    Attributes:
        tolerance: Tolerance for float comparisons of rounds and shares.
        pricings: Maximum number of pricing rounds after a decision.
        most_new: Maximum number of trees of a unit that join in one round of exact pricing.
        most_found: Maximum number of trees of a unit that join in one round of heuristic pricing.
        efforts: Numbers of turns of a heuristic search, the second where the first finds no new tree.
        settling: Maximum number of pricing rounds before the first decision.
        candidates: Maximum number of trees that are tried for one decision.
        nearly: The completion sub-problem is tried again when the remaining chunks have decreased by this
            factor.
        last_chunks: Maximum number of remaining chunks for which it is tried.
        reaches: Distances from the fractional rounds up to which whole rounds are enumerated.
        options: Number of whole rounds beyond which the distance is not increased.
    """

    tolerance: float = 1e-6
    pricings: int = 4
    most_new: int = 10
    most_found: int = 40
    efforts: tuple[int, ...] = (1, 3)
    settling: int = 40
    candidates: int = 12
    nearly: float = 0.5
    last_chunks: int = 12
    reaches: tuple[int, ...] = (2, 4, 6, 10)
    options: int = 500


SETTINGS = DivingSettings()


@dataclass
class Partial:
    """Placed chunks: the trees taken by each unit, their loads, and the rounds of each step."""

    taken: dict[int, list[Tree]]
    loads: np.ndarray
    floors: list[int]


class Pricer(Protocol):
    """A pricer: returns cheap trees of a unit."""

    @property
    def exact(self) -> bool:
        """True if the first tree that it returns is a cheapest."""
        ...

    def search(self, prices: np.ndarray, known: Sequence[Tree], size: int, turns: int) -> list[tuple[float, Tree]]:
        """Return trees with their costs at ``prices[route, step - 1]``, a cheapest first."""
        ...


class Dive:
    """Dives over the trees of one folded problem. The trees that it prices stay in `master.trees`.

    `pricers` replace the pricers of the units, for columns that are no trees from a unit's holders to all ranks that
    want it.
    """

    def __init__(
        self,
        folded: FoldedProblem,
        chunks: int,
        rounds: int,
        trees: dict[int, list[Tree]],
        seed: int,
        pricers: Mapping[int, Pricer] | None = None,
    ) -> None:
        self.folded, self.chunks, self.rounds = folded, chunks, rounds
        self.random = np.random.default_rng(seed)
        self.master = RestrictedMaster(folded, 1.0)
        self.pricers: Mapping[int, Pricer] = pricers or {u: folded.pricer(u, seed + 31 * u) for u in folded.units}
        exact = all(pricer.exact for pricer in self.pricers.values())
        self.efforts = SETTINGS.efforts[:1] if exact else SETTINGS.efforts
        for u, mine in trees.items():
            for tree in mine:
                self.master.add(u, tree)

    def feasible_rounds(self, deadline: Deadline) -> Iterator[list[int]]:
        """Yield whole numbers of rounds of each step for which the linear program has a solution, the likeliest first.

        Rounds without a solution give a Benders cut, which excludes other rounds.
        """
        state = self._nothing([1] * self.folded.steps)
        if not self._solve(state, deadline, SETTINGS.settling):
            return
        options = _nearest_rounds(self.master.rounds, self.rounds)
        while options.size and not deadline.over:
            first, options = options[0], options[1:]
            state = self._nothing([int(f) for f in first])
            if self._solve(state, deadline, SETTINGS.settling):
                yield state.floors
            elif options.size:
                value = self.master.value + (options - first) @ np.array(self.master.slack)
                options = options[value <= self.rounds + SETTINGS.tolerance]

    def _nothing(self, floors: list[int]) -> Partial:
        return Partial({u: [] for u in self.folded.units}, self.folded.no_loads(), floors)

    def run(
        self, floors: list[int], deadline: Deadline, finish: Callable[[Partial, dict[int, int]], Partial | None]
    ) -> Partial | None:
        """Dive once at the rounds `floors`, up to the deadline. `finish` completes a partial
        solution that lacks few chunks."""
        state = self._nothing(floors)
        if not self._solve(state, deadline, SETTINGS.settling):
            return None
        total = self.chunks * len(self.folded.units)
        last_tried = total
        while not deadline.over:
            need = self._need(state)
            remaining = sum(need.values())
            if not remaining:
                return state
            if remaining <= min(last_tried * SETTINGS.nearly, SETTINGS.last_chunks):
                last_tried = remaining
                done = finish(state, need)
                if done is not None:
                    return done
            if not self._fix(state, need, deadline):
                return finish(state, need)
        return None

    def _need(self, state: Partial) -> dict[int, int]:
        return {u: self.chunks - len(mine) for u, mine in state.taken.items()}

    def _solve(self, state: Partial, deadline: Deadline, pricings: int = SETTINGS.pricings) -> bool:
        """Return True if the linear program over trees has a solution for the remaining chunks, after pricing."""
        need = self._need(state)
        demand = {u: float(n) for u, n in need.items()}
        self.master.set_demand(demand, state.loads, [float(f) for f in state.floors])

        def attained() -> bool:
            return self.master.value <= self.rounds + SETTINGS.tolerance

        def stop() -> bool:
            return attained() or deadline.over

        units = [u for u, n in need.items() if n]
        pricers = [partial(self._add_cheap_trees, units, effort) for effort in self.efforts]
        ending = generate_columns(self.master.solve, stop, pricers, pricings + 1).ending
        return ending != "unsolved" and attained()

    def _add_cheap_trees(self, units: Sequence[int], effort: int) -> int:
        """Add trees of `units` that are cheap at the master's prices; return their number."""
        price, added = self.folded.use @ self.master.prices, 0
        for u in units:
            pricer = self.pricers[u]
            known = () if pricer.exact else self.master.cheapest(u, price, COLUMN_SETTINGS.known)
            maximum = SETTINGS.most_new if pricer.exact else SETTINGS.most_found
            trees = [tree for _, tree in pricer.search(price, known, COLUMN_SETTINGS.pool, effort)[:maximum]]
            added += self.master.add_improving(u, trees, maximum)
        return added

    def _fix(self, state: Partial, need: dict[int, int], deadline: Deadline) -> bool:
        """Fix the trees that the linear program takes whole; otherwise one of those with the largest shares. Return
        False if no choice leaves the linear program feasible."""
        whole, part = [], []
        for u, shares in self.master.share.items():
            for i, share in enumerate(shares):
                if need[u] and share > 1 - SETTINGS.tolerance:
                    whole.append((u, self.master.trees[u][i], int(share + SETTINGS.tolerance)))
                elif need[u] and share > SETTINGS.tolerance:
                    part.append((share + 0.2 * self.random.random(), u, i))
        if whole:
            for u, tree, times in whole:  # the program may give a unit more trees than it needs
                self._take(state, u, tree, min(times, self.chunks - len(state.taken[u])))
            return self._solve(state, deadline)
        part.sort(reverse=True)
        for _, u, i in part[: SETTINGS.candidates]:
            tree = self.master.trees[u][i]
            self._take(state, u, tree, 1)
            if self._solve(state, deadline):
                return True
            self._take(state, u, tree, -1)
        return False

    def _take(self, state: Partial, unit: int, tree: Tree, times: int) -> None:
        state.loads = state.loads + times * self.folded.weight[unit] * self.folded.loads(tree)
        if times > 0:
            state.taken[unit] += [tree] * times
        else:
            state.taken[unit].remove(tree)


def _nearest_rounds(fractions: Sequence[float], total: int) -> np.ndarray:
    """Return integer vectors ≥ 1 with sum `total`, those nearest to `fractions` first, at most some thousands."""
    result: list[tuple[float, list[int]]] = []
    for reach in SETTINGS.reaches:
        result = []
        stack: list[tuple[float, list[int]]] = [(0.0, [])]
        while stack:
            far, head = stack.pop()
            rest = total - sum(head)
            if len(head) == len(fractions):
                result.append((far, head))
                continue
            last = len(head) == len(fractions) - 1
            spare, here = reach - far, fractions[len(head)]
            for n in [rest] if last else range(max(1, ceil(here - spare)), min(rest - 1, floor(here + spare)) + 1):
                away = far + abs(n - here)
                if away <= reach and n >= 1:
                    stack.append((away, [*head, n]))
        if len(result) > SETTINGS.options:
            break
    return np.array([head for _, head in sorted(result)][: 4 * SETTINGS.options])
