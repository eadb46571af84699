"""The library of algorithms: one file a family, each a program of the chunk language.

A family's functions do a collective on a group, ``ring.allgather(group, held)``, so that programs are composed of them;
each is an `ChunkAlgorithm`, too, with a formula of its steps and rounds, its source and a machine for which it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from synth.algorithms import direct, ring
from synth.language import ChunkAlgorithm

FAMILIES: Mapping[str, ModuleType] = {"direct": direct, "ring": ring}


def _algorithms() -> tuple[ChunkAlgorithm, ...]:
    found = []
    for family in FAMILIES.values():
        found += [value for value in vars(family).values() if isinstance(value, ChunkAlgorithm)]
    return tuple(found)


LIBRARY = _algorithms()
