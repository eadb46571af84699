"""`synth catalog ls`: list the entries of a catalog, or the points for a machine and size."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.catalog.group import db_option
from synth.cli.catalog.table import print_choices, print_rows, print_shipped
from synth.cli.framework.options import coll_option, output_options
from synth.cli.framework.output import emit, note
from synth.cli.framework.types import Positive, Size
from synth.cli.root import CONTEXT


@click.command(context_settings=CONTEXT, short_help="List the entries, or the points for a machine and a size.")
@db_option
@click.option("--topo", metavar="NAME", help="Only entries of the machine of this name.")
@coll_option("Only entries of this collective.")
@click.option(
    "--state",
    type=click.Choice(["done", "open", "infeasible", "failed"], case_sensitive=False),
    help="Only entries in this state.",
)
@click.option("--ranks", "count", type=Positive(), metavar="N", help="Only entries with N ranks.")
@click.option(
    "--size", type=Size(), metavar="1MB", help="The points of --topo and --coll, predicted fastest at this size first."
)
@click.option("--shipped", is_flag=True, help="The frontiers in the package, with the commit and command of each.")
@output_options
def ls(
    db: Path,
    topo: str | None,
    coll: str | None,
    state: str | None,
    count: int | None,
    size: int | None,
    shipped: bool,
    output: str | None,
    form: str | None,
) -> int:
    """List the entries of a catalog, or with --size the points of one machine and collective, fastest first.

    \b
    Examples:
      synth catalog ls --coll allgather
      synth catalog ls --topo dgx1 --coll allgather --size 1MB
      synth catalog ls --shipped --coll allreduce
    """
    from synth.api import catalog
    from synth.errors import UsageError
    from synth.model.collective import canonical_name

    topo = None if topo is None else catalog.machine_name(topo)
    name = None if coll is None else canonical_name(coll)
    state = state.lower() if state else None
    if shipped:
        from synth.catalog.shipped import rows as shipped_rows

        if size is not None:
            raise UsageError("--size is for a catalog of your own; leave it or --shipped out")
        found = []
        for row, origin in shipped_rows():
            wanted = (topo, row.topology), (name, row.collective), (count, row.ranks), (state, row.state)
            if all(asked in (None, value) for asked, value in wanted):
                found.append((row, origin))
        emit(
            lambda: [row.to_json() | origin._asdict() for row, origin in found],
            lambda: print_shipped(found),
            output,
            form,
        )
        return 0
    with catalog.open(db) as store:
        if size is not None:
            if topo is None or coll is None:
                raise UsageError("--size is for one machine and collective: add --topo NAME and --coll NAME")
            points = store.lookup(topo, canonical_name(coll), size, ranks=count)
            emit(lambda: [c.to_json() for c in points], lambda: print_choices(points), output, form)
            return 0
        rows, damaged = catalog.listed(store, topo, name, state, count)
    emit(lambda: [row.to_json() for row in rows], lambda: print_rows(rows), output, form)
    for line in damaged:
        note(line)
    return 1 if damaged else 0
