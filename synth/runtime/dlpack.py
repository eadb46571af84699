"""Arrays of other libraries as pointers: NumPy, CuPy, torch, JAX, whatever speaks DLPack or has an array interface.

Nothing is copied and no library is imported. What is read through DLPack is kept alive by its capsule, which is never
consumed, so the owner's memory is given back as if nobody had asked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError
from synth.runtime.dtypes import DTYPES

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13  # DLPack's device types
ANY = -1  # a GPU, and the array does not say which
_CODES = {(0, bits): f"int{bits}" for bits in (8, 16, 32, 64)} | {(1, bits): f"uint{bits}" for bits in (8, 16, 32, 64)}
_CODES |= {(2, bits): f"float{bits}" for bits in (16, 32, 64)} | {(4, 16): "bfloat16", (6, 8): "bool"}
_NAMES = {kind.name for kind in DTYPES}


class Facts(NamedTuple):
    """Where an array lies. `device`: the GPU, None in the host's memory. `held`: what keeps the memory while it is
    used."""

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


def facts(array: Any, what: str) -> Facts:
    """Where `array` lies, and what it is. Raises UsageError, `what` naming it, where it cannot be known."""
    if isinstance(array, np.ndarray):
        pointer = array.__array_interface__["data"][0]
        return Facts(pointer, array.size, array.dtype.name, bool(array.flags.c_contiguous), None, array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        try:
            return _dlpack(array, what)
        except (BufferError, TypeError, ValueError, RuntimeError) as error:
            if not hasattr(array, "__cuda_array_interface__"):
                said = (str(error).splitlines() or [type(error).__name__])[0]
                raise UsageError(f"{what} does not give its memory away by DLPack: {said}") from None
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_interface(array)
    raise UsageError(
        f"{what} is a {type(array).__name__}; arrays of NumPy, CuPy, torch or anything with DLPack can be used"
    )


def _dlpack(array: Any, what: str) -> Facts:
    kind, device = (int(part) for part in array.__dlpack_device__())
    if kind not in (CPU, CUDA, PINNED, MANAGED):
        raise UsageError(
            f"{what} is in the memory of a device of another kind (DLPack's {kind}): only CUDA's and the host's can "
            f"be used"
        )
    # -1: no synchronisation, for the launch is on the caller's stream
    capsule = array.__dlpack__(stream=-1) if kind in (CUDA, MANAGED) else array.__dlpack__()
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(read(capsule, b"dltensor"))
    shape = [tensor.shape[d] for d in range(tensor.ndim)]
    strides = [tensor.strides[d] for d in range(tensor.ndim)] if tensor.strides else None
    name = (
        _CODES.get((tensor.code, tensor.bits), f"type {tensor.code} of {tensor.bits} bits")
        if tensor.lanes == 1
        else "vectors"
    )
    size = _product(shape)
    pointer = (tensor.data or 0) + tensor.byte_offset
    return Facts(
        pointer, size, name, _dense(shape, strides), device if kind in (CUDA, MANAGED) else None, (array, capsule)
    )


def _cuda_interface(array: Any) -> Facts:
    said = array.__cuda_array_interface__
    shape, size = list(said["shape"]), np.dtype(said["typestr"]).itemsize
    dtype = getattr(array, "dtype", None)
    name = str(getattr(dtype, "name", dtype)) if dtype is not None else np.dtype(said["typestr"]).name
    strides = None if said.get("strides") is None else [step // size for step in said["strides"]]
    device = getattr(getattr(array, "device", None), "id", ANY)
    return Facts(said["data"][0] or 0, _product(shape), name, _dense(shape, strides), int(device), array)


def _product(shape: Sequence[int]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _dense(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    """Whether the elements lie one after the other; a dimension of one element may have any stride."""
    if strides is None or 0 in shape:
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def by_rank(arrays: Any, ranks: int, what: str) -> list[Any]:
    """One array a rank: of a list or tuple, or the rows of a stacked array. Raises UsageError where they are not so
    many."""
    if isinstance(arrays, list | tuple):
        found = list(arrays)
    else:
        shape = getattr(arrays, "shape", None)
        if not shape:
            raise UsageError(
                f"the {what}s are a {type(arrays).__name__}: give a list of one array a rank, or one array with a "
                f"row a rank"
            )
        found = [arrays[r] for r in range(int(shape[0]))]
    if len(found) != ranks:
        raise UsageError(f"{len(found)} {what}s for {ranks} ranks: give one a rank")
    return found


def is_device(arrays: Any) -> bool:
    """Whether `arrays` (of any rank) lie in a GPU's memory."""
    for array in arrays if isinstance(arrays, list | tuple) else [arrays]:
        if isinstance(array, np.ndarray) or array is None:
            continue
        if hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in (CUDA, MANAGED):
            return True
        if hasattr(array, "__cuda_array_interface__"):
            return True
    return False


class Place(NamedTuple):
    """What an array of a call must be: its owner in words, how many elements, of which type, on which GPU (None: in the
    host's memory).
    `writes`: the call writes it."""

    what: str
    size: int
    dtype: str
    bytes: int
    device: int | None
    writes: bool = False


def pointer(array: Any, place: Place) -> Facts:
    """Where `array` lies, after checking that it is what `place` says. Raises UsageError: one line, with what to do."""
    found = facts(array, place.what)
    if found.device != place.device and (place.device is None or found.device != ANY):
        here, there = _memory(found.device), _memory(place.device)
        raise UsageError(f"{place.what} is in {here}; this call takes it in {there}")
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
    return (
        "the host's memory" if device is None else "a GPU's memory" if device == ANY else f"the memory of GPU {device}"
    )


def view(found: Facts, kind: np.dtype) -> np.ndarray:
    """An array in the host's memory as NumPy's, one-dimensional: no copy."""
    if not found.size:
        return np.zeros(0, kind)
    memory: Any = (ctypes.c_uint8 * (found.size * kind.itemsize)).from_address(found.pointer)
    return np.frombuffer(memory, np.uint8).view(kind)
