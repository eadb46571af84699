"""Variables for the rounds of each step, and the load limits that depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from synth.encodings.translated_chunks import Load
from synth.solvers.boolean_model import Model


def limit_loads(model: Model, loads: Iterable[Load], sends: Sequence[Mapping[int, Sequence[int]]], rounds: int) -> None:
    """Add constraints to `model` by which the loads fit into `rounds` rounds over all steps, at least one in each.

    ``sends[t][route]`` are the literals of all representatives' sends on that route in step t. Step t has more than j
    rounds if its j-th unary bit holds. A load that j rounds do not carry forces that bit.
    """
    steps = len(sends)
    if rounds < steps:
        model.clause([])
        return
    maximum = rounds - steps + 1  # rounds of one step
    bits: list[list[int]] = []
    for _ in range(steps):
        bits.append([model.var() for _ in range(maximum - 1)])
    for row in bits:
        for low, high in pairwise(row):
            model.clause([low, -high])
    for load in loads:
        ceiling = load.max_count(maximum)
        for t in range(steps):
            literals = [x for r, w in load.weights for x in sends[t].get(r, ()) for _ in range(w)]
            if len(literals) <= load.max_count(1):
                continue
            counts = model.unary_count(literals, ceiling + 1)
            if len(counts) > ceiling:
                model.clause([-counts[ceiling]])
            for j in range(1, maximum):
                if load.max_count(j) < len(counts):
                    model.clause([-counts[load.max_count(j)], bits[t][j - 1]])
    extra = [x for row in bits for x in row]
    if len(extra) > rounds - steps:
        counts = model.unary_count(extra, rounds - steps + 1)
        if len(counts) > rounds - steps:
            model.clause([-counts[rounds - steps]])


def estimate_clauses(loads: Iterable[Load], sends: int, steps: int, rounds: int) -> int:
    """Return an estimate of the number of clauses that `limit_loads` adds if every route has `sends` literals in each
    step."""
    maximum = max(1, rounds - steps + 1)
    clauses = _totalizer_clauses(steps * (maximum - 1), rounds - steps + 1)
    for load in loads:
        literals = sends * sum(w for _, w in load.weights)
        if literals > load.max_count(1):
            clauses += steps * (_totalizer_clauses(literals, load.max_count(maximum) + 1) + maximum)
    return clauses


def _totalizer_clauses(inputs: int, outputs: int) -> int:
    """Return the number of clauses of a totalizer: each merge of two halves pairs all outputs of one half with those of
    the other."""
    clauses, width = 0, 1
    while width < inputs:
        pairs = min(width, outputs) * min(width, outputs) // (2 if 2 * width > outputs else 1)
        clauses += pairs * max(1, inputs // (2 * width))
        width *= 2
    return clauses
