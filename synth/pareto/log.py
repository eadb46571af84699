"""The JSON-lines log of a sweep: one record a line, flushed as it comes, read back by the same command.

Nothing read back is trusted: points are replayed and their certificates checked again. A torn last line is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from synth.checker.certificates import cuts
from synth.checker.schedule import replay
from synth.errors import SynthError, VerificationError
from synth.model.collective import Collective
from synth.model.documents.own_file import open_own
from synth.model.frontier import Point
from synth.model.schedule import Problem
from synth.model.topology import Network
from synth.solvers.deadline import NEVER, Deadline

# Version of the records and of the queries behind them: a log of a more restrictive model is not continued.
VERSION = 2
# Beginning of every log, without blanks.
HEAD = b'{"kind":"head"'
# Seconds, about, to replay one send of a record; errors of broken records.
SECONDS_PER_RECORD = 4e-5
BROKEN = (SynthError, KeyError, ValueError, TypeError, IndexError, AttributeError)


class LogError(SynthError):
    """The log that a query names cannot be written, is no log of a sweep, or belongs to another run."""


def default_directory() -> Path:
    """Return the default directory of logs: $SYNTH_CACHE, else $XDG_CACHE_HOME/synth, else ~/.cache/synth."""
    if directory := os.environ.get("SYNTH_CACHE"):
        return Path(directory)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "synth"


def foreign(path: Path) -> bool:
    """Return True for an existing file that no sweep wrote, not even one that was killed at once."""
    try:
        with path.open("rb") as file:
            begins = b"".join(file.read(64).split())[: len(HEAD)] if path.is_file() else b""
    except OSError:
        return False
    return not HEAD.startswith(begins)


class Log:
    """Records of one sweep, keyed by `key` (a fingerprint of its question). With `path` None nothing is written.

    `records`: those of an earlier run of the same question in the file.
    A log that cannot be written, or that another run of the same question has locked, is left out: `path` is None then,
    and `trouble` says why. As a context manager it closes the log, which stays for the next run.
    """

    def __init__(self, path: Path | None, key: str, fresh: bool = False) -> None:
        self.path: Path | None = None
        self.records: list[dict] = []
        self.trouble = ""
        self._file = None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if _is_device(path):
                self.trouble = f"cannot write the sweep's log {path.name}: is not a file"
                return
            file = open_own(path)
        except OSError as error:
            fault = "is a link" if path.is_symlink() else error.strerror
            self.trouble = f"cannot write the sweep's log {path.name}: {fault}; set SYNTH_CACHE to a writable directory"
            return
        if not _locked(file):
            file.close()
            self.trouble = f"another run of the same question writes the log {path.name}"
            return
        self.path, self._file = path, file
        earlier: list[dict] = []
        if not fresh:
            head, *others = [*self._read(file), {}]
            if head.get("key") == key and head.get("version") == VERSION:
                earlier = [record for record in others if record and record.get("kind") != "head"]
        if earlier:
            self.records = earlier
            file.write("\n")  # a torn last line stays a line of its own
            return
        file.truncate(0)
        self.append({"kind": "head", "version": VERSION, "key": key})

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(finished=False)

    @staticmethod
    def _read(file: IO[str]) -> Iterator[dict]:
        """Yield the records of an open log, from its beginning; a torn line is none."""
        file.seek(0)
        for line in file:
            with contextlib.suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record

    def append(self, record: dict) -> None:
        """Write one record and make sure that it survives a kill."""
        if self._file is not None:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def refuted(self, problem: Problem) -> bool:
        """Return True where an earlier run recorded that this very problem is unsatisfiable.

        The record only saves a query: no point, bound or claim of a frontier rests on it, so a false record can hide a
        schedule but prove nothing.
        """
        query = [problem.chunks, problem.steps, problem.rounds]
        return any(r.get("kind") == "unsat" and r.get("query") == query for r in self.records)

    def close(self, finished: bool) -> None:
        """Close the log. It is removed after a finished sweep, which needs it no more."""
        if self._file is not None:
            if finished and self.path is not None:
                self.path.unlink(missing_ok=True)  # before the lock is released
            self._file.close()
            self._file = None


def _is_device(path: Path) -> bool:
    """Return True where `path` exists and is neither a file nor a folder.

    One system call decides, because another run may remove its log meanwhile.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _locked(file: IO[str]) -> bool:
    """Take the lock of an open file. Return False where another process has it, True where there are no such locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def point_record(point: Point) -> dict:
    """Return the record of a point in a log: its document without machine and collective, which the question has."""
    return {"kind": "point", "point": point.document_without_problem}


def points_from_records(
    network: Network,
    collective: Collective,
    records: Iterable[dict],
    steps: int | None = None,
    deadline: Deadline = NEVER,
) -> Iterator[Point]:
    """Yield the points of an earlier run that replay and whose certificates check: those of `steps` steps, or all.

    They are replayed on `network`, whatever machine a record names. Points that are expected to take longer than the
    time until the `deadline` are left out.
    """
    for record in records:
        if record.get("kind") == "point":
            try:
                document = record["point"]
                sends = sum(len(step["sends"]) for step in document["schedule"]["steps"])
                late = deadline.remaining() < SECONDS_PER_RECORD * sends
                if late or (steps is not None and document["steps"] != steps):
                    continue
                point = Point.from_json(document, (network, collective))
                replay.schedule(point.schedule)
                bound = point.bound
                if cuts.check(bound.certificate, network, collective.document, steps=point.steps) != bound.value:
                    raise VerificationError("its certificate proves another bound")
            except BROKEN:
                continue
            yield point
