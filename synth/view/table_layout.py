"""The lines of a table: columns as wide as their cells, or wrapped between words where the terminal is narrower."""

from __future__ import annotations

import re
import textwrap
from html import escape
from itertools import zip_longest

from synth.model.documents.printable_text import printable
from synth.view.frontier_text import Report

GAP = 3  # blanks between two columns; 2 in a table that is too wide
NO_BREAK = "\N{NO-BREAK SPACE}"
# The blank between a number and its unit, at which no line ends.
_SIZE = re.compile(r"(?<=\d) (?=(?:[KMGT]?B|µs|ms|s|GB/s)(?![\w/]))")


def report_lines(content: Report, width: int | None = None) -> list[str]:
    """Return the lines of a report: title, table, sentences, at most `width` characters long (None: of any length).

    No word is broken, so a table of many columns may be wider.
    """
    lines = _filled(content.title, width) if content.title else []
    if content.rows:
        heads = [name for name, _ in content.columns]
        rows = [list(map(printable, row)) for row in content.rows]
        cells = [max(map(len, column)) for column in zip(*rows, strict=True)]
        widths = [max(len(head), size) for head, size in zip(heads, cells, strict=True)]
        gap = GAP
        if width is not None and sum(widths) + gap * (len(widths) - 1) > width:
            # Heads are wrapped, then the widest column of text.
            gap = 2
            widths = [max(_longest_word(head), size) for head, size in zip(heads, cells, strict=True)]
            texts = [i for i, (_, align) in enumerate(content.columns) if align == "left"]
            excess = sum(widths) + gap * (len(widths) - 1) - width
            if excess > 0 and texts:
                widest = max(texts, key=lambda i: widths[i])
                least = max(_longest_word(row[widest]) for row in (heads, *rows))
                widths[widest] = max(least, widths[widest] - excess)

        drawn = []
        for row in [heads, *rows] if any(heads) else rows:
            parts = [_filled(cell, size) for cell, size in zip(row, widths, strict=True)]
            for texts_of_line in zip_longest(*parts, fillvalue=""):
                padded = []
                for text, size, (_, align) in zip(texts_of_line, widths, content.columns, strict=True):
                    padded.append(text.rjust(size) if align == "right" else text.ljust(size))
                drawn.append((" " * gap).join(padded).rstrip())
            if row is heads:
                drawn.append("─" * (sum(widths) + gap * (len(widths) - 1)))
        lines += ["", *drawn, ""]
    for sentence in content.sentences:
        lines += _filled(sentence, width)
    return lines


def _longest_word(text: str) -> int:
    return max(map(len, _SIZE.sub(NO_BREAK, text).split(" ")))


def _filled(text: str, width: int | None) -> list[str]:
    text = printable(text)
    if width is None or len(text) <= width:
        return [text]
    lines = textwrap.wrap(_SIZE.sub(NO_BREAK, text), width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


# HTML tables for notebooks: one table, no script, every text escaped.


def report_html(content: Report) -> str:
    """Return `content` as an HTML fragment."""
    head = "".join(f'<th style="text-align:{align}">{escape(name)}</th>' for name, align in content.columns)
    body = ""
    for row in content.rows:
        cells = [
            f'<td style="text-align:{align}">{escape(text)}</td>'
            for text, (_, align) in zip(row, content.columns, strict=True)
        ]
        body += f"<tr>{''.join(cells)}</tr>"
    lines = "".join(f"<div>{escape(line)}</div>" for line in content.sentences)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><b>{escape(content.title)}</b></div>{table}{lines}"
