"""The caller's arrays: NumPy's, and torch's and CuPy's in a GPU's memory, on a stand-in; mistakes are one line."""

import mmap
import sys
import types

import numpy as np
import pytest
from host_runs import needs_compiler
from programs import all_send_first, broadcast_chain, direct_allgather, ring_allgather, ring_allreduce
from standin import Cupy, Memory

import synth
from synth.commands import api
from synth.errors import UsageError
from synth.model.collective import collective
from synth.program.buffer_layout import Layout
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime import reference_data
from synth.runtime.array_info import array_info
from synth.runtime.dtypes import dtype
from synth.runtime.reference.deadlock_diagnosis import DeadlockError


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
