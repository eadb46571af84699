"""The table of lower bounds in time: a row for each size, with what takes so long."""

from __future__ import annotations

from fractions import Fraction

from synth.model.number_text import number, size_text
from synth.model.rational import counted
from synth.model.time_bound import TimeBound
from synth.view.frontier_text import Report


def report(found: TimeBound, launch: Fraction = Fraction(0), protocol: str = "") -> Report:
    """Return the table of `synth bound --sizes`; with the µs of a `launch` in `protocol`, where one is named."""
    columns = (("size", "right"), ("µs at least", "right"), ("GB/s at most", "right"), ("because of", "left"))
    rows = []
    for row in found.rows:
        time = row.microseconds and launch + row.microseconds
        gbps = number(row.size / time / 1000) if time else ""
        rows.append((size_text(row.size), f"{float(time):.6g}", gbps, row.reason))
    root = "" if found.root is None else f" from {found.root}"
    title = f"{found.collective_name}{root} on {found.topology.name}: {counted(found.topology.ranks, 'rank')}"
    which = "no program without multicasts and sums in switches" if found.topology.multicast else "no program"
    line = f"{which} is faster, with any number and size of messages; -o writes the certificates for `synth verify`"
    clock = "bounds are on bare links: predicted times count a launch and each protocol's costs too (--protocol)"
    if protocol:
        clock = (
            f"bounds are by the clock of predicted times in {protocol}, {number(launch)} µs launch included; the "
            f"certificates are of the rest, on the protocol's links"
        )
    return Report(title, columns, tuple(rows), (line, clock))
