"""What `synth report` shows, from files and values: catalogs, frontiers, plans, schedules, measurements. Each is
re-checked first.

Nothing that fails its check is drawn: its sheet says what is wrong, and `Found.wrong` holds the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from synth.catalog import report_sheets
from synth.catalog.entry import Entry
from synth.catalog.report_sheets import WRONG, Making, read
from synth.catalog.store.store import Store
from synth.checker.documents import exact_frontier
from synth.errors import FormatError
from synth.model.frontier import Frontier
from synth.model.scale_frontier import Large
from synth.model.schedule import Schedule
from synth.model.tuning_plan import Plan
from synth.view.page import sections as sheets
from synth.view.page.frontier_section import Sheet
from synth.view.page.sections import About

SQLITE = b"SQLite format 3\0"
Given = str | Path | Entry | Frontier | Large | Plan | Schedule
Maker = Callable[[Making], Iterator[Sheet]]


@dataclass(frozen=True)
class Wanted:
    """Which entries of a catalog are shown, and whether everything is checked first."""

    topology: str | None = None
    collective: str | None = None
    verify: bool = True


@dataclass
class Found:
    """The sheets in the order they were given, and a line for each thing that is wrong."""

    sheets: list[Sheet] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def collect(given: Sequence[Given], wanted: Wanted = Wanted()) -> Found:
    """The sheets of all that is given. Measured documents go to the frontiers of the same machine, collective and root.

    Raises FormatError for a file that is none of what a report shows.
    """
    found = Found()
    making = Making(wanted.verify)
    makers: list[Maker] = []
    for k, one in enumerate(given, 1):
        if not isinstance(one, str | Path):
            makers.append(partial(report_sheets.of_value, one, str(k), ()))
        elif (maker := _of_file(Path(one), wanted, making, found)) is not None:
            makers.append(maker)
    for make in makers:  # when all measurements are known
        for sheet in make(making):
            found.sheets.append(sheet)
            if sheet.status == WRONG:
                found.wrong.append(f"{sheet.id}: {sheet.says[0]}")
    found.sheets += [_measured(name, doc) for name, doc in making.left()]
    return found


def _measured(name: str, doc: dict) -> Sheet:
    return read(name, lambda: sheets.of_measured(doc, About(name, provenance=(("file", name),))))


def _of_file(path: Path, wanted: Wanted, making: Making, found: Found) -> Maker | None:
    """What makes the sheets of a file; measured documents are set aside."""
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE))
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", str(path)) from None
    if start == SQLITE:
        return partial(_of_catalog, path, wanted, found)
    doc, name = exact_frontier.read(path), path.name
    rows = (("file", name),)
    match doc.get("schema"):
        case "synth.frontier/1":
            return partial(report_sheets.of_value, read(name, lambda: Frontier.from_json(doc)), name, rows)
        case "synth.schedule/1":
            return partial(report_sheets.of_value, read(name, lambda: Schedule.from_json(doc)), name, rows)
        case "synth.plan/1":
            return partial(report_sheets.of_value, read(name, lambda: Plan.from_json(doc)), name, rows)
        case "synth.large/1":
            return partial(report_sheets.of_large_document, doc, name, rows)
        case "synth.measured/1":
            _measured(name, doc)  # a malformed one is refused before anything is shown
            making.measured.append((name, doc))
            return None
        case other:
            known = "a catalog, or a document synth.frontier/1, large/1, plan/1, schedule/1 or measured/1"
            raise FormatError(f"schema is {other!r}; a report shows {known}", str(path))


def _of_catalog(path: Path, wanted: Wanted, found: Found, making: Making) -> Iterator[Sheet]:
    """One entry at a time; a damaged one becomes a sheet that says so, or a line where not even its row can be read."""
    with Store.open(path) as store:
        rows = []
        for row in store.ls(wanted.topology, wanted.collective):
            if isinstance(row, FormatError):
                found.wrong.append(str(row))
            else:
                rows.append(row)
        for row in rows:
            try:
                entry = store.get(row.fingerprint)
            except FormatError as error:
                where = (("catalog", path.name),)
                yield report_sheets.wrong(row.id, row.topology, row.collective, row.ranks, error, where)
            else:
                yield from report_sheets.of_value(entry, row.id, (), making)
