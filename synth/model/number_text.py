"""Numbers and sizes in bytes as text for people."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


def size_text(size: int | Fraction) -> str:
    """``1 MB``, ``1.5 KB``, ``17 B``; 1 KB = 1024 bytes."""
    for suffix, scale in (("TB", 1 << 40), ("GB", GB), ("MB", MB), ("KB", KB)):
        if size >= scale:
            return f"{number(size / Fraction(scale))} {suffix}"
    return f"{number(size)} B"


def bytes_text(size: int) -> str:
    """``1572864 bytes``, ``1 byte``: all digits without separators, as options take them."""
    return f"{size} byte" if size == 1 else f"{size} bytes"


def number(value: Fraction | int | float) -> str:
    """Three significant digits, never in powers of ten."""
    # Whole from 100 on, three digits down to a thousandth, six places below.
    number = float(value)
    if number == 0:
        return "0"
    if abs(number) >= 100:
        return f"{number:.0f}"
    return f"{number:.3g}" if abs(number) >= 1e-3 else f"{number:.6f}".rstrip("0")


def microseconds(seconds: float | None, estimates: Collection[float] = ()) -> str:
    """Three digits of the µs of a time, after ``~`` where it is one of `estimates`, not of a run; "" for None."""
    if seconds is None:
        return ""
    return f"~{number(seconds * 1e6)}" if seconds in estimates else number(seconds * 1e6)
