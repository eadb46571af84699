"""Values as sheets of a report, each checked first: schedules replayed, certificates added up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from synth.catalog.entry import INFEASIBLE, Entry
from synth.checker.certificates import cuts
from synth.checker.documents import exact_frontier, scale_frontier, scale_schema
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.compressed_schedule import Bulk
from synth.model.frontier import Frontier
from synth.model.rational import rational
from synth.model.scale_frontier import Large, LargePoint
from synth.model.schedule import Schedule
from synth.model.tuning_plan import Plan
from synth.view.page import plans, sections
from synth.view.page.frontier_section import Sheet
from synth.view.page.sections import About

Value = TypeVar("Value")
Rows = tuple[tuple[str, str], ...]
WRONG = "failed its check"
CHECKED = "re-checked when this page was made: schedules replayed, certificates added up again"
BOUND_CHECKED = "the bound was added up again when this page was made; schedules were not replayed"


@dataclass
class Making:
    """`verify`: whether to check. `measured`: documents by the name of their file, each for the first problem it
    belongs to."""

    verify: bool
    measured: list[tuple[str, dict]] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    def of(self, topology: str, collective: str, ranks: int, root: int | None) -> tuple[dict, ...]:
        """The measured documents of this problem; they are then no entries of their own."""
        here = (topology, collective, ranks, root)
        mine = [
            k
            for k, (_, d) in enumerate(self.measured)
            if (d["topology"], d["collective"], d["ranks"], d["root"]) == here
        ]
        self.used.update(mine)
        return tuple(self.measured[k][1] for k in mine)

    def left(self) -> list[tuple[str, dict]]:
        """The measured documents that belonged to nothing."""
        return [one for k, one in enumerate(self.measured) if k not in self.used]

    def about(self, name: str, rows: Rows, measured: tuple[dict, ...] = (), checked: str = CHECKED) -> About:
        """What stands beside a value."""
        about = About(name, measured, rows)
        return replace(about, checked=checked) if self.verify else about


def read(name: str, reader: Callable[[], Value]) -> Value:
    """What `reader` returns. Raises FormatError where a document says something else than it should."""
    try:
        return reader()
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
        raise FormatError(f"is malformed: {error!r}"[:200], name) from None


def wrong(name: str, topology: str, collective: str, ranks: int, error: Exception, rows: Rows) -> Sheet:
    """The sheet of what failed its check."""
    return sections.of_nothing(
        About(name, provenance=rows), topology, collective, ranks, WRONG, (str(error), "nothing of it is shown")
    )


def of_value(
    value: Entry | Frontier | Large | Plan | Schedule, name: str, rows: Rows, making: Making
) -> Iterator[Sheet]:
    """The sheets of `value`, called `name`, with `rows` of provenance. Raises FormatError."""
    match value:
        case Entry():
            yield _of_entry(value, making)
        case Frontier():
            yield _of_frontier(value, name, rows, making, ())
        case Large():
            yield _of_large(value, name, rows, making, ())
        case Plan():
            yield from _of_plan(value, name, rows, making)
        case Schedule():
            yield _of_schedule(value, name, rows, making)


def _of_frontier(found: Frontier, name: str, rows: Rows, making: Making, beside: tuple[dict, ...]) -> Sheet:
    task, machine = found.collective, found.network
    if making.verify:
        try:
            exact_frontier.document(found.to_json())
        except VerificationError as error:
            return wrong(name, machine.name, task.name, machine.ranks, error, rows)
    measured = beside + making.of(machine.name, task.name, task.ranks, task.roots[0] if len(task.roots) == 1 else None)
    return read(name, lambda: sections.of_frontier(found, making.about(name, rows, measured)))


def _of_large(found: Large, name: str, rows: Rows, making: Making, beside: tuple[dict, ...]) -> Sheet:
    machine = found.topology
    if making.verify:
        try:
            proved = scale_frontier.bound(found.certificate, machine)
            if proved < found.bound:
                raise VerificationError(f"the certificate proves {proved}, {found.bound} is claimed", "bound")
        except VerificationError as error:
            return wrong(name, machine.name, found.collective, machine.ranks, error, rows)
    measured = beside + making.of(machine.name, found.collective, machine.ranks, found.root)
    return read(name, lambda: sections.of_large(found, making.about(name, rows, measured, BOUND_CHECKED)))


def of_large_document(doc: dict, name: str, rows: Rows, making: Making) -> Iterator[Sheet]:
    """With its machine where that is known by name; else as the document alone says, unchecked. Raises FormatError."""
    try:
        scale_schema.check(doc)
    except VerificationError as error:
        raise FormatError(f"is malformed: {error}", name) from None
    found = read(name, lambda: _large(doc))
    if found is None:
        yield read(name, lambda: sections.of_large_document(doc, About(name, provenance=rows)))
    else:
        yield _of_large(found, name, rows, making, ())


def _large(doc: dict) -> Large | None:
    """The value of a document, without its schedules; None where no machine of that name has its ranks and its unit."""
    from synth import topologies

    told, bound = doc["topology"], doc["bound"]
    try:
        machine = topologies.topology(str(told["name"])).live()
    except SynthError:
        return None
    if machine.ranks != told["ranks"] or machine.unit_bandwidth() != rational(told["unit_gbps"]):
        return None
    points = tuple(
        LargePoint(r["steps"], rational(r["bandwidth"]), r["chunks"], str(r["engine"]), _unmade) for r in doc["points"]
    )
    return Large(
        machine,
        doc["collective"],
        doc["root"],
        rational(bound["value"]),
        bound["certificate"],
        doc["least_steps"],
        points,
        doc["seconds"],
        tuple(doc["notes"]),
    )


def _unmade() -> Bulk:
    raise SynthError("this schedule is in a file of its own")


def _of_schedule(given: Schedule, name: str, rows: Rows, making: Making) -> Sheet:
    if making.verify:
        try:
            exact_frontier.document(given.to_json())
        except VerificationError as error:
            return wrong(name, given.network.name, given.collective.name, given.network.ranks, error, rows)
    return read(name, lambda: sections.of_schedule(given, making.about(name, rows)))


def _of_plan(plan: Plan, name: str, rows: Rows, making: Making) -> list[Sheet]:
    """A sheet for each table; its schedules are replayed, its times are taken as they are."""
    if making.verify:
        for algorithm in plan.algorithms:
            try:
                if algorithm.schedule is not None:
                    exact_frontier.document(algorithm.schedule.to_json())
            except VerificationError as error:
                what = VerificationError(str(error), algorithm.label)
                return [
                    wrong(
                        name,
                        plan.topology.name if plan.topology else "",
                        "plan",
                        max(t.ranks for t in plan.tables),
                        what,
                        rows,
                    )
                ]
    called = [f"{name} {table.collective}" for table in plan.tables]
    return read(name, lambda: plans.of_plan(plan, [About(one, provenance=rows) for one in called]))


def _of_entry(entry: Entry, making: Making) -> Sheet:
    rows, found = _origin(entry), entry.frontier
    if entry.state == INFEASIBLE or found is None:
        return _without(entry, rows, making)
    make = _of_frontier if isinstance(found, Frontier) else _of_large
    return make(found, entry.id, rows, making, entry.measurements)  # type: ignore[arg-type]


def _without(entry: Entry, rows: Rows, making: Making) -> Sheet:
    """Proved impossible, or failed twice."""
    found, certificate = entry.frontier, entry.certificate
    if making.verify and certificate and isinstance(found, Frontier):
        try:
            cuts.check(certificate, found.network.to_json(), found.collective.to_json(1))
        except VerificationError as error:
            return wrong(entry.id, entry.topology, entry.collective, entry.ranks, error, rows)
    says = (f"found nothing: {entry.reason}",) if entry.reason else ()
    status = "impossible, proved" if entry.state == INFEASIBLE else entry.state
    about = About(entry.id, provenance=rows)
    return sections.of_nothing(about, entry.topology, entry.collective, entry.ranks, status, says, certificate or None)


def _origin(entry: Entry) -> Rows:
    """Provenance as rows of text; what is not known is left out."""
    made = entry.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made.versions)
    options = ", ".join(f"{key}={value}" for key, value in entry.options)
    limit = "" if made.time_limit is None else f"{made.time_limit:g} s"
    rows = (
        ("entry", entry.fingerprint),
        ("state", entry.state),
        ("made", made.created),
        ("on", made.machine),
        ("versions", versions),
        ("encoding", made.encoding),
        ("solver", made.solver),
        ("seed", str(made.seed)),
        ("options", options),
        ("time limit", limit),
        ("seconds", f"{entry.seconds:.3g}"),
    )
    return tuple((key, value) for key, value in rows if value)
