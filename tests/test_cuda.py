"""The cuda executor without a GPU: its tables, pointers, launches and refusals on a stand-in for CuPy (standin.py);
what only a GPU shows is named in docs/gpu.md."""

import numpy as np
import pytest
from host_runs import needs_compiler
from programs import all_send_first, direct_allgather, recursive_doubling_allreduce, ring_allgather, ring_allreduce
from standin import Cupy, Memory

from synth.commands import api
from synth.errors import SynthError, UsageError
from synth.program.buffer_layout import Layout
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime import reference_data
from synth.runtime.cuda import executor, graph_timing, loaded_program
from synth.runtime.cuda.loaded_program import CudaMachine, LoadedCall
from synth.runtime.dtypes import dtype
from synth.runtime.kernel import tables
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.slicing import Padding, Slicing

KNOWN = (ring_allgather(4, 2), direct_allgather(4), ring_allreduce(4), recursive_doubling_allreduce(4))


def machine(program, elements=37, kind="float32", op="sum", in_place=False, cupy=None, timeout=20, **options):
    cupy = cupy or Cupy()
    padding = Padding(elements * program.chunks, program.chunks)
    call = LoadedCall(padding, dtype(kind), op, in_place)
    return CudaMachine(cupy, executor.Cuda(timeout=timeout, **options), program, call, cupy.kernel)


def inputs(program, elements, kind="float32", op="sum", seed=1):
    return reference_data.random_inputs(Layout(program.collective, program.chunks), elements, dtype(kind), op, seed)


def launched_right(loaded, program, elements, kind="float32", op="sum", launches=2):
    """Launch so many times, on new data each; what comes out is right."""
    for seed in range(launches):
        given = inputs(program, elements, kind, op, seed)
        loaded.fill(given)
        loaded.launch()
        loaded.finish()
        reference_data.check(loaded.layout, dtype(kind), op, given, loaded.outputs())


@needs_compiler
@pytest.mark.parametrize("in_place", [False, True])
def test_tables_pointers_and_division(in_place, monkeypatch):
    monkeypatch.setattr(loaded_program, "SLOT", 64)  # several slices of a chunk
    monkeypatch.setattr(loaded_program, "SLOTS", {})
    for program in (ring_allgather(3, 2), ring_allreduce(3), recursive_doubling_allreduce(4)):
        for kind, op in (("float32", "sum"), ("int32", "avg"), ("bfloat16", "avg")):
            for elements in (0, 1, 37):
                loaded = machine(program, elements, kind, op, in_place)
                launched_right(loaded, program, elements, kind, op, 3)


@needs_compiler
@pytest.mark.parametrize("on", [(0, 1, 2, 3), (0, 0, 0, 0), (1, 1, 0, 0)])
def test_a_launch_for_each_rank_on_gpus_of_its_choice(on):
    for program in KNOWN:
        cupy = Cupy(gpus=4)
        loaded = machine(program, 9, "int32", "avg", cupy=cupy, ranks_on=on)
        launched_right(loaded, program, 9, "int32", "avg")
        used = set(on)
        assert cupy.enabled == {(i, j) for i in used for j in used if i != j}
        for device, kernel in loaded.kernels.items():
            launched = [gpu for gpu, grid, _ in kernel.launched]
            assert set(launched) == {device} and len(launched) == 2 * on.count(device)
            # a cooperative launch runs alone on its GPU; waits across GPUs are of the system's scope
            assert kernel.cooperative == (on.count(device) == 1) and kernel.scope == ("sys" if len(used) > 1 else "gpu")


@needs_compiler
def test_nothing_that_waits_for_the_end_of_a_launch_is_issued_before_the_others_begin():
    """Streams may share a queue of the GPU's, whose head keeps back what is behind it."""
    cupy = Cupy(gpus=2)
    loaded = machine(ring_allreduce(4), 5, op="avg", cupy=cupy, ranks_on=(0, 0, 1, 1))
    loaded.use_own_buffers()
    cupy.log.clear()
    loaded.launch()
    assert cupy.log == ["record", *["launch"] * 4, *["divide"] * 4, *["record"] * 4]
    cupy.log.clear()
    loaded.launch([side for side, _ in loaded._sides])
    assert cupy.log == [*["launch"] * 4, *["divide"] * 4]
    loaded.finish([])


@needs_compiler
def test_what_peers_wait_for_lies_in_their_own_memory():
    cupy = Cupy(gpus=3)
    loaded = machine(ring_allgather(3), 5, cupy=cupy, ranks_on=(0, 1, 2))
    found = np.frombuffer(loaded.state._tables[1]["conns"].array.tobytes(), tables.CONN)

    def gpu_of(pointer):
        return next(a.gpu for a in loaded.state._lines if a.ptr <= pointer < a.ptr + a.nbytes)

    for wire, conn in zip(loaded.code.wires, found, strict=True):
        assert gpu_of(conn["fifo"]) == gpu_of(conn["tail"]) == wire.dst
        assert gpu_of(conn["head"]) == gpu_of(conn["entry"]) == wire.src
    assert len({int(conn[name]) for conn in found for name in ("fifo", "tail", "head", "entry")}) == 4 * len(found)


@needs_compiler
@pytest.mark.parametrize("on", [None, (0, 0, 0)])
def test_between_preparation_and_launch_nothing_is_allocated_and_a_graph_replays(on):
    program, cupy = ring_allreduce(3), Cupy()
    loaded = machine(program, 5, op="avg", cupy=cupy, ranks_on=on)
    given = inputs(program, 5)
    inside = [Memory(cupy, a.copy()) for a in given]
    results = [Memory(cupy, np.full((3, 5), np.nan, np.float32)) for _ in given]
    loaded.use(inside, results)
    stream, before = cupy.Stream(non_blocking=True), (cupy.allocations, cupy.waits)
    stream.begin_capture()
    loaded.launch(stream)
    loaded.use(inside, results)  # the same arrays once more: nothing to make
    loaded.launch(stream)
    graph = stream.end_capture()
    assert (cupy.allocations, cupy.waits) == before
    for seed in (2, 3):
        given = inputs(program, 5, seed=seed)
        for rank, array in enumerate(given):
            inside[rank].array[...] = array
            results[rank].array[...] = np.nan
        graph.launch(stream)
        loaded.finish(stream)
        reference_data.check(loaded.layout, dtype("float32"), "avg", given, [result.array for result in results])
    stream.begin_capture()
    with pytest.raises(RuntimeError, match="not permitted while a stream is captured"):
        loaded.use([Memory(cupy, a.copy()) for a in given], results)
    stream.end_capture()


@needs_compiler
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("graphs", [False, True])
def test_timed_launches_on_rotating_buffers_are_checked(in_place, graphs):
    cupy, program = Cupy(cache=300), ring_allreduce(3)
    loaded = machine(program, 5, "int32", in_place=in_place, cupy=cupy)
    given = inputs(program, 5, "int32")
    outputs, seconds = graph_timing.time_replays(loaded, given, 2, 3, graphs=graphs, fetch=True)
    reference_data.check(loaded.layout, dtype("int32"), "sum", given, outputs)
    total = sum(rows * 5 * 4 for rows in loaded.arena.rows)
    assert len(loaded.sets) == -(-1200 // total) > 1
    assert seconds == [0.002 / len(loaded.sets)] * 3


@needs_compiler
def test_a_timed_launch_that_gives_something_else_is_reported():
    loaded = machine(ring_allgather(3), 5, "int32", cupy=Cupy(cache=300))
    launch, count = loaded.launch, [0]

    def odd(stream=None):
        launch(stream)
        count[0] += 1
        if count[0] == 5:
            loaded.finish(stream)
            loaded.sets[0][1].array[-4:] += 1
            loaded.launch = lambda stream=None: None

    loaded.launch = odd
    with pytest.raises(SynthError, match="output of rank 1 is not that of the first"):
        graph_timing.time_replays(loaded, inputs(ring_allgather(3), 5, "int32"), 1, 1, graphs=False, fetch=True)


@needs_compiler
def test_logical_time_is_the_references():
    network = api.topology("dgx1").network()
    schedule = api.baseline("ring", "dgx1", "allgather")
    program = api.lower(schedule)
    wanted = api.run(program, topology="dgx1", size=8 * program.chunks * 400, bound=False, overheads=False).execution
    loaded = machine(program, 100, cupy=Cupy(), network=network, clock="logical", timeout=20)
    for _ in range(2):
        launched_right(loaded, program, 100, launches=1)
        assert (loaded.timed.picoseconds, loaded.timed.links) == (wanted.picoseconds, wanted.links)
    with pytest.raises(UsageError, match="logical exists"):
        machine(program, 100, clock="wall", network=network)
    with pytest.raises(UsageError, match="name the machine"):
        machine(program, 100, clock="logical", network=None)
    with pytest.raises(UsageError, match="knows no modelled times"):
        executor.Cuda().time(program, 5)


@needs_compiler
def test_a_deadlock_then_a_right_launch():
    for on in (None, (0, 0, 0)):
        loaded = machine(all_send_first(3, 4), timeout=0.3, ranks_on=on)
        for _ in range(2):
            loaded.launch()
            with pytest.raises(DeadlockError, match="rank 0 block 0 op 2"):
                loaded.finish()
        state = loaded.state
        assert not any(part.array.any() for part in (state.abort, *state.flags, *state._lines))


@needs_compiler
def test_the_threads_of_a_block_are_as_many_as_keep_all_blocks_resident():
    """Of each GPU, and of all launches on it together."""
    for ranks, on, threads, cupy in (
        (3, None, 256, Cupy(units=2)),
        (5, None, 128, Cupy(units=2)),
        (6, (0, 1, 2, 0, 1, 2), 256, Cupy(units=1, gpus=3)),
        (6, (0, 1, 2, 2, 2, 2), 128, Cupy(units=1, gpus=3)),
    ):
        assert machine(ring_allgather(ranks), cupy=cupy, ranks_on=on).threads == threads


@needs_compiler
@pytest.mark.parametrize(("ranks", "cupy", "options", "error", "why"), [
    (33, {"units": 2}, {}, SynthError, "33 thread blocks; at most 32 are resident"),
    (5, {"units": 2}, {"threads": 256}, SynthError, "5 thread blocks; at most 4"),
    (3, {}, {"threads": 512}, UsageError, "1 to 256"),
    (18, {"units": 1, "gpus": 2}, {"ranks_on": (0, *[1] * 17)}, SynthError,
     "17 thread blocks on GPU 1; at most 16 are resident at once on GPU 1"),
    (3, {"gpus": 2}, {"ranks_on": (0, 1, 2)}, UsageError,
     "names GPU 2, and here are GPUs 0 to 1: --ranks-on 0,1,0 fits"),
    (3, {}, {"ranks_on": (0, 1, 0)}, UsageError, "names GPU 1, and here is GPU 0 alone"),
    (3, {"gpus": 3, "apart": {(2, 0)}}, {"ranks_on": (0, 1, 2)}, SynthError,
     "GPU 2 has no peer access to the memory of GPU 0"),
    (3, {"gpus": 2}, {"ranks_on": (0, 1)}, UsageError, "names 2 devices"),
])  # fmt: skip
def test_what_the_gpus_here_cannot_run_is_refused_never_left_out(ranks, cupy, options, error, why):
    with pytest.raises(error, match=why):
        machine(ring_allgather(ranks), cupy=Cupy(**cupy), **options)


@needs_compiler
def test_gpus_that_need_not_reach_each_other_and_launches_that_must_not_block(monkeypatch):
    machine(ring_allgather(3), cupy=Cupy(gpus=3, apart={(2, 0)}), ranks_on=(0, 1, 1))
    cupy = Cupy(gpus=2)
    for _ in range(2):  # access that has been given already is no error
        machine(ring_allgather(2), cupy=cupy, ranks_on=(0, 1))
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    machine(ring_allgather(3))
    with pytest.raises(UsageError, match=r"CUDA_LAUNCH_BLOCKING.*unset it"):
        machine(ring_allgather(3), ranks_on=(0, 0, 0))


@needs_compiler
def test_too_little_memory_is_one_line(gpu):
    cupy = gpu(room=10_000)
    with pytest.raises(SynthError, match=r"^loading ring-allgather: not enough GPU memory; choose a smaller size$"):
        executor.Cuda().load(ring_allgather(3), 10_000, dtype="float32")
    assert cupy.freed  # what the pool keeps was given back first


@needs_compiler
def test_messages_left_behind_are_refused():
    ring = ring_allgather(3)
    block = ring.gpus[0].blocks[0]
    extra = block._replace(ops=(*block.ops, Op("s", (Span("i", 0),))))
    with pytest.raises(SynthError, match="fewer messages than are sent"):
        machine(Program("p", ring.collective, 1, (Gpu(0, 1, 3, 0, (extra,)), *ring.gpus[1:])))
    assert isinstance(block, Block)


def test_finer_slices_keep_the_parts():
    whole = Slicing(1000, ((0, 1000),), 3, 2)
    assert tables.with_smaller_slices(whole, 1000) == whole
    fine = tables.with_smaller_slices(whole, 200)
    assert fine.bounds[0] == (0, 192) and fine.bounds[-1] == (960, 1000) and (fine.part, fine.depth) == (3, 2)
    assert tables.with_smaller_slices(whole, 0).bounds[1] == (1, 2)
    assert tables.with_smaller_slices(Slicing(0, ((0, 0),), 1, 2), 5).bounds == ((0, 0),)


class Driver(Cupy):
    """A CuPy whose driver says `count` GPUs, or an error."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def getDeviceCount(self):
        if isinstance(self.count, str):
            raise self.CUDARuntimeError(35, self.count + "\nmore")
        return self.count


def test_what_is_missing_is_one_line(monkeypatch):
    monkeypatch.setattr(executor, "installed_wheels", list)
    monkeypatch.setattr(executor, "installed", lambda module: False)
    assert executor.missing() == "needs CuPy: pip install 'ccl-synth[cuda12]' or 'ccl-synth[cuda13]'"
    with pytest.raises(SynthError, match="the cuda executor cannot run here: needs CuPy"):
        api.run(ring_allgather(3), executor="cuda")
    monkeypatch.setattr(executor, "installed", lambda module: True)
    monkeypatch.setattr(executor.nvrtc, "library_path", lambda: None)
    assert "needs NVRTC: pip install" in str(executor.missing())
    monkeypatch.setattr(executor.nvrtc, "library_path", lambda: "libnvrtc.so")
    for count, said in (
        ("cudaErrorInsufficientDriver: too old", "no CUDA GPU or no driver: cudaErrorInsufficientDriver: too old"),
        (0, "no CUDA GPU here"),
    ):
        monkeypatch.setattr(executor, "_cupy", lambda count=count: Driver(count))
        assert str(executor.missing()).startswith(said) and "\n" not in str(executor.missing())
    monkeypatch.setattr(executor, "_cupy", lambda: Driver(1))
    assert executor.missing() is None

    def broken():
        raise ImportError("libcudart.so.13: cannot open shared object file\nlong story")

    monkeypatch.setattr(executor, "_cupy", broken)
    assert executor.missing() == "CuPy cannot be imported: libcudart.so.13: cannot open shared object file"
    monkeypatch.setattr(executor, "installed_wheels", lambda: list(executor.WHEELS))
    said = str(executor.missing())
    assert "cupy-cuda12x and cupy-cuda13x are both installed" in said and "pip uninstall" in said


@needs_compiler
def test_bench_names_the_device(gpu):
    gpu(gpus=4)
    program, options = ring_allreduce(4), {"repeats": 3, "warmup": 1, "ranks_on": (0, 1, 2, 3), "timeout": 20}
    doc = api.bench(program, (4096, 65536), "cuda", **options).to_json()
    assert [gpu["index"] for gpu in doc["device"]["gpus"]] == doc["device"]["ranks_on"] == [0, 1, 2, 3]
    assert doc["device"]["gpus"][0] == {
        "index": 0, "name": "A GPU", "compute": "9.0", "bytes": 1 << 37, "processors": 132, "l2_bytes": 50 << 20,
    }  # fmt: skip
    assert doc["device"]["driver_cuda"] == "13.0" and "driver" in doc["device"]
    assert {"synth", "python", "numpy", "cupy", "cuda", "nvrtc"} == set(doc["versions"])
    assert all(row["right"] for row in doc["rows"]) and len(doc["rows"]) == 4 and not doc["modelled"]
