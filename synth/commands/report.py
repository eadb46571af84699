"""`synth report`: one page that works offline."""

from __future__ import annotations

from pathlib import Path

import click

from synth.commands.framework.options import FILE, quiet_option
from synth.commands.framework.output import check_writable, note, save
from synth.commands.framework.progress import waiting
from synth.commands.root import CONTEXT
from synth.model.rational import counted

WRONG = 5  # the exit code of a failed verification


@click.command(
    context_settings=CONTEXT, short_help="Write an HTML page: frontiers, schedules step by step, times, proofs."
)
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", required=True, metavar="FILE.html", help="The page's file; - is stdout.")
@click.option("--title", default="synth report", show_default=True, metavar="TEXT", help="The heading of the page.")
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Replay schedules and re-check certificates first."
)
@quiet_option
def report(files: tuple[Path, ...], output: str, title: str, verify: bool) -> int:
    """Write one HTML file about FILE (a frontier, a plan, a schedule, measurements), which needs no network:
    plots with lower bounds, every schedule step by step on the drawn machine, times against size, certificates in
    words.

    What fails its check is not drawn but named, and the exit code is 5.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json && synth report frontier.json -o report.html
    """
    from synth.commands import api

    check_writable(output)
    with waiting(f"report of {counted(len(files), 'file')}"):
        page = api.report(files, title=title, verify=verify)
    if output == "-":
        click.echo(page.html, nl=False)
    else:
        size = f"{len(page.html.encode()) / 1e6:.2f} MB"
        save(output, page.html, f"{counted(page.entries, 'entry')}, {size}")
    for line in page.wrong:
        note(f"error: {line}")
    return WRONG if page.wrong else 0
