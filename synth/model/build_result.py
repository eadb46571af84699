"""The result of a build: for each collective and size, what runs, its predicted time, and NCCL's beside it.

LibraryTime  name seconds
BuildRow     size algorithm protocol files seconds schedule libraries bound
BuiltTable   collective ranks root rows
BuildResult  topology match runtime folder tables files plan notes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from synth.model.registry import NOTEBOOK, load
from synth.model.tuning_plan import Plan

SCHEMA = "synth.build/1"


class LibraryTime(NamedTuple):
    """Predicted seconds of another library's algorithm, such as ``nccl-ring``, at one size; None: not known."""

    name: str
    seconds: float | None


class BuildRow(NamedTuple):
    """One size in bytes. Times are predicted seconds, None where they are not known.

    `algorithm`: the schedule that a file runs there, "" where the size is left to the library. `seconds`: the time of
    what runs. `schedule`: that of the best schedule that the runtime takes. `libraries`: those of the library's own
    algorithms. `bound`: the lower bound of the clock, with the switches of the machine; None where none is known.
    `estimated`: those of the times that are not of a run.
    """

    size: int
    algorithm: str
    protocol: str
    files: tuple[str, ...]
    seconds: float | None
    schedule: float | None
    libraries: tuple[LibraryTime, ...]
    bound: float | None
    estimated: tuple[float, ...] = ()

    @property
    def library(self) -> LibraryTime | None:
        """The fastest of the library's own algorithms; None where no time is known."""
        known = [(row.seconds, row) for row in self.libraries if row.seconds is not None]
        return min(known, key=lambda pair: pair[0])[1] if known else None


@dataclass(frozen=True)
class BuiltTable:
    """The rows of one collective by growing size."""

    collective: str
    ranks: int
    root: int | None
    rows: tuple[BuildRow, ...]

    def to_json(self) -> dict:
        """Return the table's part of ``build.json``."""
        # Tuples are lists in JSON, and the library's algorithms are fields by name.
        rows = []
        for row in self.rows:
            lists = {"files": list(row.files), "estimated": list(row.estimated), "libraries": dict(row.libraries)}
            rows.append({**row._asdict(), **lists})
        return {"collective": self.collective, "ranks": self.ranks, "root": self.root, "sizes": rows}


class PlanRegistration(NamedTuple):
    """The calls that one MSCCL++ plan serves: sizes from `low` to `high` bytes, multiples of `divisor`.

    Sizes are MSCCL++'s: the input's bytes, for allgather the output's. `ranks_per_node`: of the jobs that it is for, 0
    for any. `switches`: it uses switch channels, which sum no 8-bit types. `name`: the path of the file without
    ``.json``, in the folder of the code that registers it.
    """

    collective: str
    ranks: int
    ranks_per_node: int
    low: int
    high: int
    divisor: int
    in_place: bool
    switches: bool
    name: str


@dataclass(frozen=True)
class BuildResult:
    """A build. `match`: the known machine with the same links, in words ("" for none). `files`: paths in `folder`.

    `registrations`: the calls that MSCCL++ plans serve; their names are paths in `folder`/mscclpp.
    """

    topology: str
    match: str
    runtime: str
    folder: str
    tables: tuple[BuiltTable, ...]
    files: tuple[str, ...]
    plan: Plan
    notes: tuple[str, ...] = ()
    registrations: tuple[PlanRegistration, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(table.collective for table in self.tables)
        return f"<BuildResult of {names} on {self.topology} for {self.runtime}: {len(self.files)} files>"

    def _repr_html_(self) -> str:
        return load(NOTEBOOK["build"])(self)

    def to_json(self) -> dict:
        """Return the JSON document ``build.json`` (schema: docs/formats.md)."""
        tables = [table.to_json() for table in self.tables]
        return {
            "schema": SCHEMA, "topology": self.topology, "match": self.match, "runtime": self.runtime,
            "tables": tables, "files": list(self.files), "notes": list(self.notes),
        }  # fmt: skip
