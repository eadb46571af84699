"""SAT encoding of allreduce by reduce-broadcast trees: partial sums travel up a tree to a root, or to two adjacent
roots that swap, and the total travels down another tree.

Every rank passes its sum on exactly once, after it has received all sums on the way up. A root that holds the total may
spread it at once, so the phases of different chunks overlap freely. A chunk always takes 2(N-1) sends, the fewest
possible, and needs S >= 2 * (the eccentricity of the edge between the roots) + 1. The encoding needs no contribution
sets, only O(routes * S) variables a chunk. Unsatisfiable proves nothing beyond this class.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise

from synth.encodings.round_variables import limit_loads
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.solvers.boolean_model import Model

Moves = dict[tuple[int, int], int]  # a variable by (route, step)


def encode(translation: TranslatedChunks, steps: int, rounds: int) -> tuple[Model, Callable[[set[int]], Schedule]]:
    """Return the formula, and the function that decodes the set of true variables of a model to a schedule.

    `translation`: the symmetries that chunks have. All ranks end with the same bits: two roots that swap add the same
    two operands.
    """
    model = Model()
    chunks = [_encode_chunk(model, translation.network, steps) for _ in translation.representatives]
    loads: list[dict[int, list[int]]] = [{} for _ in range(steps)]
    for chunk in chunks:
        for moves in chunk:
            for (r, t), x in moves.items():
                loads[t].setdefault(r, []).append(x)
    limit_loads(model, translation.loads, loads, rounds)

    def decode(true: set[int]) -> Schedule:
        sends: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(steps)]
        for representative, chunk in enumerate(chunks):
            for moves, kind in zip(chunk, ("reduce", "copy"), strict=True):
                for (r, t), x in moves.items():
                    if x in true:
                        sends[t].setdefault(representative, []).append((r, kind))
        return translation.expand(sends)

    return model, decode


def _encode_chunk(model: Model, network: Network, steps: int) -> tuple[Moves, Moves]:
    """Add the formula of one chunk, and return the variables of its sends up and down; a swap of two roots is two ups
    of one step between them."""
    ranks, up, down = range(network.ranks), Moves(), Moves()
    far, deep = [0] * network.ranks, [0] * network.ranks  # distance to the farthest rank, and from it
    for n in ranks:
        for m in ranks:
            distance = network.distances[n][m]
            distance = steps if distance is None else distance
            far[n], deep[m] = max(far[n], distance), max(deep[m], distance)

    def at_most_one(literals: list[int]) -> None:
        for a, b in combinations(literals, 2):
            model.clause([-a, -b])

    # done[n][t]: n has sent its sum up by the end of step t; total[n][t]: n holds the total by then
    root = [model.var() for _ in ranks]
    done: list[list[int]] = []
    total: list[list[int]] = []
    for table in (done, total):
        for _ in ranks:
            table.append([model.var() for _ in range(steps)])

    # one root, or two that are linked both ways
    model.clause(root)
    linked = {(r.src, r.dst) for r in network.routes}
    for a, b in combinations(ranks, 2):
        if not {(a, b), (b, a)} <= linked:
            model.clause([-root[a], -root[b]])
    counts = model.unary_count(root, 3)
    if len(counts) > 2:
        model.clause([-counts[2]])
    for n in ranks:
        if far[n] + deep[n] > steps + 1:
            model.clause([-root[n]])

    # what a rank sends: its sum once, and the total only when it holds it, never to a root
    for n in ranks:
        for early, late in [*pairwise(done[n]), *pairwise(total[n])]:
            model.clause([-early, late])
        model.clause([total[n][-1]])
        for t in range(min(deep[n] - 1, steps)):  # the total cannot be anywhere before the farthest contribution is
            model.clause([-total[n][t]])
        model.clause([root[n], done[n][-1]])
        for t in range(steps):
            ups = [model.var() for _ in network.out[n]]
            up |= {(r, t): x for r, x in zip(network.out[n], ups, strict=True)}
            before = [done[n][t - 1]] if t else []
            at_most_one([*ups, *before])
            model.clause([-done[n][t], *before, *ups])
            for x in ups:
                model.clause([-x, done[n][t]])
            for r in network.out[n] if t else ():
                down[r, t] = model.var()
                model.clause([-down[r, t], total[n][t - 1]])
                model.clause([-down[r, t], -root[network.routes[r].dst]])

    # what a rank receives, and when it holds the total
    for n in ranks:
        for t in range(steps):
            for r in network.into[n]:
                # n still has to pass it on, or is a root; two roots exchange in one and the same step
                x, src = up[r, t], network.routes[r].src
                swap = [up[b, t] for b in network.out[n] if network.routes[b].dst == src]
                model.clause([-x, -done[n][t], *swap])
                for y in swap:
                    model.clause([-x, -y, root[n]])
                    model.clause([-x, -y, root[src]])
                if t:
                    model.clause([-x, -done[n][t - 1]])
                model.clause([-x, -root[src], root[n]])
                model.clause([-x, -root[src], *swap])  # a root sends up only in a swap
            downs = [down[r, t] for r in network.into[n] if t]
            held = [total[n][t - 1]] if t else []
            at_most_one([*downs, *held])
            for y in downs:
                model.clause([-y, total[n][t]])
                model.clause([-root[n], -y])
            model.clause([-total[n][t], *held, *downs, root[n]])
            for m in ranks:  # a root holds the total once every other rank has passed its sum on
                if m != n:
                    model.clause([-root[n], -total[n][t], done[m][t]])
    return up, down
