"""Import of measurements: documents are attached to the entries whose programs they timed."""

from __future__ import annotations

from typing import NamedTuple

from synth.catalog.store import programs as store_programs
from synth.catalog.store.blobs import Blob, pack
from synth.catalog.store.programs import StoredProgram
from synth.catalog.store.sqlite_file import sqlite_errors, transaction
from synth.catalog.store.store import Store
from synth.errors import FormatError, SynthError
from synth.program.program import Program


class AttachedDocument(NamedTuple):
    """An entry that a document was attached to, and the number of the document's programs that belong to it.

    `fresh` is False where the document was attached already.
    """

    fingerprint: str
    programs: int
    fresh: bool


class MatchedProgram(NamedTuple):
    """A measured program that belongs to an entry. `program`: lowered again, None where the catalog has it already."""

    entry: str
    kept: StoredProgram
    program: Program | None


def attach(store: Store, doc: dict) -> list[AttachedDocument]:
    """Attach a document ``synth.measured/1`` to every entry that some of its programs belong to, with these programs.

    Raises FormatError for another document, SynthError where no program belongs to any entry.
    """
    rows = store_programs.measured_programs(doc)
    matches: dict[str, list[MatchedProgram]] = {}
    for row in rows:
        for match in _matches(store, doc, row):
            matches.setdefault(match.entry, []).append(match)
    if not matches:
        raise SynthError(_no_match(store, doc, len(rows)))
    blob = pack(doc)
    return [
        AttachedDocument(entry, len(group), _write(store, entry, group, doc, blob)) for entry, group in matches.items()
    ]


def _matches(store: Store, doc: dict, row: dict) -> list[MatchedProgram]:
    with sqlite_errors(store.path):
        known = store.base.execute(
            "SELECT e.fingerprint, p.fingerprint, p.point, p.runtime, p.protocol, p.instances FROM programs p"
            " JOIN entries e ON e.id = p.entry WHERE p.fingerprint = ?", (row["fingerprint"],),
        ).fetchall()  # fmt: skip
        if known:
            return [MatchedProgram(entry, StoredProgram(*kept), None) for entry, *kept in known]
        names = store_programs.candidates(store.base, doc, row)
    for name in names:
        try:
            match = store_programs.lowered(store.get(name), row)
        except FormatError:  # a damaged entry has no programs; `verify` names it
            continue
        if match is not None:
            return [MatchedProgram(store.fingerprint_of(name), *match)]
    return []


def _write(store: Store, entry: str, matches: list[MatchedProgram], doc: dict, blob: Blob) -> bool:
    number = store.row_of(entry)
    with sqlite_errors(store.path), transaction(store.base):
        for match in matches:
            if match.program is not None:
                store_programs.write(store.base, number, match.program, match.kept)
        return store.attach(number, str(doc["executor"]), blob, [match.kept.fingerprint for match in matches])


def _no_match(store: Store, doc: dict, count: int) -> str:
    what = f"{doc.get('collective') or 'a program'} on {doc.get('topology') or doc.get('ranks')}"
    return (
        f"none of its {count} programs ({what}) was lowered from a point of {store.path};"
        " measure one of the catalog's: `synth catalog export ID --to frontier -o f.json`, then `synth bench f.json`"
    )
