"""Combining collectives encoded directly: which contributions each address holds after each step.

One address per rank and chunk. In each step it is the disjoint union of what it kept, if it kept it, of its own input,
if that is added again, and of what it receives: another rank's accumulated value or that rank's raw input. Every
contribution at an address therefore comes from exactly one of these. Complete for schedules with one address per
(chunk, rank) that are made of translates (`synth.encodings.translated_chunks`); unsatisfiable proves nothing beyond
that class.

A representative may be asked to be invariant itself under automorphisms (`Translation.inner`: recursive doubling looks
the same from every rank), which leaves one variable for each orbit of (rank, contribution) pairs and of routes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations

from synth.encodings.round_variables import constrain
from synth.encodings.translated_chunks import Translation
from synth.model.schedule import Schedule
from synth.solvers.boolean_model import Model


@dataclass
class Chunk:
    """The variables of one representative: ``has[n, i, t]``, sends by (route, t), what is kept and whose input is added
    by (rank, t)."""

    has: dict[tuple[int, int, int], int] = field(default_factory=dict)
    total: dict[tuple[int, int], int] = field(default_factory=dict)
    raw: dict[tuple[int, int], int] = field(default_factory=dict)
    keep: dict[tuple[int, int], int] = field(default_factory=dict)
    own: dict[tuple[int, int], int] = field(default_factory=dict)


def encode(
    translation: Translation, steps: int, rounds: int, local: bool = True
) -> tuple[Model, Callable[[set[int]], Schedule]]:
    """The formula, and what turns the set of true variables of a model into a schedule. `local`: inputs may be added
    again."""
    model = Model()
    chunks = [encode_chunk(model, translation, unit, steps, local) for unit in translation.representatives]
    sends: list[dict[int, list[int]]] = [{} for _ in range(steps)]
    for chunk in chunks:
        for moves in (chunk.total, chunk.raw):
            for (r, t), x in moves.items():
                sends[t].setdefault(r, []).append(x)
    constrain(model, translation.loads, sends, rounds)
    return model, lambda true: decode(translation, chunks, steps, true)


def encode_chunk(model: Model, translation: Translation, unit: int, steps: int, local: bool = True) -> Chunk:
    """Adds to `model` what makes a schedule for one chunk of `unit`, whatever it loads the routes with."""
    network, collective = translation.network, translation.collective
    near = network.distances
    same = translation.classes
    sources, post = sorted(collective.pre[unit]), collective.post[unit]
    chunk = Chunk()
    left = [min((d for p in post if (d := near[n][p]) is not None), default=steps + 1) for n in range(network.ranks)]
    fixed: dict[tuple[int, int, int], bool] = {(n, 0, i): n == i for n in range(network.ranks) for i in sources}
    for n in post:
        want = collective.wanted(unit, n)
        fixed |= {(n, steps, i): i in want for i in sources}

    def has(n: int, t: int, i: int) -> int | bool:
        if (n, t, i) in fixed:
            return fixed[n, t, i]
        key = (*same.pairs[n, i], t)
        d = near[i][n]
        if d is None or d > t:
            return False
        if key not in chunk.has:
            chunk.has[key] = model.var()
        return chunk.has[key]

    for t in range(steps):
        for n in range(network.ranks):
            if left[n] + t + 1 > steps or same.ranks[n] != n:
                continue
            _encode_address(model, translation, chunk, has, n, t, sources, local)
    for moves in (chunk.total, chunk.raw):  # routes of one class are used alike
        moves |= {(r, t): moves[rep, t] for r, rep in enumerate(same.routes) for t in range(steps) if (rep, t) in moves}
    for choices in (chunk.keep, chunk.own):
        choices |= {
            (n, t): choices[rep, t] for n, rep in enumerate(same.ranks) for t in range(steps) if (rep, t) in choices
        }
    return chunk


def _encode_address(
    model: Model, translation: Translation, chunk: Chunk, has: Callable, n: int, t: int, sources: list[int], local: bool
) -> None:
    """Address n after step t (counted from 0) against the state before it."""
    network, same = translation.network, translation.classes
    keep = chunk.keep[n, t] = model.var()
    arriving: list[tuple[int, int | None, int]] = []  # (sender, None or its raw input, literal)
    for r in network.into[n]:
        src = network.routes[r].src
        there = [held for i in sources if (held := has(src, t, i)) is not False]
        if there:
            total = _variable(model, chunk.total, (same.routes[r], t))
            arriving.append((src, None, total))
            if src not in sources:  # who contributes always holds something; others may be empty, and then send nothing
                model.clause([-total, *there])
        if t > 0 and src in sources:
            arriving.append((src, src, _variable(model, chunk.raw, (same.routes[r], t))))
    if local and t > 0 and n in sources:
        arriving.append((n, n, _variable(model, chunk.own, (n, t))))
    model.clause([keep, *(x for _, _, x in arriving)])  # nothing is forgotten without being replaced
    for i in sources:
        after = has(n, t + 1, i)
        ways: list[list[int]] = []  # each a conjunction: how contribution i may arrive
        for conjuncts in [
            (keep, has(n, t, i)),
            *((x, has(s, t, i) if raw is None else raw == i) for s, raw, x in arriving),
        ]:
            if conjuncts[1] is not False:
                ways.append([x for x in conjuncts if x is not True])
        for a, b in combinations(ways, 2):
            model.clause([-x for x in {*a, *b}])
        if after is not True:
            for way in ways:
                model.clause([*([] if after is False else [after]), *(-x for x in way)])
        if after is not False:
            names = []
            for way in ways:
                if len(way) == 1:
                    names.append(way[0])
                    continue
                name = model.var()
                for x in way:
                    model.clause([-name, x])
                names.append(name)
            model.clause([*([] if after is True else [-after]), *names])


def _variable(model: Model, table: dict, key: tuple[int, int]) -> int:
    if key not in table:
        table[key] = model.var()
    return table[key]


def decode(translation: Translation, chunks: list[Chunk], steps: int, true: set[int]) -> Schedule:
    """The schedule that the true variables of all representatives' `chunks` make."""
    network = translation.network
    made: list[dict[int, list[tuple[int, str]]]] = [{} for _ in range(steps)]
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
                kinds = ["copy" if replaced and k == 0 else "reduce" for k in range(len(arrivals))]
                made[t].setdefault(rep, []).extend(
                    (r, kind + suffix) for (r, suffix), kind in zip(arrivals, kinds, strict=True)
                )
    return translation.expand(made)
