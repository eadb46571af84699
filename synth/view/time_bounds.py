"""The table of lower bounds in time: a row for each size, with what takes so long."""

from __future__ import annotations

from synth.model.number_text import number, size_text
from synth.model.rational import counted
from synth.model.time_bound import TimeBound
from synth.view.frontier_text import Report


def report(found: TimeBound) -> Report:
    """Return the table of `synth bound --size`."""
    columns = (("size", "right"), ("µs at least", "right"), ("GB/s at most", "right"), ("because of", "left"))
    rows = []
    for row in found.rows:
        gbps = number(row.size / row.microseconds / 1000) if row.microseconds else ""
        rows.append((size_text(row.size), f"{float(row.microseconds):.6g}", gbps, row.reason))
    root = "" if found.root is None else f" from {found.root}"
    title = f"{found.collective_name}{root} on {found.topology.name}: {counted(found.topology.ranks, 'rank')}"
    which = "no program without multicasts and sums in switches" if found.topology.multicast else "no program"
    line = f"{which} is faster, with any number and size of messages; -o writes the certificates for `synth verify`"
    return Report(title, columns, tuple(rows), (line,))
