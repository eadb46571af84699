"""Sheets of frontiers, exact and at scale, schedules and measurements; those of plans are in `plans`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.model import number_text
from synth.model.frontier import Frontier
from synth.model.rational import counted, show
from synth.model.schedule import Schedule
from synth.view import bound_tables, frontier_text
from synth.view.page import animation_data, certificate_text, time_chart
from synth.view.page.frontier_section import BAD, GOOD, PART, AlgorithmRow, Mark, Sheet, Times

NOT_DRAWN = (
    "schedules of the flow engine are kept by their symmetries and not drawn; synth pareto --schedules writes them out"
)


@dataclass(frozen=True)
class EntryContext:
    """Context of a value on the page: its `id`, measured documents, (name, value) of its provenance, its check, and the
    times of other libraries' algorithms."""

    id: str
    measured: tuple[dict, ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    checked: str = "not re-checked when this page was made; synth verify does it"
    libraries: tuple[Mark, ...] = ()


def of_frontier(found: Frontier, about: EntryContext) -> Sheet:
    """Return the sheet of a frontier. Schedules of the flow engine are not drawn, its machines are."""
    table = frontier_text.report(found)
    algorithms = []
    for point, row in zip(found.points, table.rows, strict=True):
        claim = certificate_text.of_point(point)[0]
        if found.engine == "exact":
            algorithms.append(_algorithm(point.schedule, row, claim))
        else:
            algorithms.append(AlgorithmRow(counted(point.steps, "step"), row, claim, point.steps, None, NOT_DRAWN))
    drawn = any(algorithm.move for algorithm in algorithms)
    if found.engine == "flow":
        links = len(found.topology.links)
        fits = max(links, len(found.network.routes)) <= animation_data.MOST_ROUTES
        drawn = fits and found.topology.ranks <= animation_data.MOST_RANKS

    # A few words on how good it is, then all that is proved of it.
    gaps = [found.gap(point) for point in found.points if point.bound.value]
    status = ("no schedule", PART)
    if found.complete:
        most = found.max_steps
        status = ("complete" if most is None else f"complete to {counted(most, 'step')}"), GOOD
    elif found.open:
        status = f"{len(found.open)} open", PART
    elif gaps:
        status = (f"{float(min(gaps)):.2%} above bound", PART) if min(gaps) else ("optimal rate", GOOD)
    proofs = [certificate_text.completeness(found)]
    if found.engine == "flow":
        most = number_text.number(found.bound_gbps)
        limited = f"Limited by: {bound_tables.limit(found)}; {most} GB/s at most."
        proofs.append((limited, "It is what the certificate below adds up."))
    proofs += [certificate_text.of_bound(steps, bound) for steps, bound in found.bounds]
    if found.engine == "exact":
        proofs += map(certificate_text.of_point, found.points)
    proofs += map(certificate_text.of_open, found.open)

    times = time_chart.of_frontier(found, about.measured, about.libraries)
    slopes = [slope for _, _, slope in times.lines if slope]
    return Sheet(
        about.id,
        found.machine.name,
        _called(found.collective_name, found.roots),
        found.machine.ranks,
        *status,
        table.title,
        table.sentences,
        table.columns,
        tuple(algorithms),
        min((alpha for _, alpha, _ in times.lines), default=0.0) or None,
        1 / min(slopes) / 1e9 if slopes else None,
        time_chart.stairs(found) if found.points or found.open else None,
        times,
        animation_data.machine(found.network) if drawn else None,
        tuple(proofs),
        (("certificates", about.checked), ("found in", f"{number_text.number(found.seconds)} s"), *about.provenance),
    )


def _algorithm(schedule: Schedule, row: tuple[str, ...], claim: str = "") -> AlgorithmRow:
    lack = animation_data.reason_not_drawn(schedule)
    move = None if lack else animation_data.pack_schedule(schedule)
    steps = len(schedule.steps)
    return AlgorithmRow(counted(steps, "step"), row, claim, steps, move, lack)


def _called(collective: str, roots: Sequence[int]) -> str:
    return collective + (f" from {', '.join(map(str, roots))}" if roots else "")


def of_schedule(given: Schedule, about: EntryContext) -> Sheet:
    """Return the sheet of one schedule, without any claim about better ones."""
    # The only row of the table, and its predicted line in the chart of times.
    columns = (("steps", "right"), ("rounds", "right"), ("chunks", "right"), ("rounds/chunk", "right"))
    row = (str(len(given.steps)), str(given.rounds), str(given.chunks), show(given.rounds_per_chunk))
    only = _algorithm(given, row)
    alpha, slope = time_chart.predicted_line(given)
    return Sheet(
        about.id,
        given.network.name,
        _called(given.collective.name, given.collective.roots),
        given.network.ranks,
        "one schedule",
        PART,
        frontier_text.title(given.network, given.collective),
        ("one schedule; nothing is said about better ones",),
        columns,
        (only,),
        alpha or None,
        1 / slope / 1e9 if slope else None,
        None,
        Times(((0, alpha, slope),), bus=time_chart.bus_bandwidth(given.collective.name, given.network.ranks)),
        animation_data.machine(given.network) if only.move else None,
        (),
        (("schedule", about.checked), *about.provenance),
    )


def of_measured(doc: dict, about: EntryContext) -> Sheet:
    """Return the sheet of a ``synth.measured/1`` document that belongs to no frontier of the report."""
    # A row for each program, and its times in the chart.
    marks = tuple(time_chart.marks_of(doc))
    called = _called(str(doc["collective"]), () if doc["root"] is None else (doc["root"],))
    columns = (("program", "left"), ("protocol", "left"), ("channels", "right"), ("chunks", "right"))
    rows = [(str(p["label"]), str(p["protocol"]), str(p["channels"]), str(p["chunks"])) for p in doc["programs"]]
    algorithms = tuple(AlgorithmRow(row[0], row) for row in rows)
    machine = str(doc["topology"] or "no machine named")
    return Sheet(
        about.id,
        machine,
        called,
        doc["ranks"],
        "modelled" if doc["modelled"] else "measured",
        PART,
        f"{called} on {machine}: {doc['ranks']} ranks, {doc['executor']} executor",
        (f"times are {doc['says']}",),
        columns,
        algorithms,
        times=Times(
            marks=marks,
            bus=time_chart.bus_bandwidth(str(doc["collective"]), doc["ranks"]),
        ),
        provenance=about.provenance,
    )


def of_nothing(about: EntryContext, topology: str, collective: str, ranks: int, status: str, reason: str) -> Sheet:
    """Return the sheet of a value that is not shown, with the reason."""
    title = f"{collective} on {topology}: {counted(ranks, 'rank')}"
    says = reason, "nothing of it is shown"
    return Sheet(about.id, topology, collective, ranks, status, BAD, title, says, provenance=about.provenance)
