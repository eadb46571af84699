"""Templates by column generation: trees over all ranks, placed in the steps, that dual prices make cheap.

    minimise sum of r_t   over   x[tree] >= 0 with sum of weight * x = 1 for every unit,
                                 sum of load[k, t] x <= capacity[k] r_t for every resource k and step t

A cheapest tree is a Steiner tree of the time-expanded network, in which waiting is free. Where it is fixed before which
step each rank holds the data, its *arrival*, every rank takes its cheapest send independently of the others. So the
price of a tree is a function of the arrivals alone, and coordinate descent improves them one rank at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

from synth.scale.composition.loads import Resources
from synth.scale.composition.phases import Phase, Template
from synth.scale.composition.pipelining_lp import TOLERANCE
from synth.scale.composition.templates import Group
from synth.scale.fabric.graphs import distances
from synth.solvers.column_generation import SmoothedPrices
from synth.solvers.deadline import NEVER, Deadline, check_deadline
from synth.solvers.linear_program import LinearProgram

NAME = "trees by column generation"
# Fraction below which savings by further trees are not worth a larger program.
SLIGHT = 1e-3
# Number of turns of column generation that together must save as much, or it ends.
SLOW_TURNS = 30
# Number of searches after which, if all of them find no new tree at the same prices, it ends, too.
LAST_SEARCHES = 12
# Maximum of (steps + 1)^2 x ranks^2 for which trees are searched for: their table takes 8 bytes an entry.
MOST_PRICED = 1 << 22
# Price of each resource in relation to that of one of average use. It keeps trees from useless detours over idle
# links.
IDLE_PRICE = 1e-3
# Passes over all ranks, forwards and backwards, in which a tree is improved at one set of prices.
PASSES = 2

# A send `(step, source, destination, reduces)`.
Send = tuple[int, int, int, bool]


def generate(
    capacity: np.ndarray, steps: int, units: Sequence[int], loads: Callable[[Sequence[Template]], list[np.ndarray]],
    first: Iterable[Template], search: Callable[[np.ndarray], Iterable[Template]], deadline: Deadline = NEVER,
) -> tuple[float, list[Template]]:  # fmt: skip
    """Return the rounds per chunk of placed templates, and those that carry data; infinite and none without a solution.

    Templates are added to the `first` ones while they save rounds, until `deadline`. ``search(prices[resource, step])``
    yields cheap ones, `loads` returns ``loads[resource, step]`` of each of some.
    """
    # The program in its dual form, where a new tree is a new row: the dual simplex method goes on from the last basis.
    even = np.repeat(1 / (len(capacity) * capacity[:, None]), steps, axis=1)
    column = {unit: even.size + i for i, unit in enumerate(units)}
    program = LinearProgram([0.0] * even.size + [-1.0] * len(units))
    for t in range(steps):
        program.add_rows([(None, {k * steps + t: float(c) for k, c in enumerate(capacity)}, 1.0)])
    trees: dict[Template, None] = {}
    costs: dict[int, list[np.ndarray]] = {unit: [] for unit in units}

    def add(listed: Iterable[Template]) -> bool:
        new = [tree for tree in dict.fromkeys(listed) if tree not in trees]
        for tree, load in zip(new, loads(new), strict=True):
            trees[tree] = None
            flat = load.ravel()
            row = {int(i): -float(flat[i]) for i in np.flatnonzero(flat)}
            program.add_rows([(None, {**row, column[tree.unit]: float(tree.weight)}, 0.0)])
            costs[tree.unit].append(flat / tree.weight)
        return bool(new)

    add(first)
    add(search(even))
    smoothed = SmoothedPrices(even)
    values: list[float] = []
    while True:
        solved = program.solve()
        if solved is None:
            return np.inf, []
        value, x, duals = solved
        values.append(-value)
        prices = np.maximum(np.array(x[: even.size]).reshape(even.shape), 0.0)
        check_deadline()
        if deadline.over or (len(values) > SLOW_TURNS and values[-1 - SLOW_TURNS] * (1 - SLIGHT) < values[-1]):
            break
        # Trees that are cheap at smoothed prices, or else at the program's own: each search tries other ones.
        for tried in (smoothed.smooth(prices), *[prices] * LAST_SEARCHES):
            added = add(search(tried))
            least = 0.0
            for known in costs.values():
                least += float((np.array(known) @ tried.ravel()).min()) if known else np.inf
            smoothed.update(tried, least)
            if added:
                break
        else:
            break
    shares = [-dual for dual in duals[steps:]]
    return values[-1], [tree for tree, share in zip(trees, shares, strict=True) if share > TOLERANCE]


class BoxTreeSearch:
    """Finds trees of little price for groups of blocks within some steps, other ones from turn to turn.

    Each unit has one or more groups `(unit, blocks)`. Of a collective with a `root` blocks are numbers of shares. With
    `running` all blocks divide one unit between them. `possible`: False where a rank cannot be reached in time, and
    where prices would take too much memory.
    """

    def __init__(
        self, resources: Resources, collective: str, root: int | None, groups: Sequence[Group], running: bool,
        steps: int,
    ) -> None:  # fmt: skip
        self.resources, self.groups, self.steps, self.turn = resources, groups, steps, 0
        members = [group for _, group in groups]
        self.weight = max(map(len, members)) if running else 1
        blocks = [block for group in members for block in group]
        self.roots = np.array(blocks) if root is None else np.full(len(blocks), root)
        # For reductions and for copies: links from each rank to the root of each tree, or from the root.
        index, ranks = resources.index, resources.index.topology.ranks
        self.hops: dict[bool, np.ndarray] = {}
        for reduces, others in ((True, ("allgather", "broadcast")), (False, ("reduce-scatter", "reduce"))):
            if collective not in others:
                src, dst = (index.dst, index.src) if reduces else (index.src, index.dst)
                self.hops[reduces] = np.array([distances(ranks, src, dst, start) for start in self.roots])
        needed = sum(hops.max(axis=1) for hops in self.hops.values())
        reached = all((hops >= 0).all() for hops in self.hops.values())
        self.possible = reached and np.max(needed) <= steps and ((steps + 1) * ranks) ** 2 <= MOST_PRICED
        self._kept: dict[tuple[int, bool, int], np.ndarray] = {}  # best arrivals of each tree in earlier turns

    def templates(self, prices: np.ndarray) -> list[Template]:
        """Return cheap trees for each group of blocks, the cheapest ones first, for ``prices[resource, step]``.

        The trees of an allreduce reduce up to some step, which changes from turn to turn, and copy from there on.
        """
        count = len(self.roots)
        mean = max(prices.mean(), 1e-9 / self.resources.capacity.max())
        of_sends = self.resources.prices(prices + IDLE_PRICE * mean)

        # Of each tree the number of steps that reduce in this turn.
        middles = np.full(count, 0 if False in self.hops else self.steps)
        if len(self.hops) == 2:
            least, most = self.hops[True].max(axis=1), self.steps - self.hops[False].max(axis=1)
            middles = least + (self.turn + np.arange(count)) % (most - least + 1)

        # Two trees for each root: descent begins with the best arrivals of earlier turns, and with breadth-first trees
        # some steps later.
        options: list[list[list[Send] | None]] = []
        for _ in range(2):
            options.append([[] for _ in range(count)])
        for reduces, hops in self.hops.items():
            early = (self.steps - middles if reduces else middles)[:, None] + hops
            keys = [(i, reduces, int(middle)) for i, middle in enumerate(middles)]
            later = early + (self.turn % (self.steps - early.max(axis=1) + 1))[:, None]
            places = np.arange(count), self.roots
            later[places] = early[places]
            arrivals = np.array([[self._kept.get(key, row) for key, row in zip(keys, early, strict=True)], later])
            flat = arrivals.reshape(2 * count, -1)
            backwards = of_sends[::-1].transpose(0, 2, 1)  # in which reductions are copies
            cost, trees = descend(backwards if reduces else of_sends, np.tile(self.roots, 2), flat)
            order = cost.reshape(2, count).argsort(axis=0, kind="stable")
            for i, key in enumerate(keys):
                self._kept[key] = arrivals[order[0, i], i]
                for option, which in zip(options, order[:, i], strict=True):
                    tree, before = trees[which * count + i], option[i]
                    if tree is None or before is None:
                        option[i] = None
                    elif reduces:
                        before += [(self.steps - 1 - t, dst, src, True) for t, src, dst in tree]
                    else:
                        before += [(*send, False) for send in tree]
        self.turn += 1

        templates = []
        for option in options:
            rest = iter(option)
            for unit, blocks in self.groups:
                own = [tree for tree in islice(rest, len(blocks)) if tree is not None]
                if len(own) == len(blocks):
                    templates.append(tree_template(unit, blocks, own, self.weight))
        return templates


def descend(
    prices: np.ndarray, roots: np.ndarray, arrivals: np.ndarray
) -> tuple[np.ndarray, list[list[tuple[int, int, int]] | None]]:
    """Improve ``arrivals[tree, rank]`` of a tree from each root in place; return the price and the sends of each tree.

    ``prices[step, source, destination]`` is infinite without a link. The arrival of the root is the first step in which
    it may send. Sends are `(step, source, destination)` by ascending step. The price is infinite, and there are no
    sends, where a rank is not reached in time.
    """
    # least[source, destination, first, end]: the least price of a send in steps first <= t < end. A send that cannot be
    # is dear, so that descent repairs trees that are none yet.
    steps, count = prices.shape[:2]
    ranks, trees = np.arange(count), np.arange(len(roots))
    dear = count * float(prices[np.isfinite(prices)].max())
    prices = np.minimum(prices, dear)
    table = np.full((steps + 1, steps + 1, count, count), dear)
    for first in range(steps):
        for end in range(first + 1, steps + 1):
            np.minimum(table[first, end - 1], prices[end - 1], out=table[first, end])
    least = np.ascontiguousarray(table.transpose(2, 3, 0, 1))

    # costs[tree, source, destination] of the cheapest send in time, 0 into the root
    costs = least[ranks[:, None], ranks, arrivals[:, :, None], arrivals[:, None, :]]
    costs[trees, :, roots] = 0.0
    for order in [ranks, ranks[::-1]] * PASSES:
        changed = False
        for rank in order:
            # The cheapest sends to all ranks from ranks other than this one.
            kept = costs[:, rank].copy()
            costs[:, rank] = np.inf
            others = costs.min(axis=1)
            costs[:, rank] = kept
            others[:, rank] = 0.0
            others[trees, roots] = 0.0
            # For each arrival from 1 on: the price of the rank's own send, and those to all others.
            into = least[ranks, rank, arrivals][:, :, 1:].min(axis=1)
            onwards = least[rank, ranks, 1:, arrivals]
            total = into + np.minimum(others[:, :, None], onwards).sum(axis=1)
            best = total.argmin(axis=1) + 1
            now = np.maximum(arrivals[:, rank], 1)
            better = (total[trees, best - 1] < total[trees, now - 1] * (1 - 1e-9)) & (roots != rank)
            if better.any():
                changed = True
                arrivals[better, rank] = best[better]
                costs[:, rank] = least[rank, ranks, arrivals[:, rank, None], arrivals]
                costs[:, :, rank] = least[ranks, rank, arrivals, arrivals[:, rank, None]]
                costs[trees, :, roots] = 0.0
        if not changed:
            break

    # Each rank takes its cheapest send.
    total = costs.min(axis=1).sum(axis=1)
    found: list[list[tuple[int, int, int]] | None] = []
    for tree, root in enumerate(roots):
        sends = []
        for dst in ranks[ranks != root].tolist():
            src = int(costs[tree, :, dst].argmin())
            first, end = arrivals[tree, src], arrivals[tree, dst]
            if total[tree] < dear:
                sends.append((int(first + prices[first:end, src, dst].argmin()), src, dst))
        found.append(sorted(sends) if total[tree] < dear else None)
    return np.where(total < dear, total, np.inf), found


def tree_template(unit: int, blocks: Sequence[int], trees: Sequence[Sequence[Send]], weight: int = 1) -> Template:
    """Return the template of one chunk of each block, on its tree; equal sends of one step are a phase."""
    phases: dict[tuple[int, bool], list[tuple[int, int, int]]] = {}
    for i, tree in enumerate(trees):
        for t, src, dst, reduces in tree:
            phases.setdefault((t, not reduces), []).append((i, src, dst))
    listed, placed = [], []
    for (t, copies), sends in sorted(phases.items()):
        listed.append(Phase(f"{'copy' if copies else 'reduce'} {t}", tuple(sends), not copies, ()))
        placed.append(t)
    return Template(NAME, tuple(listed), unit, tuple(blocks), weight, tuple(placed))
