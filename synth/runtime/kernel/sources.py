"""The kernel's source files, and the instantiation for each element type, operator and feature.

A program that only copies needs no arithmetic: `COPY` moves bytes of any type. avg adds, and ends with one division.
Each element type with each feature is one group of instantiations, compiled together, so that a feature costs nothing
in kernels without it. The tables built for a feature are valid for the plain kernel too.
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
PLAIN, LL, DIRECT, CLOCK, PORTS = "", "ll", "direct", "clock", "ports"
FEATURES = (PLAIN, LL, DIRECT, CLOCK, PORTS)
_SHORT_NAMES = (COPY, *(kind.short for kind in DTYPES))
GROUPS = tuple(f"{name}-{feature}".rstrip("-") for feature in FEATURES for name in _SHORT_NAMES)


class KernelInstance(NamedTuple):
    """One instantiation: the group that it is compiled with, its symbol, and the bytes of its elements."""

    group: str
    symbol: str
    size: int


def instance(program: Program, kind: Dtype, op: str, feature: str = PLAIN) -> KernelInstance:
    """Return the instantiation that runs `program` on elements of `kind`."""
    reduces = any(step.code in REDUCING for gpu in program.gpus for block in gpu.blocks for step in block.ops)
    name, size = (kind.short, kind.size) if reduces else (COPY, 1)
    group = f"{name}-{feature}".rstrip("-")
    return KernelInstance(group, _symbol(group, "sum" if op == "avg" else op), size)


def symbols(group: str) -> list[str]:
    """Return the symbols of a group's kernels, without the division of avg."""
    operators = [COPY] if group.startswith(COPY) else list(_OPERATORS)
    return [_symbol(group, op) for op in operators]


def _symbol(group: str, op: str) -> str:
    name, _, feature = group.partition("-")
    words = ["synth", COPY] if name == COPY else ["synth", name, op]
    return "_".join([*words, feature] if feature else words)


def lines(group: str, only: str = "") -> str:
    """Return the source lines that instantiate a group, or one symbol of it."""
    name, _, feature = group.partition("-")
    functors = {COPY: "Copy"} if name == COPY else _OPERATORS
    kind = "unsigned char" if name == COPY else _TYPES[name]
    text = [
        f"SYNTH_KERNEL({_symbol(group, op)[6:]}, {kind}, {functor}, {feature.upper() or 0})\n"
        for op, functor in functors.items()
        if only in ("", _symbol(group, op))
    ]
    if name != COPY and not feature and not only:
        text.append(f"SYNTH_DIVIDE({name}_divide, {kind})\n")
    return "".join(text)


def fingerprint(*parts: str, folder: Path = FOLDER) -> str:
    """Return a digest of the kernel's source files and of `parts`, the name of compiled code in the cache."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cuh", ".cpp"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:24]
