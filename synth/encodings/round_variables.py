"""Rounds as variables: how many rounds each step has, and the loads that they allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from synth.encodings.translated_chunks import Load
from synth.solvers.boolean_model import Model


def constrain(model: Model, loads: Iterable[Load], sends: Sequence[Mapping[int, Sequence[int]]], rounds: int) -> None:
    """`rounds` rounds over all steps, at least one each, carry what is sent.

    ``sends[t][route]`` are the literals of all representatives' sends on that route in step t. Step t has more than j
    rounds iff its j-th unary bit holds; a load that j rounds do not carry forces that bit.
    """
    steps = len(sends)
    if rounds < steps:
        model.clause([])
        return
    most = rounds - steps + 1
    bits = [[model.var() for _ in range(most - 1)] for _ in range(steps)]
    for row in bits:
        for low, high in pairwise(row):
            model.clause([low, -high])
    for load in loads:
        ceiling = load.most(most)
        for t in range(steps):
            literals = [x for r, w in load.weights for x in sends[t].get(r, ()) for _ in range(w)]
            if len(literals) <= load.most(1):
                continue
            counts = model.count(literals, ceiling + 1)
            if len(counts) > ceiling:
                model.clause([-counts[ceiling]])
            for j in range(1, most):
                if load.most(j) < len(counts):
                    model.clause([-counts[load.most(j)], bits[t][j - 1]])
    extra = [x for row in bits for x in row]
    if len(extra) > rounds - steps:
        counts = model.count(extra, rounds - steps + 1)
        if len(counts) > rounds - steps:
            model.clause([-counts[rounds - steps]])


def counting(loads: Iterable[Load], sends: int, steps: int, rounds: int) -> int:
    """About how many clauses `constrain` makes where every route has `sends` literals in each step."""
    most = max(1, rounds - steps + 1)
    found = _merging(steps * (most - 1), rounds - steps + 1)
    for load in loads:
        literals = sends * sum(w for _, w in load.weights)
        if literals > load.most(1):
            found += steps * (_merging(literals, load.most(most) + 1) + most)
    return found


def _merging(inputs: int, outputs: int) -> int:
    """Clauses of a totalizer with so many inputs and outputs: each merge of two halves pairs all outputs of one with
    those of the other."""
    found, width = 0, 1
    while width < inputs:
        pairs = min(width, outputs) * min(width, outputs) // (2 if 2 * width > outputs else 1)
        found += pairs * max(1, inputs // (2 * width))
        width *= 2
    return found
