"""Schedules of some of the chunks of another one: they are right, and load links evenly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from synth import api
from synth.api.tuning_inputs import SearchOptions, dividing
from synth.checker.schedule import replay
from synth.encodings.fewer_chunks import FewerChunks
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule, Step
from synth.model.topology import Topology


def repeated(schedule: Schedule, times: int) -> Schedule:
    """Return `schedule` with each chunk `times` over, side by side."""
    steps = []
    for step in schedule.steps:
        sends = [send._replace(chunk=send.chunk * times + k) for send in step.sends for k in range(times)]
        steps.append(Step(step.rounds * times, tuple(sends)))
    return replace(schedule, chunks=schedule.chunks * times, steps=tuple(steps))


@pytest.mark.parametrize(
    ("name", "machine", "collective"),
    [
        ("direct", "dgx-a100", "allreduce"),
        ("direct", "full:4", "reduce-scatter"),
        ("ring", "ring:4", "allgather"),
        ("halving-doubling", "switch:4", "allgather"),
        ("direct", "full:4", "alltoall"),
    ],
)
def test_the_chunks_of_a_repeated_schedule_are_taken_evenly(name: str, machine: str, collective: str) -> None:
    """Chunks that stand for the same one load the same links: one of each is the schedule that was repeated."""
    schedule = api.baseline(name, machine, collective)
    found = FewerChunks(repeated(schedule, 3)).of(schedule.chunks)
    replay.schedule(found)
    assert (found.chunks, found.step_count, found.sends) == (schedule.chunks, schedule.step_count, schedule.sends)
    assert found.rounds <= schedule.rounds


@pytest.fixture(scope="module")
def machine() -> Topology:
    return api.topology("dgx-a100")


def test_points_whose_chunks_divide_no_size_have_schedules_that_do(machine: Topology) -> None:
    """12 links a GPU make chunks in multiples of 12. Without time for a search there are 2^k of them all the same."""
    found = api.frontier(machine, "broadcast", max_steps=4, jobs=1, multicast=False)
    assert isinstance(found, Frontier)
    assert [point.chunks for point in found.points] == [12, 96, 180, 264]
    made, _ = dividing(found, machine, [4096, 1 << 20, 1 << 26], 4, SearchOptions(end=0.0))
    rates = {}
    for schedule in made:
        replay.schedule(schedule)
        assert not schedule.chunks & schedule.chunks - 1
        rates[schedule.step_count] = schedule.rounds_per_chunk
    assert list(rates.values()) == sorted(rates.values(), reverse=True)
    for point in found.points:
        assert rates[point.steps] <= point.rounds_per_chunk * Fraction(115, 100)


def test_a_point_that_divides_every_size_stays_alone() -> None:
    machine = api.topology("full:4")
    found = api.frontier(machine, "allgather", jobs=1)
    assert isinstance(found, Frontier)
    assert all(point.chunks == 1 for point in found.points)
    assert dividing(found, machine, [1 << 20], 4, SearchOptions(end=0.0)) == ([], [])
