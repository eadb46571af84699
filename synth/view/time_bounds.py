"""The table of lower bounds in time: a row for each size, with what takes so long."""

from __future__ import annotations

from synth.model.bounds.time_bound import TimeBound
from synth.model.number_text import number, size_text
from synth.model.rational import counted
from synth.view.frontier_text import Report


def report(found: TimeBound, ranks: int, protocol: str = "") -> Report:
    """Return the table of `synth bound --sizes`; `protocol`: the one whose launch and links count."""
    columns = (">size", ">µs at least", ">GB/s at most", "because of")
    rows = []
    for row in found.rows:
        gbps = number(row.size / row.microseconds / 1000) if row.microseconds else ""
        rows.append((size_text(row.size), f"{float(row.microseconds):.6g}", gbps, row.reason))
    root = "" if found.root is None else f" from {found.root}"
    title = f"{found.collective}{root} on {found.topology}: {counted(ranks, 'rank')}"
    holds = f"holds for {found.holds_for}, with any number and size of messages"
    if found.certificate is None:
        holds += "; no bound on rounds per chunk is known here, so large sizes may take much longer"
    clock = "bounds are on bare links: predicted times count a launch and each protocol's costs too (--protocol)"
    if protocol:
        launch = max(row.launch for row in found.rows)
        clock = f"bounds are by the clock of predicted times in {protocol}, {number(launch)} µs launch included"
    return Report.of(title, columns, rows, (holds, clock))
