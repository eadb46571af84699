"""The library of algorithms: one file a family, each a program of the chunk language.

A family's functions do a collective on a group, ``ring.allgather(group, held)``, so that programs are composed of them.
Each is a `ChunkAlgorithm`, with a formula of its steps and rounds, its source, and a machine for which it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from synth.language import ChunkAlgorithm
from synth.language.library import (
    alltoall,
    broadcast,
    bruck,
    direct,
    double_tree,
    grid,
    halving_doubling,
    hierarchical,
    one_shot,
    packed_trees,
    recursive_doubling,
    ring,
    torus,
    two_shot,
)

_MODULES = (
    direct, one_shot, two_shot, ring, recursive_doubling, halving_doubling, bruck, torus, broadcast, double_tree,
    hierarchical, grid, alltoall, packed_trees,
)  # fmt: skip
# Families by name, for programs that take one as a parameter.
FAMILIES: Mapping[str, ModuleType] = {module.__name__.rpartition(".")[2]: module for module in _MODULES}


def _algorithms() -> tuple[ChunkAlgorithm, ...]:
    found = []
    for family in FAMILIES.values():
        found += [value for value in vars(family).values() if isinstance(value, ChunkAlgorithm)]
    return tuple(found)


LIBRARY = _algorithms()
