"""Import of arrays as pointers: NumPy, CuPy, torch, JAX, any library with DLPack or the CUDA array interface.

Nothing is copied and no library is imported. An array that is read through DLPack is kept alive by its capsule. The
capsule is never consumed, so its destructor frees the memory as the owner intended.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13  # DLPack's device types
ANY = -1  # the device of an array on a GPU that does not say which
# DLPack's type code and bits, and NumPy's name
_CODES = {(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)}
_CODES |= {(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)}
_CODES |= {(2, bits): f"float{bits}" for bits in (16, 32, 64)}
_CODES |= {(4, 16): "bfloat16", (6, 8): "bool"}


class ArrayInfo(NamedTuple):
    """Address, elements, type and device of an array.

    `device`: the GPU; None in the host's memory; `ANY` for an unknown GPU. `held`: an object that keeps the memory
    alive.
    """

    pointer: int
    size: int
    dtype: str
    contiguous: bool
    device: int | None
    held: Any


class _Tensor(ctypes.Structure):  # DLTensor of dlpack.h
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def array_info(array: Any, what: str) -> ArrayInfo:
    """Return address, size, type and device of `array`. Raises UsageError, which calls it `what`, if unknown."""
    if isinstance(array, np.ndarray):
        pointer = array.__array_interface__["data"][0]
        return ArrayInfo(pointer, array.size, array.dtype.name, bool(array.flags.c_contiguous), None, array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        try:
            return _dlpack(array, what)
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            if not hasattr(array, "__cuda_array_interface__"):
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise UsageError(f"{what} does not give its memory away by DLPack: {reason}") from None
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_interface(array)
    raise UsageError(
        f"{what} is a {type(array).__name__}; arrays of NumPy, CuPy, torch or anything with DLPack can be used"
    )


def _dlpack(array: Any, what: str) -> ArrayInfo:
    kind, device = (int(part) for part in array.__dlpack_device__())
    if kind not in (CPU, CUDA, PINNED, MANAGED):
        raise UsageError(
            f"{what} is in the memory of a device of another kind (DLPack's {kind}): only CUDA's and the host's can "
            f"be used"
        )
    # stream -1 asks for no synchronisation: the launch runs on the caller's stream
    capsule = array.__dlpack__(stream=-1) if kind in (CUDA, MANAGED) else array.__dlpack__()
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(read(capsule, b"dltensor"))
    shape = [tensor.shape[d] for d in range(tensor.ndim)]
    strides = None
    if tensor.strides:
        strides = [tensor.strides[d] for d in range(tensor.ndim)]
    name = "vectors"
    if tensor.lanes == 1:
        name = _CODES.get((tensor.code, tensor.bits), f"type {tensor.code} of {tensor.bits} bits")
    size = _product(shape)
    pointer = (tensor.data or 0) + tensor.byte_offset
    gpu = device if kind in (CUDA, MANAGED) else None
    return ArrayInfo(pointer, size, name, _contiguous(shape, strides), gpu, (array, capsule))


def _cuda_interface(array: Any) -> ArrayInfo:
    interface = array.__cuda_array_interface__
    shape, size = list(interface["shape"]), np.dtype(interface["typestr"]).itemsize
    dtype = getattr(array, "dtype", None)
    name = str(getattr(dtype, "name", dtype)) if dtype is not None else np.dtype(interface["typestr"]).name
    strides = None
    if interface.get("strides") is not None:
        strides = [step // size for step in interface["strides"]]
    device = getattr(getattr(array, "device", None), "id", ANY)
    return ArrayInfo(interface["data"][0] or 0, _product(shape), name, _contiguous(shape, strides), int(device), array)


def _product(shape: Sequence[int]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _contiguous(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    """Return True where the elements lie one after the other; a dimension of one element may have any stride."""
    if strides is None or 0 in shape:
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def by_rank(arrays: Any, ranks: int, what: str) -> list[Any]:
    """Return one array a rank, from a list or tuple, or the rows of a stacked array.

    Raises UsageError unless there are `ranks` of them; `what` is "input" or "output" in its text.
    """
    if isinstance(arrays, list | tuple):
        rows = list(arrays)
    else:
        shape = getattr(arrays, "shape", None)
        if not shape:
            raise UsageError(
                f"the {what}s are a {type(arrays).__name__}: give a list of one array a rank, or one array with a "
                f"row a rank"
            )
        rows = [arrays[r] for r in range(int(shape[0]))]
    if len(rows) != ranks:
        raise UsageError(f"{len(rows)} {what}s for {ranks} ranks: give one a rank")
    return rows


def is_device(arrays: Any) -> bool:
    """Return True where the array of any rank lies in a GPU's memory."""
    for array in arrays if isinstance(arrays, list | tuple) else [arrays]:
        if isinstance(array, np.ndarray) or array is None:
            continue
        if hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in (CUDA, MANAGED):
            return True
        if hasattr(array, "__cuda_array_interface__"):
            return True
    return False


class ArrayRequirements(NamedTuple):
    """The requirements on an array of a call.

    `what`: its name in messages. `size`: elements. `bytes`: of one element. `device`: the GPU; None: the host's
    memory. `writes`: the call writes it.
    """

    what: str
    size: int
    dtype: str
    bytes: int
    device: int | None
    writes: bool = False


def checked_array_info(array: Any, place: ArrayRequirements) -> ArrayInfo:
    """Return `array_info` of an array of a call. Raises UsageError with a remedy unless it meets `place`."""
    found = array_info(array, place.what)
    if found.device != place.device and (place.device is None or found.device != ANY):
        present, required = _memory(found.device), _memory(place.device)
        raise UsageError(f"{place.what} is in {present}; this call takes it in {required}")
    if found.dtype != place.dtype or found.size != place.size:
        raise UsageError(
            f"{place.what} is of {found.size} elements of {found.dtype}; this call takes {place.size} of {place.dtype}"
        )
    if not found.contiguous:
        raise UsageError(
            f"{place.what} is not contiguous: its elements must lie one after the other (.contiguous(), "
            f"ascontiguousarray)"
        )
    if place.writes and isinstance(array, np.ndarray) and not array.flags.writeable:
        raise UsageError(f"{place.what} is read-only, and this call writes it")
    if found.pointer % place.bytes and found.size:
        raise UsageError(
            f"{place.what} begins at an address that is no multiple of {place.bytes} bytes, the size of its elements"
        )
    return found


def _memory(device: int | None) -> str:
    if device is None:
        return "the host's memory"
    return "a GPU's memory" if device == ANY else f"the memory of GPU {device}"


def view(found: ArrayInfo, kind: np.dtype) -> np.ndarray:
    """Return an array in the host's memory as a one-dimensional NumPy array, without a copy."""
    if not found.size:
        return np.zeros(0, kind)
    memory: Any = (ctypes.c_uint8 * (found.size * kind.itemsize)).from_address(found.pointer)
    return np.frombuffer(memory, np.uint8).view(kind)
