"""Sheets of a plan: one for each of its tables, with the choice at each size and the chosen schedules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from synth.model import number_text
from synth.model.bounds.time_bound import TimeBound
from synth.model.rational import show
from synth.model.topology import Network
from synth.model.tuning_plan import Algorithm, Plan, Range
from synth.view.page import animation_data, time_chart
from synth.view.page.frontier_section import GOOD, AlgorithmRow, Mark, Sheet, Times
from synth.view.page.sections import EntryContext
from synth.view.plans import ESTIMATE

COLUMNS = (
    ("algorithm", "left"),
    ("backend", "left"),
    ("protocol", "left"),
    ("instances", "right"),
    ("counts of", "right"),
    ("steps", "right"),
    ("rounds/chunk", "right"),
)


def of_plan(plan: Plan, abouts: Sequence[EntryContext], bounds: Sequence[TimeBound | None]) -> list[Sheet]:
    """Return a sheet for each table of `plan`, with the `EntryContext` and the bounds in time at the same index."""
    sheets = []
    for table, about, bound in zip(plan.tables, abouts, bounds, strict=True):
        used = sorted(set(chain.from_iterable(span.order for span in table.ranges)))
        place = {number: k for k, number in enumerate(used)}
        chosen = [plan.algorithms[i] for i in used]
        first = next((a.schedule for a in chosen if a.schedule is not None), None)
        network = plan.topology or (first.network if first else None)
        name = network.name if network else "any machine"
        called = table.collective + ("" if table.root is None else f" from {table.root}")
        wins: list[time_chart.Win] = []
        for span in table.ranges:
            if span.order:
                best = span.order[0]
                high = None if span.high is None else float(span.high)
                low = wins.pop()[0] if wins and wins[-1][3] == place[best] else float(span.low)
                wins.append((low, high, plan.algorithms[best].label, place[best]))
        # The expected times at the judged sizes.
        modelled = plan.source == "model"
        rows = [
            ("what the plan takes", table.seconds),
            *((library.name, library.seconds) for library in table.libraries),
        ]
        if tuple(table.best) != tuple(table.seconds):
            rows.insert(0, ("the best at each size", table.best))
        names = {library.name for library in table.libraries}
        marks = []
        for label, values in rows:
            points = []
            for place, (size, time) in enumerate(zip(table.sizes, values, strict=False)):
                if time and time not in table.estimates(place):  # an estimate is not drawn as a time
                    points.append(time_chart.measurement(size, time, time, time))
            if points:
                marks.append(Mark(label, tuple(points), plan.says, modelled, library=label in names))
        marks = tuple(marks)
        # predictions of the plain cost model add nothing where the plan has times of its own
        lines = []
        for k, algorithm in enumerate(chosen):
            if algorithm.schedule is not None and not marks:
                lines.append((k, *time_chart.predicted_line(algorithm.schedule)))
        certified: tuple[tuple[int, float], ...] = ()
        if bound is not None:
            certified = tuple(
                (size, float(least) * 1e-6) for size in table.sizes if (least := bound.microseconds(size)) > 0
            )
        bus = time_chart.bus_bandwidth(table.collective, table.ranks)
        times = Times(tuple(lines), (), tuple(wins), marks, (), "What the plan takes", certified, bus)
        known = [(size, seconds) for size, seconds in zip(table.sizes, table.seconds, strict=False) if seconds]
        rows = [[_span(r), *_order(plan, r)] for r in table.ranges]
        sentences = [f"times behind the plan: {plan.says}"]
        losses = [loss for loss in table.losses if loss is not None]
        if losses:
            sentences.append(
                f"what is taken is at most {100 * max(losses):.2f}% slower than the best of all candidates"
            )
        if table.estimated:
            sentences.append(f"{ESTIMATE}; estimates are not drawn")
        others = {other.collective for other in plan.tables} - {table.collective}
        for note in plan.notes:
            if note.partition(":")[0] not in others:  # the notes of a build begin with their collective
                sentences.append(f"note: {note}")
        sheets.append(
            Sheet(
                about.id,
                name,
                called,
                table.ranks,
                f"plan: {plan.source}",
                GOOD,
                f"plan for {called} on {name}: {table.ranks} ranks",
                tuple(sentences),
                COLUMNS,
                tuple(_algorithm(a, network) for a in chosen),
                None,
                known[-1][0] / known[-1][1] / 1e9 if known else None,
                None,
                times,
                animation_data.machine(network) if network else None,
                (),
                (("source", plan.source), ("elements", f"{table.element} bytes each"), *about.provenance),
                (
                    {
                        "title": "What to take",
                        "columns": [["sizes", "left"], ["take", "left"], ["where counts do not fit", "left"]],
                        "rows": rows,
                    },
                ),
            )
        )
    return sheets


def _algorithm(chosen: Algorithm, network: Network | None) -> AlgorithmRow:
    schedule = chosen.schedule
    cost = ("", "") if schedule is None else (str(len(schedule.steps)), show(schedule.rounds_per_chunk))
    row = (chosen.label, chosen.backend, chosen.protocol, str(chosen.instances), str(chosen.divisor), *cost)
    if schedule is None:
        return AlgorithmRow(chosen.label, row, "", 0, None, f"{chosen.backend}'s own: its schedule is not known here")
    lack = animation_data.reason_not_drawn(schedule)
    links = schedule.network.routes, schedule.network.caps
    # the plan's network may have more limits: those of ports of switches that multicast
    if not lack and network is not None and links != (network.routes, network.caps[: len(links[1])]):
        lack = "it is for a network of other links than the plan's"
    move = None if lack else animation_data.pack_schedule(schedule)
    return AlgorithmRow(chosen.label, row, "", len(schedule.steps), move, lack)


def _order(plan: Plan, found: Range) -> tuple[str, str]:
    labels = [plan.algorithms[i].label for i in found.order]
    return labels[0] if labels else "-", ", then ".join(labels[1:])


def _span(found: Range) -> str:
    if found.high is None:
        return f"{number_text.size_text(found.low)} and more"
    return f"{number_text.size_text(found.low)} to {number_text.size_text(found.high)}"
