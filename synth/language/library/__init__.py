"""The library of algorithms: one file a family, each algorithm a program of the chunk language.

The functions do a collective on a group, ``ring.allgather(group, held)``, so that programs are composed of them. Each
is a `ChunkAlgorithm`, with a formula of its steps and rounds, its source, and a machine for which it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from synth.language import ChunkAlgorithm
from synth.language.library import direct, hierarchical, recursive_doubling, ring, rooted_trees

# Families by name, for programs that take one as a parameter.
FAMILIES: Mapping[str, ModuleType] = {
    "direct": direct,
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "rooted_trees": rooted_trees,
    "hierarchical": hierarchical,
}


LIBRARY: tuple[ChunkAlgorithm, ...] = tuple(
    value for family in FAMILIES.values() for value in vars(family).values() if isinstance(value, ChunkAlgorithm)
)
