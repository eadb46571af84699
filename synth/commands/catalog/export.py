"""`synth catalog export`: `synth export` of an entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from synth.commands.catalog.group import db_option
from synth.commands.export import export as plain
from synth.commands.export import export_source
from synth.commands.framework.output import check_writable, save
from synth.commands.root import CONTEXT

_LEFT_OUT = ("plan", "coll", "root")  # what an entry says itself, or does not hold


@click.command(context_settings=CONTEXT, short_help="Export an entry, as `synth export` does.")
@click.argument("name", metavar="ID")
@db_option
def export(name: str, db: Path, **flags: Any) -> None:
    """Write a point of entry ID in the form that a runtime loads.

    --to frontier writes the document that `synth bench`, `synth verify` and all other commands read.

    \b
    Examples:
      synth catalog export 62a441bf --to msccl-xml --point 1 -o allgather.xml
      synth catalog export 62a441bf --to frontier -o frontier.json
    """
    from synth.commands.api import catalog

    with catalog.open(db) as store:
        entry = store.get(name)
    if (flags["to"] or "").lower() != "frontier":
        export_source(entry.frontier, entry.id, flags | dict.fromkeys(_LEFT_OUT))
        return
    output, text = flags["output"], json.dumps(entry.frontier.to_json())
    check_writable(output)
    if output in (None, "-"):
        click.echo(text)
    else:
        save(output, text + "\n")


export.params += [
    option for option in plain.params if isinstance(option, click.Option) and option.name not in _LEFT_OUT
]
