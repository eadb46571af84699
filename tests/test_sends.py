"""Sends beside the common ones: of a rank's own input, those that change nothing, and orders of additions."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import randoms
from program_judge import right

from synth.catalog.tuner.cost_model import terms
from synth.checker.schedule import replay
from synth.commands import api
from synth.errors import SynthError, VerificationError
from synth.export.rank_map import check_links
from synth.model.collective import Collective, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.bitwise_equality import same_bits
from synth.model.sends.dead_sends import prune
from synth.model.topology import Network, Route
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.onesided.lower import onesided
from synth.program.program import Program
from synth.runtime.reference.executor import Reference
from synth.topologies import topology

# ---------------------------------------------------------------- inputs added where they are


LINE = Network("line", 3, (Route(0, 1, 1), Route(1, 2, 1), Route(2, 1, 1), Route(1, 0, 1)))


def sums(*wants: tuple[int, frozenset[int]]) -> Collective:
    """One unit that all ranks contribute to, and what each of some ranks wants of it."""
    return Collective("sums", 3, (frozenset({0, 1, 2}),), (frozenset(r for r, _ in wants),), True, (), (wants,))


# rank 1 passes 0's input on to 2, then adds its own to what came: 2 wants {0, 2}, 1 wants {0, 1}
RELAY = Schedule(
    LINE,
    sums((1, frozenset({0, 1})), (2, frozenset({0, 2}))),
    1,
    (Step(1, (Send(0, 0, 1, "copy"),)), Step(1, (Send(0, 1, 1, "reduce-input"), Send(0, 1, 2, "reduce")))),
)
# the same, and rank 1 wants nothing but its own input: it puts that back
BACK = replace(
    RELAY,
    collective=sums((1, frozenset({1})), (2, frozenset({0, 2}))),
    steps=(RELAY.steps[0], Step(1, (Send(0, 1, 1, "copy-input"), Send(0, 1, 2, "reduce")))),
)
# put back and added to in one step: the copy lands first
BOTH = replace(
    RELAY,
    collective=sums((1, frozenset({1, 2})), (2, frozenset({0, 2}))),
    steps=(
        RELAY.steps[0],
        Step(1, (Send(0, 1, 1, "copy-input"), Send(0, 1, 2, "reduce"), Send(0, 2, 1, "reduce-input"))),
    ),
)
# added to what lands in the same step, in place of what was there
ONCE = replace(
    RELAY,
    collective=sums((1, frozenset({0, 1})), (2, frozenset({0, 1, 2}))),
    steps=(Step(1, (Send(0, 0, 1, "copy"), Send(0, 1, 1, "reduce-input"))), Step(1, (Send(0, 1, 2, "reduce"),))),
)
SCHEDULES = pytest.mark.parametrize("schedule", [RELAY, BACK, BOTH, ONCE], ids=["added", "put back", "both", "at once"])


@SCHEDULES
def test_it_replays_and_uses_no_link(schedule: Schedule) -> None:
    replayed = replay.schedule(schedule.to_json())
    assert replayed.sends == sum(s.src != s.dst for step in schedule.steps for s in step.sends)
    assert prune(schedule) == schedule
    check_links(schedule, LINE)
    assert any(name.startswith("wire") for name in terms(schedule, "LL", 1024))
    assert same_bits(schedule)


@pytest.mark.parametrize(
    ("send", "said"),
    [
        (Send(0, 1, 1, "reduce"), "no link 1 -> 1"),
        (Send(0, 1, 1, "copy"), "no link 1 -> 1"),
        (Send(0, 1, 1, "reduce-input", ("s",)), "no link 1 -> 1"),
        (Send(0, 2, 2, "reduce-input"), "rank 2 to chunk 0 counts twice"),
        (Send(1, 1, 1, "reduce-input"), "in 0..0"),
    ],
)
def test_what_is_no_input_of_the_rank_or_counts_twice_is_refused(send: Send, said: str) -> None:
    wrong = replace(RELAY, steps=(RELAY.steps[0], Step(1, (*RELAY.steps[1].sends[1:], send))))
    with pytest.raises(VerificationError, match=said):
        replay.schedule(wrong)


def test_without_it_the_contribution_is_missing() -> None:
    wrong = replace(RELAY, steps=(RELAY.steps[0], Step(1, RELAY.steps[1].sends[1:])))
    with pytest.raises(VerificationError, match="lacks rank 1"):
        replay.schedule(wrong)


def test_a_rank_without_a_contribution_has_none_to_add() -> None:
    task = Collective(
        "sums",
        3,
        (frozenset({0, 2}),),
        (frozenset({1, 2}),),
        True,
        (),
        (((1, frozenset({0})), (2, frozenset({0, 2}))),),
    )
    with pytest.raises(VerificationError, match="nothing of chunk 0"):
        replay.schedule(replace(RELAY, collective=task))


def test_data_that_is_held_or_not_is_not_added() -> None:
    task = Collective("copies", 3, (frozenset({0}),), (frozenset({1}),))
    steps = (Step(1, (Send(0, 0, 1), Send(0, 0, 0, "copy-input"))),)
    with pytest.raises(VerificationError, match="copy-input"):
        replay.schedule(Schedule(LINE, task, 1, steps))


@SCHEDULES
def test_its_programs_and_plans_compute_the_collective(schedule: Schedule) -> None:
    for runtime, instances in product(("synth", "msccl", "rccl"), (1, 2)):
        program = lower(schedule, LoweringOptions(runtime=runtime, instances=instances))
        assert {"re", "cpy"} & {op.code for gpu in program.gpus for block in gpu.blocks for op in block.ops}
        right(program, runtime)
    for protocol, nodes in product(("Simple", "LL"), (None, [0, 1, 1])):
        right(onesided(schedule, LoweringOptions(protocol=protocol, nodes=nodes)), "mscclpp")


# ---------------------------------------------------------------- sends that change nothing


THREE_IN_A_LINE = topology("line:3").network()


def on_a_line(task: str, *steps: list[tuple]) -> Schedule:
    return Schedule(
        THREE_IN_A_LINE, collective(task, 3), 1, tuple(Step(1, tuple(Send(*row) for row in rows)) for rows in steps)
    )


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
    made = on_a_line(task, *steps)
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
        made = on_a_line(task, *rows)
        try:
            replay.schedule(made)
        except VerificationError:
            continue
        replay.schedule(prune(made))
        assert not idle(prune(made)) or task == "allreduce"
        right += 1
    assert right >= 5


# ---------------------------------------------------------------- the same bits in every program


FIVE = Network("five", 5, tuple(Route(a, b, 4) for a in range(5) for b in range(5) if a != b))
THREE = frozenset({0, 1, 2})
SUM = Collective("sum", 5, (THREE,), (frozenset({3, 4}),), True)
PLACES = [Send(0, 0, 3), Send(0, 1, 3, "reduce"), Send(0, 2, 3, "reduce")]


def programs(schedule: Schedule) -> list[Program]:
    """In every form; a form whose limits it exceeds is left out."""
    found = []
    for make in (lower, onesided, lambda s: onesided(s, LoweringOptions(protocol="LL"))):
        try:
            found.append(make(schedule))
        except SynthError:
            continue
    return found


def alike(program: Program, schedule: Schedule, seed: int) -> bool:
    """Return True if ranks that want the same contributions end with the same bytes, for large and small numbers."""
    rng, chunks = np.random.default_rng(seed), schedule.chunks
    given = [
        (rng.standard_normal((gpu.input, 8)) * 10.0 ** rng.uniform(-3, 3, (gpu.input, 8))).astype(np.float32)
        for gpu in program.gpus
    ]
    made = Reference().run(program, given, dtype="float32").outputs
    assert made is not None
    seen: dict[tuple, bytes] = {}
    for rank in range(schedule.network.ranks):
        rows = np.asarray(made[rank]).reshape(-1, 8)
        held = [u for u, post in enumerate(schedule.collective.post) if rank in post]
        for k, u in enumerate(held):
            key = (u, schedule.collective.wanted(u, rank))
            if (
                seen.setdefault(key, rows[k * chunks : (k + 1) * chunks].tobytes())
                != rows[k * chunks : (k + 1) * chunks].tobytes()
            ):
                return False
    return True


def test_three_terms_of_one_step_are_a_sum_of_their_own() -> None:
    """Two ranks that add the same three terms may do it in two orders; a copy is the same."""
    twice = Schedule(FIVE, SUM, 1, (Step(1, (*PLACES, *(s._replace(dst=4) for s in PLACES))),))
    assert not same_bits(twice)
    copied = Schedule(FIVE, SUM, 1, (Step(1, tuple(PLACES)), Step(1, (Send(0, 3, 4),))))
    assert same_bits(copied)
    assert all(alike(program, copied, seed) for program in programs(copied) for seed in range(3))


def test_total_and_input_of_one_rank_in_one_step() -> None:
    """Found by a review: one order in the schedule, another in programs."""
    first = Step(1, (Send(0, 0, 1, "copy"),))
    both = Step(
        1, (Send(0, 1, 3, "copy"), Send(0, 1, 3, "reduce-input"), Send(0, 2, 3, "reduce"), Send(0, 1, 4, "copy-input"))
    )
    last = Step(1, (Send(0, 1, 4, "reduce"), Send(0, 2, 4, "reduce")))
    task = Collective("sum", 5, (THREE,), (frozenset({3, 4}),), True, (), (((3, THREE), (4, THREE)),))
    made = Schedule(FIVE, task, 1, (first, both, last))
    replay.schedule(made)
    assert not same_bits(made)


@pytest.mark.parametrize("block", range(4))
def test_random_schedules_keep_the_promise(block: int) -> None:
    claimed = 0
    for seed in range(block * 60, block * 60 + 60):
        schedule = randoms.schedule(seed)
        shared = any(
            len({schedule.collective.wanted(u, r) for r in post}) < len(post)
            for u, post in enumerate(schedule.collective.post)
        )
        if not schedule.collective.combining or not shared or not same_bits(schedule):
            continue
        claimed += 1
        for program in programs(schedule):
            assert alike(program, schedule, random.Random(seed).randrange(99)), (seed, program.name)
    assert claimed
