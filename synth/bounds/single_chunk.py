"""Prices that every schedule of one chunk pays for, found by column generation, and the bound that they prove.

A schedule with many chunks is a mixture of schedules for one chunk. The least rounds of a mixture of those known so far
is a linear program; its dual prices bandwidth, and a schedule for one chunk that pays less than all known ones is asked
of CaDiCaL. Where there is none the prices bound R/C for every number of chunks, and CaDiCaL's proof is the certificate
(`synth.checker.certificates.single_chunk`). Flows cannot see what this does: that one address holds one sum at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor

from synth import bounds
from synth.checker.certificates import cuts, single_chunk
from synth.checker.certificates.instance import MOST_WORK, Instance
from synth.errors import SynthError, VerificationError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network
from synth.solvers.boolean_model import Model
from synth.solvers.cadical import Cadical
from synth.solvers.cadical_lrat import refute
from synth.solvers.linear_program import LinearProgram

MOST_VARIABLES = 400  # of one chunk's contents and sends (a DGX-1, two steps: 344): above, minutes were not enough
COLUMNS = 64  # schedules for one chunk that are collected: where these do not do, many times as many are needed
CONFLICTS = 4_000  # of one question
SCALES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 24)  # prices are multiples of 1 / one of these
FINE = 60  # and of about 1 / this where they are not, rounded down
CLOSE = 1e-6

Loads = tuple[tuple[int, ...], ...]  # of each route, at each step: how often one chunk is sent there


def bound(network: Network, collective: Collective, steps: int, above: Fraction) -> LowerBound | None:
    """A bound on R/C at `steps`, for every number of chunks, that is more than `above`; None where none is found.

    For collectives that combine one unit, of few ranks. The effort is limited by counts, so that the answer is always
    the same.
    """
    if not _small(network, collective, steps):
        return None
    try:
        found = _Generation(network, collective, steps).run(above)
    except (_Spent, VerificationError):  # the second: more clauses than a checker takes
        return None
    if found is None:
        return None
    certificate = {
        "kind": "one-chunk",
        "problem": problem_fingerprint(network, collective),
        "steps": steps,
        "generators": [],
        **found,
    }
    try:
        value = cuts.check(certificate, network.to_json(), collective.to_json(1), steps=steps)
    except VerificationError:  # the proof is too long
        return None
    return LowerBound(value, certificate) if value > above else None


def too_few(network: Network, collective: Collective, steps: int) -> LowerBound | None:
    """That more than so many steps are needed, where no schedule for one chunk has so few; None where one has, or that
    is not found out.

    As `bound`, for collectives that combine one unit, of few ranks, with limited effort.
    """
    if not _small(network, collective, steps):
        return None
    try:
        problem = Instance(network.to_json(), collective.to_json(1), False)
        model = Model()
        model.clauses = list(single_chunk.formula(problem, 0, steps))
        model.variables = max((abs(x) for clause in model.clauses for x in clause), default=0)
        lines = refute(model.clauses) if Cadical(0, CONFLICTS).solve(model).status == "unsat" else None
        if lines is None:
            return None
        certificate = {
            "kind": "too-few-steps", "problem": problem_fingerprint(network, collective), "steps": steps, "unit": 0,
            "proof": single_chunk.packed(lines),
        }  # fmt: skip
        return LowerBound(cuts.check(certificate, network.to_json(), collective.to_json(1)), certificate)
    except SynthError:  # a step of the proof came without its reasons, or it is too long
        return None


def steps(network: Network, collective: Collective) -> LowerBound:
    """The least S that is proved, by distances (`bounds.steps`) or because one chunk has no schedule of fewer."""
    least = bounds.steps(network, collective)
    while least.value > 0 and (few := too_few(network, collective, int(least.value))) is not None:
        least = few
    return least


def _small(network: Network, collective: Collective, steps: int) -> bool:
    """Whether what one chunk may do is little enough to be gone through."""
    if collective.units != 1 or not collective.combining or steps < 1:
        return False
    return (steps + 1) * network.ranks * (len(collective.pre[0]) + 1) + 2 * steps * len(
        network.routes
    ) <= MOST_VARIABLES


class _Spent(Exception):
    """A question takes too long."""


class _Generation:
    """The schedules for one chunk that are known (as loads), and the linear program over them."""

    def __init__(self, network: Network, collective: Collective, steps: int) -> None:
        self.network, self.collective, self.steps = network, collective, steps
        self.problem = Instance(network.to_json(), collective.to_json(1), False)
        self.names = single_chunk.Names(self.problem, 0, steps)
        self.resources = [((i,), r.units) for i, r in enumerate(network.routes)] + [
            (c.routes, c.units) for c in network.caps
        ]
        self.columns: list[Loads] = []

    def run(self, above: Fraction) -> dict | None:
        """Prices and the proof, as fields of the certificate; None where it takes too many schedules or mixtures attain
        `above`."""
        scale, prices, least = 1, [[0] * self.steps for _ in self.resources], 1
        while (loads := self._ask(prices, least)) is not None:
            self.columns.append(loads)
            mixture = self._mixture()
            if mixture is None or mixture[0] <= above + CLOSE or len(self.columns) == COLUMNS:
                return None
            scale, prices = self._whole(mixture[1])
            least = min(self._cost(prices, known) for known in self.columns)
        return self._proved(scale, prices, least) if self.columns and least > above * scale else None

    def _mixture(self) -> tuple[float, list[float]] | None:
        """The least R/C of a mixture of the known schedules, and the dual price of each resource at each step (resource
        by resource)."""
        size = len(self.columns)
        program = LinearProgram([0.0] * size + [1.0] * self.steps)
        rows: list[tuple[float | None, dict[int, float], float | None]] = []
        for routes, units in self.resources:
            for t in range(self.steps):
                row = {
                    c: -float(load)
                    for c, loads in enumerate(self.columns)
                    if (load := sum(loads[r][t] for r in routes))
                }
                rows.append((0.0, row | {size + t: float(units)}, None))
        program.add_rows([*rows, (1.0, dict.fromkeys(range(size), 1.0), None)])
        solved = program.solve()
        return None if solved is None else (solved[0], solved[2][:-1])

    def _whole(self, dual: Sequence[float]) -> tuple[int, list[list[int]]]:
        """Dual prices as whole numbers, with their scale: no more than it in any step."""
        dual = [max(y, 0.0) for y in dual]
        scale = next((d for d in SCALES if all(abs(y * d - round(y * d)) < CLOSE for y in dual)), FINE)
        whole = [floor(y * scale + CLOSE) for y in dual]
        return scale, [whole[k : k + self.steps] for k in range(0, len(whole), self.steps)]

    def _paid(self, prices: Sequence[Sequence[int]]) -> list[list[int]]:
        """What a send pays over each route, at each step."""
        paid = [[0] * self.steps for _ in self.network.routes]
        for (routes, _), row in zip(self.resources, prices, strict=True):
            for r in routes:
                paid[r] = [a + b for a, b in zip(paid[r], row, strict=True)]
        return paid

    def _cost(self, prices: Sequence[Sequence[int]], loads: Loads) -> int:
        paid = self._paid(prices)
        return sum(a * b for row, sent in zip(paid, loads, strict=True) for a, b in zip(row, sent, strict=True))

    def _ask(self, prices: Sequence[Sequence[int]], least: int) -> Loads | None:
        """The loads of a schedule for one chunk that pays less than `least`; None where there is none. Raises
        `_Spent`."""
        model = Model()
        model.clauses = self._clauses(prices, least)
        model.variables = max((abs(x) for clause in model.clauses for x in clause), default=0)
        answer = Cadical(0, CONFLICTS).solve(model)
        if answer.status not in ("sat", "unsat"):
            raise _Spent
        return self._loads(answer.values) if answer.status == "sat" else None

    def _clauses(self, prices: Sequence[Sequence[int]], least: int) -> list[list[int]]:
        self.problem.work = MOST_WORK  # each question is one for a checker of its own
        return single_chunk.clauses(self.problem, 0, self.steps, self._paid(prices), least)

    def _loads(self, true: Sequence[bool]) -> Loads:
        """What is sent, without what nothing comes of."""
        loads = [[0] * self.steps for _ in self.network.routes]
        needed = [n in self.collective.post[0] for n in range(self.network.ranks)]
        for t in reversed(range(self.steps)):
            before = [needs and true[self.names.keep[t][n]] for n, needs in enumerate(needed)]
            for r, (route, (total, raw)) in enumerate(zip(self.network.routes, self.names.sent[t], strict=True)):
                if needed[route.dst]:
                    loads[r][t] = true[total] + true[raw]
                    before[route.src] |= true[total]
            needed = before
        return tuple(map(tuple, loads))

    def _proved(self, scale: int, prices: Sequence[Sequence[int]], least: int) -> dict | None:
        try:
            lines = refute(self._clauses(prices, least))
        except SynthError:  # a step of the proof came without its reasons
            return None
        if lines is None:
            return None
        links = [["link", r.src, r.dst, *([list(r.via)] if r.via else [])] for r in self.network.routes]
        limits = [["limit", k] for k in range(len(self.network.caps))]
        rows = [[*name, *row] for name, row in zip([*links, *limits], prices, strict=True) if any(row)]
        return {"scale": scale, "prices": rows, "chunk": {"0": [least, single_chunk.packed(lines)]}}
