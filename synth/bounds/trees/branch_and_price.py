"""Branch and bound for the least price of a tree of one chunk: deadline cuts in a binary case tree.

The cuts alone (a linear program over flows) give a weak bound where chunks cannot be split. Then the tree branches on
"does rank n hold the chunk at time t?". If it does, (n, t) is a further destination. If it does not, no send enters n
at steps ≤ t. Either answer strengthens the cuts. The price of any tree is at least the minimum over all leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from synth.bounds.cut_lp import Cut, entering_sends
from synth.bounds.trees.time_expanded_trees import Tree, TreeSearch
from synth.model.topology import Network
from synth.solvers.cutting_planes import CutProgram, CutRow
from synth.solvers.linear_program import LinearProgram
from synth.solvers.max_flow import growing_flow
from synth.solvers.processes.deadline import NEVER, Deadline


@dataclass(frozen=True)
class BranchAndPriceSettings:
    """Limits of branch and price.

    Attributes:
        scale: Flow units of a load of 1 in the integer maximum flows.
        tolerance: Relative violation below which a cut counts as satisfied.
        max_cycles: Maximum number of rounds of cut separation in one case.
        tried: Maximum number of branchings that are evaluated before one is chosen (strong branching).
    """

    scale: int = 1 << 40
    tolerance: float = 1e-7
    max_cycles: int = 400
    tried: int = 4


SETTINGS = BranchAndPriceSettings()


@dataclass(frozen=True)
class Leaf:
    """A case that is not split.

    Attributes:
        value: lower bound on the price of a tree in this case, infinite where the case cannot happen.
        cuts: (weight, cut) pairs that prove it; None where the case cannot happen.
        dead: where it cannot happen, a cut that no send can enter in time, around a destination.
    """

    value: float
    cuts: tuple[tuple[float, Cut], ...] | None
    dead: Cut | None = None


@dataclass(frozen=True)
class Branching:
    """A branching on "does rank `node[0]` hold the chunk at time `node[1]`?", with both answers."""

    node: tuple[int, int]
    has: Branching | Leaf
    hasnot: Branching | Leaf

    @property
    def value(self) -> float:
        """Lower bound on the price of any tree: the minimum over both answers."""
        return min(self.has.value, self.hasnot.value)


class Cases:
    """Branch and bound over trees of a chunk from `sources` to all of `targets` within `steps` steps.

    `prices[route, step - 1]`: the price of a send, at least 0. `deadline`: afterwards cases are no longer split.
    """

    def __init__(
        self, network: Network, steps: int, sources: Sequence[int], targets: Sequence[int], prices: np.ndarray,
        seed: int = 0, deadline: Deadline = NEVER,
    ) -> None:  # fmt: skip
        self.network, self.steps, self.prices = network, steps, prices
        self.sources = tuple(sorted(sources))
        self.targets = tuple(sorted(set(targets) - set(sources)))
        back = network.reversed()
        self.late = {n: back.distances_from([n]) for n in range(network.ranks)}
        self.seed, self.deadline = seed, deadline
        self.leaves = 0

    def prove(self, goal: float, most: int) -> Branching | Leaf | Tree:
        """Prove that every tree costs at least `goal`, or refute it.

        Returns a case tree of value `goal` or more, or a tree that costs less. If `most` linear programs or the
        deadline do not suffice, returns the case tree so far, whose value is below `goal`.
        """
        best: Branching | Leaf | Tree = self._prove({}, {}, goal, most, None)
        return best

    def _prove(
        self, has: dict[int, int], gone: dict[int, int], goal: float, most: int, known: _Case | None
    ) -> Branching | Leaf | Tree:
        case = known or self._case(has, gone)
        if case.leaf.value >= goal * (1 - 1e-9) or self.leaves >= most or self.deadline.over:
            return case.leaf
        options = case.doubtful()
        if not options:
            tree = case.tree(self.seed)
            return case.leaf if tree is None or self.cost(tree) >= goal * (1 - 1e-9) else tree
        pick: tuple[float, float] = (-1.0, -1.0)
        chosen: tuple[tuple[int, int], _Case, _Case] | None = None
        for n, t in options[: SETTINGS.tried]:
            yes = self._case(has | {n: min(t, has.get(n, t))}, gone)
            no = self._case(has, gone | {n: max(t, gone.get(n, t))})
            low, high = sorted((min(yes.leaf.value, goal), min(no.leaf.value, goal)))
            if (low, high) > pick:
                pick, chosen = (low, high), ((n, t), yes, no)
            if low >= goal:
                break
        if chosen is None:
            return case.leaf
        (n, t), yes, no = chosen
        left = self._prove(has | {n: min(t, has.get(n, t))}, gone, goal, most, yes)
        if not isinstance(left, Branching | Leaf):
            return left
        right = self._prove(has, gone | {n: max(t, gone.get(n, t))}, goal, most, no)
        return Branching((n, t), left, right) if isinstance(right, Branching | Leaf) else right

    def _case(self, has: dict[int, int], gone: dict[int, int]) -> _Case:
        self.leaves += 1
        return _Case(self, has, gone)

    def cost(self, tree: Tree) -> float:
        """Return the price of a tree: the sum over its sends."""
        return float(sum(self.prices[route, step - 1] for step, route in tree))


class _Case:
    """One case: its linear program, solved by cutting planes."""

    def __init__(self, cases: Cases, has: dict[int, int], gone: dict[int, int]) -> None:
        self.cases, network, steps = cases, cases.network, cases.steps
        self.gone = gone
        self.ends = dict.fromkeys(cases.targets, steps)
        self.ends.update({n: t for n, t in has.items() if n not in cases.sources and n not in self.ends})
        extra = [(n, t) for n, t in has.items() if n in cases.targets and t < steps]
        self.ends.update(extra)
        self.early = self._earliest()
        alive: list[tuple[int, int]] = []  # (route, step) of each send that this case allows
        for i, r in enumerate(network.routes):
            alive += [(i, t) for t in range(max(self.early[r.src], gone.get(r.dst, 0)) + 1, steps + 1)]
        self.free = [(i, t) for i, t in alive if cases.prices[i, t - 1] == 0]
        self.paid = [(i, t) for i, t in alive if cases.prices[i, t - 1] > 0]
        self.at = {place: c for c, place in enumerate(self.paid)}
        self.loads = [0.0] * len(self.paid)
        unreached = [n for n, t in self.ends.items() if self.early[n] > t]
        if unreached:
            self.leaf = Leaf(float("inf"), None, tuple(min(steps, e - 1) for e in self.early))
        else:
            self.leaf = self._solve()

    def _earliest(self) -> list[int]:
        """Return the first time at which each rank can hold the chunk; steps + 1 if it never can."""
        steps, routes = self.cases.steps, self.cases.network.routes
        early = [steps + 1] * self.cases.network.ranks
        for n in self.cases.sources:
            early[n] = 0
        for t in range(1, steps + 1):
            for n in {r.dst for r in routes if early[r.src] < t and early[r.dst] > t and t > self.gone.get(r.dst, 0)}:
                early[n] = t
        return early

    def _solve(self) -> Leaf:
        self.graph = growing_flow()
        plenty = SETTINGS.scale << 12
        network, steps = self.cases.network, self.cases.steps
        self.arcs = [self._arc(place, 0) for place in self.paid]
        for place in self.free:
            self._arc(place, plenty)
        for n in range(network.ranks):
            for t in range(steps):
                self.graph.add_arc_with_capacity(self._node(n, t), self._node(n, t + 1), plenty)
        self.start = network.ranks * (steps + 1)
        for n in self.cases.sources:
            self.graph.add_arc_with_capacity(self.start, self._node(n, 0), plenty)
        costs = [float(self.cases.prices[i, t - 1]) for i, t in self.paid]
        program: CutProgram[Cut] = CutProgram(LinearProgram(costs))

        def violated(loads: list[float]) -> Iterable[CutRow[Cut]]:
            self.loads = loads
            return () if self.cases.deadline.over else self._violated()

        if program.add(self._violated()):
            program.run(violated, SETTINGS.max_cycles)
        return Leaf(program.optimum, tuple((w, cut) for cut, w in program.weights if w > 1e-9))

    def _arc(self, place: tuple[int, int], capacity: int) -> int:
        route = self.cases.network.routes[place[0]]
        return self.graph.add_arc_with_capacity(
            self._node(route.src, place[1] - 1), self._node(route.dst, place[1]), capacity
        )

    def _node(self, rank: int, time: int) -> int:
        return rank * (self.cases.steps + 1) + time

    def _violated(self) -> Iterator[CutRow[Cut]]:
        for arc, load in zip(self.arcs, self.loads, strict=True):
            self.graph.set_arc_capacity(arc, int(max(0.0, load) * SETTINGS.scale))
        for n, t in self.ends.items():
            self.graph.solve(self.start, self._node(n, t))
            if self.graph.optimal_flow() >= SETTINGS.scale * (1 - SETTINGS.tolerance):
                continue
            near, far = set(self.graph.get_source_side_min_cut()), set(self.graph.get_sink_side_min_cut())
            outside_near, inside_far = [], []
            for r in range(len(self.early)):
                nodes = [self._node(r, s) for s in range(self.cases.steps + 1)]
                outside_near.append([node not in near for node in nodes])
                inside_far.append([node in far for node in nodes])
            for inside in (outside_near, inside_far):
                cut = self._tight(inside, n, t)
                places = entering_sends(self.cases.network, cut, self.cases.steps)
                yield CutRow(cut, {self.at[place]: 1.0 for place in places if place in self.at}, 1.0)

    def _tight(self, inside: Sequence[Sequence[bool]], end: int, time: int) -> Cut:
        """Return the cut as θ, moved so that only sends of use for (end, time) enter it."""
        thetas = []
        for n, row in enumerate(inside):
            theta = next((t for t, yes in enumerate(row) if not yes), len(row)) - 1
            far = self.cases.late[end][n]
            theta = min(theta, -1 if far is None else time - far)
            thetas.append(min(self.cases.steps, max(theta, min(self.early[n] - 1, self.cases.steps), -1)))
        return tuple(thetas)

    def doubtful(self) -> list[tuple[int, int]]:
        """Return the (rank, time) pairs whose flow is fractional, the nearest to one half first."""
        found = []
        for arc, load in zip(self.arcs, self.loads, strict=True):
            self.graph.set_arc_capacity(arc, int(max(0.0, load) * SETTINGS.scale))
        for n in range(self.cases.network.ranks):
            for t in range(self.early[n], self.cases.steps + 1):
                if t == 0 or t >= self.ends.get(n, self.cases.steps + 1):
                    break
                self.graph.solve(self.start, self._node(n, t))
                share = min(1.0, self.graph.optimal_flow() / SETTINGS.scale)
                if 1e-4 < share < 1 - 1e-4:
                    found.append((abs(share - 0.5), n, t))
        return [(n, t) for _, n, t in sorted(found)]

    def tree(self, seed: int) -> Tree | None:
        """Return a tree along the sends that the linear program uses; None if none is found."""
        steps, network = self.cases.steps, self.cases.network
        prices = np.full((len(network.routes), steps), 1e6)
        for place, load in zip(self.paid, self.loads, strict=True):
            if load > 1e-6:
                prices[place[0], place[1] - 1] = (
                    self.cases.prices[place[0], place[1] - 1] * (1.01 - min(load, 1.0)) + 1e-6
                )
        for i, t in self.free:
            prices[i, t - 1] = 1e-6
        found = TreeSearch(network, steps, self.cases.sources, self.cases.targets, seed).search(prices, [], 32, 8)
        return min((tree for _, tree in found), key=self.cases.cost, default=None)


def leaves(tree: Branching | Leaf) -> Iterator[Leaf]:
    """Yield all leaves of a case tree, those of `has` before those of `hasnot`."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        yield from leaves(tree.has)
        yield from leaves(tree.hasnot)
