"""The document ``synth.measured/1``: times of programs over sizes, written by `synth bench` and read by tuners."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, NamedTuple

from synth.model.collective import bus_factor
from synth.model.documents.canonical_json import canonical
from synth.model.registry import NOTEBOOK, load
from synth.program.program import Program
from synth.version import __version__

SCHEMA = "synth.measured/1"


class BenchmarkProgram(NamedTuple):
    """A program and its origin: `label`, the point of the frontier (from 1), the point's steps, and its R/C as text."""

    label: str
    program: Program
    point: int | None = None
    steps: int | None = None
    rounds_per_chunk: str | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the program's canonical JSON."""
        return hashlib.sha256(canonical(self.program.to_json())).hexdigest()


class BenchmarkRow(NamedTuple):
    """One candidate at one size.

    `candidate`: its index. `size`: bytes as nccl-tests counts them. `elements`: of the larger buffer.
    `seconds`: sorted, one for each repeat, a single one if they are modelled. `right`: True if all outputs were right;
    None if not checked.
    """

    candidate: int
    size: int
    elements: int
    in_place: bool
    seconds: tuple[float, ...]
    right: bool | None

    @property
    def median(self) -> float:
        """The median of `seconds`; the mean of the two in the middle where their number is even."""
        n = len(self.seconds)
        return (self.seconds[(n - 1) // 2] + self.seconds[n // 2]) / 2


@dataclass(frozen=True)
class Measured:
    """The times of `synth bench`.

    `says`: a description of the times that is shown beside every table of them. `modelled`: no clock was read.
    `where`: the executor's description of the device. `used`: versions of its software.
    `left_out`: sentences on points that were not timed; the document does not hold them.
    """

    executor: str
    says: str
    modelled: bool
    topology: str | None
    dtype: str
    op: str
    candidates: tuple[BenchmarkProgram, ...]
    rows: tuple[BenchmarkRow, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        labels = ", ".join(one.label for one in self.candidates)
        how = "modelled" if self.modelled else "measured"
        return f"<Measured {labels} on {self.executor}: {len(self.rows)} times, {how}>"

    def _repr_html_(self) -> str:
        return load(NOTEBOOK["measured"])(self.to_json())

    def to_json(self) -> dict:
        """Return the document; `element_count` is nccl-tests' count."""
        task = self.candidates[0].program.collective
        return {
            "schema": SCHEMA,
            "executor": self.executor,
            "modelled": self.modelled,
            "says": self.says,
            "device": device() | dict(self.where),
            "versions": versions() | dict(self.used),
            "topology": self.topology,
            "collective": task.name if task else None,
            "ranks": self.candidates[0].program.ranks,
            "root": task.roots[0] if task and len(task.roots) == 1 else None,
            "dtype": self.dtype,
            "op": self.op,
            "programs": [
                {
                    "label": c.label,
                    "name": c.program.name,
                    "fingerprint": c.fingerprint,
                    "point": c.point,
                    "steps": c.steps,
                    "bandwidth": c.rounds_per_chunk,
                    "chunks": c.program.chunks,
                    "protocol": c.program.protocol,
                    "channels": c.program.channels,
                }
                for c in self.candidates
            ],
            "rows": [self._row(row) for row in self.rows],
        }

    def _row(self, row: BenchmarkRow) -> dict:
        program = self.candidates[row.candidate].program
        task, time = program.collective, row.median
        factor = bus_factor(task.name, task.ranks) if task else None
        gbps = row.size / time / 1e9 if time else None
        return {
            "program": row.candidate,
            "size": row.size,
            "element_count": row.elements,
            "in_place": row.in_place,
            "seconds": time,
            "least": row.seconds[0],
            "most": row.seconds[-1],
            "repeats": len(row.seconds),
            "algbw_gbps": gbps,
            "busbw_gbps": None if factor is None or gbps is None else gbps * float(factor),
            "right": row.right,
        }


def device() -> dict:
    """Return the description of this machine, whose clock was read or which computed the modelled times."""
    return {"machine": platform.machine(), "system": platform.system(), "processor": _processor()}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(
                (line.partition(":")[2].strip() for line in file if line.startswith("model name")), platform.processor()
            )
    except OSError:
        return platform.processor()


def versions() -> dict[str, str]:
    """Return the versions of synth, Python and NumPy."""
    return {
        "synth": __version__,
        "python": sys.version.split()[0],
        "numpy": metadata.version("numpy"),
    }
