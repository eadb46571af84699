"""The formula that is satisfiable where a schedule of C chunks per unit, S steps and R rounds exists, for copies.

A sum of which each unit ends on one rank is decided by its time reversal. Written from the problem alone, and by no
code of an encoder; a proof in LRAT refutes its clauses by their numbers, so their order and that of the variables is
fixed here, and the hash of a certificate (`dimacs_hash`) is of this very text.

Variables, in this order (steps are counted from 1, times are the ends of steps, 0 is the start):

    more[t][j]       step t has at least j + 2 rounds; j < R - S
    has[n, t]        rank n holds the chunk at time t
    send[l, t]       link l carries the chunk in step t
    auxiliary ones   of `synth.checker.certificates.cardinality`

The variables `has` and `send` are those of one chunk, again for each chunk of each unit. Let a chunk reach rank n at
time `first[n]` at the earliest, by the distance from its holders, and be of use there up to time `last[n]`, by the
distance to its destinations. Variables exist between these times alone: has[n, t] for ranks that do not begin with the
chunk and first[n] ≤ t ≤ last[n], but for a destination at time S, when it must hold it; send[u → v, t] for v that do
not begin with it and first[u] < t ≤ last[v]. A schedule may drop all other sends.

Clauses: a rank sends what it holds; it holds what it held before or received; it receives a chunk at most once; all
rounds are R at most; each link and each limit carries at most its units times the rounds of the step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from synth.checker.certificates.cardinality import Clauses
from synth.checker.certificates.instance import Instance
from synth.checker.fields import need
from synth.errors import UncheckedError, VerificationError

# Possible sends, and rounds of all steps, of a problem whose formula is written: about some gigabytes of clauses.
MAX_SENDS = 4_000_000


class FormulaSize(NamedTuple):
    """C chunks per unit, S steps and R rounds in all."""

    chunks: int
    steps: int
    rounds: int


def dimacs_hash(variables: int, clauses: Sequence[Sequence[int]]) -> str:
    """Return the SHA-256 of the formula as DIMACS text."""
    digest = hashlib.sha256(f"p cnf {variables} {len(clauses)}\n".encode())
    for clause in clauses:
        digest.update((" ".join(map(str, [*clause, 0])) + "\n").encode())
    return digest.hexdigest()


def formula(topology: dict, collective: dict, size: FormulaSize) -> tuple[int, list[list[int]]]:
    """Return the number of variables and the clauses, which every schedule of this size satisfies.

    `topology` and `collective` (one chunk per unit) are the objects of documents. Raises VerificationError for sums
    that are no reversal of copies: those that several ranks want, or nobody, or only a part of. Raises UncheckedError
    where the formula would be too large to be written.
    """
    problem = Instance(topology, collective, False)
    need(not problem.switches, "no formula has the sends of switches that multicast", "certificate.kind")
    sends = len(problem.pre) * size.chunks * max(1, len(problem.links)) * size.steps
    if sends + size.steps * size.rounds > MAX_SENDS:
        raise UncheckedError(
            f"C={size.chunks} S={size.steps} R={size.rounds} takes too large a formula: {sends} sends, "
            f"{MAX_SENDS} are checked",
            "certificate",
        )
    if problem.combining:
        if problem.special or any(len(wanted) != 1 for wanted in problem.post):
            name = collective["name"]
            message = f"no formula decides {name}: its sums are not the reversal of copies"
            raise VerificationError(message, "certificate.kind")
        problem = Instance(topology, collective, True)
    return _formula(problem, size)


def _formula(problem: Instance, size: FormulaSize) -> tuple[int, list[list[int]]]:
    spare = size.rounds - size.steps
    if spare < 0 or size.steps < 1:
        return 0, [[]]
    more = [range(t * spare + 1, (t + 1) * spare + 1) for t in range(size.steps)]
    rows: list[list[int]] = []
    for levels in more:
        rows.extend([-high, low] for low, high in pairwise(levels))
    variables = size.steps * spare
    received: list[list[int]] = []  # of each, at most one is true
    units: list[_Unit] = []
    for unit in range(len(problem.pre)):
        chunk = _Chunk(problem, unit, size.steps)
        starts = range(variables, variables + size.chunks * chunk.size, chunk.size) if chunk.size else range(0)
        variables += size.chunks * chunk.size
        units.append(_Unit(chunk.sends, starts))
        if chunk.unreachable:
            rows.append([])
            continue
        for start in starts:
            rows.extend(_shifted(chunk.rows, start))
            received.extend(_shifted(chunk.received, start))
    result = Clauses(variables, rows)
    if spare and size.steps > 1:
        result.at_most([list(levels) for levels in more], spare, ())
    for row in received:
        result.at_most_one(row)
    _bound_loads(result, problem, units, more)
    return result.variables, result.rows


def _shifted(rows: Sequence[Sequence[int]], start: int) -> Iterator[list[int]]:
    """Yield the clauses of one chunk with `start` added to their variables."""

    def literal(x: int) -> int:
        return x + start if x > 0 else x - start

    for row in rows:
        yield list(map(literal, row))


class _Sends(NamedTuple):
    """The variables of one link for one chunk: `base + t` in step t, for each t of `steps`."""

    base: int
    steps: range


class _Chunk:
    """Variables (from 1) and clauses of one chunk of a unit.

    `received`: for each rank the sends that bring it the chunk. `unreachable`: a destination is too far for the steps.
    """

    def __init__(self, problem: Instance, unit: int, steps: int) -> None:
        holders, destinations = problem.pre[unit], problem.post[unit].keys() - problem.pre[unit]
        self.size = 0
        self.sends: dict[int, _Sends] = {}
        self.rows: list[list[int]] = []
        self.received: list[list[int]] = []
        self.unreachable = False
        if not destinations:
            return
        first = _distances(problem, holders, steps + 1, forwards=True)
        last = [steps - d for d in _distances(problem, destinations, steps + 1, forwards=False)]
        self.unreachable = any(first[n] > steps for n in destinations)
        has: dict[int, int] = {}  # has[n, t] is has[n] + t
        for n in range(problem.ranks):
            if n not in holders and first[n] <= last[n]:
                has[n] = self.size + 1 - first[n]
                self.size += max(0, last[n] - (n in destinations) - first[n] + 1)
        entering: list[list[_Sends]] = [[] for _ in range(problem.ranks)]
        for link, (u, v, _) in enumerate(problem.links):
            if v not in holders and first[u] < last[v] and u != v:
                sends = _Sends(self.size - first[u], range(first[u] + 1, last[v] + 1))
                self.sends[link] = sends
                self.size += len(sends.steps)
                entering[v].append(sends)
        for link, sends in self.sends.items():
            u = problem.links[link][0]
            if u not in holders:
                self.rows.extend([-(sends.base + t), has[u] + t - 1] for t in sends.steps)
        for n, base in has.items():
            brought: list[int] = []
            for t in range(first[n], last[n] + 1):
                arrivals = [sends.base + t for sends in entering[n] if t in sends.steps]
                brought += arrivals
                before = [base + t - 1] if t > first[n] else []
                must_hold = n in destinations and t == steps
                self.rows.append(([] if must_hold else [-(base + t)]) + before + arrivals)
            self.received.append(brought)


class _Unit(NamedTuple):
    """The sends of one chunk by link, and for each chunk what is to be added to their variables."""

    sends: dict[int, _Sends]
    starts: range


def _bound_loads(result: Clauses, problem: Instance, units: Sequence[_Unit], more: Sequence[range]) -> None:
    """Each link, then each limit, carries at most its units times the rounds of each step."""
    members = [((i,), capacity) for i, (_, _, capacity) in enumerate(problem.links)]
    for links, capacity in [*members, *problem.limits]:
        loads: list[list[int]] = [[] for _ in more]
        for unit in units:
            for sends in [unit.sends[link] for link in links if link in unit.sends]:
                for t in sends.steps:
                    loads[t - 1].extend([sends.base + t + start for start in unit.starts])
        for load, levels in zip(loads, more, strict=True):
            if len(load) <= capacity:
                continue
            if capacity == 1 and not levels:
                result.at_most_one(load)
            else:
                result.at_most(_by_literal(load), capacity, levels)


def _by_literal(literals: Sequence[int]) -> list[list[int]]:
    """Equal literals side by side, which are a sorted vector; a limit may count a link several times."""
    vectors: dict[int, list[int]] = {}
    for x in literals:
        vectors.setdefault(x, []).append(x)
    return list(vectors.values())


def _distances(problem: Instance, sources: Collection[int], infinite: int, forwards: bool) -> list[int]:
    """Fewest links from the nearest of `sources` to each rank, or to it where not `forwards`; at most `infinite`.

    By layers, as no distance above the number of steps is asked for.
    """
    neighbours: list[list[int]] = [[] for _ in range(problem.ranks)]
    for u, v, _ in problem.links:
        a, b = (u, v) if forwards else (v, u)
        neighbours[a].append(b)
    distances = [infinite] * problem.ranks
    layer = list(sources)
    for n in layer:
        distances[n] = 0
    for distance in range(1, infinite):
        layer = list({v for u in layer for v in neighbours[u] if distances[v] == infinite})
        if not layer:
            break
        for v in layer:
            distances[v] = distance
    return distances
