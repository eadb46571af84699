"""The kernel on CPU threads: right to the bit for every type, operator and way to send, launch after launch, also after
one that was cut short, and no wait without end; the proofs of when a message may be put directly."""

import ctypes
import random
import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import random_programs
from host_runs import EVERY_TYPE, KNOWN, QUICK, needs_compiler, same_outputs
from programs import (
    I0,
    O0,
    all_send_first,
    broadcast_chain,
    direct_allgather,
    edit,
    put_allgather,
    racing_broadcast,
    ring_allgather,
    ring_allreduce,
)

from synth.commands import api
from synth.errors import MissingDependencyError, SynthError, UsageError, VerificationError
from synth.model.collective import collective
from synth.program import text
from synth.program.buffer_layout import Layout
from synth.program.direct_writes import direct_sends, ordered_without_messages
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Block, Dep, Gpu, Op, Program, Span
from synth.runtime import reference_data
from synth.runtime.dtypes import DTYPES, OPERATORS, dtype
from synth.runtime.host.executor import Host, collect_outputs, layout_of, side_by_side
from synth.runtime.kernel import build_host, launches, logical_clock, sources, tables
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.reference.executor import Reference
from synth.runtime.reference.op_tables import compile_program
from tests.command_line import synth


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 1000), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_programs_of_the_chunk_language(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        options = LoweringOptions(protocol=rng.choice(("Simple", "LL", "LL128")), instances=rng.randint(1, 2))
        program = lower(random_programs.schedule(seed), options)
        same_outputs(program, rng.choice((1, 7, 100)), rng.choice(QUICK), threads=rng.choice((1, 2, 4)))


def test_float16_is_rounded_as_numpy_does():
    """All 65 536 values and 200 000 random sums: infinities, subnormals and ties among them."""
    program, layout = ring_allreduce(2), Layout(collective("allreduce", 2), 2)
    rng = np.random.default_rng(1)
    for name in ("float16", "bfloat16"):
        kind = dtype(name)
        every = np.arange(65536, dtype=np.uint16).view(kind.numpy).reshape(2, -1)
        other = rng.integers(0, 65536, every.size, np.uint16).view(kind.numpy).reshape(2, -1)
        for op in ("sum", "prod", "max"):
            found, wanted = (
                made.run(program, [every, other], dtype=name, op=op, in_place=False).outputs
                for made in (Host(threads=2), Reference())
            )
            for mine, right in zip(found, wanted, strict=True):
                a, b = mine.astype(np.float32), right.astype(np.float32)
                assert np.array_equal(a, b, equal_nan=True)
    assert layout.inputs[0] == (0, 1)


def test_messages_left_behind_do_not_reach_the_next_launch():
    program = broadcast_chain(2)
    send, copy = program.gpus[0].blocks[0].ops
    program = edit(program, 0, 0, 0, ops=(send, send, copy))
    machine, arena = Host(threads=1).load(program, 4, dtype("int32"), in_place=False)
    for value in (1, 2, 3):
        arena.view(0, "i", 1)[:] = value
        machine.launch(build_host.library("copy").synth_copy, 1, 4)
        assert (arena.view(1, "o", 1) == value).all()


def test_records_are_as_large_as_the_kernels():
    sizes = (ctypes.c_longlong * 12)()
    build_host.library("copy").synth_sizes(sizes)
    records = (*tables.RECORDS, *logical_clock.RECORDS, *tables.ONE_SIDED_RECORDS)
    assert list(sizes) == [record.itemsize for record in records]


def test_what_it_refuses():
    given = [np.zeros((1, 4), np.float32)] * 3
    with pytest.raises(UsageError, match="one-sided: the kernel keeps logical time for programs of sends"):
        Host(clock="logical", network=api.topology("ring:3").network()).run(put_allgather(3), given, dtype="float32")
    with pytest.raises(UsageError, match="threads"):
        Host(threads=0).run(ring_allgather(3), given, dtype="float32")
    with pytest.raises(UsageError, match="no-data"):
        api.run(ring_allgather(3), executor="host", data=False)
    program = ring_allgather(3, 2)
    *ops, last = program.gpus[0].blocks[0].ops
    halves = [last._replace(count=1)] * 2
    for wrong, kind, why in (
        ((*ops, last, Op("cpy", O0, (Span("o", 1),), 2)), SynthError, "overlap in part"),
        ((*ops, *halves), VerificationError, "takes 1 chunks"),
    ):
        with pytest.raises(kind, match=why):
            Host().run(edit(program, 0, 0, 0, ops=wrong), [np.zeros((2, 4), np.float32)] * 3, dtype="float32")


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert Host().available() == "needs g++: apt install g++"
    with pytest.raises(SynthError, match="needs g\\+\\+: apt install g\\+\\+"):
        api.run(ring_allgather(3), executor="host")
    with pytest.raises(MissingDependencyError, match="apt install g"):
        build_host.build("int main() {}", tmp_path / "a")


def test_a_compiler_that_fails_is_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    with pytest.raises(SynthError) as error:
        build_host.build('#include "host.cpp"\nSYNTH_KERNEL(x, nonsense, Sum, 0)\n', tmp_path / "a")
    assert "cannot compile" in str(error.value) and "\n" not in str(error.value)


def test_groups_cover_every_instance():
    programs = (ring_allgather(3), ring_allreduce(3))
    made = {
        sources.instance(p, kind, op, way)
        for p in programs
        for kind in DTYPES
        for op in OPERATORS
        for way in sources.FEATURES
    }
    assert {m.symbol for m in made} == {symbol for group in sources.GROUPS for symbol in sources.symbols(group)}


# ---------------------------------------------------------------- ways to send


pytestmark = needs_compiler
WAYS = {sources.LL: {"protocol": "LL"}, sources.DIRECT: {}, sources.PLAIN: {"direct": False}}


def both(program, way, *shape, **options):
    """The outputs of a way to send are right, and the same as the reference's to the bit."""
    same_outputs(program, *shape, **{"threads": 2} | WAYS[way] | options)


def loaded(program, elements, kind="int32", **options):
    """A machine with its buffers, and what launches it once on inputs of a seed and checks every element."""
    host = Host(**{"threads": 2} | options)
    machine, arena = host.load(program, elements, dtype(kind), in_place=False)
    layout = Layout(program.collective, program.chunks)
    function, scale = machine.function(dtype(kind), "sum")

    def launch(seed):
        given = reference_data.random_inputs(layout, elements, dtype(kind), "sum", seed)
        arena.fill(given, layout, len(machine.cut.bounds))
        for rank, wanted in enumerate(layout.outputs):
            arena.view(rank, "o", len(wanted))[:] = -1
        machine.launch(function, host.threads, scale)
        reference_data.check(layout, dtype(kind), "sum", given, collect_outputs(arena, layout, dtype(kind), "sum"))

    return machine, launch


@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_every_type_and_operator(kind, way):
    for op in OPERATORS:
        both(ring_allreduce(3), way, kind=kind, op=op)


@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
@pytest.mark.parametrize(
    "options", [{"threads": 1}, {"threads": 4}, {"ranks_on": (0, 0, 1, 1)}, {"ranks_on": (3, 1, 0, 2)}], ids=str
)
def test_known_algorithms(way, options):
    for program in KNOWN:
        for elements, in_place in product((0, 1, 7, 1000), (False, True)):
            both(program, way, elements, "uint8" if elements == 7 else "float32", in_place=in_place, **options)


@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
def test_slices_and_parts(way):
    """LL's operations are of 32 KiB: a chunk of 70 001 bytes goes in three slices; parts of one chunk or two, of
    five."""
    both(ring_allreduce(3), way, 70_001, "uint8", **({"protocol": "LL128"} if way == sources.DIRECT else {}))
    both(ring_allgather(3, 5), way, 9, "float64", part=2, depth=4)
    both(ring_allreduce(3, 15), way, 9, "float16", part=2, depth=8)
    both(direct_allgather(3, 4), way, 9_001, "int8", part=3)


@pytest.mark.parametrize("way", list(WAYS))
def test_the_way_that_is_asked_for_is_taken(way):
    machine, launch = loaded(ring_allreduce(3), 5, **WAYS[way])
    assert machine.feature == way
    launch(0)
    fifo, put = machine.fifo.any(), machine.tables.ops["flags"] & tables.PUTS
    assert fifo and bool(put.any()) == (way == sources.DIRECT)
    assert machine.counters[:, 0].any() != (way == sources.LL)  # packets need no tail
    if way == sources.DIRECT:
        machine, launch = loaded(direct_allgather(3), 50)
        launch(3)
        assert machine.feature == way and not machine.fifo.any()


@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
def test_launches_after_one_that_was_cut_short(way):
    """Of packets, no flag of the aborted launch may be taken for one of the next, whose messages begin at 1 again."""
    machine, launch = loaded(ring_allreduce(3), 5, timeout=0.2, **WAYS[way])
    launch(1)
    ops = machine.tables.blocks["nops"].copy()
    machine.tables.blocks["nops"][1] = 2  # rank 1 stops in the middle
    with pytest.raises(
        DeadlockError, match=r"rank 2 block 0 op 2 .* waits for data from rank 1|rank 0 block 0 op . .* waits for"
    ):
        launch(2)
    machine.tables.blocks["nops"][:] = ops
    assert not machine.counters.any() and (way != sources.LL or not machine.fifo.any())
    for seed in range(3, 6):
        launch(seed)


@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
def test_a_deadlock_is_named_as_the_reference_names_it(way):
    ops = (Op("r", (), (Span("o", 1),)), Op("s", I0))
    ring = tuple(Gpu(r, 1, 3, 0, (Block((r + 1) % 3, (r - 1) % 3, 0, ops),)) for r in range(3))
    waiting = Program("waiting", collective("allgather", 3), 1, ring)
    for program in (waiting, all_send_first(2, 9)):
        options = WAYS[way]
        given = reference_data.random_inputs(Layout(program.collective, program.chunks), 3, dtype("float32"), "sum", 0)
        said = []
        for made in (
            Host(threads=2, timeout=0.3, **options),
            Reference(**{k: v for k, v in options.items() if k == "protocol"}),
        ):
            with pytest.raises(DeadlockError) as error:
                made.run(program, given, dtype="float32", op="sum", in_place=False)
            said.append(str(error.value))
            assert error.value.closed
        assert said[0] == said[1]


def test_one_that_waits_for_packets_and_for_room_is_said_to_wait_for_packets():
    """Rank 1 forwards to rank 2, which takes nothing, what rank 0 never sends any more: as the reference, data come
    first."""
    send, pass_on = Op("s", I0), Op("rcs", (), O0)
    gpus = (
        Gpu(0, 1, 1, 0, (Block(1, None, 0, (send,) * 8),)),
        Gpu(1, 0, 1, 0, (Block(2, 0, 0, (pass_on,) * 9),)),
        Gpu(2, 0, 1, 0, (Block(None, 1, 0, ()),)),
    )
    program = Program("dry", collective("broadcast", 3), 1, gpus)
    given = reference_data.random_inputs(Layout(program.collective, 1), 3, dtype("float32"), "sum", 0)
    with pytest.raises(
        DeadlockError, match=r"rank 1 block 0 op 8 .* waits for data from rank 0 on channel 0, which never comes"
    ):
        Host(protocol="LL", timeout=0.2).run(program, given, dtype="float32", op="sum", in_place=False)


# ------------------------------------------------------------ what may be put


def test_what_is_stored_may_be_put_and_what_is_added_may_not():
    assert {program.name: len(direct_sends(program, False, 1)) for program in KNOWN} == {
        "ring-allgather": 12,
        "direct-allgather": 12,
        "ring-allreduce": 12,
        "recursive-doubling": 0,
        "broadcast-chain": 15,
    }
    assert direct_sends(ring_allreduce(3), True, 1) == direct_sends(ring_allreduce(3), False, 1) != {}
    assert direct_sends(put_allgather(3), False, 1) == {}
    assert direct_sends(replace(ring_allgather(3), collective=None), False, 1) == {}


def overwriting(deps):
    """Rank 1 copies its output 0 to output 1 and then receives into output 0; `deps`: of the receive. The sender waits
    for nobody."""
    sends = (Op("s", I0), Op("s", I0))
    takes = Block(None, 0, 0, (Op("r", (), O0), Op("r", (), O0, 1, deps)))
    copies = Block(None, None, 0, (Op("cpy", O0, (Span("o", 1),), 1, (Dep(0, 0),)),))
    gpus = (Gpu(0, 1, 0, 0, (Block(1, None, 0, sends),)), Gpu(1, 0, 2, 0, (takes, copies)))
    return Program("overwriting", collective("broadcast", 2), 1, gpus)


def test_what_another_block_may_still_read_is_not_put():
    first = {(0, 0, 0): (1, 0, 0)}  # whatever touches the chunk comes after it
    assert (
        direct_sends(overwriting((Dep(1, 0),)), False, 1) == first
    )  # the second is ordered where it is received, not where it is sent
    assert direct_sends(overwriting(()), False, 1) == first  # a race whichever way


def test_an_answer_that_says_that_the_reader_has_ended_allows_it():
    """Rank 1 reads output 0 to answer rank 0, which sends the next into it when it has the answer."""
    here = Block(1, 1, 0, (Op("s", I0), Op("r", (), O0), Op("s", (Span("i", 1),))))
    there = Block(0, 0, 0, (Op("r", (), O0), Op("s", O0), Op("r", (), O0)))
    program = Program("answered", collective("broadcast", 2), 2, (Gpu(0, 2, 2, 0, (here,)), Gpu(1, 0, 2, 0, (there,))))
    assert set(direct_sends(program, False, 1)) == {(0, 0, 0), (0, 0, 2), (1, 0, 1)}


def test_in_place_the_input_is_the_output():
    """Rank 1 sends its input from one block and receives into the output, which is that memory in place, in another."""
    gpus = []
    for r in range(2):
        sender = Block(1 - r, None, 0, (Op("s", I0),))
        taker = Block(None, 1 - r, 0, (Op("r", (), O0),))
        gpus.append(Gpu(r, 1, 1, 0, (sender, taker)))
    program = Program("exchange", collective("allreduce", 2), 1, tuple(gpus))
    assert len(direct_sends(program, False, 1)) == 2 and direct_sends(program, True, 1) == {}
    assert ordered_without_messages(program, False) and not ordered_without_messages(program, True)


def test_messages_of_several_chunks_are_judged_as_they_are_cut():
    """Rank 0 sends o[0:2] round and gets it back one chunk on: in parts of one, part 0 returns before part 1 has
    left."""
    out = Op("s", O0, (), 2)
    back = Op("r", (), (Span("o", 1),), 2)
    gpus = (Gpu(0, 3, 3, 0, (Block(1, None, 0, (out,)), Block(None, 1, 0, (back,)))),
            Gpu(1, 0, 3, 0, (Block(0, 0, 0, (Op("rcs", (), O0, 2),)),)))  # fmt: skip
    program = Program("round", collective("broadcast", 2), 3, gpus)
    assert set(direct_sends(program, False, 2)) == {(0, 0, 0), (1, 0, 0)}
    assert set(direct_sends(program, False, 1)) == {(0, 0, 0)}


def test_programs_that_rely_on_messages_for_order_go_through_fifos():
    assert all(ordered_without_messages(program, in_place) for program in KNOWN for in_place in (False, True))
    assert not ordered_without_messages(racing_broadcast(), False)
    here = (Block(1, None, 0, (Op("s", I0),)), Block(None, 1, 0, (Op("r", (), I0),)))
    program = Program("back", collective("allreduce", 2), 1, (Gpu(0, 1, 1, 0, here), Gpu(1, 1, 1, 0, (
        Block(0, 0, 0, (Op("rcs", (), O0),)),))))  # fmt: skip
    assert not ordered_without_messages(program, True)
    code = Block(None, None, 0, ())
    assert ordered_without_messages(
        replace(program, gpus=(program.gpus[0]._replace(blocks=(here[0], code)), program.gpus[1])), True
    )


def test_lowered_programs_take_both_ways():
    """Recursive doubling and the direct exchange among 8: every store is put, and LL is allowed."""
    for name, task in (("direct", "allreduce"), ("direct", "alltoall"), ("recursive-doubling", "allgather")):
        program = api.lower(api.baseline(name, "fully-connected:8", task))
        stores = sum(op.code in ("r", "rcs") for gpu in program.gpus for block in gpu.blocks for op in block.ops)
        assert len(direct_sends(program, False, 4)) == stores > 0
        assert ordered_without_messages(program, False)
        for protocol in ("Simple", "LL"):
            assert (
                api.run(
                    program, executor="host", protocol=protocol, threads=1, size=program.loop_chunks * 4 * 3
                ).checked
                is not None
            )


def test_a_put_waits_for_the_receiver_to_begin_the_launch():
    """Rank 1's launch never starts: rank 0, which would put into its output, says so."""
    machine, _ = loaded(direct_allgather(2), 4, timeout=0.2)
    code = machine.code
    machine.tables.blocks["into"][
        [b for b, (rank, _) in enumerate(code.place) if rank == 1]
    ] = -1  # takes nothing, so never enters
    machine.tables.blocks["nops"][[b for b, (rank, _) in enumerate(code.place) if rank == 1]] = 0
    function, scale = machine.function(dtype("int32"), "sum")
    with pytest.raises(
        DeadlockError, match=r"rank 0 block 0 op 0 .* waits for rank 1 to begin this launch, which never comes"
    ):
        machine.launch(function, 1, scale)
    assert np.count_nonzero(machine.counters) == 0


# ---------------------------------------------------------------- a launch for each rank


@pytest.mark.parametrize("on", [(0, 0, 1, 1), pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", [{}, {"protocol": "LL"}, {"direct": False}], ids=["direct", "packets", "fifo"])
@pytest.mark.parametrize(
    "program", [KNOWN[0], *(pytest.param(p, marks=pytest.mark.slow) for p in KNOWN[1:])], ids=lambda p: p.name
)
def test_launches_back_to_back_none_waiting_for_the_others_end(program: Program, how, on):
    kind, elements = dtype("int32"), 5
    host = Host(threads=1, ranks_on=on, **how)
    machine, arena = host.load(program, elements, kind, in_place=False)
    layout, (call, scale) = layout_of(program), machine.function(kind, "sum")
    puts = (
        not how and program.name != "recursive-doubling"
    )  # partners' exchanges keep each other's order by their messages
    assert machine.feature == (sources.LL if "protocol" in how else sources.DIRECT if puts else sources.PLAIN)
    count = 200
    for seed, times in ((1, 1), (2, count - 1)):
        given = reference_data.random_inputs(layout, elements, kind, "sum", seed)
        arena.fill(given, layout, 1)
        machine.launch(call, 1, scale, times)
        reference_data.check(layout, kind, "sum", given, collect_outputs(arena, layout, kind, "sum"))
    assert set(machine.run) == {count}


def test_a_deadlock_across_launches_is_reported_and_the_next_run_is_right():
    with pytest.raises(DeadlockError) as one:
        api.run(all_send_first(3, 4), executor="host", timeout=0.2)
    host = Host(threads=2, timeout=0.2, ranks_on=(0, 1, 2))
    kind = dtype("float32")
    machine, _ = host.load(all_send_first(3, 4), 37, kind, in_place=False)
    call = build_host.library("copy").synth_copy
    for _ in range(2):
        with pytest.raises(DeadlockError) as several:
            machine.launch(call, 2, 4, 3)
        assert several.value.cycle == one.value.cycle
        assert not machine.abort.any() and not machine.counters.any()


def test_what_makes_no_sense_is_one_line():
    for on, why in (((0, 1), "has 3 ranks; --ranks-on names 2 devices"), ((0, -1, 0), "no device -1")):
        with pytest.raises(UsageError, match=why):
            api.run(ring_allgather(3), executor="host", ranks_on=on)
    program = ring_allgather(3)
    arena = Arena(program, layout_of(program), in_place=False, slices=1)
    assert launches.plan_launches(compile_program(program, arena, in_place=False), None, 5) == (
        launches.Launch(None, 0, 3, 5),
    )


def test_where_one_launch_has_no_threads_the_others_leave():
    abort = np.zeros(1, np.uint64)
    calls: list[int] = []

    def waits() -> int:
        while not abort[0]:
            pass
        return 0

    assert side_by_side([lambda: calls.append(1) or 1, waits], abort, 5) == 1
    assert calls == [1]
    with pytest.raises(SynthError, match="does not give"):
        machine, _ = Host(ranks_on=(0, 0, 0)).load(ring_allgather(3), 5, dtype("float32"), in_place=False)
        machine.launch(lambda prog, threads: 1, 4)


def test_the_command_line(tmp_path):
    path = tmp_path / "ring.txt"
    path.write_text(text.dump(ring_allreduce(4)))
    words = f"run {path} --executor host --size 4KB --ranks-on"
    synth(words, "0,0,1,1")
    assert tables.LAUNCH.itemsize == 16
    for bad, why in (("0,1", "names 2 devices"), ("0,x,1,1", "0,0,1,1"), ("0,,1", "0,0,1,1")):
        assert why in synth(words, bad, code=2).stderr
