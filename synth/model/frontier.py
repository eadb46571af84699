"""LowerBound, Point and Frontier: what `synth pareto` returns, of exact synthesis and of flow methods.

LowerBound   value certificate scope                 scope: "any-chunks" or "this-chunks"
Point        steps rounds chunks bound construction source same_bits seconds
Open         steps lower upper reason                an interval that the budget left open
QueryRecord  chunks steps rounds verdict solver      a query and the solver that decided it
Frontier     machine task points open complete max_steps seconds bounds notes labels answers unfinished interrupted
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from synth.errors import SynthError, TooManySendsError, UsageError
from synth.model.collective import Collective
from synth.model.graphs import latency
from synth.model.rational import counted, rational, show, size_bytes
from synth.model.registry import NOTEBOOK, load
from synth.model.scale_collectives import ScaleCollective
from synth.model.schedule import Schedule, SynchronousSchedule
from synth.model.topology import Network, Topology

if TYPE_CHECKING:
    from synth.model.compressed_schedule import CompressedSchedule

SCHEMA = "synth.frontier/1"  # holds its schedules
SCALE_SCHEMA = "synth.large/1"  # names the files of its schedules
S = TypeVar("S", bound=SynchronousSchedule)


@dataclass(frozen=True)
class LowerBound:
    """`value` ≤ R/C for every schedule with the same number of steps; the certificate is checked by `bounds.check`."""

    value: Fraction
    certificate: dict
    scope: str = "any-chunks"

    def __repr__(self) -> str:
        return f"<LowerBound {show(self.value)}: {self.certificate.get('kind', 'no certificate')}>"

    def to_json(self) -> dict:
        """Return the value as it stands in a frontier document (docs/formats.md)."""
        return {"value": show(self.value), "scope": self.scope, "certificate": self.certificate}

    @staticmethod
    def from_json(doc: dict) -> LowerBound:
        """The inverse of `to_json`."""
        return LowerBound(rational(doc["value"]), doc["certificate"], doc["scope"])


NO_BOUND = LowerBound(Fraction(0), {})
# Number of steps and R/C of a schedule.
Rate = tuple[int, Fraction]


@dataclass(frozen=True)
class Point(Generic[S]):
    """One point of a frontier: S, R and C of a schedule, and a lower bound on R/C at S steps.

    Attributes
    ----------
    steps, rounds, chunks : S, R, and C of each unit of data.
    bound : the lower bound with its certificate.
    construction : the method that found the schedule.
    source : the schedule, or a function that makes it when `schedule` is read: one of a large machine may have a
        billion sends.
    same_bits : sums end with the same bits on all ranks.
    seconds : of the search.

    Examples
    --------
    >>> import synth
    >>> point = synth.frontier("ring:4", "allgather").points[0]
    >>> point
    <Point C=2, S=2, R=3: 3/2 rounds per chunk, optimal>
    >>> point.rounds_per_chunk, point.bound
    (Fraction(3, 2), <LowerBound 3/2: static-cuts>)
    """

    steps: int
    rounds: int
    chunks: int
    bound: LowerBound
    construction: str
    source: S | Callable[[], S]
    same_bits: bool = True
    seconds: float = 0.0

    @staticmethod
    def of(
        schedule: S, bound: LowerBound, construction: str, same_bits: bool = True, seconds: float = 0.0
    ) -> Point[S]:  # fmt: skip
        """Return the point of a schedule that is there."""
        steps, rounds, chunks = schedule.step_count, schedule.rounds, schedule.chunks
        return Point(steps, rounds, chunks, bound, construction, schedule, same_bits, seconds)

    def __repr__(self) -> str:
        bound = "" if self.status == "optimal" else f" ≥ {show(self.bound.value)}"
        return (
            f"<Point C={self.chunks}, S={self.steps}, R={self.rounds}: {show(self.rounds_per_chunk)} rounds per chunk, "
            f"{self.status}{bound}>"
        )

    @property
    def status(self) -> str:
        """ "optimal" where the bound, for any number of chunks, meets R/C; else "best-known"."""
        meets = self.bound.scope == "any-chunks" and self.bound.value == self.rounds_per_chunk
        return "optimal" if meets else "best-known"

    @property
    def compressed(self) -> bool:
        """True for a `CompressedSchedule`, which lists one send of each orbit; False for one that lists all sends."""
        return not isinstance(self.source, Schedule)

    @property
    def schedule(self) -> S:
        """The schedule of this point. Where `source` is a function, each access calls it, and may take seconds."""
        return self.source() if callable(self.source) else self.source  # type: ignore[return-value]

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C."""
        return Fraction(self.rounds, self.chunks)

    def to_json(self: Point[Schedule]) -> dict:
        """As in a document ``synth.frontier/1``."""
        return self._document(self.schedule.to_json())

    @property
    def document_without_problem(self: Point[Schedule]) -> dict:
        """`to_json()` without the schedule's `topology` and `collective`, for readers that have both."""
        return self._document(self.schedule.document_without_problem)

    def _document(self, schedule: dict) -> dict:
        return {
            "steps": self.steps, "rounds": self.rounds, "chunks": self.chunks, "bandwidth": show(self.rounds_per_chunk),
            "status": self.status, "construction": self.construction, "same_bits": self.same_bits,
            "bound": self.bound.to_json(), "schedule": schedule, "seconds": round(self.seconds, 3),
        }  # fmt: skip

    @staticmethod
    def from_json(doc: dict, problem: tuple[Network, Collective] | None = None) -> Point[Schedule]:
        """The inverse of `to_json`.

        `problem`: the schedule's machine and collective where they are known; those of the document are not read then.
        """
        return Point.of(
            Schedule.from_json(doc["schedule"], problem), LowerBound.from_json(doc["bound"]),
            doc["construction"], doc["same_bits"], doc["seconds"],
        )  # fmt: skip


@dataclass(frozen=True)
class Open:
    """An interval left undecided: the least R/C at `steps` steps lies in [lower, upper].

    `upper` is None if no schedule of that many steps is known.
    """

    steps: int
    lower: Fraction
    upper: Fraction | None
    reason: str
    certificate: dict = field(default_factory=dict)

    def to_json(self) -> dict:
        """Return the value as it stands in a frontier document (docs/formats.md)."""
        doc = {
            "steps": self.steps,
            "lower": show(self.lower),
            "upper": None if self.upper is None else show(self.upper),
            "reason": self.reason,
        }
        return doc | ({"certificate": self.certificate} if self.certificate else {})

    @staticmethod
    def from_json(doc: dict) -> Open:
        """The inverse of `to_json`."""
        upper = None if doc["upper"] is None else rational(doc["upper"])
        return Open(doc["steps"], rational(doc["lower"]), upper, doc["reason"], doc.get("certificate", {}))


@dataclass(frozen=True)
class QueryRecord:
    """A record of one query: is there a schedule with C `chunks`, S `steps` and R `rounds`? It proves nothing.

    `verdict` is "schedule", "infeasible" or "undecided"; `solver` the encoding and the solver, or a construction
    without one.
    """

    chunks: int
    steps: int
    rounds: int
    verdict: str
    solver: str

    def __str__(self) -> str:
        what = {"schedule": "a schedule", "infeasible": "no schedule"}.get(self.verdict, self.verdict)
        return f"C={self.chunks} S={self.steps} R={self.rounds}: {what}{f', by {self.solver}' if self.solver else ''}"

    @property
    def question(self) -> tuple[int, int, int]:
        """(C, S, R)."""
        return self.chunks, self.steps, self.rounds

    def to_json(self) -> dict:
        """Return the value as it stands in a frontier document (docs/formats.md)."""
        return dict(vars(self))


@dataclass(frozen=True)
class StepCount:
    """The point of a frontier that has this many steps, in place of the number of its row."""

    steps: int


@dataclass(frozen=True)
class Frontier:
    """A frontier, as `synth.frontier` returns it: points by growing steps and falling R/C, and what is proved of them.

    Attributes
    ----------
    machine, task : the problem. Of exact synthesis a `Network` and a `Collective`, with all routes and units listed;
        of flow methods, which know much larger machines, a `Topology` and the collective by its name.
    points : by growing steps and falling R/C.
    open : intervals between a bound and a point that the search left undecided, with the reason.
    complete : every point is optimal for any number of chunks and none is missing, up to `max_steps`.
    max_steps : the greatest number of steps that was allowed, or None.
    seconds : wall time of the search.
    bounds : pairs (S, lower bound on R/C) beside those of the points. S None: for any number of steps; S 0: on the
        number of steps itself.
    notes : features of this machine outside the model.
    labels : the machine's own numbers of the ranks.
    answers : the solver that decided each query.
    unfinished : stages of flow methods that a time limit or Ctrl-C (`interrupted`) cut short or left untried.

    Examples
    --------
    >>> import synth
    >>> found = synth.frontier("dgx1", "allgather")
    >>> found
    <Frontier of allgather on dgx1-v100: 2: 3/2, 3: 7/6; complete>
    >>> best = found.best("1MB")
    >>> best.steps, round(found.gbps(best, 1 << 20))
    (3, 128)
    """

    machine: Network | Topology
    task: Collective | ScaleCollective
    points: tuple[Point, ...]
    open: tuple[Open, ...] = ()
    complete: bool = False
    max_steps: int | None = None
    seconds: float = 0.0
    bounds: tuple[tuple[int | None, LowerBound], ...] = ()
    notes: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    answers: tuple[QueryRecord, ...] = ()
    unfinished: tuple[str, ...] = ()
    interrupted: bool = False

    def __repr__(self) -> str:
        points = []
        for point in self.points:
            known = "" if point.status == "optimal" or self.engine == "flow" else " best known"
            points.append(f"{point.steps}: {show(point.rounds_per_chunk)}{known}")
        if self.complete:
            state = "complete" if self.max_steps is None else f"complete to {self.max_steps} steps"
        else:
            state = f"bound {show(self.bound)}" if self.engine == "flow" else f"{len(self.open)} open"
        return f"<Frontier of {self.task.name} on {self.machine.name}: {', '.join(points) or 'no points'}; {state}>"

    @property
    def engine(self) -> str:
        """ "exact", whose document holds its schedules; or "flow", whose schedules are compressed and in files."""
        return "flow" if isinstance(self.machine, Topology) else "exact"

    # ------------------------------------------------------------ the problem

    @property
    def network(self) -> Network:
        """The machine in routes and whole units. Raises SynthError where switches give too many routes to list."""
        return self.machine.network() if isinstance(self.machine, Topology) else self.machine

    @cached_property
    def topology(self) -> Topology:
        """The machine in links."""
        return self.machine if isinstance(self.machine, Topology) else self.machine.as_topology()

    @property
    def collective(self) -> Collective:
        """The collective, with its units of data."""
        return self.task.listed if isinstance(self.task, ScaleCollective) else self.task

    @property
    def collective_name(self) -> str:
        """The name of the collective."""
        return self.task.name

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of the collective; () where it has none."""
        return self.task.roots

    @property
    def root(self) -> int | None:
        """The root of the collective; None where it has none, or several."""
        return self.roots[0] if len(self.roots) == 1 else None

    # ------------------------------------------------------------ what is proved

    @property
    def floor(self) -> LowerBound:
        """The greatest bound for any number of steps; 0 where none is known."""
        always = [bound for steps, bound in self.bounds if steps is None]
        return max(always, key=lambda bound: bound.value, default=NO_BOUND)

    @property
    def bound(self) -> Fraction:
        """R/C that no schedule of any number of steps is below."""
        return self.floor.value

    @property
    def certificate(self) -> dict:
        """The certificate of `bound`."""
        return self.floor.certificate

    @property
    def least_steps(self) -> int:
        """The number of steps that every schedule needs, as far as it is known."""
        return max((int(bound.value) for steps, bound in self.bounds if steps == 0), default=0)

    @property
    def bound_gbps(self) -> Fraction:
        """Algorithmic bandwidth (size / time) in GB/s that no schedule in this model exceeds."""
        return self.unit / (self.bound * self.unit_share)

    def gap(self, point: Point) -> Fraction:
        """Return the distance of R / C from the point's bound, as a fraction of the bound."""
        return point.rounds_per_chunk / point.bound.value - 1

    # ------------------------------------------------------------ the cost model

    @property
    def unit(self) -> Fraction:
        """GB/s of one unit."""
        return self.machine.unit_bandwidth() if isinstance(self.machine, Topology) else self.machine.unit

    @cached_property
    def latency(self) -> Fraction:
        """The greatest latency of a path from rank to rank, µs: the α of the cost model."""
        return latency(self.machine) if isinstance(self.machine, Topology) else self.machine.latency

    @property
    def unit_share(self) -> Fraction:
        """One unit of data as a share of the size of a call, in bytes."""
        return self.task.unit_share

    def seconds_at(self, point: Point, size: int) -> float:
        """Predicted seconds of `point` at `size` bytes: S·α + (R/C)·unit bytes / unit bandwidth."""
        unit_bytes = size * float(self.unit_share)
        wire = float(point.rounds_per_chunk) * unit_bytes / (float(self.unit) * 1e9)
        return point.steps * (float(self.latency) * 1e-6) + wire

    def gbps(self, point: Point, size: int) -> float:
        """Predicted algorithmic bandwidth, size / time, GB/s."""
        return size / self.seconds_at(point, size) / 1e9

    def best(self, size: int | str) -> Point:
        """The point with the least predicted time at `size` bytes or ``"1MB"`` (ties: fewer steps).

        Raises SynthError when there are no points, UsageError for text that is no size.
        """
        if not self.points:
            raise SynthError("this frontier has no point")
        try:
            size = size_bytes(size) if isinstance(size, str) else size
        except ValueError as error:
            raise UsageError(str(error)) from None
        return min(self.points, key=lambda p: (self.seconds_at(p, size), p.steps))

    # ------------------------------------------------------------ points and their schedules

    def number_of(self, point: int | StepCount) -> int:
        """Return the number, from 1, of a point that is named by it or by its steps. Raises UsageError for no point."""
        if isinstance(point, int):
            count = len(self.points)
            if not 1 <= point <= count:
                raise UsageError(f"point {point}: the frontier has points 1 to {count}, in the order of its table")
            return point
        steps = [row.steps for row in self.points]
        if point.steps not in steps:
            known = ", ".join(map(str, steps))
            raise UsageError(f"no point has {counted(point.steps, 'step')}; the points have {known}")
        return steps.index(point.steps) + 1

    def within(self, steps: int | None, chunks: int | None) -> Frontier:
        """Return the frontier with points of at most so many steps and chunks, and a note where some are left out."""
        points = tuple(
            p for p in self.points if (steps is None or p.steps <= steps) and (chunks is None or p.chunks <= chunks)
        )
        if len(points) == len(self.points):
            return self
        limits = [f"{most} {what}" for most, what in ((steps, "steps"), (chunks, "chunks")) if most is not None]
        note = f"points of more than {' or '.join(limits)} are left out, as was asked"
        return replace(self, points=points, notes=(*self.notes, note))

    def least_sends(self, point: Point) -> int:
        """Return a lower bound on the sends of `point`, without its schedule."""
        return point.chunks * self.task.sends_per_chunk if isinstance(self.task, ScaleCollective) else point.chunks

    def check_sends(self, point: Point[S], most: int) -> S:
        """Return the schedule of `point`, one of the frontier's, if it has at most `most` sends.

        Raises TooManySendsError otherwise. The message names the point of the least R/C that has no more.
        """
        schedule = point.schedule
        if schedule.sends <= most:
            return schedule

        # The point of the least R/C that fits, for the message.
        fitting = "no point of this frontier has so few"
        for number in range(len(self.points), 0, -1):
            other = self.points[number - 1]
            with suppress(SynthError):  # its schedule is not there
                if self.least_sends(other) <= most and other.schedule.sends <= most:
                    fitting = f"point {number} fits, of {counted(other.schedule.sends, 'send')}"
                    break
        number = self.points.index(point) + 1
        raise TooManySendsError(
            schedule.sends, f"point {number} has {schedule.sends} sends; at most {most} are written out: {fitting}"
        )

    def schedule_of(self, point: Point, most: int) -> Schedule:
        """Return the schedule of `point`, one of the frontier's, with every send listed.

        Raises TooManySendsError if it has more than `most` sends, as `check_sends` does.
        """
        return self.check_sends(point, most).written_out()

    def written_out(
        self, affordable: Callable[[Point], bool]
    ) -> tuple[Frontier, tuple[tuple[Point, SynthError | None], ...]]:
        """Return the frontier with every send of its schedules listed; and each point that it lacks, with the reason.

        Before a compressed schedule is made, `affordable` is called with its point. False: this and all later points
        are left out for lack of time, with the reason None.
        """
        if self.engine == "exact":
            return self, ()

        # Points in turn while there is time; a schedule that cannot be written out costs its own point alone.
        points: list[Point] = []
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
                points.append(Point.of(schedule, point.bound, point.construction))
        written = Frontier(self.network, self.collective, tuple(points), notes=self.notes, labels=self.labels)
        return written, tuple(lacking)

    # ------------------------------------------------------------ how it is shown

    def plot(self, ax: Any = None) -> Any:
        """Plot the points over the staircase of lower bounds, with matplotlib.

        Parameters
        ----------
        ax : the Axes to draw in. None: those of a new Figure.

        Returns
        -------
        `ax`, or the new Figure.

        Raises
        ------
        MissingDependencyError without matplotlib, with the command that installs it.
        """
        return load(NOTEBOOK["plot of frontier"])(self, ax)

    def _repr_html_(self) -> str:
        return load(NOTEBOOK["frontier"])(self)

    # ------------------------------------------------------------ documents

    def to_json(self, files: dict[int, str] | None = None, *, links: bool = True) -> dict:
        """Return the frontier as a JSON document (schemas: docs/formats.md).

        Of flow methods: `files` holds the file of the schedule of a point, by its index. With `links` the machine
        stands in it and it can be verified alone; without, its name must be enough.
        """
        if isinstance(self.machine, Topology):
            return self._scale_document(self.machine, files or {}, links)
        return {
            "schema": SCHEMA,
            "topology": self.network.to_json(),
            "collective": self.collective.to_json(1),
            "complete": self.complete,
            "max_steps": self.max_steps,
            "points": [p.to_json() for p in self.points],
            "open": [o.to_json() for o in self.open],
            "seconds": round(self.seconds, 3),
            "bounds": [{"steps": s} | b.to_json() for s, b in self.bounds],
            "notes": list(self.notes),
            "labels": list(self.labels),
            "answers": [a.to_json() for a in self.answers],
        }

    def _scale_document(self, machine: Topology, files: dict[int, str], links: bool) -> dict:
        from synth.model.documents import link_columns

        # Bounds and gaps are of any number of steps, so a row has no certificate of its own.
        rows = []
        for i, p in enumerate(self.points):
            row: dict = {"steps": p.steps, "rounds": p.rounds, "chunks": p.chunks}
            row |= {"bandwidth": show(p.rounds_per_chunk), "engine": p.construction, "gap": show(self.gap(p))}
            if i in files:
                row["file"] = files[i]
            rows.append(row)
        named = {"name": machine.name, "ranks": machine.ranks, "unit_gbps": show(self.unit)}
        return {
            "schema": SCALE_SCHEMA,
            "topology": named | link_columns.columns(machine) if links else named,
            "collective": self.task.name,
            "root": self.root,
            "bound": {"value": show(self.bound), "certificate": self.certificate},
            "least_steps": self.least_steps,
            "points": rows,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
            **({"open": list(self.unfinished)} if self.unfinished else {}),
        }

    @staticmethod
    def from_json(
        doc: dict, machine: Topology | None = None, sources: Sequence[Callable[[], CompressedSchedule]] = ()
    ) -> Frontier:
        """The inverse of `to_json`. Raises KeyError, ValueError, TypeError on a malformed document.

        Of flow methods: `machine` is the one that the document is about, and `sources` make the schedules of its
        points. `synth.topologies.frontier_files` finds both.
        """
        # The one bound of a document at scale is the bound of all its points.
        if doc["schema"] == SCALE_SCHEMA and machine is not None:
            bound, points = LowerBound(rational(doc["bound"]["value"]), doc["bound"]["certificate"]), []
            for row, source in zip(doc["points"], sources, strict=True):
                points.append(Point(row["steps"], row["rounds"], row["chunks"], bound, str(row["engine"]), source))
            return Frontier.at_scale(
                machine, ScaleCollective(doc["collective"], machine.ranks, doc["root"]), points, bound,
                doc["least_steps"], doc["seconds"], doc["notes"], doc.get("open", ()),
            )  # fmt: skip
        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        return Frontier(
            Network.from_json(doc["topology"]),
            Collective.from_json(doc["collective"], 1),
            tuple(Point.from_json(p) for p in doc["points"]),
            tuple(Open.from_json(o) for o in doc["open"]),
            doc["complete"],
            doc["max_steps"],
            doc["seconds"],
            tuple((b["steps"], LowerBound.from_json(b)) for b in doc.get("bounds", [])),
            tuple(doc.get("notes", [])),
            tuple(doc.get("labels", [])),
            tuple(QueryRecord(**a) for a in doc.get("answers", [])),
        )

    @staticmethod
    def at_scale(
        machine: Topology, task: ScaleCollective, points: Sequence[Point[CompressedSchedule]], bound: LowerBound,
        least_steps: int, seconds: float, notes: Sequence[str], unfinished: Sequence[str], interrupted: bool = False,
    ) -> Frontier:  # fmt: skip
        """Return the frontier of flow methods, which know one bound for any number of steps, and one on the steps."""
        bounds = ((0, LowerBound(Fraction(least_steps), {"kind": "distance"})), (None, bound))
        return Frontier(
            machine, task, tuple(points), seconds=seconds, bounds=bounds, notes=tuple(notes), labels=machine.labels,
            unfinished=tuple(unfinished), interrupted=interrupted,
        )  # fmt: skip
