"""`synth catalog export`: `synth export` of an entry."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import click

from synth.commands.catalog import open
from synth.commands.catalog.group import Database
from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import check_writable, save
from synth.commands.programs.export import Export, export_source


@dataclass(frozen=True, kw_only=True)
class EntryExport(Database, Export):
    """The options of `synth catalog export`: those of `synth export` but for what an entry says itself."""

    name: str = option("name", metavar="ID")
    source: Any = option(default=None)
    plan: Any = option(default=None)
    collective: Any = option(default=None)
    root: Any = option(default=None)


@command(EntryExport, brief="Export an entry, as `synth export` does.")
def export_command(options: EntryExport) -> None:
    """Write a point of entry ID in the form that a runtime loads.

    --to frontier writes the document that `synth bench`, `synth verify` and all other commands read.

    \b
    Examples:
      synth catalog export 62a441bf --to msccl-xml --point 1 -o allgather.xml
      synth catalog export 62a441bf --to frontier -o frontier.json
    """
    with open(options.db) as store:
        entry = store.get(options.name)
    # A form of `synth export`, or the document itself.
    if options.to != "frontier":
        export_source(replace(options, source=entry.frontier), entry.id)
        return
    text = json.dumps(entry.frontier.to_json())
    check_writable(options.output)
    if options.output in (None, "-"):
        click.echo(text)
    else:
        save(options.output, text + "\n")
