"""Lint of one-sided programs: signals, barriers, packets and port channels as order; MSCCL++'s limits."""

from dataclasses import replace

import pytest

from synth.model.collective import collective
from synth.program import analysis
from synth.program.analysis.symbolic_execution_onesided import OneSidedExecution
from synth.program.program import Block, Dep, Gpu, Op, Port, Program, Span
from synth.program.straight_line import StraightLine
from tests.programs import edit, put_allgather
from tests.test_lint import rules

MEMORY, PORT = Port("memory", 1, 0), Port("port", 1, 0)
BACK = {"memory": Port("memory", 0, 0), "port": Port("port", 0, 0)}
I0, O0, S0 = (Span("i", 0),), (Span("o", 0),), (Span("s", 0),)
SIGNAL, WAIT, FLUSH, NOP = Op("signal", ports=(0,)), Op("wait", ports=(0,)), Op("flush", ports=(0,)), Op("nop")


def pair(ops0, ops1, kind="memory", name="alltonext", more0=(), scratch=2):
    """Rank 0's block with a port to rank 1, and rank 1's with one back; rank 0's input goes to rank 1's output."""
    blocks0 = (Block(None, None, 0, tuple(ops0), (), (Port(kind, 1, 0),)), *more0)
    gpus = (
        Gpu(0, 1, 0, scratch, blocks0),
        Gpu(1, 0, 1, scratch, (Block(None, None, 0, tuple(ops1), (), (BACK[kind],)),)),
    )
    return Program("pair", collective(name, 2), 1, gpus)


PUT = Op("put", I0, (Span("o", 0, 1),), ports=(0,))


def test_entry_put_signal_wait_is_proved():
    report = analysis.check(pair([WAIT, PUT, SIGNAL], [SIGNAL, WAIT]))
    assert not [f for f in report.findings if f.severity != "remark"]
    assert report.outputs == 1
    assert report.safe is None


def test_who_is_not_in_the_call_yet_keeps_its_memory():
    """A put of the next launch may come before rank 1's user has read the output of this one."""
    report = analysis.check(pair([PUT, SIGNAL], [WAIT]))
    assert rules(report) == {"entry"}
    assert "output 0 of rank 1" in next(f for f in report.findings if f.rule == "entry").message


def test_a_call_does_not_return_before_the_data_are_there():
    assert rules(analysis.check(pair([WAIT, PUT], [SIGNAL]))) == {"unfinished"}


def test_a_read_of_scratch_needs_the_signal():
    put = PUT._replace(dst=(Span("s", 0, 1),))
    take = Op("cpy", S0, O0)
    assert analysis.check(pair([WAIT, put, SIGNAL], [SIGNAL, WAIT, take])).ok
    assert rules(analysis.check(pair([WAIT, put, SIGNAL], [SIGNAL, take, WAIT]))) == {"race"}


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_the_source_of_a_put_is_free_once_it_has_left(kind):
    """A port channel's engine reads later: only flush, or an answer, says that it has."""
    first, again = Op("cpy", I0, S0), Op("cpy", I0, S0)
    put = Op("put", S0, (Span("o", 0, 1),), ports=(0,))
    early = analysis.check(pair([WAIT, first, put, again, SIGNAL], [SIGNAL, WAIT], kind))
    assert rules(early) == (set() if kind == "memory" else {"race"})
    assert analysis.check(pair([WAIT, first, put, FLUSH, again, SIGNAL], [SIGNAL, WAIT], kind)).ok
    answered = pair([WAIT, first, put, SIGNAL, WAIT, again], [SIGNAL, WAIT, SIGNAL], kind)
    assert analysis.check(answered).ok


def test_a_port_channel_that_only_signals_needs_no_clock_of_its_own():
    """Blocks have the clocks 0 and 1. The engine of a channel that moves data has another, which a flush waits for."""

    def engines(program: Program) -> dict:
        return OneSidedExecution(StraightLine(program), False, range(4)).engines

    ops = [WAIT, PUT, SIGNAL], [SIGNAL, WAIT]
    assert engines(pair(*ops, kind="port")) == {(0, PORT): 2}
    signals = pair([WAIT._replace(ports=(1,)), PUT, SIGNAL._replace(ports=(1,))], ops[1], kind="port")
    block = signals.gpus[0].blocks[0]._replace(ports=(MEMORY, PORT))
    signals = edit_blocks(signals, 0, block)
    assert engines(signals) == {}
    assert analysis.check(signals).ok
    late = edit_blocks(signals, 0, block._replace(ops=(block.ops[0], block.ops[2], block.ops[1])))
    assert rules(analysis.check(late)) == {"unfinished"}


def edit_blocks(program: Program, rank: int, *blocks: Block) -> Program:
    gpus = list(program.gpus)
    gpus[rank] = gpus[rank]._replace(blocks=blocks)
    return replace(program, gpus=tuple(gpus))


def test_get_and_reduce_read_what_lies_elsewhere():
    get = Op("get", (Span("i", 0, 0),), O0, ports=(0,))
    assert analysis.check(pair([SIGNAL, WAIT], [WAIT, get, SIGNAL])).ok
    assert rules(analysis.check(pair([SIGNAL], [WAIT, get]))) == {"unfinished"}
    gpus = []
    for r in (0, 1):
        ops = SIGNAL, WAIT, Op("reduce", (Span("i", 0), Span("i", 0, 1 - r)), O0), SIGNAL, WAIT
        gpus.append(Gpu(r, 1, 1, 0, (Block(None, None, 0, ops, (), (Port("memory", 1 - r, 0),)),)))
    program = Program("sum", collective("allreduce", 2), 1, tuple(gpus))
    assert not [f for f in analysis.check(program).findings if f.severity != "remark"]
    assert rules(analysis.check(edit(program, 0, 0, 2, src=(Span("i", 0), Span("i", 0))))) == {"wrong-output"}
    assert "race" in rules(analysis.check(replace(program, in_place="in")))


def test_packets_need_no_signal():
    packet = Op("put", I0, (Span("s", 0, 1, True),), ports=(0,))
    take = Op("cpy", (Span("s", 0, None, True),), O0)
    report = analysis.check(pair([packet, WAIT], [take, SIGNAL]))
    assert report.verdict == "right"
    assert not [f for f in report.findings if f.severity != "remark"]
    assert rules(analysis.check(pair([packet], [take]))) == {"packet-launch"}
    assert rules(analysis.check(pair([packet], [Op("cpy", S0, O0)]))) == {"packet-mix", "race"}
    assert "packet-twice" in rules(analysis.check(pair([packet, packet], [take])))
    plain = PUT._replace(dst=(Span("s", 0, 1),))
    assert "packet-mix" in rules(analysis.check(pair([packet, plain, SIGNAL], [WAIT, take])))
    report = analysis.check(pair([NOP], [take]))
    assert rules(report) == {"deadlock"}
    assert "for packet s[0] of rank 1" in report.errors[0].message


def test_blocks_meet_at_a_barrier():
    meet = Op("barrier", group=(0, 1))
    other = Block(None, None, 0, (Op("cpy", I0, S0), meet), (), (MEMORY,))
    put = Op("put", S0, (Span("o", 0, 1),), ports=(0,))
    assert analysis.check(pair([WAIT, meet, put, SIGNAL], [SIGNAL, WAIT], more0=(other,))).ok
    report = analysis.check(pair([WAIT, put, SIGNAL, meet], [SIGNAL, WAIT], more0=(other,)))
    assert rules(report) == {"race"}
    report = analysis.check(pair([WAIT, put, SIGNAL], [SIGNAL, WAIT], more0=(other,)))
    assert "deadlock" in rules(report)
    assert report.safe == 0


def test_dependencies_order_blocks():
    first = Block(None, None, 0, (Op("cpy", I0, S0, flag=True),), (), (MEMORY,))
    put = Op("put", S0, (Span("o", 0, 1),), ports=(0,), deps=(Dep(1, 0),))
    assert analysis.check(pair([WAIT, put, SIGNAL], [SIGNAL, WAIT], more0=(first,))).ok
    silent = first._replace(ops=(first.ops[0]._replace(flag=False),))
    assert rules(analysis.check(pair([WAIT, put, SIGNAL], [SIGNAL, WAIT], more0=(silent,)))) == {"dep-unflagged"}


def test_signals_that_do_not_match():
    report = analysis.check(pair([WAIT, PUT, SIGNAL, SIGNAL], [SIGNAL, WAIT]))
    assert (rules(report, "warning"), rules(report)) == ({"signals-left"}, {"unfinished"})
    harmless = analysis.check(pair([WAIT, PUT, SIGNAL], [SIGNAL, SIGNAL, WAIT]))  # rank 1 may be a launch behind
    assert (rules(harmless, "warning"), rules(harmless)) == ({"signals-left"}, {"entry"})
    assert rules(analysis.check(pair([WAIT, PUT, SIGNAL], [SIGNAL, WAIT, WAIT]))) == {"deadlock"}
    program = pair([WAIT, PUT, SIGNAL], [SIGNAL, WAIT])
    gpu = program.gpus[1]
    odd = gpu._replace(blocks=(gpu.blocks[0]._replace(ports=(Port("memory", 0, 1),)),))
    assert {"port-pair", "deadlock"} <= rules(analysis.check(replace(program, gpus=(program.gpus[0], odd))))
    twice = Block(None, None, 0, (SIGNAL,), (), (MEMORY,))
    assert "two-ends" in rules(analysis.check(pair([WAIT, PUT, SIGNAL], [SIGNAL, WAIT, WAIT], more0=(twice,))))


def test_a_put_by_the_wrong_port():
    assert rules(analysis.check(pair([WAIT, PUT._replace(dst=S0), SIGNAL], [SIGNAL, WAIT]))) == {"port", "wrong-output"}


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
