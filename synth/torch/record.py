"""The log of a job: what ran where, and how long it took, counted by group, collective, size, type and carrier.

With SYNTH_LOG=FOLDER each process writes FOLDER/JOB-rank-N.jsonl, N being its rank in the job: rows when its groups
end, and when it ends the order of the latest calls. `synth torch log FOLDER` and `synth torch profile` read them.

Nothing is synchronized for it. Ranks that share memory write down there when they begin a call anyhow; so a rank that
has its result knows how long it has waited for the last of them, and the last one that it was.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synth.errors import FormatError

KEPT = 512  # of the latest times of a row
ORDERED = 4096  # of the latest calls of a process
MAX_BYTES = 64 << 20  # of a process's file

_numbers = itertools.count()
_order: deque[tuple[LoggedCalls, float]] = deque(
    maxlen=ORDERED
)  # the latest calls of this process, and when they ended


@dataclass
class LoggedCalls:
    """Calls of one collective, size in bytes (greatest of its bucket) and type by one carrier.

    `times`: the median seconds of the library and of each program in the race. `seconds`, `waits`: of the latest calls,
    and of these the seconds until the last rank came; none of calls that gloo carries out in the background. `spent`,
    `waited`: of all calls. `last`: how often this rank came last of all; `behind`: how many seconds after the one
    before it, together.
    """

    record: Record
    collective: str
    bytes: int
    type: str
    ran: str
    why: str
    times: dict[str, float]
    number: int = field(default_factory=lambda: next(_numbers))
    calls: int = 0
    total: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    spent: float = 0.0
    waited: float = 0.0
    last: int = 0
    behind: float = 0.0

    def count(
        self,
        nbytes: int,
        begun: float | None = None,
        ended: float = 0.0,
        arrivals: Sequence[float] = (),
        place: int = 0,
    ) -> None:
        """Count one call. `arrivals`: when each rank began it, 0 where it has not; this rank's at `place`."""
        self.calls += 1
        self.total += nbytes
        if nbytes > self.bytes:
            self.bytes = nbytes
        if begun is None:
            _order.append((self, time.perf_counter()))
            return
        _order.append((self, ended))
        seconds, latest = ended - begun, max(arrivals)
        wait = min(seconds, max(0.0, latest - begun))
        self.seconds.append(seconds)
        self.waits.append(wait)
        self.spent += seconds
        self.waited += wait
        if arrivals[place] == latest and all(arrivals):
            self.last += 1
            self.behind += latest - max((*arrivals[:place], *arrivals[place + 1 :]))


@dataclass
class Record:
    """The rows of one process group. `rank`: of this process in the job; `ranks`: how many the group has."""

    job: str = ""
    group: str = ""
    rank: int = 0
    ranks: int = 1
    rows: dict[tuple[str, int, str, str, str], LoggedCalls] = field(default_factory=dict)

    def row(
        self, collective: str, nbytes: int, kind: str, ran: str, why: str, times: dict[str, float] | None = None
    ) -> LoggedCalls:
        """Return the row for such calls."""
        key = collective, nbytes.bit_length(), kind, ran, why
        if key not in self.rows:
            self.rows[key] = LoggedCalls(self, collective, nbytes, kind, ran, why, times or {})
        return self.rows[key]

    def carried(self) -> dict[str, int]:
        """Return how many calls each carrier has carried out."""
        found: Counter[str] = Counter()
        for row in list(self.rows.values()):
            found[row.ran] += row.calls
        return dict(found)

    def write(self) -> None:
        """Append the rows to the process's file in SYNTH_LOG, if that is set; say so where that cannot be."""
        facts = []
        for row in list(self.rows.values()):
            where = {"group": self.group, "ranks": self.ranks}
            facts.append(vars(row) | where | {"seconds": list(row.seconds), "waits": list(row.waits)})
        self.append(facts)

    def append(self, documents: Iterable[dict]) -> None:
        """Append lines to the process's file."""
        folder = os.environ.get("SYNTH_LOG")
        if not folder:
            return
        lines = []
        for document in documents:
            named = document | {"job": self.job, "rank": self.rank}
            named.pop("record", None)
            lines.append(json.dumps(named) + "\n")
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with open(Path(folder) / f"{self.job}-rank-{self.rank}.jsonl", "a", encoding="utf-8") as file:
                file.writelines(lines)
        except OSError as error:
            print(f"synth: SYNTH_LOG={folder} takes no log: {error.strerror}", flush=True)


def write_order() -> None:
    """Append the order of this process's latest calls: the numbers of their rows, and when they ended."""
    if _order:
        record = _order[-1][0].record
        facts: dict[str, list] = {"order": [], "ended": []}
        for row, ended in _order:
            if row.record.job == record.job:
                facts["order"].append(row.number)
                facts["ended"].append(ended)
        record.append([facts])


def prometheus(records: Iterable[Record]) -> str:
    """Return the rows of these groups as counters in Prometheus' text format."""
    names = {"calls": "calls", "total": "bytes", "spent": "seconds", "waited": "waiting_seconds", "last": "last"}
    sums: dict[str, Counter[str]] = {name: Counter() for name in names}
    for record in records:
        for row in list(record.rows.values()):
            labels = {"group": record.group, "collective": row.collective, "type": row.type, "ran": row.ran}
            text = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
            for name, counter in sums.items():
                counter[text] += getattr(row, name)
    lines = []
    for name, counter in sums.items():
        lines.append(f"# TYPE synth_{names[name]}_total counter")
        for text, value in counter.items():
            lines.append(f"synth_{names[name]}_total{{{text}}} {value}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Summary:
    """One row of all ranks of a group. `median`, `waiting`, `transfer`: seconds of a call, of these until the last rank
    came, and from then on, each on the rank where it is longest; None where nothing was timed. `latest`: the rank that
    came last most often, in `late` of the calls, by `behind` seconds in the mean; None where nobody is known to.
    `times`: the median seconds of the library and of each program in the race."""

    job: str
    group: str
    collective: str
    bytes: int
    type: str
    ran: str
    why: str
    ranks: int
    calls: int
    total: int
    median: float | None
    waiting: float | None
    transfer: float | None
    latest: int | None
    late: float
    behind: float
    times: dict[str, float]


KEY = ("job", "group", "collective", "type", "ran", "why", "ranks")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, checked. Raises FormatError for a file that is none."""
    found = []
    files = sorted(folder.glob("*rank-*.jsonl"))
    if not files:
        raise FormatError("holds no log; a job writes one with SYNTH_LOG", str(folder))
    for path in files:
        if path.stat().st_size > MAX_BYTES:
            raise FormatError(f"is larger than {MAX_BYTES >> 20} MB", str(path))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = json.loads(line)
                whole, listed = ["rank"], ("order", "ended")
                if "order" not in row:
                    whole += ["bytes", "calls", "total", "ranks", "last", "number"]
                    listed = ("seconds", "waits")
                    row["times"] = {str(name): float(seconds) for name, seconds in row["times"].items()}
                    row |= {name: str(row[name]) for name in KEY if name != "ranks"} | {"behind": float(row["behind"])}
                if not all(isinstance(row[name], int) for name in whole):
                    raise ValueError
                for name in listed:
                    row[name] = list(map(float, row[name]))
                if len(row[listed[0]]) != len(row[listed[1]]):
                    raise ValueError
                found.append(row)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise FormatError("is no row of a log", str(path), number) from None
    return found


def read(folder: Path) -> list[Summary]:
    """Return the rows of a log, by job and those with most bytes first. Raises FormatError for a file that is none."""
    found: dict[tuple, list[dict]] = {}
    for row in rows_of(folder):
        if "order" not in row:
            key = tuple(row[name] for name in KEY)
            found.setdefault((*key, row["bytes"].bit_length()), []).append(row)
    summaries = []
    for key, rows in found.items():
        facts = dict(zip(KEY, key, strict=False))
        for name in ("bytes", "calls", "total"):
            facts[name] = max(row[name] for row in rows)

        # each rank's medians; of them the longest
        timed = [row for row in rows if row["seconds"]]
        times: dict[str, list[float]] = {"median": [], "waiting": [], "transfer": []}
        for row in timed:
            rest = [seconds - wait for seconds, wait in zip(row["seconds"], row["waits"], strict=True)]
            for name, values in zip(times, (row["seconds"], row["waits"], rest), strict=True):
                times[name].append(statistics.median(values))
        for name, medians in times.items():
            facts[name] = max(medians, default=None)

        # a rank that ended and began again has several rows
        last: Counter[int] = Counter()
        behind: Counter[int] = Counter()
        for row in timed:
            last[row["rank"]] += row["last"]
            behind[row["rank"]] += row["behind"]
        latest, often = max(last.items(), key=lambda item: item[1], default=(None, 0))
        known = {"latest": latest if often else None, "late": often / max(1, facts["calls"]), "behind": 0.0}
        if often:
            known["behind"] = behind[latest] / often
        raced = max((row["times"] for row in rows), key=len)
        summaries.append(Summary(**facts, **known, times=raced))
    return sorted(summaries, key=lambda one: (one.job, -one.total))
