"""Restricted master heuristic: an integer program over known trees, folded by an automorphism group, solved by CP-SAT
or by diving.

Each chunk travels along a time-expanded tree. Given enough cheap trees, a schedule with (C, S, R) is a choice of
non-negative integers: the number of chunks of a unit on each tree. They sum to C for each unit and keep every load
within bandwidth times rounds. Under a group there is one variable for each orbit of trees and one constraint for each
orbit of links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.bounds.trees.column_generation import Columns, FoldedProblem
from synth.bounds.trees.time_expanded_trees import Tree
from synth.encodings.tree_packing.completion import complete
from synth.encodings.tree_packing.diving import Dive, Partial
from synth.model.schedule import Schedule, Send, Step
from synth.model.symmetry.stabilisers import Generator, orbit, stabiliser
from synth.solvers.processes.deadline import Deadline


@dataclass(frozen=True)
class TreeProgramSettings:
    """Limits of the integer program over known trees.

    Attributes:
        dive_columns: Maximum number of known trees of each unit that a dive begins with.
        completing_seconds: Limit of the completion sub-problem, in seconds of CP-SAT's deterministic time.
        max_places: Maximum size of that sub-problem: chunks times routes times steps.
    """

    dive_columns: int = 300
    completing_seconds: float = 3.0
    max_places: int = 12_000


SETTINGS = TreeProgramSettings()


@dataclass(frozen=True)
class TreeOrbit:
    """Trees of one unit that are used equally often: an orbit under the automorphisms that fix the unit."""

    unit: int
    trees: tuple[Tree, ...]


def move(tree: Tree, routes: Sequence[int]) -> Tree:
    """Return the image of `tree`, where route i becomes ``routes[i]``."""
    return tuple(sorted((step, routes[route]) for step, route in tree))


class Coset:
    """For every unit of an orbit a permutation of routes that maps the least unit to it, and the least unit's
    stabilizer."""

    def __init__(self, unit: int, generators: Sequence[Generator], routes: int) -> None:
        self.to: dict[int, tuple[int, ...]] = {unit: tuple(range(routes))}
        queue = [unit]
        for u in queue:
            for g in generators:
                if g.units[u] not in self.to:
                    self.to[g.units[u]] = tuple(g.routes[r] for r in self.to[u])
                    queue.append(g.units[u])
        self.fixing = stabiliser(unit, generators, lambda g, u: g.units[u])

    def orbit(self, tree: Tree, limit: int) -> tuple[Tree, ...] | None:
        """Return the images of `tree` under the stabilizer of the unit; None if there are more than `limit`."""
        images = orbit(tree, self.fixing, lambda g, t: move(t, g.routes), limit)
        return None if images is None else tuple(sorted(images))


class TreeProgram:
    """The integer program over `columns`, restricted to schedules invariant under `group` (generators of a
    subgroup)."""

    def __init__(self, columns: Columns, group: Sequence[Generator], chunks: int) -> None:
        full = columns.folded
        self.folded = FoldedProblem(full.network, full.collective, full.steps, group)
        self.columns, self.steps, self.chunks = columns, full.steps, chunks
        routes = len(full.network.routes)
        self.origin = {
            u: (rep, path) for rep in full.units for u, path in Coset(rep, full.generators, routes).to.items()
        }
        self.cosets = {u: Coset(u, group, routes) for u in self.folded.units}
        self.loose = all(not coset.fixing for coset in self.cosets.values())

    def trees(self, unit: int, most: int) -> list[Tree]:
        """Return at most `most` trees of a unit, as images of those of its representative: those in use first."""
        rep, path = self.origin[unit]
        return [move(self.columns.trees[rep][i], path) for i in _order(self.columns, rep)[:most]]

    def tree_orbits(self, most: int) -> list[TreeOrbit]:
        """Return the orbits of known trees under the stabilizer of their unit, of at most `most` trees of each unit."""
        result = []
        for u, coset in self.cosets.items():
            seen: set[Tree] = set()
            for tree in self.trees(u, most):
                if tree not in seen:
                    images = coset.orbit(tree, self.chunks)
                    seen.update(images or (tree,))
                    if images is not None:
                        result.append(TreeOrbit(u, images))
        return result

    def choose(
        self, tree_orbits: Sequence[TreeOrbit], rounds: Sequence[int], seconds: float, seed: int
    ) -> dict[int, list[Tree]] | None:
        """Return `chunks` trees of each unit whose loads fit into `rounds[t]` rounds of each step; None if CP-SAT finds
        none.

        `seconds`: limit of CP-SAT, in its deterministic time.
        """
        from synth.solvers.cp_sat import new_program, solve_program

        model = new_program()
        use = [model.new_int_var(0, self.chunks // len(b.trees), "") for b in tree_orbits]
        terms: dict[tuple[int, int], list] = {}
        for unit, weight in self.folded.weight.items():
            mine = [(b, x) for b, x in zip(tree_orbits, use, strict=True) if b.unit == unit]
            model.add(sum(len(b.trees) * x for b, x in mine) == self.chunks)
            for b, x in mine:
                loads = self.folded.loads(b.trees[0]) * (weight * len(b.trees))
                for o, t in zip(*np.nonzero(loads), strict=True):
                    terms.setdefault((int(o), int(t)), []).append((int(loads[o, t]), x))
        for (o, t), row in sorted(terms.items()):
            model.add(sum(a * x for a, x in row) <= int(self.folded.capacity[o]) * rounds[t])
        solver = solve_program(model, seconds, seed)
        if solver is None:
            return None
        taken: dict[int, list[Tree]] = {u: [] for u in self.folded.units}
        for b, x in zip(tree_orbits, use, strict=True):
            for tree in b.trees:
                taken[b.unit] += [tree] * solver.value(x)
        return taken

    def diver(self, rounds: int, seed: int) -> Dive:
        """Return a dive in the folded problem that begins with the best trees of `columns`."""
        trees = {u: self.trees(u, SETTINGS.dive_columns) for u in self.folded.units}
        return Dive(self.folded, self.chunks, rounds, trees, seed)

    def dive(self, rounds: Sequence[int], deadline: Deadline, seed: int) -> dict[int, list[Tree]] | None:
        """Return trees as `choose` does, by diving, up to the deadline; new trees join
        `columns`."""
        dive = self.diver(sum(rounds), seed)

        def finish(partial: Partial, need: dict[int, int]) -> Partial | None:
            if sum(need.values()) * len(self.folded.network.routes) * self.steps > SETTINGS.max_places:
                return None
            capacity = self.folded.capacity[:, None] * np.array(partial.floors) - partial.loads
            seconds = min(SETTINGS.completing_seconds, deadline.remaining())
            last = complete(self.folded, capacity, need, seconds, seed)
            if last is None:
                return None
            return Partial(
                {u: mine + last.get(u, []) for u, mine in partial.taken.items()}, partial.loads, partial.floors
            )

        done = dive.run(list(rounds), deadline, finish)
        self.learn(dive)
        return None if done is None else done.taken

    def learn(self, dive: Dive, use: bool = False) -> None:
        """Add the trees of a dive to `columns`; with `use`, their multiplicities in its last solution replace the old
        ones."""
        for rep in self.columns.folded.units if use else ():
            self.columns.share[rep] = [0.0] * len(self.columns.trees[rep])
        for u in self.folded.units:
            rep, path = self.origin[u]
            back = sorted(range(len(path)), key=path.__getitem__)
            mine, share = self.columns.trees[rep], self.columns.share[rep]
            at = {tree: i for i, tree in enumerate(mine)}
            for tree, amount in zip(dive.master.trees[u], dive.master.share[u], strict=False):
                i = at.setdefault(move(tree, back), len(mine))
                if i == len(mine):
                    mine.append(move(tree, back))
                    share.append(0.0)
                if use:
                    share[i] += amount

    def schedule(self, taken: dict[int, list[Tree]], rounds: Sequence[int]) -> Schedule:
        """Return the schedule in which chunk i of each unit takes its i-th tree."""
        network, collective = self.folded.network, self.folded.collective
        sends: list[list[Send]] = [[] for _ in range(self.steps)]
        for unit, coset in self.cosets.items():
            for image, path in coset.to.items():
                for i, tree in enumerate(taken[unit]):
                    for step, route in tree:
                        r = network.routes[path[route]]
                        sends[step - 1].append(Send(image * self.chunks + i, r.src, r.dst, "copy", r.via))
        steps = tuple(Step(n, tuple(sorted(row))) for n, row in zip(rounds, sends, strict=True))
        return Schedule(network, collective, self.chunks, steps)


def _order(columns: Columns, unit: int) -> list[int]:
    """Return the indices of the trees of `unit`: those in use first, then by reduced cost, the newest first."""
    reduced, share = columns.reduced_costs(unit), columns.share[unit]
    return sorted(range(len(reduced)), key=lambda i: (-share[i], round(reduced[i], 6), -i))
