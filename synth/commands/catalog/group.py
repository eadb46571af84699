"""`synth catalog`: the group of commands around a catalog's file."""

from __future__ import annotations

import click

from synth.commands.framework.options import FILE
from synth.commands.root import CONTEXT, Commands

db_option = click.option(
    "--db", type=FILE, default="catalog.db", show_default=True, envvar="SYNTH_CATALOG", metavar="FILE",
    help="The catalog's file; SYNTH_CATALOG in the environment names another default.",
)  # fmt: skip


@click.command(
    cls=Commands,
    context_settings=CONTEXT,
    short_help="Keep algorithms of all machines in one file.",
    lazy={
        "build": "synth.commands.catalog.build:build",
        "ls": "synth.commands.catalog.ls:ls",
        "show": "synth.commands.catalog.show:show",
        "export": "synth.commands.catalog.export:export",
        "verify": "synth.commands.catalog.verify:verify",
    },
)
def catalog() -> None:
    """Every algorithm of a team's machines, found once and kept in one file.

    \b
    Example:
      synth catalog ls
    """
