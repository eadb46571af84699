"""Lint of one-sided programs over launches that follow each other, beside a judge that tries all orders of them."""

import random
from dataclasses import replace

import launch_judge
import pytest

from bench import onesided_launches
from synth.errors import SynthError
from synth.export.mscclpp.emit import document
from synth.model.collective import collective
from synth.program import analysis
from synth.program.program import Block, Gpu, Op, Port, Program, Span

HERE, THERE = Port("memory", 1, 0), Port("memory", 0, 0)
QUEUE, ITS_END = Port("port", 1, 0), Port("port", 0, 0)
IN, OUT = (Span("i", 0),), (Span("o", 0),)
SCRATCH, ITS_SCRATCH = (Span("s", 0),), (Span("s", 0, 1),)
SIGNAL, WAIT, FLUSH = Op("signal", ports=(0,)), Op("wait", ports=(0,)), Op("flush", ports=(0,))
COPY = Op("cpy", IN, OUT)
TAKE = Op("cpy", SCRATCH, OUT)
KEEP = Op("cpy", IN, SCRATCH)


def broadcast(ops0, ops1, ports=(HERE, THERE), **fields):
    """Rank 0 copies its input to its output, and rank 1 must end with it, too."""
    blocks = [(Block(None, None, 0, tuple(ops), (), (port,)),) for ops, port in zip((ops0, ops1), ports, strict=True)]
    gpus = (Gpu(0, 1, 1, 1, blocks[0]), Gpu(1, 0, 1, 1, blocks[1]))
    return Program("broadcast", collective("broadcast", 2, (0,)), 1, gpus, **fields)


PUT = Op("put", IN, ITS_SCRATCH, ports=(0,))
GET = Op("get", (Span("s", 0, 0),), OUT, ports=(0,))
SEND = Op("put", SCRATCH, (Span("o", 0, 1),), ports=(0,))
PACKET = Op("put", IN, (Span("s", 0, 1, True),), ports=(0,))
UNPACK = Op("cpy", (Span("s", 0, None, True),), OUT)
PORTS = (QUEUE, ITS_END)
CASES = {
    "get from scratch that the next launch fills": (broadcast([COPY, KEEP, SIGNAL], [WAIT, GET]), {"launch"}),
    "get from scratch, with an answer": (broadcast([COPY, KEEP, SIGNAL, WAIT], [WAIT, GET, SIGNAL]), set()),
    "put into scratch that its rank still reads": (broadcast([COPY, PUT, SIGNAL], [WAIT, TAKE]), {"launch"}),
    "put into scratch, with an answer": (broadcast([COPY, PUT, SIGNAL, WAIT], [WAIT, TAKE, SIGNAL]), set()),
    "put through a queue from scratch, nobody flushes": (
        broadcast([COPY, KEEP, WAIT, SEND, SIGNAL], [SIGNAL, WAIT], PORTS), {"launch"},
    ),
    "put through a queue from scratch, flushed": (
        broadcast([COPY, KEEP, WAIT, SEND, SIGNAL, FLUSH], [SIGNAL, WAIT], PORTS), set(),
    ),
    "put through a queue from the input, nobody flushes": (
        broadcast([COPY, WAIT, SEND._replace(src=IN), SIGNAL], [SIGNAL, WAIT], PORTS), {"unfinished"},
    ),
    "put into an output that its user may still read": (
        broadcast([COPY, PUT._replace(dst=(Span("o", 0, 1),)), SIGNAL], [WAIT]), {"entry"},
    ),
    "packets, two halves": (broadcast([COPY, PACKET], [UNPACK], protocol="LL"), {"packet-launch"}),
    "packets, one scratch": (broadcast([COPY, PACKET], [UNPACK], one_scratch=True), {"packet-launch"}),
    "packets, one scratch, answered": (
        broadcast([COPY, PACKET, WAIT], [UNPACK, SIGNAL], one_scratch=True), set(),
    ),
    "packets, two halves, one launch ahead": (
        broadcast([COPY, WAIT, PACKET], [SIGNAL, UNPACK], protocol="LL"), set(),
    ),
    "packets, one scratch, one launch ahead": (
        broadcast([COPY, WAIT, PACKET], [SIGNAL, UNPACK], one_scratch=True), set(),
    ),
    "a signal too many, and a wait that then orders nothing": (
        broadcast([COPY, WAIT, PUT, SIGNAL], [SIGNAL, SIGNAL, WAIT, TAKE]), {"launch"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lint_and_judge_of_programs_whose_verdict_is_known(name):
    program, expected = CASES[name]
    report = analysis.check(program)
    assert {finding.rule for finding in report.errors} == expected
    assert report.verdict == ("wrong" if expected else "right")
    assert (launch_judge.judge(program) == "") == (not expected)


def test_a_fault_names_the_two_ops_the_chunk_and_the_cure():
    (found,) = analysis.check(CASES["get from scratch that the next launch fills"][0]).errors
    assert (found.gpu, found.block, found.op) == (0, 0, 1)
    assert "overwrites scratch 0 of rank 0 in the next launch, while gpu 1 block 0 step 1" in found.message
    assert found.message.endswith("let rank 1 signal that it has first")
    (found,) = analysis.check(CASES["put through a queue from scratch, nobody flushes"][0]).errors
    assert found.message.endswith(
        "while gpu 0 block 0 step 3 of this one may still read it: flush the port channel first"
    )


def with_idle_blocks(program, count):
    """`program` with `count` more blocks on each rank, which do nothing."""
    idle = (Block(None, None, 0, (Op("nop"), Op("nop")), (), ()),) * count
    return replace(program, gpus=tuple(gpu._replace(blocks=(*gpu.blocks, *idle)) for gpu in program.gpus))


def test_blocks_that_do_nothing_change_no_verdict():
    for number in range(60):
        program = onesided_launches.random_program(random.Random(f"idle {number}"))
        reports = [analysis.check(with_idle_blocks(program, count)) for count in (0, 1, 40)]
        assert len({report.findings for report in reports}) == 1, number
    for name in ("packets, two halves", "packets, two halves, one launch ahead"):
        program, expected = CASES[name]
        report = analysis.check(with_idle_blocks(program, 1 + (1 << 14)))
        assert {finding.rule for finding in report.errors} == expected


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


def with_scratch(program, chunks):
    return replace(program, gpus=tuple(gpu._replace(scratch=chunks) for gpu in program.gpus))


def found(program, runtime="mscclpp"):
    """Lint's findings that are no remarks and no warnings, as (severity, rule)."""
    report = analysis.check(program, runtime)
    return {(f.severity, f.rule) for f in report.findings if f.severity in ("error", "not analysed")}


def test_packets_lie_in_twice_their_chunks_of_the_scratch():
    """The loader doubles the scratch of plans of protocol LL; what lies where packets do is not analysed."""
    answered = broadcast([COPY, PACKET, WAIT], [UNPACK, Op("nop"), SIGNAL], one_scratch=True)
    assert found(replace(answered, protocol="LL")) == set()
    assert found(answered) == {("error", "bounds")}
    assert found(with_scratch(answered, 2)) == set()
    with pytest.raises(SynthError, match="need the protocol LL"):
        document(replace(answered, one_scratch=False))
    for chunk, kinds in ((1, {("not analysed", "packet-mix")}), (2, set())):
        first, last = with_scratch(answered, 4).gpus
        keep = Op("cpy", OUT, (Span("s", chunk),))
        (block,) = last.blocks
        last = last._replace(blocks=(block._replace(ops=(UNPACK, Op("nop"), keep, Op("nop"), SIGNAL)),))
        assert found(replace(answered, gpus=(first, last), protocol="LL")) == kinds


def test_plain_data_miss_the_half_in_turn():
    """With two halves a rank takes plain data from the half in turn; others put them into the first one."""
    ops = [COPY, WAIT, Op("nop"), PACKET, PUT._replace(dst=(Span("s", 2, 1),)), Op("nop"), SIGNAL]
    take = Op("cpy", (Span("s", 2),), OUT)
    program = with_scratch(broadcast(ops, [SIGNAL, WAIT, Op("nop"), UNPACK, Op("nop"), take], protocol="LL"), 4)
    assert found(program) == {("error", "packet-half")}
    assert found(replace(program, one_scratch=True)) == set()


def test_two_blocks_at_one_queue_are_not_analysed():
    """Which of their puts comes first is open, and a flush may come before the other's put."""
    program = CASES["put through a queue from scratch, flushed"][0]
    (block,) = program.gpus[0].blocks
    other = block._replace(ops=(FLUSH,))
    shared = replace(program, gpus=(program.gpus[0]._replace(blocks=(block, other)), program.gpus[1]))
    assert found(shared, None) == {("not analysed", "two-ends")}
    assert analysis.check(shared).verdict == "not analysed"


def test_calls_that_are_asked_for_are_analysed_or_named():
    program = CASES["put into scratch, with an answer"][0]
    assert analysis.check(program).verdict == "right"
    assert found(replace(program, min_bytes=64, max_bytes=32), None) == {("error", "sizes")}
    exchange = replace(program, collective=collective("sendrecv", 2))
    assert ("not analysed", "in-place") not in found(exchange, None)
    assert ("not analysed", "in-place") in found(replace(exchange, in_place="in"), None)
