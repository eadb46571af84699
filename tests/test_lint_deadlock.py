"""Deadlock: the largest size at which no rank waits for ever, at the real FIFO depth and split."""

from random import Random

import pytest

from synth.model.collective import collective
from synth.program.analysis import deadlock
from synth.program.analysis.connection_tables import build_connection_tables
from synth.program.analysis.deadlock import OpSplit, largest_safe_size, run_with_fifos, splits
from synth.program.program import Block, Dep, Gpu, Op, Program, Span
from synth.program.runtimes import FIFO_DEPTH, MIB, RUNTIMES
from tests import programs

I0, O0 = (Span("i", 0),), (Span("o", 0),)


def exchange(count, protocol="Simple", **changes):
    """Two ranks send `count` chunks to each other in one op, then receive: above a size nobody gets to receiving."""
    gpus = tuple(
        Gpu(r, count, count, 0, (Block(1 - r, 1 - r, 0, (Op("s", I0, (), count), Op("r", (), O0, count))),))
        for r in (0, 1)
    )
    return Program("exchange", collective("sendrecv", 2), count, gpus, protocol, **changes)


@pytest.mark.parametrize("name", ["msccl", "msccl-executor", "rccl", "synth"])
@pytest.mark.parametrize(
    "program",
    [
        programs.ring_allgather(4),
        programs.ring_allreduce(4),
        programs.direct_allgather(4, 2),
        programs.broadcast_chain(4, 20),
        programs.recursive_doubling_allreduce(4),
    ],
    ids=lambda p: p.name,
)
def test_known_algorithms_are_safe_at_every_size(program, name):
    assert largest_safe_size(program, name) is None


def test_sends_before_receives_are_safe_while_a_message_fits_the_fifo():
    assert largest_safe_size(exchange(2), "msccl-executor") is None  # two parts, and the FIFO holds two
    # 3 chunks: one part while a chunk has at most B / 3, two while it has at most B / 2, then three
    assert largest_safe_size(exchange(3), "msccl-executor") == 2 * MIB * 3 // 2
    assert largest_safe_size(exchange(8), "msccl-executor") == 2 * MIB * 8 // 4
    assert largest_safe_size(exchange(8, "LL"), "msccl-executor") is None
    assert largest_safe_size(exchange(24, "LL"), "msccl-executor") == 32 * 1024 * 24 // 3
    assert largest_safe_size(exchange(24, "LL"), "rccl") == 16 * 1024 * 24 // 3


def test_a_ring_of_fused_ops_needs_a_free_place():
    """Two parts fill the FIFO, and the fused op that would read one must write one at once."""
    assert largest_safe_size(programs.ring_allreduce(4, 8), "synth") == 2 * MIB * 8 // 2
    assert largest_safe_size(programs.ring_allgather(4, 2), "synth") == 2 * MIB * 8 // 2


def test_small_operations_of_rooted_collectives_count():
    """Executor and rccl move broadcasts in 512 KiB; a file that does not say what it computes gets the smaller
    bound."""
    forth = (Op("s", I0, (), 4), Op("r", (), (Span("s", 0),), 4))
    blocks = [
        (Block(1, 1, 0, forth), Block(None, None, 0, (Op("cpy", I0, O0, 4),))),
        (Block(0, 0, 0, (Op("s", (Span("s", 0),), (), 4), Op("r", (), O0, 4))),),
    ]
    program = Program("b", collective("broadcast", 2), 4, tuple(Gpu(r, 0 if r else 4, 4, 4, blocks[r]) for r in (0, 1)))
    assert largest_safe_size(program, "msccl-executor") == MIB // 2 * 4 // 2
    assert largest_safe_size(program, "msccl") == 2 * MIB * 4 // 2


def test_splits_that_move_the_same_parts_are_one():
    got = splits(exchange(5), RUNTIMES["msccl-executor"])
    most = 2 * MIB * 5
    assert got == [OpSplit(5, most // 5), OpSplit(3, most // 3), OpSplit(2, most // 2), OpSplit(1, None)]


def random_ring(random):
    """Three ranks that send, receive or pass on messages of up to 6 chunks around a ring, in any order."""
    counts = [[random.choice((1, 2, 3, 6)) for _ in range(random.randrange(1, 6))] for _ in range(3)]
    gpus = []
    for rank in range(3):
        into, out, ops = list(counts[rank - 1]), list(counts[rank]), []
        while into or out:
            code = random.choice(("s", "s", "r", "rcs"))
            if code == "rcs" and into and out and into[0] == out[0]:
                ops.append(Op("rcs", (), O0, into.pop(0)))
                out.pop(0)
            elif code == "s" and out:
                ops.append(Op("s", I0, (), out.pop(0)))
            elif code == "r" and into:
                ops.append(Op("r", (), O0, into.pop(0)))
        gpus.append(Gpu(rank, 6, 6, 0, (Block((rank + 1) % 3, (rank - 1) % 3, 0, tuple(ops)),)))
    return Program("random", collective("allgather", 3), 6, tuple(gpus))


def test_one_run_of_single_chunks_tells_what_runs_of_all_splits_do():
    random, found = Random(0), []
    for _ in range(300):
        program = random_ring(random)
        wired = build_connection_tables(program)
        assert not wired.faults
        safe, expected = 0, None
        for split in splits(program, RUNTIMES["synth"]):
            if run_with_fifos(wired, FIFO_DEPTH["Simple"], split.chunks):
                expected = safe
                break
            safe = split.limit
        found.append(expected)
        assert deadlock.first_deadlock(program, wired, RUNTIMES["synth"])[0] == expected
    assert found.count(None) > 30 and found.count(0) > 30 and len(set(found)) > 3


def test_the_cycle_of_waits_is_named():
    wired = build_connection_tables(exchange(3))
    waits = run_with_fifos(wired, 2, 1)
    assert [(w.gpu, w.block, w.op, w.on) for w in waits] == [(0, 0, 0, (1, 0)), (1, 0, 0, (0, 0))]
    assert "room on 0 -> 1 channel 0" in waits[0].reason


def test_dependencies_in_a_circle_are_safe_at_no_size():
    blocks = (
        Block(None, None, 0, (Op("cpy", I0, (Span("o", 0),), deps=(Dep(1, 0),), flag=True),)),
        Block(None, None, 0, (Op("cpy", I0, (Span("o", 1),), deps=(Dep(0, 0),), flag=True),)),
    )
    assert largest_safe_size(Program("c", None, 1, (Gpu(0, 1, 2, 0, blocks),)), "synth") == 0


def test_one_sided_programs_wait_at_any_size_or_at_none():
    program = programs.put_allgather(3)
    assert largest_safe_size(program, "mscclpp") is None
    gpu = program.gpus[0]
    silent = gpu.blocks[0]._replace(ops=(gpu.blocks[0].ops[0], gpu.blocks[0].ops[2]))
    assert (
        largest_safe_size(
            Program("x", program.collective, 1, (gpu._replace(blocks=(silent, *gpu.blocks[1:])), *program.gpus[1:])),
            "mscclpp",
        )
        == 0
    )
