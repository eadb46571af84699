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
    """The linear program for templates with the loads of all their phases, ``loads[phase, resource]``."""

    def __init__(self, templates: Sequence[Template], loads: np.ndarray, capacity: np.ndarray) -> None:
        self.templates, self.loads, self.capacity = tuple(templates), loads, capacity
        self.binding = undominated(loads, capacity)
        self.first = np.cumsum([0, *(len(template.phases) for template in templates)]).tolist()
        self.units = sorted({template.unit for template in templates})
        # Of each template the least numbers of steps before each phase, and after it.
        self.ends = [(template.heads(), template.tails()) for template in templates]
        self.depth = max(max(heads) + 1 for heads, _ in self.ends)

    def restricted(self, places: Sequence[int]) -> PipeliningProgram:
        """Return the program for the templates at these places alone."""
        loads = [self.loads[self.first[i] : self.first[i + 1]] for i in places]
        return PipeliningProgram([self.templates[i] for i in places], np.concatenate(loads), self.capacity)

    def size(self, steps: int) -> int:
        """Return about the number of columns of the program for `steps` steps."""
        free = sum(len(template.phases) for template in self.templates if not template.placed)
        return free * len(self._repeats(steps)) + len(self.templates)

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
        count = len(repeats)

        # Columns: rounds of each step, or the unit of all in proportion; then for each template its share, and the
        # shares of its phases after each step. `passed` has the column of X[p, t] after each step, None where it is 0.
        costs = list(map(float, [sum(proportions)] if proportions else repeats))
        columns = len(costs)
        share: dict[int, int] = {}
        passed: dict[tuple[int, int], list[int | None]] = {}
        for i, (heads, tails) in enumerate(self.ends):
            if self.templates[i].placed:
                heads = self.templates[i].placed
                tails = [count - 1 - t for t in heads]
            if max(head + tail for head, tail in zip(heads, tails, strict=True)) < count:
                share[i] = columns
                columns += 1
                for p, (head, tail) in enumerate(zip(heads, tails, strict=True)):
                    inner = range(columns, columns + count - 1 - tail - head)
                    columns += len(inner)
                    passed[i, p] = [None] * head + [*inner] + [share[i]] * (tail + 1)
        if {self.templates[i].unit for i in share} != set(self.units) or columns > MOST_COLUMNS:
            return None

        # Each unit is served whole, and each phase comes after those that it waits for.
        rows: list[tuple[float | None, dict[int, float], float | None]] = []
        for unit in self.units:
            mine = [i for i in share if self.templates[i].unit == unit]
            rows.append((1.0, {share[i]: float(self.templates[i].weight) for i in mine}, 1.0))
        for (i, p), own in passed.items():
            for t, now in enumerate(own):
                before = own[t - 1] if t else None
                if now is None:
                    continue
                if before is not None and before != now:
                    rows.append((None, {before: 1.0, now: -1.0}, 0.0))
                for q in self.templates[i].phases[p].after:
                    earlier = passed[i, q][t - 1] if t else None
                    # In repeat m of M: before + m (now - before) / M <= earlier + (m - 1) (its now - earlier) / M.
                    for m in sorted({1, repeats[t]}):
                        a, b = m / repeats[t], (m - 1) / repeats[t]
                        terms = [(before, 1 - a), (now, a), (earlier, b - 1), (passed[i, q][t], -b)]
                        rows.append((None, _sum(terms), 0.0))

        # The load of each resource that binds, in each step.
        for t in range(count):
            moves = []
            for (i, p), own in passed.items():
                before = own[t - 1] if t else None
                if own[t] is not None and own[t] != before:
                    moves.append((self.loads[self.first[i] + p].tolist(), own[t], before))
            for k in self.binding:
                capacity = float(self.capacity[k])
                terms = [(0, -capacity * proportions[t]) if proportions else (t, -capacity * repeats[t])]
                for loads, now, before in moves:
                    if loads[k]:
                        terms += [(now, float(loads[k])), (before, -float(loads[k]))]
                if len(terms) > 1:
                    rows.append((None, _sum(terms), 0.0))
        program = LinearProgram(costs + [0.0] * (columns - len(costs)))
        program.add_rows(rows)
        solved = program.solve()
        if solved is None:
            return None

        # The shares after each step; repeated steps move equal shares.
        value, x, _ = solved
        tables = []
        for i, template in enumerate(self.templates):
            table = np.zeros((len(template.phases), count + 1))
            for p, _ in enumerate(template.phases):
                for t, column in enumerate(passed.get((i, p), ()), 1):
                    table[p, t] = 0.0 if column is None else x[column]
            parts = np.diff(table, axis=1)
            portion = np.concatenate([np.arange(1, times + 1) / times for times in repeats])
            tables.append(np.repeat(table[:, :-1], repeats, axis=1) + np.repeat(parts, repeats, axis=1) * portion)
        return TemplateShares(value, [x[0] * n for n in proportions] or x[:count], tables)

    def whole(self, shares: Sequence[np.ndarray], pieces: int) -> Pipelining | None:
        """Return the pipelining with about `pieces` chunks for each block that has all of its unit.

        None where a unit would have another number of chunks than the others.
        """
        # the chunks of a block for each template: by largest remainder where units must agree
        exact = [float(table[0, -1]) * pieces for table in shares]
        counts = [int(x + TOLERANCE) for x in exact]
        if any(template.weight != 1 for template in self.templates):
            counts = [max(count, round(x)) for count, x in zip(counts, exact, strict=True)]
        else:
            for unit in self.units:
                members = [i for i, template in enumerate(self.templates) if template.unit == unit]
                members.sort(key=lambda i: counts[i] - exact[i])
                lacking = pieces - sum(counts[i] for i in members)
                for i in members[:lacking]:
                    counts[i] += 1
        totals = dict.fromkeys(self.units, 0)
        for template, count in zip(self.templates, counts, strict=True):
            totals[template.unit] += template.weight * count
        chunks = totals[self.units[0]]
        if not chunks or any(total != chunks for total in totals.values()):
            return None

        tables = []
        for template, ends, table, count in zip(self.templates, self.ends, shares, counts, strict=True):
            tables.append(_whole_chunks(template, ends, table, count))
        options = []
        for passed in zip(*tables, strict=True):
            options.append(Pipelining(self.templates, passed, chunks, rounds(passed, self.loads, self.capacity)))
        return min(options, key=lambda found: found.rounds_per_chunk)


def rounds(passed: Sequence[np.ndarray], loads: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return the rounds of each step, of which each has one at least."""
    moved = np.diff(np.concatenate(passed), axis=1, prepend=0)
    needed = []
    for chunks in moved.T:
        active = np.flatnonzero(chunks)  # a placed phase moves chunks in one step alone
        needed.append((-(-(chunks[active] @ loads[active]) // capacity)).max(initial=1))
    return np.array(needed)


def _whole_chunks(template: Template, ends: tuple[list[int], list[int]], shares: np.ndarray, count: int) -> np.ndarray:
    """Round the shares of a template to whole numbers of `count` chunks: a table for each fraction of `ROUND_UP`.

    Phases still wait for each other, and keep the least numbers of steps at both `ends`.
    """
    phases, steps = shares.shape
    if template.placed:
        table = count * (np.arange(steps) >= np.array(template.placed)[:, None])
        return np.repeat(table[None], len(ROUND_UP), axis=0)
    total = shares[0, -1]
    passed = np.zeros((len(ROUND_UP), phases, steps), np.int64)
    if not count:
        return passed
    if total > 0:
        parts = np.clip(shares / total, 0, 1) * count
        passed = np.floor(parts + np.array(ROUND_UP)[:, None, None]).astype(np.int64)
    passed = np.maximum.accumulate(passed, axis=2)
    for p, (phase, head, tail) in enumerate(zip(template.phases, *ends, strict=True)):
        passed[:, p, :head] = 0
        passed[:, p, steps - 1 - tail :] = count
        for q in phase.after:
            passed[:, p, 1:] = np.minimum(passed[:, p, 1:], passed[:, q, :-1])
    return passed


def _sum(terms: Sequence[tuple[int | None, float]]) -> dict[int, float]:
    """Return the coefficient of each column in a sum of (column, coefficient) pairs, for a row of the linear program.

    Pairs of one column are added up. A column None stands for a share that is always 0.
    """
    total: dict[int, float] = {}
    for column, coefficient in terms:
        if column is not None and coefficient:
            total[column] = total.get(column, 0.0) + coefficient
    return total


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
