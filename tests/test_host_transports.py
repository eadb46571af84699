"""Packets and direct put on CPU threads: right to the bit, launch after launch and after one that was cut short; and
the proofs of when a message may be put directly."""

from dataclasses import replace

import numpy as np
import pytest
from host_runs import EVERY_TYPE, KNOWN, needs_compiler, same_outputs
from programs import all_send_first, direct_allgather, put_allgather, racing_broadcast, ring_allgather, ring_allreduce

from synth.commands import api
from synth.model.collective import collective
from synth.program.buffer_layout import Layout
from synth.program.direct_writes import direct_sends, ordered_without_messages
from synth.program.program import Block, Dep, Gpu, Op, Program, Span
from synth.runtime import reference_data
from synth.runtime.dtypes import OPERATORS, dtype
from synth.runtime.host.executor import Host, collect_outputs
from synth.runtime.kernel import sources, tables
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.reference.executor import Reference

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


@needs_compiler
@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_packets_of_every_type_and_operator(kind):
    for op in OPERATORS:
        both(ring_allreduce(3), sources.LL, kind=kind, op=op)


@needs_compiler
@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
@pytest.mark.parametrize("threads", [1, 4])
def test_known_algorithms(way, threads):
    for program in KNOWN:
        for elements in (0, 1, 7, 1000):
            for in_place in (False, True):
                both(
                    program, way, elements, "uint8" if elements == 7 else "float32", in_place=in_place, threads=threads
                )


@needs_compiler
@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
def test_slices_and_parts(way):
    """LL's operations are of 32 KiB: a chunk of 70 001 bytes goes in three slices; parts of one chunk or two, of
    five."""
    both(ring_allreduce(3), way, 70_001, "uint8", **({"protocol": "LL128"} if way == sources.DIRECT else {}))
    both(ring_allgather(3, 5), way, 9, "float64", part=2, depth=4)
    both(ring_allreduce(3, 15), way, 9, "float16", part=2, depth=8)
    both(direct_allgather(3, 4), way, 9_001, "int8", part=3)


@needs_compiler
@pytest.mark.parametrize("way", list(WAYS))
def test_the_way_that_is_asked_for_is_taken(way):
    machine, launch = loaded(ring_allreduce(3), 5, **WAYS[way])
    assert machine.feature == way
    launch(0)
    fifo, put = machine.fifo.any(), machine.tables.ops["flags"] & tables.PUTS
    assert fifo and bool(put.any()) == (way == sources.DIRECT)
    assert machine.counters[:, 0].any() != (way == sources.LL)  # packets need no tail


@needs_compiler
def test_what_is_put_directly_needs_no_fifo():
    machine, launch = loaded(direct_allgather(3), 50)
    launch(3)
    assert machine.feature == sources.DIRECT and not machine.fifo.any()


@needs_compiler
@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
@pytest.mark.parametrize("on", [None, pytest.param((0, 0, 0), marks=pytest.mark.slow)])
def test_a_thousand_launches_back_to_back(way, on):
    for program, elements in ((ring_allreduce(3), 5), (direct_allgather(3), 3)):
        machine, launch = loaded(program, elements, threads=1, ranks_on=on, **WAYS[way])
        function, scale = machine.function(dtype("int32"), "sum")
        launch(1)
        machine.launch(function, 1, scale, 500)
        launch(2)
        machine.launch(function, 1, scale, 497)
        launch(3)
        assert set(machine.run) == {1000}


@needs_compiler
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


@needs_compiler
@pytest.mark.parametrize("way", [sources.LL, sources.DIRECT])
def test_a_deadlock_is_named_as_the_reference_names_it(way):
    ops = (Op("r", (), (Span("o", 1),)), Op("s", (Span("i", 0),)))
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


@needs_compiler
def test_one_that_waits_for_packets_and_for_room_is_said_to_wait_for_packets():
    """Rank 1 forwards to rank 2, which takes nothing, what rank 0 never sends any more: as the reference, data come
    first."""
    send, pass_on = Op("s", (Span("i", 0),)), Op("rcs", (), (Span("o", 0),))
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
    sends = (Op("s", (Span("i", 0),)), Op("s", (Span("i", 0),)))
    takes = Block(None, 0, 0, (Op("r", (), (Span("o", 0),)), Op("r", (), (Span("o", 0),), 1, deps)))
    copies = Block(None, None, 0, (Op("cpy", (Span("o", 0),), (Span("o", 1),), 1, (Dep(0, 0),)),))
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
    here = Block(1, 1, 0, (Op("s", (Span("i", 0),)), Op("r", (), (Span("o", 0),)), Op("s", (Span("i", 1),))))
    there = Block(0, 0, 0, (Op("r", (), (Span("o", 0),)), Op("s", (Span("o", 0),)), Op("r", (), (Span("o", 0),))))
    program = Program("answered", collective("broadcast", 2), 2, (Gpu(0, 2, 2, 0, (here,)), Gpu(1, 0, 2, 0, (there,))))
    assert set(direct_sends(program, False, 1)) == {(0, 0, 0), (0, 0, 2), (1, 0, 1)}


def test_in_place_the_input_is_the_output():
    """Rank 1 sends its input from one block and receives into the output, which is that memory in place, in another."""
    gpus = []
    for r in range(2):
        sender = Block(1 - r, None, 0, (Op("s", (Span("i", 0),)),))
        taker = Block(None, 1 - r, 0, (Op("r", (), (Span("o", 0),)),))
        gpus.append(Gpu(r, 1, 1, 0, (sender, taker)))
    program = Program("exchange", collective("allreduce", 2), 1, tuple(gpus))
    assert len(direct_sends(program, False, 1)) == 2 and direct_sends(program, True, 1) == {}
    assert ordered_without_messages(program, False) and not ordered_without_messages(program, True)


def test_messages_of_several_chunks_are_judged_as_they_are_cut():
    """Rank 0 sends o[0:2] round and gets it back one chunk on: in parts of one, part 0 returns before part 1 has
    left."""
    out = Op("s", (Span("o", 0),), (), 2)
    back = Op("r", (), (Span("o", 1),), 2)
    gpus = (Gpu(0, 3, 3, 0, (Block(1, None, 0, (out,)), Block(None, 1, 0, (back,)))),
            Gpu(1, 0, 3, 0, (Block(0, 0, 0, (Op("rcs", (), (Span("o", 0),), 2),)),)))  # fmt: skip
    program = Program("round", collective("broadcast", 2), 3, gpus)
    assert set(direct_sends(program, False, 2)) == {(0, 0, 0), (1, 0, 0)}
    assert set(direct_sends(program, False, 1)) == {(0, 0, 0)}


def test_programs_that_rely_on_messages_for_order_go_through_fifos():
    assert all(ordered_without_messages(program, in_place) for program in KNOWN for in_place in (False, True))
    assert not ordered_without_messages(racing_broadcast(), False)
    here = (Block(1, None, 0, (Op("s", (Span("i", 0),)),)), Block(None, 1, 0, (Op("r", (), (Span("i", 0),)),)))
    program = Program("back", collective("allreduce", 2), 1, (Gpu(0, 1, 1, 0, here), Gpu(1, 1, 1, 0, (
        Block(0, 0, 0, (Op("rcs", (), (Span("o", 0),)),)),))))  # fmt: skip
    assert not ordered_without_messages(program, True)
    code = Block(None, None, 0, ())
    assert ordered_without_messages(
        replace(program, gpus=(program.gpus[0]._replace(blocks=(here[0], code)), program.gpus[1])), True
    )


@needs_compiler
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


@needs_compiler
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
