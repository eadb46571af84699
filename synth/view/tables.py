"""Tables as lines of text and as HTML, and the table of a schedule."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from html import escape
from itertools import zip_longest

from synth.model.documents.int_ranges import runs
from synth.model.documents.printable_text import printable
from synth.model.outcome import Cost
from synth.model.rational import show
from synth.model.schedule import Schedule, SwitchSend
from synth.view.frontier_text import Report, title

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


def print_report(*contents: Report) -> None:
    """Print tables one after another, on a terminal no wider than it; an empty line precedes each later title."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for place, content in enumerate(contents):
        if place and content.title:
            print()
        for line in report_lines(content, width):
            print(line)


def schedule_report(schedule: Schedule, cost: Cost, labels: Sequence[int] = ()) -> Report:
    """Return the steps of a schedule: rounds, and the path of each chunk. `labels`: the machine's names of ranks."""
    columns = (">step", ">rounds", ">sends", "what")
    arrow = {"copy": ">", "reduce": "+>", "copy-input": "in>", "reduce-input": "in+>"}
    rows = []
    for i, step in enumerate(schedule.steps, 1):
        sends = [f"{send.chunk}:{send.src}{arrow[send.kind]}{send.dst}" for send in step.sends]
        sends += [_switch_send(send) for send in step.switch_sends]
        remote = sum(not send.local for send in step.sends) + len(step.switch_sends)
        more = f" and {len(sends) - 8} more" if len(sends) > 8 else ""
        rows.append((str(i), str(step.rounds), str(remote), " ".join(sends[:8]) + more))
    # The cost of the schedule, and the signs of its sends.
    by = f", found by {cost.engine} in {cost.cpu:.2f} s of CPU" if cost.engine else ""
    cost_line = (
        f"C={schedule.chunks}, S={len(schedule.steps)}, R={schedule.rounds}: {show(schedule.rounds_per_chunk)} rounds "
        f"per chunk{by}"
    )
    key = "chunk:source>destination; +> adds, in> sends the original contribution"
    if any(s.local for step in schedule.steps for s in step.sends):
        key += ", to the rank itself: adds it again, without a link"
    if schedule.uses_multicast:
        key += "; 0>{0-7} is a multicast, 0<+{0-7} fetches a sum"
    key += "; --format json has all sends"
    return Report.of(title(schedule.network, schedule.collective, labels), columns, rows, (cost_line, key))


def _switch_send(send: SwitchSend) -> str:
    arrow = {"multicast": ">", "multicast-reduce": "+>", "fetch-reduce": "<+"}[send.kind]
    members = []
    for first, last in runs(send.group):
        members.append(str(first) if first == last else f"{first}-{last}")
    return f"{send.chunk}:{send.rank}{arrow}{{{','.join(members)}}}"
