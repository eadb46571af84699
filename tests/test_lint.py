"""Lint: each kind of fault is found on its own, and good programs have none."""

from dataclasses import replace
from functools import partial

import pytest

from synth.errors import UsageError
from synth.model.collective import collective
from synth.program import analysis as lint
from synth.program.analysis import analysis
from synth.program.program import Block, Dep, Gpu, Op, Program, Span
from tests import programs
from tests.programs import I0, O0, S0, edit

GOOD = [
    programs.ring_allgather(5),
    programs.ring_allgather(3, 2),
    programs.direct_allgather(4, 3),
    programs.ring_allreduce(4),
    programs.recursive_doubling_allreduce(8),
    programs.broadcast_chain(4, 2),
    programs.all_send_first(3, 2),
    programs.put_allgather(4, enters=True),
]


def rules(report, severity="error"):
    return {f.rule for f in report.findings if f.severity == severity}


@pytest.mark.parametrize("program", GOOD, ids=lambda p: p.name)
def test_good_programs_are_proved_in_both_modes(program):
    report = lint.check(program)
    assert report.ok, list(report.lines())
    assert report.analysed == (("out", "in") if program.in_place == "both" else ("out",))
    assert report.outputs == sum(len(post) for post in program.collective.post) * program.chunks
    *_, proved, judged = report.lines()
    assert "output chunks right" in proved
    assert program.collective is not None
    assert judged == f"judged: {program.collective.name}, {program.ranks} ranks, program {program.name}"


@pytest.mark.parametrize(
    "program", [*GOOD, edit(programs.recursive_doubling_allreduce(4), 2, 1, 0, deps=())], ids=lambda p: p.name
)
def test_blocks_watched_in_parts_give_the_same(program, monkeypatch):
    """Clocks of three blocks at a time: what large programs need, for memory's sake."""
    whole = {mode: lint.check(program, in_place=mode) for mode in analysis.modes(program)}
    monkeypatch.setattr(
        analysis.symbolic_execution, "execute_two_sided", partial(analysis.symbolic_execution.execute_two_sided, part=3)
    )
    monkeypatch.setattr(
        analysis.symbolic_execution_onesided,
        "execute_one_sided",
        partial(analysis.symbolic_execution_onesided.execute_one_sided, part=3),
    )
    for mode, report in whole.items():
        assert set(lint.check(program, in_place=mode).findings) == set(report.findings)
        assert report.ok == (program in GOOD)


DOUBLING = programs.recursive_doubling_allreduce(4)
DIRECT = programs.direct_allgather(2)
RING, SUMS = programs.ring_allgather(3), programs.ring_allreduce(3)
SHIFT = Block(None, None, 0, (Op("cpy", I0, O0, 4), Op("cpy", O0, (Span("o", 1),), 3)))


def more(program, block=None, **fields):
    """`program` with other fields of rank 0, and a block more."""
    gpu = program.gpus[0]._replace(**fields)
    gpu = gpu if block is None else gpu._replace(blocks=(*gpu.blocks, block))
    return replace(program, gpus=(gpu, *program.gpus[1:]))


def with_op(program, op):
    """`program` with an op more at the end of rank 0's first block."""
    return edit(program, 0, 0, 0, ops=(*program.gpus[0].blocks[0].ops, op))


def forwarding(scratch):
    """Rank 1 forwards what came without adding its own."""
    gpus = tuple(gpu._replace(scratch=scratch) for gpu in SUMS.gpus)
    return edit(replace(SUMS, gpus=gpus), 1, 0, 1, code="rcs", src=(), dst=S0)


# rules that an execution finds; what breaks another one is executed at no size
EXECUTED = {"race", "wrong-output", "uninitialised", "input-written", "overlap", "buffers"}
# program, the rules that it breaks, where it says so first, what it says there
FAULTS = [
    (edit(DOUBLING, 2, 1, 0, deps=()), {"race"}, (2, 0, 1), "reads output 0 of rank 2 while block 1 step 1 writes it"),
    (edit(DOUBLING, 1, 0, 1, flag=False), {"dep-unflagged"}, None, ""),
    (edit(programs.ring_allreduce(4), 1, 0, 3, src=(Span("o", 1),)), {"uninitialised", "wrong-output"}, None, ""),
    (edit(programs.ring_allreduce(4), 1, 0, 3, dst=O0), {"wrong-output"}, None, ""),
    (replace(with_op(SUMS, Op("re", I0, O0)), in_place="out"), {"wrong-output"}, None,
     "counts rank 0's contribution to chunk 0 twice (gpu 0 block 0 step 5)"),
    (forwarding(0), {"bounds"}, None, ""),
    (forwarding(1), {"wrong-output"}, None, "without the contribution of rank 1"),
    (edit(programs.direct_allgather(2, 2), 0, 0, 0, count=1), {"counts-differ"}, (1, 0, 1), ""),
    (edit(DIRECT, 0, 0, 0, ops=DIRECT.gpus[0].blocks[0].ops[:1]), {"unreceived"}, None, ""),
    (edit(DIRECT, 0, 0, 0, ops=DIRECT.gpus[0].blocks[0].ops[1:]), {"unsent"}, None, ""),
    (more(RING, Block(1, None, 0, (Op("s", I0),))), {"two-ends"}, (0, 1, None), ""),
    (replace(edit(RING, 0, 0, 0, src=O0), in_place="out"), {"uninitialised", "wrong-output"}, None,
     "output 0 of rank 0 before anything is written"),
    (replace(with_op(SUMS, Op("cpy", O0, I0)), in_place="out"), {"input-written"}, None, ""),
    (Program("shift", None, 1, (Gpu(0, 4, 4, 0, (SHIFT,)),)), {"overlap"}, None, ""),
    (edit(DIRECT, 0, 0, 0, count=0), {"count"}, (0, 0, 0), ""),
    (edit(DIRECT, 0, 0, 0, src=(Span("i", 1),)), {"bounds"}, (0, 0, 0), ""),
    (edit(DIRECT, 0, 0, 0, src=()), {"operands"}, (0, 0, 0), ""),
    (edit(DIRECT, 0, 0, 0, src=(Span("i", 0, 1),)), {"operands"}, (0, 0, 0), ""),
    (edit(DIRECT, 0, 0, 0, deps=(Dep(9, 0),)), {"dep-missing"}, (0, 0, 0), ""),
    (edit(DIRECT, 0, 0, 0, deps=(Dep(0, 9),)), {"dep-missing"}, (0, 0, 0), ""),
    (edit(DIRECT, 0, 0, 0, deps=(Dep(0, 1),)), {"dep-self"}, (0, 0, 0), ""),
    (edit(DIRECT, 0, 0, 0, code="put"), {"code"}, (0, 0, 0), ""),
    (more(DIRECT, Block(0, None, 0, ())), {"self-peer"}, None, ""),
    (more(DIRECT, Block(7, None, 0, ())), {"peer"}, None, ""),
    (replace(DIRECT, gpus=DIRECT.gpus[::-1]), {"ranks"}, None, ""),
    (more(DIRECT, Block(None, None, 0, (Op("cpy", I0, (Span("o", 2),)),)), output=3), {"buffers"}, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("program", "broken", "place", "words"), FAULTS)
def test_each_fault_is_found_on_its_own(program, broken, place, words):
    report = lint.check(program)
    assert rules(report) == broken
    assert (report.safe == 0) == (not broken & EXECUTED)
    assert any(words in f.message and place in (None, (f.gpu, f.block, f.op)) for f in report.errors), report.errors


def test_what_is_next_to_a_fault_is_none():
    assert lint.check(edit(DOUBLING, 1, 1, 1, flag=True)).ok
    assert lint.check(replace(with_op(SUMS, Op("cpy", O0, I0)), in_place="in")).ok


def test_a_program_that_is_right_only_out_of_place():
    """Copying the input to the output late: in place others have overwritten it by then."""
    swapped = Program("swap", collective("allreduce", 2), 2, tuple(
        Gpu(r, 2, 2, 0, (Block(1 - r, 1 - r, 0, (
            Op("s", I0), Op("rrc", I0, O0),
            Op("s", (Span("i", 1),)), Op("rrc", (Span("i", 1),), (Span("o", 1),)),
        )),)) for r in (0, 1)
    ), in_place="both")  # fmt: skip
    assert lint.check(swapped).ok
    ops = swapped.gpus[0].blocks[0].ops
    order = (ops[0], Op("cpy", I0, (Span("o", 1),)), *ops[1:])
    wrong = edit(swapped, 0, 0, 0, ops=order)
    assert lint.check(wrong, in_place="out").ok
    errors = lint.check(wrong).errors
    assert errors and all(f.message.endswith("(in place)") for f in errors)


def test_all_send_before_receive_above_a_size():
    report = lint.check(programs.all_send_first(3, 3))
    assert rules(report) == {"deadlock"}
    assert report.safe == 0
    assert "waits for ever at every size" in report.errors[0].message
    wide = programs.recursive_doubling_allreduce(4, 8)
    report = lint.check(wide)
    assert report.ok
    assert rules(report, "warning") == {"deadlock"}
    assert report.safe == 4 << 20
    assert "safe up to 4 MiB (runtime synth, its default buffer sizes)" in list(report.lines())
    assert rules(lint.check(replace(wide, max_bytes=(4 << 20) + 1))) == {"deadlock"}
    assert rules(lint.check(replace(wide, max_bytes=4 << 20)), "remark") == {"deadlock"}
    assert rules(lint.check(replace(wide, max_bytes=(4 << 20) + 1), "msccl")) == set()  # its upper end is not included
    assert rules(lint.check(replace(wide, max_bytes=(4 << 20) + 2), "msccl")) == {"deadlock"}


def sums(count, flags=(), counts=None):
    """A rank that adds `count` scratch chunks into its output."""
    copies = [Op("cpy", I0, (Span("s", k),)) for k in range(count)]
    adds = [Op("re", (Span("s", k),), O0, (counts or {}).get(k, 1), flag=k in flags) for k in range(count)]
    first = Op("cpy", I0, O0)
    return Program("sums", None, 1, (Gpu(0, 1, 4, count + 4, (Block(None, None, 0, (*copies, first, *adds)),)),))


def test_fused_sums():
    assert rules(lint.check(sums(16), "msccl-executor")) == set()
    report = lint.check(sums(17), "msccl-executor")
    assert rules(report) == {"re-chain"}
    assert report.errors[0].op == 18 + 16
    assert rules(lint.check(sums(17, flags={8}), "msccl-executor")) == set()
    assert rules(lint.check(sums(17))) == set()
    assert "re-chain" in rules(lint.check(sums(3, counts={1: 2}), "msccl"))
    assert "re-chain" not in rules(lint.check(sums(3, flags={0, 1}, counts={1: 2}), "msccl"))


def test_interleaved_instances_that_race():
    """Two instances of an exchange of two chunks; interleaved, the second instance's dependency names the wrong
    block."""

    def instance(k, deps):
        send = Op("s", (Span("s", 2 * k),), (), 2, deps, False)
        return Block(1, 1, k, (send,)), Block(
            None, None, 0, (Op("cpy", (Span("i", 2 * k),), (Span("s", 2 * k),), 2, (), True),)
        )

    def program(second):
        pairs = [instance(0, (Dep(1, 0),)), instance(1, (Dep(second, 0),))]
        take = tuple(Block(0, 0, k, (Op("r", (), (Span("o", 2 * k),), 2),)) for k in (0, 1))
        gpus = (Gpu(0, 4, 0, 4, (*pairs[0], *pairs[1])), Gpu(1, 0, 4, 0, take))
        return Program("pair", collective("alltonext", 2), 4, gpus)

    assert lint.check(program(3)).ok
    report = lint.check(program(1))
    assert rules(report) == {"race"}


def test_messages_order_what_lies_beyond_them():
    """Rank 0's second block may overwrite what the first sent once the answer is back, and not before."""

    def program(late):
        first = Block(1, None, 0, (Op("cpy", I0, S0), Op("s", S0)))
        second = Block(None, 1, 0, (Op("r", (), O0), Op("cpy", O0, S0)))
        there = Block(0, 0, 0, (Op("r", (), O0), Op("s", (Span("o", 0) if late else Span("i", 0),))))
        ops = there.ops if late else there.ops[::-1]
        gpus = (Gpu(0, 1, 1, 1, (first, second)), Gpu(1, 1, 1, 0, (there._replace(ops=ops),)))
        return Program("echo", None, 1, gpus)

    assert rules(lint.check(program(True))) == set()
    assert rules(lint.check(program(False))) == {"race"}


def test_chunks_of_a_split_message_are_ordered_one_by_one():
    """An echo that lands one chunk further on: the last chunk may not have been read when the message is split."""

    def program(shift):
        first = Block(1, None, 0, (Op("s", S0, (), 2),))
        own = Op("cpy", I0, S0, 2)
        first = first._replace(ops=(own, *first.ops))
        second = Block(None, 1, 0, (Op("r", (), (Span("s", shift),), 2),))
        gpus = (Gpu(0, 2, 0, 3, (first, second)), Gpu(1, 0, 2, 2, (Block(0, 0, 0, (Op("rcs", (), S0, 2),)),)))
        return Program("echo", None, 1, gpus)

    assert rules(lint.check(program(0))) == set()
    assert rules(lint.check(program(1))) == {"race"}


def test_buffers_of_absurd_size_are_refused_at_once():
    program = programs.direct_allgather(2)
    huge = program.gpus[0]._replace(scratch=10**9)
    report = lint.check(replace(program, gpus=(huge, program.gpus[1])))
    assert (rules(report, "not analysed"), report.verdict) == ({"too-large"}, "not analysed")
    assert "not analysed, for 1 reason: nothing is proved, and no error was found" in "\n".join(report.lines())


def test_steps_that_touch_too_many_chunks_together_are_refused_at_once():
    program = programs.direct_allgather(2)
    first = program.gpus[0]
    copy = Op("cpy", S0, (Span("s", 1 << 20),), 1 << 20)
    block = first.blocks[0]._replace(ops=(copy,) * 2)
    large = first._replace(scratch=1 << 21, blocks=(block, *first.blocks[1:]))
    report = lint.check(replace(program, gpus=(large, program.gpus[1])))
    (fault,) = report.findings
    assert report.verdict == fault.severity == "not analysed"
    assert (fault.rule, fault.gpu, fault.block, fault.op) == ("too-large", 0, 0, 0)


def test_limits_of_the_runtimes():
    ring = programs.ring_allgather(80)
    assert rules(lint.check(ring, "msccl-executor")) == {"steps"}
    assert rules(lint.check(ring, "msccl")) == set()
    assert rules(lint.check(ring, "rccl")) == {"steps", "code"}
    assert rules(lint.check(programs.direct_allgather(34), "msccl-executor")) == {"channel-blocks"}
    many = tuple(Block(None, None, 0, (Op("cpy", I0, (Span("s", k),)),)) for k in range(65))
    local = Program("local", None, 1, (Gpu(0, 1, 0, 65, many),))
    assert rules(lint.check(local, "rccl")) == {"blocks"}
    assert rules(lint.check(local, "msccl-executor")) == set()
    wide = programs.direct_allgather(2, 72)
    assert rules(lint.check(wide, "msccl-executor")) == {"count"}
    chain = programs.broadcast_chain(3)
    far = replace(chain, gpus=tuple(g._replace(blocks=(g.blocks[0]._replace(channel=32),)) for g in chain.gpus))
    assert rules(lint.check(far, "msccl")) == {"channels"}
    assert lint.check(replace(far, name="x" * 99), "msccl-executor").errors[0].rule == "channels"
    assert rules(lint.check(replace(chain, name="x" * 99), "msccl")) == {"name"}
    assert rules(lint.check(chain, "msccl-executor"), "warning") == {"root"}
    send = programs.all_send_first(3, 1)
    assert rules(lint.check(send, "msccl-executor")) == {"dispatch"}
    assert rules(lint.check(send, "msccl")) == set()
    swap = replace(send, in_place="both")
    assert rules(lint.check(swap)) == {"in-place"}
    assert rules(lint.check(replace(chain, min_bytes=9, max_bytes=8))) == {"sizes"}
    assert rules(lint.check(replace(chain, protocol="LL128"), "rccl"), "remark") == {"ll128"}
    with pytest.raises(UsageError, match="unknown runtime"):
        lint.check(chain, "nccl")


def test_far_blocks_and_many_dependencies():
    wait = Op("cpy", I0, O0, deps=(Dep(129, 0),))
    blocks = [Block(None, None, 0, (Op("cpy", I0, (Span("s", k),), flag=k in (0, 129)),)) for k in range(130)]
    program = Program("w", None, 1, (Gpu(0, 1, 1, 130, (*blocks, Block(None, None, 0, (wait,)))),))
    assert rules(lint.check(program, "msccl-executor")) == {"dep-block"}
    two = edit(program, 0, 130, 0, deps=(Dep(0, 0), Dep(129, 0)))
    assert rules(lint.check(two, "msccl-executor")) == {"dep-block", "deps"}
    assert rules(lint.check(two)) == set()


@pytest.mark.parametrize(
    ("ops", "fault"),
    [
        ([Op("nop", deps=(Dep(1, 0),)), Op("cpy", I0, O0, deps=(Dep(1, 1),))], False),
        ([Op("nop"), Op("cpy", I0, O0, deps=(Dep(1, 1),))], True),
        ([Op("nop", deps=(Dep(1, 0),)), Op("cpy", I0, O0)], True),
        ([Op("cpy", I0, O0), Op("nop", deps=(Dep(1, 1),))], True),
    ],
)
def test_nops(ops, fault):
    other = Block(None, None, 0, tuple(Op("cpy", I0, (Span("s", k),), flag=True) for k in (0, 1)))
    program = Program("n", None, 1, (Gpu(0, 1, 1, 2, (Block(None, None, 0, tuple(ops)), other)),))
    assert rules(lint.check(program, "msccl")) == ({"nop"} if fault else set())
    assert rules(lint.check(program)) == set()


def test_msccl_wants_whole_loops():
    program = programs.ring_allreduce(2, 4)
    assert rules(lint.check(program, "msccl")) == set()
    gpus = tuple(gpu._replace(output=5) for gpu in program.gpus)
    report = lint.check(replace(program, gpus=gpus, in_place="out"), "msccl")
    assert rules(report) == {"loop-chunks"}


def pairwise_allreduce(n, declared=True):
    """In place, as RCCL ships it: everyone sends everyone all, block k sums the chunk of rank k once all have been
    read."""

    def gpu(r):
        peers = [p for p in range(n) if p != r]

        def sums(chunk, mine):
            others = [k + 1 for k in range(n - 1) if k + 1 != mine]
            waits = [*(Dep(b, 0) for b in others), *(Dep(b, 1) for b in others)]
            chain = [Op("re", (Span("s", n * k + chunk),), (Span("i", chunk),)) for k in range(n - 1)]
            return *(Op("nop", deps=(dep,)) for dep in waits[:-1]), chain[0]._replace(deps=(waits[-1],)), *chain[1:]

        def block(k, p):
            ops = (Op("s", I0, (), n, (), True), Op("r", (), (Span("s", n * k),), n, (), True))
            return Block(p, p, 0, (*ops, *sums(p, k + 1)))

        blocks = (Block(None, None, 0, sums(r, 0)), *(block(k, p) for k, p in enumerate(peers)))
        return Gpu(r, n, n if declared else 0, n * (n - 1), blocks)

    return Program("pairs", collective("allreduce", n), n, tuple(gpu(r) for r in range(n)), "LL", "in")


def test_an_allreduce_in_place_as_it_is_shipped():
    """Its sums must wait until the other blocks have sent the chunk, as well as for what they receive."""
    for declared in (True, False):  # files in place often declare no output
        report = lint.check(pairwise_allreduce(4, declared), "rccl")
        assert report.ok, list(report.lines())
        assert report.analysed == ("in",)
    for op in range(6):  # block 0 waits for three sends and three receives; a block's send is before its receive anyway
        report = lint.check(edit(pairwise_allreduce(4), 0, 0, op, deps=()))
        assert rules(report) == ({"race"} if op >= 3 else set())
        assert {(f.gpu, f.block) for f in report.errors} <= {(0, b) for b in range(4)}


def test_what_is_not_known_is_said():
    report = lint.check(replace(programs.ring_allgather(3), collective=None, in_place="out"))
    assert (report.verdict, rules(report, "not analysed")) == ("not analysed", {"collective-unknown"})
    said, *_, judged = report.lines()
    assert "its outputs are not compared" in said and judged.startswith("judged: unknown collective, 3 ranks, ")


def test_a_wrong_program_is_not_said_to_be_safe():
    for program in (programs.all_send_first(3, 3), edit(programs.recursive_doubling_allreduce(4), 2, 1, 0, deps=())):
        report = lint.check(program)
        assert not report.ok and report.to_json()["safe_bytes"] == 0
        (message,) = [line for line in report.lines() if "buffer sizes" in line]
        assert message.startswith("wrong: ") and "safe at any" not in message and "safe up to" not in message
