"""The catalog from notebooks: `synth.api.catalog.open("catalog.db")` is a `Store`; the other functions work on one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.api.inputs import named_topology
from synth.api.programs import chosen_point
from synth.errors import FormatError, SynthError
from synth.model.frontier import ParetoFrontier, StepCount
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.catalog.entry import Entry
    from synth.catalog.store.gc import RemovableRows
    from synth.catalog.store.measurements import AttachedDocument
    from synth.catalog.store.rows import EntryRow
    from synth.catalog.store.store import Store
    from synth.catalog.store.verify import CheckedEntry
    from synth.export.exported_files import ExportResult


def open(path: str | Path = "catalog.db", *, create: bool = False) -> Store:
    """The catalog at `path`, a context manager; made where there is none if `create`. Raises FormatError,
    SynthError."""
    from synth.catalog.store.store import Store

    return Store.open(path, create=create)


def machine_name(name: str) -> str:
    """The name under which a catalog keeps a machine: that of the topology that `name` stands for (dgx1: dgx1-v100),
    else itself."""
    try:
        return named_topology(name).name
    except SynthError:
        return name


def listed(
    store: Store,
    topology: str | None = None,
    collective: str | None = None,
    state: str | None = None,
    ranks: int | None = None,
) -> tuple[list[EntryRow], list[str]]:
    """Return the entries that `Store.ls` finds, and a line for each that is damaged."""
    rows: list[EntryRow] = []
    damaged: list[str] = []
    for row in store.ls(topology, collective, state, ranks):
        if isinstance(row, FormatError):
            damaged.append(str(row))
        else:
            rows.append(row)
    return rows, damaged


def document(entry: Entry) -> dict:
    """Return an entry as the JSON document ``synth.entry/1`` (docs/catalog.md)."""
    frontier = entry.frontier
    return {
        "schema": "synth.entry/1",
        "fingerprint": entry.fingerprint,
        "topology": entry.topology,
        "collective": entry.collective,
        "roots": list(entry.roots),
        "ranks": entry.ranks,
        "options": dict(entry.options),
        "state": entry.state,
        "reason": entry.reason,
        "seconds": entry.seconds,
        "provenance": entry.provenance.to_json(),
        "certificate": entry.certificate,
        "frontier": None if frontier is None else frontier.to_json(),
        "measurements": list(entry.measurements),
    }


def verify(store: Store) -> Iterator[CheckedEntry]:
    """Replay and re-check every entry of the catalog, without a solver.

    Yields a result for each entry, a bad one too: nothing is raised for it.
    """
    from synth.catalog.store.verify import check

    return check(store)


def gc(store: Store, *, dry: bool = False) -> tuple[list[RemovableRows], int]:
    """Remove unused content. Returns the removed objects and the bytes by which the file shrank.

    With `dry` nothing is removed: the objects are those that would be.
    """
    from synth.catalog.store import gc as store_gc

    return (store_gc.removable_rows(store), 0) if dry else store_gc.collect(store)


def measured(store: Store, document: str | Path | dict) -> list[AttachedDocument]:
    """Attach measurements (``synth.measured/1``, a file or the document) to the entries whose programs they timed.

    Raises FormatError for another document, SynthError where none of its programs belongs to an entry.
    """
    from synth.catalog.store.measurements import attach
    from synth.checker.documents import exact_frontier

    if isinstance(document, dict):
        return attach(store, document)
    try:
        return attach(store, exact_frontier.read(Path(document), "measurements"))
    except FormatError as error:
        raise error if error.file else FormatError(str(error), str(document)) from None
    except SynthError as error:
        raise SynthError(f"{document}: {error}") from None


def export(entry: Entry, to: str = "msccl-xml", **options: Any) -> ExportResult:
    """A point of an entry, in the form of a runtime; options as `synth.api.export_program`
    has them.

    Raises SynthError where the entry has no point, or its schedules are too large to write out.
    """
    from synth.api.programs import export_program as exported

    return exported(frontier(entry), to, **options)


def schedule(entry: Entry, point: int | StepCount | None = None, size: int | None = None) -> Schedule:
    """The schedule of a point, with every send listed.

    `point`: its number, from 1, or its steps; None: the best at `size`, 1 MiB unless given.

    Raises SynthError where there is none, or it is too large for that, UsageError for another point.
    """
    return chosen_point(frontier(entry), point, size).schedule.written_out()


def frontier(entry: Entry) -> ParetoFrontier:
    """The frontier of an entry. Raises SynthError where it has no point."""
    if entry.frontier is None or not entry.frontier.points:
        raise SynthError(f"entry {entry.id} has no point ({entry.state})")
    return entry.frontier
