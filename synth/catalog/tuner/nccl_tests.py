"""Tables of nccl-tests and rccl-tests: what their numbers say of the collective and the ranks.

A table has a row for each size: bytes of the larger of one rank's buffers, elements of the call's count argument, the
time, and the bus bandwidth, which is a factor of the collective and the ranks times size / time (doc/PERFORMANCE.md of
nccl-tests). Texts and JSON are read into the same `TestTable`, and `measurement` takes the one that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

from synth.catalog.tuner.measurements import Measurement, Sample, median_samples
from synth.errors import FormatError
from synth.model.collective import bus_factor

NAMES = {
    "all_gather": "allgather", "all_reduce": "allreduce", "reduce_scatter": "reduce-scatter", "alltoall": "alltoall",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter", "sendrecv": "sendrecv",
    "alltoallv": "alltoallv", "hypercube": "hypercube",
}  # fmt: skip
SUMS = ("allreduce", "reduce", "reduce-scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
# Collectives whose count argument is the elements of one rank's part.
PARTS = ("allgather", "reduce-scatter", "alltoall", "gather", "scatter")
WHOLE = ("allreduce", "broadcast", "reduce", "sendrecv")
# Bytes of an element; names of all versions.
TYPES = {
    "int8": 1, "char": 1, "uint8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "f8e4m3": 1, "f8e5m2": 1, "half": 2, "bfloat16": 2,
    "int": 4, "int32": 4, "uint32": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
CPU_TIME = "gives the CPU time of the call (-C 1), which is not the time of the collective; run it without -C"
MANY_ROWS = 64  # rows and tables that a message names at most


class Printed(NamedTuple):
    """A number as it was printed: its true value is between `low` and `high`, where printing rounded it."""

    value: float
    low: float
    high: float


class TestRow(NamedTuple):
    """A row of a table. `place`: its line, or its path in a document. `time`: µs, None where it was not run.

    `algbw`, `busbw` in GB/s. `wrong`: why its results are wrong, "" where they are not, or were not checked.
    """

    place: str | int
    size: int
    count: int | None
    type: str
    redop: str
    root: int | None
    time: Printed | None
    algbw: Printed | None
    busbw: Printed | None
    wrong: str = ""


@dataclass
class TestTable:
    """The results of one run of a test.

    Attributes:
        place: The line of its header, or its path in a document.
        test: The name of the program, such as ``all_reduce_perf``; "" where nothing says it.
        test_place: Where that stands.
        ranks: The numbers of the ranks in the order in which they are listed; empty where they are not.
        groups: The groups that run at once (NCCL_TESTS_SPLIT).
        each: Ranks of one process, where the text says it.
        in_bytes: Sizes grow by a number of bytes, so that rounding may repeat one.
        cpu_time: The times are those that the CPU took.
    """

    __test__ = False  # no class of tests

    place: str | int | None
    test: str = ""
    test_place: str | int | None = None
    ranks: list[int] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)
    each: int | None = None
    in_bytes: bool = False
    cpu_time: bool = False
    rows: list[TestRow] = field(default_factory=list)


class Misfit(NamedTuple):
    """Why a table is not the one that is asked for, and where that stands."""

    reason: str
    place: str | int | None


def measurement(
    tables: Sequence[TestTable], file: str, collective: str, ranks: int | None, root: int | None, says: str
) -> Measurement:
    """Return the times of `collective` on `ranks` ranks in the one table of them; the caller sets label and backend.

    `ranks` None: as many as the table lists. `root`: of a rooted collective; None: whichever the table has. Raises
    FormatError where no table fits, or several do.
    """
    fitting, misfits = [], []
    for table in tables:
        misfit = _misfit(table, collective, ranks, root)
        if misfit is None:
            fitting.append(table)
        else:
            misfits.append(misfit)
    asked = collective if ranks is None else f"{collective} on {ranks} ranks"
    if len(fitting) > 1:
        places = ", ".join(str(table.place) for table in fitting[:MANY_ROWS])
        raise FormatError(
            f"holds {len(fitting)} tables of {asked}, at {places}: give each run as a file of its own", file
        )
    if not fitting and len(tables) == 1:
        raise FormatError(misfits[0].reason, file, misfits[0].place)
    if not fitting:
        said = "; ".join(f"{misfit.place}: {misfit.reason}" for misfit in misfits[:MANY_ROWS])
        raise FormatError(f"none of its {len(tables)} tables is of {asked}: {said}"[:1000], file)
    table = fitting[0]
    count = ranks if ranks is not None else _ranks(table)
    if count is None:
        raise FormatError("does not list its ranks; name the machine (--topo), which says how many there are", file)
    samples = []
    for row in table.rows:
        if row.wrong:
            raise FormatError(f"{row.wrong}: the results of this run were wrong, so its times count for nothing",
                              file, row.place)  # fmt: skip
        if row.time is not None and row.size:
            samples.append(Sample(row.size, row.time.value * 1e-6))
    if not samples:
        raise FormatError("has a header of nccl-tests and no row with a time below it", file)
    if not table.test:
        says += f"; the log of {collective} does not name its test"
    return Measurement("nccl", "nccl", collective, count, median_samples(samples), says, file)


def _ranks(table: TestTable) -> int | None:
    """Return the number of ranks that a table lists.

    JSON lists the first rank of each process only (util.cu of 2.19): the ranks are then multiples of those of one.
    """
    listed, each = len(table.ranks), table.each or 1
    if listed and each > 1 and table.ranks == [each * k for k in range(listed)]:
        return listed * each
    return listed or None


def _misfit(table: TestTable, collective: str, ranks: int | None, root: int | None) -> Misfit | None:
    """Return why a table is not of `collective` on `ranks` ranks from or to `root`; None if it is."""
    # What the text says: the test, its ranks and its kind of time.
    name = NAMES.get(PurePath(table.test).name.partition("_perf")[0])
    if name is not None and name != collective:
        return Misfit(f"is of {table.test[:40]}, expected a test of {collective}", table.test_place)
    count = _ranks(table)
    if count is not None and ranks is not None and count != ranks:
        return Misfit(f"is of {count} ranks, expected {ranks}", None if isinstance(table.place, int) else table.place)
    if table.cpu_time:
        return Misfit(CPU_TIME, table.place)
    if len(table.groups) > 1:
        return Misfit(
            f"is of {len(table.groups)} groups at once (NCCL_TESTS_SPLIT), whose times are not those of one alone",
            table.place,
        )
    # What the rows say: the operation, the root, and bus bandwidth as a share of size / time.
    ranks = ranks if ranks is not None else count
    for row in table.rows:
        # sendrecv_perf prints the operation of -o, which it does not use.
        if collective != "sendrecv" and (row.redop in ("", "none")) == (collective in SUMS):
            return Misfit(f"redop is {row.redop[:20]!r}: this is no test of {collective}", row.place)
        if (row.root is not None and row.root >= 0) != (collective in ROOTED):
            shown = "it has no root" if row.root is None else f"root is {row.root}"
            return Misfit(f"{shown}: this is no test of {collective}", row.place)
        if row.root is not None and collective in ROOTED and root is not None and row.root != root:
            return Misfit(f"root is {row.root}, expected {root}", row.place)
        if ranks is not None:
            reason = _other_count(row, collective, ranks) or _other_factor(row, collective, ranks)
            if reason:
                return Misfit(reason, row.place)
    for kind, values in (
        ("type", {row.type for row in table.rows}),
        ("redop", {row.redop for row in table.rows}),
        ("root", {row.root for row in table.rows}),
    ):
        if len(values) > 1:
            listed = ", ".join(sorted(map(str, values))[:8])
            return Misfit(f"mixes rows of several kinds, {kind} {listed}: give a log of one", table.place)
    return None


def _other_count(row: TestRow, collective: str, ranks: int) -> str:
    """Return why the count of elements is not that of `collective`; "" if it may be.

    The count argument is a rank's part for allgather and others of `PARTS`, the buffer for allreduce and the rest.
    """
    width = TYPES.get(row.type)
    if not row.count or width is None or not row.size:
        return ""
    whole = row.count * width
    allowed = [whole, whole * ranks] if collective in PARTS else [whole]
    if row.size in allowed:
        return ""
    return f"{row.size} bytes are not those of {row.count} elements of {row.type} in {collective} on {ranks} ranks"


def _other_factor(row: TestRow, collective: str, ranks: int) -> str:
    """Return why the bandwidths are not those of `collective` on `ranks` ranks; "" if they are as far as printed."""
    expected = bus_factor(collective, ranks)
    if expected is None or row.time is None or row.busbw is None or not row.size:
        return ""
    scale = 1000 / row.size  # µs·GB/s for each byte
    low, high = row.busbw.low * row.time.low * scale, row.busbw.high * row.time.high * scale
    if low <= expected <= high:
        return ""
    same = [name for name in (*PARTS, *WHOLE) if low <= (bus_factor(name, ranks) or 0) <= high]
    other = f", as of {' or '.join(same)} on {ranks} ranks" if same else ""
    seen = row.busbw.value * row.time.value * scale
    return f"busbw is {seen:.3f} of size / time{other}; that of {collective} on {ranks} ranks is {float(expected):.3f}"


def check_rows(table: TestTable, file: str) -> None:
    """Check that the rows of a table are of one run: numbers that agree, sizes that grow. Raises FormatError.

    A run with several cycles (-N) repeats its sizes in the same order.
    """
    for row in table.rows:
        if row.time is None or row.algbw is None or row.busbw is None or not row.size:
            continue
        # Versions before 2.0 of some tests print the bus bandwidth as algbw.
        scale = 1000 / row.size
        within = row.algbw.low * row.time.low * scale <= 1 <= row.algbw.high * row.time.high * scale
        if not within and row.algbw.value != row.busbw.value:
            raise FormatError(
                f"algbw {row.algbw.value:g} is not {row.size} bytes in {row.time.value:g} µs: the row is damaged",
                file, row.place,
            )  # fmt: skip
    kinds: dict[tuple[str, str, int | None], list[TestRow]] = {}
    for row in table.rows:
        if row.size:
            kinds.setdefault((row.type, row.redop, row.root), []).append(row)
    for rows in kinds.values():
        cycles = [[rows[0].size]]
        for before, row in pairwise(rows):
            grows = row.size > before.size or (table.in_bytes and row.size == before.size)
            if grows:
                cycles[-1].append(row.size)
                continue
            cycles.append([row.size])
            first = cycles[0]
            if len(cycles) > 2 and cycles[-2] != first:
                break
        for cycle in cycles:
            last = cycle is cycles[-1]
            if cycle != cycles[0][: len(cycle)] or (not last and len(cycle) < len(cycles[0])):
                raise FormatError(
                    "its sizes do not grow from row to row: lines of several runs are mixed, or out of order",
                    file, table.place,
                )  # fmt: skip
    if not table.ranks:
        return
    if len(set(table.ranks)) < len(table.ranks):
        twice = next(rank for rank in table.ranks if table.ranks.count(rank) > 1)
        raise FormatError(
            f"lists rank {twice} twice: several processes print at once; give the output of one (nccl-tests is built "
            "without MPI if each runs alone)",
            file, table.place,
        )  # fmt: skip
    count = _ranks(table) or 0
    whole = sorted(table.ranks) == list(range(count)) or count > len(table.ranks)
    if not whole or (table.each and count % table.each):
        raise FormatError(
            f"lists {len(table.ranks)} ranks, up to {max(table.ranks)}"
            + (f", and {table.each} of each process" if table.each else "")
            + ": some are missing",
            file, table.place,
        )  # fmt: skip
