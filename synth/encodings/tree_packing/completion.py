"""Completion sub-problem of a dive: CP-SAT chooses the trees of the last chunks send by send, instead of from a pool of
whole trees."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from synth.bounds.trees.column_generation import FoldedProblem
from synth.bounds.trees.time_expanded_trees import Tree
from synth.model.topology import Network


def complete(
    folded: FoldedProblem, capacity: np.ndarray, need: dict[int, int], seconds: float, seed: int
) -> dict[int, list[Tree]] | None:
    """Return `need[u]` trees of each unit u whose loads together fit into `capacity[orbit, step - 1]`; None if none are
    found within `seconds` of CP-SAT's deterministic time."""
    from synth.solvers.cp_sat import new_program, solve_program

    if (capacity < 0).any():
        return None
    network, model = folded.network, new_program()
    terms: dict[tuple[int, int], list] = {}
    chosen: list[tuple[int, dict[tuple[int, int], Any]]] = []
    for unit, count in need.items():
        pre, post, weight = folded.collective.pre[unit], folded.collective.post[unit], folded.weight[unit]
        places = _useful_places(folded, capacity, unit)
        for _ in range(count):
            send = {place: model.new_bool_var("") for place in places}
            chosen.append((unit, send))
            for (i, t), x in send.items():
                for o in np.flatnonzero(folded.use[i]):
                    terms.setdefault((int(o), t), []).append(int(weight * folded.use[i, o]) * x)
            _add_tree(model, network, send, pre, post)
    for (o, t), row in terms.items():
        model.add(sum(row) <= int(capacity[o, t - 1]))
    solver = solve_program(model, seconds, seed)
    if solver is None:
        return None
    trees: dict[int, list[Tree]] = {u: [] for u in need}
    for unit, send in chosen:
        trees[unit].append(tuple(sorted((t, i) for (i, t), x in send.items() if solver.value(x))))
    return trees


def _useful_places(folded: FoldedProblem, capacity: np.ndarray, unit: int) -> list[tuple[int, int]]:
    """Return (route, step) of each send of `unit` that lies on a path from a holder to a destination in time, and that
    fits into `capacity` alone."""
    network, weight, pre = folded.network, folded.weight[unit], folded.collective.pre[unit]
    early = network.distances_from(sorted(pre))
    late = network.reversed().distances_from(sorted(folded.collective.post[unit]))
    places: list[tuple[int, int]] = []
    for i, route in enumerate(network.routes):
        before, after = early[route.src], late[route.dst]
        if route.dst in pre or before is None or after is None:
            continue
        orbits = np.flatnonzero(folded.use[i])
        for t in range(before + 1, folded.steps - after + 1):
            if all(weight * folded.use[i, o] <= capacity[o, t - 1] for o in orbits):
                places.append((i, t))
    return places


def _add_tree(
    model: Any, network: Network, send: dict[tuple[int, int], Any], pre: frozenset[int], post: frozenset[int]
) -> None:
    """Add the constraints by which the true variables of `send`, by (route, step), are a tree from `pre` to `post`.

    A rank receives once at most, a destination once, and a rank sends only what it received in an earlier step.
    """
    into: dict[int, dict[int, list]] = {}
    for (i, t), x in send.items():
        into.setdefault(network.routes[i].dst, {}).setdefault(t, []).append(x)
    for n in range(network.ranks):
        received = list(chain.from_iterable(into.get(n, {}).values()))
        if n in post and n not in pre:
            model.add_exactly_one(received)
        else:
            model.add_at_most_one(received)
    for (i, t), x in send.items():
        src = network.routes[i].src
        if src not in pre:
            model.add_bool_or([y for s, ys in into.get(src, {}).items() if s < t for y in ys] + [~x])
