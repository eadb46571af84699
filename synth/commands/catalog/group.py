"""`synth catalog`: the group of commands around a catalog's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from synth.commands.framework.declaration import option
from synth.commands.framework.shared import FILE
from synth.commands.root import CONTEXT, Commands


@dataclass(frozen=True, kw_only=True)
class Database:
    """--db, the file of a catalog."""

    db: Path = option(
        "--db", default="catalog.db", type=FILE, show_default=True, envvar="SYNTH_CATALOG", metavar="FILE",
        help="The catalog's file; SYNTH_CATALOG in the environment names another default.",
    )  # fmt: skip


@click.command(
    cls=Commands, name="catalog", context_settings=CONTEXT, lazy={
        name: f"synth.commands.catalog.{name}:{name}_command" for name in ("build", "ls", "show", "export", "verify")
    },
)  # fmt: skip
def catalog_command() -> None:
    """Every algorithm of a team's machines, found once and kept in one file.

    \b
    Example:
      synth catalog ls
    """
