"""`synth catalog table`: the answers of a catalog to a job, as a page of tables."""

from __future__ import annotations

from pathlib import Path

import click

from synth.cli.catalog.group import db_option
from synth.cli.framework.options import FILE, quiet_option
from synth.cli.framework.output import check_writable, save
from synth.cli.root import CONTEXT


@click.command("table", context_settings=CONTEXT, short_help="Print the answers of a job file as a page of Markdown.")
@click.argument("fleet", type=FILE, metavar="FLEET.yaml")
@db_option
@click.option("--title", default="Results", show_default=True, metavar="TEXT", help="The page's heading.")
@click.option("-o", "--output", metavar="FILE.md", help="Write the page to FILE.md; - is stdout.")
@quiet_option
def table(fleet: Path, db: Path, title: str, output: str | None) -> int:
    """Print the frontiers of every task of a job as tables: proved figures, and intervals where the proof is open.

    \b
    Example:
      synth catalog table fleet.yaml -o results.md
    """
    from synth.api import catalog_jobs

    check_writable(output)
    page = catalog_jobs.catalog_table(fleet, db, title=title)
    if output in (None, "-"):
        click.echo(page, nl=False)
    else:
        save(output, page)
    return 0
