"""One page about frontiers, plans and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from synth.catalog.report import ReportSource


class Page(NamedTuple):
    """`html`: the whole file; `entries`: how many it shows; `wrong`: a line for each that failed its check and is not
    drawn."""

    html: str
    entries: int
    wrong: tuple[str, ...]


def report(
    given: ReportSource | Sequence[ReportSource],
    *,
    title: str = "synth report",
    verify: bool = True,
) -> Page:
    """Return one HTML page that works offline: frontiers, schedules step by step, times, certificates.

    Parameters
    ----------
    given : a value or a file, or several: frontiers, exact or at scale, plans, schedules, measurements.
    title : of the page.
    verify : re-check everything first.

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

    many = [given] if isinstance(given, str | Path) or not isinstance(given, Sequence) else list(given)
    found = collect(many, verify)
    made = f"made by synth {metadata.version('ccl-synth')}; works offline"
    return Page(html.page(found.sheets, title, made), len(found.sheets), tuple(found.wrong))
