"""Whether so many rings fit together: a constraint program with a circuit for each ring (OR-tools' CP-SAT)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from math import gcd, prod

from synth.scale.baselines.rings.folded_network import Hops
from synth.solvers.processes.deadline import apart

# Hops of all rings together that such a program is made for.
MOST_TAKEN = 30_000


def fit(hops: Hops, count: int, width: int, effort: float) -> list[list[int]] | None:
    """`count` rings of `width` units that fit together, each a closed walk of hops; [] if proved that there are none;
    None: undecided.

    `effort` is in seconds of CP-SAT's own deterministic clock, so that the answer is the same everywhere.
    """
    if len(hops.src) * count > MOST_TAKEN or hops.nodes < 2:
        return None
    if hops.nodes == 2 and not _there_and_back(
        hops, width
    ):  # seen at once, without the time that the solver takes to load
        return []
    return apart(_solved, hops, count, width, effort, imports=("ortools.sat.python.cp_model",))


def _solved(hops: Hops, count: int, width: int, effort: float) -> list[list[int]] | None:
    """As `fit`, by the program."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    every = range(len(hops.src))
    rings = [[model.new_bool_var("") for _ in every] for _ in range(count)]
    for row in rings:
        model.add_circuit(list(zip(hops.src, hops.dst, row, strict=True)))
    users: list[list[tuple[int, int]]] = [[] for _ in hops.room]
    for h, uses in enumerate(hops.uses):
        for k, times in uses:
            users[k].append((h, times))
    for mine, units in zip(users, hops.room, strict=True):
        if units // width < count * sum(times for _, times in mine):
            model.add(sum(row[h] * times for row in rings for h, times in mine) <= units // width)
    if hops.order > 1:
        prime = [[n] for n in range(hops.order) if gcd(n, hops.order) == 1]
        for row in rings:
            rest, whole = model.new_int_var(0, hops.order - 1, ""), model.new_int_var(0, hops.nodes, "")
            model.add(sum(hops.turn[h] * row[h] for h in every if hops.turn[h]) == hops.order * whole + rest)
            model.add_allowed_assignments([rest], prime)
    first = [sum(k * row[h] for k, h in enumerate(every) if not hops.src[h]) for row in rings]
    for one, two in pairwise(first):  # rings of equal width may be exchanged
        model.add(one <= two)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return []
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    found = []
    for row in rings:
        out = {hops.src[h]: h for h in every if solver.value(row[h])}
        ring, at = [], 0
        for _ in range(hops.nodes):
            ring.append(out[at])
            at = hops.dst[out[at]]
        found.append(ring)
    return found


def _there_and_back(hops: Hops, width: int) -> bool:
    """Whether there is one ring over two nodes: what hops take, and their turns by the primes of the order, decide."""
    primes = prod(p for p in range(2, hops.order + 1) if hops.order % p == 0 and all(p % q for q in range(2, p)))
    there, back = (
        {(hops.uses[h], hops.turn[h] % primes) for h, u in enumerate(hops.src) if u == node} for node in (0, 1)
    )
    for (first, one), (second, two) in product(there, back):
        taken = Counter(dict(first))
        taken.update(dict(second))
        if gcd(one + two, primes) == 1 and all(hops.room[k] // width >= times for k, times in taken.items()):
            return True
    return False
