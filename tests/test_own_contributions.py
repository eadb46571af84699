"""A rank's input that is added again where it is: a send from a rank to itself, which uses no link."""

from __future__ import annotations

from dataclasses import replace

import pytest

import synth
from synth.catalog.tuner.cost_model import terms
from synth.checker.schedule import replay as verify
from synth.errors import VerificationError
from synth.export.rank_map import check_links, links
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.bitwise_equality import same_bits
from synth.model.sends.dead_sends import prune
from synth.model.topology import Network, Route
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.onesided.lower import onesided

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
    replay = verify.schedule(schedule.to_json())
    assert replay.sends == sum(s.src != s.dst for step in schedule.steps for s in step.sends)
    assert prune(schedule) == schedule
    assert (0, 0) not in links(schedule)
    check_links(schedule, LINE, "line")
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
        verify.schedule(wrong)


def test_without_it_the_contribution_is_missing() -> None:
    wrong = replace(RELAY, steps=(RELAY.steps[0], Step(1, RELAY.steps[1].sends[1:])))
    with pytest.raises(VerificationError, match="lacks rank 1"):
        verify.schedule(wrong)


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
        verify.schedule(replace(RELAY, collective=task))


def test_data_that_is_held_or_not_is_not_added() -> None:
    task = Collective("copies", 3, (frozenset({0}),), (frozenset({1}),))
    steps = (Step(1, (Send(0, 0, 1), Send(0, 0, 0, "copy-input"))),)
    with pytest.raises(VerificationError, match="copy-input"):
        verify.schedule(Schedule(LINE, task, 1, steps))


@SCHEDULES
@pytest.mark.parametrize("runtime", ["synth", "msccl", "rccl"])
@pytest.mark.parametrize("instances", [1, 2])
def test_its_program_computes_the_collective(schedule: Schedule, runtime: str, instances: int) -> None:
    program = lower(schedule, LoweringOptions(runtime=runtime, instances=instances))
    codes = {op.code for gpu in program.gpus for block in gpu.blocks for op in block.ops}
    assert codes & {"re", "cpy"}
    for in_place in (False, *([True] if program.in_place != "out" else [])):
        checked = synth.run(program, size=4 * 12, in_place=in_place).checked
        assert checked is not None


@SCHEDULES
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("nodes", [None, [0, 1, 1]])
def test_its_plan_computes_the_collective(schedule: Schedule, protocol: str, nodes: list[int] | None) -> None:
    assert (
        synth.run(onesided(schedule, LoweringOptions(protocol=protocol, nodes=nodes)), size=4 * 12).checked is not None
    )
