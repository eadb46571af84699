"""Hamiltonian circuits within shared capacities, by the circuit constraint of CP-SAT (OR-tools; Perron and Didier)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

# Modules that a process imports before it solves such a program.
LIBRARY = ("ortools.sat.python.cp_model",)


@dataclass(frozen=True)
class CircuitProblem:
    """Find `count` Hamiltonian circuits of a directed multigraph that stay within the capacities together.

    Arc h leads from node `tail[h]` to node `head[h]`, has voltage `voltage[h]` modulo `order`, and takes `uses[h]`:
    (resource, times). Resource k has `capacity[k]`. The voltages of a circuit must add up to a number coprime to
    `order`.
    """

    count: int
    nodes: int
    order: int
    tail: Sequence[int]
    head: Sequence[int]
    voltage: Sequence[int]
    uses: Sequence[Sequence[tuple[int, int]]]
    capacity: Sequence[int]


def solve(problem: CircuitProblem, effort: float) -> list[list[int]] | None:
    """Return the circuits, each a list of arcs from node 0; [] if proved that there are none; None: undecided.

    `effort` is in seconds of CP-SAT's own deterministic clock, so that the answer is the same everywhere.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    arcs = range(len(problem.tail))
    rings = []
    for _ in range(problem.count):
        rings.append([model.new_bool_var("") for _ in arcs])
    for row in rings:
        model.add_circuit(list(zip(problem.tail, problem.head, row, strict=True)))
    users: list[list[tuple[int, int]]] = [[] for _ in problem.capacity]
    for h, uses in enumerate(problem.uses):
        for k, times in uses:
            users[k].append((h, times))
    for arcs_and_times, capacity in zip(users, problem.capacity, strict=True):
        if capacity < problem.count * sum(times for _, times in arcs_and_times):
            model.add(sum(row[h] * times for row in rings for h, times in arcs_and_times) <= capacity)
    if problem.order > 1:
        coprime = [[n] for n in range(problem.order) if gcd(n, problem.order) == 1]
        for row in rings:
            rest, turns = model.new_int_var(0, problem.order - 1, ""), model.new_int_var(0, problem.nodes, "")
            total = sum(problem.voltage[h] * row[h] for h in arcs if problem.voltage[h])
            model.add(total == problem.order * turns + rest)
            model.add_allowed_assignments([rest], coprime)
    leaving_arcs = [h for h in arcs if not problem.tail[h]]
    # the circuits are interchangeable: order them by their arc out of node 0
    first = []
    for row in rings:
        first.append(sum(h * row[h] for h in leaving_arcs))
    for one, two in pairwise(first):
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
    circuits = []
    for row in rings:
        out = {problem.tail[h]: h for h in arcs if solver.value(row[h])}
        circuit, node = [], 0
        for _ in range(problem.nodes):
            circuit.append(out[node])
            node = problem.head[out[node]]
        circuits.append(circuit)
    return circuits
