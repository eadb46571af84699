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
from typing import NamedTuple

from synth.checker.certificates import cuts, single_chunk
from synth.checker.certificates.instance import MOST_WORK, Instance
from synth.errors import SynthError, VerificationError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.schedule import Send, problem_fingerprint
from synth.model.topology import Network
from synth.solvers.boolean_model import Model
from synth.solvers.cadical import Cadical
from synth.solvers.cadical_lrat import refute
from synth.solvers.column_generation import generate_columns
from synth.solvers.linear_program import LinearProgram
from synth.solvers.processes.deadline import check_deadline
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


class Column(NamedTuple):
    """A schedule of one chunk of `unit`: the `loads` of its sends by resource and step."""

    unit: int
    loads: tuple[tuple[int, ...], ...]


class _Spent(Exception):
    """A query reached its conflict limit."""


class MixtureGeneration:
    """Column generation for schedules of `steps` steps: restricted master over the known single-chunk schedules.

    The chunks of each unit are summed. At most `most_columns` columns are generated, and a
    query is limited to so many `conflicts`.

    Attributes:
        columns: the known single-chunk schedules.
        shares: for each column the share of the chunks of its unit in the best mixture.
        value: the least R/C of a mixture of the columns; infinite where a unit has none.
        prices: for each resource the price of a send in each step, in units of 1 / `scale`.
        least: for each unit the price of its cheapest column.
    """

    def __init__(self, network: Network, collective: Collective, steps: int, most_columns: int, conflicts: int) -> None:
        self.network, self.collective, self.steps = network, collective, steps
        self.most_columns, self.conflicts = most_columns, conflicts
        self.problem = Instance(network, collective.document, False)
        self.names = {}
        for unit, ranks in enumerate(self.problem.post):
            if not self.problem.pre[unit].issuperset(ranks) or collective.combining:
                self.names[unit] = single_chunk.Variables(self.problem, unit, steps)
        self.resources = [((i,), r.units) for i, r in enumerate(network.routes)]
        self.resources += [(c.routes, c.units) for c in network.caps]
        self.columns: list[Column] = []
        self.shares: list[float] = []
        self._duals: list[float] = []
        self.value, self.scale = float("inf"), 1
        self.least = dict.fromkeys(self.names, 1)
        self.prices = [[0] * steps for _ in self.resources]

    def run(self, above: Fraction) -> LowerBound | None:
        """Return a bound greater than `above`; None if that takes too many columns or conflicts, if a mixture attains
        `above`, or if the proof is too long."""
        try:
            generation = generate_columns(
                self._solve,
                lambda: self.value <= above + SETTINGS.close,
                [self._add_cheaper],
                self.most_columns + 1,
            )
            if generation.ending != "no column" or self.value == float("inf"):
                return None
            return self._proved() if sum(self.least.values()) > above * self.scale else None
        except (_Spent, VerificationError):  # the second: more clauses than a checker takes
            return None

    def _solve(self) -> bool:
        """Solve the master: sets `value`, `shares` and the dual prices of each resource in each step."""
        check_deadline()
        if {column.unit for column in self.columns} != self.names.keys():
            return True
        size = len(self.columns)
        program = LinearProgram([0.0] * size + [1.0] * self.steps)
        rows: list[tuple[float | None, dict[int, float], float | None]] = []
        for k, (_, units) in enumerate(self.resources):
            for t in range(self.steps):
                row = {c: -float(column.loads[k][t]) for c, column in enumerate(self.columns) if column.loads[k][t]}
                rows.append((0.0, row | {size + t: float(units)}, None))
        for unit in self.names:
            rows.append((1.0, {c: 1.0 for c, column in enumerate(self.columns) if column.unit == unit}, None))
        program.add_rows(rows)
        solved = program.solve()
        if solved is None:
            return False
        self.value, x, duals = solved
        self.shares, self._duals = x[:size], [max(y, 0.0) for y in duals[: -len(self.names)]]
        return True

    def _round_prices(self) -> None:
        """Set `scale`, `prices` and `least` by the duals, which come to at most the scale in each step."""
        if not self.shares:
            return
        self.scale, whole = near_integers(self._duals, SETTINGS.denominator, SETTINGS.fine, SETTINGS.close)
        self.prices = [whole[k : k + self.steps] for k in range(0, len(whole), self.steps)]
        for unit in self.names:
            self.least[unit] = min(self._cost(column) for column in self.columns if column.unit == unit)

    def _paid(self) -> list[list[int]]:
        """Return the price of a send over each route, in each step."""
        paid = [[0] * self.steps for _ in self.network.routes]
        for (routes, _), row in zip(self.resources, self.prices, strict=True):
            for r in routes:
                paid[r] = [a + b for a, b in zip(paid[r], row, strict=True)]
        return paid

    def _cost(self, column: Column) -> int:
        cost = 0
        for row, loads in zip(self.prices, column.loads, strict=True):
            cost += sum(a * b for a, b in zip(row, loads, strict=True))
        return cost

    def _add_cheaper(self) -> bool:
        """Add for each unit a single-chunk schedule that costs less than all known ones; return False if there is none.

        Raises `_Spent`.
        """
        added = False
        self._round_prices()
        for unit in self.names:
            check_deadline()
            if self.shares and self.least[unit] == 0:
                continue
            model = Model()
            model.clauses = self._clauses(unit)
            model.variables = max((abs(x) for clause in model.clauses for x in clause), default=0)
            answer = Cadical(0, self.conflicts).solve(model)
            if answer.status not in ("sat", "unsat"):
                raise _Spent
            if answer.status == "sat":
                self.columns.append(self._column(unit, answer.values))
                added = True
        return added

    def _clauses(self, unit: int) -> list[list[int]]:
        self.problem.work = MOST_WORK  # the checker's limit holds for each query by itself
        return single_chunk.clauses(self.problem, unit, self.steps, self._paid(), self.least[unit])

    def _column(self, unit: int, true: Sequence[bool]) -> Column:
        """Return the column of a model, without dead sends."""
        names, steps = self.names[unit], []
        needed = {n for n in range(self.network.ranks) if n in self.collective.post[unit]}
        for t in reversed(range(self.steps)):
            kept = {n for n in needed if true[names.keep[t][n]]}
            sends, read = self._sends(names, t, true, needed)
            steps.append(sends)
            needed = kept | read
        steps.reverse()
        loads = [[0] * self.steps for _ in self.resources]
        first_cap = len(self.network.routes)
        for t, sends in enumerate(steps):
            for send in sends:
                if send.local:
                    continue
                route = self.network.route_index[send.src, send.dst, send.via]
                loads[route][t] += 1
                for k in self.network.caps_of[route]:
                    loads[first_cap + k][t] += 1
        return Column(unit, tuple(map(tuple, loads)))

    def _sends(
        self, names: single_chunk.Variables, t: int, true: Sequence[bool], needed: set[int]
    ) -> tuple[list[Send], set[int]]:
        """Return the sends of step `t` into ranks that are `needed` after it, and the ranks that these sends read."""
        read: set[int] = set()
        replaced = {n for n in needed if not true[names.keep[t][n]]}
        sends: list[Send] = []
        for route, (total, raw) in zip(self.network.routes, names.sent[t], strict=True):
            for x, suffix in ((total, ""), (raw, "-input")):
                if route.dst in needed and true[x]:
                    kind = "copy" if route.dst in replaced else "reduce"
                    replaced.discard(route.dst)
                    kind += suffix
                    sends.append(Send(0, route.src, route.dst, kind, route.via))
                    read |= {route.src} if not kind.endswith("-input") else set()
        for n in sorted(needed):
            if true[names.own[t][n]]:
                sends.append(Send(0, n, n, "copy-input" if n in replaced else "reduce-input"))
        return sends, read

    def _proved(self) -> LowerBound | None:
        """Return the bound of the prices, with the refutation of cheaper schedules of each unit; None without one."""
        chunk = {}
        try:
            for unit, least in self.least.items():
                if not least:
                    continue
                lines = refute(self._clauses(unit))
                if lines is None:
                    return None
                chunk[str(unit)] = [least, single_chunk.packed(lines)]
        except SynthError:  # a step of the proof came without its reasons
            return None
        links: list[list] = []
        for r in self.network.routes:
            links.append(["link", r.src, r.dst, *([list(r.via)] if r.via else [])])
        limits = [["limit", k] for k in range(len(self.network.caps))]
        rows = [[*name, *row] for name, row in zip([*links, *limits], self.prices, strict=True) if any(row)]
        certificate = {
            "kind": "one-chunk", "problem": problem_fingerprint(self.network, self.collective), "steps": self.steps,
            "generators": [], "scale": self.scale, "prices": rows, "chunk": chunk,
        }  # fmt: skip
        value = cuts.check(certificate, self.network, self.collective.document, steps=self.steps)
        return LowerBound(value, certificate)
