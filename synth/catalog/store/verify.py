"""Verification of a catalog: every entry is replayed and re-checked by exact arithmetic, without a solver.

An entry that is wrong does not stop the verification of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from synth.catalog.entry import FAILED, INFEASIBLE, Entry
from synth.catalog.store import exact_frontiers, programs
from synth.catalog.store.blobs import Blob, check_checksum
from synth.catalog.store.find import Alias
from synth.catalog.store.rows import CODECS, packed
from synth.catalog.store.sqlite_file import sqlite_errors
from synth.catalog.store.store import Store
from synth.errors import FormatError, SynthError, VerificationError
from synth.program import analysis

# The columns of a row that repeat values of the frontier, so that `ls` need not read it.
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


class CheckedEntry(NamedTuple):
    """The result for one entry with its aliases: `lines`, one for each verified claim, or the `error`."""

    fingerprint: str
    name: str
    lines: tuple[str, ...]
    error: str | None


def check(store: Store) -> Iterator[CheckedEntry]:
    """Check every entry of the catalog with its aliases, oldest first, and yield the results. Raises SynthError where
    the file itself cannot be read."""
    with sqlite_errors(store.path):
        rows = store.base.execute("SELECT id, fingerprint, topology, collective FROM entries ORDER BY id").fetchall()
    for number, key, topology, collective in rows:
        yield _check_entry(store, number, str(key), f"{collective} on {topology}")


def _check_entry(store: Store, number: int, key: str, name: str) -> CheckedEntry:
    try:
        entry = store.entry(number)
        lines = [
            *_columns(store, number, entry),
            *_answer(store, number, entry),
            *_programs(store, number),
            *_aliases(store, number, entry),
        ]
    except SynthError as error:
        return CheckedEntry(key, name, (), _plain(error, key))
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
        return CheckedEntry(key, name, (), f"is malformed: {error!r}"[:300])
    return CheckedEntry(key, name, tuple(lines), None)


def _plain(error: SynthError, key: str) -> str:
    return str(error).removeprefix(f"entry {key[:12]} ")


def _columns(store: Store, number: int, entry: Entry) -> list[str]:
    """Check that the row and the points agree with the frontier, and that the fingerprint is that of its problem."""
    frontier = entry.frontier
    with sqlite_errors(store.path):
        row = store.columns(number)
        points = store.base.execute("SELECT * FROM points WHERE entry = ? ORDER BY number", (number,)).fetchall()
        blobs = store.blobs(number)
    for name, blob in blobs.items():
        try:
            check_checksum(blob)
        except FormatError as error:
            raise FormatError(f"is damaged: its {name} {error}") from None
    if frontier is None:
        return []
    expected = packed(entry)
    for name in REPEATED:
        if row[name] != expected.columns[name]:
            raise VerificationError(f"its row says {name} {row[name]!r}, its frontier {expected.columns[name]!r}")
    if [tuple(p[1:]) for p in points] != list(expected.points):
        raise VerificationError("its points are not those of its frontier")
    if CODECS[frontier.engine].problem(frontier, entry.options) != entry.fingerprint:
        raise VerificationError("its fingerprint is that of another problem")
    return []


def _answer(store: Store, number: int, entry: Entry) -> list[str]:
    """Replay schedules, and re-check certificates and the claims of completeness and impossibility."""
    frontier = entry.frontier
    points = frontier is not None and frontier.points
    if entry.state == INFEASIBLE and (not _is_proof(entry) or points):
        raise VerificationError(
            f"is infeasible, but holds points or no proof (certificate {entry.certificate.get('kind')!r})"
        )
    if frontier is None:
        return [f"{FAILED}: {entry.reason}"]
    return CODECS[frontier.engine].check(entry, store.blobs(number))


def _is_proof(entry: Entry) -> bool:
    """Return True if a valid certificate of this kind proves that no schedule exists: a rank is unreachable, or needs
    more steps than the options allow."""
    match entry.certificate.get("kind"):
        case "unreachable":
            return True
        case "distance":
            maximum = dict(entry.options).get("max-steps")
            return maximum is not None and int(maximum) < entry.certificate["distance"]
        case "too-few-steps":
            maximum = dict(entry.options).get("max-steps")
            return maximum is not None and int(maximum) <= entry.certificate["steps"]
    return False


def _programs(store: Store, number: int) -> list[str]:
    """Check stored programs: their fingerprints, their points and their results; and that measurements are intact."""
    with sqlite_errors(store.path):
        point_count = store.base.execute("SELECT count(*) FROM points WHERE entry = ?", (number,)).fetchone()[0]
        rows = store.base.execute(
            "SELECT fingerprint, point, runtime, sum, size, body FROM programs WHERE entry = ?", (number,)
        ).fetchall()
    lines = []
    for key, point, runtime, *blob in rows:
        if not 1 <= point <= point_count:
            raise VerificationError(f"program {key[:12]} is of point {point}; there are {point_count}")
        report = analysis.check(programs.read(Blob(*blob), key), None if runtime == "synth" else runtime)
        report.require_right(f"program {key[:12]}")
        lines.append(f"program {key[:12]} of point {point}: {report.outputs} outputs followed, no race, no deadlock")
    for doc in store.documents(number):
        programs.measured_programs(doc)
    return lines


def _aliases(store: Store, number: int, entry: Entry) -> list[str]:
    with sqlite_errors(store.path):
        text = "SELECT fingerprint, topology, sum, size, body FROM aliases WHERE entry = ?"
        rows = store.base.execute(text, (number,)).fetchall()
    for key, topology, *blob in rows:
        try:
            exact_frontiers.check(Alias.read(Blob(*blob)).of(entry), {})
        except (SynthError, KeyError, ValueError, TypeError, IndexError) as error:
            raise VerificationError(f"as {key[:12]} on {topology}: {error}") from None
    return [f"moved to {topology}, replayed and re-checked there" for _, topology, *_ in rows]
