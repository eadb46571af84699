"""The sheets of `synth report`, from files and values: frontiers, plans, schedules, measurements.

Each value is re-checked first. A value that fails its check is not drawn: its sheet names the error, and so does a line
of `Sheets.wrong`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from synth.catalog import report_sheets
from synth.catalog.report_sheets import WRONG, SheetContext, read
from synth.checker.documents import exact_frontier
from synth.errors import FormatError
from synth.model.documents.json_reader import schema_text
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule
from synth.model.tuning_plan import Plan
from synth.topologies import frontier_files, rank_placement
from synth.view.page import sections as sheets
from synth.view.page.frontier_section import Sheet
from synth.view.page.sections import EntryContext

ReportSource = str | Path | Frontier | Plan | Schedule
SheetMaker = Callable[[SheetContext], Iterator[Sheet]]


@dataclass
class Sheets:
    """The sheets in the order of their sources, and a line for each error."""

    sheets: list[Sheet] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def collect(sources: Sequence[ReportSource], verify: bool = True) -> Sheets:
    """Return the sheets of all `sources`. Measured documents go to the frontiers of the same machine, collective and
    root. `verify`: check every value first.

    Raises FormatError for a file of a kind that a report does not show.
    """
    result = Sheets()
    context = SheetContext(verify)
    makers: list[SheetMaker] = []
    for k, source in enumerate(sources, 1):
        if not isinstance(source, str | Path):
            makers.append(partial(report_sheets.value_sheets, source, str(k), ()))
        elif (maker := _of_file(Path(source), context)) is not None:
            makers.append(maker)
    for make in makers:  # after all files are read, so that `context` holds all measurements
        for sheet in make(context):
            result.sheets.append(sheet)
            if sheet.status == WRONG:
                result.wrong.append(f"{sheet.id}: {sheet.says[0]}")
    result.sheets += [_measured(name, doc) for name, doc in context.unused()]
    return result


def _measured(name: str, doc: dict) -> Sheet:
    return read(name, lambda: sheets.of_measured(doc, EntryContext(name, provenance=(("file", name),))))


def _of_file(path: Path, context: SheetContext) -> SheetMaker | None:
    """Return the function that makes the sheets of a file. None for a measured document, which is added to
    `context`."""
    doc, name = rank_placement.marked(exact_frontier.read(path)), path.name
    rows = (("file", name),)
    match doc.get("schema"):
        case "synth.frontier/1" | "synth.large/1":
            frontier = read(name, lambda: frontier_files.read(doc, path.parent, name))
            return partial(report_sheets.value_sheets, frontier, name, rows)
        case "synth.schedule/1":
            return partial(report_sheets.value_sheets, read(name, lambda: Schedule.from_json(doc)), name, rows)
        case "synth.plan/1":
            return partial(report_sheets.value_sheets, read(name, lambda: Plan.from_json(doc)), name, rows)
        case "synth.measured/1":
            _measured(name, doc)  # a malformed one is refused before anything is shown
            context.measured.append((name, doc))
            return None
        case other:
            known = "documents synth.frontier/1, large/1, plan/1, schedule/1 and measured/1"
            raise FormatError(f"{schema_text(other)}; a report shows {known}", str(path))
