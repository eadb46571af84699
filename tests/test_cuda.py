"""The cuda executor without a GPU: its tables, pointers, launches and refusals on a stand-in for CuPy whose memory is NumPy's
and whose kernels are the same source on CPU threads; what only a GPU shows is named in docs/gpu.md."""

import contextlib
import ctypes

import numpy as np
import pytest
from programs import all_send_first, recursive_doubling_allreduce, ring_allgather, ring_allreduce

from synth import api
from synth.errors import SynthError, UsageError
from synth.program.layout import Layout
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime import arrays, cuda, data, hostbuild
from synth.runtime.cudamachine import CudaMachine
from synth.runtime.dtypes import dtype
from synth.runtime.sizes import Cut
from synth.runtime.waits import DeadlockError

needs_compiler = pytest.mark.skipif(hostbuild.compiler() is None, reason="no C++ compiler here: apt install g++")


class Memory:
    """What a cupy.ndarray does here, over NumPy."""

    def __init__(self, array):
        self.array = array
        self.data = self
        self.ptr = array.__array_interface__["data"][0]
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}

    def __getitem__(self, key):
        return Memory(self.array[key])

    def set(self, values):
        self.array[...] = values

    def get(self):
        return self.array.copy()

    def fill(self, value):
        self.array.fill(value)


class Stream(contextlib.nullcontext):
    def synchronize(self):
        pass


class Cupy:
    """The part of CuPy that CudaMachine uses, on a machine of `units` multiprocessors with room for `each` blocks."""

    uint8, uint64 = np.uint8, np.uint64

    def __init__(self, units=132, each=2):
        self.cuda = self.driver = self
        self.attributes = {"MultiProcessorCount": units}
        self.each = each

    def Device(self):
        return self

    def occupancyMaxActiveBlocksPerMultiprocessor(self, pointer, threads, shared):
        return self.each * 256 // threads

    def Event(self):
        return self

    def record(self):
        pass

    def get_elapsed_time(self, begin, end):
        return 2.0

    def get_current_stream(self):
        return Stream()

    def asarray(self, values):
        return Memory(np.array(values))

    def zeros(self, shape, kind):
        return Memory(np.zeros(shape, kind))


class Kernel:
    """A kernel of the host library, called as a cupy.RawKernel is."""

    def __init__(self, group, symbol):
        self.function, self.divides = getattr(hostbuild.library(group), symbol), symbol.endswith("divide")
        self.kernel, self.ptr, self.launched = self, 0, []

    def __call__(self, grid, block, args):
        self.launched.append((grid, block))
        if self.divides:
            self.function(ctypes.c_void_p(int(args[0])), ctypes.c_longlong(int(args[1])), ctypes.c_ulonglong(int(args[2])))
        else:
            self.function(ctypes.c_void_p(args[0].ptr), ctypes.c_int(2))


def machine(program, elements=37, kind="float32", op="sum", in_place=False, cupy=None, **options):
    return CudaMachine(cupy or Cupy(), cuda.Cuda(timeout=0.3, **options), program, elements, dtype(kind), op, in_place, Kernel)


@needs_compiler
@pytest.mark.parametrize("in_place", [False, True])
def test_tables_pointers_and_division(in_place):
    for program in (ring_allgather(3, 2), ring_allreduce(3), recursive_doubling_allreduce(4)):
        layout = Layout(program.collective, program.chunks)
        for kind, op in (("float32", "sum"), ("int32", "avg"), ("bfloat16", "avg")):
            for elements in (0, 1, 37):
                loaded = machine(program, elements, kind, op, in_place, slot=64)
                given = data.inputs(layout, elements, dtype(kind), op, 1)
                for _ in range(3):
                    loaded.fill(given)
                    loaded.launch()
                    loaded.finish()
                    data.check(layout, dtype(kind), op, given, loaded.outputs(layout))


@needs_compiler
def test_repeats_in_place_begin_from_the_same_inputs():
    program = ring_allreduce(3)
    layout, kind = Layout(program.collective, 3), dtype("int32")
    given = data.inputs(layout, 5, kind, "sum", 1)
    for in_place in (False, True):
        loaded = machine(program, 5, "int32", "sum", in_place)
        assert loaded.timed(given, 2, 3) == [0.002] * 3
        data.check(layout, kind, "sum", given, loaded.outputs(layout))


@needs_compiler
def test_the_callers_arrays():
    program = ring_allreduce(3)
    layout, kind = Layout(program.collective, 3), dtype("float32")
    loaded = machine(program, 5, op="avg")
    for seed in (1, 2, 1):
        given = data.inputs(layout, 5, kind, "sum", seed)
        results = [np.full((3, 5), np.nan, np.float32) for _ in given]
        loaded.use([Memory(a) for a in given], [Memory(a) for a in results])
        loaded.launch()
        loaded.finish()
        data.check(layout, kind, "avg", given, results)
    good = [Memory(np.zeros((3, 5), np.float32)) for _ in range(3)]
    for bad, why in (
        (Memory(np.zeros((3, 4), np.float32)), "12 elements"), (Memory(np.zeros((3, 5))), "8 bytes"), (np.zeros((3, 5)), "GPU memory"),
        (Memory(np.zeros((5, 3), np.float32).T), "contiguous"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            loaded.use([*good[:2], bad], good)
    with pytest.raises(UsageError, match="2 inputs"):
        loaded.use(good[:2], good)


@needs_compiler
def test_a_deadlock_then_a_right_launch():
    loaded = machine(all_send_first(3, 4))
    for _ in range(2):
        loaded.launch()
        with pytest.raises(DeadlockError, match="rank 0 block 0 op 2"):
            loaded.finish()
    assert not any(part.array.any() for part in (loaded._abort, loaded._flags, loaded._counters))


@needs_compiler
def test_blocks_that_cannot_all_be_resident_are_refused_never_left_out():
    assert machine(ring_allgather(3), cupy=Cupy(units=2)).threads == 256
    assert machine(ring_allgather(5), cupy=Cupy(units=2)).threads == 128
    with pytest.raises(SynthError, match="33 thread blocks; at most 32 are resident"):
        machine(ring_allgather(33), cupy=Cupy(units=2))
    with pytest.raises(SynthError, match="5 thread blocks; at most 4"):
        machine(ring_allgather(5), cupy=Cupy(units=2), threads=256)
    with pytest.raises(UsageError, match="1 to 256"):
        machine(ring_allgather(3), threads=512)


@needs_compiler
def test_messages_left_behind_are_refused():
    ring = ring_allgather(3)
    block = ring.gpus[0].blocks[0]
    extra = block._replace(ops=(*block.ops, Op("s", (Span("i", 0),))))
    with pytest.raises(SynthError, match="fewer messages than are sent"):
        machine(Program("p", ring.collective, 1, (Gpu(0, 1, 3, 0, (extra,)), *ring.gpus[1:])))
    assert isinstance(block, Block)


def test_finer_slices_keep_the_parts():
    whole = Cut(1000, ((0, 1000),), 3, 2)
    assert arrays.finer(whole, 1000) == whole
    fine = arrays.finer(whole, 200)
    assert fine.bounds[0] == (0, 192) and fine.bounds[-1] == (960, 1000) and (fine.part, fine.depth) == (3, 2)
    assert arrays.finer(whole, 0).bounds[1] == (1, 2)
    assert arrays.finer(Cut(0, ((0, 0),), 1, 2), 5).bounds == ((0, 0),)


def test_what_is_missing_is_one_line(monkeypatch):
    monkeypatch.setattr(cuda, "_has", lambda wheel: False)
    monkeypatch.setattr(cuda, "installed", lambda module: False)
    assert cuda.missing() == "needs CuPy: pip install 'ccl-synth[cuda12]' or 'ccl-synth[cuda13]'"
    with pytest.raises(SynthError, match="the cuda executor cannot run here: needs CuPy"):
        api.run(ring_allgather(3), executor="cuda")
    monkeypatch.setattr(cuda, "_has", lambda wheel: True)
    assert "are both installed" in str(cuda.missing())
