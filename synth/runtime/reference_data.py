"""Random inputs, and the definition of a collective worked out from them: what an executor's outputs are compared with.

Shares nothing with what it checks but the layout of the buffers. Integers, copies, min and max are compared exactly.
A floating sum of n terms in any order differs from the exact one by at most γ·Σ|x|, γ = (n - 1)u / (1 - (n - 1)u), u
the unit roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 4.4; a product by γ·Π|x|). That
would hide much in short types, so half of the elements are whole numbers (sum) or powers of two (prod) whose partial
results are all representable: those are compared exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError, VerificationError
from synth.program.buffer_layout import Layout
from synth.runtime.dtypes import Dtype, divide

Array = np.ndarray
FRESH, PERIOD = 4 << 20, (1 << 16) + 1  # random elements of a rank; the least of a chunk after which they begin anew
BLOCK = 1 << 20  # elements of every chunk that are compared at a time


def inputs(layout: Layout, elements: int, kind: Dtype, op: str, seed: int) -> list[Array]:
    """Random inputs by rank, one row a chunk. Ranks that hold the same unit of a non-combining collective hold the
    same."""
    task = layout.collective
    if not task.combining:
        total = _random(np.random.default_rng([seed]), (task.units * layout.chunks, elements), kind, "copy", 1, 0)
        return [total[list(held)] for held in layout.inputs]
    return [
        _random(np.random.default_rng([seed, rank]), (len(held), elements), kind, op, task.ranks, rank)
        for rank, held in enumerate(layout.inputs)
    ]


def _random(rng: np.random.Generator, shape: tuple[int, int], kind: Dtype, op: str, ranks: int, rank: int) -> Array:
    period = max(PERIOD, FRESH // max(1, shape[0]) | 1)  # odd: no slice is a multiple of it
    if shape[1] > period:
        base, found = _random(rng, (shape[0], period), kind, op, ranks, rank), np.empty(shape, kind.numpy)
        for low in range(0, shape[1], period):
            found[:, low : low + period] = base[:, : shape[1] - low]
        return found
    if kind.digits == 0:
        info = np.iinfo(kind.numpy)
        return rng.integers(info.min, info.max, shape, kind.numpy, endpoint=True)
    sign = rng.choice(np.array([-1.0, 1.0]), shape)
    even = (np.arange(shape[0])[:, None] + np.arange(shape[1])) % 2 == 0
    if op == "prod":
        # whole elements: powers of two from at most 12 ranks, so that no partial product leaves float16's normal range
        turn = (rank + np.arange(shape[1])) % ranks < 12
        whole = np.exp2(rng.integers(-1, 1, shape, endpoint=True) * turn)
        real = np.exp2(rng.uniform(-4 / ranks, 4 / ranks, shape))
    else:
        most = max(1, min(64, 2**kind.digits // ranks))
        whole, real = rng.integers(1, most, shape, endpoint=True).astype(np.float64), rng.uniform(0, 1, shape)
    return (sign * np.where(even, whole, real)).astype(kind.numpy)


class Checked(NamedTuple):
    """`elements` of all outputs were compared, `exact` of them bit by bit in value."""

    elements: int
    exact: int


def check(layout: Layout, kind: Dtype, op: str, given: Sequence[Array], outputs: Sequence[Array]) -> Checked:
    """Compare every element of every output with the collective's definition on the inputs `given`, rows being chunks.

    Raises VerificationError at the first that is wrong: rank, chunk, element, what was found and what is right.
    """
    elements = next((len(rows[0]) for rows in outputs if len(rows)), 0)
    total = exact = 0
    for low in range(0, elements, BLOCK):
        part = slice(low, low + BLOCK)
        done = _check(layout, kind, op, [rows[:, part] for rows in given], [rows[:, part] for rows in outputs], low)
        total, exact = total + done.elements, exact + done.exact
    return Checked(total, exact)


def _check(layout: Layout, kind: Dtype, op: str, given: Sequence[Array], outputs: Sequence[Array], low: int) -> Checked:
    truth = _Truth(layout, kind, op, given)
    right_ones: dict[tuple, tuple[Array, int]] = {}  # what has been found right of a unit, and how much of it exactly
    total = exact = 0
    for rank, wanted in enumerate(layout.outputs):
        chunks = layout.chunks
        for first in range(0, len(wanted), chunks):
            unit, rows = wanted[first] // chunks, outputs[rank][first : first + chunks]
            key = truth.key(unit, rank)
            if key not in right_ones or not _same_bits(right_ones[key][0], rows):
                right_ones[key] = rows, _compare(truth, unit, rank, rows, first, low)
            total += rows.size
            exact += right_ones[key][1]
    return Checked(total, exact)


def _compare(truth: _Truth, unit: int, rank: int, rows: Array, first: int, low: int) -> int:
    """How many of `rows` are compared exactly. Raises VerificationError at the first that is wrong."""
    kind, task, op = truth.kind, truth.layout.collective, truth.op
    right, room = truth.unit(unit, rank)
    found = _wide(rows, kind)
    bad = _wrong(found, right, room)
    if bad.any():
        c, e = (int(x) for x in np.argwhere(bad)[0])
        raise VerificationError(
            f"rank {rank} output chunk {first + c} element {low + e}: found {found[c, e]}, the {task.name}"
            f"{' (' + op + ')' if task.combining else ''} is {right[c, e]}"
            + (f" ± {float(room[c, e]):.3g}" if room is not None and room[c, e] else "")
        )
    return bad.size if room is None else int(np.count_nonzero(room == 0))


def _same_bits(a: Array, b: Array) -> bool:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return bool((a.view(unsigned) == b.view(unsigned)).all())


def _wrong(found: Array, right: Array, room: Array | None) -> Array:
    same = (found == right) | ((found != found) & (right != right))
    if room is None:
        return ~same
    with np.errstate(invalid="ignore"):
        return ~(same | (np.abs(found - right) <= room))


def _wide(values: Array, kind: Dtype) -> Array:
    """In a type in which the reference is computed: integers as they are, floats in float64 (float64 in long
    double)."""
    return values if kind.digits == 0 else values.astype(np.longdouble if kind.digits == 53 else np.float64)


class _Truth:
    """What each unit is at each rank, by the definition; remembered by the set of contributions."""

    def __init__(self, layout: Layout, kind: Dtype, op: str, given: Sequence[Array]) -> None:
        self.layout, self.kind, self.op, self.given = layout, kind, op, given
        self.at = [{chunk: i for i, chunk in enumerate(held)} for held in layout.inputs]
        self.known: dict[tuple, tuple[Array, Array | None]] = {}

    def key(self, unit: int, rank: int) -> tuple:
        """What decides on the right values of `unit` at `rank`: the unit and the ranks that contribute."""
        task = self.layout.collective
        return unit, tuple(sorted(task.wanted(unit, rank) if task.combining else task.pre[unit]))

    def unit(self, unit: int, rank: int) -> tuple[Array, Array | None]:
        """The right values of `unit` at `rank`, and how far from them each element may be; None: not at all."""
        task, (_, ranks) = self.layout.collective, self.key(unit, rank)
        if (unit, ranks) not in self.known:
            rows = [self._rows(r, unit) for r in ranks]
            if not task.combining:
                if any(
                    not np.array_equal(_wide(row, self.kind), _wide(rows[0], self.kind), equal_nan=True)
                    for row in rows[1:]
                ):
                    raise UsageError(
                        f"ranks {', '.join(map(str, ranks))} all hold unit {unit}, but their inputs differ"
                    )
                self.known[unit, ranks] = _wide(rows[0], self.kind), None
            else:
                self.known[unit, ranks] = self._combined(rows)
        return self.known[unit, ranks]

    def _rows(self, rank: int, unit: int) -> Array:
        first = self.at[rank][unit * self.layout.chunks]
        return self.given[rank][first : first + self.layout.chunks]

    def _combined(self, rows: list[Array]) -> tuple[Array, Array | None]:
        kind, op = self.kind, self.op
        if op in ("min", "max"):
            return (np.min if op == "min" else np.max)([_wide(row, kind) for row in rows], axis=0), None
        if kind.digits == 0:
            total = rows[0].copy()
            for row in rows[1:]:
                total = total * row if op == "prod" else total + row
            return (divide(kind, total, len(rows)) if op == "avg" else total), None
        return self._floats(np.stack([_wide(row, kind) for row in rows]))

    def _floats(self, terms: Array) -> tuple[Array, Array]:
        kind, op, n = self.kind, self.op, len(terms)
        own = float(np.finfo(terms.dtype).eps) / 2
        unit = 2.0**-kind.digits + (2.0**-24 if kind.wide else 0)  # wide: rounded to float32, then to the type
        gamma = (n - 1) * unit / (1 - (n - 1) * unit) + (n - 1) * own / (1 - (n - 1) * own)
        if op == "prod":
            total = np.prod(terms, axis=0)
            size = np.abs(total)
            fraction, exponent = np.frexp(terms)
            plain = (np.abs(fraction) == 0.5).all(axis=0) & (np.abs(exponent - 1).sum(axis=0) <= 14)
        else:
            total = np.sum(terms, axis=0)
            size = np.abs(terms).sum(axis=0)
            plain = (terms == np.rint(terms)).all(axis=0) & (size <= 2.0**kind.digits)
        room = np.where(plain, 0, gamma * size * (1 + 4 * n * own))
        if op == "avg" and n > 1:
            total, room = total / n, room / n
            tiny = float(_finfo(kind).smallest_subnormal)
            room = room + (unit + own) * (np.abs(total) + room) + tiny
        return total, room


def _finfo(kind: Dtype) -> Any:
    if kind.name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.finfo(kind.numpy)
    return np.finfo(kind.numpy)
