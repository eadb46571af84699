"""Plan: the choice of a tuner for one machine: for each collective, ranges of message sizes and their algorithm.

    Algorithm  label backend schedule protocol instances divisor
    Range      low high order
    Table      collective ranks root element ranges sizes chosen seconds best times libraries
    Plan       topology algorithms tables source says labels kinds nodes model notes

Sizes are bytes as nccl-tests counts them (the whole buffer that bandwidths are quoted for, `Collective.unit_share`
units).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from synth.model.registry import NOTEBOOK, load
from synth.model.schedule import Schedule
from synth.model.topology import Network

SCHEMA = "synth.plan/1"
OURS = "synth"


@dataclass(frozen=True)
class Algorithm:
    """One algorithm of a plan.

    `backend` is "synth" (then `schedule` is given, or the algorithm is known by name alone), "nccl", "mpi", ...

    `divisor`: a call of a multiple of so many elements, counted over the whole buffer, needs no padding; 1 where any
    count will do. This project's executors pad all others. The loaders of MSCCL-IR and MSCCL++ do not, and leave those
    to their library.
    `options`: further facts of the backend's own by name (NCCL's algorithm and protocol, say), as text.
    """

    label: str
    backend: str = OURS
    schedule: Schedule | None = None
    protocol: str = "Simple"
    instances: int = 1
    divisor: int = 1
    options: tuple[tuple[str, str], ...] = ()

    @property
    def through_switches(self) -> bool:
        """True if its schedule has sends of switches that multicast and reduce."""
        return self.schedule is not None and self.schedule.uses_multicast

    def admits(self, size: int, element: int = 1) -> bool:
        """May a call of `size` bytes, in elements of `element` bytes, take this algorithm without padding?"""
        return size % element == 0 and (size // element) % self.divisor == 0

    def padded(self, size: int, element: int) -> int:
        """Return the bytes of a call of `size` bytes, in elements of `element` bytes, with its padding."""
        whole = self.divisor * element
        return -(-size // whole) * whole

    def to_json(self) -> dict:
        """As in a plan document."""
        schedule = None if self.schedule is None else self.schedule.to_json()
        return vars(self) | {"schedule": schedule, "options": dict(self.options)}

    @staticmethod
    def from_json(doc: dict) -> Algorithm:
        """The inverse of `to_json`."""
        schedule = None if doc["schedule"] is None else Schedule.from_json(doc["schedule"])
        return Algorithm(**doc | {"schedule": schedule, "options": tuple(doc["options"].items())})


class Range(NamedTuple):
    """At `low` <= size <= `high` bytes (None: no end) the first of `order` (places in `Plan.algorithms`), the best of
    all. The others stand in where a runtime does not take it: for a count that it does not divide, or for its protocol.
    A library's own takes all that is left; schedules after it are slower, and there to compare."""

    low: int
    high: int | None
    order: tuple[int, ...]


class LibraryTimes(NamedTuple):
    """Seconds of another library's algorithm, such as ``nccl-ring``, at each judged size in its best protocol there.

    None: not known.
    """

    name: str
    seconds: tuple[float | None, ...]


def _listed(value: Any) -> Any:
    """Return a value with lists in place of tuples, as JSON has them."""
    if isinstance(value, tuple):
        return [_listed(item) for item in value]
    return value


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def _excess(seconds: float | None, best: float | None) -> float | None:
    """(seconds - best) / best, at least 0; None where one is not known."""
    return None if seconds is None or not best else max(0.0, seconds / best - 1)


@dataclass(frozen=True)
class Table:
    """One collective on so many ranks: disjoint `ranges` by growing size, which leave no gap between the least and the
    greatest.

    `sizes`: the sizes that were judged, growing; the ranges are drawn between them. `seconds[i]` is what is
    expected at `sizes[i]` of what is chosen there, place `chosen[i]` in `Plan.algorithms`, `best[i]` of the best of
    all candidates, `ours[i]` and `library[i]` of the best schedule and of the best algorithm of other libraries,
    `times[i]` of each algorithm of the range's order. None: not known. `libraries`: the times of each algorithm of
    other libraries. `estimated[i]`: those of the times at `sizes[i]` that are not of a run; () where all are of
    runs, or measured.
    """

    collective: str
    ranks: int
    ranges: tuple[Range, ...]
    sizes: tuple[int, ...] = ()
    seconds: tuple[float | None, ...] = ()
    best: tuple[float | None, ...] = ()
    root: int | None = None
    element: int = 1
    chosen: tuple[int | None, ...] = ()
    ours: tuple[float | None, ...] = ()
    library: tuple[float | None, ...] = ()
    times: tuple[tuple[float | None, ...], ...] = ()
    libraries: tuple[LibraryTimes, ...] = ()
    estimated: tuple[tuple[float, ...], ...] = ()

    @property
    def losses(self) -> tuple[float | None, ...]:
        """Excess time of the chosen algorithm over the best one, as a fraction of the best, at each of `sizes`.

        None where a time is not known, or is an estimate.
        """
        losses = []
        for place, (chosen, best) in enumerate(zip(self.seconds, self.best, strict=True)):
            losses.append(None if chosen in self.estimates(place) else _excess(chosen, best))
        return tuple(losses)

    def estimates(self, place: int) -> tuple[float, ...]:
        """Return the times at `sizes[place]` that are estimates: neither measured nor of a full run of the program."""
        return self.estimated[place] if self.estimated else ()

    def at(self, size: int) -> Range | None:
        """Return the range that contains `size` bytes, None where no range does."""
        i = bisect_right(self.ranges, size, key=lambda r: r.low) - 1
        found = self.ranges[i] if i >= 0 else None
        return found if found is not None and (found.high is None or size <= found.high) else None

    def to_json(self) -> dict:
        """As in a plan document; the losses there follow from the rest."""
        doc = {name: _listed(value) for name, value in vars(self).items()}
        return doc | {
            "ranges": [row._asdict() | {"order": list(row.order)} for row in self.ranges],
            "libraries": {name: list(seconds) for name, seconds in self.libraries},
            "losses": list(self.losses),
            "greatest_loss": max((x for x in self.losses if x is not None), default=None),
        }

    @staticmethod
    def from_json(doc: dict) -> Table:
        """The inverse of `to_json`."""
        values = {name: _tupled(value) for name, value in doc.items() if name not in ("losses", "greatest_loss")}
        values["ranges"] = tuple(Range(row["low"], row["high"], tuple(row["order"])) for row in doc["ranges"])
        libraries = doc.get("libraries", {}).items()
        values["libraries"] = tuple(LibraryTimes(name, tuple(seconds)) for name, seconds in libraries)
        return Table(**values)


@dataclass(frozen=True)
class Plan:
    """`source`: "measured" (a clock was read), "model" or "imported"; `says`: what the times are, in words that stand
    beside every table.

    `topology` None: the plan is of backends that need none. `labels`: the machine's own number of each rank, () for 0,
    1, 2, …
    `kinds[i]`: the kinds of link (`synth.model.topology.KINDS`) that data on route i of the topology can pass,
    `nodes[r]`: the box of rank r; () where they are not known.
    `model`: the cost model behind the times, as a document ({}: none). `notes`: what else its readers should know.
    """

    algorithms: tuple[Algorithm, ...]
    tables: tuple[Table, ...]
    source: str
    says: str
    topology: Network | None = None
    labels: tuple[int, ...] = ()
    model: dict = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kinds: tuple[tuple[str, ...], ...] = ()
    nodes: tuple[int, ...] = ()

    def __repr__(self) -> str:
        said = ", ".join(f"{t.collective} on {t.ranks} ranks in {len(t.ranges)} ranges" for t in self.tables)
        return f"<Plan of {said or 'nothing'}; {self.source}>"

    def _repr_html_(self) -> str:
        return load(NOTEBOOK["plan"])(self)

    def table(self, collective: str, ranks: int | None = None) -> Table | None:
        """The table of `collective` (on `ranks` ranks, where the plan has more than one), None where there is none."""
        return next((t for t in self.tables if t.collective == collective and ranks in (None, t.ranks)), None)

    def choose(
        self, collective: str, size: int, element: int = 1, ranks: int | None = None, *, padding: bool = True
    ) -> Algorithm | None:  # fmt: skip
        """Return the algorithm for `size` bytes in elements of `element` bytes; None beyond the judged sizes.

        Without `padding` it is the first whose chunks divide the size.
        """
        # The order of a range is from the fastest on, so the first that may be called is taken.
        table = self.table(collective, ranks)
        size_range = table.at(size) if table else None
        if size_range is None:
            return None
        for i in size_range.order:
            if padding or self.algorithms[i].admits(size, element):
                return self.algorithms[i]
        return None

    def to_json(self) -> dict:
        """The plan as a JSON document (schema: docs/formats.md)."""
        doc = {"schema": SCHEMA} | {name: _listed(value) for name, value in vars(self).items()}
        return doc | {
            "topology": None if self.topology is None else self.topology.to_json(),
            "algorithms": [a.to_json() for a in self.algorithms],
            "tables": [t.to_json() for t in self.tables],
        }

    @staticmethod
    def from_json(doc: dict) -> Plan:
        """The inverse of `to_json`. Raises KeyError, ValueError, TypeError on a malformed document."""
        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        values = {name: _tupled(value) for name, value in doc.items() if name != "schema"}
        values["algorithms"] = tuple(map(Algorithm.from_json, doc["algorithms"]))
        values["tables"] = tuple(map(Table.from_json, doc["tables"]))
        values["topology"] = None if doc["topology"] is None else Network.from_json(doc["topology"])
        return Plan(**values)


def joined(plans: Sequence[Plan]) -> Plan:
    """Return one plan with the tables of `plans`, which are of one machine and of one collective each.

    Of several plans labels and notes begin with the collective's name; notes that all have stand once, first.
    """
    if len(plans) == 1:
        return plans[0]
    algorithms: list[Algorithm] = []
    tables: list[Table] = []
    model: dict = {}
    shared = set.intersection(*(set(plan.notes) for plan in plans))
    notes = [note for note in plans[0].notes if note in shared]

    # Places in the list of algorithms move by those of the plans before.
    for plan in plans:
        (table,), shift = plan.tables, len(algorithms)
        for algorithm in plan.algorithms:
            algorithms.append(replace(algorithm, label=f"{table.collective}-{algorithm.label}"))
        ranges = []
        for row in table.ranges:
            ranges.append(row._replace(order=tuple(k + shift for k in row.order)))
        chosen: list[int | None] = []
        for number in table.chosen:
            chosen.append(None if number is None else number + shift)
        tables.append(replace(table, ranges=tuple(ranges), chosen=tuple(chosen)))
        model |= plan.model
        notes += [f"{table.collective}: {note}" for note in plan.notes if note not in shared]

    # What is of the machine is alike in all of them.
    first = next((plan for plan in plans if plan.topology is not None), plans[0])
    return replace(
        first,
        algorithms=tuple(algorithms),
        tables=tuple(tables),
        source=max((plan.source for plan in plans), key=("model", "imported", "measured").index),
        says="; ".join(filter(None, dict.fromkeys(plan.says for plan in plans))),
        model=model,
        notes=tuple(notes),
    )
