"""`verify` of a catalog: every entry replayed and re-checked by exact arithmetic, without a solver, and never stopped
by a bad one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from synth.catalog.entry import FAILED, INFEASIBLE, Entry, fingerprint, large_fingerprint
from synth.catalog.store import programs
from synth.catalog.store.blobs import Blob, intact, unpack_bytes
from synth.catalog.store.find import Alias, checked
from synth.catalog.store.rows import packed
from synth.catalog.store.sqlite_file import said
from synth.catalog.store.store import Store
from synth.checker.documents import scale_frontier
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.frontier import Frontier
from synth.model.scale_frontier import Large
from synth.program import analysis

# Columns of a row and what of an entry they repeat.
REPEATED = (
    "collective",
    "roots",
    "ranks",
    "engine",
    "complete",
    "intervals",
    "invariant",
    "alpha",
    "unit",
    "share",
    "points",
    "fewest",
    "most",
)


class Checked(NamedTuple):
    """One entry, or a machine that one answers for too: what was established, a line each, or what is wrong."""

    fingerprint: str
    name: str
    lines: tuple[str, ...]
    error: str | None


def check(store: Store) -> Iterator[Checked]:
    """Every entry and alias of the catalog, in the order they were put. Raises SynthError where the file itself cannot
    be read."""
    with said(store.path):
        rows = store.base.execute("SELECT id, fingerprint, topology, collective FROM entries ORDER BY id").fetchall()
    for number, key, topology, collective in rows:
        yield _one(store, number, str(key), f"{collective} on {topology}")


def _one(store: Store, number: int, key: str, name: str) -> Checked:
    try:
        entry = store.entry(number)
        lines = [
            *_columns(store, number, entry),
            *_answer(store, number, entry),
            *_programs(store, number),
            *_aliases(store, number, entry),
        ]
    except SynthError as error:
        return Checked(key, name, (), _plain(error, key))
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
        return Checked(key, name, (), f"is malformed: {error!r}"[:300])
    return Checked(key, name, tuple(lines), None)


def _plain(error: SynthError, key: str) -> str:
    return str(error).removeprefix(f"entry {key[:12]} ")


def _columns(store: Store, number: int, entry: Entry) -> list[str]:
    """The row and the points say what the frontier says, and the fingerprint is its problem's."""
    found = entry.frontier
    with said(store.path):
        row = store.columns(number)
        points = store.base.execute("SELECT * FROM points WHERE entry = ? ORDER BY number", (number,)).fetchall()
        blobs = store.blobs(number)
    for name, blob in blobs.items():
        try:
            intact(blob)
        except FormatError as error:
            raise FormatError(f"is damaged: its {name} {error}") from None
    if found is None:
        return []
    again = packed(entry)
    for name in REPEATED:
        if row[name] != again.columns[name]:
            raise VerificationError(f"its row says {name} {row[name]!r}, its frontier {again.columns[name]!r}")
    if [tuple(p[1:]) for p in points] != list(again.points):
        raise VerificationError("its points are not those of its frontier")
    if isinstance(found, Large):
        own = large_fingerprint(found.topology, found.collective, found.root, entry.options)
    else:
        own = fingerprint(found.network, found.collective, entry.options)
    if own != entry.fingerprint:
        raise VerificationError("its fingerprint is that of another problem")
    return []


def _answer(store: Store, number: int, entry: Entry) -> list[str]:
    """Schedules replayed, certificates re-checked, claims of completeness and impossibility proved."""
    found = entry.frontier
    if entry.state == INFEASIBLE and (not _excluded(entry) or (isinstance(found, Frontier) and found.points)):
        raise VerificationError(
            f"is infeasible, but holds points or no proof (certificate {entry.certificate.get('kind')!r})"
        )
    if isinstance(found, Frontier):
        return checked(entry)
    if isinstance(found, Large):
        with tempfile.TemporaryDirectory() as folder:
            blobs = store.blobs(number)
            for name, blob in blobs.items():
                if name.startswith("point-"):
                    (Path(folder) / name).write_bytes(unpack_bytes(blob))
            files = {i: f"point-{i + 1}" for i in range(len(found.points)) if f"point-{i + 1}" in blobs}
            return scale_frontier.document(found.to_json(files, links=False), Path(folder), lambda: found.topology)
    return [f"{FAILED}: {entry.reason}"]


def _excluded(entry: Entry) -> bool:
    """Whether the certificate, if it holds, leaves no schedule: some rank is never reached, or not in the steps that
    are allowed."""
    match entry.certificate.get("kind"):
        case "unreachable":
            return True
        case "distance":
            most = dict(entry.options).get("max-steps")
            return most is not None and int(most) < entry.certificate["distance"]
        case "too-few-steps":
            most = dict(entry.options).get("max-steps")
            return most is not None and int(most) <= entry.certificate["steps"]
    return False


def _programs(store: Store, number: int) -> list[str]:
    """Stored programs are what their fingerprints say, do what they claim, and belong to points; measurements are
    intact."""
    with said(store.path):
        most = store.base.execute("SELECT count(*) FROM points WHERE entry = ?", (number,)).fetchone()[0]
        rows = store.base.execute(
            "SELECT fingerprint, point, runtime, sum, size, body FROM programs WHERE entry = ?", (number,)
        ).fetchall()
    said_of = []
    for key, point, runtime, *blob in rows:
        if not 1 <= point <= most:
            raise VerificationError(f"program {key[:12]} is of point {point}; there are {most}")
        report = analysis.check(programs.read(Blob(*blob), key), None if runtime == "synth" else runtime)
        if not report.ok:
            raise VerificationError(f"program {key[:12]} is wrong: {report.errors[0].message}")
        said_of.append(f"program {key[:12]} of point {point}: {report.outputs} outputs followed, no race, no deadlock")
    for doc in store.documents(number):
        programs.measured(doc)
    return said_of


def _aliases(store: Store, number: int, entry: Entry) -> list[str]:
    with said(store.path):
        text = "SELECT fingerprint, topology, sum, size, body FROM aliases WHERE entry = ?"
        rows = store.base.execute(text, (number,)).fetchall()
    for key, topology, *blob in rows:
        try:
            checked(Alias.read(Blob(*blob)).of(entry))
        except (SynthError, KeyError, ValueError, TypeError, IndexError) as error:
            raise VerificationError(f"as {key[:12]} on {topology}: {error}") from None
    return [f"moved to {topology}, replayed and re-checked there" for _, topology, *_ in rows]
