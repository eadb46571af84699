"""The step of a training job: which collectives it issues, and their time with the library and with programs.

Read from a log of SYNTH_LOG, or from a dump of torch's flight recorder, as JSON (`_dump_fr_trace_json`) or as torch
writes it, a pickle: of that only plain lists, tuples, dicts, texts and numbers are read, so that a stranger's file can
run nothing. A step is the least number of calls whose repetitions are half of all that is recorded.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synth.errors import FormatError
from synth.model.tuning_plan import Plan
from synth.torch import record

SIZES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
# what torch calls a collective, from the longest name on
NAMES = {
    "reduce_scatter": "reduce-scatter", "all_to_all": "alltoall", "all_reduce": "allreduce", "all_gather": "allgather",
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Calls that are alike. `ranks`: of the group; 0 where it is not known."""

    group: str
    ranks: int
    collective: str
    bytes: int
    type: str


@dataclass(frozen=True)
class StepCalls:
    """Calls of one kind in a step. `calls`: in a step, or of all where no step was found. `seconds`: of one as it ran
    (median); `library`, `plan`: by the library, and by the plan's best program. None: not known."""

    kind: Kind
    calls: int
    ran: str
    seconds: float | None
    library: float | None
    plan: float | None


@dataclass(frozen=True)
class StepProfile:
    """`period`: the calls of a step; 0: no order repeats, and the rows are of all calls. `seconds`: of a step (median);
    None where it is not known."""

    period: int
    seconds: float | None
    rows: tuple[StepCalls, ...]


@dataclass
class Calls:
    """Calls in order: the kind of each and when it was made, in seconds; and times by kind."""

    kinds: list[Kind]
    at: list[float]
    ran: dict[Kind, str] = field(default_factory=dict)
    seconds: dict[Kind, float] = field(default_factory=dict)
    raced: dict[Kind, dict[str, float]] = field(default_factory=dict)


def load(path: Path) -> Calls:
    """Return the calls of a folder of SYNTH_LOG (of its latest job, and that job's rank with the lowest number), or of
    a flight recorder's dump. Raises FormatError for anything else."""
    if path.is_dir():
        return _of_log(path)
    try:
        if path.stat().st_size > record.MAX_BYTES:
            raise FormatError(f"is larger than {record.MAX_BYTES >> 20} MB", str(path))
        return _of_dump(plain(path.read_bytes()))
    except OSError as error:
        raise FormatError(str(error.strerror), str(path)) from None
    except FormatError as error:
        raise FormatError(error.args[0], str(path)) from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise FormatError("is no dump of torch's flight recorder, and no folder of SYNTH_LOG", str(path)) from None


class _Plain(pickle._Unpickler):  # the one in Python: the other takes memory for any number that a file names
    def find_class(self, module: str, name: str) -> Any:
        raise FormatError(f"asks for {module[:40]}.{name[:40]}, and a dump of the flight recorder holds plain data")


def plain(data: bytes) -> Any:
    """Return the plain data in JSON or in a pickle. Raises FormatError for a pickle that asks for anything else."""
    if data.lstrip()[:1] == b"{":
        return json.loads(data)
    try:
        return _Plain(io.BytesIO(data)).load()
    except FormatError:
        raise
    except Exception:  # a broken pickle raises nearly any
        raise ValueError from None


def _of_log(folder: Path) -> Calls:
    lines = record.rows_of(folder)
    job = max(str(line["job"]) for line in lines)
    rank = min(line["rank"] for line in lines if line["job"] == job)
    calls, kinds, orders = Calls([], []), {}, []
    for line in lines:
        if (line["job"], line["rank"]) != (job, rank):
            continue
        if "order" in line:
            orders.append(line)
            continue
        kind = Kind(*(line[name] for name in ("group", "ranks", "collective", "bytes", "type")))
        kinds[line["number"]] = kind
        calls.ran[kind] = line["ran"]
        calls.raced[kind] = line["times"]
        if line["seconds"]:
            calls.seconds[kind] = statistics.median(line["seconds"])
        if not orders and "order" not in line:
            calls.kinds += [kind] * min(line["calls"], record.ORDERED)
    for line in orders[-1:]:
        calls.kinds = []
        for number, ended in zip(line["order"], line["ended"], strict=True):
            if number in kinds:
                calls.kinds.append(kinds[number])
                calls.at.append(ended)
    return calls


def _of_dump(document: Any) -> Calls:
    """Return the calls of a dump; those that programs of the backend `synth` carry out are not in one."""
    ranks = {}
    for name, group in document["pg_config"].items():
        listed = group["ranks"]
        ranks[name] = len(json.loads(listed) if isinstance(listed, str) else listed)
    calls, found = Calls([], []), {}
    for entry in document["entries"]:
        library, _, name = entry["profiling_name"].rpartition(":")
        group = str(entry["process_group"][0])
        sides = []
        for side in ("input", "output"):
            sizes, kinds = entry[f"{side}_sizes"], entry[f"{side}_dtypes"]
            sides.append(sum(math.prod(size) * SIZES.get(kind, 0) for size, kind in zip(sizes, kinds, strict=False)))
        collective = next((ours for theirs, ours in NAMES.items() if theirs in name), name.strip("_"))
        kinds = entry["input_dtypes"]
        kind = Kind(group, ranks.get(group, 0), collective, max(sides), str(kinds[0]).lower() if kinds else "")
        calls.kinds.append(kind)
        calls.at.append(entry["time_created_ns"] / 1e9)
        calls.ran[kind] = library
        if entry.get("duration_ms") is not None:
            found.setdefault(kind, []).append(entry["duration_ms"] / 1e3)
    calls.seconds = {kind: statistics.median(values) for kind, values in found.items()}
    return calls


def repetition(order: Sequence[Hashable]) -> tuple[int, range]:
    """Return the least number of calls of a step, and the places of the calls that are those of the step before; (0,
    range(0)) where no repetitions are half of all."""
    for length in range(1, len(order) // 2 + 1):
        run = most = end = 0
        for i in range(length, len(order)):
            run = run + 1 if order[i] == order[i - length] else 0
            if run > most:
                most, end = run, i + 1
        if most + length >= max(2 * length, len(order) / 2):
            return length, range(end - most, end)
    return 0, range(0)


def step_of(calls: Calls, plan: Plan | None = None) -> StepProfile:
    """Return what a step issues. Times of the library and of programs are those of the races in the log, else the
    plan's at the next greater size that it judged."""
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(calls.kinds))}
    length, repeated = repetition([numbers[kind] for kind in calls.kinds[-record.ORDERED :]])
    kinds, at = calls.kinds[-record.ORDERED :], calls.at[-record.ORDERED :]
    in_step = kinds[repeated.stop - length : repeated.stop] if length else calls.kinds
    gaps = []
    if at:
        gaps = [at[i] - at[i - length] for i in repeated]
    rows = []
    for kind, count in Counter(in_step).items():
        raced = calls.raced.get(kind, {})
        library = raced.get("library")
        ours = min((seconds for name, seconds in raced.items() if name != "library"), default=None)
        table = plan and plan.table(kind.collective, kind.ranks)
        if table and table.library and table.ours and not raced and kind.bytes <= table.sizes[-1]:
            place = bisect_left(table.sizes, kind.bytes)
            library, ours = table.library[place], table.ours[place]
        rows.append(StepCalls(kind, count, calls.ran.get(kind, ""), calls.seconds.get(kind), library, ours))
    rows.sort(key=lambda row: -row.calls * row.kind.bytes)
    return StepProfile(length, statistics.median(gaps) if gaps else None, tuple(rows))
