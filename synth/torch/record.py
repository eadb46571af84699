"""The log of a job: what ran where, and how long it took, counted by collective, size, type and carrier.

With SYNTH_LOG=FOLDER each rank writes FOLDER/rank-N.jsonl when its groups end; `synth torch log FOLDER` reads them.
Nothing is synchronized for it: times are those of the calls, which wait for other ranks as they do without a log.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from synth.errors import FormatError

KEPT = 512  # of the latest times of a row
MAX_BYTES = 64 << 20  # of a rank's file


@dataclass
class LoggedCalls:
    """Calls of one collective, size in bytes (greatest of its bucket) and type by one carrier. `seconds`: the latest;
    none of calls that gloo carries out in the background."""

    collective: str
    bytes: int
    type: str
    ran: str
    why: str
    calls: int = 0
    total: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


class Record:
    """The rows of one process group."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int, str, str, str], LoggedCalls] = {}

    def add(self, collective: str, nbytes: int, kind: str, ran: str, why: str, seconds: float | None) -> None:
        """Count one call."""
        key = collective, nbytes.bit_length(), kind, ran, why
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = LoggedCalls(collective, nbytes, kind, ran, why)
        row.calls += 1
        row.total += nbytes
        row.bytes = max(row.bytes, nbytes)
        if seconds is not None:
            row.seconds.append(seconds)

    def carried(self) -> dict[str, int]:
        """Return how many calls each carrier has carried out."""
        found: dict[str, int] = {}
        for row in self.rows.values():
            found[row.ran] = found.get(row.ran, 0) + row.calls
        return found

    def write(self, rank: int, ranks: int) -> None:
        """Append the rows to the rank's file in SYNTH_LOG, if that is set; say so where that cannot be."""
        folder = os.environ.get("SYNTH_LOG")
        if not folder:
            return
        lines = []
        for row in self.rows.values():
            facts = vars(row) | {"rank": rank, "ranks": ranks, "seconds": sorted(row.seconds)}
            lines.append(json.dumps(facts) + "\n")
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with open(Path(folder) / f"rank-{rank}.jsonl", "a", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            print(f"synth: SYNTH_LOG={folder} takes no log: {error.strerror}", flush=True)


@dataclass(frozen=True)
class Summary:
    """One row of all ranks. `median`: seconds of a call on the slowest rank; `fastest`: on the fastest, which waited
    least for others or came last. None where nothing was timed."""

    collective: str
    bytes: int
    type: str
    ran: str
    why: str
    ranks: int
    calls: int
    total: int
    median: float | None
    fastest: float | None


def read(folder: Path) -> list[Summary]:
    """Return the rows of a log, those with most bytes first. Raises FormatError for a file that is none."""
    found: dict[tuple, list[dict]] = {}
    files = sorted(folder.glob("rank-*.jsonl"))
    if not files:
        raise FormatError("holds no log; a job writes one with SYNTH_LOG", str(folder))
    for path in files:
        if path.stat().st_size > MAX_BYTES:
            raise FormatError(f"is larger than {MAX_BYTES >> 20} MB", str(path))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = json.loads(line)
                key = tuple(row[name] for name in ("collective", "type", "ran", "why", "ranks"))
                numbers = [row[name] for name in ("bytes", "calls", "total", "ranks")]
                if not all(isinstance(number, int) for number in numbers):
                    raise ValueError
                row["seconds"] = list(map(float, row["seconds"]))
                found.setdefault((*key, row["bytes"].bit_length()), []).append(row)
            except (ValueError, KeyError, TypeError):
                raise FormatError("is no row of a log", str(path), number) from None
    summaries = []
    for (collective, kind, ran, why, ranks, _), rows in found.items():
        medians = [statistics.median(row["seconds"]) for row in rows if row["seconds"]]
        most = {}
        for name in ("bytes", "calls", "total"):
            most[name] = max(row[name] for row in rows)
        slowest, fastest = max(medians, default=None), min(medians, default=None)
        facts = {"collective": collective, "type": kind, "ran": ran, "why": why, "ranks": ranks}
        summaries.append(Summary(**facts, **most, median=slowest, fastest=fastest))
    return sorted(summaries, key=lambda one: -one.total)
