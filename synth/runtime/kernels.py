"""The kernel's source files, and which instantiation runs which element type and operator.

A program that only copies needs none of the arithmetic: `COPY` moves bytes, whatever their type. avg adds, and ends with
one division. Each element type is one group of instantiations, compiled together.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from synth.program.program import REDUCING, Program
from synth.runtime.dtypes import DTYPES, Dtype

FOLDER = Path(__file__).parent / "kernel"
COPY = "copy"
_TYPES = {
    "f64": "double", "f32": "float", "f16": "f16", "bf16": "bf16", "i8": "signed char", "u8": "unsigned char", "i32": "int",
    "u32": "u32", "i64": "i64", "u64": "u64",
}  # fmt: skip
_OPERATORS = {"sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max"}
GROUPS = (COPY, *(kind.short for kind in DTYPES))


class Instance(NamedTuple):
    """One instantiation: the group it is compiled with, its symbol, and the bytes of what it calls an element."""

    group: str
    symbol: str
    size: int


def instance(program: Program, kind: Dtype, op: str) -> Instance:
    """What runs `program` on elements of `kind`."""
    if not any(step.code in REDUCING for gpu in program.gpus for block in gpu.blocks for step in block.ops):
        return Instance(COPY, "synth_copy", 1)
    return Instance(kind.short, f"synth_{kind.short}_{'sum' if op == 'avg' else op}", kind.size)


def symbols(group: str) -> list[str]:
    """The kernels of a group, the division of avg not among them."""
    return ["synth_copy"] if group == COPY else [f"synth_{group}_{op}" for op in _OPERATORS]


def lines(group: str) -> str:
    """The source lines that instantiate a group."""
    if group == COPY:
        return "SYNTH_KERNEL(copy, unsigned char, Copy, 0)\n"
    made = _TYPES[group]
    kernels = (f"SYNTH_KERNEL({group}_{op}, {made}, {functor}, 0)\n" for op, functor in _OPERATORS.items())
    return "".join(kernels) + f"SYNTH_DIVIDE({group}_divide, {made})\n"


def fingerprint(*parts: str, folder: Path = FOLDER) -> str:
    """Of all the kernel's source files and `parts`: what is compiled from the same has the same."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cuh", ".cpp"):
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    found.update("\0".join(parts).encode())
    return found.hexdigest()[:24]
