"""`synth audit`: other programs' schedules, right or wrong, against certified bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.options import (
    FILE,
    coll_option,
    machine_if_named,
    machine_options,
    output_options,
    time_limit_option,
)
from synth.commands.framework.output import check_writable, emit, note, printable
from synth.commands.framework.progress import waiting
from synth.commands.root import CONTEXT
from synth.errors import FormatError

if TYPE_CHECKING:
    from synth.commands.api.interchange import AuditRow
    from synth.view.frontier_text import Report

EXIT_CODES = {"wrong": 5, "not analysed": 4, "unread": 1}  # of the verdicts of which one file is enough


@click.command(context_settings=CONTEXT, short_help="Judge other programs' schedules against certified bounds.")
@click.argument("paths", type=FILE, nargs=-1, required=True, metavar="DIR|FILE...")
@machine_options
@coll_option("The collective of files that do not name theirs.")
@time_limit_option("Wall time for the bounds of one collective; by default 20s.", "20s")
@output_options
def audit(paths: tuple[Path, ...], **flags: Any) -> int:
    """Judge each FILE, and each .json and .xml file below DIR: right, or wrong with the place; its steps and rounds per
    chunk; and how far they are from the certified optimum, at its number of steps and at any.

    Reads what `synth import` and `synth lint` read. A file that cannot be read is a row with the reason. Without --topo
    each pair of ranks that a file uses is a link of 1 GB/s. Exit code 5 where a file is wrong, else 4
    where one is not analysed, else 1 where one is unread.

    \b
    Example:
      synth audit algorithms --topo dgx-a100
    """
    from synth.commands import api
    from synth.view.tables import print_report

    check_writable(flags["output"])
    for path in paths:
        if not path.exists():
            raise FormatError("does not exist", str(path))
    machine = machine_if_named(flags)
    with waiting("auditing", flags["time_limit"]):
        rows = api.audit(paths, machine, collective=flags["coll"], time_limit=flags["time_limit"])
    emit(
        lambda: {"schema": "synth.audit/1", "files": [row.to_json() for row in rows]},
        lambda: print_report(_report(rows)),
        flags["output"],
        flags["form"],
    )
    if any(row.distance is not None and row.distance.unfinished for row in rows):
        note("the time limit came before all bounds; --time-limit allows more")
    return max(EXIT_CODES.get(row.verdict, 0) for row in rows)


def _report(rows: Sequence[AuditRow]) -> Report:
    from synth.view.frontier_text import Report

    columns = (
        "file", "", "collective", ">steps", ">rounds/chunk",
        ">factor at its steps", ">at any steps",
    )  # fmt: skip
    table = tuple(_cells(row) for row in rows)
    lines = [printable(f"{row.file}: {row.verdict}: {row.reason}") for row in rows if row.reason]
    meaning = "factor: rounds per chunk divided by the certified lower bound"
    return Report.of("", columns, table, (meaning, *lines))


def _cells(row: AuditRow) -> tuple[str, ...]:
    from synth.model.rational import factor_text, show

    if row.schedule is None:
        return (printable(row.file), row.verdict, "", "", "", "", "")
    at_steps = at_any = ""
    if row.distance is not None:
        rate = row.schedule.rounds_per_chunk
        at_steps, at_any = factor_text(rate, row.distance.at_steps), factor_text(rate, row.distance.at_any)
    return (
        printable(row.file), row.verdict, row.schedule.collective.name, str(row.schedule.step_count),
        show(row.schedule.rounds_per_chunk), at_steps, at_any,
    )  # fmt: skip
