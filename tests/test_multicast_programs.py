"""Switch sends as ops of one-sided programs: lowering, lint, reference executor, and MSCCL++ plans."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import randoms
import strict_mscclpp
from test_multicast_frontier import boxes

from synth.checker.schedule import replay
from synth.commands.programs.run import run
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import FormatError, SynthError, UsageError
from synth.export.mscclpp.emit import document
from synth.export.mscclpp.read import read
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.program.analysis.analysis import check
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Block, Op, Program
from synth.program.text import dump, parse
from synth.runtime.reference.program_times import ProgramTimes
from synth.scale.composition.switch_boxes import SwitchBoxes
from synth.topologies import topology
from tests.command_line import synth
from tests.programs import edit


def one_box(name: str, steps: int, ranks: int = 3, own: str = "local") -> Schedule:
    """A schedule through one switch. Those of an allreduce use links, too, where own data use the port."""
    network = topology(f"switch:{ranks}:multicast={own}").multicast_network()
    schedule = MulticastPipelining(network, collective(name, ranks)).schedule(steps)
    assert schedule is not None
    return schedule


def two_boxes(template: str) -> Schedule:
    machine = boxes((2, 2))
    composition = SwitchBoxes(machine, machine.multicast_network(), collective("allreduce", 4), 12, False)
    composition.templates = [pair for pair in composition.templates if pair[0].name == template]
    found = composition.at_steps(5)
    assert found is not None
    return composition.schedule(found)


FETCHED = "fetch inside, reduce and copy over rails, multicast inside"
EXCHANGED = "fetch inside, exchange over rails, multicast inside"
CASES = [
    (one_box("allreduce", 2), None), (one_box("allreduce", 4, own="through"), None), (one_box("broadcast", 1), None),
    (two_boxes(FETCHED), (0, 0, 1, 1)), (two_boxes(EXCHANGED), (0, 0, 1, 1)), (two_boxes(FETCHED), None),
]  # fmt: skip


def lowered(case: int, in_place: str) -> Program:
    schedule, nodes = CASES[case]
    return onesided(schedule, LoweringOptions("mscclpp", in_place=in_place, nodes=nodes))  # type: ignore[arg-type]


def codes(program: Program) -> set[str]:
    return {op.code for gpu in program.gpus for block in gpu.blocks for op in block.ops}


@pytest.mark.parametrize("in_place", ["out", "in"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_programs_are_right_and_round_trip(case: int, in_place: str) -> None:
    program = lowered(case, in_place)
    assert codes(program) & {"glres", "gstore"}
    assert check(program, "mscclpp").ok
    assert parse(dump(program)) == program and Program.from_json(program.to_json()) == program
    plan = document(program)
    strict_mscclpp.check(json.dumps(plan))
    assert program.collective is not None
    again = read(json.dumps(plan), root=0 if program.collective.roots else None)
    assert again.gpus == program.gpus


def test_a_fetched_sum_that_is_multicast_next_is_one_op() -> None:
    program = lowered(0, "out")
    ops = [op for gpu in program.gpus for block in gpu.blocks for op in block.ops if op.src or op.dst]
    assert {op.code for op in ops} == {"glres"}
    spans = ops[0].src
    assert [span.rank for span in spans] == [None, 1, 2] and len({span[:2] for span in spans}) == 1


def of_one_thread(block: Block, op: Op) -> bool:
    """True if the first thread of the block does all of `op`, which serves one channel."""
    by_port = op.code == "put" and block.ports[op.ports[0]].kind == "port"
    return len(op.ports) == 1 and (by_port or op.code in ("signal", "wait", "flush"))


@pytest.mark.parametrize("case", [0, 3])
def test_lint_finds_whatever_is_left_out(case: int) -> None:
    program = lowered(case, "in")
    for b, block in enumerate(program.gpus[0].blocks):
        for i in range(len(block.ops)):
            left = edit(program, 0, b, 0, ops=(*block.ops[:i], *block.ops[i + 1 :]) or (Op("nop"),))
            report = check(left, "mscclpp")
            beside = [*block.ops[max(i - 1, 0) : i], *block.ops[i + 1 : i + 2]]
            if block.ops[i].code == "nop" and all(of_one_thread(block, op) for op in beside):
                continue  # their order needs no join
            assert not report.ok or any(finding.rule == "entry" for finding in report.findings), (b, i)


# Which program's first glres or gstore is changed, and how.
GROUPS = {
    "another place": (0, lambda op: op._replace(dst=(*op.dst[:-1], op.dst[-1]._replace(buffer="i")))),
    "a rank twice": (0, lambda op: op._replace(dst=(*op.dst[:-1], op.dst[1]))),
    "without its rank": (0, lambda op: op._replace(src=op.src[1:], dst=op.dst[1:])),
    "two groups": (0, lambda op: op._replace(src=op.src[:-1])),
    "another rank's source": (2, lambda op: op._replace(src=(op.src[0]._replace(rank=1),))),
}


@pytest.mark.parametrize("change", GROUPS)
def test_lint_refuses_groups_that_no_switch_has(change: str) -> None:
    case, altered = GROUPS[change]
    program = lowered(case, "out")
    ops = list(program.gpus[0].blocks[0].ops)
    i = next(i for i, op in enumerate(ops) if op.dst)
    ops[i] = altered(ops[i])
    rules = {finding.rule for finding in check(edit(program, 0, 0, 0, ops=ops), "mscclpp").findings}
    assert rules & {"group-place", "operands"}


def test_what_no_operation_of_a_plan_does_is_refused() -> None:
    with pytest.raises(SynthError, match="in which its sum is fetched"):
        onesided(one_box("allreduce", 1), LoweringOptions("mscclpp"))
    with pytest.raises(SynthError, match="at one place of one buffer"):
        onesided(one_box("reduce", 1), LoweringOptions("mscclpp"))
    with pytest.raises(UsageError, match="packets do not pass switches"):
        onesided(one_box("allreduce", 2), LoweringOptions("mscclpp", protocol="LL"))
    network = topology("switch:3:multicast=through").multicast_network()
    added = tuple(SwitchSend(0, rank, (0, 1, 2), "multicast-reduce", "switch") for rank in range(3))
    schedule = Schedule(network, collective("allreduce", 3), 1, (Step(9, (), added),))
    with pytest.raises(SynthError, match="no operation"):
        onesided(schedule, LoweringOptions("mscclpp"))
    used = SwitchSend(0, 0, (0, 1), "fetch-reduce", "switch")
    later = (Send(0, 0, 2, "reduce"), Send(0, 1, 2, "copy"), Send(0, 2, 0))
    steps = [Step(3, (), (used,)), *(Step(1, (send,)) for send in (later[0], later[2], Send(0, 2, 1)))]
    right = Schedule(network, collective("allreduce", 3), 1, tuple(steps))
    assert check(onesided(right, LoweringOptions("mscclpp")), "mscclpp").ok
    steps[1] = Step(2, (later[0], Send(0, 1, 2, "copy-input")))
    with pytest.raises(SynthError, match="after its sum was fetched"):
        from synth.program.onesided.tasks import switch_moves

        switch_moves(replace(right, steps=tuple(steps)))


@pytest.mark.parametrize(("steps", "own"), [(2, "local"), (4, "through")])
def test_plans_are_exported_linted_and_run(tmp_path: Path, steps: int, own: str) -> None:
    source, plan = tmp_path / "schedule.json", tmp_path / "plan.json"
    source.write_text(json.dumps(one_box("allreduce", steps, own=own).to_json()))
    assert "switch channels (NVLS)" in synth("export", source, "--to mscclpp -o", plan).output
    channels = json.loads(plan.read_text())["gpus"][2]["channels"]
    group = {"size": 3, "ranks": [0, 1, 2]}
    assert {"channel_type": "switch", "buffer_type": "i", "rank_groups": [group]} in channels
    synth("lint", plan, "--runtime mscclpp")
    assert "right" in synth("run", plan, "--size 3KB --executor reference").output


def foreign(rank: int) -> dict:
    """One of two ranks of a plan in place as MSCCL++'s own language writes it: relaxed signals, one channel a block."""
    signal = {"channel_ids": [0], "channel_type": "memory"}
    meeting = [{"name": "nop"}, {"name": "rlxsignal", **signal}, {"name": "nop"}, {"name": "rlxwait", **signal}]
    half = [{"switch_channel_id": 0, "index": rank, "size": 1}]
    reduced = {"src_buff": half, "dst_buff": half, "channel_type": "switch", "reduce_op": "sum"}
    group = {"size": 2, "ranks": [0, 1]}
    return {
        "id": rank, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 0, "remote_buffers": [], "semaphores": [],
        "channels": [
            {"channel_type": "memory", "connected_to": [1 - rank]},
            {"channel_type": "switch", "buffer_type": "i", "rank_groups": [group]},
        ],
        "threadblocks": [{
            "id": 0,
            "ops": [*meeting, {"name": "nop"}, {"name": "glres", **reduced}, *meeting, {"name": "nop"}],
            "channels": [{"channel_type": kind, "channel_ids": [0]} for kind in ("memory", "switch")],
            "remote_buffer_refs": [],
        }],
    }  # fmt: skip


def foreign_plan() -> dict:
    top = {"name": "zero-copy", "collective": "allreduce", "protocol": "Simple", "inplace": True}
    return top | {"gpus": [foreign(0), foreign(1)]}


def test_plans_of_others_are_read_and_proved() -> None:
    program = read(json.dumps(foreign_plan()))
    assert codes(program) == {"nop", "signal", "wait", "glres"}
    assert check(program, "mscclpp").ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src_buff": [{"switch_channel_id": 1, "index": 0, "size": 1}]}, "whole number in 0..0"),
        ({"dst_buff": [{"switch_channel_id": 0, "index": 1, "size": 2}]}, "whole number in 0..1"),
        ({"dst_buff": [{"type": "i", "index": 0, "size": 1}]}, "switch_channel_id"),
        ({"reduce_op": "min"}, "reduce_op"),
        ({"channel_type": "memory"}, "channel_type"),
    ],
)
def test_faults_of_their_ops_have_a_place(change: dict, message: str) -> None:
    doc = foreign_plan()
    doc["gpus"][0]["threadblocks"][0]["ops"][5].update(change)
    with pytest.raises(FormatError, match=message):
        read(json.dumps(doc))


def test_switch_channels_that_ranks_set_up_in_different_orders_are_refused() -> None:
    """MSCCL++ sets them up one after another, each together with the whole group, whose first rank makes the object."""
    doc = foreign_plan()
    for gpu in doc["gpus"]:
        gpu["channels"].append({**gpu["channels"][1], "buffer_type": "o"})
    assert read(json.dumps(doc)).ranks == 2
    channels = doc["gpus"][1]["channels"]
    channels[1:] = channels[:0:-1]
    turned, more = foreign_plan(), foreign_plan()
    turned["gpus"][1]["channels"][1]["rank_groups"] = [{"size": 2, "ranks": [1, 0]}]
    more["gpus"][0]["channels"][0]["connected_to"].append(1)
    for wrong, message in (
        (doc, r"rank 1 lists .* of rank 0 .* later, or not at all"),
        (turned, "ranks 0 1 "),
        (more, "rank 0 has 2 memory channels to rank 1, which has 1 back"),
    ):
        with pytest.raises(FormatError, match=message):
            read(json.dumps(wrong))


@pytest.mark.parametrize("ranks, sizes, chunks", [
    (8, [1 << k for k in range(10, 31)], 8),
    (6, [1 << k for k in range(10, 31)], 16),  # shares of 3 and 2 chunks
    (6, [6 * 1024, 12 * 1024], 6),
    (72, [72 * 1024], 72),
    (3, [8], 3),  # too small for whole chunks of 16 bytes
])  # fmt: skip
def test_plain_schedules_have_chunks_that_divide_the_sizes(ranks: int, sizes: list[int], chunks: int) -> None:
    network = topology(f"switch:{ranks}:multicast=through").multicast_network()
    schedule = MulticastPipelining(network, collective("allreduce", ranks)).plain(sizes, 16)
    replay.schedule(schedule)
    assert (schedule.chunks, schedule.step_count) == (chunks, 2)


@pytest.mark.parametrize("own", ["through", "local"])
def test_a_plain_program_keeps_the_ports_busy(own: str) -> None:
    """4 KB in 4 chunks at 1 GB/s: a signal, sums that share the ports upwards, a multicast of the last sum."""
    network = topology(f"switch:4:multicast={own}").multicast_network()
    program = onesided(MulticastPipelining(network, collective("allreduce", 4)).plain([4096], 16))
    messages = ProgramTimes(program, replace(network, multicast=())).computed(256)
    chunk, hop = 1_024_000, 1_000_000
    assert ProgramTimes(program, network).computed(256) == 3 * hop + 5 * chunk
    assert messages == 3 * hop + 6 * chunk


@pytest.mark.parametrize("number", [40, 51, 53])
def test_sums_through_a_switch_whose_ports_share_limits_replay(number: int) -> None:
    machine = randoms.machine(0, number)
    network = machine.multicast_network()
    schedule = MulticastPipelining(network, collective("allreduce", machine.ranks)).plain([1 << 16], 16)
    assert replay.schedule(schedule)


def test_a_run_of_a_plan_counts_the_ports_of_the_machine(tmp_path: Path) -> None:
    machine = topology("switch:4:multicast=through")
    schedule = MulticastPipelining(machine.multicast_network(), collective("allreduce", 4)).plain([4096], 16)
    found = run(onesided(schedule), topology=machine, size=4096, overheads=False)
    assert found.execution.picoseconds == ProgramTimes(onesided(schedule), machine.multicast_network()).computed(256)
    assert 0 < found.bound <= found.execution.picoseconds and "count once at each port" in found.model
