"""`synth catalog`: the group of commands around a catalog's file."""

from __future__ import annotations

import click

from synth.cli.framework.options import FILE
from synth.cli.root import CONTEXT, Commands

db_option = click.option(
    "--db", type=FILE, default="catalog.db", show_default=True, envvar="SYNTH_CATALOG", metavar="FILE",
    help="The catalog's file; SYNTH_CATALOG in the environment names another default.",
)  # fmt: skip


@click.command(
    cls=Commands,
    context_settings=CONTEXT,
    short_help="Keep algorithms of all machines in one file.",
    lazy={
        "build": "synth.cli.catalog.build:build",
        "ls": "synth.cli.catalog.ls:ls",
        "show": "synth.cli.catalog.show:show",
        "export": "synth.cli.catalog.export:export",
        "verify": "synth.cli.catalog.verify:verify",
    },
)
def catalog() -> None:
    """Every algorithm of a team's machines, found once and kept in one file.

    \b
    Example:
      synth catalog ls
    """
