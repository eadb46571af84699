"""Tables of a build: one for each collective, a row for each range of sizes that one algorithm serves."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from synth.model.bounds.time_bound import holds_for
from synth.model.build_result import BuildResult, BuildRow, BuiltTable
from synth.model.number_text import microseconds, number, size_text
from synth.view.frontier_text import Report
from synth.view.plans import ESTIMATE


def reports(result: BuildResult) -> list[Report]:
    """Return a table for each collective; sentences about the times, the machine and the files follow the last."""
    tables = [_table(result, table) for table in result.tables]
    # Sentences on all tables follow the last one.
    names = [name for table in result.tables for name in _library_names(table)]
    own = ", ".join(dict.fromkeys(name.removeprefix("nccl-") for name in names))
    switches = result.plan.topology is not None and bool(result.plan.topology.multicast)
    lines = [
        "sizes: those that were compared; the page beside the files says which sizes each file serves",
        "µs and GB/s (size / time) are predicted for the greatest size of a row, not measured"
        + (f"; {own}: NCCL's own, by the same clock" if own else ""),
        f"the clock: {result.plan.says}",
        f"x bound: the time over a lower bound by the same clock, for {holds_for(switches)}",
    ]
    if any(row.estimated for table in result.tables for row in table.rows):
        lines.append(f"{ESTIMATE}; a note says why")
    if result.match:
        lines.append(f"the links are those of {result.match}")
    lines += [f"note: {note}" for note in result.notes]
    return [*tables[:-1], replace(tables[-1], sentences=(*tables[-1].sentences, *lines))]


def _table(result: BuildResult, table: BuiltTable) -> Report:
    names = _library_names(table)
    columns = ["sizes", "runs", ">µs", ">GB/s"]
    columns += [f">{name.removeprefix('nccl-')} µs" for name in names]
    columns.append(">x bound")
    rows, sentences = [], []
    for _, group in groupby(table.rows, lambda row: (row.algorithm, row.protocol if row.algorithm else "")):
        run = list(group)
        last = run[-1]
        known = dict(last.libraries)
        runs = f"{last.algorithm} {last.protocol}" if last.algorithm else "left to the library"
        about = "~" if last.seconds in last.estimated else ""
        over = about + number(last.seconds / last.bound) if last.seconds and last.bound else ""
        rate = about + number(last.size / last.seconds / 1e9) if last.seconds else ""
        libraries = [microseconds(known.get(name), last.estimated) for name in names]
        rows.append((_sizes(run), runs, microseconds(last.seconds, last.estimated), rate, *libraries, over))
        if not run[0].algorithm:
            ends = [f"{size_text(row.size)}: {_both_times(row)}" for row in (run[0], last)]
            times = "; ".join(ends) if len(run) > 1 else _both_times(last)
            sentences.append(f"left to the library: {_sizes(run)} ({times})")
    root = "" if table.root is None else f" from {table.root}"
    title = f"{table.collective}{root} on {result.topology}, {table.ranks} ranks, for {result.runtime}"
    return Report.of(title, columns, rows, sentences)


def _library_names(table: BuiltTable) -> list[str]:
    """Return the library's algorithms that the rows of a table are compared with."""
    return list(dict.fromkeys(library.name for row in table.rows for library in row.libraries))


def _both_times(row: BuildRow) -> str:
    library, own = row.library, "no schedule"
    if row.schedule is not None:
        own = f"{microseconds(row.schedule, row.estimated)} by a schedule"
    theirs = "an unknown time"
    if library is not None:
        theirs = f"{microseconds(library.seconds, row.estimated)} µs by {library.name}"
    return f"{theirs}, {own}"


def _sizes(run: list[BuildRow]) -> str:
    return " to ".join(dict.fromkeys(size_text(row.size) for row in (run[0], run[-1])))
