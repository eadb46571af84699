"""HTML tables for notebooks: one table, no script, every text escaped."""

from __future__ import annotations

from html import escape

from synth.model.frontier import Frontier
from synth.view import frontier_text
from synth.view.frontier_text import Report


def frontier_html(frontier: Frontier) -> str:
    """What a notebook shows for a frontier: the table of `synth pareto`."""
    return report_html(frontier_text.frontier(frontier))


def report_html(content: Report) -> str:
    """`content` as an HTML fragment."""
    head = "".join(f'<th style="text-align:{align}">{escape(name)}</th>' for name, align in content.columns)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{align}">{escape(cell)}</td>'
            for cell, (_, align) in zip(row, content.columns, strict=True)
        )
        + "</tr>"
        for row in content.rows
    )
    lines = "".join(f"<div>{escape(line)}</div>" for line in content.sentences)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><b>{escape(content.title)}</b></div>{table}{lines}"


def _cell(text: str, align: str) -> str:
    return f'<td style="text-align:{align}">{escape(text)}</td>'
