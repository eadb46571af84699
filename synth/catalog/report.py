"""What `synth report` shows, from files and values: catalogs, frontiers, plans, schedules, measurements. Each is re-checked first.

Nothing that fails its check is drawn: its sheet says what is wrong, and `Found.wrong` holds the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from synth import audit, auditlarge
from synth.bounds import check
from synth.bulk import Bulk
from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, Entry, Provenance
from synth.catalog.store import Store
from synth.errors import FormatError, SynthError, VerificationError
from synth.frontier import Frontier
from synth.large import Large, LargePoint
from synth.plan import Plan
from synth.rational import rational
from synth.schedule import Schedule
from synth.view.page import plans, sheets
from synth.view.page.sheet import GOOD, PART, Sheet
from synth.view.page.sheets import About

Value = TypeVar("Value")
SQLITE = b"SQLite format 3\0"
CHECKED = "re-checked when this page was made: schedules replayed, certificates added up again"
Given = str | Path | Entry | Frontier | Large | Plan | Schedule


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
    found, measured, later = Found(), [], []
    for one in given:
        if isinstance(one, str | Path):
            later += _of_file(Path(one), wanted, measured, found)
        else:
            later.append(partial(_of_value, one, f"{len(later) + 1}"))
    used: set[int] = set()
    for make in later:
        _add(found, make, measured, used, wanted)
    for k, (name, doc) in enumerate(measured):
        if k not in used:
            found.sheets.append(_read(name, lambda name=name, doc=doc: sheets.of_measured(doc, About(name, provenance=_file(name)))))
    return found


class _Making:
    """What a sheet is made with: the measurements that belong to it, and whether to check."""

    def __init__(self, measured: Sequence[tuple[str, dict]], used: set[int], wanted: Wanted) -> None:
        self.measured, self.used, self.verify = measured, used, wanted.verify

    def of(self, topology: str, collective: str, ranks: int, root: int | None) -> tuple[dict, ...]:
        """The measured documents of this problem; they are then no entries of their own."""
        here = (topology, collective, ranks, root)
        mine = [k for k, (_, d) in enumerate(self.measured) if (d["topology"], d["collective"], d["ranks"], d["root"]) == here]
        self.used.update(mine)
        return tuple(self.measured[k][1] for k in mine)


Maker = Callable[[_Making], list[Sheet]]


WRONG = "failed its check"


def _add(found: Found, make: Maker, measured: Sequence[tuple[str, dict]], used: set[int], wanted: Wanted) -> None:
    made = make(_Making(measured, used, wanted))
    found.sheets += made
    found.wrong += [f"{sheet.id}: {sheet.says[0]}" for sheet in made if sheet.status == WRONG]


def _wrong(id_: str, topology: str, collective: str, ranks: int, error: Exception, provenance: tuple[tuple[str, str], ...]) -> Sheet:
    says = (str(error), "nothing of it is shown")
    return sheets.of_nothing(About(id_, provenance=provenance), topology, collective, ranks, WRONG, says)


def _of_file(path: Path, wanted: Wanted, measured: list[tuple[str, dict]], found: Found) -> list[Maker]:
    """What makes the sheets of a file; measured documents are set aside."""
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE))
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", str(path)) from None
    if start == SQLITE:
        return list(_of_catalog(path, wanted, found))
    doc, name = audit.read(path), path.name
    match doc.get("schema"):
        case "synth.frontier/1":
            return [partial(_of_value, _read(name, lambda: Frontier.from_json(doc)), name)]
        case "synth.schedule/1":
            return [partial(_of_value, _read(name, lambda: Schedule.from_json(doc)), name)]
        case "synth.plan/1":
            return [partial(_of_value, _read(name, lambda: Plan.from_json(doc)), name)]
        case "synth.large/1":
            return [partial(_of_large_document, doc, name)]
        case "synth.measured/1":
            _read(name, lambda: sheets.of_measured(doc, About(name)))  # malformed ones are refused before anything is shown
            measured.append((name, doc))
            return []
        case other:
            known = "a catalog, or a document synth.frontier/1, large/1, plan/1, schedule/1 or measured/1"
            raise FormatError(f"schema is {other!r}; a report shows {known}", str(path))


def _read(name: str, read: Callable[[], Value]) -> Value:
    """What `read` returns. Raises FormatError where the document says something else than it should."""
    try:
        return read()
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise FormatError(f"is malformed: {error!r}"[:200], name) from None


def _of_catalog(path: Path, wanted: Wanted, found: Found) -> Iterator[Maker]:
    with Store.open(path) as store:
        names = []
        for row in store.ls(wanted.topology, wanted.collective):
            if isinstance(row, SynthError):
                found.wrong.append(str(row))
            else:
                names.append(row)
        for row in names:
            try:
                yield partial(_of_value, store.get(row.fingerprint), row.id)
            except FormatError as error:
                where = (("catalog", path.name),)
                broken = _wrong(row.id, row.topology, row.collective, row.ranks, error, where)
                yield lambda _, broken=broken: [broken]


def _of_value(value: Entry | Frontier | Large | Plan | Schedule, name: str, making: _Making) -> list[Sheet]:
    match value:
        case Entry():
            return [_of_entry(value, making)]
        case Frontier():
            return [_of_frontier(value, name, _file(name), making)]
        case Large():
            return [_of_large(value, name, _file(name), making)]
        case Plan():
            return _read(
                name, lambda: plans.of_plan(value, [About(f"{name} {t.collective}", provenance=_file(name)) for t in value.tables])
            )
        case Schedule():
            return [_of_schedule(value, name, making)]


def _file(name: str) -> tuple[tuple[str, str], ...]:
    return () if name.isdigit() else (("file", name),)


def _of_frontier(found: Frontier, name: str, rows: tuple[tuple[str, str], ...], making: _Making, beside: tuple[dict, ...] = ()) -> Sheet:
    task = found.collective
    if making.verify:
        try:
            audit.document(found.to_json())
        except VerificationError as error:
            return _wrong(name, found.network.name, task.name, found.network.ranks, error, rows)
    measured = beside + making.of(found.network.name, task.name, task.ranks, task.roots[0] if len(task.roots) == 1 else None)
    return _read(name, lambda: sheets.of_frontier(found, _about(name, rows, making, measured)))


def _about(name: str, rows: tuple[tuple[str, str], ...], making: _Making, measured: tuple[dict, ...] = ()) -> About:
    about = About(name, measured, rows)
    return replace(about, checked=CHECKED) if making.verify else about


def _of_large(found: Large, name: str, rows: tuple[tuple[str, str], ...], making: _Making, beside: tuple[dict, ...] = ()) -> Sheet:
    if making.verify:
        try:
            proved = auditlarge.bound(found.certificate, found.topology)
            if proved < found.bound:
                raise VerificationError(f"the certificate proves {proved}, {found.bound} is claimed", "bound")
        except VerificationError as error:
            return _wrong(name, found.topology.name, found.collective, found.topology.ranks, error, rows)
    measured = beside + making.of(found.topology.name, found.collective, found.topology.ranks, found.root)
    about = About(name, measured, rows)
    if making.verify:
        about = replace(about, checked="the bound was added up again when this page was made; schedules were not replayed")
    return sheets.of_large(found, about)


def _of_large_document(doc: dict, name: str, making: _Making) -> list[Sheet]:
    """With its machine where that is known by name; else as the document alone says, unchecked."""

    def known() -> Large | None:
        from synth import topologies

        told = doc["topology"]
        try:
            machine = topologies.topology(str(told["name"])).live()
        except SynthError:
            return None
        if machine.ranks != told["ranks"] or machine.unit_bandwidth() != rational(told["unit_gbps"]):
            return None
        points = tuple(LargePoint(r["steps"], rational(r["bandwidth"]), r["chunks"], str(r["engine"]), _unmade) for r in doc["points"])
        bound = doc["bound"]
        return Large(
            machine, doc["collective"], doc["root"], rational(bound["value"]), bound["certificate"], doc["least_steps"], points,
            doc["seconds"], tuple(doc["notes"]),
        )  # fmt: skip

    found = _read(name, known)
    if found is not None:
        return [_read(name, lambda: _of_large(found, name, _file(name), making))]
    return [_read(name, lambda: sheets.of_large_document(doc, About(name, provenance=_file(name))))]


def _unmade() -> Bulk:
    raise SynthError("this schedule is in a file of its own")


def _of_schedule(given: Schedule, name: str, making: _Making) -> Sheet:
    task = given.collective
    if making.verify:
        try:
            audit.document(given.to_json())
        except VerificationError as error:
            return _wrong(name, given.network.name, task.name, given.network.ranks, error, _file(name))
    return _read(name, lambda: sheets.of_schedule(given, _about(name, _file(name), making)))


STATES = {DONE: ("done", GOOD), OPEN: ("open", PART), INFEASIBLE: ("impossible, proved", GOOD), FAILED: ("failed", PART)}


def _of_entry(entry: Entry, making: _Making) -> Sheet:
    rows = _origin(entry)
    if entry.state in (INFEASIBLE, FAILED) or entry.frontier is None:
        return _without(entry, rows, making)
    make = _of_frontier if isinstance(entry.frontier, Frontier) else _of_large
    return make(entry.frontier, entry.id, rows, making, entry.measurements)  # type: ignore[arg-type]


def _without(entry: Entry, rows: tuple[tuple[str, str], ...], making: _Making) -> Sheet:
    """Proved impossible, or failed twice."""
    found, certificate = entry.frontier, entry.certificate
    if making.verify and certificate and isinstance(found, Frontier):
        try:
            check.check(certificate, found.network.to_json(), found.collective.to_json(1))
        except VerificationError as error:
            return _wrong(entry.id, entry.topology, entry.collective, entry.ranks, error, rows)
    says = (f"found nothing: {entry.reason}",) if entry.reason else ()
    about = About(entry.id, provenance=rows)
    return sheets.of_nothing(about, entry.topology, entry.collective, entry.ranks, STATES[entry.state][0], says, certificate or None)


def _origin(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Provenance as rows of text; what is not known is left out."""
    made: Provenance = entry.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made.versions)
    options = ", ".join(f"{key}={value}" for key, value in entry.options)
    limit = "" if made.time_limit is None else f"{made.time_limit:g} s"
    rows = (
        ("entry", entry.fingerprint), ("state", entry.state), ("made", made.created), ("on", made.machine), ("versions", versions),
        ("encoding", made.encoding), ("solver", made.solver), ("seed", str(made.seed)), ("options", options), ("time limit", limit),
        ("seconds", f"{entry.seconds:.3g}"),
    )  # fmt: skip
    return tuple((key, value) for key, value in rows if value)
