"""SAT encoding of allreduce by reduce-broadcast trees: partial sums travel up a tree to a root, or to two adjacent
roots that swap, and the total travels down another tree.

Every rank passes its sum on exactly once, after it has received all sums on the way up. A root that holds the total may
spread it at once, so the phases of different chunks overlap freely. A chunk always takes 2(N-1) sends, the fewest
possible, and needs S >= 2 * (the eccentricity of the edge between the roots) + 1. The encoding needs no contribution
sets, only O(routes * S) variables a chunk. Unsatisfiable proves nothing beyond this class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from synth.encodings.round_variables import limit_loads
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.solvers.boolean_model import Model


@dataclass
class _Chunk:
    """Variables ``up`` and ``down`` by (route, step). A swap is two ups of one step between the roots."""

    up: dict[tuple[int, int], int] = field(default_factory=dict)
    down: dict[tuple[int, int], int] = field(default_factory=dict)


def encode(
    translation: TranslatedChunks, steps: int, rounds: int, *, roots: int = 2
) -> tuple[Model, Callable[[set[int]], Schedule]]:
    """Return the formula, and the function that decodes the set of true variables of a model to a schedule.

    `translation`: the symmetries that chunks have. `roots`: 2 admits chunks with two roots that swap, 1 only a single
    root. Either way all ranks end with the same bits: two roots that swap add the same two operands.
    """
    model = Model()
    chunks = [_encode_chunk(model, translation.network, steps, roots) for _ in translation.representatives]
    sends: list[dict[int, list[int]]] = [{} for _ in range(steps)]
    for chunk in chunks:
        for moves in (chunk.up, chunk.down):
            for (r, t), x in moves.items():
                sends[t].setdefault(r, []).append(x)
    limit_loads(model, translation.loads, sends, rounds)
    return model, lambda true: _decode(translation, chunks, steps, true)


def _encode_chunk(model: Model, network: Network, steps: int, roots: int) -> _Chunk:
    chunk = _Chunk()
    ranks = range(network.ranks)
    far = [0] * network.ranks  # distance from n to the farthest rank
    deep = [0] * network.ranks  # distance from the farthest rank to n
    for n in ranks:
        for m in ranks:
            distance = network.distances[n][m]
            distance = steps if distance is None else distance
            far[n], deep[m] = max(far[n], distance), max(deep[m], distance)
    root = [model.var() for _ in ranks]
    # done[n][t]: n has sent its sum up by the end of step t; total[n][t]: n holds the total by then
    done = _variables(model, network.ranks, steps)
    total = _variables(model, network.ranks, steps)
    _choose_roots(model, network, root, roots)
    for n in ranks:
        for row in (done[n], total[n]):
            for early, late in pairwise(row):
                model.clause([-early, late])
        model.clause([total[n][-1]])
        for t in range(min(deep[n] - 1, steps)):  # the total cannot be anywhere before the farthest contribution is
            model.clause([-total[n][t]])
    for n in ranks:
        for t in range(steps):
            ups = {r: model.var() for r in network.out[n]}
            chunk.up |= {(r, t): x for r, x in ups.items()}
            before = [done[n][t - 1]] if t else []
            _at_most_one(model, [*ups.values(), *before])
            model.clause([-done[n][t], *before, *ups.values()])
            for x in ups.values():
                model.clause([-x, done[n][t]])
            if t:
                for r in network.out[n]:
                    chunk.down[r, t] = model.var()
                    model.clause([-chunk.down[r, t], total[n][t - 1]])
                    model.clause([-chunk.down[r, t], -root[network.routes[r].dst]])
        if roots == 1:
            model.clause([-root[n], -done[n][-1]])
    for n in ranks:
        _arrivals(model, network, chunk, n, steps, root, done, total)
    for n in ranks:
        if far[n] + deep[n] > steps + 1:
            model.clause([-root[n]])
    return chunk


def _variables(model: Model, ranks: int, steps: int) -> list[list[int]]:
    """Return a fresh variable for each rank and step."""
    table: list[list[int]] = []
    for _ in range(ranks):
        table.append([model.var() for _ in range(steps)])
    return table


def _choose_roots(model: Model, network: Network, root: list[int], roots: int) -> None:
    model.clause(root)
    linked = {(r.src, r.dst) for r in network.routes}
    pairs: set[tuple[int, int]] = set()
    if roots == 2:
        pairs = {(a, b) for a, b in linked if a < b and (b, a) in linked}
    for a in range(network.ranks):
        for b in range(a):
            if (b, a) not in pairs:
                model.clause([-root[a], -root[b]])
    counts = model.unary_count(root, roots + 1)
    if len(counts) > roots:
        model.clause([-counts[roots]])


def _arrivals(
    model: Model, network: Network, chunk: _Chunk, n: int, steps: int, root: list[int], done: list, total: list
) -> None:
    """Add the clauses on what rank n may receive, and on when it holds the total."""
    others = [m for m in range(network.ranks) if m != n]
    all_downs: list[int] = []
    for t in range(steps):
        ups = [(r, chunk.up[r, t]) for r in network.into[n]]
        downs: list[int] = []
        before: list[int] = []  # n holds the total already
        if t:
            downs = [chunk.down[r, t] for r in network.into[n]]
            before = [total[n][t - 1]]
        for r, x in ups:
            # n still has to pass it on, or is a root; two roots exchange in one and the same step
            src = network.routes[r].src
            swap = [chunk.up[b, t] for b in network.out[n] if network.routes[b].dst == src]
            model.clause([-x, -done[n][t], *swap])
            for y in swap:
                model.clause([-x, -y, root[n]])
                model.clause([-x, -y, root[src]])
            if t:
                model.clause([-x, -done[n][t - 1]])
            model.clause([-x, -root[src], root[n]])
            # a root sends up only in a swap
            model.clause([-x, -root[src], *swap])
        _at_most_one(model, [*downs, *before])
        for y in downs:
            model.clause([-y, total[n][t]])
        model.clause([-total[n][t], *before, *downs, root[n]])
        for m in others:  # a root holds the total once every other rank has passed its sum on
            model.clause([-root[n], -total[n][t], done[m][t]])
        all_downs.extend(downs)
    for x in all_downs:
        model.clause([-root[n], -x])
    # ranks that are no roots pass their sum on
    model.clause([root[n], done[n][-1]])


def _at_most_one(model: Model, literals: list[int]) -> None:
    for k, a in enumerate(literals):
        for b in literals[:k]:
            model.clause([-a, -b])


def _decode(translation: TranslatedChunks, chunks: list[_Chunk], steps: int, true: set[int]) -> Schedule:
    sends: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(steps)]
    for rep, chunk in enumerate(chunks):
        for moves, kind in ((chunk.up, "reduce"), (chunk.down, "copy")):
            for (r, t), x in moves.items():
                if x in true:
                    sends[t].setdefault(rep, []).append((r, kind))
    return translation.expand(sends)
