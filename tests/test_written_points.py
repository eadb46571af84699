"""Points of scale methods written out: which first, which not at all, and which not before a deadline."""

from __future__ import annotations

from fractions import Fraction

import pytest

from synth.checker.schedule import replay
from synth.model.collective import collective
from synth.pareto import written_points
from synth.pareto.written_points import PointWriter
from synth.scale import search
from synth.solvers.deadline import NEVER, Deadline
from synth.topologies import topology

MACHINE = topology("torus:4x3")
NETWORK, TASK = MACHINE.network(), collective("allgather", 12)
POINTS = search.frontier(MACHINE, "allgather").points


def written(deadline=NEVER, most_sends=200_000, known=(), **how):
    writer, rates = PointWriter(NETWORK, TASK, deadline, most_sends), list(known)
    points = []
    for point, schedule in writer.improvements(POINTS, rates, **how):
        rates.append((point.steps, point.rounds_per_chunk))
        points.append((point, schedule))
    return points, writer


def test_all_improvements_are_written_out_and_replay():
    points, writer = written()
    assert sorted(p.steps for p, _ in points) == [p.steps for p in POINTS]
    for point, schedule in points:
        assert replay.schedule(schedule).rounds_per_chunk == point.rounds_per_chunk
    assert not writer.too_late and not writer.too_long


def test_the_greatest_fall_for_each_send_comes_first():
    first = POINTS[0]
    points, _ = written(known=[(first.steps, first.rounds_per_chunk)])
    sends = [written_points.least_sends(point, TASK) for point, _ in points]
    assert len(points) == len(POINTS) - 1 and sends == sorted(sends)


def test_few_steps_of_more_rounds_than_known_come_last():
    machine = topology("line:6")
    points = search.frontier(machine, "broadcast").points
    writer = PointWriter(machine.network(), collective("broadcast", 6), NEVER, 200_000)
    order = [point for point, _ in writer.improvements(points, [(99, points[-1].rounds_per_chunk)])]
    assert len(order) > 2 and order[-1] == points[0]


def test_small_falls_are_left_out():
    best = POINTS[-1].rounds_per_chunk
    points, writer = written(known=[(1, best * Fraction(101, 100))], worth=Fraction(1, 20))
    assert not points and not writer.too_long


def test_what_is_too_long_or_too_late_is_kept_apart():
    points, writer = written(most_sends=0)
    assert not points and len(writer.too_long) == len(POINTS)
    points, writer = written(Deadline.after(0))
    assert not points and len(writer.too_late) == len(POINTS)
    points, writer = written(Deadline.after(0), one_at_least=True)
    assert len(points) == 1 and len(writer.too_late) == len(POINTS) - 1
    points, _ = written(Deadline.after(0), known=[(1, Fraction(1000))], one_at_least=True)
    assert len(points) == 1


@pytest.mark.parametrize("sends", [0, 100])
def test_what_is_expected_to_take_too_long_is_not_begun(sends):
    seconds = written_points.SETTINGS.seconds_per_send * (sends + len(NETWORK.routes))
    assert PointWriter(NETWORK, TASK, Deadline.after(seconds * 100), 10).in_time(sends)
    assert not PointWriter(NETWORK, TASK, Deadline.after(seconds / 100), 10).in_time(sends)
