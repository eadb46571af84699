"""Acceptance of points: the schedule of every engine is replayed and its certificate checked before it is used."""

from __future__ import annotations

from fractions import Fraction

from synth.checker.certificates import cuts
from synth.checker.schedule import column_replay
from synth.errors import VerificationError
from synth.model.frontier import Point


def checked_point(point: Point) -> Point:
    """Return `point` once its schedule replays and its certificate proves its bound. Raises VerificationError."""
    return with_checked_bound(point, column_replay.schedule(point.schedule).rounds_per_chunk)


def with_checked_bound(point: Point, rounds_per_chunk: Fraction) -> Point:
    """Return `point`, whose replay takes `rounds_per_chunk`, once its certificate proves its bound.

    Raises VerificationError.
    """
    network, collective = point.schedule.network, point.schedule.collective
    chunks = point.chunks if point.bound.scope == "this-chunks" else None
    value = cuts.check(point.bound.certificate, network, collective.document, steps=point.steps, chunks=chunks)
    if value != point.bound.value:
        raise VerificationError(f"the certificate proves {value}, {point.bound.value} is claimed", f"S={point.steps}")
    if (point.status == "optimal") != (rounds_per_chunk == value and point.bound.scope == "any-chunks"):
        raise VerificationError(
            f"status {point.status!r} with {rounds_per_chunk} against a bound of {value}", f"S={point.steps}"
        )
    return point
