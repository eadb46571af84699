"""Random inputs, and the outputs that a collective's definition gives for them, to compare an executor's outputs with.

This module shares only the layout of the buffers with the code that it checks. Integers, copies, min and max are
compared exactly.
A floating sum of n terms in any order differs from the exact one by at most γ·Σ|x|, γ = (n - 1)u / (1 - (n - 1)u), u
the unit roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 2002, eq. 4.4; a product by γ·Π|x|). That
would hide many errors in short types, so half of the elements are integers (sum) or powers of two (prod) whose partial
results are all representable: those are compared exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError, VerificationError
from synth.model.collective import Collective
from synth.program.buffer_layout import Layout
from synth.runtime.dtypes import Dtype, divide
from synth.runtime.slicing import Padding

Array = np.ndarray
# Maximum random elements of a rank, and minimum period of a chunk: longer chunks repeat with that period.
FRESH, PERIOD = 1 << 20, (1 << 16) + 1
BLOCK = 1 << 20  # elements of every chunk that are compared at a time, which limits the memory of the comparison


def random_inputs(layout: Layout, elements: int, kind: Dtype, op: str, seed: int) -> list[Array]:
    """Return random inputs by rank, one row a chunk; every holder of a unit that is only copied has the same values."""
    task = layout.collective
    if not task.combining:
        total = _random(np.random.default_rng([seed]), (task.units * layout.chunks, elements), kind, "copy", 1, 0)
        return [total[list(held)] for held in layout.inputs]
    return [
        _random(np.random.default_rng([seed, rank]), (len(held), elements), kind, op, task.ranks, rank)
        for rank, held in enumerate(layout.inputs)
    ]


def padded_inputs(task: Collective, parts: Padding, kind: Dtype, op: str, seed: int) -> list[Array]:
    """Return random inputs of a call of `parts` by rank, one row a chunk, padding included."""
    values = random_inputs(parts.layout(task), parts.row_elements, kind, op, seed)
    held = Layout(task, parts.chunks).inputs
    return [parts.rows(rows, len(chunks)) for rows, chunks in zip(values, held, strict=True)]


def _random(rng: np.random.Generator, shape: tuple[int, int], kind: Dtype, op: str, ranks: int, rank: int) -> Array:
    period = max(PERIOD, FRESH // max(1, shape[0]) | 1)  # odd, so that no slice is a multiple of it
    if shape[1] > period:
        base, values = _random(rng, (shape[0], period), kind, op, ranks, rank), np.empty(shape, kind.numpy)
        for low in range(0, shape[1], period):
            values[:, low : low + period] = base[:, : shape[1] - low]
        return values
    if kind.digits == 0:
        info = np.iinfo(kind.numpy)
        return rng.integers(info.min, info.max, shape, kind.numpy, endpoint=True)
    sign = rng.choice(np.array([-1.0, 1.0]), shape)
    even = (np.arange(shape[0])[:, None] + np.arange(shape[1])) % 2 == 0
    if op == "prod":
        # exact elements: powers of two from at most 12 ranks, so that no partial product leaves float16's normal range
        contributes = (rank + np.arange(shape[1])) % ranks < 12
        exact = np.exp2(rng.integers(-1, 1, shape, endpoint=True) * contributes)
        rounded = np.exp2(rng.uniform(-4 / ranks, 4 / ranks, shape))
    else:
        largest = max(1, min(64, 2**kind.digits // ranks))  # so that every partial sum is representable
        exact = rng.integers(1, largest, shape, endpoint=True).astype(np.float64)
        rounded = rng.uniform(0, 1, shape)
    return (sign * np.where(even, exact, rounded)).astype(kind.numpy)


class ComparisonExtent(NamedTuple):
    """The extent of a comparison: `elements` of all outputs, `exact` of them compared for equality."""

    elements: int
    exact: int


def check(layout: Layout, kind: Dtype, op: str, given: Sequence[Array], outputs: Sequence[Array]) -> ComparisonExtent:
    """Compare every element of every output with the collective's definition on the inputs `given`; rows are chunks.

    Raises VerificationError at the first wrong element, with its rank, chunk, index, value and the right value.
    """
    elements = next((len(rows[0]) for rows in outputs if len(rows)), 0)
    total = exact = 0
    for low in range(0, elements, BLOCK):
        part = slice(low, low + BLOCK)
        inputs_part = [rows[:, part] for rows in given]
        outputs_part = [rows[:, part] for rows in outputs]
        checked = _check(layout, kind, op, inputs_part, outputs_part, low)
        total, exact = total + checked.elements, exact + checked.exact
    return ComparisonExtent(total, exact)


def _check(
    layout: Layout, kind: Dtype, op: str, given: Sequence[Array], outputs: Sequence[Array], low: int
) -> ComparisonExtent:
    """Compare elements from number `low` on of each chunk."""
    collective, chunks = layout.collective, layout.chunks
    at: list[dict[int, int]] = []  # by rank: the row of each chunk of its input
    for held in layout.inputs:
        at.append({chunk: i for i, chunk in enumerate(held)})
    truth: dict[tuple, tuple[Array, Array | None]] = {}  # by unit and contributors: right values and tolerances
    right_ones: dict[tuple, tuple[Array, int]] = {}  # rows that are right, and how many elements must be exact
    total = exact = 0
    for rank, wanted in enumerate(layout.outputs):
        for first in range(0, len(wanted), chunks):
            unit, rows = wanted[first] // chunks, outputs[rank][first : first + chunks]
            contributors = collective.wanted(unit, rank) if collective.combining else collective.pre[unit]
            key = unit, tuple(sorted(contributors))
            total += rows.size
            unsigned = np.dtype(f"u{rows.dtype.itemsize}")
            if key in right_ones and (right_ones[key][0].view(unsigned) == rows.view(unsigned)).all():
                exact += right_ones[key][1]
                continue
            if key not in truth:
                terms = []
                for holder in key[1]:
                    row = at[holder][unit * chunks]
                    terms.append(given[holder][row : row + chunks])
                truth[key] = _combined(kind, op, terms) if collective.combining else _copied(kind, key, terms)

            # An element is right where it is equal, or both are NaN, or it is within the tolerance.
            right, tolerance = truth[key]
            values = _wide(rows, kind)
            bad = ~((values == right) | ((values != values) & (right != right)))
            if tolerance is not None:
                with np.errstate(invalid="ignore"):
                    bad &= ~(np.abs(values - right) <= tolerance)
            if bad.any():
                c, e = (int(x) for x in np.argwhere(bad)[0])
                what = f"{collective.name} ({op})" if collective.combining else collective.name
                within = f" ± {float(tolerance[c, e]):.3g}" if tolerance is not None and tolerance[c, e] else ""
                raise VerificationError(
                    f"rank {rank} output chunk {first + c} element {low + e}: found {values[c, e]}, the {what} is "
                    f"{right[c, e]}{within}"
                )
            right_ones[key] = rows, (bad.size if tolerance is None else int(np.count_nonzero(tolerance == 0)))
            exact += right_ones[key][1]
    return ComparisonExtent(total, exact)


def _wide(values: Array, kind: Dtype) -> Array:
    """Return `values` in the type of the reference: integers as they are, floats in float64, float64 in long double."""
    if kind.digits == 0:
        return values
    return values.astype(np.longdouble if kind.digits == 53 else np.float64)


def _copied(kind: Dtype, key: tuple[int, tuple[int, ...]], rows: list[Array]) -> tuple[Array, None]:
    """Return the values of a unit (unit, holders) that is only copied. Raises UsageError where its holders differ."""
    values = _wide(rows[0], kind)
    for row in rows[1:]:
        if not np.array_equal(_wide(row, kind), values, equal_nan=True):
            raise UsageError(f"ranks {', '.join(map(str, key[1]))} all hold unit {key[0]}, but their inputs differ")
    return values, None


def _combined(kind: Dtype, op: str, rows: list[Array]) -> tuple[Array, Array | None]:
    """Return the sum, product, mean, least or greatest of `rows`, and the tolerance of each element; None: equality."""
    if op in ("min", "max"):
        function = np.min if op == "min" else np.max
        return function([_wide(row, kind) for row in rows], axis=0), None
    if kind.digits == 0:
        total = rows[0].copy()
        for row in rows[1:]:
            total = total * row if op == "prod" else total + row
        return (divide(kind, total, len(rows)) if op == "avg" else total), None

    # The tolerance is 0 where the result must be exact.
    terms = np.stack([_wide(row, kind) for row in rows])
    n = len(terms)
    own = float(np.finfo(terms.dtype).eps) / 2  # unit roundoff of the reference itself
    unit = 2.0**-kind.digits + (2.0**-24 if kind.wide else 0)  # wide: rounded to float32, then to the type
    # γ of the executor's type and γ of the reference's; see the module's docstring
    gamma = (n - 1) * unit / (1 - (n - 1) * unit) + (n - 1) * own / (1 - (n - 1) * own)
    if op == "prod":
        total = np.prod(terms, axis=0)
        size = np.abs(total)
        fraction, exponent = np.frexp(terms)
        # powers of two whose partial products all stay within float16's normal range, 2^-14 to 2^15
        plain = (np.abs(fraction) == 0.5).all(axis=0) & (np.abs(exponent - 1).sum(axis=0) <= 14)
    else:
        total = np.sum(terms, axis=0)
        size = np.abs(terms).sum(axis=0)
        plain = (terms == np.rint(terms)).all(axis=0) & (size <= 2.0**kind.digits)
    tolerance = np.where(plain, 0, gamma * size * (1 + 4 * n * own))
    if op == "avg" and n > 1:
        total, tolerance = total / n, tolerance / n
        tiny = float(_finfo(kind).smallest_subnormal)
        tolerance = tolerance + (unit + own) * (np.abs(total) + tolerance) + tiny
    return total, tolerance


def _finfo(kind: Dtype) -> Any:
    if kind.name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.finfo(kind.numpy)
    return np.finfo(kind.numpy)
