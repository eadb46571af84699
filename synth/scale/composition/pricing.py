"""Templates by column generation: trees that the dual prices of the pipelining program make cheap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from synth.scale.composition.loads import Resources
from synth.scale.composition.phases import Phase, Template, merged
from synth.scale.composition.templates import Group
from synth.scale.composition.trees import Send, cheap_tree, steady_tree

COPYING, REDUCING = ("allgather", "broadcast"), ("reduce-scatter", "reduce")
NAME = "trees by column generation"
# Price of each resource in relation to that of one of average use. It keeps trees from useless detours over idle links.
IDLE_PRICE = 1e-2
# Number of steps between which the reductions of an allreduce end and its copies begin, of those that are tried.
MIDDLES = 5


class TreePricer:
    """Finds trees of little price for the blocks of a collective.

    A group of blocks `(unit, blocks)` shares templates, and each unit has one or more groups. Of a collective with a
    `root` blocks are numbers of shares. With `running` all blocks divide one unit between them.
    """

    def __init__(
        self, resources: Resources, collective: str, root: int | None, groups: Sequence[Group], running: bool
    ) -> None:
        self.resources, self.collective, self.root = resources, collective, root
        self.groups, self.running = tuple(groups), running

    def templates(self, prices: np.ndarray, extra_levels: int | None) -> Iterator[Template]:
        """Yield for each group cheap trees as a template placed in the steps.

        ``prices[resource, step]``. With `extra_levels` the prices of the one step hold for all levels of the trees,
        which may have so many more than breadth-first trees. Nothing is yielded for a group where a rank cannot be
        reached in time.
        """
        capacity = self.resources.capacity
        idle = IDLE_PRICE * max(prices.sum() / prices.size, 1e-9 / capacity.max())
        biased = self.resources.prices(prices + idle)
        for unit, blocks in self.groups:
            parts = []
            for block in blocks:
                sends = self._sends(biased, block if self.root is None else self.root, extra_levels)
                if sends is not None:
                    parts.append(tree_template(block, sends))
            if len(parts) == len(blocks):
                weight = len(blocks) if self.running else 1
                yield merged(parts, unit, weight)

    def _sends(self, prices: np.ndarray, root: int, extra_levels: int | None) -> list[tuple[Send, bool]] | None:
        """Return the sends of trees and for each True if it reduces; None where there are no trees.

        With `extra_levels` copies have their levels as steps, and reductions negative levels.
        """
        steps = len(prices)
        backwards = np.ascontiguousarray(prices[::-1].transpose(0, 2, 1))
        best: tuple[float, list[tuple[Send, bool]]] | None = None
        for middle in self._middles(steps) if extra_levels is None else [0]:
            cost, sends = 0.0, []
            for reduces in (True, False):
                if self.collective in (COPYING if reduces else REDUCING):
                    continue
                own = backwards if reduces else prices
                if extra_levels is None:
                    tree = cheap_tree(own[steps - middle :] if reduces else own[middle:], root)
                else:
                    tree = steady_tree(own[0], root, extra_levels)
                if tree is None:
                    break
                cost += tree[0]
                for t, a, b in tree[1]:
                    sends.append(((middle - 1 - t, b, a), True) if reduces else ((middle + t, a, b), False))
            else:
                if best is None or cost < best[0]:
                    best = cost, sorted(sends)
        return None if best is None else best[1]

    def _middles(self, steps: int) -> list[int]:
        """Return the numbers of steps of reductions that are tried; the other steps copy."""
        if self.collective in REDUCING:
            return [steps]
        if self.collective in COPYING:
            return [0]
        return np.unique(np.linspace(1, steps - 1, MIDDLES).round().astype(int)).tolist() if steps > 1 else []


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
        phases.append(Phase(str(t), tuple((0, *edge) for edge in edges), reduces, after))
        for _, dst in edges:
            into.setdefault(dst, set()).add(p)
    return Template(NAME, tuple(phases), 0, (block,), 1, tuple(t for t, _ in by_step))
