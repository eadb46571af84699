"""A stand-in for CuPy: memory is NumPy's, a kernel is the same source on CPU threads, a stream is a thread that works
off what it is given, so launches on several streams run side by side and wait for each other as on a GPU. What CUDA
forbids while a graph is captured is an error here too; allocations and waits are counted.
"""

import ctypes
import queue
import threading

import numpy as np

from synth.runtime.kernel import build_host

_local = threading.local()


class CudaError(RuntimeError):
    def __init__(self, status, said):
        super().__init__(said)
        self.status = status


class Memory:
    """A stand-in for cupy.ndarray over NumPy; `gpu`: the GPU that holds it."""

    def __init__(self, cupy, array, gpu=0):
        self.cupy, self.array, self.gpu, self.data, self.device = cupy, array, gpu, self, Device(cupy, gpu)
        self.ptr, self.nbytes, self.dtype, self.shape = (
            array.__array_interface__["data"][0],
            array.nbytes,
            array.dtype,
            array.shape,
        )

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__array_interface__, "version": 3}

    def __getitem__(self, key):
        return Memory(self.cupy, self.array[key], self.gpu)

    def __setitem__(self, key, other):
        self.cupy.not_captured("a copy")
        self.array[key] = other.array

    def _like(self, array):
        return Memory(self.cupy, array, self.gpu)

    def reshape(self, *shape):
        return self._like(self.array.reshape(*shape))

    def view(self, kind):
        return self._like(self.array.view(kind))

    def astype(self, kind):
        return self._like(self.array.astype(kind))

    def __rshift__(self, count):
        return self._like(self.array >> np.uint32(count))

    def __eq__(self, other):
        return self.array == other.array

    __hash__ = None

    def set(self, values):
        self.cupy.not_captured("a copy")
        assert self.gpu == self.cupy.Device().id, "the array is another device's"
        self.array[...] = values

    def get(self):
        self.cupy.not_captured("a copy")
        return self.array.copy()

    def memset(self, value, size):
        self.cupy.not_captured("memset")
        assert self.gpu == self.cupy.Device().id, (
            "the array is another device's: the order of two devices' streams is not known"
        )
        assert size == self.array.nbytes
        self.array.fill(value)

    def memset_async(self, value, size, stream):
        assert size == self.array.nbytes
        self.cupy.do(lambda: stream.give(lambda: self.array.fill(value)))

    def copy_from_device_async(self, source, size, stream):
        assert size == self.array.nbytes == source.array.nbytes
        self.cupy.do(lambda: stream.give(lambda: np.copyto(self.array, source.array)))


class Stream:
    """Works off what it is given, one after the other, in a thread of its own."""

    def __init__(self, cupy, device):
        self.cupy, self.device_id, self.ptr, self.work = cupy, device, id(self), queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            task = self.work.get()
            task()
            self.work.task_done()

    def give(self, task):
        self.work.put(task)

    def __enter__(self):
        assert self.device_id == self.cupy.Device().id, "the stream is another device's"
        self.cupy.streams().append(self)
        return self

    def __exit__(self, *error):
        self.cupy.streams().pop()

    def synchronize(self):
        self.cupy.not_captured("a wait")
        self.cupy.waits += 1
        self.work.join()

    def wait_event(self, event):
        def wait():
            token = event.token
            self.give(token.wait)

        self.cupy.do(wait)

    def begin_capture(self):
        assert self.cupy.captured is None
        self.cupy.captured = []

    def end_capture(self):
        assert self.cupy.captured is not None
        tasks, self.cupy.captured = self.cupy.captured, None
        return Graph(tasks)


class Graph:
    def __init__(self, tasks):
        self.tasks = tasks

    def launch(self, stream):
        for task in self.tasks:
            task()


class Event:
    def __init__(self, cupy):
        self.cupy, self.device = cupy, cupy.Device().id
        self.token = threading.Event()
        self.token.set()

    def record(self, stream):
        assert stream.device_id == self.device, "the event is another device's"
        self.cupy.log.append("record")

        def record():
            token = self.token = threading.Event()
            stream.give(token.set)

        self.cupy.do(record)


class Device:
    def __init__(self, cupy, index):
        self.cupy, self.id, self.attributes = cupy, index, cupy.attributes

    compute_capability = "90"

    def __enter__(self):
        self.cupy.devices().append(self.id)
        return self

    def __exit__(self, *error):
        self.cupy.devices().pop()

    def synchronize(self):
        self.cupy.not_captured("a wait")
        self.cupy.waits += 1
        for stream in [s for s in self.cupy.made if s.device_id == self.id]:
            stream.work.join()


class Cupy:
    """The part of CuPy that the cuda executor uses, on `gpus` GPUs of `units` multiprocessors with room for `each`
    blocks of 256.
    `apart`: pairs of GPUs without peer access."""

    uint8, uint32, uint64 = np.uint8, np.uint32, np.uint64
    CUDARuntimeError = CUDADriverError = CudaError
    OutOfMemoryError = MemoryError

    def __init__(self, units=132, each=2, gpus=1, apart=(), cache=0, room=1 << 40):
        self.cuda = self.driver = self.runtime = self.memory = self
        self.attributes = {"MultiProcessorCount": units, "L2CacheSize": cache}
        self.each, self.gpus, self.apart, self.room = each, gpus, apart, room
        self.made, self.captured, self.enabled = [], None, set()
        self.allocations = self.waits = 0
        self.log = []  # what was issued, in order
        self.null = [self.Stream(device=device) for device in range(gpus)]

    def devices(self):
        return _local.__dict__.setdefault("devices", [0])

    def streams(self):
        return _local.__dict__.setdefault(f"streams{id(self)}", [])

    def do(self, task):
        """Now, or in every replay of the graph that is being captured."""
        if self.captured is None:
            task()
        else:
            self.captured.append(task)

    def not_captured(self, what):
        if self.captured is not None:
            raise CudaError(900, f"{what} is not permitted while a stream is captured")

    def Device(self, index=None):
        return Device(self, self.devices()[-1] if index is None else index)

    def getDeviceCount(self):
        return self.gpus

    def deviceCanAccessPeer(self, i, j):
        return (i, j) not in self.apart

    def deviceEnablePeerAccess(self, j):
        pair = (self.Device().id, j)
        if pair in self.enabled:
            raise CudaError(704, "cudaErrorPeerAccessAlreadyEnabled")
        self.enabled.add(pair)

    def occupancyMaxActiveBlocksPerMultiprocessor(self, pointer, threads, shared):
        return self.each * 256 // threads

    def Stream(self, non_blocking=False, device=None):
        self.made.append(Stream(self, self.Device().id if device is None else device))
        return self.made[-1]

    def ExternalStream(self, pointer):
        return next(stream for stream in self.made if stream.ptr == pointer)

    def Event(self, disable_timing=False):
        return Event(self)

    def get_elapsed_time(self, begin, end):
        return 2.0

    def get_current_stream(self):
        here = [stream for stream in self.streams() if stream.device_id == self.Device().id]
        return here[-1] if here else self.null[self.Device().id]

    def _new(self, array):
        self.not_captured("an allocation")
        self.allocations += 1
        self.room -= array.nbytes
        if self.room < 0:
            raise CudaError(2, "cudaErrorMemoryAllocation: out of memory")
        return Memory(self, array, self.Device().id)

    def asarray(self, values):
        return self._new(np.array(values))

    def Memory(self, size):
        return self._new(np.full(size, 0xA5, np.uint8))

    def UnownedMemory(self, pointer, size, owner, device):
        return Memory(self, np.frombuffer((ctypes.c_uint8 * size).from_address(pointer), np.uint8), device)

    def MemoryPointer(self, memory, offset):
        return memory

    def ndarray(self, shape, dtype, memory):
        return memory

    memcpyDefault = 4

    def memcpy2DAsync(self, to, to_pitch, source, pitch, width, height, kind, stream):
        assert kind == 4 and width <= min(to_pitch, pitch)

        def rows():
            for row in range(height):
                ctypes.memmove(to + row * to_pitch, source + row * pitch, width)

        self.log.append("copy")
        self.do(lambda: self.ExternalStream(stream).give(rows))

    def get_default_memory_pool(self):
        return self

    def free_all_blocks(self):
        self.freed = True

    def arange(self, count, dtype):
        return self._new(np.arange(count, dtype=dtype))

    def zeros(self, shape, dtype):
        return self._new(np.zeros(shape, dtype))

    def memGetInfo(self):
        return self.room, self.room

    __version__ = "14.0.1"

    def runtimeGetVersion(self):
        return 13000

    driverGetVersion = runtimeGetVersion

    def getDeviceProperties(self, index):
        return {
            "name": b"A GPU",
            "major": 9,
            "minor": 0,
            "totalGlobalMem": 1 << 37,
            "multiProcessorCount": 132,
            "l2CacheSize": 50 << 20,
        }

    def kernel(self, group, symbol, *, cooperative, scope="gpu"):
        return Kernel(self, group, symbol, cooperative, scope)


class Kernel:
    """A kernel of the host library, called as a cupy.RawKernel is: on the current stream of the current device."""

    def __init__(self, cupy, group, symbol, cooperative, scope):
        self.cupy, self.cooperative, self.scope = cupy, cooperative, scope
        self.function, self.divides = getattr(build_host.library(group), symbol), symbol.endswith("divide")
        self.kernel, self.ptr, self.launched = self, 0, []

    def __call__(self, grid, block, args):
        stream = self.cupy.get_current_stream()
        self.cupy.log.append("divide" if self.divides else "launch")
        if self.divides:
            words = ctypes.c_void_p(int(args[0])), ctypes.c_longlong(int(args[1])), ctypes.c_ulonglong(int(args[2]))
        else:
            words = ctypes.c_void_p(args[0].ptr), ctypes.c_int(2)

        def launch():
            self.launched.append((self.cupy.Device().id, grid, block))
            stream.give(lambda: self.function(*words))

        self.cupy.do(launch)
