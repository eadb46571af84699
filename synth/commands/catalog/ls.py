"""`synth catalog ls`: list the entries of a catalog, or those of the package."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synth.commands.catalog import open
from synth.commands.catalog.group import Database
from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.shared import Output, collective_option
from synth.commands.inputs import named_topology
from synth.errors import SynthError
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.catalog.entry import EntryRow

COLUMNS = (
    "id", "topology", "collective", ">ranks", "state",
    ">points", "steps", ">seconds", "options",
)  # fmt: skip
SHIPPED = (*COLUMNS[1:7], "commit", "command")


@dataclass(frozen=True, kw_only=True)
class Ls(Output, Database):
    """The options of `synth catalog ls`."""

    topo: str | None = option("--topo", default=None, metavar="NAME", help="Only entries of the machine of this name.")
    collective: str | None = collective_option("Only entries of this collective.", default=None)
    shipped: bool = option(
        "--shipped", default=False, help="The frontiers in the package, with the commit and command of each."
    )


@command(Ls, brief="List the entries.")
def ls_command(options: Ls) -> None:
    """List the entries of a catalog.

    \b
    Examples:
      synth catalog ls --coll allgather
      synth catalog ls --shipped --coll allreduce
    """
    from synth.catalog.shipped import FILE, Origin
    from synth.model.collective import canonical_name
    from synth.view.frontier_text import Report

    shipped, collective = options.shipped, options.collective
    # A catalog keeps a machine under its full name: dgx1 stands for dgx1-v100.
    machine = options.topo
    with suppress(SynthError):
        machine = None if machine is None else named_topology(machine).name
    with open(FILE if shipped else options.db) as store:
        rows = store.ls(machine, None if collective is None else canonical_name(collective))

    def documents() -> list[dict]:
        if shipped:
            return [row.to_json() | Origin.of(row)._asdict() for row in rows]
        return [row.to_json() for row in rows]

    def table() -> Report:
        lines = []
        for row in rows:
            cells = _cells(row)
            lines.append((*cells[1:7], *Origin.of(row)) if shipped else cells)
        sentence = counted(len(rows), "entry") + (" in the package" if shipped else "")
        return Report.of("", SHIPPED if shipped else COLUMNS, lines, (sentence,))

    emit(documents, table, options)


def _cells(row: EntryRow) -> tuple[str, ...]:
    collective = f"{row.collective} from {','.join(map(str, row.roots))}" if row.roots else row.collective
    # The steps of the points, from the fewest to the most.
    steps = sorted({steps for steps, _ in row.points})
    span = "-".join(map(str, sorted({steps[0], steps[-1]}))) if steps else ""
    options = " ".join(f"{key}={value}" for key, value in row.options.items())
    points = str(len(row.points))
    return row.id, row.topology, collective, str(row.ranks), row.state, points, span, f"{row.seconds:.1f}", options
