"""Schedules of all engines hold no dead send: a rank's own input over that input, say."""

from __future__ import annotations

import random

import pytest

from synth.checker.schedule import replay
from synth.commands import api
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.bitwise_equality import same_bits
from synth.model.sends.dead_sends import prune
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


GATHER = [(0, 0, 1, "reduce"), (0, 2, 1, "reduce")]


@pytest.mark.parametrize(
    ("task", "steps", "left"),
    [
        # a rank does not put its input where it is
        (
            "scan",
            [[(0, 1, 1, "copy-input"), (0, 0, 1, "reduce")], [(0, 1, 2, "reduce"), (0, 0, 0, "copy-input")]],
            [1, 1],
        ),
        # nor where it only is once what nothing needs has gone
        (
            "scan",
            [[(0, 0, 1, "reduce")], [(0, 1, 1, "copy-input"), (0, 0, 1, "reduce")], [(0, 1, 2, "reduce")]],
            [0, 1, 1],
        ),
        # an input that is there does not come over a link again
        (
            "scan",
            [
                [(0, 0, 1, "copy")],
                [(0, 1, 2, "reduce"), (0, 0, 1, "copy"), (0, 1, 1, "reduce-input")],
                [(0, 1, 2, "reduce-input")],
            ],
            [1, 2, 1],
        ),
        # a copy of a longer sum stays, as it may be there for the bits; the first of both is never read
        ("allreduce", [GATHER, [(0, 1, 0, "copy"), (0, 1, 2, "copy")], [(0, 1, 0, "copy")]], [2, 1, 1]),
    ],
)
def test_sends_that_change_nothing_go(task, steps, left):
    made = schedule(task, *steps)
    replay.schedule(made)
    fewer = prune(made)
    replay.schedule(fewer)
    assert [len(step.sends) for step in fewer.steps] == left
    assert same_bits(fewer) or task == "scan"


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
        rows: list[list[tuple]] = []
        for _ in range(3):
            step = []
            for s, d in ((0, 1), (1, 2), (2, 1), (1, 0)):
                kind = rng.choice(["reduce", "copy", "none"])
                step += [(0, s, d, kind)] if kind != "none" else []
            copied = [row[2] for row in step if row[3] == "copy"]
            step += [(0, n, n, "copy-input") for n in range(3) if rng.random() < 0.2 and n not in copied]
            rows.append(step)
        made = schedule(task, *rows)
        try:
            replay.schedule(made)
        except replay.VerificationError:
            continue
        replay.schedule(prune(made))
        assert not idle(prune(made)) or task == "allreduce"
        right += 1
    assert right >= 5
