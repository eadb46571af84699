"""Schedules of all engines hold no dead send: a rank's own input over that input, say."""

from __future__ import annotations

import random

import pytest

from synth.checker.schedule import replay
from synth.commands import api
from synth.model.bitwise_equality import same_bits
from synth.model.collective import collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step
from synth.topologies import topology

LINE = topology("line:3").network()


def schedule(task: str, *steps: list[tuple]) -> Schedule:
    return Schedule(LINE, collective(task, 3), 1, tuple(Step(1, tuple(Send(*row) for row in rows)) for rows in steps))


def idle(made: Schedule) -> list[tuple[int, Send]]:
    """Copies after which an address holds the contributions that it held before, the sums of the step put aside."""
    task = made.collective
    held = {(u * made.chunks + i, r): {r} for u, pre in enumerate(task.pre) for i in range(made.chunks) for r in pre}
    found = []
    for t, step in enumerate(made.steps):
        after = dict(held)
        for kind in ("copy", "reduce"):
            for send in step.sends:
                if send.kind.startswith(kind):
                    at = (send.chunk, send.dst)
                    value = {send.src} if send.kind.endswith("-input") else held[send.chunk, send.src]
                    if kind == "copy" and held.get(at) == value:
                        found.append((t, send))
                    after[at] = set(value) if kind == "copy" else after.get(at, set()) | value
        held = after
    return found


def test_a_rank_does_not_put_its_input_where_it_is():
    made = schedule(
        "scan", [(0, 1, 1, "copy-input"), (0, 0, 1, "reduce")], [(0, 1, 2, "reduce"), (0, 0, 0, "copy-input")]
    )
    replay.schedule(made)
    fewer = prune(made)
    replay.schedule(fewer)
    assert [step.sends for step in fewer.steps] == [(Send(0, 0, 1, "reduce"),), (Send(0, 1, 2, "reduce"),)]


def test_nor_where_it_only_is_once_what_nothing_needs_has_gone():
    made = schedule(
        "scan", [(0, 0, 1, "reduce")], [(0, 1, 1, "copy-input"), (0, 0, 1, "reduce")], [(0, 1, 2, "reduce")]
    )
    replay.schedule(made)
    assert [len(step.sends) for step in prune(made).steps] == [0, 1, 1]


def test_an_input_that_is_there_does_not_come_over_a_link_again():
    twice = [(0, 1, 2, "reduce"), (0, 0, 1, "copy"), (0, 1, 1, "reduce-input")]
    made = schedule("scan", [(0, 0, 1, "copy")], twice, [(0, 1, 2, "reduce-input")])
    replay.schedule(made)
    assert [len(step.sends) for step in prune(made).steps] == [1, 2, 1]
    replay.schedule(prune(made))


def test_a_copy_of_a_longer_sum_stays_as_it_may_be_there_for_the_bits():
    gather = [(0, 0, 1, "reduce"), (0, 2, 1, "reduce")]
    made = schedule("allreduce", gather, [(0, 1, 0, "copy"), (0, 1, 2, "copy")], [(0, 1, 0, "copy")])
    replay.schedule(made)
    assert [len(step.sends) for step in prune(made).steps] == [2, 1, 1]  # the first of both is never read
    assert same_bits(prune(made))


@pytest.mark.parametrize(
    ("machine", "task"),
    [("ring:4", "scan"), ("ring:3", "allreduce"), pytest.param("fully-connected:4", "scan", marks=pytest.mark.slow)],
)
def test_frontiers_hold_none(machine, task):
    found = api.frontier(machine, task, max_steps=3)
    assert found.points
    for point in found.points:
        assert not idle(point.schedule), point  # type: ignore[union-attr]


def test_pruning_random_schedules_changes_no_result():
    rng, right = random.Random(5), 0
    for _ in range(6000):
        task = rng.choice(["scan", "allreduce"])
        rows = [
            [
                (0, s, d, k)
                for s, d in ((0, 1), (1, 2), (2, 1), (1, 0))
                for k in [rng.choice(["reduce", "copy", "none"])]
                if k != "none"
            ]
            for _ in range(3)
        ]
        rows = [
            [
                *step,
                *(
                    (0, n, n, "copy-input")
                    for n in range(3)
                    if rng.random() < 0.2 and not any(r[2:] == (n, "copy") for r in step)
                ),
            ]
            for step in rows
        ]
        made = schedule(task, *rows)
        try:
            replay.schedule(made)
        except replay.VerificationError:
            continue
        replay.schedule(prune(made))
        assert not idle(prune(made)) or task == "allreduce"
        right += 1
    assert right > 5
