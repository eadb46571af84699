"""`synth catalog export`: `synth export` of an entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.cli.catalog.group import db_option
from synth.cli.export import export as plain
from synth.cli.export import export_source
from synth.cli.framework.frontier_files import save_schedules
from synth.cli.framework.output import check_writable, save
from synth.cli.root import CONTEXT
from synth.errors import SynthError

if TYPE_CHECKING:
    from synth.catalog.entry import Entry

_LEFT_OUT = ("plan", "coll", "root")  # what an entry says itself, or does not hold


@click.command(context_settings=CONTEXT, short_help="Export an entry, as `synth export` does.")
@click.argument("name", metavar="ID")
@db_option
def export(name: str, db: Path, **flags: Any) -> None:
    """Write a point of entry ID, or with --all every point, in the form that a runtime loads.

    --to frontier and --to schedule write the documents that `synth bench`, `synth verify` and all other commands read.

    \b
    Examples:
      synth catalog export 62a441bf --to msccl-xml --point 1 -o allgather.xml
      synth catalog export 62a441bf --to frontier -o frontier.json
    """
    from synth.api import catalog

    with catalog.open(db) as store:
        entry = store.get(name)
    to = (flags["to"] or "").lower()
    if to == "frontier":
        _write_frontier(entry, flags["output"])
    elif to == "schedule":
        _write(catalog.schedule(entry, flags["point"], flags["size"]).to_json(), flags["output"])
    else:
        export_source(catalog.frontier(entry), entry.id, flags | dict.fromkeys(_LEFT_OUT))


def _write_frontier(entry: Entry, output: str | None) -> None:
    """Write the frontier, and beside a file the schedules that its document does not hold."""
    if entry.frontier is None:
        raise SynthError("this entry has no frontier")
    check_writable(output)
    saved = save_schedules(entry.frontier, output)
    _write(saved.document(), output)


def _write(doc: dict, output: str | None) -> None:
    check_writable(output)
    if output in (None, "-"):
        click.echo(json.dumps(doc))
    else:
        save(str(output), json.dumps(doc) + "\n")


export.params += [
    option for option in plain.params if isinstance(option, click.Option) and option.name not in _LEFT_OUT
]
