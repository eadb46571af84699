"""Templates by column generation: trees that the dual prices of the pipelining program make cheap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from synth.scale.composition.loads import Resources
from synth.scale.composition.phases import Phase, Template, in_sequence, merged
from synth.scale.composition.settings import SETTINGS
from synth.scale.composition.templates import Group
from synth.scale.composition.tree_columns import HalfTree
from synth.scale.composition.trees import ArrivalDescent, Send, cheapest_arborescence, hops, levels

COPYING, REDUCING = ("allgather", "broadcast"), ("reduce-scatter", "reduce")
NAME = "trees by column generation"
# The sends of a tree, each with True if it reduces; None where no tree was found.
_Tree = list[tuple[Send, bool]] | None


class TreePricer:
    """Finds trees of little price for the blocks of a collective.

    A group of blocks `(unit, blocks)` shares templates, and each unit has one or more groups. Of a collective with a
    `root` blocks are numbers of shares. With `running` all blocks divide one unit between them.
    """

    def __init__(
        self, resources: Resources, collective: str, root: int | None, groups: Sequence[Group], running: bool
    ) -> None:
        self.resources, self.groups, self.running = resources, tuple(groups), running
        self.reduces, self.copies = collective not in COPYING, collective not in REDUCING
        sizes = [len(blocks) for _, blocks in groups]
        self.weight = max(sizes) if running else 1
        self.blocks = [block for _, blocks in groups for block in blocks]
        self.unit_of = {block: unit for unit, blocks in groups for block in blocks}
        self.units = {unit for unit, _ in groups}
        self.roots = np.array(self.blocks if root is None else [root] * len(self.blocks))
        joined = np.isfinite(resources.prices(np.ones((len(resources.capacity), 1))))[0]
        directions = ((True, joined.T), (False, joined))
        # of each tree, for reductions and for copies: the number of links from the root to each rank, or back
        self.hops: dict[bool, np.ndarray] = {}
        for reduces, links in directions:
            self.hops[reduces] = np.array([hops(links, root) for root in self.roots])

    def halves(self) -> list[TreePricer]:
        """Return pricers of the reductions and of the copies alone, where every unit has one group; else this one."""
        if self.running or not (self.reduces and self.copies):
            return [self]
        return [TreePricer(self.resources, half, None, self.groups, False) for half in ("reduce-scatter", "allgather")]

    def search(self, steps: int, steady: bool) -> CheapTrees | None:
        """Return a search for trees in `steps` steps, or None where a rank cannot be reached in time, and where the
        prices would take too much memory.

        With `steady` prices do not depend on the step: steps are the levels of the trees, of reductions and of copies
        each, and reductions have negative ones.
        """
        size = (steps + 1) * len(self.hops[False][0])
        if size**2 > SETTINGS.most_priced or any((hop < 0).any() for hop in self.hops.values()):
            return None
        needed = self.depth() if steady else int(np.sum(self._depths(), axis=0).max())
        return CheapTrees(self, steps, steady) if needed <= steps else None

    def depth(self) -> int:
        """Return the greatest number of levels of a breadth-first tree."""
        return int(np.max(self._depths()))

    def _depths(self) -> list[np.ndarray]:
        """Return the levels of the breadth-first trees of reductions and of copies, as far as there are such."""
        both = ((self.reduces, self.hops[True]), (self.copies, self.hops[False]))
        return [hop.max(axis=1) for used, hop in both if used]


class CheapTrees:
    """Trees within some steps, which are improved from turn to turn as prices change.

    `halved`: the trees of an allreduce are given in halves, as every group has one block.
    """

    def __init__(self, pricer: TreePricer, steps: int, steady: bool) -> None:
        self.pricer, self.steps, self.steady = pricer, steps, steady
        self.turn = 0
        self.halved = pricer.reduces and pricer.copies and not steady and len(pricer.groups) == len(pricer.blocks)
        self._kept: dict[tuple[int, bool, int], np.ndarray] = {}
        self._yielded: set[tuple] = set()  # the first block and the sends of each tree so far

    def templates(self, prices: np.ndarray) -> Iterator[Template | HalfTree]:
        """Yield cheap trees as templates placed in the steps, for each group of blocks, each tree once.

        ``prices[resource, step]``, of one step with `steady`. The trees of an allreduce reduce up to some step, which
        changes from turn to turn, and copy from there on. They are yielded in halves where `halved`.
        """
        pricer = self.pricer
        mean = max(prices.sum() / prices.size, 1e-9 / pricer.resources.capacity.max())
        biased = pricer.resources.prices(prices + SETTINGS.idle_price * mean)
        if self.steady:
            biased = np.repeat(biased, self.steps, axis=0)
        middles = self._middles()
        directions = []
        for reduces in (True, False):
            if pricer.reduces if reduces else pricer.copies:
                directions.append(self._trees(biased, middles, reduces))
        if self.halved:
            for reduces, options in zip((True, False), directions, strict=True):
                yield from self._half_trees(options, reduces)
        else:
            for option in zip(*directions, strict=True):
                yield from self._merged(list(zip(*option, strict=True)))
        self.turn += 1

    def _half_trees(self, options: Iterable[list[_Tree]], reduces: bool) -> Iterator[HalfTree]:
        for option in options:
            for template in self._merged([(tree,) for tree in option]):
                group = self.pricer.blocks.index(template.blocks[0])
                step = max(template.placed) + 1 if reduces else min(template.placed)
                yield HalfTree(template, group, reduces, step)

    def _merged(self, trees: Sequence[Sequence[_Tree]]) -> Iterator[Template]:
        """Yield the template of each group of blocks whose trees were all found; ``trees[block]`` are in sequence.

        Those of earlier turns are left out.
        """
        start = 0
        for unit, blocks in self.pricer.groups:
            own = [tree for tree in map(_joined, trees[start : start + len(blocks)]) if tree is not None]
            key = blocks[0], *map(tuple, own)
            start += len(blocks)
            if len(own) == len(blocks) and key not in self._yielded:
                self._yielded.add(key)
                parts = [tree_template(*part) for part in zip(blocks, own, strict=True)]
                yield merged(parts, unit, self.pricer.weight)

    def _middles(self) -> np.ndarray:
        """Return for each tree the number of its steps that reduce in this turn."""
        pricer = self.pricer
        least, most = pricer.hops[True].max(axis=1), self.steps - pricer.hops[False].max(axis=1)
        if self.steady or not pricer.reduces:
            return np.zeros(len(least), np.int64)
        if not pricer.copies:
            return np.full(len(least), self.steps)
        return least + (self.turn + np.arange(len(least))) % (most - least + 1)

    def _trees(self, prices: np.ndarray, middles: np.ndarray, reduces: bool) -> Iterator[list[_Tree]]:
        """Yield trees from or to each root, the best ones first."""
        roots, hop = self.pricer.roots, self.pricer.hops[reduces]
        first = middles
        if reduces:  # time runs backwards
            prices = prices[::-1].transpose(0, 2, 1)
            first = middles if self.steady else self.steps - middles
        early = first[:, None] + hop
        keys = [(i, reduces, int(middle)) for i, middle in enumerate(middles)]
        kept = [self._kept.get(key, row) for key, row in zip(keys, early, strict=True)]
        arrivals = np.array([kept, *self._fresh(prices, early)])
        count = len(arrivals)
        descent = ArrivalDescent(prices)
        cost = descent.improve(arrivals.reshape(-1, len(hop[0])), np.tile(roots, count)).reshape(count, -1)
        order = cost.argsort(axis=0, kind="stable")
        for i, key in enumerate(keys):
            self._kept[key] = arrivals[order[0, i], i]
        for options in order:
            trees: list[_Tree] = []
            for i, option in enumerate(options):
                found = np.isfinite(cost[option, i])
                trees.append(self._listed(descent.sends(arrivals[option, i], roots[i]), reduces) if found else None)
            yield trees

    def _fresh(self, prices: np.ndarray, early: np.ndarray) -> list[np.ndarray]:
        """Return arrivals to begin with: levels of arborescences that are cheapest at mean prices, cut off at the last
        step or scaled down to it; in some turns breadth-first trees, too, some steps later than the earliest.
        """
        roots = self.pricer.roots
        places = np.arange(len(roots)), roots
        mean = prices.mean(axis=0)
        trees = []
        for root in roots:
            parents = cheapest_arborescence(mean, root)
            assert parents is not None  # paths lead to all ranks
            trees.append(levels(parents, root))
        level, first = np.array(trees), early[places][:, None]
        steps = self.steps - first
        deepest = np.maximum(level.max(axis=1)[:, None], steps)
        fresh = [first + np.minimum(level, steps), first - (-level * steps // deepest)]
        if not self.steady and self.turn % SETTINGS.fresh_turns == 0:
            later = early + (self.turn % (self.steps - early.max(axis=1) + 1))[:, None]
            later[places] = early[places]
            fresh.append(later)
        return fresh

    def _listed(self, sends: list[Send], reduces: bool) -> list[tuple[Send, bool]]:
        if not reduces:
            return [(send, False) for send in sends]
        end = -1 if self.steady else self.steps - 1
        return [((end - t, b, a), True) for t, a, b in sends]


def period_template(halves: Sequence[Sequence[Template]]) -> Template:
    """Return one template, not placed, with all trees of a period, of each unit the reductions before the copies."""
    first, *others = [sorted(trees, key=lambda tree: tree.unit) for trees in halves]
    parts = [replace(tree, placed=()) for tree in first]
    for copies in others:
        free = [replace(tree, placed=()) for tree in copies]
        parts = [in_sequence(*pair) for pair in zip(parts, free, strict=True)]
    weight = sum(part.weight for part in parts if part.unit == parts[0].unit)
    return merged(parts, parts[0].unit, weight)


def _joined(directions: Sequence[_Tree]) -> _Tree:
    """Return the sends of all directions in order, None where one of them was not found."""
    found = [tree for tree in directions if tree is not None]
    return sorted(chain(*found)) if len(found) == len(directions) else None


def tree_template(block: int, sends: Iterable[tuple[Send, bool]]) -> Template:
    """Return the template of one chunk's sends, given by ascending step; sends of one step are a phase.

    A phase waits for those that bring its sources what they send.
    """
    by_step: dict[tuple[int, bool], list[tuple[int, int]]] = {}
    for (t, src, dst), reduces in sends:
        by_step.setdefault((t, reduces), []).append((src, dst))
    into: dict[int, set[int]] = {}
    before: list[set[int]] = []
    phases = []
    for p, ((t, reduces), edges) in enumerate(by_step.items()):
        waits = set().union(*(into.get(src, ()) for src, _ in edges))
        indirect = set().union(*(before[q] for q in waits))
        before.append(waits | indirect)
        after = tuple(sorted(waits - indirect))
        name = f"reduce {t}" if reduces else f"copy {t}"
        phases.append(Phase(name, tuple((0, *edge) for edge in edges), reduces, after))
        for _, dst in edges:
            into.setdefault(dst, set()).add(p)
    return Template(NAME, tuple(phases), 0, (block,), 1, tuple(t for t, _ in by_step))
