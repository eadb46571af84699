"""Lower bound on R/C by column generation over single-chunk schedules: prices whose cost every single-chunk schedule
reaches.

A schedule with many chunks is a mixture of single-chunk schedules. The least rounds of a mixture of the known ones is a
linear program, and its dual values price bandwidth. CaDiCaL searches for a single-chunk schedule that costs less than
all known ones. If there is none, the prices bound R/C for every number of chunks, and CaDiCaL's proof is the
certificate (`synth.checker.certificates.single_chunk`). Unlike flows, this sees that one address holds one sum at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

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
from synth.solvers.column_generation import generate_columns
from synth.solvers.linear_program import LinearProgram
from synth.solvers.rationalise import near_integers


@dataclass(frozen=True)
class SingleChunkSettings:
    """Limits of the single-chunk bound.

    Attributes:
        most_variables: Maximum number of variables of one chunk (a DGX-1, two steps: 344); more take many
            minutes.
        columns: Maximum number of columns; problems that need more need many times as many.
        conflicts: Conflict limit of one query.
        denominator: Largest denominator of a simple price.
        fine: Largest scale of prices, and that of prices that are not simple; they are rounded down.
        close: Tolerance for float comparisons.
    """

    most_variables: int = 400
    columns: int = 64
    conflicts: int = 4_000
    denominator: int = 24
    fine: int = 60
    close: float = 1e-6


SETTINGS = SingleChunkSettings()

Loads = tuple[tuple[int, ...], ...]  # number of sends of one chunk, by route and step


def bound(network: Network, collective: Collective, steps: int, above: Fraction) -> LowerBound | None:
    """Return a bound greater than `above` on R/C at `steps` steps, for every number of chunks; None if none is found.

    Only for combining collectives of one unit on few ranks (`SETTINGS.most_variables`). The search is limited by
    counts, so the answer is deterministic.
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
        value = cuts.check(certificate, network.document, collective.document, steps=steps)
    except VerificationError:  # the proof is too long
        return None
    return LowerBound(value, certificate) if value > above else None


def too_few_steps(network: Network, collective: Collective, steps: int) -> LowerBound | None:
    """Return the bound `steps` + 1 on the number of steps, proved by a refutation of schedules of one chunk.

    None if one chunk has a schedule of `steps` steps, if the limited search does not decide, or if the collective is
    none that `bound` accepts.
    """
    if not _small(network, collective, steps):
        return None
    try:
        problem = Instance(network.document, collective.document, False)
        model = Model()
        model.clauses = list(single_chunk.formula(problem, 0, steps))
        model.variables = max((abs(x) for clause in model.clauses for x in clause), default=0)
        lines = refute(model.clauses) if Cadical(0, SETTINGS.conflicts).solve(model).status == "unsat" else None
        if lines is None:
            return None
        certificate = {
            "kind": "too-few-steps", "problem": problem_fingerprint(network, collective), "steps": steps, "unit": 0,
            "proof": single_chunk.packed(lines),
        }  # fmt: skip
        return LowerBound(cuts.check(certificate, network.document, collective.document), certificate)
    except SynthError:  # a step of the proof came without its reasons, or it is too long
        return None


def steps(network: Network, collective: Collective) -> LowerBound:
    """Return the greatest lower bound on the number of steps, by distances (`bounds.steps`) or by `too_few_steps`.

    Raises InfeasibleError as `bounds.steps`.
    """
    least = bounds.steps(network, collective)
    while least.value > 0 and (few := too_few_steps(network, collective, int(least.value))) is not None:
        least = few
    return least


def _small(network: Network, collective: Collective, steps: int) -> bool:
    """Return True if the formula of one chunk has few enough variables."""
    if collective.units != 1 or not collective.combining or steps < 1:
        return False
    return (steps + 1) * network.ranks * (len(collective.pre[0]) + 1) + 2 * steps * len(
        network.routes
    ) <= SETTINGS.most_variables


class _Spent(Exception):
    """A query reached its conflict limit."""


class _Generation:
    """Restricted master over the known single-chunk schedules (as loads)."""

    def __init__(self, network: Network, collective: Collective, steps: int) -> None:
        self.network, self.collective, self.steps = network, collective, steps
        self.problem = Instance(network.document, collective.document, False)
        self.names = single_chunk.Variables(self.problem, 0, steps)
        self.resources = [((i,), r.units) for i, r in enumerate(network.routes)]
        self.resources += [(c.routes, c.units) for c in network.caps]
        self.columns: list[Loads] = []
        self.value, self.least, self.scale = float("inf"), 1, 1
        self.prices = [[0] * steps for _ in self.resources]

    def run(self, above: Fraction) -> dict | None:
        """Return prices and the proof, as fields of the certificate; None if that takes too many columns or a mixture
        attains `above`."""
        generation = generate_columns(
            self._solve, lambda: self.value <= above + SETTINGS.close, [self._add_cheaper], SETTINGS.columns + 1
        )
        proved = generation.ending == "no column" and self.columns and self.least > above * self.scale
        return self._proved() if proved else None

    def _solve(self) -> bool:
        """Solve the master: sets `value`, the least R/C of a mixture of the known schedules, `prices` of each resource
        in each step in units of 1 / `scale`, and `least`, the price of the cheapest known schedule."""
        if not self.columns:
            return True
        size = len(self.columns)
        program = LinearProgram([0.0] * size + [1.0] * self.steps)
        rows: list[tuple[float | None, dict[int, float], float | None]] = []
        for routes, units in self.resources:
            for t in range(self.steps):
                row: dict[int, float] = {}
                for c, loads in enumerate(self.columns):
                    load = sum(loads[r][t] for r in routes)
                    if load:
                        row[c] = -float(load)
                rows.append((0.0, row | {size + t: float(units)}, None))
        program.add_rows([*rows, (1.0, dict.fromkeys(range(size), 1.0), None)])
        solved = program.solve()
        if solved is None:
            return False
        self.value, _, duals = solved
        self.scale, self.prices = self._whole(duals[:-1])
        self.least = min(self._cost(known) for known in self.columns)
        return True

    def _whole(self, dual: Sequence[float]) -> tuple[int, list[list[int]]]:
        """Return a scale and the dual prices as integers, of total value at most the scale in each step."""
        dual = [max(y, 0.0) for y in dual]
        scale, whole = near_integers(dual, SETTINGS.denominator, SETTINGS.fine, SETTINGS.close)
        return scale, [whole[k : k + self.steps] for k in range(0, len(whole), self.steps)]

    def _paid(self) -> list[list[int]]:
        """Return the price of a send over each route, in each step."""
        paid = [[0] * self.steps for _ in self.network.routes]
        for (routes, _), row in zip(self.resources, self.prices, strict=True):
            for r in routes:
                paid[r] = [a + b for a, b in zip(paid[r], row, strict=True)]
        return paid

    def _cost(self, loads: Loads) -> int:
        cost = 0
        for row, sends in zip(self._paid(), loads, strict=True):
            cost += sum(a * b for a, b in zip(row, sends, strict=True))
        return cost

    def _add_cheaper(self) -> bool:
        """Add a single-chunk schedule that costs less than `least`; return False if there is none. Raises `_Spent`."""
        model = Model()
        model.clauses = self._clauses()
        model.variables = max((abs(x) for clause in model.clauses for x in clause), default=0)
        answer = Cadical(0, SETTINGS.conflicts).solve(model)
        if answer.status not in ("sat", "unsat"):
            raise _Spent
        if answer.status == "sat":
            self.columns.append(self._loads(answer.values))
        return answer.status == "sat"

    def _clauses(self) -> list[list[int]]:
        self.problem.work = MOST_WORK  # the checker's limit holds for each query by itself
        return single_chunk.clauses(self.problem, 0, self.steps, self._paid(), self.least)

    def _loads(self, true: Sequence[bool]) -> Loads:
        """Return the loads of a model, without dead sends."""
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

    def _proved(self) -> dict | None:
        try:
            lines = refute(self._clauses())
        except SynthError:  # a step of the proof came without its reasons
            return None
        if lines is None:
            return None
        links: list[list] = []
        for r in self.network.routes:
            links.append(["link", r.src, r.dst, *([list(r.via)] if r.via else [])])
        limits = [["limit", k] for k in range(len(self.network.caps))]
        rows = [[*name, *row] for name, row in zip([*links, *limits], self.prices, strict=True) if any(row)]
        return {"scale": self.scale, "prices": rows, "chunk": {"0": [self.least, single_chunk.packed(lines)]}}
