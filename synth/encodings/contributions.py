"""SAT encoding of combining collectives by the set of contributions that each address holds after each step.

There is one address for each rank and chunk. In each step its set is the disjoint union of the set it kept, if it kept
it, of its own input, if that is added again, and of all sets it receives: the accumulated value of another rank, or
that rank's plain input. So every contribution at an address comes from exactly one of these. The encoding is complete
for schedules with one address per (chunk, rank) that consist of images of representatives
(`synth.encodings.translated_chunks`). Unsatisfiable proves nothing beyond that class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations, product

from synth.encodings.round_variables import limit_loads
from synth.encodings.translated_chunks import TranslatedChunks
from synth.model.schedule import Schedule
from synth.solvers.boolean_model import Model


@dataclass
class ChunkVariables:
    """Variables of one representative.

    Attributes:
        has: by (rank, contribution, time): the rank holds the contribution.
        total: by (route, step): the route carries the accumulated value of its source.
        raw: by (route, step): the route carries the plain input of its source.
        keep: by (rank, step): the rank keeps the value it holds.
        own: by (rank, step): the rank adds its own input again.
    """

    has: dict[tuple[int, int, int], int] = field(default_factory=dict)
    total: dict[tuple[int, int], int] = field(default_factory=dict)
    raw: dict[tuple[int, int], int] = field(default_factory=dict)
    keep: dict[tuple[int, int], int] = field(default_factory=dict)
    own: dict[tuple[int, int], int] = field(default_factory=dict)


def encode(
    translation: TranslatedChunks, steps: int, rounds: int, local: bool = True
) -> tuple[Model, Callable[[set[int]], Schedule]]:
    """Return the formula, and the function that decodes the set of true variables of a model to a schedule.

    `local`: ranks may add their own inputs again.
    """
    model = Model()
    chunks = [encode_chunk(model, translation, unit, steps, local) for unit in translation.representatives]
    sends: list[dict[int, list[int]]] = [{} for _ in range(steps)]
    for chunk in chunks:
        for moves in (chunk.total, chunk.raw):
            for (r, t), x in moves.items():
                sends[t].setdefault(r, []).append(x)
    limit_loads(model, translation.loads, sends, rounds)
    return model, lambda true: decode(translation, chunks, steps, true)


def encode_chunk(
    model: Model, translation: TranslatedChunks, unit: int, steps: int, local: bool = True
) -> ChunkVariables:
    """Add to `model` the formula of a schedule for one chunk of `unit`, without any limit on loads."""
    network, collective, chunk = translation.network, translation.collective, ChunkVariables()
    near = network.distances
    sources, post = sorted(collective.pre[unit]), collective.post[unit]
    left: list[int] = []  # steps from each rank to the nearest one that wants the chunk
    for n in range(network.ranks):
        left.append(min((d for p in post if (d := near[n][p]) is not None), default=steps + 1))

    # whether a rank has a contribution after so many steps: known at the ends, impossible too early, else a variable
    fixed: dict[tuple[int, int, int], bool] = {(n, 0, i): n == i for n in range(network.ranks) for i in sources}
    for n in post:
        want = collective.wanted(unit, n)
        fixed |= {(n, steps, i): i in want for i in sources}

    def has(n: int, t: int, i: int) -> int | bool:
        if (n, t, i) in fixed:
            return fixed[n, t, i]
        d = near[i][n]
        if d is None or d > t:
            return False
        return variable(chunk.has, (n, i, t))

    def variable(table: dict, key: tuple) -> int:
        if key not in table:
            table[key] = model.var()
        return table[key]

    for t, n in product(range(steps), range(network.ranks)):  # the contents of n after step t (counted from 0)
        if left[n] + t + 1 > steps:
            continue
        keep = chunk.keep[n, t] = model.var()
        arriving: list[tuple[int, int | None, int]] = []  # (sender, None or its raw input, literal)
        for r in network.into[n]:
            src = network.routes[r].src
            there = [held for i in sources if (held := has(src, t, i)) is not False]
            if there:
                total = variable(chunk.total, (r, t))
                arriving.append((src, None, total))
                if src not in sources:  # who contributes always holds something; others may be empty, and send nothing
                    model.clause([-total, *there])
            if t > 0 and src in sources:
                arriving.append((src, src, variable(chunk.raw, (r, t))))
        if local and t > 0 and n in sources:
            arriving.append((n, n, variable(chunk.own, (n, t))))
        model.clause([keep, *(x for _, _, x in arriving)])  # nothing is forgotten without being replaced

        for i in sources:
            # conjunctions of literals: each lets contribution i arrive, at most one does, and one must if n has it then
            ways = [(keep, has(n, t, i))]
            for s, raw, x in arriving:
                ways.append((x, has(s, t, i) if raw is None else raw == i))
            arrivals: list[list[int]] = []
            for way in ways:
                if way[1] is not False:
                    arrivals.append([x for x in way if x is not True])
            for a, b in combinations(arrivals, 2):
                model.clause([-x for x in {*a, *b}])
            after = has(n, t + 1, i)
            if after is not True:
                head = [] if after is False else [after]
                for arrival in arrivals:
                    model.clause(head + [-x for x in arrival])
            if after is not False:
                names = [] if after is True else [-after]
                for arrival in arrivals:
                    if len(arrival) == 1:
                        names.append(arrival[0])
                        continue
                    name = model.var()
                    for x in arrival:
                        model.clause([-name, x])
                    names.append(name)
                model.clause(names)
    return chunk


def decode(translation: TranslatedChunks, chunks: list[ChunkVariables], steps: int, true: set[int]) -> Schedule:
    """Return the schedule that the set `true` of true variables makes of all representatives' `chunks`."""
    network = translation.network
    sends: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(steps)]
    for rep, (unit, chunk) in enumerate(zip(translation.representatives, chunks, strict=True)):
        empty = set(range(network.ranks)) - translation.collective.pre[unit]
        for t in range(steps):
            landing: dict[int, list[tuple[int, str]]] = {}
            for moves, suffix in ((chunk.total, ""), (chunk.raw, "-input")):
                for (r, at), x in moves.items():
                    if at == t and x in true:
                        landing.setdefault(network.routes[r].dst, []).append((r, suffix))
            for arrivals in landing.values():
                arrivals.sort(key=lambda a: (network.routes[a[0]].src, a))
            for (n, at), x in chunk.own.items():  # a rank's own input comes last
                if at == t and x in true:
                    landing.setdefault(n, []).append((-1 - n, "-input"))
            for n, arrivals in landing.items():
                replaced = n in empty or chunk.keep[n, t] not in true
                empty.discard(n)
                kinds = ["reduce"] * len(arrivals)
                if replaced and kinds:
                    kinds[0] = "copy"
                sends[t].setdefault(rep, []).extend(
                    (r, kind + suffix) for (r, suffix), kind in zip(arrivals, kinds, strict=True)
                )
    return translation.expand(sends)
