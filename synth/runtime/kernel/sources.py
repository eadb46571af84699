"""The kernel's source files, and which instantiation runs which element type, operator and feature.

A program that only copies needs none of the arithmetic: `COPY` moves bytes, whatever their type. avg adds, and ends
with one division. Each element type with each feature is one group of instantiations, compiled together; what a kernel
can do beyond FIFOs costs those without it nothing. Tables made for a feature are right for the plain kernel too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from synth.program.program import REDUCING, Program
from synth.runtime.dtypes import DTYPES, Dtype

FOLDER = Path(__file__).parent
COPY = "copy"
_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "f16",
    "bf16": "bf16",
    "i8": "signed char",
    "u8": "unsigned char",
    "i32": "int",
    "u32": "u32",
    "i64": "i64",
    "u64": "u64",
}
_OPERATORS = {"sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max"}
PLAIN, LL, DIRECT, CLOCK = "", "ll", "direct", "clock"
FEATURES = (PLAIN, LL, DIRECT, CLOCK)
GROUPS = tuple(
    f"{name}-{feature}".rstrip("-") for feature in FEATURES for name in (COPY, *(kind.short for kind in DTYPES))
)


class Instance(NamedTuple):
    """One instantiation: the group it is compiled with, its symbol, and the bytes of what it calls an element."""

    group: str
    symbol: str
    size: int


def instance(program: Program, kind: Dtype, op: str, feature: str = PLAIN) -> Instance:
    """What runs `program` on elements of `kind`."""
    reduces = any(step.code in REDUCING for gpu in program.gpus for block in gpu.blocks for step in block.ops)
    name, size = (kind.short, kind.size) if reduces else (COPY, 1)
    group = f"{name}-{feature}".rstrip("-")
    return Instance(group, _symbol(group, "sum" if op == "avg" else op), size)


def symbols(group: str) -> list[str]:
    """The kernels of a group, the division of avg not among them."""
    return [_symbol(group, op) for op in (["copy"] if group.startswith(COPY) else _OPERATORS)]


def _symbol(group: str, op: str) -> str:
    name, _, feature = group.partition("-")
    return "_".join(["synth", *([COPY] if name == COPY else [name, op]), *([feature] if feature else [])])


def lines(group: str) -> str:
    """The source lines that instantiate a group."""
    name, _, feature = group.partition("-")
    made = {"copy": "Copy"} if name == COPY else _OPERATORS
    kind = "unsigned char" if name == COPY else _TYPES[name]
    found = [
        f"SYNTH_KERNEL({_symbol(group, op)[6:]}, {kind}, {functor}, {feature.upper() or 0})\n"
        for op, functor in made.items()
    ]
    if name != COPY and not feature:
        found.append(f"SYNTH_DIVIDE({name}_divide, {kind})\n")
    return "".join(found)


def fingerprint(*parts: str, folder: Path = FOLDER) -> str:
    """Of all the kernel's source files and `parts`: what is compiled from the same has the same."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cuh", ".cpp"):
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    found.update("\0".join(parts).encode())
    return found.hexdigest()[:24]
