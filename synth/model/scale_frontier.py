"""ScaleFrontier: the frontier of a machine too large for exact synthesis, each point with its certified gap.

    ScaleFrontier  topology collective_name root bound certificate least_steps points seconds notes unfinished
                   interrupted

`bound`: no schedule takes fewer rounds per chunk, whatever its steps; `certificate` proves it (kinds: throughput-cut,
alltoall-lengths, allreduce-parts). It is the bound of every point. A point's schedule is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from synth.errors import SynthError
from synth.model.collective import Collective, collective
from synth.model.frontier import Frontier, LowerBound, Open, ParetoFrontier, Point
from synth.model.latency import latency
from synth.model.rational import rational, show
from synth.model.scale_collectives import SCHEMA, sends_per_chunk
from synth.model.topology import Network, Topology

if TYPE_CHECKING:
    from synth.model.compressed_schedule import CompressedSchedule
    from synth.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class ScaleFrontier(ParetoFrontier):
    """A frontier at scale. `unfinished`: stages that a time limit or Ctrl-C (`interrupted`) cut short or left
    untried."""

    engine: ClassVar[str] = "flow"
    in_files: ClassVar[bool] = True
    complete: ClassVar[bool] = False
    open: ClassVar[tuple[Open, ...]] = ()

    topology: Topology
    collective_name: str
    root: int | None
    bound: Fraction
    certificate: dict
    least_steps: int
    points: tuple[Point[CompressedSchedule], ...]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    interrupted: bool = False

    def __repr__(self) -> str:
        points = ", ".join(f"{point.steps}: {show(point.rounds_per_chunk)}" for point in self.points)
        return (
            f"<ScaleFrontier of {self.collective_name} on {self.topology.name}: {points or 'no points'}; "
            f"bound {show(self.bound)}>"
        )

    @property
    def bounds(self) -> tuple[tuple[None, LowerBound], ...]:
        """The bound, for any number of steps."""
        return ((None, LowerBound(self.bound, self.certificate)),)

    @property
    def machine(self) -> Topology:
        """The topology."""
        return self.topology

    @cached_property
    def network(self) -> Network:
        """The machine in routes and whole units. Raises SynthError where switches give too many routes to list."""
        return self.topology.network()

    @cached_property
    def collective(self) -> Collective:
        """The collective, with its units of data."""
        return collective(self.collective_name, self.topology.ranks, self.roots)

    @property
    def roots(self) -> tuple[int, ...]:
        """The root of the collective; () where it has none."""
        return () if self.root is None else (self.root,)

    @property
    def labels(self) -> tuple[int, ...]:
        """The machine's own numbers of the ranks."""
        return self.topology.labels

    @property
    def unit(self) -> Fraction:
        """GB/s of one unit."""
        return self.topology.unit_bandwidth()

    @cached_property
    def latency(self) -> Fraction:
        """The greatest latency of a path from rank to rank, µs: the α of the cost model."""
        return latency(self.topology)

    @property
    def unit_share(self) -> Fraction:
        """Bytes of one unit of data divided by the size."""
        n = self.topology.ranks
        return Fraction(1, n) if self.collective_name in ("allgather", "reduce-scatter", "alltoall") else Fraction(1)

    @property
    def bound_gbps(self) -> Fraction:
        """Algorithmic bandwidth (size / time) in GB/s that no schedule in this model exceeds."""
        return self.unit / (self.bound * self.unit_share)

    def least_sends(self, point: Point) -> int:
        """Return a lower bound on the sends of `point`, without its schedule."""
        return point.chunks * sends_per_chunk(self.collective_name, self.topology.ranks)

    def written_out(
        self, affordable: Callable[[Point], bool]
    ) -> tuple[Frontier, tuple[tuple[Point, SynthError | None], ...]]:
        """Return the frontier with every send of its schedules listed; and each point that it lacks, with the reason.

        Before a schedule is made, `affordable` is called with its point. False: this and all later points are left out,
        with the reason None.
        """
        points: list[Point[Schedule]] = []
        lacking: list[tuple[Point, SynthError | None]] = []
        for k, point in enumerate(self.points):
            if not affordable(point):
                lacking += [(later, None) for later in self.points[k:]]
                break
            try:
                schedule = replace(point.schedule.written_out(), network=self.network)
            except SynthError as error:
                lacking.append((point, error))
            else:
                points.append(Point.of(schedule, point.bound, point.status, point.construction))
        written = Frontier(self.network, self.collective, tuple(points), notes=self.notes, labels=self.labels)
        return written, tuple(lacking)

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
            row |= {"engine": p.construction, "gap": show(self.gap(p))}
            if files and i in files:
                row["file"] = files[i]
            rows.append(row)
        return {
            "schema": SCHEMA,
            "topology": machine | link_columns.columns(self.topology) if links else machine,
            "collective": self.collective_name,
            "root": self.root,
            "bound": {"value": show(self.bound), "certificate": self.certificate},
            "least_steps": self.least_steps,
            "points": rows,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
            **({"open": list(self.unfinished)} if self.unfinished else {}),
        }

    @staticmethod
    def from_json(doc: dict, topology: Topology, sources: Sequence[Callable[[], CompressedSchedule]]) -> ScaleFrontier:
        """Return the frontier of a document about `topology`. `sources`: make the schedules of its points.

        Raises KeyError, ValueError, TypeError on a malformed document.
        """
        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        bound = LowerBound(rational(doc["bound"]["value"]), doc["bound"]["certificate"])
        points = []
        for row, source in zip(doc["points"], sources, strict=True):
            points.append(scale_point(row["steps"], row["rounds"], row["chunks"], str(row["engine"]), source, bound))
        return ScaleFrontier(
            topology,
            doc["collective"],
            doc["root"],
            bound.value,
            bound.certificate,
            doc["least_steps"],
            tuple(points),
            doc["seconds"],
            tuple(doc["notes"]),
            tuple(doc.get("open", ())),
        )


def scale_point(
    steps: int, rounds: int, chunks: int, construction: str, source: Callable[[], CompressedSchedule], bound: LowerBound
) -> Point[CompressedSchedule]:
    """Return the point whose schedule `source` makes, with the bound for any number of steps."""
    status = "optimal" if Fraction(rounds, chunks) == bound.value else "best-known"
    return Point(steps, rounds, chunks, bound, status, construction, source)
