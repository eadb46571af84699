"""`synth catalog ls`: list the entries of a catalog, or those of the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.catalog.group import db_option
from synth.commands.framework.options import coll_option, output_options
from synth.commands.framework.output import emit
from synth.commands.root import CONTEXT
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.catalog.entry import EntryRow

COLUMNS = (
    "id", "topology", "collective", ">ranks", "state",
    ">points", "steps", ">seconds", "options",
)  # fmt: skip
SHIPPED = (*COLUMNS[1:7], "commit", "command")


@click.command(context_settings=CONTEXT, short_help="List the entries.")
@db_option
@click.option("--topo", metavar="NAME", help="Only entries of the machine of this name.")
@coll_option("Only entries of this collective.")
@click.option("--shipped", is_flag=True, help="The frontiers in the package, with the commit and command of each.")
@output_options
def ls(db: Path, topo: str | None, coll: str | None, shipped: bool, output: str | None, form: str | None) -> None:
    """List the entries of a catalog.

    \b
    Examples:
      synth catalog ls --coll allgather
      synth catalog ls --shipped --coll allreduce
    """
    from synth.catalog.shipped import FILE, Origin
    from synth.commands.api import catalog
    from synth.model.collective import canonical_name

    topo = None if topo is None else catalog.machine_name(topo)
    with catalog.open(FILE if shipped else db) as store:
        rows = store.ls(topo, None if coll is None else canonical_name(coll))

    def documents() -> list[dict]:
        if shipped:
            return [row.to_json() | Origin.of(row)._asdict() for row in rows]
        return [row.to_json() for row in rows]

    def show() -> None:
        from synth.view.frontier_text import Report
        from synth.view.tables import print_report

        lines = []
        for row in rows:
            cells = _cells(row)
            lines.append((*cells[1:7], *Origin.of(row)) if shipped else cells)
        sentence = counted(len(rows), "entry") + (" in the package" if shipped else "")
        print_report(Report.of("", SHIPPED if shipped else COLUMNS, lines, (sentence,)))

    emit(documents, show, output, form)


def _cells(row: EntryRow) -> tuple[str, ...]:
    collective = f"{row.collective} from {','.join(map(str, row.roots))}" if row.roots else row.collective
    steps = sorted({steps for steps, _ in row.points})
    span = "-".join(map(str, sorted({steps[0], steps[-1]}))) if steps else ""
    options = " ".join(f"{key}={value}" for key, value in row.options.items())
    points = str(len(row.points))
    return row.id, row.topology, collective, str(row.ranks), row.state, points, span, f"{row.seconds:.1f}", options
