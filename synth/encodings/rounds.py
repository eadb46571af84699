"""Rounds as variables: how many rounds each step has, and the loads that they allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from synth.encodings.model import Model
from synth.encodings.translate import Load


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
