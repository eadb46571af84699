"""The SQLite file of a catalog: opening, migration, transactions, and errors in one line.

WAL mode lets readers read while one writer writes; a second writer waits. A transaction that is interrupted by a kill
is undone when the file is opened next.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from synth.catalog.store.migrations import APPLICATION, MIGRATIONS, VERSION
from synth.errors import FormatError, SynthError

# Seconds to wait for another writer, which locks the file for one entry at a time.
PATIENCE = 60.0
DAMAGED = "is damaged: SQLite cannot read part of it; `sqlite3 FILE .recover` saves what can be saved"

Finish = Callable[[sqlite3.Connection, int], None]


def connect(path: Path, create: bool, finish: Finish = lambda base, version: None) -> sqlite3.Connection:
    """Open the database at `path`, and migrate it to this version. `create`: make it where there is none.

    `finish` is called with the connection and the version before, in the same transaction: for migrations that SQL
    statements cannot do. Raises FormatError where the file is no catalog or of a newer version, SynthError.
    """
    if not path.exists():
        if not create:
            raise SynthError(
                f"there is no catalog {path}; `synth catalog build` makes one, --db FILE or SYNTH_CATALOG names another"
            )
        if not path.parent.is_dir():
            raise SynthError(f"cannot write {path}: its folder does not exist")
    elif not path.is_file():
        raise SynthError(f"{path} is a folder or a device, no catalog")
    with sqlite_errors(path):
        base = sqlite3.connect(_address(path), timeout=PATIENCE, isolation_level=None, uri=True)
        base.text_factory = _decode
        try:
            base.execute("PRAGMA foreign_keys = ON")
            _migrate(base, path, create, finish)
        except BaseException:
            base.close()
            raise
    return base


def _decode(raw: bytes) -> str:
    """Return the text of `raw`; damaged bytes are escaped, so that one entry is malformed and not the whole query."""
    return raw.decode("utf-8", "backslashreplace")


def _address(path: Path) -> str:
    """Return the URI of the file for SQLite. Without permission to write it, or the files beside it that readers share,
    it is opened read-only or as immutable."""
    file = path.resolve().as_uri()
    if not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return file
    return f"{file}?mode=ro" if path.with_name(f"{path.name}-wal").exists() else f"{file}?immutable=1"


def _migrate(base: sqlite3.Connection, path: Path, create: bool, finish: Finish) -> None:
    version = _version(base, path)
    if version == VERSION:
        return
    if not os.access(path, os.W_OK):
        raise SynthError(
            f"{path} is of version {version} and read-only; make it writable once so that it can become version "
            f"{VERSION}"
        )
    if version == 0 and not create:
        raise FormatError("is an empty database, no catalog", str(path))
    _use_write_ahead_log(base)
    with transaction(base):  # another process may have done it since
        version = _version(base, path)
        for step in MIGRATIONS[version:]:
            for statement in step:
                base.execute(statement)
        finish(base, version)
        base.execute(f"PRAGMA application_id = {APPLICATION}")
        base.execute(f"PRAGMA user_version = {VERSION}")


def _use_write_ahead_log(base: sqlite3.Connection) -> None:
    """Turn the write-ahead log on. SQLite does not wait here by itself where another process is doing the same."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            base.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _version(base: sqlite3.Connection, path: Path) -> int:
    # One statement sees one state of the file, also while another process creates the catalog.
    version, owner, tables = base.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version, "
        "pragma_application_id"
    ).fetchone()
    if owner != APPLICATION and (tables or owner or version):
        raise FormatError("is an SQLite database, but no catalog of synth", str(path))
    if version > VERSION:
        raise FormatError(
            f"is a catalog of version {version}, this synth reads up to {VERSION}; update synth", str(path)
        )
    return version


@contextmanager
def transaction(base: sqlite3.Connection) -> Iterator[None]:
    """Write everything inside the block, or nothing of it."""
    base.execute("BEGIN IMMEDIATE")
    try:
        yield
        base.execute("COMMIT")
    except BaseException:
        if base.in_transaction:  # after some errors SQLite has rolled back by itself
            base.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(base: sqlite3.Connection) -> Iterator[None]:
    """Read everything inside the block as of one moment, whatever other processes write meanwhile."""
    if base.in_transaction:
        yield
        return
    base.execute("BEGIN")
    try:
        yield
    finally:
        base.execute("ROLLBACK")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Convert SQLite's errors inside the block to SynthError or FormatError, one line each."""
    try:
        yield
    except sqlite3.Error as error:
        raise _converted(error, path) from error
    except sqlite3.Warning as error:
        raise SynthError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:  # damaged text, also in SQLite's own messages
        raise FormatError(DAMAGED, str(path)) from error


def _converted(error: sqlite3.Error, path: Path) -> SynthError:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return SynthError(
                f"{path}: no space left to write; the open entry was not kept, everything before it is unharmed"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return SynthError(f"{path}: another process has been writing for {PATIENCE:g} s; try again when it is done")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return SynthError(f"{path}: cannot be written, it or its folder is read-only")
        case sqlite3.SQLITE_CANTOPEN:
            return SynthError(f"{path}: cannot be opened; is it, and its folder, readable and writable?")
        case sqlite3.SQLITE_IOERR:
            return SynthError(f"{path}: reading or writing failed ({error}); is the disk full or broken?")
        case sqlite3.SQLITE_NOTADB:
            return FormatError("is no catalog: not an SQLite database", str(path))
        case sqlite3.SQLITE_CORRUPT:
            return FormatError(DAMAGED, str(path))
    return SynthError(f"{path}: {error}")
