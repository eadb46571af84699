"""The JSON-lines log of a sweep: one record a line, flushed as it comes, read back by the same command.

Nothing read back is trusted: points are replayed and their certificates checked again; a torn last line is dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from synth.errors import SynthError
from synth.schedule import Problem

VERSION = 1


def default_directory() -> Path:
    """Where logs go unless told otherwise: $SYNTH_CACHE, else $XDG_CACHE_HOME/synth, else ~/.cache/synth."""
    if chosen := os.environ.get("SYNTH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "synth"


class Log:
    """Records of one sweep, keyed by `key` (a fingerprint of the question). `path` None keeps nothing."""

    def __init__(self, path: Path | None, key: str, fresh: bool = False) -> None:
        self.path, self.records = path, []
        self._file = None
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not fresh and path.exists():
                self.records = [r for r in self._read(path) if r.get("kind") != "head"] if self._matches(path, key) else []
            keep = bool(self.records)
            self._file = path.open("a" if keep else "w", encoding="utf-8")
            if keep:
                self._file.write("\n")  # a torn last line stays a line of its own
            else:
                self.append({"kind": "head", "version": VERSION, "key": key})
        except OSError as error:
            raise SynthError(f"cannot write the sweep's log {path}: {error.strerror}; set SYNTH_CACHE to a writable directory") from None

    @staticmethod
    def _read(path: Path) -> Iterator[dict]:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    if isinstance(record, dict):
                        yield record

    def _matches(self, path: Path, key: str) -> bool:
        head = next(self._read(path), {})
        return head.get("key") == key and head.get("version") == VERSION

    def append(self, record: dict) -> None:
        """Write one record and make sure that it survives a kill."""
        if self._file is not None:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def refuted(self, problem: Problem) -> bool:
        """Whether an earlier run proved this very problem unsatisfiable."""
        want = [problem.chunks, problem.steps, problem.rounds]
        return any(r.get("kind") == "unsat" and r.get("query") == want for r in self.records)

    def close(self, finished: bool) -> None:
        """Close the log; a finished sweep needs it no more and removes it."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if finished and self.path is not None:
                self.path.unlink(missing_ok=True)
