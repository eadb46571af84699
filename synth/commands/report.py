"""`synth report` and `synth.api.report`: one page that works offline, about frontiers, plans and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from synth.commands.framework.declaration import command, function, option
from synth.commands.framework.output import note, save
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import FILE, Quiet
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.catalog.report import ReportSource

WRONG = 5  # the exit code of a failed verification


class Page(NamedTuple):
    """`html`: the whole file; `entries`: how many it shows; `wrong`: a line for each that failed its check and is not
    drawn."""

    html: str
    entries: int
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """The options of a page."""

    given: ReportSource | Sequence[ReportSource] = option(
        "files", type=FILE, nargs=-1, required=True, metavar="FILE...",
        doc="a value or a file, or several: frontiers, exact or at scale, plans, schedules, measurements.",
    )  # fmt: skip
    _: KW_ONLY
    title: str = option(
        "--title", default="synth report", show_default=True, metavar="TEXT", help="The heading of the page."
    )
    verify: bool = option(
        "--verify/--no-verify", default=True, show_default=True,
        help="Replay schedules and re-check certificates first.",
    )  # fmt: skip


@function(Shown)
def report(shown: Shown) -> Page:
    """Return one HTML page that works offline: frontiers, schedules step by step, times, certificates.

    Returns
    -------
    The page: its `html`, the number of entries, and a line for each that failed its check and is not drawn.

    Raises
    ------
    FormatError for a file that is none of these.

    Examples
    --------
    >>> import synth
    >>> page = synth.api.report(synth.frontier("ring:4", "allgather"), title="a ring")
    >>> page.entries, page.wrong
    (1, ())
    """
    from importlib import metadata

    from synth.catalog.report import collect
    from synth.view.page import html

    # One value, or several.
    given: Any = shown.given
    many = [given] if isinstance(given, str | Path) or not isinstance(given, Sequence) else list(given)
    found = collect(many, shown.verify)
    made = f"made by synth {metadata.version('ccl-synth')}; works offline"
    return Page(html.page(found.sheets, shown.title, made), len(found.sheets), tuple(found.wrong))


@dataclass(frozen=True, kw_only=True)
class ReportCommand(Quiet, Shown):
    """The options of `synth report`."""

    output: str = option("-o", "--output", metavar="FILE.html", help="The page's file; - is stdout.")


@command(ReportCommand)
def report_command(options: ReportCommand) -> int:
    """Write one HTML file about FILE (a frontier, a plan, a schedule, measurements), which needs no network:
    plots with lower bounds, every schedule step by step on the drawn machine, times against size, certificates in
    words.

    What fails its check is not drawn but named, and the exit code is 5.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json && synth report frontier.json -o report.html
    """
    files: Any = options.given
    with waiting(f"report of {counted(len(files), 'file')}"):
        page = report.of(options)
    # What failed its check is named and not drawn.
    if options.output == "-":
        click.echo(page.html, nl=False)
    else:
        size = f"{len(page.html.encode()) / 1e6:.2f} MB"
        save(options.output, page.html, f"{counted(page.entries, 'entry')}, {size}")
    for line in page.wrong:
        note(f"error: {line}")
    return WRONG if page.wrong else 0
