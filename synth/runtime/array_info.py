"""Arrays as pointers: NumPy's, torch's, CuPy's and others with the CUDA array interface. Nothing is copied."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError

ANY = -1  # the device of an array on a GPU that does not say which


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


def array_info(array: Any, what: str) -> ArrayInfo:
    """Return address, size, type and device of `array`. Raises UsageError, which calls it `what`, if unknown."""
    if isinstance(array, np.ndarray):
        pointer = array.__array_interface__["data"][0]
        return ArrayInfo(pointer, array.size, array.dtype.name, bool(array.flags.c_contiguous), None, array)
    if hasattr(array, "data_ptr"):  # a torch.Tensor
        device = array.device.index if array.is_cuda else None
        name = str(array.dtype).removeprefix("torch.")
        return ArrayInfo(array.data_ptr(), array.numel(), name, array.is_contiguous(), device, array)
    if hasattr(array, "__cuda_array_interface__"):
        interface = array.__cuda_array_interface__
        shape, kind = interface["shape"], np.dtype(interface["typestr"])
        dtype = getattr(array, "dtype", kind)
        strides = None
        if interface.get("strides") is not None:
            strides = [step // kind.itemsize for step in interface["strides"]]
        device = getattr(getattr(array, "device", None), "id", ANY)
        name, whole = str(getattr(dtype, "name", dtype)), _contiguous(shape, strides)
        return ArrayInfo(interface["data"][0] or 0, prod(shape), name, whole, int(device), array)
    raise UsageError(
        f"{what} is a {type(array).__name__}; arrays of NumPy, torch, CuPy or any with the CUDA array interface can be "
        "used"
    )


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
