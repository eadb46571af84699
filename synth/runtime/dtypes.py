"""Element types and reduction operators of executors, and their rounding.

float16 and bfloat16 are combined in float32 and rounded after each combination; integers wrap. avg is the sum, divided
at the end by the number of contributions (integers: toward zero), so every schedule of it rounds the division once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError, unknown

Array = np.ndarray
OPERATORS = ("sum", "prod", "min", "max", "avg")


class Dtype(NamedTuple):
    """An element type. `digits`: bits of the significand with the leading one; 0 for integers. `wide`: computed in
    float32."""

    name: str
    short: str
    size: int
    digits: int = 0
    wide: bool = False

    @property
    def numpy(self) -> np.dtype:
        """NumPy's type; bfloat16 is that of ml_dtypes, imported here."""
        if self.name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.name)


DTYPES = (
    Dtype("float64", "f64", 8, 53), Dtype("float32", "f32", 4, 24), Dtype("float16", "f16", 2, 11, True),
    Dtype("bfloat16", "bf16", 2, 8, True), Dtype("int8", "i8", 1), Dtype("uint8", "u8", 1), Dtype("int32", "i32", 4),
    Dtype("uint32", "u32", 4), Dtype("int64", "i64", 8), Dtype("uint64", "u64", 8),
)  # fmt: skip
_BY_NAME = {name: dtype for dtype in DTYPES for name in (dtype.name, dtype.short)}
_BY_NAME |= {"half": _BY_NAME["f16"], "float": _BY_NAME["f32"], "double": _BY_NAME["f64"]}
_BY_NAME |= {"fp16": _BY_NAME["f16"], "fp32": _BY_NAME["f32"], "fp64": _BY_NAME["f64"]}


def dtype(name: str | Dtype) -> Dtype:
    """Return the element type called `name`, as in float16, f16 or half. Raises UsageError."""
    if isinstance(name, Dtype):
        return name
    if name.lower() not in _BY_NAME:
        raise UsageError(
            unknown("element type", name, list(_BY_NAME), "executors").replace(
                "`synth list executors` shows them all", _ALL
            )
        )
    return _BY_NAME[name.lower()]


_ALL = "there are " + ", ".join(d.name for d in DTYPES)


def operator(name: str) -> str:
    """Return `name` in lower case. Raises UsageError unless it is one of `OPERATORS`."""
    if name.lower() not in OPERATORS:
        raise UsageError(f"unknown operator {name!r}; there are {', '.join(OPERATORS)}")
    return name.lower()


def combiner(kind: Dtype, op: str) -> Callable[[Array, Array], Array]:
    """Return the function (a, b) -> a ⊕ b, elementwise, into a new array of the same type."""
    function: Any = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    if not kind.wide:
        return function
    numpy = kind.numpy

    def widened(a: Array, b: Array) -> Array:
        return function(a.astype(np.float32), b.astype(np.float32)).astype(numpy)

    return widened


def divide(kind: Dtype, total: Array, count: int) -> Array:
    """Return `total` / `count`, the last step of avg: rounded once, integers toward zero."""
    if kind.digits == 0:
        if total.dtype.kind == "u":
            return total // np.array(count, total.dtype)
        quotient = total.astype(np.int64) // count
        return (quotient + ((quotient < 0) & (quotient * count != total))).astype(total.dtype)
    wide = total.astype(np.float32) if kind.wide else total
    return (wide / np.array(count, wide.dtype)).astype(total.dtype)


def poison(kind: Dtype) -> Any:
    """Return the value that fills unwritten memory: NaN, or the byte pattern 0xA5 in integers."""
    if kind.digits:
        return float("nan")
    return np.frombuffer(b"\xa5" * kind.size, kind.numpy)[0]
