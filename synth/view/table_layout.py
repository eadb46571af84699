"""The lines of a table for a given number of characters: columns are left out and text is wrapped, words are whole."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from synth.model.printable_text import printable
from synth.view.frontier_text import Report

# Characters between two columns: the widest that fits is taken.
GAPS = (3, 2, 1)
NO_BREAK = "\N{NO-BREAK SPACE}"
# The blank between a number and its unit.
_SIZE = re.compile(r"(?<=\d) (?=(?:[KMGT]?B|µs|ms|s|GB/s)(?![\w/]))")


class _Column(NamedTuple):
    """A column that is shown: its texts, and the characters of its widest cell, widest word of the head, and head."""

    name: str
    right: bool
    cells: tuple[str, ...]
    widest: int
    head_word: int

    @property
    def natural(self) -> int:
        """Characters where nothing is wrapped."""
        return max(self.widest, _width(self.name))

    @property
    def by_words(self) -> int:
        """Characters where the head is wrapped, and the cells are not."""
        return max(self.widest, self.head_word)

    @property
    def least(self) -> int:
        """Characters where head and cells are wrapped; numbers are not."""
        return self.by_words if self.right else max(self.head_word, *map(_longest_word, self.cells))


def report_lines(content: Report, width: int | None = None) -> list[str]:
    """Return the lines of a report: title, table, sentences, at most `width` characters long (None: of any length)."""
    rows = tuple(tuple(map(printable, row)) for row in content.rows)
    content = replace(
        content, title=printable(content.title), rows=rows, sentences=tuple(map(printable, content.sentences))
    )
    lines = _filled(content.title, width) if content.title else []
    left_out: list[str] = []
    if content.rows:
        table, left_out = table_lines(content, width)
        lines += ["", *table, ""]
    for sentence in content.sentences:
        lines += _filled(sentence, width)
    if left_out:
        lines += _filled(f"left out at {width} characters: {', '.join(left_out)} (--wide prints them)", width)
    return lines


def table_lines(content: Report, width: int | None = None) -> tuple[list[str], list[str]]:
    """Return the lines of the table of `content`, and the names of the columns that are left out.

    `width`: characters of a line (None: as many as are needed). Columns move closer, heads are wrapped, the columns of
    `content.optional` are left out, cells of text are wrapped between words, then the last columns are left out, until
    the table fits. No number or word is broken: a table of one column may be wider.
    """
    columns = []
    for i, (name, align) in enumerate(content.columns):
        cells = tuple(row[i] for row in content.rows)
        columns.append(_Column(name, align == "right", cells, max(map(_width, cells), default=0), _longest_word(name)))
    shown, widths, gap = _fitted(columns, list(content.optional), width)
    kept = {id(column) for column in shown}
    left_out = list(dict.fromkeys(column.name for column in columns if id(column) not in kept))
    lines = []
    if any(column.name for column in columns):
        lines += _row([column.name for column in shown], shown, widths, gap)
        lines.append("─" * (sum(widths) + gap * (len(widths) - 1)))
    for cells in zip(*(column.cells for column in shown), strict=True):
        lines += _row(cells, shown, widths, gap)
    return lines, left_out


def _fitted(columns: list[_Column], optional: list[str], width: int | None) -> tuple[list[_Column], list[int], int]:
    """Return the columns that are shown, their widths and the gap between them."""
    shown = list(columns)
    if width is None:
        return shown, [column.natural for column in shown], GAPS[0]
    while True:
        for gap in GAPS[:2]:
            natural = [column.natural for column in shown]
            by_words = [column.by_words for column in shown]
            for widths in (natural, by_words):
                if _total(widths, gap) <= width:
                    return shown, _relaxed(widths, shown, gap, width), gap
        rest = [column for column in shown if optional and column.name != optional[0]]
        if optional:
            optional = optional[1:]
            shown = rest or shown
            continue
        for gap in GAPS[1:]:
            if _total([column.least for column in shown], gap) <= width:
                return shown, _wrapped(shown, gap, width), gap
        if len(shown) < 2:
            return shown, [column.least for column in shown], GAPS[0]
        shown = shown[:-1]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _relaxed(widths: list[int], columns: Sequence[_Column], gap: int, width: int) -> list[int]:
    """Return the widths, with heads on one line where characters are left."""
    for i, column in enumerate(columns):
        spare = width - _total(widths, gap)
        widths[i] += max(min(column.natural - widths[i], spare), 0)
    return widths


def _wrapped(columns: Sequence[_Column], gap: int, width: int) -> list[int]:
    """Return widths at which the table fits: what exceeds is taken from the widest column of text, again and again."""
    widths = [column.by_words for column in columns]
    while (excess := _total(widths, gap) - width) > 0:
        spare = [widths[i] - column.least for i, column in enumerate(columns)]
        at = max((i for i in range(len(widths)) if spare[i]), key=lambda i: widths[i])
        others = [widths[i] for i in range(len(widths)) if spare[i] and i != at and widths[i] < widths[at]]
        widths[at] -= min(excess, spare[at], widths[at] - max(others, default=0))
    return widths


def _row(cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int], gap: int) -> list[str]:
    """Return the lines of one row of the table: its cells beside each other, wrapped to the widths of their columns.

    `cells`, `columns` and `widths` have one entry for each column. `gap`: spaces between two columns.
    """
    parts = [_split(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for k in range(max(map(len, parts))):
        texts = []
        for part, column, width in zip(parts, columns, widths, strict=True):
            text = part[k] if k < len(part) else ""
            space = " " * (width - _width(text))
            texts.append(space + text if column.right else text + space)
        lines.append((" " * gap).join(texts).rstrip())
    return lines


def _filled(text: str, width: int | None) -> list[str]:
    """Return `text` in lines of `width` characters that end between words."""
    return [text] if width is None else _split(text, width)


def _split(text: str, width: int) -> list[str]:
    if _width(text) <= width:
        return [text]
    lines = textwrap.wrap(_bound(text), width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def _longest_word(text: str) -> int:
    return max(map(_width, _bound(text).split(" ")), default=0)


def _bound(text: str) -> str:
    """Return `text` with blanks between a number and its unit at which no line ends."""
    return _SIZE.sub(NO_BREAK, text)


def _width(text: str) -> int:
    """Return the characters that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
