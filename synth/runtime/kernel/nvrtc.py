"""NVRTC by ctypes: CUDA source to machine code (cubin), without a driver or a GPU.

The library is that of the wheels `nvidia-cuda-nvrtc` (CUDA 13) or `nvidia-cuda-nvrtc-cu12`, which CuPy's extra [ctk]
also brings, or that of an installed toolkit.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from synth.errors import MissingDependencyError, SynthError
from synth.runtime.kernel import sources

MISSING = "needs NVRTC: pip install nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12"
HEADERS = tuple(sorted(path.name for path in sources.FOLDER.glob("*.cuh")))
_USED = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) "
    r"bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)


class Used(NamedTuple):
    """Resources of one kernel by the assembler: registers a thread, bytes of stack, bytes spilled (stores, loads)."""

    registers: int
    stack: int
    stores: int
    loads: int


class MachineCode(NamedTuple):
    """The machine code of a group for one architecture, and the resources of each kernel in it."""

    cubin: bytes
    used: dict[str, Used]


def library_path(major: int | None = None) -> str | None:
    """Return the path or name of the NVRTC library of CUDA version `major` (None: any); None if there is none."""
    candidates: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for base in (spec.submodule_search_locations or ()) if spec else ():
        for folder in ("cu13/lib", "cuda_nvrtc/lib"):
            candidates += sorted(Path(base, folder).glob("libnvrtc.so.*"))
    for root in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        candidates += sorted(Path(root, "lib64").glob("libnvrtc.so.*"))[:1] if root else []
    for path in candidates:
        if major is None or path.name.startswith(f"libnvrtc.so.{major}"):
            return str(path)
    return None if major is not None else ctypes.util.find_library("nvrtc")


@cache
def _library(major: int | None) -> ctypes.CDLL:
    path = library_path(major)
    if path is None:
        raise MissingDependencyError(f"compiling for a GPU {MISSING}")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise SynthError(f"{path} cannot be loaded: {error}") from None
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def version(major: int | None = None) -> tuple[int, int]:
    """Return major and minor version of the NVRTC library. Raises MissingDependencyError, SynthError."""
    a, b = ctypes.c_int(), ctypes.c_int()
    _library(major).nvrtcVersion(ctypes.byref(a), ctypes.byref(b))
    return a.value, b.value


def compile_group(group: str, arch: int, options: tuple[str, ...] = (), *, major: int | None = None) -> MachineCode:
    """Compile the kernels of one group (of `sources.GROUPS`) for sm_`arch`.

    Raises MissingDependencyError, and SynthError with the compiler's first error.
    """
    return compile_source('#include "interp.cuh"\n' + sources.lines(group), arch, options, major=major)


def compile_source(source: str, arch: int, options: tuple[str, ...] = (), *, major: int | None = None) -> MachineCode:
    """Compile any source that includes the kernel's headers; see `compile_group`."""
    lib = _library(major)
    headers = [(sources.FOLDER / name).read_bytes() for name in HEADERS]
    texts = (ctypes.c_char_p * len(headers))(*headers)
    names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in HEADERS))
    program = ctypes.c_void_p()
    _good(lib, lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"synth.cu", len(headers), texts, names))
    try:
        words = [f"--gpu-architecture=sm_{arch}", "--std=c++17", "--ptxas-options=-v", *options]
        flags = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        failed = lib.nvrtcCompileProgram(program, len(words), flags)
        log = _bytes(lib, program, "ProgramLog").decode(errors="replace")
        if failed:
            errors = [line for line in log.splitlines() if "error" in line]
            reason = errors[0] if errors else lib.nvrtcGetErrorString(failed).decode()
            raise SynthError(f"NVRTC cannot compile the kernel for sm_{arch}: {reason.strip()}")
        used = {m[1]: Used(int(m[5]), int(m[2]), int(m[3]), int(m[4])) for m in _USED.finditer(log)}
        return MachineCode(_bytes(lib, program, "CUBIN"), used)
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(lib: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _good(lib, getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(max(1, size.value))
    _good(lib, getattr(lib, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw[: size.value].rstrip(b"\0") if what == "ProgramLog" else buffer.raw[: size.value]


def _good(lib: ctypes.CDLL, code: int) -> None:
    if code:
        raise SynthError(f"NVRTC: {lib.nvrtcGetErrorString(code).decode()}")
