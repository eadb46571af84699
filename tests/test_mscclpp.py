"""One-sided programs and MSCCL++ plans: what is exported computes the right thing under the kernel's rules, and is read
back."""

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache

import launch_judge
import pytest
import strict_mscclpp
from program_judge import right
from test_forged_at_scale import changed
from test_lower import exchange_allreduce

from synth import topologies
from synth.checker.schedule import replay
from synth.commands import api
from synth.errors import FormatError, SynthError, UsageError
from synth.export.mscclpp.emit import Mscclpp, document, message_sizes, port_channels
from synth.export.mscclpp.read import read
from synth.export.request import ExportRequest, Target
from synth.language.library import direct, hierarchical
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Link, Topology
from synth.program import analysis
from synth.program import plan_limits as limits
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.onesided.lower import onesided
from synth.program.program import Block, Dep, Gpu, Op, Port, Program, Span
from tests.command_line import synth
from tests.programs import edit, put_allgather, ring_allgather

SOLVED = {
    ("dgx1", "broadcast"): (2, 2, 2),
    ("dgx1", "scatter"): (6, 2, 7),
    ("dgx1", "gather"): (6, 2, 7),
    ("dgx1", "allgather"): (1, 2, 2),
    ("dgx1", "alltoall"): (3, 2, 8),
    ("dgx-a100*2", "allgather"): (1, 2, 2),
    ("dgx-a100*2", "alltoall"): (1, 1, 8),
    ("dgx-a100*2", "broadcast"): (2, 2, 2),
}
REVERSED = {"reduce": "broadcast", "reduce-scatter": "allgather"}
CASES = [
    *SOLVED,
    *((topo, name) for topo in ("dgx1", "dgx-a100*2") for name in ("reduce", "reduce-scatter", "allreduce")),
]


@cache
def solved(topo: str, name: str) -> Schedule:
    """A schedule that is known to exist; reductions as reversals, allreduce as reduce-scatter and allgather."""
    if name in REVERSED:
        return solved(topo, REVERSED[name]).reversed()
    if name == "allreduce":
        there, back = solved(topo, "reduce-scatter"), solved(topo, "allgather")
        ranks = back.collective.ranks
        return Schedule(back.network, collective("allreduce", ranks), back.chunks * ranks, there.steps + back.steps)
    return api.solve(topo, name, *SOLVED[topo, name], jobs=1).schedule


def nodes(topo: str) -> tuple[int, ...]:
    return topologies.topology(topo).nodes


def emit(program: Program) -> str:
    roots = () if program.collective is None else program.collective.roots
    return Mscclpp().emit(program, Target(ExportRequest(assume_root=roots[0] if roots else None)))


def written_and_run(program: Program) -> dict:
    """Return the program's plan, which the loader takes, which is read back as it was, and which runs as it should."""
    text = emit(program)
    plan = strict_mscclpp.check(text)
    assert read(text, task=program.collective) == program
    right(program, "mscclpp")
    return plan


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize(("topo", "name"), CASES)
def test_plans_of_real_machines(topo, name, protocol):
    """Right when run, right to lint, accepted by the loader's rules, and the same when read back."""
    both = ("out", "in") if topo == "dgx1" else ("in",) if protocol == "LL" else ("out",)
    for in_place in ("out",) if name == "alltoall" else both:
        program = onesided(solved(topo, name), LoweringOptions(protocol=protocol, in_place=in_place, nodes=nodes(topo)))
        plan = written_and_run(program)
        assert read(emit(program)) == program  # its collective and root are found, too
        kinds = {channel["channel_type"] for gpu in plan["gpus"] for channel in gpu["channels"]}
        assert kinds == ({"memory"} if topo == "dgx1" else {"memory", "port"})


@pytest.mark.parametrize(
    ("runtime", "instances", "protocol"), [("synth", 1, "Simple"), ("msccl-executor", 2, "LL"), ("rccl", 4, "Simple")]
)
@pytest.mark.parametrize("name", [name for topo, name in CASES if topo == "dgx1"])
def test_two_sided_programs_of_the_same_schedules(name, runtime, instances, protocol):
    right(lower(solved("dgx1", name), LoweringOptions(runtime, protocol, instances)), runtime)


def scattered(name: str, root: int) -> Schedule:
    """Around a ring of three: what must end on one rank alone passes another, so that its last send is a copy."""
    chain = [r for r in range(3) if r != root]
    net = topologies.topology("fully-connected:3").network()
    if name == "scatter":
        sends = [Send(r, root, r) for r in chain]
        return Schedule(net, collective("scatter", 3, (root,)), 1, (Step(1, tuple(sends)),))
    first = [Send(u, (u + 1) % 3, (u + 2) % 3, "reduce") for u in range(3)]
    second = [Send(u, u, (u + 2) % 3, "reduce") for u in range(3)]
    back = [Send(u, (u + 2) % 3, u) for u in range(3)]
    return Schedule(
        net, collective("reduce-scatter", 3), 1, tuple(Step(1, tuple(sends)) for sends in (first, second, back))
    )


@pytest.mark.parametrize("boxes", [(0, 0, 0), (0, 0, 1), (0, 1, 2)])
@pytest.mark.parametrize(("name", "root"), [("reduce-scatter", 0), ("scatter", 0), ("scatter", 2)])
def test_in_place_what_lies_in_a_larger_buffer_is_reached_where_the_kernel_counts_it(name, root, boxes):
    """From where the sender's own buffer begins; through a port channel from the beginning of its allocation."""
    schedule = scattered(name, root)
    replay.schedule(schedule)
    program = onesided(schedule, LoweringOptions(in_place="in", nodes=boxes))
    written_and_run(program)
    out = onesided(schedule, LoweringOptions(nodes=boxes))
    misplaced = {f.rule for f in analysis.check(replace(out, in_place="in"), "mscclpp").errors}
    assert ("buffer-start" in misplaced) == ((name, root) != ("scatter", 0))


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("boxes", [(0, 0, 0, 0), (0, 0, 1, 1)])
def test_no_sync_is_idle(protocol, boxes):
    """Lint notices every op that is left out of an allreduce: none is there for nothing."""
    program = onesided(exchange_allreduce(4), LoweringOptions(protocol=protocol, nodes=boxes))
    right(program, "mscclpp")
    for r, gpu in enumerate(program.gpus[:2]):
        for b, block in enumerate(gpu.blocks):
            for i in range(len(block.ops)):
                left = edit(program, r, b, 0, ops=block.ops[:i] + block.ops[i + 1 :])
                assert analysis.check(left, "mscclpp").verdict == "wrong", (r, b, i)


def test_forwarded_packets_are_flushed_where_their_writer_cannot_know_that_they_were_sent():
    """Rank 1 sends by way of rank 0, hears from rank 0 in each launch, and nothing of rank 2."""
    net = topologies.topology("fully-connected:3").network()
    steps = (Step(1, (Send(1, 1, 0),)), Step(1, (Send(0, 0, 1), Send(1, 0, 2))))
    relayed = Schedule(net, collective("alltonext", 3), 1, steps)
    program = onesided(relayed, LoweringOptions(protocol="LL", nodes=(0, 0, 1)))
    codes = [[op.code for block in gpu.blocks for op in block.ops] for gpu in program.gpus]
    assert ["flush" in ops for ops in codes] == [True, False, False]
    assert analysis.check(program, "mscclpp").verdict == "right"
    assert launch_judge.judge(program) == ""
    first, *others = program.gpus
    blocks = [b._replace(ops=tuple(op for op in b.ops if op.code != "flush")) for b in first.blocks]
    wrong = replace(program, gpus=(first._replace(blocks=tuple(blocks)), *others))
    assert [finding.rule for finding in analysis.check(wrong, "mscclpp").errors] == ["packet-launch"]
    assert "touch one chunk at the same time" in launch_judge.judge(wrong)
    near = onesided(relayed, LoweringOptions(protocol="LL", nodes=(0, 0, 0)))
    assert not any(op.code == "flush" for gpu in near.gpus for block in gpu.blocks for op in block.ops)


def names_of(program):
    """The operations of a plan's first rank, counted by name."""
    return Counter(op["name"] for block in document(program)["gpus"][0]["threadblocks"] for op in block["ops"])


@pytest.mark.parametrize("in_place", ["in", "out"])
def test_a_sum_of_a_box_is_read_and_stored_in_one_operation(in_place):
    """As in hand-written two-shot plans: entry, one rres, the result; not with several sums at once, unless wished."""
    schedule = direct.allreduce.schedule("dgx-h100", chunks=1)
    program = onesided(schedule, LoweringOptions(in_place=in_place))
    assert names_of(program) == {"wait": 8, "nop": 2, "rres": 1, "signal": 8}
    eight = onesided(schedule, LoweringOptions(in_place=in_place, instances=8, blocks=8, reads=True))
    assert names_of(eight) == {"wait": 16, "nop": 16, "rres": 8, "signal": 16}
    for options in (LoweringOptions(instances=2), LoweringOptions(reads=False)):
        assert {"put", "res"} <= names_of(onesided(schedule, options)).keys()
    for made in (program, eight):
        written_and_run(made)


@pytest.mark.parametrize("in_place", ["in", "out"])
def test_a_sum_of_packets_is_stored_where_it_goes_next_in_one_operation(in_place):
    """In the box as packets of the others; as own packets, which the port channel carries first, to another box."""
    options = LoweringOptions(protocol="LL", in_place=in_place)
    in_box = onesided(direct.allreduce.schedule("dgx-h100", chunks=1), options)
    assert names_of(in_box) == {"ppkt": 7, "respkt": 1, "upkt": 7}  # and no nop
    boxes = replace(options, nodes=nodes("dgx-a100*2"))
    schedule = hierarchical.allreduce.schedule("dgx-a100*2", chunks=1)
    across = onesided(schedule, boxes)
    found = names_of(across)
    assert found["recpkt"] > 0 == found["nop"] + found["cpkt"]
    for made in (in_box, across):
        written_and_run(made)


def test_packets_to_other_boxes_go_first():
    program = onesided(solved("dgx-a100*2", "allgather"), LoweringOptions(protocol="LL", nodes=nodes("dgx-a100*2")))
    for gpu in program.gpus:
        for block in gpu.blocks:
            kinds = [block.ports[op.ports[0]].kind for op in block.ops if op.code == "put" and op.src[0].buffer == "i"]
            assert kinds == sorted(kinds, reverse=True)  # port, then memory


@pytest.mark.parametrize("version", ["0.9", "0.10"])
def test_a_put_to_another_box_signals_by_itself(version):
    """The flush is part of it where the version has a sound pwsf."""
    program = onesided(solved("dgx-a100*2", "alltoall"), LoweringOptions(nodes=nodes("dgx-a100*2")))
    plan = document(program, version)
    found = Counter(op["name"] for gpu in plan["gpus"] for block in gpu["threadblocks"] for op in block["ops"])
    assert found["pws"] + found["pwsf"]
    assert version == "0.10" or not found["pwsf"]
    ports = port_channels(program)
    counts = []
    for gpu in plan["gpus"]:
        counts.append(sum(len(c["connected_to"]) for c in gpu["channels"] if c["channel_type"] == "port"))
    assert ports == max(counts) > 0
    assert any(f"up to {ports} port channels" in line for line in Mscclpp().remarks(program, Target()))


def test_port_channels_are_capped_by_fewer_blocks(monkeypatch):
    """A rank of one box meets 8 of the other, in each block some of them; blocks that are asked for stay."""
    schedule, options = solved("dgx-a100*2", "alltoall"), LoweringOptions(nodes=nodes("dgx-a100*2"))
    free = onesided(schedule, options)
    most = port_channels(free)
    monkeypatch.setattr(limits, "RANK_PORTS", most - 1)
    (said,) = [line for line in Mscclpp().remarks(free, Target()) if "port channels" in line]
    assert said == (
        f"a rank has up to {most} port channels, each a queue pair (QP) of its NIC, more than the {most - 1} that a "
        "NIC keeps at hand; fewer thread blocks have fewer"
    )
    capped = onesided(schedule, options)
    assert port_channels(capped) < most and analysis.check(capped, "mscclpp").ok
    assert max(len(gpu.blocks) for gpu in capped.gpus) < max(len(gpu.blocks) for gpu in free.gpus)
    asked = onesided(schedule, LoweringOptions(nodes=nodes("dgx-a100*2"), blocks=16))
    assert port_channels(asked) == most
    monkeypatch.setattr(limits, "RANK_PORTS", 0)
    assert 0 < port_channels(onesided(schedule, options)) <= port_channels(capped)


COMPILE = "compile two-shot --topo dgx-a100 --no-bounds"


@pytest.mark.parametrize("words", ["--to msccl-xml --blocks 2", "--to msccl-xml --no-reads", "--blocks 0 --to mscclpp"])
def test_options_of_plans_are_refused_elsewhere(words):
    assert "--blocks" in synth(COMPILE, "-o -", words, code=2).stderr


def test_blocks_and_reads_are_options_of_the_commands(tmp_path):
    names = {}
    for option in ("--reads", "--no-reads"):
        path = tmp_path / f"plan{option}.json"
        synth(COMPILE, "--to mscclpp --chunks 1 --instances 2 --blocks 2", option, "-o", path)
        blocks = json.loads(path.read_text())["gpus"][0]["threadblocks"]
        names[option] = {op["name"] for block in blocks for op in block["ops"]}
        assert len(blocks) == 2
    assert "rres" in names["--reads"] and "put" in names["--no-reads"]


def test_golden(golden):
    for protocol in ("Simple", "LL"):
        program = onesided(exchange_allreduce(4), LoweringOptions(protocol=protocol, nodes=(0, 0, 1, 1)))
        golden(f"allreduce-{protocol}.mscclpp.json", emit(program))


def uneven_scratch() -> Program:
    """Rank 0, without scratch of its own, puts a packet into the scratch of rank 1."""
    put = Op("put", (Span("i", 0),), (Span("s", 0, 1, True),), ports=(0,))
    ready = Op("signal", ports=(0,)), Op("wait", ports=(0,))  # no rank is two launches ahead
    ends = [Block(None, None, 0, (), (), (Port("memory", 1 - r, 0),)) for r in (0, 1)]
    gpus = (
        Gpu(0, 1, 0, 0, (ends[0]._replace(ops=(ready[1], Op("nop"), put)),)),
        Gpu(1, 0, 1, 1, (ends[1]._replace(ops=(ready[0], Op("cpy", (Span("s", 0, None, True),), (Span("o", 0),)))),)),
    )
    return Program("uneven", collective("alltonext", 2), 1, gpus, "LL")


def test_every_second_launch_wants_equal_scratch():
    """It counts the place of a packet from the middle of the sender's own scratch: everyone who judges programs
    knows."""
    program = uneven_scratch()
    with pytest.raises(SynthError, match=r"second launch: stuck: .* never comes"):
        api.run(program, size=64)
    assert {finding.rule for finding in analysis.check(program).errors} == {"packet-half"}
    even = read(emit(replace(program, gpus=tuple(gpu._replace(scratch=1) for gpu in program.gpus))))
    plan = written_and_run(even)
    plan["gpus"][0]["scratch_chunks"] = 0
    with pytest.raises(AssertionError, match="own half"):
        strict_mscclpp.check(json.dumps(plan))
    far = replace(program, gpus=(program.gpus[0]._replace(scratch=2), program.gpus[1]))
    with pytest.raises(SynthError, match="is sought 1 farther, as rank 0 has 2"):
        api.run(far, size=64)


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("name", ["allgather", "scatter", "reduce-scatter", "allreduce"])
def test_every_offset_fits_at_the_largest_size(name, protocol):
    """The strict reader takes the largest size and not the next; lint reports what is offered beyond it."""
    program = onesided(solved("dgx1", name), LoweringOptions(protocol=protocol))
    plan = json.loads(emit(program))
    strict_mscclpp.check(json.dumps(plan))
    assert not [f for f in analysis.check(program, "mscclpp").findings if f.rule == "offsets"]
    chunks = max(gpu["output_chunks" if name == "allgather" else "input_chunks"] for gpu in plan["gpus"])
    plan["max_message_size"] += 16 * chunks
    with pytest.raises(AssertionError, match="32 bit"):
        strict_mscclpp.check(json.dumps(plan))
    above = program.max_bytes + 16 * program.loop_chunks
    for top, severity in ((above, "error"), (None, "warning")):
        (found,) = [
            f for f in analysis.check(replace(program, max_bytes=top), "mscclpp").findings if f.rule == "offsets"
        ]
        assert found.severity == severity
    safe = analysis.check(replace(program, max_bytes=None), "mscclpp").safe
    assert safe is not None and program.max_bytes <= safe < above  # "safe at any size" stood beside the warning
    with pytest.raises(SynthError, match="32 bit"):
        emit(replace(program, max_bytes=above))


# ---------------------------------------------------------------- limits


def star(ranks: int) -> Schedule:
    net = Topology("star", ranks, tuple(Link(0, r, Fraction(1)) for r in range(1, ranks))).network()
    return Schedule(net, collective("broadcast", ranks), 1, (Step(1, tuple(Send(0, 0, r) for r in range(1, ranks))),))


def test_sixteen_channels_of_a_block():
    emit(onesided(star(17)))
    with pytest.raises(
        SynthError, match=r"moving chunk 0 alone, a thread block of rank 0 uses 17 memory channels, MSCCL\+\+ takes 16"
    ):
        onesided(star(18))


def test_blocks_are_split_until_they_fit():
    one = onesided(solved("dgx1", "alltoall"), LoweringOptions(blocks=1, instances=4))
    assert max(len(gpu.blocks) for gpu in one.gpus) > 1
    assert max(limits.plan_op_count(block.ops) for gpu in one.gpus for block in gpu.blocks) <= 64
    right(one, "mscclpp")


def test_a_block_of_an_alltoall_moves_all_units_of_some_distances():
    """By source, a block had all sends of two ranks: those of 32 ranks took 33 blocks, and of 128 none fitted."""
    machine = api.topology("dgx-a100*4")
    direct = api.baseline("direct", machine, "alltoall")
    program = onesided(direct, LoweringOptions("mscclpp", nodes=machine.nodes))
    assert {len(gpu.blocks) for gpu in program.gpus} == {16}
    assert max(len(block.ports) for gpu in program.gpus for block in gpu.blocks) <= 6
    assert analysis.check(program, "mscclpp").ok


def test_more_blocks_than_multiprocessors_are_refused():
    with pytest.raises(SynthError, match="needs 96 thread blocks on a rank, at most 80"):
        onesided(solved("dgx-a100*2", "allreduce"), LoweringOptions(instances=6))


def test_sizes_are_those_that_the_loader_compares():
    """MSCCL++ compares the input's bytes, for allgather the output's; nccl-tests' size is the larger buffer."""
    for name, share in (("allgather", 1), ("alltoall", 1), ("reduce-scatter", 1), ("broadcast", 1), ("gather", 8)):
        program = replace(onesided(solved("dgx1", name)), min_bytes=1 << 20, max_bytes=1 << 24)
        assert message_sizes(program) == ((1 << 20) // share, (1 << 24) // share)
        assert (read(emit(program)).min_bytes, read(emit(program)).max_bytes) == (1 << 20, 1 << 24)


@pytest.mark.parametrize(
    ("program", "message"), [(ring_allgather(3), "sends through FIFOs"), (put_allgather(3), "not both")]
)
def test_what_a_plan_cannot_say(program, message):
    with pytest.raises(SynthError, match=message):
        emit(program)


def test_what_shares_no_data_is_not_called_in_place():
    with pytest.raises(UsageError, match="alltoall cannot be called in place"):
        onesided(solved("dgx1", "alltoall"), LoweringOptions(in_place="in"))


def test_a_root_must_be_asserted():
    program = onesided(star(3))
    with pytest.raises(SynthError, match="add --assume-root 0"):
        Mscclpp().emit(program, Target())
    with pytest.raises(SynthError, match="the schedule's root is 0"):
        Mscclpp().emit(program, Target(ExportRequest(assume_root=1)))


def test_plans_are_written_from_schedules():
    """Blocks that wait for each other come from others' plans alone, and are not written again."""
    i, s = Span("i", 0), Span("s", 0)
    first = Block(None, None, 0, (Op("cpy", (i,), (s,), flag=True),))
    second = Block(None, None, 0, (Op("cpy", (s,), (Span("o", 0),), deps=(Dep(0, 0),)),))
    program = Program("p", collective("allreduce", 1), 1, (Gpu(0, 1, 1, 1, (first, second)),))
    with pytest.raises(SynthError, match=r"p has blocks that wait for each other.*its file is a plan already"):
        emit(program)


# ---------------------------------------------------------------- reading


def plan() -> dict:
    return json.loads(emit(onesided(exchange_allreduce(4), LoweringOptions(nodes=(0, 0, 1, 1)))))


def switch(size: int, ranks: list[int]) -> dict:
    """Return a switch channel of one group."""
    return {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": size, "ranks": ranks}]}


FAULTS = [
    ("name", 3, "$.name: expected a text"),
    ("protocol", "LL128", "$.protocol: expected one of"),
    ("inplace", "no", "$.inplace: expected true or false"),
    ("gpus", {}, "$.gpus: expected a list"),
    ("gpus", [], "$.gpus: is empty"),
    ("collective", 3, "$.collective: expected a text"),
    ("gpus.0.id", 1, "$.gpus[0].id: is 1"),
    ("gpus.0.input_chunks", 0, "whole number in 1.."),
    ("gpus.0.input_chunks", 1 << 60, "whole number in 1.."),
    ("gpus.1.input_chunks", 2, "do not have the sizes"),
    ("gpus.0.threadblocks", [], "at least one thread block"),
    ("gpus.0.channels.0.connected_to.0", 9, "whole number in 0..3"),
    ("gpus.0.channels.0.connected_to.0", 0, "to itself"),
    ("gpus.0.channels.0", switch(2, [0, 0]), "is no group of two ranks or more"),
    ("gpus.0.channels.0", switch(3, [0, 1]), "is 3, the group has 2 ranks"),
    ("gpus.0.channels.0", switch(2, [0, 1]), "rank 1 lists the switch channel of rank 0 over ranks 0 1 later, or not"),
    ("gpus.0.threadblocks.0.ops.0.name", "pipeline", "a pipeline needs 'iter_context' and 'ops'"),
    ("gpus.0.threadblocks.0.ops.0.name", "gstorepkt", "expected one of switch"),
    ("gpus.0.threadblocks.0.ops.0.name", "glres", "expected one of switch"),
    ("gpus.0.threadblocks.0.ops.0.name", "send", "unknown operation"),
    ("gpus.0.threadblocks.0.ops.0.channel_ids", [5], "whole number in 0..0"),
    ("gpus.0.threadblocks.0.ops", [{"name": "nop"}] * 65, "at most 64"),
    ("gpus.0.threadblocks.0.ops", [{"name": "sem_acquire", "semaphore_ids": [0]}, {"name": "nop"}], "semaphore 0 does"),
    ("gpus.0.threadblocks.0.ops", [{"name": "pws", "src_buff": [], "dst_buff": []}], "never signals"),
    ("gpus.0.threadblocks.0.ops.0.extra", 1, "'extra' is not a field"),
    ("gpus.0.scratch_chunks", -1, "whole number in 0.."),
    ("use_double_scratch_buffer", True, "which half is in turn"),
    ("max_message_size", 1.5, "whole number"),
]


def test_a_collective_of_ones_own_is_named_by_who_reads_the_plan():
    doc = plan() | {"collective": "mine"}
    task = read(json.dumps(plan()), "p.json").collective
    assert task is not None
    assert read(json.dumps(doc), "p.json").collective is None
    assert read(json.dumps(doc), "p.json", task).collective == task


@pytest.mark.parametrize(
    ("path", "value", "message"), FAULTS, ids=[f"{path}={str(value)[:20]}" for path, value, _ in FAULTS]
)
def test_malformed_plans_are_refused_with_their_place(path, value, message):
    doc = changed(plan(), path, value)
    with pytest.raises(FormatError) as caught:
        read(json.dumps(doc), "p.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.json:")
    assert "\n" not in str(caught.value)


def test_an_empty_buffer_is_declared_as_large_as_the_other():
    """Any number of chunks passed. MSCCL++ divides the bytes of the buffer by it."""
    doc = json.loads(emit(onesided(scattered("scatter", 0), LoweringOptions())))
    declared = [(gpu["input_chunks"], gpu["output_chunks"]) for gpu in doc["gpus"]]
    assert declared == [(3, 1), (1, 1), (1, 1)]
    doc["gpus"][1]["input_chunks"] = 3
    with pytest.raises(FormatError, match="rank 1 declares 3 and 1 chunks, a plan of scatter 1 and 1"):
        read(json.dumps(doc), "p.json")


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"name": NaN}', "null", "[]", '{"a": ' + "9" * 5000 + "}"])
def test_what_is_no_plan_gets_one_line(text):
    with pytest.raises(FormatError) as caught:
        read(text, "p.json")
    assert "\n" not in str(caught.value)
