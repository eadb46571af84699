"""One-sided programs on CPU threads: the kernel that runs them gives the reference executor's bits, in every order."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal

import numpy as np
import pytest
import thread_sanitizer
from host_runs import needs_compiler, same_outputs
from programs import I0, O0, S0, put_allgather

from synth.errors import SynthError, UsageError
from synth.language.library import direct, hierarchical
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Block, Gpu, Op, Port, Program, Span
from synth.runtime.host.executor import Host
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.topologies import topology

pytestmark = needs_compiler
KINDS = [("float32", "sum"), ("float16", "avg"), ("float64", "prod"), ("int8", "max"), ("int32", "sum")]
needs_sanitizer = pytest.mark.skipif(
    thread_sanitizer.missing() is not None, reason=str(thread_sanitizer.missing())
)  # fmt: skip


MANY = 1000  # rounds of a step: enough for any of its sends


def random_schedule(random: Random, ranks: int) -> Schedule:
    """Return a random allreduce or broadcast over `ranks` ranks, of one to four chunks."""
    own = random.choice(["through", "local"])
    network = topology(f"switch:{ranks}:multicast={own}").multicast_network()
    chunks = random.randint(1, 4)
    name = random.choice(["allreduce", "broadcast"])
    steps: list[list] = [[] for _ in range(2 + 2 * ranks)]
    for chunk in range(chunks):
        rows = _allreduce(random, chunk, ranks) if name == "allreduce" else _spread(random, chunk, 0, ranks)
        for t, sends in enumerate(rows):
            steps[t] += sends
    listed = []
    for row in steps:
        plain = tuple(sorted(send for send in row if isinstance(send, Send)))
        through = tuple(sorted(send for send in row if isinstance(send, SwitchSend)))
        if row:
            listed.append(Step(MANY, plain, through))
    return Schedule(network, collective(name, ranks), chunks, tuple(listed))


def _allreduce(random: Random, chunk: int, ranks: int) -> list[list]:
    """Fetch sums inside random groups, add these at one leader, then spread the sum."""
    order = random.sample(range(ranks), ranks)
    groups = []
    while order:
        size = random.randint(1, len(order))
        groups.append(sorted(order[:size]))
        order = order[size:]
    leaders = [random.choice(group) for group in groups]
    fetched = []
    for leader, group in zip(leaders, groups, strict=True):
        if len(group) > 1:
            fetched.append(SwitchSend(chunk, leader, tuple(group), "fetch-reduce", "switch"))
    added = [[Send(chunk, leader, leaders[0], "reduce")] for leader in leaders[1:]]
    return [fetched, *added, *_spread(random, chunk, leaders[0], ranks)]


def _spread(random: Random, chunk: int, root: int, ranks: int) -> list[list]:
    """Copy the value of `root` to all ranks, in each step from one holder to some that lack it."""
    holders, missing, rows = [root], [rank for rank in range(ranks) if rank != root], []
    while missing:
        holder, group = random.choice(holders), random.sample(missing, random.randint(1, len(missing)))
        if len(group) == 1 and random.random() < 0.5:
            rows.append([Send(chunk, holder, group[0])])
        else:
            rows.append([SwitchSend(chunk, holder, tuple(sorted([holder, *group])), "multicast", "switch")])
        holders += group
        missing = [rank for rank in missing if rank not in group]
    return rows


def random_program(seed: int, protocol: str = "Simple") -> tuple[Program, Random]:
    """Return the program of a random schedule with switch sends."""
    random = Random(seed)
    schedule = random_schedule(random, random.randint(2, 8))
    in_place = random.choice(["out", "in"])
    return onesided(schedule, LoweringOptions("mscclpp", protocol, in_place=in_place)), random


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))])
def test_multicasts_and_fetched_sums_have_the_bits_of_the_reference(seed: int) -> None:
    program, random = random_program(seed)
    kind, op = KINDS[seed % len(KINDS)]
    apart = (0,) * program.ranks if seed % 3 == 0 else None
    elements, threads = random.choice([1, 16, 37]), random.choice([1, 4])
    in_place = program.in_place == "in"
    same_outputs(program, elements, kind, op, in_place, threads=threads, ranks_on=apart)


@needs_sanitizer
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_signals_order_all_accesses(threads: int) -> None:
    program, _ = random_program(0)  # an allreduce with both operations
    assert {"glres", "gstore"} <= {op.code for gpu in program.gpus for block in gpu.blocks for op in block.ops}
    found = thread_sanitizer.find_races(program, threads=threads, launches=3)
    assert found == thread_sanitizer.RaceReport((), False, True)


@needs_sanitizer
@pytest.mark.slow
def test_a_wait_that_is_left_out_is_a_race() -> None:
    program = put_allgather(3)
    gpus = []
    for gpu in program.gpus:
        blocks = []
        for block in gpu.blocks:
            ops = [Op("nop") if op.code == "wait" else op for op in block.ops]
            reads = [Op("cpy", (Span("o", (gpu.rank + 1) % 3),), S0)]
            blocks.append(block._replace(ops=(*ops, *reads)))
        gpus.append(gpu._replace(blocks=tuple(blocks), scratch=1))
    assert thread_sanitizer.find_races(replace(program, gpus=tuple(gpus)), threads=1, elements=64).races


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_packets(kind: str) -> None:
    random = Random(3)
    schedule = random_schedule(random, 4)
    plain = replace(
        schedule, steps=tuple(step._replace(sends=step.unicast_sends, switch_sends=()) for step in schedule.steps)
    )
    plain = replace(plain, network=replace(plain.network, multicast=()))
    program = onesided(plain, LoweringOptions("mscclpp", "LL"))
    assert any(span.packet for gpu in program.gpus for block in gpu.blocks for op in block.ops for span in op.src)
    same_outputs(program, 37, kind)
    with pytest.raises(UsageError, match="would overwrite packets"):
        same_outputs(program, 37, kind, ranks_on=(0,) * 4)


@pytest.mark.parametrize("in_place", ["in", "out"])
@pytest.mark.parametrize("machine", ["fully-connected:4", "dgx-a100*2"])
def test_sums_of_packets(machine: str, in_place: Literal["in", "out"]) -> None:
    """Without joins between operations of packets, in the box and on the way to another one."""
    boxes = (0,) * 8 + (1,) * 8 if machine == "dgx-a100*2" else None
    library = direct if boxes is None else hierarchical
    options = LoweringOptions("mscclpp", "LL", in_place=in_place, nodes=boxes)
    program = onesided(library.allreduce.schedule(machine, chunks=1), options)
    ops = [op for gpu in program.gpus for block in gpu.blocks for op in block.ops]
    assert any(op.code == "reduce" for op in ops)
    assert all(op.code != "nop" for op in ops)
    same_outputs(program, 37, in_place=in_place == "in", threads=4)


@needs_sanitizer
@pytest.mark.slow
def test_threads_order_packets_on_the_same_chunks() -> None:
    options = LoweringOptions("mscclpp", "LL", in_place="in")
    program = onesided(direct.allreduce.schedule("fully-connected:4", chunks=1), options)
    found = thread_sanitizer.find_races(program, threads=4, launches=3, in_place=True)
    assert found == thread_sanitizer.RaceReport((), False, True)


def local(*blocks: tuple[Op, ...], ports: tuple[Port, ...] = ()) -> Program:
    """Return an allgather over two ranks whose rank 0 has `blocks`."""
    task = collective("allgather", 2)
    rows = tuple(Block(None, None, 0, ops, ports=ports) for ops in blocks)
    back = Block(None, None, 0, (Op("nop"),), ports=(Port("memory", 0, 0),))
    return Program("p", task, 1, (Gpu(0, 1, 2, 1, rows), Gpu(1, 1, 2, 1, (back,))))


TO_1 = (Port("memory", 1, 0),)
MEETING = Op("barrier", group=(0, 1))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (local((Op("wait", ports=(0,)),), ports=TO_1), r"waits for a signal from rank 1 \(memory port 0\)"),
        (local((MEETING,), (Op("nop"),), ports=TO_1), "waits for block 1 at the barrier"),
        (local((Op("cpy", (Span("s", 0, packet=True),), O0),), ports=TO_1), r"waits for packets in s\[0\]"),
    ],
)
def test_waits_that_never_end_are_named(program: Program, message: str) -> None:
    given = [np.zeros((1, 4), np.float32)] * 2
    with pytest.raises(DeadlockError, match=message):
        Host(timeout=0.2).run(program, given, dtype="float32")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            local((Op("signal", ports=(0,)),), (Op("signal", ports=(0,)),), ports=TO_1),
            "another block signals on this port",
        ),
        (local((Op("cpy", O0, (Span("o", 1),), 2),), ports=TO_1), "beyond the output"),
        (local((Op("cpy", O0, I0),), ports=TO_1), "writes the input"),
    ],
)
def test_programs_that_the_kernel_does_not_run(program: Program, message: str) -> None:
    given = [np.zeros((1, 4), np.float32)] * 2
    with pytest.raises(SynthError, match=message):
        Host().run(program, given, dtype="float32")


def test_barriers_and_several_pairs_of_one_put() -> None:
    task = collective("allgather", 2)
    gpus = []
    for rank in range(2):
        pairs = Op(
            "put", (Span("i", 0), Span("s", 0)), (Span("o", rank, 1 - rank), Span("s", 1, 1 - rank)), ports=(0, 0)
        )
        first = (Op("cpy", I0, S0), pairs, Op("signal", ports=(0,)), Op("wait", ports=(0,)))
        blocks = (
            Block(None, None, 0, (*first, MEETING, MEETING), ports=(Port("memory", 1 - rank, 0),)),
            Block(None, None, 0, (MEETING, Op("cpy", I0, (Span("o", rank),)), MEETING)),
        )
        gpus.append(Gpu(rank, 1, 2, 2, blocks))
    same_outputs(Program("p", task, 1, tuple(gpus)), 37)
