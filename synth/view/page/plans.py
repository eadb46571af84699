"""Sheets of a plan: one for each of its tables, with the choice at each size and the chosen schedules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from synth.model import number_text
from synth.model.bounds.time_bound import TimeBound
from synth.model.rational import show
from synth.model.topology import Network
from synth.model.tuning_plan import Algorithm, Plan
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
    others = {table.collective for table in plan.tables}
    for table, about, bound in zip(plan.tables, abouts, bounds, strict=True):
        used = sorted(set(chain.from_iterable(span.order for span in table.ranges)))
        chosen = [plan.algorithms[i] for i in used]
        first = next((a.schedule for a in chosen if a.schedule is not None), None)
        network = plan.topology or (first.network if first else None)
        name = network.name if network else "any machine"
        called = table.collective + ("" if table.root is None else f" from {table.root}")

        # What to take at which sizes; neighbouring ranges with the same choice are one.
        wins: list[time_chart.Win] = []
        rows = []
        for span in table.ranges:
            labels = [plan.algorithms[i].label for i in span.order]
            high = "and more" if span.high is None else f"to {number_text.size_text(span.high)}"
            rows.append(
                [f"{number_text.size_text(span.low)} {high}", labels[0] if labels else "-", ", then ".join(labels[1:])]
            )
            if labels:
                best = used.index(span.order[0])
                low = wins.pop()[0] if wins and wins[-1][3] == best else float(span.low)
                wins.append((low, None if span.high is None else float(span.high), labels[0], best))

        # The expected times at the judged sizes, but for estimates. Predictions of the plain cost model add nothing
        # where the plan has times of its own.
        timed = [("what the plan takes", table.seconds, False)]
        if tuple(table.best) != tuple(table.seconds):
            timed.insert(0, ("the best at each size", table.best, False))
        timed += [(library.name, library.seconds, True) for library in table.libraries]
        marks = []
        for label, values, library in timed:
            points = []
            for place, (size, time) in enumerate(zip(table.sizes, values, strict=False)):
                if time and time not in table.estimates(place):
                    points.append(time_chart.measurement(size, time, time, time))
            if points:
                marks.append(Mark(label, tuple(points), plan.says, plan.source == "model", library=library))
        lines = []
        for k, algorithm in enumerate(chosen):
            if algorithm.schedule is not None and not marks:
                lines.append((k, *time_chart.predicted_line(algorithm.schedule)))
        certified = []
        if bound is not None:
            for size in table.sizes:
                if bound.microseconds(size) > 0:
                    certified.append((size, float(bound.microseconds(size)) * 1e-6))
        bus = time_chart.bus_bandwidth(table.collective, table.ranks)
        title = "What the plan takes"
        times = Times(tuple(lines), (), tuple(wins), tuple(marks), (), title, tuple(certified), bus)

        sentences = [f"times behind the plan: {plan.says}"]
        losses = [loss for loss in table.losses if loss is not None]
        if losses:
            sentences.append(
                f"what is taken is at most {100 * max(losses):.2f}% slower than the best of all candidates"
            )
        if table.estimated:
            sentences.append(f"{ESTIMATE}; estimates are not drawn")
        for note in plan.notes:
            if note.partition(":")[0] not in others - {table.collective}:  # a build's notes begin with their collective
                sentences.append(f"note: {note}")
        known = [(size, seconds) for size, seconds in zip(table.sizes, table.seconds, strict=False) if seconds]
        columns = [["sizes", "left"], ["take", "left"], ["where counts do not fit", "left"]]
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
                rate=known[-1][0] / known[-1][1] / 1e9 if known else None,
                times=times,
                machine=animation_data.machine(network) if network else None,
                provenance=(("source", plan.source), ("elements", f"{table.element} bytes each"), *about.provenance),
                tables=({"title": "What to take", "columns": columns, "rows": rows},),
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
