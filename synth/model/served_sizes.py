"""Ranges of sizes that files serve, and the texts on them and on the sizes that are left to the library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from synth.model.number_text import size_text

LISTED = 2  # maximum ranges without a size of the table that a sentence lists; of more it has the number and the ends


class SizeSpan(NamedTuple):
    """The sizes from `low` to `high` bytes, both included; None: no end."""

    low: int
    high: int | None

    def covers(self, size: int) -> bool:
        """True if `size` is in the range."""
        return self.low <= size and (self.high is None or size <= self.high)


def span_text(low: int, high: int | None) -> str:
    """Return ``1 KB to 2 MB``, ``1 KB`` where both ends read the same, ``1 KB and more`` without an end."""
    if high is None:
        return f"{size_text(low)} and more"
    return " to ".join(dict.fromkeys((size_text(low), size_text(high))))


def served_text(served: Sequence[SizeSpan], sizes: Sequence[int]) -> str:
    """Return the ranges as text, such as ``1 KB to 3.56 MB, and 3 further ranges from 192 MB to 584 MB``.

    `sizes`: those of the table's rows. Ranges that contain one of them are listed, the further ones only if they are
    few. "none" where nothing is served.
    """
    covering = {span for span in served for size in sizes if span.covers(size)}
    listed = [span for span in served if span in covering]
    further = [span for span in served if span not in covering]
    if not served:
        return "none"
    texts = [span_text(*span) for span in listed]
    if further:
        texts.append(("and " if listed else "") + _in_short(further, "further ranges"))
    return ", ".join(texts)


def served_between(run: Sequence[int], served: Iterable[SizeSpan]) -> list[SizeSpan]:
    """Return the ranges that files serve within `run`, growing sizes of the table that are left to the library."""
    return [span for span in served if run[0] < span.low <= run[-1]]


def left_text(run: Sequence[int], served: Sequence[SizeSpan]) -> str:
    """Return the sizes around those of `run`, which are left to the library, as text without what files serve.

    `run`: neighbouring sizes of the table, growing. The range reaches to the next sizes that files serve.
    """
    low, high = run[0], run[-1]
    below = [span.high for span in served if span.high is not None and span.high < low]
    above = [span.low for span in served if span.low > high]
    if below and not any(span.covers(low) for span in served):
        low = max(below) + 1
    if above and not any(span.covers(high) for span in served):
        high = min(above) - 1
    inner = served_between(run, served)
    return span_text(low, high) + (f", but for {_in_short(inner, 'ranges')}" if inner else "")


def _in_short(spans: Sequence[SizeSpan], noun: str) -> str:
    """Return a few ranges as a list, more as their number with the ends of all."""
    if len(spans) <= LISTED:
        return " and ".join(span_text(*span) for span in spans)
    return f"{len(spans)} {noun} from {span_text(spans[0].low, spans[-1].high)}"
