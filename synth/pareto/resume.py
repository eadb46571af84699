"""Points and bounds in the log of an unfinished run of a sweep. All of them are checked again before they are used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from synth import bounds
from synth.bounds.single_cut import single_cut_bound
from synth.checker.certificates import cuts
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.topology import Network
from synth.pareto.acceptance import checked_point
from synth.solvers.processes.deadline import NEVER, Deadline

# Seconds, about, to replay one send of a record.
SECONDS_PER_RECORD = 4e-5
BROKEN = (SynthError, KeyError, ValueError, TypeError, IndexError, AttributeError)


def point_record(point: Point) -> dict:
    """Return the record of a point in a log: its document without machine and collective, which the question has."""
    return {"kind": "point", "point": point.document_without_problem}


def points_from_records(
    network: Network,
    collective: Collective,
    records: Iterable[dict],
    steps: int | None = None,
    deadline: Deadline = NEVER,
) -> Iterator[Point]:
    """Yield the points of an earlier run that replay and whose certificates check: those of `steps` steps, or all.

    They are replayed on `network`, whatever machine a record names. Points that are expected to take longer than the
    time until the `deadline` are left out.
    """
    for record in records:
        if record.get("kind") == "point":
            try:
                document = record["point"]
                sends = sum(len(step["sends"]) for step in document["schedule"]["steps"])
                late = deadline.remaining() < SECONDS_PER_RECORD * sends
                if late or (steps is not None and document["steps"] != steps):
                    continue
                point = checked_point(Point.from_json(document, (network, collective)))
            except BROKEN:
                continue
            yield point


def frontier_from_records(
    network: Network,
    collective: Collective,
    records: Sequence[dict],
    why: str,
    notes: tuple[str, ...] = (),
    labels: tuple[int, ...] = (),
) -> Frontier:
    """Return the frontier of `records`, with the open interval [bound for any S, best R/C] where they end.

    `why`: the reason in that interval. Raises InfeasibleError where no schedule exists.
    """
    least = bounds.steps(network, collective)
    floor = _floor(network, collective, records)
    points: list[Point] = []
    for point in sorted(points_from_records(network, collective, records), key=lambda p: (p.steps, p.rounds_per_chunk)):
        if not points or point.rounds_per_chunk < points[-1].rounds_per_chunk:
            points.append(point)
    last = points[-1] if points else None
    best = None if last is None else last.rounds_per_chunk
    steps = int(least.value) if last is None else last.steps + (last.status == "optimal")
    open_intervals = () if best == floor.value else (Open(steps, floor.value, best, why, floor.certificate),)
    return Frontier(
        network,
        collective,
        tuple(points),
        open_intervals,
        bounds=((0, least), (None, floor)),
        notes=notes,
        labels=labels,
    )


def _floor(network: Network, collective: Collective, records: Iterable[dict]) -> LowerBound:
    """Return the bound for any S in the records, else the cut-set bound."""
    for record in records:
        if record.get("kind") == "floor":
            try:
                bound = LowerBound.from_json(record["bound"])
                if cuts.check(bound.certificate, network, collective.document) == bound.value:
                    return bound
            except BROKEN:
                continue
    return single_cut_bound(network, collective)
