"""Searches of the oracle: schedules below a bound by a constraint program, optimal rates by linear programs.
Nothing of `synth`.

Machine  ranks routes carries     route (src, dst, way); carries: (units in a round, ((route, how often it counts),
                                  ...))
Task     ranks combining pre post of each unit: the ranks that hold it, and (rank, the contributions it wants) of those
         that want it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Any

CHUNKS = 4  # the most that are tried of each unit
STEPS = 6  # the most that are searched; of more the rest is idle
SECONDS = 10.0  # of one search
CLOSE = 1e-9  # what the linear solver answers, and what it stands for
ROUNDS = 1 << 30  # in a step, where they do not count

# copy, sum or allreduce; who has it, who wants it, how much
Part = tuple[str, frozenset[int], frozenset[int], Fraction]


@dataclass(frozen=True)
class Machine:
    """Routes from rank to rank, and what carries them."""

    ranks: int
    routes: tuple[tuple[int, int, tuple[str, ...]], ...]
    carries: tuple[tuple[Fraction, tuple[tuple[int, int], ...]], ...]

    def at(self, rank: int) -> list[tuple[int, float]]:
        """The routes that end at a rank, with 1, and that begin there, with -1."""
        return [(r, 1.0 if b == rank else -1.0) for r, (a, b, _) in enumerate(self.routes) if rank in (a, b)]

    def reversed(self) -> Machine:
        """Every route turned round."""
        return Machine(self.ranks, tuple((v, u, way[::-1]) for u, v, way in self.routes), self.carries)


@dataclass(frozen=True)
class Task:
    """Return the ranks that have each unit, and the ranks that want it."""

    ranks: int
    combining: bool
    pre: tuple[frozenset[int], ...]
    post: tuple[frozenset[tuple[int, frozenset[int]]], ...]


def distances(machine: Machine, starts: Iterable[int]) -> dict[int, int]:
    """Fewest routes from the nearest of `starts` to each rank that can be reached."""
    far = dict.fromkeys(starts, 0)
    queue = deque(far)
    while queue:
        u = queue.popleft()
        for a, b, _ in machine.routes:
            if a == u and b not in far:
                far[b] = far[u] + 1
                queue.append(b)
    return far


def demands(task: Task) -> list[tuple[int, frozenset[int], int]]:
    """(unit, ranks of which one has it, the rank that needs it): data must travel from there."""
    found = []
    for u, (have, row) in enumerate(zip(task.pre, task.post, strict=True)):
        for rank, want in row:
            if not task.combining:
                found += [(u, have, rank)] if rank not in have else []
            else:
                found += [(u, frozenset([i]), rank) for i in want if i != rank]
    return found


def possible(machine: Machine, task: Task) -> bool:
    """Return True if enough steps meet every demand."""
    if task.combining and any(want - have for have, row in zip(task.pre, task.post, strict=True) for _, want in row):
        return False
    return all(rank in distances(machine, have) for _, have, rank in demands(task))


def farthest(machine: Machine, task: Task) -> int:
    """The most steps that one demand needs."""
    return max((distances(machine, have)[rank] for _, have, rank in demands(task)), default=0)


# ---------------------------------------------------------------- schedules by a constraint program


def below(machine: Machine, task: Task, steps: int | None, value: Fraction, chunks: int | None) -> Fraction | bool:
    """R/C of a schedule that is below `value`, or False where there is none with C ≤ `CHUNKS` (or at `chunks`).

    Raises TimeoutError where that is undecided.

    `steps` None is any number of them; the search then looks at up to `STEPS`.
    """
    if value <= 0 or not possible(machine, task):
        return False
    far = farthest(machine, task)
    if steps is not None and (steps < far or (chunks is not None and value * chunks <= steps)):
        return False
    if value <= flow(machine, task):
        return False
    if chunks is not None and chunks > CHUNKS + 2:
        raise TimeoutError
    decided = True
    for c in range(1, CHUNKS + 1) if chunks is None else (chunks,):
        rounds, bound = fewest_rounds(machine, task, c, steps, ceil(value * c) - 1)
        if rounds is not None:
            return Fraction(rounds, c)
        decided = decided and bound >= ceil(value * c)
    if not decided:
        raise TimeoutError
    return False


@lru_cache(maxsize=4096)
def fewest_rounds(machine: Machine, task: Task, chunks: int, steps: int | None, most: int) -> tuple[int | None, int]:
    """The fewest rounds, `most` at most, of a schedule that was found; and a number of rounds below which there is
    none."""
    idle = 0 if steps is None else max(0, steps - STEPS)
    count = min(STEPS, most if steps is None else steps)  # no step without a round does anything
    found, bound = _search(machine, task, chunks, count, free=steps is None or idle > 0, most=most - idle)
    return None if found is None else found + idle, bound + idle


@lru_cache(maxsize=4096)
def fewest_steps(machine: Machine, task: Task, most: int | Fraction) -> Fraction | int | None:
    """The least number of steps with any number of rounds, as far as below `most`; infinity as `most` where there is
    none."""
    if not possible(machine, task):
        return most
    far = farthest(machine, task)
    if not task.combining or far == 0:
        return far
    for steps in range(far, min(ceil(most), STEPS + 1)):
        found, bound = _search(machine, task, 1, steps, free=False, wide=True)
        if found is not None:
            return steps
        if bound < ROUNDS:
            return None
    return most if ceil(most) <= STEPS + 1 else None


def _search(
    machine: Machine, task: Task, chunks: int, steps: int, *, free: bool, most: int = 10_000, wide: bool = False
) -> tuple[int | None, int]:
    """The rounds of the best schedule of `chunks` chunks per unit and of R ≤ `most`, and what R is at least.

    `free`: steps may be empty; `wide`: loads do not count.
    """
    from ortools.sat.python import cp_model

    if most < (0 if free else steps):
        return None, most + 1

    model = cp_model.CpModel()
    ids = [(u, k) for u in range(len(task.pre)) if task.post[u] for k in range(chunks)]
    rounds = [model.new_int_var(0 if free else 1, most, "") for _ in range(steps)]
    sends: dict[tuple[int, int, int, bool], Any] = {}  # chunk, route, step, of the rank's own input
    one, none = model.new_constant(1), model.new_constant(0)
    for c, (u, _) in enumerate(ids):
        have = task.pre[u]
        held = {(n, i): (one if n == i else none) for n in range(task.ranks) for i in have} if task.combining else {
            (n, 0): (one if n in have else none) for n in range(task.ranks)}  # fmt: skip
        what = sorted(have) if task.combining else [0]
        for t in range(steps):
            parts: dict[tuple[int, int], list] = {key: [] for key in held}
            for r, (a, b, _) in enumerate(machine.routes):
                x = sends[c, r, t, False] = model.new_bool_var("")
                if not task.combining:
                    model.add(x <= held[a, 0])
                    parts[b, 0].append(x)
                    continue
                for i in what:
                    parts[b, i].append(_both(model, x, held[a, i], one, none))
                if a in have:
                    y = sends[c, r, t, True] = model.new_bool_var("")
                    parts[b, a].append(y)
            after = {}
            for n in range(task.ranks):
                if n in have and task.combining:
                    own = model.new_bool_var("")
                    model.add(own <= rounds[t])  # what takes no link takes a step
                    parts[n, n].append(own)
                keep = model.new_bool_var("")
                for i in what:
                    new = after[n, i] = model.new_bool_var("")
                    if task.combining:
                        model.add(sum(parts[n, i]) + _both(model, keep, held[n, i], one, none) == new)
                    else:
                        model.add(new <= held[n, i] + sum(parts[n, i]))
            held = after
        for rank, want in task.post[u]:
            for i in what:
                model.add(held[rank, i] == (not task.combining or i in want))
    for cap, members in () if wide else machine.carries:
        if cap.denominator != 1:
            raise ValueError("a capacity is no whole number of units")
        counted = dict(members)
        for t in range(steps):
            load = [counted[r] * x for (_, r, at, _), x in sends.items() if at == t and r in counted]
            if load:
                model.add(sum(load) <= min(int(cap), len(load) * max(counted.values())) * rounds[t])
    model.add(sum(rounds) <= most)
    if free:  # empty steps come last
        for now, later in pairwise(rounds):
            empty = model.new_bool_var("")
            model.add(now >= 1).only_enforce_if(~empty)
            model.add(later == 0).only_enforce_if(empty)
    model.minimize(sum(rounds))
    solver = cp_model.CpSolver()
    solver.parameters.num_search_workers = 1
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None, ROUNDS if wide else most + 1
    bound = ceil(solver.best_objective_bound - 1e-6)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, max(bound, 0)
    return sum(solver.value(r) for r in rounds), bound


def _both(model, x, y, one, none):
    """A variable that is x and y."""
    if y is one or y is none:
        return x if y is one else none
    z = model.new_bool_var("")
    model.add(z <= x)
    model.add(z <= y)
    model.add(z >= x + y - 1)
    return z


# ---------------------------------------------------------------- rates by linear programs


class _Program:
    """min the last of `columns` variables, by rows."""

    def __init__(self) -> None:
        self.columns = 0
        self.equal: list[tuple[dict[int, float], float]] = []
        self.below: list[tuple[dict[int, float], float]] = []

    def fresh(self, count: int = 1) -> int:
        """The first of so many new variables."""
        self.columns += count
        return self.columns - count

    def shared(self, load: int, machine: Machine) -> int:
        """The first variable of a flow over each route, none of which is more than the route's variable from `load`
        on."""
        used = self.fresh(len(machine.routes))
        self.below += [({used + r: 1.0, load + r: -1.0}, 0.0) for r in range(len(machine.routes))]
        return used

    def at_most(self, load: Mapping[int, float], rounds: int, cap: Fraction) -> None:
        """Limit the load to `cap` in each of `rounds`; divided by a large `cap`, since the solver refuses
        huge numbers."""
        scale = max(cap, Fraction(1))
        self.below.append(({j: float(times / scale) for j, times in load.items()} | {rounds: -float(cap / scale)}, 0.0))

    def minimum(self, cost: dict[int, float]) -> Fraction | None:
        """The least cost, as the fraction of small terms that it is or a little less; None where there is none."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_matrix

        def matrix(rows: list[tuple[dict[int, float], float]]):
            where = [(i, j, x) for i, (row, _) in enumerate(rows) for j, x in row.items()]
            i, j, x = zip(*where, strict=True) if where else ((), (), ())
            return coo_matrix((x, (i, j)), shape=(len(rows), self.columns)), [b for _, b in rows]

        a, b = matrix(self.equal)
        c, d = matrix(self.below)
        limits = {"A_ub": c, "b_ub": d} if d else {}
        limits |= {"A_eq": a, "b_eq": b} if b else {}
        found = linprog([cost.get(j, 0.0) for j in range(self.columns)], method="highs", **limits)
        if found.status != 0:
            return None
        near = Fraction(found.fun).limit_denominator(1000)
        close = abs(float(near) - found.fun) <= CLOSE * (1 + abs(found.fun))
        return near if close else Fraction(found.fun * (1 - CLOSE))


@lru_cache(maxsize=4096)
def flow(machine: Machine, task: Task) -> Fraction:
    """R/C of every schedule is at least this, for any C and S: each demand is a flow of its own, those of a unit share
    loads."""
    program = _Program()
    loads = {u: program.fresh(len(machine.routes)) for u in {u for u, _, _ in demands(task)}}
    rounds = program.fresh()
    for u, have, rank in demands(task):
        used = program.shared(loads[u], machine)
        for n in set(range(task.ranks)) - have:
            program.equal.append(({used + r: sign for r, sign in machine.at(n)}, float(n == rank)))
    for cap, members in machine.carries:
        row = {first + r: times for first in loads.values() for r, times in members}
        program.at_most(row, rounds, cap)
    return program.minimum({rounds: 1.0}) or Fraction(0)


@lru_cache(maxsize=4096)
def rate(machine: Machine, parts: tuple[Part, ...]) -> Fraction | None:
    """Rounds in which all parts can be moved, at any steps and in any number of chunks; None where some cannot.

    Copies go along trees, which fill flows to every destination (Edmonds); sums go along the same trees backwards; an
    allreduce is summed at any ranks and copied from there.
    """
    program, loads = _Program(), list[int]()

    def spread(have: frozenset[int], want: frozenset[int], *, backwards: bool, amount: int | None, size: float) -> None:
        """Flows of `size`, or of the variable `amount`, from `have` to each of `want`, which share loads."""
        first = program.fresh(len(machine.routes))
        loads.append(first)
        for rank in want - have:
            used = program.shared(first, machine)
            for n in set(range(machine.ranks)) - have:
                row = {used + r: -sign if backwards else sign for r, sign in machine.at(n)}
                if amount is not None and n == rank:
                    row[amount] = -1.0
                program.equal.append((row, size if amount is None and n == rank else 0.0))

    for kind, have, want, size in parts:
        if kind == "copy":
            spread(have, want, backwards=False, amount=None, size=float(size))
        elif kind == "sum":
            spread(want, have, backwards=True, amount=None, size=float(size))
        else:
            shares = program.fresh(machine.ranks)
            program.equal.append((dict.fromkeys(range(shares, shares + machine.ranks), 1.0), float(size)))
            for q in range(machine.ranks):
                for backwards in (True, False):
                    spread(frozenset([q]), have, backwards=backwards, amount=shares + q, size=0.0)
    rounds = program.fresh()
    for cap, members in machine.carries:
        program.at_most({first + r: times for first in loads for r, times in members}, rounds, cap)
    return program.minimum({rounds: 1.0})
