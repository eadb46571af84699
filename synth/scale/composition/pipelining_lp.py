"""Number of chunks that pass each phase of each template by each step: a linear program, then whole chunks.

Variables: X[p, t], the share of the data that has passed phase p after step t, and r[t], the rounds of step t per chunk
of a unit. Minimise the sum of r subject to

    X[p, t] <= X[q, t - 1]                          for every phase q that p waits for
    sum of load[p, k] (X[p, t] - X[p, t-1])  <=  capacity[k] r[t]    for every resource k
    sum of weight * X[last, S - 1] = 1              for every unit, over its templates

Long schedules have a segment of equal steps in their middle, so that the program stays small: the same shares move in
each of its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.scale.composition.phases import Template
from synth.solvers.linear_program import LinearProgram

# Steps before and after the segment of equal steps of a long schedule, beyond the longest chain of phases.
RAMP = 4
# Maximum number of columns of the linear program, which takes a few seconds then.
MOST_COLUMNS = 2_000
# Rounding tolerance: shares of the linear program that are this close below a whole number of chunks count as whole.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Pipelining:
    """``passed[i][p, t]``: chunks of each block of template i that have passed its phase p after step t.

    `chunks` per unit of data, `rounds[t]` of each step.
    """

    passed: tuple[np.ndarray, ...]
    chunks: int
    rounds: np.ndarray

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C."""
        return Fraction(int(self.rounds.sum()), self.chunks)


class PipeliningProgram:
    """The linear program for templates whose phases' loads are rows of `loads`, in the order of the templates."""

    def __init__(self, templates: Sequence[Template], loads: np.ndarray, capacity: np.ndarray) -> None:
        self.templates = tuple(templates)
        self.loads, self.capacity = loads, capacity
        ends = np.cumsum([len(template.phases) for template in templates])
        self.first = [int(end) - len(template.phases) for end, template in zip(ends, templates, strict=True)]
        self.depth = max(max(template.heads()) + 1 for template in templates)
        self.units = sorted({template.unit for template in templates})

    def size(self, steps: int) -> int:
        """Return about the number of columns of the program for `steps` steps."""
        return sum(len(template.phases) for template in self.templates) * len(self._repeats(steps))

    def _repeats(self, steps: int) -> list[int]:
        """Return how often each step of the program is repeated: the middle one of a long schedule stands for many."""
        ramp = self.depth + RAMP
        if steps <= 2 * ramp + 1:
            return [1] * steps
        return [1] * ramp + [steps - 2 * ramp] + [1] * ramp

    def shares(self, steps: int) -> tuple[float, list[np.ndarray]] | None:
        """Return least rounds per chunk in `steps` steps and the shares that have passed each phase after each step.

        None where every template needs more steps, and where there would be more than `MOST_COLUMNS` variables.
        """
        repeats = self._repeats(steps)
        found = _Variables(self, repeats).solve()
        if found is None:
            return None
        value, tables = found
        return value, [_expanded(table, repeats) for table in tables]

    def whole(self, shares: Sequence[np.ndarray], pieces: int) -> Pipelining | None:
        """Return the pipelining with about `pieces` chunks for each block that has all of its unit.

        None where a unit would have another number of chunks than the others.
        """
        counts = self._counts(shares, pieces)
        totals = dict.fromkeys(self.units, 0)
        for template, count in zip(self.templates, counts, strict=True):
            totals[template.unit] += template.weight * count
        chunks = totals[self.units[0]]
        if not chunks or any(total != chunks for total in totals.values()):
            return None
        passed = []
        for template, table, count in zip(self.templates, shares, counts, strict=True):
            passed.append(_whole_chunks(template, table, count))
        return Pipelining(tuple(passed), chunks, self._rounds(passed))

    def _counts(self, shares: Sequence[np.ndarray], pieces: int) -> list[int]:
        """Return the chunks of a block for each template: by largest remainder where units must agree."""
        exact = [float(table[0, -1]) * pieces for table in shares]
        counts = [int(x + TOLERANCE) for x in exact]
        if any(template.weight != 1 for template in self.templates):
            return [max(count, round(x)) for count, x in zip(counts, exact, strict=True)]
        for unit in self.units:
            members = [i for i, template in enumerate(self.templates) if template.unit == unit]
            members.sort(key=lambda i: counts[i] - exact[i])
            lacking = pieces - sum(counts[i] for i in members)
            for i in members[:lacking]:
                counts[i] += 1
        return counts

    def _rounds(self, passed: Sequence[np.ndarray]) -> np.ndarray:
        moved = np.diff(np.concatenate(passed), axis=1, prepend=0)
        if not self.loads.shape[1]:
            return np.ones(moved.shape[1], np.int64)
        needed = -(-(moved.T @ self.loads) // self.capacity)
        return np.maximum(needed.max(axis=1), 1)


def _whole_chunks(template: Template, shares: np.ndarray, count: int) -> np.ndarray:
    """Round the shares of a template down to whole numbers of `count` chunks; phases still wait for each other."""
    steps = shares.shape[1]
    total = shares[0, -1]
    passed = np.zeros(shares.shape, np.int64)
    if not count:
        return passed
    if total > 0:
        passed = np.floor(np.clip(shares / total, 0, 1) * count + TOLERANCE).astype(np.int64)
    passed = np.maximum.accumulate(passed, axis=1)
    for p, (phase, head, tail) in enumerate(zip(template.phases, template.heads(), template.tails(), strict=True)):
        passed[p, :head] = 0
        passed[p, steps - 1 - tail :] = count
        for q in phase.after:
            passed[p, 1:] = np.minimum(passed[p, 1:], passed[q, :-1])
    return passed


class _Variables:
    """Columns and rows of the program for steps of which some are repeated."""

    def __init__(self, program: PipeliningProgram, repeats: list[int]) -> None:
        self.program, self.repeats = program, repeats
        self.count = len(repeats)
        # columns: rounds of each step, then for each template its share and the shares of its phases after each step
        self.columns = self.count
        self.share: dict[int, int] = {}
        self.at: dict[tuple[int, int, int], int] = {}
        for i, template in enumerate(program.templates):
            heads, tails = template.heads(), template.tails()
            if max(h + t for h, t in zip(heads, tails, strict=True)) >= self.count:
                continue
            self.share[i] = self._column()
            for p, (head, tail) in enumerate(zip(heads, tails, strict=True)):
                for t in range(head, self.count - 1 - tail):
                    self.at[i, p, t] = self._column()

    def _column(self) -> int:
        self.columns += 1
        return self.columns - 1

    def _passed(self, i: int, p: int, t: int) -> int | None:
        """Return the column of X[p, t] of template i; None where it is 0."""
        column = self.at.get((i, p, t))
        if column is not None:
            return column
        tail = self.tails[i][p]
        return self.share[i] if t >= self.count - 1 - tail else None

    def solve(self) -> tuple[float, list[np.ndarray]] | None:
        """Return the least rounds per chunk, and the table of shares of each template."""
        templates = self.program.templates
        if {templates[i].unit for i in self.share} != set(self.program.units) or self.columns > MOST_COLUMNS:
            return None
        self.tails = [template.tails() for template in templates]
        costs = [float(n) for n in self.repeats] + [0.0] * (self.columns - self.count)
        program = LinearProgram(costs)
        rows: list[tuple[float | None, dict[int, float], float | None]] = []
        for unit in self.program.units:
            mine = {self.share[i]: float(templates[i].weight) for i in self.share if templates[i].unit == unit}
            rows.append((1.0, mine, 1.0))
        for i in self.share:
            for p, phase in enumerate(templates[i].phases):
                self._order(rows, i, p, phase.after)
        for t in range(self.count):
            rows += self._loads(t)
        program.add_rows(rows)
        solved = program.solve()
        if solved is None:
            return None
        value, x, _ = solved
        return value, [self._table(i, x) for i in range(len(templates))]

    def _order(self, rows: list, i: int, p: int, after: Sequence[int]) -> None:
        for t in range(self.count):
            now, before = self._passed(i, p, t), self._passed(i, p, t - 1) if t else None
            if now is None:
                continue
            if before is not None and before != now:
                rows.append((None, {before: 1.0, now: -1.0}, 0.0))
            for q in after:
                earlier = self._passed(i, q, t - 1) if t else None
                repeats = self.repeats[t]
                if repeats == 1:
                    rows.append((None, _sum([(now, 1.0), (earlier, -1.0)]), 0.0))
                    continue
                # In repeat m of M: before + m (now - before) / M <= earlier + (m - 1) (its now - earlier) / M.
                other = self._passed(i, q, t)
                for m in (1, repeats):
                    a, b = m / repeats, (m - 1) / repeats
                    terms = [(before, 1 - a), (now, a), (earlier, b - 1), (other, -b)]
                    rows.append((None, _sum(terms), 0.0))

    def _loads(self, t: int) -> list:
        program = self.program
        moves: list[tuple[int, int | None, int | None]] = []
        for i in self.share:
            for p in range(len(program.templates[i].phases)):
                now, before = self._passed(i, p, t), self._passed(i, p, t - 1) if t else None
                if now is not None and now != before:
                    moves.append((program.first[i] + p, now, before))
        rows = []
        for k, capacity in enumerate(program.capacity.tolist()):
            terms: list[tuple[int | None, float]] = [(t, -float(capacity) * self.repeats[t])]
            for row, now, before in moves:
                load = float(program.loads[row, k])
                if load:
                    terms += [(now, load), (before, -load)]
            if len(terms) > 1:
                rows.append((None, _sum(terms), 0.0))
        return rows

    def _table(self, i: int, x: list[float]) -> np.ndarray:
        phases = self.program.templates[i].phases
        table = np.zeros((len(phases), self.count))
        if i in self.share:
            for p in range(len(phases)):
                for t in range(self.count):
                    column = self._passed(i, p, t)
                    table[p, t] = 0.0 if column is None else x[column]
        return table


def _sum(terms: Sequence[tuple[int | None, float]]) -> dict[int, float]:
    """Return the coefficients of a sum of terms; a column of None is 0."""
    total: dict[int, float] = {}
    for column, coefficient in terms:
        if column is not None:
            total[column] = total.get(column, 0.0) + coefficient
    return total


def _expanded(table: np.ndarray, repeats: Sequence[int]) -> np.ndarray:
    """Return the table with a column for each step: repeated steps move equal shares."""
    columns = []
    before = np.zeros(len(table))
    for t, count in enumerate(repeats):
        for m in range(1, count + 1):
            columns.append(before + (table[:, t] - before) * (m / count))
        before = table[:, t]
    return np.stack(columns, axis=1)
