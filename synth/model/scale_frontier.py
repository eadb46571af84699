"""Large and LargePoint: the frontier of a machine too large for exact synthesis, each point with its certified gap.

    Large       topology collective root bound certificate least_steps points seconds notes open interrupted
    LargePoint  steps rounds_per_chunk chunks engine make

`bound`: no schedule takes fewer rounds per chunk, whatever its steps; `certificate` proves it (kinds: throughput-cut,
alltoall-lengths, allreduce-parts). A point's schedule is made when it is asked for: it may have a billion sends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from synth.model.latency import latency
from synth.model.rational import show
from synth.model.topology import Topology

if TYPE_CHECKING:
    from synth.model.compressed_schedule import CompressedSchedule

SCHEMA = "synth.large/1"
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True, eq=False)
class LargePoint:
    """S, R / C and C of a schedule that `make` writes out; `engine` found it."""

    steps: int
    rounds_per_chunk: Fraction
    chunks: int
    engine: str
    make: Callable[[], CompressedSchedule]

    @property
    def rounds(self) -> int:
        """R."""
        return int(self.rounds_per_chunk * self.chunks)


@dataclass(frozen=True, eq=False)
class Large:
    """Points by growing steps and falling R / C. `open`: what a time limit or Ctrl-C (`interrupted`) cut short or left
    untried."""

    topology: Topology
    collective: str
    root: int | None
    bound: Fraction
    certificate: dict
    least_steps: int
    points: tuple[LargePoint, ...]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def unit(self) -> Fraction:
        """GB/s of one unit."""
        return self.topology.unit_bandwidth()

    @cached_property
    def latency(self) -> Fraction:
        """The greatest latency of a way from rank to rank, µs: the α of the cost model."""
        return latency(self.topology)

    @property
    def unit_share(self) -> Fraction:
        """Bytes of one unit of data divided by the size."""
        n = self.topology.ranks
        return Fraction(1, n) if self.collective in ("allgather", "reduce-scatter", "alltoall") else Fraction(1)

    @property
    def bound_gbps(self) -> Fraction:
        """Algorithmic bandwidth (size / time) in GB/s that no schedule in this model exceeds."""
        return self.unit / (self.bound * self.unit_share)

    def gap(self, point: LargePoint) -> Fraction:
        """Return the distance of R / C from the bound, as a fraction of the bound."""
        return point.rounds_per_chunk / self.bound - 1

    def seconds_at(self, point: LargePoint, size: int) -> float:
        """Predicted seconds at `size` bytes: S·α + (R/C)·unit bytes / unit bandwidth."""
        wire = float(point.rounds_per_chunk) * size * float(self.unit_share) / (float(self.unit) * 1e9)
        return point.steps * float(self.latency) * 1e-6 + wire

    def gbps(self, point: LargePoint, size: int) -> float:
        """Predicted algorithmic bandwidth, size / time, GB/s."""
        return size / self.seconds_at(point, size) / 1e9

    def within(self, steps: int | None, chunks: int | None) -> Large:
        """Return the frontier with points of at most so many steps and chunks, and a note where some are left out."""
        points = tuple(
            p for p in self.points if (steps is None or p.steps <= steps) and (chunks is None or p.chunks <= chunks)
        )
        if len(points) == len(self.points):
            return self
        limits = [f"{most} {what}" for most, what in ((steps, "steps"), (chunks, "chunks")) if most is not None]
        return replace(
            self,
            points=points,
            notes=(*self.notes, f"points of more than {' or '.join(limits)} are left out, as was asked"),
        )

    def best(self, size: int) -> LargePoint:
        """The point with the least predicted time at `size` bytes. Raises ValueError when there is none."""
        return min(self.points, key=lambda p: (self.seconds_at(p, size), p.steps))

    def to_json(self, files: dict[int, str] | None = None, *, links: bool = True) -> dict:
        """As a JSON document; `files`: the file that holds the schedule of a point, by its index.

        With `links` the machine stands in it and it can be verified alone; without, its name must be enough.
        """
        from synth.model.documents import link_columns

        machine = {"name": self.topology.name, "ranks": self.topology.ranks, "unit_gbps": show(self.unit)}
        rows = []
        for i, p in enumerate(self.points):
            row: dict = {
                "steps": p.steps,
                "rounds": p.rounds,
                "chunks": p.chunks,
                "bandwidth": show(p.rounds_per_chunk),
            }
            row |= {"engine": p.engine, "gap": show(self.gap(p))}
            if files and i in files:
                row["file"] = files[i]
            rows.append(row)
        return {
            "schema": SCHEMA,
            "topology": machine | link_columns.columns(self.topology) if links else machine,
            "collective": self.collective,
            "root": self.root,
            "bound": {"value": show(self.bound), "certificate": self.certificate},
            "least_steps": self.least_steps,
            "points": rows,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
            **({"open": list(self.open)} if self.open else {}),
        }
