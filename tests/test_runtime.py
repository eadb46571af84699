"""The reference executor: times to the picosecond, results of every type and operator, what it refuses."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from programs import (
    all_send_first,
    broadcast_chain,
    direct_allgather,
    put_allgather,
    racing_broadcast,
    recursive_doubling_allreduce,
    ring_allgather,
    ring_allreduce,
)

from synth.commands import api
from synth.errors import SynthError, VerificationError
from synth.model.collective import collective
from synth.model.topology import Limit, Link, Topology
from synth.program.buffer_layout import Layout
from synth.program.program import Block, Dep, Gpu, Op, Port, Program, Span
from synth.runtime import reference_data
from synth.runtime.dtypes import DTYPES, OPERATORS, dtype
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.reference.executor import Reference
from synth.runtime.slicing import FifoOptions, cut

I0, O0, S0 = Span("i", 0), Span("o", 0), Span("s", 0)


def run(program, elements=8, kind="float32", op="sum", in_place=False, network=None, seed=0, **options):
    """Runs `program` on random data and checks the result; the execution and what was checked."""
    layout = Layout(program.collective, program.chunks)
    given = reference_data.random_inputs(layout, elements, dtype(kind), op, seed)
    done = Reference(network, **options).run(program, given, dtype=kind, op=op, in_place=in_place)
    return done, reference_data.check(layout, dtype(kind), op, given, done.outputs)


def program(task, *gpus, chunks=1, in_place="both"):
    """A program from (input, output, scratch, blocks) per rank."""
    made = tuple(Gpu(r, *sizes, tuple(blocks)) for r, (*sizes, blocks) in enumerate(gpus))
    return Program("test", task, chunks, made, in_place=in_place)


def changed(good, rank, block=0, **change):
    """`good` with one block of a rank changed."""
    gpu = good.gpus[rank]
    blocks = (*gpu.blocks[:block], gpu.blocks[block]._replace(**change), *gpu.blocks[block + 1 :])
    return replace(good, gpus=(*good.gpus[:rank], gpu._replace(blocks=blocks), *good.gpus[rank + 1 :]))


# ---------------------------------------------------------------- time


def step_time(network, size):
    """⌈α⌉ + ⌈size/β⌉ of any one link, in ps, worked out from the network alone."""
    route = network.routes[0]
    return int(np.ceil(float(route.latency * 10**6))) + -(-size * 1000 // Fraction(route.units * network.unit))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("count", [1, 7, 1000])
@pytest.mark.parametrize(
    ("made", "topology", "steps"),
    [
        (ring_allgather, "ring:8", 7),
        (ring_allreduce, "ring:8", 14),
        (direct_allgather, "fully-connected:8", 1),
        (recursive_doubling_allreduce, "hypercube:8", 3),
        (broadcast_chain, "line:8", 7),
        (put_allgather, "fully-connected:8", 1),
    ],
)
def test_one_send_per_link_per_step_takes_the_sum_of_its_steps(made, topology, steps, count, in_place):
    network = api.topology(topology).network()
    done, checked = run(made(8), count, in_place=in_place, network=network)
    assert done.picoseconds == steps * step_time(network, 4 * count)
    assert checked.elements == count * sum(map(len, Layout(made(8).collective, made(8).chunks).outputs))
    assert Reference(network).time(made(8), count, in_place=in_place).picoseconds == done.picoseconds


def machine(ranks, links, limits=()):
    """A network of links (src, dst, GB/s, µs) and limits (indices of links, GB/s)."""
    made = tuple(Link(s, d, Fraction(b), Fraction(a)) for s, d, b, a in links)
    return Topology("t", ranks, made, tuple(Limit("port", of, Fraction(b)) for of, b in limits)).network()


def test_latencies_and_bandwidths_that_are_no_whole_picoseconds_are_rounded_up():
    one, other = (0, 1, 3, Fraction(1, 3)), (1, 0, 7, Fraction(7, 10))
    done, _ = run(ring_allgather(2), 5, network=machine(2, [one, other]))
    # 20 bytes at 3 GB/s are 6666.67 ps, 1/3 µs 333333.33 ps; the other way 2857.14 and 700000
    assert done.picoseconds == 2858 + 700_000
    done, _ = run(ring_allgather(2), 5, network=machine(2, [one, (1, 0, 3, 0)]))
    assert done.picoseconds == 6667 + 333_334


def test_chunks_of_a_chain_follow_one_another():
    network = api.topology("line:4").network()
    done, _ = run(broadcast_chain(4, 6), 250, network=network, depth=8)
    route = network.routes[0]
    alpha, beta = int(route.latency * 10**6), 1000 * 1000 // (route.units * network.unit)
    # the last chunk leaves rank 0 at 6 beta, and each of three hops adds alpha + beta
    assert done.picoseconds == 5 * beta + 3 * (alpha + beta)


def test_slices_and_parts_move_the_same_bytes():
    network = api.topology("ring:4").network()
    whole, _ = run(ring_allgather(4, 6), 100, network=network)
    for part in (1, 2, 4, 5):
        done, _ = run(ring_allgather(4, 6), 100, network=network, part=part, depth=8)
        assert [u.bytes for u in done.links] == [u.bytes for u in whole.links] == [3 * 6 * 400] * 4
    big = 3 * (1 << 19) + 5  # float32: three slices and 20 bytes at 2 MiB an operation
    done, _ = run(ring_allgather(4), big, network=network)
    assert [u.bytes for u in done.links] == [3 * 4 * big] * 4
    assert done.picoseconds > 3 * step_time(network, 4 * big)


def test_a_shared_limit_lets_transfers_through_at_its_own_bandwidth():
    task, put = collective("broadcast", 3), Op("s", (I0,), (), 3)
    blocks = [Block(d, None, 0, (put,)) for d in (1, 2)] + [Block(None, None, 0, (Op("cpy", (I0,), (O0,), 3),))]
    got = [Block(None, 0, 0, (Op("r", (), (O0,), 3),))]
    made = program(task, (3, 3, 0, blocks), (0, 3, 0, got), (0, 3, 0, got), chunks=3)
    links = [(0, 1, 2, 0), (0, 2, 2, 0)]
    for bandwidth, expected in ((4, 6), (3, 8), (2, 12), (1, 24)):
        # 2 * 12 kB at 2 GB/s: 6 µs one of them alone; at 3 all has left after 24 kB / 3 GB/s
        done, _ = run(made, 1000, network=machine(3, links, [((0, 1), bandwidth)]))
        assert done.picoseconds == expected * 10**6
    done, _ = run(made, 1000, network=machine(3, links, [((0, 1), 2)]), part=1, trace=True)
    sent = sorted((e.sent, e.rank, e.block) for e in done.events if e.link)
    assert done.picoseconds == 12 * 10**6
    # in the order of asking: nobody goes twice while another waits
    assert [block for _, _, block in sent] == [0, 1] * 3


# ---------------------------------------------------------------- results


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("kind", [d.name for d in DTYPES])
def test_every_type_and_operator(kind, op, in_place):
    for made in (ring_allreduce(3, 6), recursive_doubling_allreduce(4), ring_allgather(3)):
        for count in (1, 9):
            run(made, count, kind, op, in_place)


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "avg", "prod"])
def test_a_missing_or_doubled_contribution_is_found_in_every_floating_type(kind, op):
    good = recursive_doubling_allreduce(4)
    ops = good.gpus[0].blocks[1].ops
    for wrong in (
        (ops[0], ops[1]._replace(code="r", src=())),  # the partner's sum instead of both
        (*ops, Op("re", (Span("o", 0),), (Span("o", 0),))),  # its own twice
    ):
        with pytest.raises(VerificationError, match=r"rank 0 output chunk 0 element \d+: found .*, the allreduce"):
            run(changed(good, 0, 1, ops=wrong), 64, kind, op)


def test_the_smallest_error_in_an_integer_or_a_copy_is_found():
    layout = Layout(collective("allgather", 2), 1)
    given = reference_data.random_inputs(layout, 4, dtype("f32"), "sum", 0)
    right = [np.concatenate(given), np.concatenate(given)]
    assert reference_data.check(layout, dtype("f32"), "sum", given, right) == (16, 16)
    right[1] = right[1].copy()
    right[1][1, 3] = np.nextafter(right[1][1, 3], np.float32(2))
    with pytest.raises(VerificationError, match="rank 1 output chunk 1 element 3"):
        reference_data.check(layout, dtype("f32"), "sum", given, right)


def test_no_elements_and_the_input_untouched():
    _, checked = run(ring_allreduce(4), 0)
    assert checked.elements == 0
    layout = Layout(ring_allreduce(4).collective, 4)
    given = reference_data.random_inputs(layout, 5, dtype("i32"), "sum", 3)
    before = [array.copy() for array in given]
    for in_place in (False, True):
        Reference().run(ring_allreduce(4), given, dtype="i32", in_place=in_place)
        assert all((a == b).all() for a, b in zip(given, before, strict=True))


def test_writing_the_input_is_refused_out_of_place_and_allowed_in_place():
    swap = Op("cpy", (Span("o", 0),), (Span("i", 0),))
    good = ring_allreduce(2)
    made = changed(good, 0, ops=(*good.gpus[0].blocks[0].ops, swap))
    with pytest.raises(SynthError, match=r"rank 0 block 0 op 3 .*writes the input of an out-of-place call"):
        run(made)
    run(made, in_place=True)


def test_reading_what_nobody_wrote_is_an_error():
    good = ring_allgather(3)
    made = changed(good, 1, ops=(Op("s", (Span("o", 2),)), *good.gpus[1].blocks[0].ops[1:]))
    said = r"rank 1 block 0 op 0 \(s o\[2\]\) reads o\[2\], which nothing has written yet"
    with pytest.raises(VerificationError, match=said):
        run(made)
    with pytest.raises(VerificationError):
        Reference().time(made, 4)


def test_random_delays_show_a_race_and_leave_a_right_program_right():
    run(racing_broadcast())
    failed = 0
    for seed in range(20):
        try:
            run(racing_broadcast(), delays=seed)
        except VerificationError:
            failed += 1
    assert 0 < failed < 20
    for made in (ring_allreduce(4), recursive_doubling_allreduce(8), put_allgather(4), broadcast_chain(4, 8)):
        network = api.topology(f"fully-connected:{made.ranks}").network()
        for seed in range(5):
            run(made, delays=seed, depth=2)
            run(made, delays=seed, in_place=True, network=network)


# ---------------------------------------------------------------- waiting for ever


def test_an_output_that_nothing_writes_is_named_with_data_and_without():
    good = ring_allgather(3)
    made = changed(good, 1, ops=good.gpus[1].blocks[0].ops[:-1])
    for attempt in (lambda: run(made), lambda: Reference().time(made, 4), lambda: Reference().time(made, 1 << 20)):
        with pytest.raises(VerificationError, match="nothing writes chunk 2 of the output of rank 1"):
            attempt()


@pytest.mark.parametrize("depth", range(1, 9))
def test_all_send_before_receive_is_stuck_above_the_depth(depth):
    run(all_send_first(3, depth), depth=depth)
    with pytest.raises(DeadlockError) as caught:
        run(all_send_first(3, depth + 1), depth=depth)
    cycle = caught.value.cycle
    assert caught.value.closed
    assert [(s.rank, s.block, s.op, s.holder) for s in cycle] == [(r, 0, depth, ((r + 1) % 3, 0)) for r in range(3)]
    assert f"room to rank 1 on channel 0 ({depth} of {depth} in flight)" in str(caught.value)


def test_a_size_decides_whether_it_is_stuck():
    ops = (Op("s", (I0,), (), 6), Op("r", (), (O0,), 6))
    gpus = [(6, 6, 0, [Block(1 - r, 1 - r, 0, ops)]) for r in range(2)]
    big = program(all_send_first(2, 1).collective, *gpus, chunks=6)
    limit = (2 << 20) // 3 // 4  # three chunks of float32 share an operation, six are two: as many as Simple holds
    run(big, limit)
    with pytest.raises(DeadlockError):
        run(big, limit + 1)


def test_rings_need_two_slots():
    for made in (ring_allgather(4), ring_allreduce(4)):
        run(made, depth=2)
        with pytest.raises(DeadlockError):
            run(made, depth=1)


def test_a_cycle_of_dependencies_names_each_op():
    cpy = Op("cpy", (Span("i", 0),), (Span("s", 0),))
    blocks = [Block(None, None, 0, (cpy._replace(deps=(Dep(1 - b, 0),), flag=True),)) for b in range(2)]
    said = "rank 0 block 0 op 0 .* waits for block 1 op 0; rank 0 block 1 op 0 .* waits for block 0 op 0"
    with pytest.raises(DeadlockError, match=said):
        run(program(collective("broadcast", 1), (1, 1, 1, blocks)))


def test_data_that_nobody_sends():
    silent, waiting = Block(1, None, 0, (Op("nop"),)), Block(None, 0, 0, (Op("r", (), (O0,)),))
    made = program(collective("broadcast", 2), (1, 1, 0, [silent]), (0, 1, 0, [waiting]))
    said = "data from rank 0 on channel 0, where no block sends, which never comes"
    with pytest.raises(DeadlockError, match=said) as caught:
        run(made)
    assert not caught.value.closed


def test_counts_that_differ_at_the_ends():
    good = ring_allgather(2, 2)
    first, *others = good.gpus[0].blocks[0].ops
    with pytest.raises(VerificationError, match=r"takes 2 chunks, but what arrives is 1 chunks of rank 0 block 0 op 0"):
        run(changed(good, 0, ops=(first._replace(count=1), *others)))


# ---------------------------------------------------------------- one-sided


MEMORY = (Port("memory", 1, 0),)
TWO = api.topology("fully-connected:2").network()


def pair(*ops0, ops1=(), ports=MEMORY, scratch=2):
    """Broadcast over two ranks: rank 0 does `ops0`, rank 1 `ops1`."""
    own = Op("cpy", (Span("i", 0),), (Span("o", 0),))
    other = tuple(Port(p.kind, 0, p.index) for p in ports)
    return program(
        collective("broadcast", 2), (1, 1, scratch, [Block(None, None, 0, (own, *ops0), (), ports)]),
        (0, 1, scratch, [Block(None, None, 0, tuple(ops1), (), other)]),
    )  # fmt: skip


SIGNAL, WAIT, FLUSH = (Op(code, ports=(0,)) for code in ("signal", "wait", "flush"))


@pytest.mark.parametrize("kind", ["memory", "port"])
def test_put_signal_wait(kind):
    put = Op("put", (I0,), (Span("s", 0, 1),), ports=(0,))
    copy = Op("cpy", (S0,), (O0,))
    ports = (Port(kind, 1, 0),)
    done, _ = run(pair(put, SIGNAL, ops1=(WAIT, copy), ports=ports), 100, network=TWO)
    assert done.picoseconds == step_time(TWO, 400)
    with pytest.raises(VerificationError, match=r"rank 1 block 0 op 0 .*reads s\[0\], which nothing has written yet"):
        run(pair(put, SIGNAL, ops1=(copy, WAIT), ports=ports), 100, network=TWO)
    with pytest.raises(DeadlockError, match="a signal from rank 0"):
        run(pair(put, ops1=(WAIT, copy), ports=ports))


def test_a_source_overwritten_before_flush_is_what_arrives():
    put = Op("put", (S0,), (Span("o", 0, 1),), ports=(0,))
    fill, spoil = Op("cpy", (I0,), (S0,)), Op("re", (I0,), (S0,))
    ports = (Port("port", 1, 0),)
    for network in (TWO, None):
        for seed in (None, *range(5)):
            run(pair(fill, put, FLUSH, spoil, SIGNAL, ops1=(WAIT,), ports=ports), 100, network=network, delays=seed)
        with pytest.raises(VerificationError, match="output chunk 0"):
            run(pair(fill, put, spoil, FLUSH, SIGNAL, ops1=(WAIT,), ports=ports), 100, network=network)


def test_delays_reach_the_engine_of_a_port_channel():
    """A source that is freed by a clock other than the receiver's, without times: only a late read can show it."""
    ports = (Port("port", 1, 0), Port("port", 1, 1))
    fill, put, spoil = Op("cpy", (I0,), (S0,)), Op("put", (S0,), (Span("o", 0, 1),), ports=(0,)), Op("re", (I0,), (S0,))
    ask, hear = Op("signal", ports=(1,)), Op("wait", ports=(1,))  # the answer is to another channel's signal
    made = pair(fill, put, ask, hear, spoil, SIGNAL, ops1=(hear, ask, WAIT), ports=ports)
    with pytest.raises(VerificationError, match="output chunk 0"):
        for seed in range(20):
            run(made, delays=seed)
    for seed in range(20):
        run(pair(fill, put, SIGNAL, hear, spoil, ops1=(WAIT, ask), ports=ports), delays=seed)


def test_get_packets_and_reduce():
    get = Op("get", (Span("i", 0, 0),), (O0,), ports=(0,))
    run(pair(SIGNAL, ops1=(WAIT, get)), network=TWO)
    packet, arrived = Span("s", 0, 1, True), Span("s", 0, None, True)
    put, unpack = Op("put", (I0,), (packet,), ports=(0,)), Op("cpy", (arrived,), (O0,))
    run(pair(put, ops1=(unpack,)))
    with pytest.raises(DeadlockError, match=r"packets in s\[0\]"):
        run(pair(ops1=(unpack,)))
    blocks = []
    for r in range(2):
        to = Op("put", (I0,), (Span("s", 0, 1 - r, True),), ports=(0,))
        add = Op("reduce", (I0, arrived), (O0,))
        blocks.append([Block(None, None, 0, (to, add), (), (Port("memory", 1 - r, 0),))])
    made = program(collective("allreduce", 2), (1, 1, 1, blocks[0]), (1, 1, 1, blocks[1]))
    for in_place in (False, True):
        run(made, 64, "float16", in_place=in_place, network=TWO)
    far = Op("reduce", (I0, Span("i", 0, 1)), (O0, Span("o", 0, 1)))
    one = program(collective("allreduce", 2), (1, 1, 0, [Block(None, None, 0, (far,), (), MEMORY)]), (1, 1, 0, []))
    done, _ = run(one, 100, network=TWO)
    assert done.picoseconds == 2 * step_time(TWO, 400)


def test_barrier_orders_the_blocks_of_a_rank():
    meet = Op("barrier", group=(0, 1))
    fill = Block(None, None, 0, (Op("cpy", (I0,), (S0,)), meet), (), MEMORY)
    put = Op("put", (S0,), (Span("o", 0, 1),), ports=(0,))
    copy = Block(None, None, 0, (meet, Op("cpy", (S0,), (O0,)), put), (), MEMORY)
    other = (0, 1, 0, [])
    for seed in range(6):
        run(program(collective("broadcast", 2), (1, 1, 1, [fill, copy]), other), delays=seed)
    early = copy._replace(ops=(copy.ops[1], meet, copy.ops[2]))
    with pytest.raises(VerificationError):
        for seed in range(20):
            run(program(collective("broadcast", 2), (1, 1, 1, [fill, early]), other), delays=seed)
    with pytest.raises(DeadlockError, match="block 1 at the barrier"):
        run(program(collective("broadcast", 2), (1, 1, 1, [fill, copy._replace(ops=copy.ops[1:])]), other))


# ---------------------------------------------------------------- sizes, refusals, events


def test_chunks_beyond_an_operation_fall_into_slices():
    made = ring_allgather(4)
    assert cut(made, 1 << 19, dtype("f32")).bounds == ((0, 1 << 19),)
    assert cut(made, (1 << 19) + 1, dtype("f32")).bounds == ((0, 1 << 19), (1 << 19, (1 << 19) + 1))
    assert cut(made, 100, dtype("f32"), FifoOptions(protocol="LL")).part == 32768 // 400
    assert cut(made, 100, dtype("f32"), FifoOptions(protocol="LL")).depth == 8
    for wrong in ({"depth": 9}, {"depth": 0}, {"part": 0}, {"protocol": "LL64"}):
        with pytest.raises(SynthError):
            cut(made, 100, dtype("f32"), FifoOptions(**wrong))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"send": None}, "sends, but the block's send peer is None"), ({"send": 9}, "send peer is 9"),
        ({"ops": (Op("s", (Span("i", 3),)),)}, "chunk 3 is beyond the input of rank 0, which has 1 chunks"),
        ({"ops": (Op("rrc", (), (Span("o", 0),)),)}, "rrc needs 1 source and 1 destination"),
        ({"ops": (Op("nop", deps=(Dep(4, 0),)),)}, "waits for op 0 of block 4, which does not exist"),
        ({"ops": (Op("s", (Span("i", 0),), count=0),)}, "moves no chunk"),
    ],
)  # fmt: skip
def test_malformed_programs_are_refused_with_their_op(change, said):
    with pytest.raises(SynthError, match="rank 0 block 0 op ") as caught:
        run(changed(ring_allgather(3), 0, **change))
    assert said in str(caught.value)


def test_two_senders_on_a_connection_and_a_link_that_is_not_there():
    good = ring_allgather(3)
    gpu = good.gpus[0]._replace(blocks=good.gpus[0].blocks * 2)
    with pytest.raises(SynthError, match="blocks 0 and 1 of rank 0 all send on rank 0 to rank 1, channel 0"):
        run(Program("p", good.collective, 1, (gpu, *good.gpus[1:])))
    with pytest.raises(SynthError, match=r"the program sends from rank 3 to rank 0, but .* has no such link"):
        run(ring_allgather(4), network=api.topology("line:4").network())


def test_alltoallv_has_no_place():
    task = collective("alltoallv", 2, sizes=[[1, 2], [1, 1]])
    with pytest.raises(SynthError, match="cannot be called in place"):
        run(Program("p", task, 1, (Gpu(0, 3, 2, 0, ()), Gpu(1, 2, 3, 0, ()))), in_place=True)


def test_events_tell_the_links_and_never_overlap_on_one():
    network = api.topology("ring:4").network()
    done, _ = run(ring_allreduce(4), 100, network=network, trace=True)
    sends = [e for e in done.events if e.link]
    assert len(sends) == 4 * 6
    assert len(done.events) == 4 * 7
    assert max(e.end for e in done.events) == done.picoseconds == max(e.arrival for e in sends)
    for key in {e.link for e in sends}:
        times = sorted((e.sent, e.end) for e in sends if e.link == key)
        assert all(a[1] <= b[0] for a, b in pairwise(times))
    assert run(ring_allreduce(4), 100, network=network, trace=True)[0].events == done.events
