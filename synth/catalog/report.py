"""The sheets of `synth report`, from files and values: catalogs, frontiers, plans, schedules, measurements.

Each value is re-checked first. A value that fails its check is not drawn: its sheet names the error, and so does a line
of `Sheets.wrong`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from synth.catalog import report_sheets
from synth.catalog.entry import Entry
from synth.catalog.report_commands import commands
from synth.catalog.report_sheets import WRONG, SheetContext, read
from synth.catalog.store import Store
from synth.checker.documents import exact_frontier
from synth.errors import FormatError
from synth.model.documents.json_reader import schema_text
from synth.model.documents.text_file import head_of
from synth.model.frontier import Frontier, ParetoFrontier
from synth.model.schedule import Schedule
from synth.model.tuning_plan import Plan
from synth.topologies import rank_placement, scale_frontier_files
from synth.view.page import sections as sheets
from synth.view.page.frontier_section import Sheet
from synth.view.page.sections import EntryContext

SQLITE = b"SQLite format 3\0"
ReportSource = str | Path | Entry | ParetoFrontier | Plan | Schedule
SheetMaker = Callable[[SheetContext], Iterator[Sheet]]


@dataclass(frozen=True)
class ReportSelection:
    """The selection of a report: the topology and collective of a catalog's entries (None: all), and `verify`, whether
    every value is checked first."""

    topology: str | None = None
    collective: str | None = None
    verify: bool = True


@dataclass
class Sheets:
    """The sheets in the order of their sources, and a line for each error."""

    sheets: list[Sheet] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def collect(sources: Sequence[ReportSource], wanted: ReportSelection = ReportSelection()) -> Sheets:
    """Return the sheets of all `sources`. Measured documents go to the frontiers of the same machine, collective and
    root.

    Raises FormatError for a file of a kind that a report does not show.
    """
    result = Sheets()
    context = SheetContext(wanted.verify)
    makers: list[tuple[SheetMaker, str, str]] = []
    for k, source in enumerate(sources, 1):
        if not isinstance(source, str | Path):
            makers.append((partial(report_sheets.value_sheets, source, str(k), ()), "", ""))
        elif (found := _of_file(Path(source), wanted, context)) is not None:
            maker, kind = found
            makers.append((maker, Path(source).name, kind))
    for make, file, kind in makers:  # after all files are read, so that `context` holds all measurements
        for sheet in make(context):
            result.sheets.append(replace(sheet, commands=commands(sheet, file, kind)))
            if sheet.status == WRONG:
                result.wrong.append(f"{sheet.id}: {sheet.says[0]}")
    result.sheets += [_measured(name, doc) for name, doc in context.unused()]
    return result


def _measured(name: str, doc: dict) -> Sheet:
    return read(name, lambda: sheets.of_measured(doc, EntryContext(name, provenance=(("file", name),))))


def _of_file(path: Path, wanted: ReportSelection, context: SheetContext) -> tuple[SheetMaker, str] | None:
    """Return the function that makes the sheets of a file, and the file's kind. None for a measured document, which is
    added to `context`."""
    if head_of(path, len(SQLITE)) == SQLITE:
        return partial(_of_catalog, path, wanted), "catalog"
    doc, name = rank_placement.marked(exact_frontier.read(path)), path.name
    rows = (("file", name),)
    match schema := doc.get("schema"):
        case "synth.frontier/1":
            return partial(report_sheets.value_sheets, read(name, lambda: Frontier.from_json(doc)), name, rows), schema
        case "synth.schedule/1":
            return partial(report_sheets.value_sheets, read(name, lambda: Schedule.from_json(doc)), name, rows), schema
        case "synth.plan/1":
            return partial(report_sheets.value_sheets, read(name, lambda: Plan.from_json(doc)), name, rows), schema
        case "synth.large/1":
            frontier = read(name, lambda: scale_frontier_files.read(doc, path.parent, name))
            return partial(report_sheets.value_sheets, frontier, name, rows), schema
        case "synth.measured/1":
            _measured(name, doc)  # a malformed one is refused before anything is shown
            context.measured.append((name, doc))
            return None
        case other:
            known = "a catalog, or a document synth.frontier/1, large/1, plan/1, schedule/1 or measured/1"
            raise FormatError(f"{schema_text(other)}; a report shows {known}", str(path))


def _of_catalog(path: Path, wanted: ReportSelection, context: SheetContext) -> Iterator[Sheet]:
    """Yield the sheet of each entry, read one at a time. A damaged entry becomes a sheet that names the error."""
    with Store.open(path) as store:
        for row in store.ls(wanted.topology, wanted.collective):
            try:
                entry = store.get(row.fingerprint)
            except FormatError as error:
                provenance = (("catalog", path.name),)
                yield report_sheets.failed_sheet(row.id, row.topology, row.collective, row.ranks, error, provenance)
            else:
                yield from report_sheets.value_sheets(entry, row.id, (), context)
