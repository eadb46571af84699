"""Schedules without SAT: whole numbers of chunks on the trees that column generation finds.

Each chunk travels along a time-expanded tree; given enough cheap trees, a schedule with (C, S, R) is a choice of
non-negative integers, how many chunks of a unit take which tree, that sum to C per unit and keep every load within
bandwidth times rounds. CP-SAT chooses, first among solutions that are invariant under all automorphisms, then under
smaller and smaller groups: variables and constraints are then one per orbit.

Failing to find one proves nothing: only some trees are tried.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth import symmetry
from synth.bounds.arborescence import Tree
from synth.bounds.columns import Columns, Space, enrich, generate
from synth.bounds.orbits import Generator, orbit, stabiliser
from synth.schedule import Problem, Schedule, Send, Step
from synth.verdict import Budget, Cost, Sat, Unknown, Verdict

MAX_COLUMNS = 1500
GROWTH = 300
FIRST_SLICE = 1.0
MAX_TURNS = 8


@dataclass(frozen=True)
class Bundle:
    """Trees of one unit that are used equally often: an orbit under the automorphisms that fix the unit."""

    unit: int
    trees: tuple[Tree, ...]


def move(tree: Tree, routes: Sequence[int]) -> Tree:
    """The image of a tree under a permutation of routes."""
    return tuple(sorted((step, routes[route]) for step, route in tree))


class Coset:
    """For every unit of an orbit a permutation of routes that takes the least unit there, and what fixes the least."""

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
        """The images of `tree` under all that fixes the unit, None where there are more than `limit`."""
        found = orbit(tree, self.fixing, lambda g, t: move(t, g.routes), limit)
        return None if found is None else tuple(sorted(found))


class Packing:
    """The integer program over `columns`, restricted to schedules invariant under `group` (generators of a subgroup)."""

    def __init__(self, columns: Columns, group: Sequence[Generator], chunks: int) -> None:
        full = columns.space
        network, collective = full.network, full.collective
        self.space = Space(network, collective, group)
        self.steps, self.chunks = columns.steps, chunks
        routes = len(network.routes)
        origin = {u: (rep, path) for rep in full.units for u, path in Coset(rep, full.generators, routes).to.items()}
        self.cosets = {u: Coset(u, group, routes) for u in self.space.units}
        self.bundles: list[Bundle] = []
        for u, coset in self.cosets.items():
            rep, path = origin[u]
            seen: set[Tree] = set()
            for i in _order(columns, rep)[:MAX_COLUMNS]:
                tree = move(columns.trees[rep][i], path)
                if tree in seen:
                    continue
                orbit = coset.orbit(tree, chunks)
                seen.update(orbit or (tree,))
                if orbit is not None:
                    self.bundles.append(Bundle(u, orbit))

    def solve(self, rounds: int, seconds: float, seed: int) -> tuple[list[int], list[int]] | None:
        """``(multiplicity of each bundle, rounds of each step)`` with Σ rounds = `rounds`; None when none was found."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        use = [model.new_int_var(0, self.chunks // len(b.trees), "") for b in self.bundles]
        turns = [model.new_int_var(1, rounds, "") for _ in range(self.steps)]
        model.add(sum(turns) == rounds)
        terms: dict[tuple[int, int], list] = {}
        for unit, weight in self.space.weight.items():
            mine = [(b, x) for b, x in zip(self.bundles, use, strict=True) if b.unit == unit]
            model.add(sum(len(b.trees) * x for b, x in mine) == self.chunks)
            for b, x in mine:
                loads = self.space.loads(b.trees[0], self.steps) * (weight * len(b.trees))
                for o, t in zip(*np.nonzero(loads), strict=True):
                    terms.setdefault((int(o), int(t)), []).append((int(loads[o, t]), x))
        for (o, t), row in sorted(terms.items()):
            model.add(sum(a * x for a, x in row) <= int(self.space.capacity[o]) * turns[t])
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed
        solver.parameters.max_time_in_seconds = seconds
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return [solver.value(x) for x in use], [solver.value(r) for r in turns]

    def schedule(self, use: Sequence[int], rounds: Sequence[int]) -> Schedule:
        """The schedule that the numbers stand for, over all units."""
        network, collective = self.space.network, self.space.collective
        sends: list[list[Send]] = [[] for _ in range(self.steps)]
        for unit, coset in self.cosets.items():
            mine = [tree for b, n in zip(self.bundles, use, strict=True) if b.unit == unit for tree in b.trees for _ in range(n)]
            for image, path in coset.to.items():
                for i, tree in enumerate(mine):
                    for step, route in tree:
                        r = network.routes[path[route]]
                        sends[step - 1].append(Send(image * self.chunks + i, r.src, r.dst, "copy", r.via))
        steps = tuple(Step(n, tuple(sorted(row))) for n, row in zip(rounds, sends, strict=True))
        return Schedule(network, collective, self.chunks, steps)


def _order(columns: Columns, unit: int) -> list[int]:
    """Trees of `unit`, those that the master uses first, then by reduced cost."""
    reduced, share = columns.reduced_costs(unit), columns.share[unit]
    return sorted(range(len(reduced)), key=lambda i: (-share[i], reduced[i], i))


def solve(problem: Problem, budget: Budget | None = None, *, generators: Sequence[Generator] | None = None) -> Verdict:
    """A schedule for `problem`, or Unknown: nothing is proved when none is found.

    For collectives that do not combine (reduce and reduce-scatter are the caller's to reverse). `generators` are
    automorphisms of the problem, found by `symmetry` when not given.
    """
    budget = budget or Budget()
    began, cpu = time.monotonic(), time.process_time()

    def cost(**detail: object) -> Cost:
        spent = time.process_time() - cpu
        return Cost("tree", spent, spent, time.monotonic() - began, dict(detail))

    def left() -> float:
        return float("inf") if budget.seconds is None else budget.seconds - (time.monotonic() - began)

    if problem.collective.combining:
        return Unknown("gave-up", "the tree engine takes no combining collectives", cost())
    if problem.rounds < problem.steps:
        return Unknown("gave-up", "fewer rounds than steps", cost())
    group = tuple(symmetry.generators(problem.network, problem.collective) if generators is None else generators)
    goal = Fraction(problem.rounds, problem.chunks)
    columns = generate(
        problem.network, problem.collective, problem.steps, group, target=float(goal), floor=1 / problem.chunks,
        seconds=budget.seconds, seed=budget.seed,
    )  # fmt: skip
    if columns is None:
        return Unknown("gave-up", "some destination is too far for so few steps", cost())
    slack = float(goal) - columns.value
    if slack < -1e-6:
        return Unknown("gave-up", f"the trees found allow no less than {columns.value:.6g} rounds per chunk", cost(lp=columns.value))
    chain = _chain(group)
    slice_ = FIRST_SLICE
    for turn in range(MAX_TURNS):
        enrich(columns, slack, GROWTH, budget.seed + turn)
        for part in chain:
            if left() <= 0:
                return Unknown("time", "", cost(lp=columns.value))
            packing = Packing(columns, part, problem.chunks)
            found = packing.solve(problem.rounds, min(slice_, left()), budget.seed + turn)
            if found is not None:
                detail = {"lp": columns.value, "trees": len(packing.bundles), "group": len(part), "turn": turn}
                return Sat(packing.schedule(*found), cost(**detail))
        slice_ *= 2
    return Unknown("gave-up", "no whole multiplicities of the trees found", cost(lp=columns.value))


def _chain(generators: Sequence[Generator]) -> list[tuple[Generator, ...]]:
    """Generator sets of smaller and smaller groups: all, all but one, each alone, none."""
    full = tuple(generators)
    chain = [full, *(full[:i] + full[i + 1 :] for i in range(len(full))), *((g,) for g in full), ()]
    seen: set[frozenset[Generator]] = set()
    return [c for c in chain if not (frozenset(c) in seen or seen.add(frozenset(c)))]
