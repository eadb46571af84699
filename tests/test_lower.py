"""Lowering: every collective's program does what the collective says, however its blocks interleave. Whatever makes a
program of a schedule replays it first: a wrong schedule ends in one line and exit code 5."""

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
import test_export
import test_plan_export
from program_judge import right
from randoms import schedule as random_schedule

from synth.catalog.tuner.candidates import NamedSchedule, measured_candidates
from synth.catalog.tuner.measurements import Measurement, Sample
from synth.commands import api
from synth.errors import SynthError, UsageError, VerificationError
from synth.model.collective import Collective, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Link, Topology
from synth.program import checked_lowering
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program
from tests.command_line import synth

TWO_SIDED = ("synth", "msccl", "msccl-executor", "rccl")


def ring(ranks: int, both: bool = True):
    ways = [(r, (r + d) % ranks) for r in range(ranks) for d in ((1, -1) if both else (1,))]
    return Topology("ring", ranks, tuple(Link(a, b, Fraction(1)) for a, b in dict.fromkeys(ways))).network()


def ring_allgather(ranks: int, chunks: int = 1) -> Schedule:
    """Every part travels once round the ring, one hop a step."""
    steps = [
        Step(
            chunks,
            tuple(Send((r - k) % ranks * chunks + i, r, (r + 1) % ranks) for r in range(ranks) for i in range(chunks)),
        )
        for k in range(ranks - 1)
    ]
    return Schedule(ring(ranks, False), collective("allgather", ranks), chunks, tuple(steps))


def exchange_allreduce(ranks: int, chunks: int = 1) -> Schedule:
    """Recursive doubling: partners exchange everything and add."""
    links, steps = [], []
    for bit in (1 << k for k in range(ranks.bit_length() - 1)):
        links += [Link(r, r ^ bit, Fraction(1)) for r in range(ranks)]
        steps.append(Step(chunks, tuple(Send(c, r, r ^ bit, "reduce") for r in range(ranks) for c in range(chunks))))
    net = Topology("cube", ranks, tuple(links)).network()
    return Schedule(net, collective("allreduce", ranks), chunks, tuple(steps))


def test_the_same_schedule_gives_the_same_program_and_options_are_independent_of_sets():
    made = [random_schedule(7) for _ in range(2)]
    assert lower(made[0], LoweringOptions(runtime="msccl-executor")) == lower(
        made[1], LoweringOptions(runtime="msccl-executor")
    )


def codes(program: Program) -> Counter:
    return Counter(op.code for gpu in program.gpus for block in gpu.blocks for op in block.ops)


def test_a_ring_is_fused_into_one_block_a_rank():
    program = lower(ring_allgather(5))
    assert codes(program) == {"s": 5, "rcs": 15, "r": 5, "cpy": 5}
    assert all(len(gpu.blocks) == 1 and gpu.scratch == 0 for gpu in program.gpus)
    right(program)


def test_fusion_that_could_deadlock_is_taken_apart():
    # ten chunks a rank are ten parts each: sending them all before receiving any stops with FIFOs of two
    program = lower(ring_allgather(4, 10))
    assert all(len(gpu.blocks) == 2 for gpu in program.gpus)
    assert (
        all(
            len(gpu.blocks) == 1
            for gpu in lower(ring_allgather(4, 10), LoweringOptions(aggregate=False, protocol="LL")).gpus
        )
        is False
    )
    right(program)


def test_exchanges_never_overwrite_what_the_same_step_sends():
    program = lower(exchange_allreduce(8, 6))
    assert codes(program)["cpy"] == 0
    assert all(gpu.scratch == 12 for gpu in program.gpus)  # the input may be the output, and leaves in the first step
    right(program)
    apart = lower(exchange_allreduce(8, 6), LoweringOptions(in_place="out"))
    assert all(gpu.scratch == 6 for gpu in apart.gpus)  # three steps: output, scratch, output
    right(apart)


def test_contiguous_chunks_travel_together_up_to_the_runtimes_count():
    assert {op.count for gpu in lower(ring_allgather(3, 100)).gpus for block in gpu.blocks for op in block.ops} == {100}
    program = lower(ring_allgather(3, 100), LoweringOptions(runtime="msccl-executor"))
    assert max(op.count for gpu in program.gpus for block in gpu.blocks for op in block.ops) == 71
    right(program, "msccl-executor")
    assert {
        op.count
        for gpu in lower(ring_allgather(3, 9), LoweringOptions(aggregate=False)).gpus
        for b in gpu.blocks
        for op in b.ops
        if op.code != "cpy"
    } == {1}


def test_long_blocks_are_spread_over_more_channels():
    program = lower(ring_allgather(4, 50), LoweringOptions(runtime="msccl-executor", aggregate=False))
    assert program.channels == 3
    assert max(len(block.ops) for gpu in program.gpus for block in gpu.blocks) <= 64
    right(program, "msccl-executor")


def test_lanes_follow_the_units_of_a_route():
    net = Topology("pair", 2, (Link(0, 1, Fraction(3)), Link(1, 0, Fraction(1)))).network()
    made = Schedule(net, collective("broadcast", 2), 3, (Step(1, tuple(Send(c, 0, 1) for c in range(3))),))
    assert lower(made).channels == 3
    assert lower(made, LoweringOptions(lanes=2)).channels == 2
    assert lower(made, LoweringOptions(instances=2)).channels == 6
    right(lower(made, LoweringOptions(instances=2)))


def test_routes_through_different_switches_are_different_channels():
    links = [Link(a, b, Fraction(1)) for r in (0, 1) for s in (2, 3) for a, b in ((r, s), (s, r))]
    net = Topology("two planes", 2, tuple(links), (), ("left", "right")).network()
    made = Schedule(
        net,
        collective("broadcast", 2),
        2,
        (Step(1, (Send(0, 0, 1, "copy", ("left",)), Send(1, 0, 1, "copy", ("right",)))),),
    )
    program = lower(made)
    assert sorted((block.channel, block.via) for block in program.gpus[0].blocks) == [(0, ("left",)), (1, ("right",))]
    right(program)


def test_sums_are_in_the_order_of_the_schedule():
    net = Topology("star", 4, tuple(Link(r, 0, Fraction(1)) for r in (1, 2, 3))).network()
    made = Schedule(net, collective("reduce", 4), 1, (Step(1, tuple(Send(0, r, 0, "reduce") for r in (1, 2, 3))),))
    blocks = lower(made).gpus[0].blocks
    assert [(block.recv, op.code, len(op.deps)) for block in blocks for op in block.ops] == [
        (1, "rrc", 0),
        (2, "rrc", 1),
        (3, "rrc", 1),
    ]


def test_a_schedule_that_cannot_fit_is_refused_by_the_number_of_its_sends():
    both = [tuple(Send(rank * 2500 + i, rank, 1 - rank) for rank in (0, 1)) for i in range(2500)]
    made = replace(ring_allgather(2, 2500), steps=tuple(Step(1, sends) for sends in both))
    with pytest.raises(SynthError, match=r"at most 32 channels, a program of 5000 sends needs at least 40; .* synth"):
        lower(made, LoweringOptions(runtime="msccl-executor"))


def test_limits_are_named_with_what_would_fit():
    made = ring_allgather(4)
    with pytest.raises(
        SynthError, match="executor has at most 32 channels, this program needs 40; 32 instances would fit"
    ):
        lower(made, LoweringOptions(runtime="msccl-executor", instances=40))
    with pytest.raises(
        SynthError, match="rccl has at most 64 thread blocks of a rank, this program needs 80; 32 instances would fit"
    ):
        lower(made, LoweringOptions(runtime="rccl", instances=40))
    with pytest.raises(
        SynthError, match=r"at most 64 instructions in a thread block, this program needs 2500; .* runtime synth"
    ):
        lower(ring_allgather(2, 2500), LoweringOptions(runtime="msccl-executor", aggregate=False))


def test_routes_get_fewer_lanes_where_the_runtime_has_too_few_channels():
    net = Topology("pair", 2, (Link(0, 1, Fraction(48)), Link(1, 0, Fraction(1)))).network()
    made = Schedule(net, collective("broadcast", 2), 48, (Step(1, tuple(Send(c, 0, 1) for c in range(48))),))
    assert lower(made).channels == 48
    assert lower(made, LoweringOptions(runtime="msccl-executor")).channels == 24
    right(lower(made, LoweringOptions(runtime="msccl-executor")), "msccl-executor")
    with pytest.raises(SynthError, match="at most 32 channels, this program needs 48; 1 instance would fit"):
        lower(made, LoweringOptions(runtime="msccl-executor", instances=2))


def test_what_is_there_already_needs_copies_only_or_nothing():
    net = Topology("pair", 2, (Link(0, 1, Fraction(1)),)).network()
    task = Collective("custom", 2, (frozenset([0]), frozenset([1])), (frozenset([0]), frozenset()))
    made = Schedule(net, task, 3, ())
    assert codes(lower(made)) == {"cpy": 1}
    assert codes(lower(made, LoweringOptions(in_place="in"))) == {}
    for mode in ("out", "in", "both"):
        right(lower(made, LoweringOptions(in_place=mode)))
    right(lower(made, LoweringOptions(instances=2)))


def test_bad_options_are_refused():
    made = ring_allgather(3)
    for options, what in [
        ({"runtime": "nccl"}, "unknown runtime 'nccl'"),
        ({"runtime": "mscclpp"}, "one-sided"),
        ({"protocol": "LL64"}, "unknown protocol"),
        ({"instances": 0}, "at least 1"),
        ({"in_place": "maybe"}, "out, in or both"),
    ]:
        with pytest.raises(UsageError, match=what):
            lower(made, LoweringOptions(**options))
    everyone = Topology("all", 2, (Link(0, 1, Fraction(1)), Link(1, 0, Fraction(1)))).network()
    swap = Schedule(everyone, collective("alltoall", 2), 1, (Step(1, (Send(1, 0, 1), Send(2, 1, 0))),))
    with pytest.raises(UsageError, match="alltoall cannot be called in place"):
        lower(swap, LoweringOptions(in_place="both"))
    assert lower(swap).in_place == "out"


def test_a_wrong_schedule_is_refused():
    made = ring_allgather(3)
    with pytest.raises(VerificationError, match="step 0: rank"):
        lower(Schedule(made.network, made.collective, 1, made.steps[::-1]))
    with pytest.raises(VerificationError, match="without chunk"):
        lower(Schedule(made.network, made.collective, 1, made.steps[:1]))


# ---------------------------------------------------------------- wrong schedules


def without_last_send(schedule):
    last = schedule.steps[-1]
    return replace(schedule, steps=(*schedule.steps[:-1], last._replace(sends=last.sends[:-1])))


WRONG = without_last_send(test_export.ring_schedule(4))


@pytest.fixture
def files(tmp_path):
    """A wrong schedule, a frontier whose second point is wrong, and a plan that names a wrong schedule beside good
    ones."""
    good = test_export.frontier()
    points = (good.points[0], replace(good.points[1], source=WRONG))
    documents = {
        "schedule": WRONG,
        "frontier": replace(good, points=points),
        "plan": test_plan_export.change(1, schedule=WRONG),
    }
    for name, made in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made.to_json()))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "export schedule.json -o out",
        "export schedule.json --to mscclpp -o out",
        "export schedule.json --to mscclpp --protocol LL -o out",
        "export schedule.json --to trace -o out",
        "export frontier.json --point 2 -o out",
        "export --plan plan.json -o out",
        "export --plan plan.json --to mscclpp-dir -o out",
        "run schedule.json",
        "run frontier.json --point 2",
        "lint schedule.json",
        "bench schedule.json --executor reference",
    ],
)
def test_a_wrong_schedule_ends_in_one_line(files, words):
    names = [str(files / word) if "." in word or word == "out" else word for word in words.split()]
    (line,) = synth(*names, code=5).stderr.strip().splitlines()
    assert line.startswith("synth: error: "), line
    assert line.endswith("ends without chunk 7")
    assert (
        "plan" in words or "allgather on ring:4: no program is made of a wrong schedule: " in line
    )  # a plan is read with care
    assert not (files / "out").exists()


def test_the_doors_of_the_library():
    good = test_export.ring_schedule(4)
    assert api.lower(good).ranks == checked_lowering.onesided(good).ranks == 4
    for door in (api.lower, api.export_program, api.run, checked_lowering.lower, checked_lowering.onesided):
        with pytest.raises(VerificationError):
            door(WRONG)
    with pytest.raises(VerificationError):  # what was measured is compared with what a schedule lowers to
        alike = {"chunks": WRONG.chunks, "steps": WRONG.step_count, "rounds_per_chunk": str(WRONG.rounds_per_chunk)}
        one = Measurement("x", "synth", "allgather", 4, (Sample(64, 1e-5),), "", "f", fingerprint="", **alike)
        measured_candidates([NamedSchedule("wrong", WRONG)], [one])
