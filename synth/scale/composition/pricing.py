"""Templates by column generation: trees that the dual prices of the pipelining program make cheap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from synth.scale.composition.loads import Resources
from synth.scale.composition.phases import Phase, Template, merged
from synth.scale.composition.templates import Group
from synth.scale.composition.trees import ArrivalDescent, Send, hops

# Maximum of (steps + 1)^2 x ranks^2 for which trees are priced: their table takes 8 bytes an entry.
MOST_PRICED = 1 << 22
# Price of each resource in relation to that of one of average use. It keeps trees from useless detours over idle
# links.
IDLE_PRICE = 1e-3

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
        self.resources, self.groups = resources, tuple(groups)
        self.reduces, self.copies = collective not in COPYING, collective not in REDUCING
        members = [group for _, group in groups]
        self.weight = max(map(len, members)) if running else 1
        blocks = [block for group in members for block in group]
        self.units = {unit for unit, _ in groups}
        self.roots = np.array(blocks) if root is None else np.full(len(blocks), root)
        joined = np.isfinite(resources.prices(np.ones((len(resources.capacity), 1))))[0]
        # of each tree, for reductions and for copies: the number of links from the root to each rank, or back
        self.hops: dict[bool, np.ndarray] = {}
        for reduces, links in ((True, joined.T), (False, joined)):
            self.hops[reduces] = np.array([hops(links, start) for start in self.roots])

    def search(self, steps: int) -> CheapTrees | None:
        """Return a search for trees in `steps` steps, or None where a rank cannot be reached in time, and where the
        prices would take too much memory.
        """
        size = (steps + 1) * len(self.hops[False][0])
        if size**2 > MOST_PRICED or any((hop < 0).any() for hop in self.hops.values()):
            return None
        both = ((self.reduces, self.hops[True]), (self.copies, self.hops[False]))
        needed = sum(hop.max(axis=1) for used, hop in both if used)
        return CheapTrees(self, steps) if np.max(needed) <= steps else None


class CheapTrees:
    """Trees within some steps, which are improved from turn to turn as prices change."""

    def __init__(self, pricer: TreePricer, steps: int) -> None:
        self.pricer, self.steps = pricer, steps
        self.turn = 0
        self._kept: dict[tuple[int, bool, int], np.ndarray] = {}
        self._yielded: set[tuple] = set()  # the first block and the sends of each tree so far

    def templates(self, prices: np.ndarray) -> Iterator[Template]:
        """Yield cheap trees as templates placed in the steps, for each group of blocks, each tree once.

        ``prices[resource, step]``. The trees of an allreduce reduce up to some step, which changes from turn to turn,
        and copy from there on.
        """
        pricer = self.pricer
        mean = max(prices.mean(), 1e-9 / pricer.resources.capacity.max())
        biased = pricer.resources.prices(prices + IDLE_PRICE * mean)
        middles = self._middles()
        directions = []
        for reduces in (True, False):
            if pricer.reduces if reduces else pricer.copies:
                directions.append(self._trees(biased, middles, reduces))
        for option in zip(*directions, strict=True):
            yield from self._merged([_joined(parts) for parts in zip(*option, strict=True)])
        self.turn += 1

    def _merged(self, trees: Sequence[_Tree]) -> Iterator[Template]:
        """Yield the template of each group of blocks whose trees were all found; those of earlier turns are left out.

        ``trees[block]``.
        """
        start = 0
        for unit, blocks in self.pricer.groups:
            own = [tree for tree in trees[start : start + len(blocks)] if tree is not None]
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
        if not pricer.reduces:
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
            first = self.steps - middles

        # descent begins with the best arrivals of earlier turns, and with breadth-first trees some steps later
        early = first[:, None] + hop
        keys = [(i, reduces, int(middle)) for i, middle in enumerate(middles)]
        kept = [self._kept.get(key, row) for key, row in zip(keys, early, strict=True)]
        places = np.arange(len(roots)), roots
        later = early + (self.turn % (self.steps - early.max(axis=1) + 1))[:, None]
        later[places] = early[places]
        arrivals = np.array([kept, later])
        descent = ArrivalDescent(prices)
        cost = descent.improve(arrivals.reshape(-1, len(hop[0])), np.tile(roots, 2)).reshape(2, -1)
        order = cost.argsort(axis=0, kind="stable")
        for i, key in enumerate(keys):
            self._kept[key] = arrivals[order[0, i], i]
        for options in order:
            trees: list[_Tree] = []
            for i, option in enumerate(options):
                found = np.isfinite(cost[option, i])
                trees.append(self._listed(descent.sends(arrivals[option, i], roots[i]), reduces) if found else None)
            yield trees

    def _listed(self, sends: list[Send], reduces: bool) -> list[tuple[Send, bool]]:
        if not reduces:
            return [(send, False) for send in sends]
        return [((self.steps - 1 - t, b, a), True) for t, a, b in sends]


def _joined(directions: Sequence[_Tree]) -> _Tree:
    """Return the sends of all directions in order, None where one of them was not found."""
    sends = []
    for tree in directions:
        if tree is None:
            return None
        sends += tree
    return sorted(sends)


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
