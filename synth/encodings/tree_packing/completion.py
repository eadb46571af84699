"""The last chunks: trees for what is left, chosen send by send with CP-SAT instead of from a pool of whole trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from synth.bounds.demands import distances_from
from synth.bounds.trees.column_generation import FoldedProblem
from synth.bounds.trees.time_expanded_trees import Tree


def complete(
    folded: FoldedProblem, steps: int, room: np.ndarray, need: dict[int, int], seconds: float, seed: int
) -> dict[int, list[Tree]] | None:
    """`need[u]` trees of each unit whose loads fit into `room[orbit, step - 1]` together; None where none were found in
    time."""
    from ortools.sat.python import cp_model

    if (room < 0).any():
        return None
    network, model = folded.network, cp_model.CpModel()
    terms: dict[tuple[int, int], list] = {}
    chosen: list[tuple[int, dict[tuple[int, int], cp_model.IntVar]]] = []
    for unit, count in need.items():
        pre, post, weight = folded.collective.pre[unit], folded.collective.post[unit], folded.weight[unit]
        early = distances_from(network, sorted(pre))
        back = network.reversed()
        late = [
            min((d for d in (distances_from(back, [n])[v] for n in post) if d is not None), default=steps)
            for v in range(network.ranks)
        ]
        fits = [
            (i, t)
            for i, r in enumerate(network.routes)
            for t in range((steps if early[r.src] is None else early[r.src] or 0) + 1, steps - late[r.dst] + 1)
            if r.dst not in pre
            and all(weight * folded.use[i, o] <= room[o, t - 1] for o in np.flatnonzero(folded.use[i]))
        ]
        for _ in range(count):
            send = {place: model.new_bool_var("") for place in fits}
            chosen.append((unit, send))
            into: dict[int, dict[int, list]] = {}
            for (i, t), x in send.items():
                into.setdefault(network.routes[i].dst, {}).setdefault(t, []).append(x)
                for o in np.flatnonzero(folded.use[i]):
                    terms.setdefault((int(o), t), []).append(int(weight * folded.use[i, o]) * x)
            for n in range(network.ranks):
                received = [x for xs in into.get(n, {}).values() for x in xs]
                if n in post and n not in pre:
                    model.add_exactly_one(received)
                else:
                    model.add_at_most_one(received)
            for (i, t), x in send.items():
                src = network.routes[i].src
                if src not in pre:
                    model.add_bool_or([y for s, ys in into.get(src, {}).items() if s < t for y in ys] + [~x])
    for (o, t), row in terms.items():
        model.add(sum(row) <= int(room[o, t - 1]))
    solver = solved(model, seconds, seed)
    if solver is None:
        return None
    found: dict[int, list[Tree]] = {u: [] for u in need}
    for unit, send in chosen:
        found[unit].append(tuple(sorted((t, i) for (i, t), x in send.items() if solver.value(x))))
    return found


def solved(model: Any, seconds: float, seed: int) -> Any:
    """The CP-SAT solver holding a solution of `model`, None where one worker finds none.

    `seconds` are CP-SAT's own measure of work, which the load of the machine does not change; about seconds of one
    core.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = max(0.01, seconds)
    return solver if solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
