"""Times of programs over sizes, as `synth bench` writes them and a tuner reads them: the document
``synth.measured/1``."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, NamedTuple

import synth
from synth.model.schedule import canonical
from synth.program.program import Program
from synth.runtime.run_result import bus_factor

SCHEMA = "synth.measured/1"


class Candidate(NamedTuple):
    """A program and where it comes from: `label`, the point of the frontier (from 1), its steps and R/C as text."""

    label: str
    program: Program
    point: int | None = None
    steps: int | None = None
    bandwidth: str | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the program's canonical JSON."""
        return hashlib.sha256(canonical(self.program.to_json())).hexdigest()


class Row(NamedTuple):
    """One candidate at one size. `seconds`: sorted, one a repeat (one alone where they are modelled). `right`: None:
    unchecked."""

    candidate: int
    size: int
    elements: int
    in_place: bool
    seconds: tuple[float, ...]
    right: bool | None

    @property
    def median(self) -> float:
        """The middle of `seconds`, or the mean of the two there."""
        n = len(self.seconds)
        return (self.seconds[(n - 1) // 2] + self.seconds[n // 2]) / 2


class Beside(NamedTuple):
    """What is no program but was timed at a size of `size` bytes: `label` (copy, nccl), the `bytes` that it writes on
    all ranks."""

    label: str
    says: str
    size: int
    bytes: int
    seconds: tuple[float, ...]

    def to_json(self) -> dict:
        """As it stands in the document; `gbps`: bytes / median."""
        n = len(self.seconds)
        time = (self.seconds[(n - 1) // 2] + self.seconds[n // 2]) / 2
        return {
            "label": self.label,
            "says": self.says,
            "size": self.size,
            "bytes": self.bytes,
            "seconds": time,
            "least": self.seconds[0],
            "most": self.seconds[-1],
            "repeats": n,
            "gbps": self.bytes / time / 1e9 if time else None,
        }


@dataclass(frozen=True)
class Measured:
    """`says`: what the times are, in words that stand beside every table of them. `modelled`: no clock was read.
    `where`: what the executor says of the device, `used`: of the versions of what it uses."""

    executor: str
    says: str
    modelled: bool
    topology: str | None
    dtype: str
    op: str
    candidates: tuple[Candidate, ...]
    rows: tuple[Row, ...]
    beside: tuple[Beside, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    used: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict:
        """The document; `element_count` is nccl-tests' count."""
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
                    "bandwidth": c.bandwidth,
                    "chunks": c.program.chunks,
                    "protocol": c.program.protocol,
                    "channels": c.program.channels,
                }
                for c in self.candidates
            ],
            "rows": [self._row(row) for row in self.rows],
            "beside": [row.to_json() for row in self.beside],
        }

    def _row(self, row: Row) -> dict:
        program = self.candidates[row.candidate].program
        task, time = program.collective, row.median
        factor = bus_factor(task.name, task.ranks) if task else None
        gbps = row.size / time / 1e9 if time else None
        return {
            "program": row.candidate,
            "size": row.size,
            "element_count": row.elements * program.loop_chunks,
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
    """The machine whose clock was read, or that worked the model out."""
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
    """Of synth, Python and NumPy."""
    return {"synth": synth.__version__, "python": sys.version.split()[0], "numpy": metadata.version("numpy")}
