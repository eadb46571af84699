"""Same bits are claimed of schedules and must hold in every program made of them, whatever its order of additions."""

from __future__ import annotations

import random

import numpy as np
import pytest
import randoms

from synth.checker.schedule import replay
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import Network, Route
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.onesided.lower import onesided
from synth.program.program import Program
from synth.runtime.reference.executor import Reference

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
