"""The caller's arrays: NumPy's, and torch's and CuPy's in a GPU's memory, on a stand-in; mistakes are one line. Counts
that chunks do not divide: every program serves every count, in place too, for every collective."""

from __future__ import annotations

import mmap
import sys
import types

import numpy as np
import pytest
from host_runs import needs_compiler
from programs import (
    all_send_first,
    broadcast_chain,
    direct_allgather,
    edit,
    put_allgather,
    recursive_doubling_allreduce,
    ring_allgather,
    ring_allreduce,
)
from standin import Cupy, Memory

import synth
from synth.commands import api
from synth.errors import UsageError, VerificationError
from synth.model.collective import COLLECTIVES, collective
from synth.program.buffer_layout import Layout
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime import reference_data
from synth.runtime.array_info import array_info
from synth.runtime.dtypes import dtype
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.slicing import Padding


class Tensor:
    """A torch.Tensor over NumPy's memory, as far as this project looks; `gpu` None: on the CPU."""

    def __init__(self, array, gpu=0, skip=0, kind=None):
        self.array, self.skip, self.is_cuda = array, skip, gpu is not None
        self.device, self.dtype = types.SimpleNamespace(index=gpu), f"torch.{kind or array.dtype.name}"
        self.shape = array.shape

    def data_ptr(self):
        return self.array.ctypes.data + self.skip

    def numel(self):
        return self.array.size

    def is_contiguous(self):
        return bool(self.array.flags.c_contiguous)


def inputs(program, elements, kind="float32", seed=1):
    return reference_data.random_inputs(Layout(program.collective, program.chunks), elements, dtype(kind), "sum", seed)


def test_numpy_arrays_stacked_or_one_a_rank():
    program = ring_allreduce(3)
    given = inputs(program, 4)
    stacked = np.stack(given)
    for arrays in (given, stacked, stacked.reshape(3, -1)):
        done = api.run(program, arrays)
        np.testing.assert_allclose(done.outputs, np.tile(sum(given).reshape(-1), (3, 1)), rtol=1e-5)
    held = [np.arange(6, dtype=np.int64), None, None]
    done = synth.run(broadcast_chain(3, 2), held)
    assert (done.dtype, [out.tolist() for out in done.outputs]) == ("int64", [list(range(6))] * 3)


def test_torch_tensors_and_arrays_of_the_cuda_interface():
    array = np.arange(8, dtype=np.float32)
    found = array_info(Tensor(array, 3, skip=8), "it")
    assert found[:5] == (array.ctypes.data + 8, 8, "float32", True, 3)
    assert array_info(Tensor(np.zeros(3, np.uint16), None, kind="bfloat16"), "it")[2:5] == ("bfloat16", True, None)
    on_gpu = Memory(Cupy(), array.reshape(2, 4), 1)
    assert array_info(on_gpu, "it")[1:5] == (8, "float32", True, 1)
    assert not array_info(Memory(Cupy(), array.reshape(2, 4).T), "it").contiguous
    with pytest.raises(UsageError, match="is a list; arrays of NumPy, torch, CuPy"):
        array_info([1, 2], "it")

    program, halves = ring_allgather(3), np.arange(4, dtype=np.uint16)
    assert api.run(program, [Tensor(halves, None, kind="bfloat16")] * 3).dtype == "bfloat16"
    with pytest.raises(UsageError, match=r"rank 0 is in a GPU's memory: synth\.prepare"):
        api.run(program, [Tensor(array)] * 3)
    with pytest.raises(UsageError, match="the input of rank 0 is not contiguous"):
        api.run(program, [Tensor(np.zeros((12, 2), np.float32)[:, 0], None)] * 3)


def launched(program, given, results, executor="cuda", **words):
    ready = synth.prepare(program, given, results, executor=executor, **words)
    ready.launch()
    ready.finish()


@needs_compiler
@pytest.mark.parametrize("on", [None, (0, 0, 0)])
def test_arrays_in_gpu_memory_are_worked_on_where_they_are(gpu, on):
    cupy, program = gpu(), ring_allreduce(3)
    for wrap in (lambda a: Memory(cupy, a), Tensor):
        given = inputs(program, 5, "int32")
        results = [np.zeros(15, np.int32) for _ in given]
        launched(program, [wrap(a) for a in given], [wrap(a) for a in results], ranks_on=on)
        assert all((r == sum(given).reshape(-1)).all() for r in results)
    with pytest.raises(UsageError, match="in the memory of GPU 0; this call takes it in the host's memory"):
        launched(program, [Tensor(a) for a in given], [Tensor(a) for a in results], "host")


@needs_compiler
def test_in_place_the_arrays_lie_in_each_other(gpu):
    gpu()
    program = ring_allgather(3)
    buffers = [np.zeros(12, np.int32) for _ in range(3)]
    for rank, buffer in enumerate(buffers):
        buffer[4 * rank : 4 * rank + 4] = 10 * rank + np.arange(4)
    parts = [Tensor(buffer[4 * rank : 4 * rank + 4]) for rank, buffer in enumerate(buffers)]
    whole = [Tensor(buffer) for buffer in buffers]
    launched(program, parts, whole, in_place=True)
    assert all(buffer.tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23] for buffer in buffers)
    with pytest.raises(UsageError, match="the input and the output of rank 0 overlap"):
        launched(program, parts, whole)
    with pytest.raises(UsageError, match=r"the buffers of rank 1 are one.*16 bytes before input"):
        launched(program, [parts[0], Tensor(buffers[1][:4]), parts[2]], whole, in_place=True)


@needs_compiler
def test_arrays_that_do_not_fit_are_one_line(gpu):
    gpu(gpus=2)
    program = ring_allgather(3)
    good = [Tensor(np.zeros(4, np.float32)) for _ in range(3)]
    results = [Tensor(np.zeros(12, np.float32)) for _ in range(3)]
    five, matrix = np.zeros(5, np.float32), np.zeros((2, 2), np.float32)
    for bad, why in (
        (Tensor(five), "the input of rank 2 is of 5 elements of float32; this call takes 4 of float32"),
        (Tensor(np.zeros(4)), "4 elements of float64; this call takes 4 of float32"),
        (Tensor(five[:4], 1), "is in the memory of GPU 1; this call takes it in the memory of GPU 0"),
        (five[:4], "is in the host's memory; this call takes it in the memory of GPU 0"),
        (Tensor(matrix.T), "is not contiguous"),
        (Tensor(five[:4], skip=2), "begins at an address that is no multiple of 4 bytes"),
    ):
        with pytest.raises(UsageError, match=why):
            synth.prepare(program, [*good[:2], bad], results)
    with pytest.raises(UsageError, match="2 inputs for 3 ranks"):
        synth.prepare(program, good[:2], results)
    with pytest.raises(UsageError, match="5 elements, which do not divide into 3 parts of the data"):
        synth.prepare(api.lower(api.baseline("direct", "ring:3", "alltoall")), [Tensor(five)] * 3, results)
    with pytest.raises(UsageError, match="the reference executor cannot be prepared"):
        synth.prepare(program, good, results, executor="reference")


@needs_compiler
def test_outputs_that_cannot_be_written_or_are_shared_are_one_line():
    program, given = ring_allgather(3), [np.arange(4, dtype=np.float32)] * 3
    fixed = np.zeros(12, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(UsageError, match="the output of rank 1 is read-only"):
        synth.prepare(program, given, [np.zeros(12, np.float32), fixed, np.zeros(12, np.float32)], executor="host")
    room = np.zeros(40, np.float32)
    for places, pair in (((0, 12, 23), "1 and 2"), ((24, 12, 24), "0 and 2")):
        with pytest.raises(UsageError, match=f"the outputs of ranks {pair} overlap"):
            synth.prepare(program, given, [room[at : at + 12] for at in places], executor="host")
    synth.prepare(program, given, [room[at : at + 12] for at in (24, 0, 12)], executor="host").launch()
    assert room[:36].tolist() == [0, 1, 2, 3] * 9


@needs_compiler
def test_views_that_begin_anywhere_are_right(gpu):
    """Not aligned to 16 bytes, and not alike: by elements."""
    gpu()
    program = direct_allgather(3)
    for elements in (1, 3, 1003):
        for shift in (1, 2, 3):
            rooms = [np.zeros(elements + 4, np.int32) for _ in range(3)]
            given = [room[(rank + shift) % 4 :][:elements] for rank, room in enumerate(rooms)]
            for rank, array in enumerate(given):
                array[...] = rank + np.arange(elements)
            results = [np.zeros(3 * elements + 1, np.int32)[shift % 2 :][: 3 * elements] for _ in range(3)]
            launched(program, [Tensor(a) for a in given], [Tensor(a) for a in results])
            on_host = [np.zeros(3 * elements + 1, np.int32)[shift % 2 :][: 3 * elements] for _ in range(3)]
            synth.prepare(program, given, on_host, executor="host").launch()
            assert all((r == np.concatenate(given)).all() for r in (*results, *on_host))


@needs_compiler
def test_torch_tensors_run_on_torchs_stream(gpu, monkeypatch):
    cupy, program, namespace = gpu(), ring_allgather(3), types.SimpleNamespace
    stream = cupy.Stream()
    cuda = namespace(current_stream=lambda: namespace(cuda_stream=stream.ptr))
    monkeypatch.setitem(sys.modules, "torch", namespace(cuda=cuda))
    given = [np.arange(4, dtype=np.float32) + 10 * r for r in range(3)]
    results = [np.zeros(12, np.float32) for _ in range(3)]
    Torch = type("Tensor", (Tensor,), {"__module__": "torch"})
    used = []
    monkeypatch.setattr(stream, "give", lambda task, give=stream.give: (used.append(1), give(task)))
    ready = synth.prepare(program, [Torch(a) for a in given], [Torch(a) for a in results])
    assert not used
    before = cupy.allocations, cupy.waits
    ready.launch()
    assert (cupy.allocations, cupy.waits) == before and used
    ready.finish()
    assert results[2].tolist() == np.concatenate(given).tolist()


@needs_compiler
def test_prepared_for_cpu_threads_launch_after_launch():
    program = ring_allreduce(3)
    given = [np.arange(6, dtype=np.int64) * (r + 1) for r in range(3)]
    results = [np.zeros(6, np.int64) for _ in range(3)]
    ready = synth.prepare(program, given, results, executor="host", op="avg", threads=2)
    for _ in range(3):
        ready.launch()
        ready.finish()
        assert all((r == 2 * np.arange(6)).all() for r in results)
        for array in given:
            array += 6 * np.arange(6)
        ready.launch()
        assert results[0].tolist() == [8 * k for k in range(6)]
        for array in given:
            array -= 6 * np.arange(6)
    stuck = synth.prepare(
        all_send_first(3, 4), [np.zeros(12)] * 3, [np.zeros(12) for _ in range(3)], executor="host", timeout=0.2
    )
    with pytest.raises(DeadlockError, match="waits for"):
        stuck.launch()


def unwritten(size):
    """Bytes that cost nothing until they are written."""
    return np.frombuffer(
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)), np.uint8
    )


@needs_compiler
@pytest.mark.parametrize("words", [{}, {"protocol": "LL"}, {"direct": False}], ids=["direct", "packets", "fifo"])
def test_offsets_beyond_4_gib_on_memory_that_is_hardly_touched(words):
    """The last chunks of buffers of 5000 of 1 MiB go from input to output, and through scratch, of another rank."""
    chunks, mib = 5000, 1 << 20
    first = Gpu(0, chunks, chunks, 0, (Block(1, None, 0, (Op("s", (Span("i", chunks - 2),), (), 2),)),))
    takes = (Op("r", (), (Span("o", chunks - 2),), 2), Op("cpy", (Span("o", chunks - 1),), (Span("o", 1),)))
    second = Gpu(1, 0, chunks, 0, (Block(None, 0, 0, takes),))
    program = Program("last-chunks", collective("broadcast", 2), chunks, (first, second))
    given, results = unwritten(chunks * mib), [unwritten(chunks * mib) for _ in range(2)]
    wanted = np.random.default_rng(1).integers(0, 255, 2 * mib, np.uint8)
    given[-2 * mib :] = wanted
    synth.prepare(program, [given, None], results, executor="host", **words).launch()
    assert (results[1][-2 * mib :] == wanted).all()
    assert (results[1][mib : 2 * mib] == wanted[mib:]).all()
    low = (chunks - 2) * mib % (1 << 32)  # where a 32-bit offset would have put them
    assert not results[1][low : low + 2 * mib].any() and not results[1][:mib].any()


# ---------------------------------------------------------------- counts that chunks do not divide


CANARY = 77.0
RANKS = 4
SIZES = {
    "allgatherv": (1, 2, 0, 3),
    "reduce-scatterv": (1, 2, 0, 3),
    "alltoallv": ((0, 1, 2, 1), (1, 0, 0, 1), (2, 1, 0, 1), (1, 1, 1, 0)),
}


def lowered(name, instances=3):
    """`name` on a ring of four by shortest ways, each unit in 3 (allreduce: 12) chunks."""
    task = collective(name, RANKS, sizes=SIZES.get(name))
    return api.lower(api.baseline("direct", f"ring:{RANKS}", task), instances=instances)


@pytest.mark.parametrize("unit", [0, 1, 2, 5, 7, 11, 12, 13])
@pytest.mark.parametrize("chunks", [1, 3, 12])
def test_rows_hold_the_units_and_zeros(unit, chunks):
    padding = Padding(unit, chunks)
    values = np.arange(1, 2 * unit + 1)
    rows = padding.rows(values, 2 * chunks)
    assert rows.shape == (2 * chunks, -(-unit // chunks)) and rows.sum() == values.sum()
    assert padding.units(rows).reshape(-1).tolist() == values.tolist()
    assert padding.padded == (unit % chunks > 0) and padding.count(2 * chunks) == 2 * unit
    if padding.padded:
        assert not rows.reshape(2, -1)[:, unit:].any()


@pytest.mark.parametrize("name", sorted(set(COLLECTIVES) - {"scan"}))
def test_the_reference_serves_every_count_of_every_collective(name):
    """Compared element by element with the definition at the caller's counts."""
    made = lowered(name)
    units = made.loop_chunks // made.chunks
    for count in (1, 2, 5, 7):
        for in_place in (False, True) if made.in_place == "both" else (False,):
            done = api.run(made, size=count * units * 4, in_place=in_place)
            layout = Layout(made.collective, 1)
            assert done.size == count * units * 4 and [len(o) for o in done.outputs] == [
                count * len(w) for w in layout.outputs
            ]
            assert done.checked.elements == count * sum(map(len, layout.outputs))


def test_arrays_of_any_length_and_the_size_of_the_call():
    done = api.run(ring_allreduce(3, 6), [np.arange(7, dtype=np.int64) * (r + 1) for r in range(3)])
    assert done.size == 56 and [o.tolist() for o in done.outputs] == [(np.arange(7) * 6).tolist()] * 3
    gathered = api.run(ring_allgather(3, 2), np.arange(15).reshape(3, 5)).outputs
    assert [o.tolist() for o in gathered] == [list(range(15))] * 3


def test_what_is_sent_is_whole_chunks():
    """On a link go the bytes of padded chunks, and the time is that of the next count that divides."""
    made, ring = ring_allgather(4, 3), api.topology("ring:4")
    odd, whole = (api.run(made, size=4 * 4 * count, topology=ring) for count in (7, 9))
    assert odd.execution.picoseconds == whole.execution.picoseconds and odd.execution.links == whole.execution.links
    assert odd.size < whole.size and odd.ratio > 1
    assert api.run(made, size=4 * 4 * 7, topology=ring, data=False).execution.picoseconds == odd.execution.picoseconds


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
def test_every_operator_in_short_types(op):
    for kind in ("float16", "bfloat16", "int8"):
        size = 7 * dtype(kind).size
        assert api.run(recursive_doubling_allreduce(4, 4), size=size, dtype=kind, op=op).checked.elements == 4 * 7


def test_one_sided_programs_and_small_fifos():
    assert api.run(put_allgather(4, 3), size=4 * 4 * 7).checked.elements == 4 * 4 * 7
    for options in ({"protocol": "LL"}, {"depth": 6, "part": 1}, {"delays": 5}):
        assert api.run(ring_allreduce(4, 12), size=4 * 50_003, **options).checked.elements == 4 * 50_003


def test_a_wrong_program_is_still_found_out():
    """An element is missing in the last chunk, of which the caller sees one element only."""
    good = ring_allgather(3, 2)
    ops = good.gpus[1].blocks[0].ops
    early = ops[1]._replace(dst=(Span("o", 2),), src=(Span("i", 1),), count=1)
    with pytest.raises(VerificationError, match="rank 1 output chunk 1 element 0"):
        api.run(edit(good, 1, 0, 0, ops=(*ops, early)), size=3 * 4 * 3, seed=2)


# ---------------------------------------------------------------- the kernel


@needs_compiler
@pytest.mark.parametrize("name", ["allgather", "allreduce", "reduce-scatter", "alltoall", "broadcast", "allgatherv"])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_the_kernel_serves_every_count(name, protocol):
    made = lowered(name)
    units = made.loop_chunks // made.chunks
    for count in (1, 5, 7):
        for in_place in (False, True) if made.in_place == "both" else (False,):
            done = api.run(
                made, executor="host", threads=2, size=count * units * 4, in_place=in_place, protocol=protocol
            )
            assert done.size == count * units * 4
    if protocol == "Simple":
        assert api.run(made, executor="host", threads=1, size=5 * units * 4, ranks_on=(0, 0, 1, 1)).checked.elements


def guarded(count, kind=np.float32):
    """An array of `count` elements between two that nobody may touch, and the whole of it."""
    whole = np.full(count + 2, CANARY, kind)
    return whole[1:-1], whole


@needs_compiler
@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_callers_arrays_are_filled_to_their_ends_and_no_further(op, in_place):
    made = lowered("allreduce", instances=1)
    given = reference_data.random_inputs(Layout(made.collective, 1), 7, dtype("f32"), op, 3)
    held = [guarded(7) for _ in range(RANKS)]
    got = held if in_place else [guarded(7) for _ in range(RANKS)]
    for (array, _), rows in zip(held, given, strict=True):
        array[:] = rows[0]
    ready = synth.prepare(made, [a for a, _ in held], [a for a, _ in got], executor="host", op=op, in_place=in_place)
    for _ in range(1 if in_place else 3):
        ready.launch()
        ready.finish()
        reference_data.check(Layout(made.collective, 1), dtype("f32"), op, given, [a.reshape(1, 7) for a, _ in got])
    assert all(whole[0] == whole[-1] == CANARY for _, whole in (*held, *got))
    if not in_place:
        assert all((array == rows[0]).all() for (array, _), rows in zip(held, given, strict=True))


@needs_compiler
def test_in_place_parts_of_the_larger_buffer_lie_where_the_layout_says():
    made = ring_allgather(3, 4)
    whole = [np.zeros(15, np.float32) for _ in range(3)]
    for rank, array in enumerate(whole):
        array[5 * rank : 5 * rank + 5] = np.arange(5) + 10 * rank
    parts = [array[5 * rank : 5 * rank + 5] for rank, array in enumerate(whole)]
    ready = synth.prepare(made, parts, whole, executor="host", in_place=True)
    ready.launch()
    assert [array.tolist() for array in whole] == [[*range(5), *range(10, 15), *range(20, 25)]] * 3
    with pytest.raises(UsageError, match="output 20 bytes before input"):
        synth.prepare(made, [array[:5] for array in whole], whole, executor="host", in_place=True)


@needs_compiler
@pytest.mark.parametrize("ranks_on", [None, (0, 0, 1), (0, 1, 2)])
def test_arrays_on_gpus_are_copied_in_and_out_on_the_stream(gpu, ranks_on):
    """On the stand-in for CuPy: nothing allocates or waits in a launch, also while a graph is captured."""
    cupy = gpu(gpus=3)
    made, on = ring_allreduce(3, 6), ranks_on or (0, 0, 0)
    given = reference_data.random_inputs(Layout(made.collective, 1), 7, dtype("f32"), "sum", 4)
    got = [np.full(7, CANARY, np.float32) for _ in range(3)]
    arrays = [[Tensor(a.reshape(-1), gpu=on[rank]) for rank, a in enumerate(side)] for side in (given, got)]
    ready = synth.prepare(made, *arrays, ranks_on=ranks_on)
    stream, before = cupy.Stream(), (cupy.allocations, cupy.waits)
    stream.begin_capture()
    ready.launch(stream)
    graph = stream.end_capture()
    assert (cupy.allocations, cupy.waits) == before
    for _ in range(2):
        for array in got:
            array[:] = CANARY
        graph.launch(stream)
        ready.finish(stream)
        reference_data.check(Layout(made.collective, 1), dtype("f32"), "sum", given, [a.reshape(1, 7) for a in got])
    # inputs before all launches, outputs after
    last = max(k for k, what in enumerate(cupy.log) if what == "launch")
    assert cupy.log[:last].count("copy") == 3 and cupy.log[last:].count("copy") == 3
