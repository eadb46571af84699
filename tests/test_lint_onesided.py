"""Lint of one-sided programs: signals, barriers, packets and port channels as order; launches that follow each other,
beside a judge that tries all orders of them; MSCCL++'s limits."""

import random
from dataclasses import replace

import launch_judge
import pytest

from bench import onesided_launches
from synth.errors import SynthError
from synth.export.mscclpp.emit import document
from synth.model.collective import collective
from synth.program import analysis
from synth.program.program import Block, Dep, Gpu, Op, Port, Program, Span
from tests.programs import edit, put_allgather
from tests.test_lint import rules

MEMORY, PORT = Port("memory", 1, 0), Port("port", 1, 0)
BACK = {"memory": Port("memory", 0, 0), "port": Port("port", 0, 0)}
I0, O0, S0 = (Span("i", 0),), (Span("o", 0),), (Span("s", 0),)
SIGNAL, WAIT, FLUSH, NOP = Op("signal", ports=(0,)), Op("wait", ports=(0,)), Op("flush", ports=(0,)), Op("nop")


def pair(ops0, ops1, kind="memory", more0=(), scratch=2, **fields):
    """Rank 0's block with a port to rank 1, and rank 1's with one back; rank 0's input goes to rank 1's output."""
    blocks0 = (Block(None, None, 0, tuple(ops0), (), (Port(kind, 1, 0),)), *more0)
    gpus = (
        Gpu(0, 1, 0, scratch, blocks0),
        Gpu(1, 0, 1, scratch, (Block(None, None, 0, tuple(ops1), (), (BACK[kind],)),)),
    )
    return Program("pair", collective("alltonext", 2), 1, gpus, **fields)


PUT = Op("put", I0, (Span("o", 0, 1),), ports=(0,))
PUT_SCRATCH = PUT._replace(dst=(Span("s", 0, 1),))
KEEP, TAKE, SEND = Op("cpy", I0, S0), Op("cpy", S0, O0), PUT._replace(src=S0)
GET = Op("get", (Span("i", 0, 0),), O0, ports=(0,))
GET_SCRATCH = GET._replace(src=(Span("s", 0, 0),))
PACKET, UNPACK = PUT._replace(dst=(Span("s", 0, 1, True),)), Op("cpy", (Span("s", 0, None, True),), O0)
MEET = Op("barrier", group=(0, 1))


def beside(*ops):
    """A second block of rank 0."""
    return {"more0": (Block(None, None, 0, ops, (), (MEMORY,)),)}


FLAGGED = Op("cpy", I0, S0, flag=True)
AFTER = SEND._replace(deps=(Dep(1, 0),))
# ops of rank 0, ops of rank 1, what else, the rules broken
CASES = [
    ([WAIT, PUT, SIGNAL], [SIGNAL, WAIT], {}, set()),
    # a put of the next launch may come before rank 1's user has read the output of this one
    ([PUT, SIGNAL], [WAIT], {}, {"entry"}),
    # a call does not return before the data are there
    ([WAIT, PUT], [SIGNAL], {}, {"unfinished"}),
    # a read of scratch needs the signal
    ([WAIT, PUT_SCRATCH, SIGNAL], [SIGNAL, WAIT, TAKE], {}, set()),
    ([WAIT, PUT_SCRATCH, SIGNAL], [SIGNAL, TAKE, WAIT], {}, {"race"}),
    # the source of a put is free once it has left; a port channel's engine reads later: flush, or an answer, says when
    ([WAIT, KEEP, SEND, KEEP, SIGNAL], [SIGNAL, WAIT], {}, set()),
    ([WAIT, KEEP, SEND, KEEP, SIGNAL], [SIGNAL, WAIT], {"kind": "port"}, {"race"}),
    ([WAIT, KEEP, SEND, FLUSH, KEEP, SIGNAL], [SIGNAL, WAIT], {}, set()),
    ([WAIT, KEEP, SEND, FLUSH, KEEP, SIGNAL], [SIGNAL, WAIT], {"kind": "port"}, set()),
    ([WAIT, KEEP, SEND, SIGNAL, WAIT, KEEP], [SIGNAL, WAIT, SIGNAL], {}, set()),
    ([WAIT, KEEP, SEND, SIGNAL, WAIT, KEEP], [SIGNAL, WAIT, SIGNAL], {"kind": "port"}, set()),
    ([SIGNAL, WAIT], [WAIT, GET, SIGNAL], {}, set()),
    ([SIGNAL], [WAIT, GET], {}, {"unfinished"}),
    # packets need no signal
    ([PACKET, WAIT], [UNPACK, SIGNAL], {}, set()),
    ([PACKET], [UNPACK], {}, {"packet-launch"}),
    ([PACKET], [TAKE], {}, {"packet-mix", "race"}),
    ([PACKET, PACKET], [UNPACK], {}, {"packet-twice", "packet-launch"}),
    ([PACKET, PUT_SCRATCH, SIGNAL], [WAIT, UNPACK], {}, {"packet-mix", "packet-launch"}),
    ([NOP], [UNPACK], {}, {"deadlock"}),
    # blocks meet at a barrier
    ([WAIT, MEET, SEND, SIGNAL], [SIGNAL, WAIT], beside(KEEP, MEET), set()),
    ([WAIT, SEND, SIGNAL, MEET], [SIGNAL, WAIT], beside(KEEP, MEET), {"race"}),
    ([WAIT, SEND, SIGNAL], [SIGNAL, WAIT], beside(KEEP, MEET), {"deadlock", "race"}),
    # dependencies order blocks
    ([WAIT, AFTER, SIGNAL], [SIGNAL, WAIT], beside(FLAGGED), set()),
    ([WAIT, AFTER, SIGNAL], [SIGNAL, WAIT], beside(KEEP), {"dep-unflagged"}),
    # signals that do not match: one is left, and rank 1 may be a launch behind
    ([WAIT, PUT, SIGNAL, SIGNAL], [SIGNAL, WAIT], {}, {"unfinished", "signals-left"}),
    ([WAIT, PUT, SIGNAL], [SIGNAL, SIGNAL, WAIT], {}, {"entry", "signals-left"}),
    ([WAIT, PUT, SIGNAL], [SIGNAL, WAIT, WAIT], {}, {"deadlock"}),
    ([WAIT, PUT, SIGNAL], [SIGNAL, WAIT, WAIT], beside(SIGNAL), {"two-ends"}),
    # a put by the wrong port
    ([WAIT, PUT._replace(dst=S0), SIGNAL], [SIGNAL, WAIT], {}, {"port", "wrong-output"}),
    # scratch that the next launch fills while this one still reads it
    ([KEEP, SIGNAL], [WAIT, GET_SCRATCH], {}, {"launch"}),
    ([KEEP, SIGNAL, WAIT], [WAIT, GET_SCRATCH, SIGNAL], {}, set()),
    ([PUT_SCRATCH, SIGNAL], [WAIT, TAKE], {}, {"launch"}),
    ([PUT_SCRATCH, SIGNAL, WAIT], [WAIT, TAKE, SIGNAL], {}, set()),
    # through a queue that nobody flushes
    ([KEEP, WAIT, SEND, SIGNAL], [SIGNAL, WAIT], {"kind": "port"}, {"launch"}),
    ([KEEP, WAIT, SEND, SIGNAL, FLUSH], [SIGNAL, WAIT], {"kind": "port"}, set()),
    ([WAIT, PUT, SIGNAL], [SIGNAL, WAIT], {"kind": "port"}, {"unfinished"}),
    # packets in one scratch, answered, or written one launch ahead
    ([PACKET], [UNPACK], {"one_scratch": True}, {"packet-launch"}),
    ([PACKET, WAIT], [UNPACK, SIGNAL], {"one_scratch": True}, set()),
    ([WAIT, PACKET], [SIGNAL, UNPACK], {}, set()),
    ([WAIT, PACKET], [SIGNAL, UNPACK], {"one_scratch": True}, set()),
    # after a signal too many a wait orders nothing
    ([WAIT, PUT_SCRATCH, SIGNAL], [SIGNAL, SIGNAL, WAIT, TAKE], {}, {"launch", "signals-left"}),
]
UNJUDGED = {"two-ends", "dep-unflagged", "port", "packet-twice", "packet-mix"}  # rules of the form alone


@pytest.mark.parametrize(("ops0", "ops1", "more", "broken"), CASES)
def test_each_fault_is_found_on_its_own(ops0, ops1, more, broken):
    program = pair(ops0, ops1, **more)
    report = analysis.check(program)
    assert {f.rule for f in report.findings if f.severity != "remark"} == broken
    assert (report.safe == 0) == bool(broken & {"deadlock", "dep-unflagged"})
    assert report.verdict == ("wrong" if broken else "right")
    assert broken & UNJUDGED or (launch_judge.judge(program) == "") == (not broken)


def test_faults_name_what_they_are_about():
    assert analysis.check(pair([WAIT, PUT, SIGNAL], [SIGNAL, WAIT])).outputs == 1
    left = analysis.check(pair([WAIT, PUT, SIGNAL], [SIGNAL, SIGNAL, WAIT]))
    assert (rules(left, "warning"), rules(left)) == ({"signals-left"}, {"entry"})
    for ops0, ops1, kind, words in (
        ([PUT, SIGNAL], [WAIT], "memory", "output 0 of rank 1"),
        ([NOP], [UNPACK], "memory", "for packet s[0] of rank 1"),
        (
            [KEEP, SIGNAL],
            [WAIT, GET_SCRATCH],
            "memory",
            "scratch 0 of rank 0 in the next launch, while gpu 1",
        ),
        ([KEEP, SIGNAL], [WAIT, GET_SCRATCH], "memory", "let rank 1 signal that it has first"),
        ([KEEP, WAIT, SEND, SIGNAL], [SIGNAL, WAIT], "port", "may still read it: flush the port channel first"),
    ):
        assert words in analysis.check(pair(ops0, ops1, kind)).errors[0].message


def test_a_port_channel_that_only_signals_says_what_its_rank_has_done():
    ops = [WAIT._replace(ports=(1,)), PUT, SIGNAL._replace(ports=(1,))]
    program = pair(ops, [SIGNAL, WAIT], kind="port")
    block = program.gpus[0].blocks[0]._replace(ports=(MEMORY, PORT))
    assert analysis.check(edit_blocks(program, 0, block)).ok
    late = edit_blocks(program, 0, block._replace(ops=(ops[0], ops[2], ops[1])))
    assert rules(analysis.check(late)) == {"unfinished"}


def edit_blocks(program: Program, rank: int, *blocks: Block) -> Program:
    gpus = list(program.gpus)
    gpus[rank] = gpus[rank]._replace(blocks=blocks)
    return replace(program, gpus=tuple(gpus))


def test_a_reduction_reads_what_lies_elsewhere():
    gpus = []
    for r in (0, 1):
        ops = SIGNAL, WAIT, Op("reduce", (Span("i", 0), Span("i", 0, 1 - r)), O0), SIGNAL, WAIT
        gpus.append(Gpu(r, 1, 1, 0, (Block(None, None, 0, ops, (), (Port("memory", 1 - r, 0),)),)))
    program = Program("sum", collective("allreduce", 2), 1, tuple(gpus))
    assert not [f for f in analysis.check(program).findings if f.severity != "remark"]
    assert rules(analysis.check(edit(program, 0, 0, 2, src=(Span("i", 0), Span("i", 0))))) == {"wrong-output"}
    assert "race" in rules(analysis.check(replace(program, in_place="in")))


def test_a_port_without_its_other_end():
    program = pair([WAIT, PUT, SIGNAL], [SIGNAL, WAIT])
    odd = program.gpus[1].blocks[0]._replace(ports=(Port("memory", 0, 1),))
    assert {"port-pair", "deadlock"} <= rules(analysis.check(edit_blocks(program, 1, odd)))


@pytest.mark.parametrize(
    ("ops", "fault"),
    [
        ([WAIT, NOP, PUT, NOP, SIGNAL], False), ([WAIT, PUT, NOP, SIGNAL], True), ([WAIT, NOP, PUT, SIGNAL], True),
        ([WAIT, NOP, Op("cpy", I0, S0), Op("cpy", S0, (Span("s", 1),)), PUT, NOP, SIGNAL], True),
        ([WAIT, NOP, Op("cpy", I0, S0), NOP, Op("cpy", S0, (Span("s", 1),)), PUT, NOP, SIGNAL], False),
    ],
)  # fmt: skip
def test_the_threads_of_a_block_meet_where_mscclpp_needs_it(ops, fault):
    program = pair(ops, [SIGNAL, WAIT])
    assert analysis.check(program).ok
    assert rules(analysis.check(program, "mscclpp")) == ({"join"} if fault else set())


def test_blocks_of_a_plan_wait_for_each_other_in_nops():
    silent = Op("cpy", I0, S0)
    put = Op("put", S0, (Span("o", 0, 1),), ports=(0,))
    first = Block(None, None, 0, (silent, Op("nop", flag=True)), (), (MEMORY,))
    good = pair([WAIT, Op("nop", deps=(Dep(1, 1),)), put, NOP, SIGNAL], [SIGNAL, WAIT], more0=(first,))
    assert rules(analysis.check(good, "mscclpp")) == set()
    first = first._replace(ops=(silent._replace(flag=True),))
    bad = pair([WAIT, NOP, put._replace(deps=(Dep(1, 0),)), NOP, SIGNAL], [SIGNAL, WAIT], more0=(first,))
    assert analysis.check(bad).ok
    assert [(f.rule, f.block, f.op) for f in analysis.check(bad, "mscclpp").errors] == [("join", 0, 2), ("join", 1, 0)]


def test_limits_of_a_plan():
    long = [WAIT, NOP, *[Op("cpy", I0, S0), NOP] * 30, PUT, NOP, SIGNAL]
    assert rules(analysis.check(pair(long, [SIGNAL, WAIT]), "mscclpp")) == {"steps"}
    many = tuple(Port("memory", 1, k) for k in range(17))
    program = pair([WAIT, NOP, PUT, NOP, SIGNAL], [SIGNAL, WAIT])
    gpu = program.gpus[0]
    wide = replace(program, gpus=(gpu._replace(blocks=(gpu.blocks[0]._replace(ports=many),)), program.gpus[1]))
    assert rules(analysis.check(wide, "mscclpp")) == {"channels"}
    nine = Op("reduce", (Span("i", 0),) * 11, S0)
    assert "operands" in rules(analysis.check(pair([WAIT, NOP, nine, PUT, NOP, SIGNAL], [SIGNAL, WAIT]), "mscclpp"))
    assert "code" in rules(analysis.check(put_allgather(2), "msccl-executor"))
    far = Op("cpy", I0, PUT.dst)
    assert rules(analysis.check(pair([WAIT, NOP, far, NOP, SIGNAL], [SIGNAL, WAIT]), "mscclpp")) == {"operands"}


# ---------------------------------------------------------------- launches that follow each other


def with_idle_blocks(program, count):
    """`program` with `count` more blocks on each rank, which do nothing."""
    idle = (Block(None, None, 0, (Op("nop"), Op("nop")), (), ()),) * count
    return replace(program, gpus=tuple(gpu._replace(blocks=(*gpu.blocks, *idle)) for gpu in program.gpus))


def test_blocks_that_do_nothing_change_no_verdict():
    for number in range(60):
        program = onesided_launches.random_program(random.Random(f"idle {number}"))
        reports = [analysis.check(with_idle_blocks(program, count)) for count in (0, 1, 40)]
        assert len({report.findings for report in reports}) == 1, number
    for ops0, ops1, expected in (([PACKET], [UNPACK], {"packet-launch"}), ([WAIT, PACKET], [SIGNAL, UNPACK], set())):
        assert rules(analysis.check(with_idle_blocks(pair(ops0, ops1), 1 + (1 << 14)))) == expected


def test_random_programs_are_judged_alike():
    kinds = dict.fromkeys(("proved, right", "called wrong, wrong", "not analysed"), 0)
    for number in range(500):
        program = onesided_launches.random_program(random.Random(f"test {number}"))
        compared = onesided_launches.compare(program)
        assert compared.kind in kinds, (number, compared)
        kinds[compared.kind] += 1
    assert kinds["proved, right"] > 100
    assert kinds["called wrong, wrong"] > 100
    assert kinds["not analysed"] <= 10


def found(program, runtime="mscclpp"):
    """Lint's findings that are no remarks and no warnings, as (severity, rule)."""
    report = analysis.check(program, runtime)
    return {(f.severity, f.rule) for f in report.findings if f.severity in ("error", "not analysed")}


def test_packets_lie_in_twice_their_chunks_of_the_scratch():
    """The loader doubles the scratch of plans of protocol LL; what lies where packets do is not analysed."""
    ops = [PACKET, WAIT], [UNPACK, NOP, SIGNAL]
    assert found(pair(*ops, scratch=1, one_scratch=True, protocol="LL")) == set()
    assert found(pair(*ops, scratch=1, one_scratch=True)) == {("error", "bounds")}
    assert found(pair(*ops, scratch=2, one_scratch=True)) == set()
    with pytest.raises(SynthError, match="need the protocol LL"):
        document(pair(*ops, scratch=1))
    for chunk, kinds in ((1, {("not analysed", "packet-mix")}), (2, set())):
        keep = [UNPACK, NOP, Op("cpy", O0, (Span("s", chunk),)), NOP, SIGNAL]
        assert found(pair(ops[0], keep, scratch=4, one_scratch=True, protocol="LL")) == kinds


def test_plain_data_miss_the_half_in_turn():
    """With two halves a rank takes plain data from the half in turn; others put them into the first one."""
    ops = [WAIT, NOP, PACKET, PUT._replace(dst=(Span("s", 2, 1),)), NOP, SIGNAL]
    take = [SIGNAL, WAIT, NOP, UNPACK, NOP, Op("cpy", (Span("s", 2),), O0)]
    program = pair(ops, take, scratch=4, protocol="LL")
    assert found(program) == {("error", "packet-half")}
    assert found(replace(program, one_scratch=True)) == set()


def test_two_blocks_at_one_queue_are_not_analysed():
    """Which of their puts comes first is open, and a flush may come before the other's put."""
    second = Block(None, None, 0, (FLUSH,), (), (PORT,))
    shared = pair([KEEP, WAIT, SEND, SIGNAL, FLUSH], [SIGNAL, WAIT], "port", more0=(second,))
    assert found(shared, None) == {("not analysed", "two-ends")}
    assert analysis.check(shared).verdict == "not analysed"


def test_calls_that_are_asked_for_are_analysed_or_named():
    program = pair([PUT_SCRATCH, SIGNAL, WAIT], [WAIT, TAKE, SIGNAL])
    assert found(replace(program, min_bytes=64, max_bytes=32), None) == {("error", "sizes")}
    exchange = replace(program, collective=collective("sendrecv", 2))
    assert ("not analysed", "in-place") not in found(exchange, None)
    assert ("not analysed", "in-place") in found(replace(exchange, in_place="in"), None)
