"""Restricted master heuristic: an integer program over known trees, folded by an automorphism group, solved by CP-SAT.

Each chunk travels along a time-expanded tree. Given enough cheap trees, a schedule with (C, S, R) is a choice of
non-negative integers: the number of chunks of a unit on each tree. They sum to C for each unit and keep every load
within bandwidth times the rounds of its step. Under a group there is one variable for each orbit of trees and one
constraint for each orbit of links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synth.bounds.trees.column_generation import Columns, FoldedProblem
from synth.bounds.trees.time_expanded_trees import Tree
from synth.model.schedule import Schedule, Send, Step
from synth.model.symmetry.stabilisers import Generator, orbit, stabiliser


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
        self, tree_orbits: Sequence[TreeOrbit], rounds: int, seconds: float, seed: int
    ) -> tuple[dict[int, list[Tree]], list[int]] | None:
        """Return `chunks` trees of each unit and the rounds of each step, `rounds` in all, into which their loads fit.

        None if CP-SAT finds none. `seconds`: its limit, in its deterministic time.
        """
        from synth.solvers.cp_sat import new_program, solve_program

        # one variable for each orbit of trees, and one for the rounds of each step, which begin at the fractional ones
        model = new_program()
        use = [model.new_int_var(0, self.chunks // len(b.trees), "") for b in tree_orbits]
        lengths = [model.new_int_var(1, rounds, "") for _ in range(self.steps)]
        model.add(sum(lengths) == rounds)
        for length, fraction in zip(lengths, self.columns.rounds, strict=True):
            model.add_hint(length, max(1, round(self.chunks * fraction)))

        # each unit has its chunks, and no load exceeds what its step carries
        terms: dict[tuple[int, int], list] = {}
        for unit, weight in self.folded.weight.items():
            mine = [(b, x) for b, x in zip(tree_orbits, use, strict=True) if b.unit == unit]
            model.add(sum(len(b.trees) * x for b, x in mine) == self.chunks)
            for b, x in mine:
                loads = self.folded.loads(b.trees[0]) * (weight * len(b.trees))
                for o, t in zip(*np.nonzero(loads), strict=True):
                    terms.setdefault((int(o), int(t)), []).append(int(loads[o, t]) * x)
        for (o, t), row in sorted(terms.items()):
            model.add(sum(row) <= int(self.folded.capacity[o]) * lengths[t])
        solver = solve_program(model, seconds, seed)
        if solver is None:
            return None
        taken: dict[int, list[Tree]] = {u: [] for u in self.folded.units}
        for b, x in zip(tree_orbits, use, strict=True):
            for tree in b.trees:
                taken[b.unit] += [tree] * solver.value(x)
        return taken, [solver.value(length) for length in lengths]

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
