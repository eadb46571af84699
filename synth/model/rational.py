"""Exact numbers, sizes, times and names in and out of text. Bandwidths and bounds are `int` or `Fraction`, never
float."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from synth.errors import UsageError

# A number that callers give: a float counts as the decimal that Python prints for it, text as it is written.
Number: TypeAlias = int | float | str | Fraction | Decimal

_NUMBER = re.compile(r"[+-]?(\d{1,18}(\.\d{0,18})?|\.\d{1,18})(e[+-]?\d{1,2})?$|[+-]?\d{1,18}/\d{1,18}$", re.IGNORECASE)

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]?)i?b?$", re.IGNORECASE)
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

_DURATION = re.compile(
    r"(?:(\d{1,9}(?:\.\d{1,9})?)h)?(?:(\d{1,9}(?:\.\d{1,9})?)m(?:in)?)?(?:(\d{1,9}(?:\.\d{1,9})?)s?)?$", re.IGNORECASE
)


def rational(value: object) -> Fraction:
    """`value` as an exact fraction. Decimals are read from their text: ``0.1`` is 1/10, ``"3/7"`` is 3/7.

    Raises ValueError for anything that is not a finite number of reasonable length (NaN, infinities, booleans).
    """
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, Fraction | int):
        return Fraction(value)
    text = float.__repr__(value) if isinstance(value, float) else str(value).strip()
    if not _NUMBER.match(text):
        raise ValueError(f"{text[:40]!r} is not a number such as 25, 12.5 or 7/2")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError(f"{text!r} divides by zero") from None


def given_number(value: Number, what: str) -> Fraction:
    """Return `rational(value)`. Raises UsageError, in which `what` names the value, for one that is no number."""
    if type(value) is Fraction:
        return value
    try:
        return rational(value)
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from None


def size_bytes(value: int | str) -> int:
    """Bytes, at least 1, of a number or of ``64``, ``1KB`` (1024 bytes), ``1.5MB``, ``1GB``. Raises ValueError for
    anything else."""
    parts = _SIZE.match(str(value).strip()) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if parts is None:
        raise ValueError(f"{value!r} is not a size such as 512, 64KB, 1MB or 1GB (1KB = 1024 bytes)")
    size = int(Fraction(parts[1]) * _SCALE[parts[2].lower()])
    if size < 1:
        raise ValueError(f"{value!r} is less than one byte")
    return size


def duration(value: str) -> float:
    """Seconds, above 0, of ``30s``, ``5m``, ``1h30m`` or a bare number of seconds. Raises ValueError for anything
    else."""
    # Every part may be missing, but not all of them.
    text = value.strip()
    parts = _DURATION.match(text.replace(" ", ""))
    if not text or parts is None:
        raise ValueError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise ValueError(f"{text!r} is no time at all; give at least a second, or leave it out for no limit")
    return total


def show(value: Fraction | int) -> str:
    """``7/2``, or ``3`` when whole."""
    return str(Fraction(value))


def factor_text(value: Fraction | int | None, bound: Fraction | int | None) -> str:
    """Return `value` / `bound` with two digits; "" where either is not known, or the bound is 0."""
    return "" if value is None or not bound else f"{float(value / bound):.2f}"


def counted(count: int, what: str) -> str:
    """``1 rank``, ``2 ranks``, ``3 classes``, ``0 latencies``."""
    if count == 1:
        return f"1 {what}"
    if what.endswith(("s", "x", "ch")):
        return f"{count} {what}es"
    return f"{count} {what[:-1]}ies" if what.endswith("y") and what[-2] not in "aeou" else f"{count} {what}s"


def gcd(values: Iterable[Fraction]) -> Fraction:
    """Return the greatest fraction of which every value is a multiple. Raises ValueError when there is none to
    divide."""
    # Of a/b and c/d it is gcd(a·d, c·b) / (b·d).
    numerator, denominator = 0, 1
    for value in values:
        numerator = math.gcd(numerator * value.denominator, value.numerator * denominator)
        denominator *= value.denominator
        shrink = math.gcd(numerator, denominator)
        numerator, denominator = numerator // shrink, denominator // shrink
    if numerator == 0:
        raise ValueError("no values")
    return Fraction(numerator, denominator)


def printable(text: object) -> str:
    """`text`, a name from a file, that may go to a terminal. Raises ValueError for control characters and what is no
    text."""
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"the name {text!r} is no line of printable text")
    return text
