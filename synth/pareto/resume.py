"""What an earlier, unfinished run of a sweep left in its log; nothing of it is believed before it is checked again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from synth import bounds
from synth.checker.certificates import cuts
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto.acceptance import trusted_point

BROKEN = (SynthError, KeyError, ValueError, TypeError, IndexError, AttributeError)


def resumed(network: Network, collective: Collective, records: Iterable[dict]) -> Iterator[Point]:
    """Points of an earlier run, replayed and re-checked."""
    for record in records:
        if record.get("kind") == "point":
            try:
                point = trusted_point(Point.from_json(record["point"]))
            except BROKEN:
                continue
            schedule = point.schedule
            if schedule.network.to_json() == network.to_json():
                schedule = Schedule(network, collective, schedule.chunks, schedule.steps)
                yield Point(schedule, point.bound, point.status, point.construction, point.same_bits, point.seconds)


def rest(
    network: Network,
    collective: Collective,
    records: Sequence[dict],
    why: str,
    notes: tuple[str, ...] = (),
    labels: tuple[int, ...] = (),
) -> Frontier:
    """The frontier as far as `records` go, with the interval [bound for any S, best R/C] where they stop, left open for
    `why`.

    Raises InfeasibleError where no schedule exists.
    """
    least = bounds.steps(network, collective)
    floor = _floor(network, collective, records)
    points: list[Point] = []
    for point in sorted(resumed(network, collective, records), key=lambda p: (p.steps, p.bandwidth)):
        if not points or point.bandwidth < points[-1].bandwidth:
            points.append(point)
    last = points[-1] if points else None
    best = None if last is None else last.bandwidth
    steps = int(least.value) if last is None else last.steps + (last.status == "optimal")
    left = () if best == floor.value else (Open(steps, floor.value, best, why, floor.certificate),)
    return Frontier(
        network, collective, tuple(points), left, bounds=((0, least), (None, floor)), notes=notes, labels=labels
    )


def _floor(network: Network, collective: Collective, records: Iterable[dict]) -> LowerBound:
    """The bound for every S that the records hold, else one whose search for cuts is not let go on."""
    for record in records:
        if record.get("kind") == "floor":
            try:
                bound = LowerBound.from_json(record["bound"])
                if cuts.check(bound.certificate, network.to_json(), collective.to_json(1)) == bound.value:
                    return bound
            except BROKEN:
                continue
    return bounds.flow(network, collective, None, cycles=1)
