"""HTML tables for notebooks: one table, no script, every text escaped."""

from __future__ import annotations

from html import escape

from synth.view.frontier_text import Report


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
