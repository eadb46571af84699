"""Sheets of a report, one or more for each value, which is checked first: schedules replayed, certificates added up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from synth.catalog.tuner.plan_bounds import plan_bounds
from synth.checker.documents import exact_frontier, scale_frontier
from synth.checker.schedule import replay
from synth.errors import FormatError, SynthError, VerificationError
from synth.language.library import rooted_trees
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule
from synth.model.tuning_plan import Plan
from synth.scale.baselines.algorithms import ring
from synth.scale.baselines.rings import kept_rings
from synth.view.page import plans, sections, time_chart
from synth.view.page.frontier_section import Mark, Sheet
from synth.view.page.sections import EntryContext

Value = TypeVar("Value")
Rows = tuple[tuple[str, str], ...]
WRONG = "failed its check"
CHECKED = "re-checked when this page was made: schedules replayed, certificates added up again"
BOUND_CHECKED = "the bound was added up again when this page was made; schedules were not replayed"


@dataclass
class SheetContext:
    """The state shared by all sheets of one report.

    `verify`: check each value first. `measured`: measured documents with the names of their files. `used`: indices of
    the measured documents that a sheet shows.
    """

    verify: bool
    measured: list[tuple[str, dict]] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    def measurements_of(self, topology: str, collective: str, ranks: int, root: int | None) -> tuple[dict, ...]:
        """Return the measured documents of this problem, and mark them as used."""
        problem = (topology, collective, ranks, root)
        matches = []
        for k, (_, doc) in enumerate(self.measured):
            if (doc["topology"], doc["collective"], doc["ranks"], doc["root"]) == problem:
                matches.append(k)
        self.used.update(matches)
        return tuple(self.measured[k][1] for k in matches)

    def unused(self) -> list[tuple[str, dict]]:
        """Return the measured documents that no sheet shows."""
        return [row for k, row in enumerate(self.measured) if k not in self.used]

    def about(self, name: str, rows: Rows, measured: tuple[dict, ...] = (), checked: str = CHECKED) -> EntryContext:
        """Return the context of the value called `name`: its measurements, `rows` of provenance, and its check.

        `checked`: the sentence for a value that was checked.
        """
        about = EntryContext(name, measured, rows)
        return replace(about, checked=checked) if self.verify else about


def read(name: str, reader: Callable[[], Value]) -> Value:
    """Return the result of `reader`. Raises FormatError where the document that it reads is malformed."""
    try:
        return reader()
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
        raise FormatError(f"is malformed: {error!r}"[:200], name) from None


def failed_sheet(name: str, topology: str, collective: str, ranks: int, error: Exception, rows: Rows) -> Sheet:
    """Return the sheet of a value that failed its check: the error, and nothing of the value."""
    return sections.of_nothing(EntryContext(name, provenance=rows), topology, collective, ranks, WRONG, str(error))


def value_sheets(value: Frontier | Plan | Schedule, name: str, rows: Rows, context: SheetContext) -> Iterator[Sheet]:
    """Yield the sheets of `value`, called `name`, with `rows` of provenance. Raises FormatError."""
    match value:
        case Frontier():
            yield _of_frontier(value, name, rows, context)
        case Plan():
            yield from _of_plan(value, name, rows, context)
        case Schedule():
            yield _of_schedule(value, name, rows, context)


def _of_frontier(frontier: Frontier, name: str, rows: Rows, context: SheetContext) -> Sheet:
    machine, collective, roots = frontier.machine, frontier.collective_name, frontier.roots
    if context.verify:
        try:
            _check(frontier)
        except VerificationError as error:
            return failed_sheet(name, machine.name, collective, machine.ranks, error, rows)
    root = roots[0] if len(roots) == 1 else None
    measured = context.measurements_of(machine.name, collective, machine.ranks, root)
    exact = frontier.engine == "exact"
    about = context.about(name, rows, measured, CHECKED if exact else BOUND_CHECKED)
    if exact:
        about = replace(about, libraries=_library_marks(frontier))
    return read(name, lambda: sections.of_frontier(frontier, about))


def _library_marks(frontier: Frontier) -> tuple[Mark, ...]:
    # NCCL's ring, and its trees of an allreduce, where they fit the machine
    network, task = replace(frontier.network, multicast=()), frontier.collective
    if network.ranks < 2 or not frontier.points:
        return ()
    schedules = {}
    with suppress(SynthError):
        schedules["nccl-ring"] = ring(network, task, kept_rings(network))
        replay.schedule(schedules["nccl-ring"])
    if task.name == "allreduce":
        with suppress(SynthError):
            schedules["nccl-tree"] = rooted_trees.double_tree.schedule(network)
    return tuple(time_chart.library_mark(name, schedule) for name, schedule in schedules.items())


def _check(frontier: Frontier) -> None:
    """Re-check a frontier, at scale its bound alone. Raises VerificationError."""
    if frontier.engine == "exact":
        exact_frontier.document(frontier.to_json())
        return
    proved = scale_frontier.bound(frontier.certificate, frontier.topology)
    if proved < frontier.bound:
        raise VerificationError(f"the certificate proves {proved}, {frontier.bound} is claimed", "bound")


def _of_schedule(schedule: Schedule, name: str, rows: Rows, context: SheetContext) -> Sheet:
    if context.verify:
        try:
            exact_frontier.document(schedule.to_json())
        except VerificationError as error:
            network = schedule.network
            return failed_sheet(name, network.name, schedule.collective.name, network.ranks, error, rows)
    return read(name, lambda: sections.of_schedule(schedule, context.about(name, rows)))


def _of_plan(plan: Plan, name: str, rows: Rows, context: SheetContext) -> list[Sheet]:
    if context.verify:
        for algorithm in plan.algorithms:
            try:
                if algorithm.schedule is not None:
                    exact_frontier.document(algorithm.schedule.to_json())
            except VerificationError as error:
                labelled = VerificationError(str(error), algorithm.label)
                topology = plan.topology.name if plan.topology else ""
                return [failed_sheet(name, topology, "plan", max(t.ranks for t in plan.tables), labelled, rows)]
    abouts = [EntryContext(f"{name} {table.collective}", provenance=rows) for table in plan.tables]
    return read(name, lambda: plans.of_plan(plan, abouts, plan_bounds(plan)))
