"""Sheets of a plan: one for each of its tables, with what is taken at which sizes and the schedules it takes."""

from __future__ import annotations

from collections.abc import Sequence

from synth.model import number_text
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.model.tuning_plan import Algorithm as Chosen
from synth.model.tuning_plan import Plan, Range, Table
from synth.view.page import animation_data, time_chart
from synth.view.page.frontier_section import GOOD, Algorithm, Mark, Sheet, Times
from synth.view.page.sections import About

COLUMNS = (
    ("algorithm", "left"),
    ("backend", "left"),
    ("protocol", "left"),
    ("instances", "right"),
    ("counts of", "right"),
    ("steps", "right"),
    ("rounds/chunk", "right"),
)


def of_plan(plan: Plan, abouts: Sequence[About]) -> list[Sheet]:
    """A sheet for each table of `plan`, with the `About` of the same place."""
    return [_of_table(plan, table, about) for table, about in zip(plan.tables, abouts, strict=True)]


def _of_table(plan: Plan, table: Table, about: About) -> Sheet:
    used = sorted({i for span in table.ranges for i in span.order})
    place = {number: k for k, number in enumerate(used)}
    chosen = [plan.algorithms[i] for i in used]
    first = next((a.schedule for a in chosen if a.schedule is not None), None)
    network = plan.topology or (first.network if first else None)
    name = network.name if network else "any machine"
    called = table.collective + ("" if table.root is None else f" from {table.root}")
    wins = tuple(
        (float(r.low), None if r.high is None else float(r.high), plan.algorithms[r.order[0]].label, place[r.order[0]])
        for r in table.ranges
        if r.order
    )
    marks = _marks(plan, table)
    # the prediction of the plain cost model is no news beside times that the plan has of its own
    lines = () if marks else tuple((k, *_line(a.schedule)) for k, a in enumerate(chosen) if a.schedule is not None)
    seen = Times(lines, (), wins, (), marks, title="What the plan takes")
    return Sheet(
        about.id,
        name,
        called,
        table.ranks,
        f"plan: {plan.source}",
        GOOD,
        f"plan for {called} on {name}: {table.ranks} ranks",
        _says(plan, table),
        COLUMNS,
        tuple(_algorithm(a, network) for a in chosen),
        None,
        _rate(table),
        None,
        seen,
        animation_data.machine(network) if network else None,
        (),
        (("source", plan.source), ("elements", f"{table.element} bytes each"), *about.provenance),
        (_ranges(plan, table),),
    )


def _says(plan: Plan, table: Table) -> tuple[str, ...]:
    """What the times are, what the choices lose, and the plan's notes."""
    losses = [loss for loss in table.losses if loss is not None]
    lost = (
        (f"what is taken is at most {100 * max(losses):.2f}% slower than the best of all candidates",) if losses else ()
    )
    return (f"times behind the plan: {plan.says}", *lost, *(f"note: {note}" for note in plan.notes))


def _line(schedule: Schedule) -> tuple[float, float]:
    """Predicted seconds of no bytes, and seconds per byte."""
    network, share = schedule.network, schedule.collective.unit_share
    return len(schedule.steps) * float(network.latency) * 1e-6, float(
        schedule.bandwidth * share / (network.unit * 10**9)
    )


def _rate(table: Table) -> float | None:
    """GB/s expected at the greatest size that was judged."""
    known = [(size, seconds) for size, seconds in zip(table.sizes, table.seconds, strict=False) if seconds]
    return known[-1][0] / known[-1][1] / 1e9 if known else None


def _marks(plan: Plan, table: Table) -> tuple[Mark, ...]:
    """What is expected of the choices at the sizes judged, and of the best there."""
    modelled = plan.source == "model"
    marks = []
    for label, values in (("the best at each size", table.best), ("what the plan takes", table.seconds)):
        points = tuple(time_chart.measurement(size, t, t, t) for size, t in zip(table.sizes, values, strict=False) if t)
        if points:
            marks.append(Mark(label, points, plan.says, modelled))
    return tuple(marks)


def _algorithm(chosen: Chosen, network: Network | None) -> Algorithm:
    made = chosen.schedule
    facts = ("", "") if made is None else (str(len(made.steps)), show(made.bandwidth))
    row = (chosen.label, chosen.backend, chosen.protocol, str(chosen.instances), str(chosen.divisor), *facts)
    if made is None:
        return Algorithm(chosen.label, row, "", 0, None, f"{chosen.backend}'s own: its schedule is not known here")
    lack = animation_data.lack(made)
    if not lack and network is not None and made.network.routes != network.routes:
        lack = "it is for a network of other links than the plan's"
    return Algorithm(chosen.label, row, "", len(made.steps), None if lack else animation_data.packed(made), lack)


def _ranges(plan: Plan, table: Table) -> dict:
    rows = [[_span(r), *_order(plan, r)] for r in table.ranges]
    return {
        "title": "What to take",
        "columns": [["sizes", "left"], ["take", "left"], ["where counts do not fit", "left"]],
        "rows": rows,
    }


def _order(plan: Plan, found: Range) -> tuple[str, str]:
    labels = [plan.algorithms[i].label for i in found.order]
    return labels[0] if labels else "-", ", then ".join(labels[1:])


def _span(found: Range) -> str:
    if found.high is None:
        return f"{number_text.size_text(found.low)} and more"
    return f"{number_text.size_text(found.low)} to {number_text.size_text(found.high)}"
