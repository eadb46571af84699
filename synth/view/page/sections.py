"""Sheets of frontiers, exact and at scale, schedules and measurements; those of plans are in `plans`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from synth.model import number_text
from synth.model.frontier import Frontier, Point
from synth.model.rational import counted, show
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.view import frontier_text, scale_table
from synth.view.page import animation_data, certificate_text, time_chart
from synth.view.page.animation_data import MachineDrawing
from synth.view.page.frontier_section import BAD, GOOD, PART, AlgorithmRow, Mark, Sheet, Times


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
    """Return the sheet of a frontier of exact synthesis."""
    table = frontier_text.report(found)
    algorithms = tuple(_algorithm(point, row) for point, row in zip(found.points, table.rows, strict=True))
    times = time_chart.of_frontier(found, about.measured, about.libraries)
    is_animated = any(algorithm.move for algorithm in algorithms)
    machine = animation_data.machine(found.network) if is_animated else None
    slopes = [slope for _, _, slope in times.lines if slope]
    return Sheet(
        about.id,
        found.network.name,
        _called(found.collective.name, found.collective.roots),
        found.network.ranks,
        *_state(found),
        table.title,
        table.sentences,
        table.columns,
        algorithms,
        min((alpha for _, alpha, _ in times.lines), default=0.0) or None,
        1 / min(slopes) / 1e9 if slopes else None,
        time_chart.stairs(found) if found.points or found.open else None,
        times,
        machine,
        certificate_text.of_frontier(found),
        (("certificates", about.checked), ("found in", f"{number_text.number(found.seconds)} s"), *about.provenance),
    )


def _algorithm(point: Point, row: tuple[str, ...]) -> AlgorithmRow:
    lack = animation_data.reason_not_drawn(point.schedule)
    move = None if lack else animation_data.pack_schedule(point.schedule)
    return AlgorithmRow(
        time_chart.point_name(point.steps), row, certificate_text.of_point(point)[0], point.steps, move, lack
    )


def _called(collective: str, roots: Sequence[int]) -> str:
    return collective + (f" from {', '.join(map(str, roots))}" if roots else "")


def _state(found: Frontier) -> tuple[str, str]:
    if found.complete:
        return ("complete" if found.max_steps is None else f"complete to {counted(found.max_steps, 'step')}"), GOOD
    return (f"{len(found.open)} open" if found.open else "not complete"), PART


def of_scale_frontier(found: Frontier, about: EntryContext) -> Sheet:
    """Return the sheet of a frontier of the flow engines, with rates, bound and certificate but without drawings."""
    table = scale_table.report(found)
    share = float(found.unit_share / (found.unit * 10**9))
    alpha = float(found.latency) * 1e-6
    lines = tuple((i, p.steps * alpha, float(p.rounds_per_chunk) * share) for i, p in enumerate(found.points))
    lack = (
        "schedules of the flow engine are kept by their symmetries and not drawn; synth pareto --schedules "
        "writes them out"
    )
    algorithms = tuple(
        AlgorithmRow(
            f"{time_chart.point_name(p.steps)}, {p.construction}", row, _gap(found.gap(p)), p.steps, None, lack
        )
        for p, row in zip(found.points, table.rows, strict=True)
    )
    marks = tuple(mark for doc in about.measured for mark in time_chart.marks_of(doc))
    floor = ((found.least_steps * alpha, float(found.bound) * share),)
    wins = time_chart.envelope(lines, [a.name for a in algorithms])
    bus = time_chart.bus_bandwidth(found.collective_name, found.topology.ranks)
    times = Times(lines, floor, wins, marks, bus=bus)
    slopes = [slope for *_, slope in lines]
    fastest = 1 / min(slopes) / 1e9 if slopes else None
    limited = (f"Limited by: {scale_table.limit(found)}.", "It is what the certificate below adds up.")
    return Sheet(
        about.id,
        found.topology.name,
        _called(found.collective_name, found.roots),
        found.topology.ranks,
        *_distance([found.gap(p) for p in found.points]),
        table.title,
        table.sentences,
        table.columns,
        algorithms,
        min((a for _, a, _ in lines), default=0.0) or None,
        fastest,
        time_chart.scale_stairs(found.least_steps, found.bound, [(p.steps, p.rounds_per_chunk) for p in found.points]),
        times,
        _drawn(found.topology),
        (
            limited,
            *certificate_text.of_scale_frontier(
                found.collective_name, found.bound, found.bound_gbps, found.certificate, found.least_steps
            ),
        ),
        (("certificates", about.checked), ("found in", f"{number_text.number(found.seconds)} s"), *about.provenance),
    )


def _drawn(topology: Topology) -> MachineDrawing | None:
    if topology.ranks > animation_data.MOST_RANKS or len(topology.links) > animation_data.MOST_ROUTES:
        return None
    network = topology.network()
    return animation_data.machine(network) if len(network.routes) <= animation_data.MOST_ROUTES else None


def _gap(gap: Fraction) -> str:
    return (
        "It meets the bound: optimal."
        if not gap
        else f"It lies {float(gap):.2%} above the bound for any number of steps."
    )


def _distance(gaps: Sequence[Fraction]) -> tuple[str, str]:
    if not gaps:
        return "no schedule", PART
    return ("optimal rate", GOOD) if not min(gaps) else (f"{float(min(gaps)):.2%} above bound", PART)


def of_schedule(given: Schedule, about: EntryContext) -> Sheet:
    """Return the sheet of one schedule, without any claim about better ones."""
    columns = (("steps", "right"), ("rounds", "right"), ("chunks", "right"), ("rounds/chunk", "right"))
    row = (str(len(given.steps)), str(given.rounds), str(given.chunks), show(given.rounds_per_chunk))
    lack = animation_data.reason_not_drawn(given)
    only = AlgorithmRow(
        time_chart.point_name(len(given.steps)),
        row,
        "",
        len(given.steps),
        None if lack else animation_data.pack_schedule(given),
        lack,
    )
    alpha = len(given.steps) * float(given.network.latency) * 1e-6
    slope = float(given.rounds_per_chunk * given.collective.unit_share / (given.network.unit * 10**9))
    marks = tuple(mark for doc in about.measured for mark in time_chart.marks_of(doc))
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
        Times(
            ((0, alpha, slope),), marks=marks, bus=time_chart.bus_bandwidth(given.collective.name, given.network.ranks)
        ),
        animation_data.machine(given.network) if only.move else None,
        (),
        (("schedule", about.checked), *about.provenance),
    )


def of_measured(doc: dict, about: EntryContext) -> Sheet:
    """Return the sheet of a ``synth.measured/1`` document that belongs to no frontier of the report."""
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


class ProblemNames(NamedTuple):
    """The names of a machine and of a collective on it, and the number of ranks."""

    topology: str
    collective: str
    ranks: int


def of_nothing(
    about: EntryContext, names: ProblemNames, status: str, says: Sequence[str], certificate: dict | None = None
) -> Sheet:
    """Return the sheet of an entry without a frontier: proved impossible, or not found."""
    topology, collective, ranks = names
    proofs = (
        ((f"There is no schedule for {collective} on {topology}.", certificate_text.check_in_words(certificate)),)
        if certificate
        else ()
    )
    return Sheet(
        about.id, topology, collective, ranks, status, GOOD if certificate else BAD,
        f"{collective} on {topology}: {counted(ranks, 'rank')}",
        tuple(says), proofs=proofs, provenance=about.provenance,
    )  # fmt: skip
