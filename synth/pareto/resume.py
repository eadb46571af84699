"""Points in the log of an unfinished run of a sweep. All of them are checked again before they are used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from synth.checker.certificates import cuts
from synth.checker.schedule import replay
from synth.errors import SynthError, VerificationError
from synth.model.collective import Collective
from synth.model.frontier import Point
from synth.model.topology import Network
from synth.solvers.deadline import NEVER, Deadline

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
                point = Point.from_json(document, (network, collective))
                replay.schedule(point.schedule)
                bound = point.bound
                if cuts.check(bound.certificate, network, collective.document, steps=point.steps) != bound.value:
                    raise VerificationError("its certificate proves another bound")
            except BROKEN:
                continue
            yield point
