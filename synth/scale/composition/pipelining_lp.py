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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from synth.scale.composition.phases import Template
from synth.solvers.linear_program import LinearProgram

# Maximum number of columns of the linear program, which takes a few seconds then.
MOST_COLUMNS = 2_000
# Steps before and after the segment of equal steps of a long schedule, beyond the longest chain of phases.
RAMP = 4
# Maximum number of different resources that are compared with each other.
MOST_COMPARED = 500

# Rounding tolerance: shares of the linear program that are this close below a whole number of chunks count as whole.
TOLERANCE = 1e-6
# Fractions of a chunk that are added before shares are rounded down; the best result counts.
ROUND_UP = (TOLERANCE, 0.5, 1 - TOLERANCE)


class TemplateShares(NamedTuple):
    """A solution of the linear program.

    Attributes:
        value: rounds per chunk.
        rounds: rounds of each step per chunk; equal steps count as one.
        tables: for each template the share that has passed each phase after each step.
    """

    value: float
    rounds: list[float]
    tables: list[np.ndarray]


@dataclass(frozen=True)
class Pipelining:
    """``passed[i][p, t]``: chunks of each block of template i that have passed its phase p after step t.

    `chunks` per unit of data, `rounds[t]` of each step.
    """

    templates: tuple[Template, ...]
    passed: tuple[np.ndarray, ...]
    chunks: int
    rounds: np.ndarray

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C."""
        return Fraction(int(self.rounds.sum()), self.chunks)


class PipeliningProgram:
    """The linear program for templates with the loads of their phases, ``loads[template][phase, resource]``."""

    def __init__(self, templates: Sequence[Template], loads: Sequence[np.ndarray], capacity: np.ndarray) -> None:
        self.templates = tuple(templates)
        self.loads, self.capacity = np.concatenate(loads), capacity
        self.binding = undominated(self.loads, capacity)
        ends = np.cumsum([len(template.phases) for template in templates])
        self.first = [int(end) - len(template.phases) for end, template in zip(ends, templates, strict=True)]
        self.units = sorted({template.unit for template in templates})
        # Of each template the least numbers of steps before each phase, and after it.
        self.ends = [(template.heads(), template.tails()) for template in templates]
        self.depth = max(max(heads) + 1 for heads, _ in self.ends)

    def restricted(self, places: Sequence[int]) -> PipeliningProgram:
        """Return the program for the templates at these places alone."""
        loads = [self.loads[self.first[i] : self.first[i] + len(self.templates[i].phases)] for i in places]
        return PipeliningProgram([self.templates[i] for i in places], loads, self.capacity)

    def size(self, steps: int) -> int:
        """Return about the number of columns of the program for `steps` steps."""
        phases = sum(len(template.phases) for template in self.templates if not template.placed)
        return phases * len(self._repeats(steps)) + len(self.templates)

    def _repeats(self, steps: int) -> list[int]:
        """Return how often each step of the program is repeated: the middle one of a long schedule stands for many."""
        ramp = self.depth + RAMP
        if steps <= 2 * ramp + 1:
            return [1] * steps
        return [1] * ramp + [steps - 2 * ramp] + [1] * ramp

    def shares(self, steps: int, proportions: Sequence[int] = ()) -> TemplateShares | None:
        """Return the shares with the least rounds per chunk in `steps` steps, whose rounds may be given in proportion.

        None where every template needs more steps, and where the program would have too many columns.
        """
        repeats = self._repeats(steps)
        solved = _Variables(self, repeats, proportions).solve()
        if solved is None:
            return None
        return solved._replace(tables=[_expanded(table, repeats) for table in solved.tables])

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
        placed = all(template.placed for template in self.templates)
        ups = np.array(ROUND_UP[:1] if placed else ROUND_UP)
        tables = []
        for template, ends, table, count in zip(self.templates, self.ends, shares, counts, strict=True):
            tables.append(_whole_chunks(template, ends, table, count, ups))
        options = []
        for passed in zip(*tables, strict=True):
            options.append(Pipelining(self.templates, passed, chunks, rounds(passed, self.loads, self.capacity)))
        return min(options, key=lambda found: found.rounds_per_chunk)

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


def rounds(passed: Sequence[np.ndarray], loads: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return the rounds of each step, of which each has one at least."""
    moved = np.diff(np.concatenate(passed), axis=1, prepend=0)
    needed = []
    for chunks in moved.T:
        active = np.flatnonzero(chunks)  # a placed phase moves chunks in one step alone
        needed.append((-(-(chunks[active] @ loads[active]) // capacity)).max(initial=1))
    return np.array(needed)


def _whole_chunks(
    template: Template, ends: tuple[list[int], list[int]], shares: np.ndarray, count: int, ups: np.ndarray
) -> np.ndarray:
    """Round the shares of a template to whole numbers of `count` chunks, up from fractions of 1 - up on for each up of
    `ups`: a table for each. Phases still wait for each other, and keep the least numbers of steps at both `ends`."""
    phases, steps = shares.shape
    if template.placed:
        table = count * (np.arange(steps) >= np.array(template.placed)[:, None])
        return np.repeat(table[None], len(ups), axis=0)
    total = shares[0, -1]
    passed = np.zeros((len(ups), phases, steps), np.int64)
    if not count:
        return passed
    if total > 0:
        passed = np.floor(np.clip(shares / total, 0, 1) * count + ups[:, None, None]).astype(np.int64)
    passed = np.maximum.accumulate(passed, axis=2)
    for p, (phase, head, tail) in enumerate(zip(template.phases, *ends, strict=True)):
        passed[:, p, :head] = 0
        passed[:, p, steps - 1 - tail :] = count
        for q in phase.after:
            passed[:, p, 1:] = np.minimum(passed[:, p, 1:], passed[:, q, :-1])
    return passed


class _Variables:
    """Columns and rows of the program for steps of which some are repeated."""

    def __init__(self, program: PipeliningProgram, repeats: list[int], proportions: Sequence[int]) -> None:
        self.program, self.repeats, self.proportions = program, repeats, proportions
        self.count = len(repeats)
        # columns: rounds of each step, or the unit of all in proportion; then for each template its share and the
        # shares of its phases after each step
        self.costs = list(map(float, [sum(proportions)] if proportions else repeats))
        self.columns = len(self.costs)
        self.share: dict[int, int] = {}
        self.at: dict[tuple[int, int, int], int] = {}
        for i, template in enumerate(program.templates):
            if template.placed:
                self.share[i] = self._column()
                continue
            heads, tails = program.ends[i]
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
        placed = self.program.templates[i].placed
        first = placed[p] if placed else self.count - 1 - self.tails[i][p]
        return self.share[i] if t >= first else None

    def solve(self) -> TemplateShares | None:
        """Return the solution, with one column for each step of the program."""
        templates = self.program.templates
        if {templates[i].unit for i in self.share} != set(self.program.units) or self.columns > MOST_COLUMNS:
            return None
        self.tails = [tails for _, tails in self.program.ends]
        program = LinearProgram(self.costs + [0.0] * (self.columns - len(self.costs)))
        rows: list[tuple[float | None, dict[int, float], float | None]] = []
        for unit in self.program.units:
            mine = {self.share[i]: float(templates[i].weight) for i in self.share if templates[i].unit == unit}
            rows.append((1.0, mine, 1.0))
        for i in self.share:
            if not templates[i].placed:
                for p, phase in enumerate(templates[i].phases):
                    self._order(rows, i, p, phase.after)
        for t in range(self.count):
            rows += [(None, row, 0.0) for row in self._loads(t)]
        program.add_rows(rows)
        solved = program.solve()
        if solved is None:
            return None
        value, x, _ = solved
        rounds = [x[0] * n for n in self.proportions] or x[: self.count]
        return TemplateShares(value, rounds, [self._table(i, x) for i in range(len(templates))])

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

    def _loads(self, t: int) -> Iterator[dict[int, float]]:
        """Yield the row of the load of each resource that binds in step t."""
        program = self.program
        moves: list[tuple[int, int | None, int | None]] = []
        for i in self.share:
            for p in range(len(program.templates[i].phases)):
                now, before = self._passed(i, p, t), self._passed(i, p, t - 1) if t else None
                if now is not None and now != before:
                    moves.append((program.first[i] + p, now, before))
        for k in program.binding:
            capacity = float(program.capacity[k])
            terms: list[tuple[int | None, float]] = [(t, -capacity * self.repeats[t])]
            if self.proportions:
                terms = [(0, -capacity * self.proportions[t])]
            for row, now, before in moves:
                load = float(program.loads[row, k])
                if load:
                    terms += [(now, load), (before, -load)]
            if len(terms) > 1:
                yield _sum(terms)

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


def undominated(loads: np.ndarray, capacity: np.ndarray) -> list[int]:
    """Return the resources whose load per capacity no other dominates; of those with equal loads the first."""
    used = np.flatnonzero(loads.any(axis=0))
    scaled = loads[:, used] / capacity[used]
    alike, first = np.unique(np.round(scaled, 12), axis=1, return_index=True)
    kept = []
    for k in range(alike.shape[1]):
        below = (alike[:, k, None] <= alike).all(axis=0)
        if below.sum() == 1 or alike.shape[1] > MOST_COMPARED:
            kept.append(int(used[first[k]]))
    return kept
