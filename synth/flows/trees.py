"""Trees as they are grown, before they become a `Forest`: parents and the fabric's edges to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError
from synth.flows.cuts import ROOTED, Throughput
from synth.flows.fabric import Fabric
from synth.forest import Forest


class Branch(NamedTuple):
    """Where a rank hears from, and the edges of the fabric on the way."""

    parent: int
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Grown:
    """Tree k: its root, its part of `weight`, and for each other rank a branch."""

    weight: int
    roots: Sequence[int]
    weights: Sequence[int]
    branches: Sequence[dict[int, Branch]]


def finished(fabric: Fabric, bound: Throughput, grown: Grown, group: Sequence[np.ndarray], method: str) -> Forest:
    """The forest in terms of the topology's links. Raises SynthError where a branch uses a way that the topology lacks."""
    shape = len(grown.roots), fabric.ranks
    parents, via = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
    paths: dict[tuple[int, ...], int] = {}
    for k, row in enumerate(grown.branches):
        for y, branch in row.items():
            links = fabric.links_of(branch.path)
            if links is None:
                raise SynthError(f"{fabric.name}: no way from rank {branch.parent} to rank {y} as the packing has it")
            parents[k, y] = branch.parent
            via[k, y] = paths.setdefault(links, len(paths))
    ends = fabric.ranks + len(fabric.topology.switches)
    return Forest(
        fabric.topology,
        bound.collective,
        bound.root if bound.collective in ROOTED else None,
        bound.time / fabric.unit,
        grown.weight,
        np.array(grown.roots, np.int32),
        np.array(grown.weights, np.int64),
        parents,
        via,
        tuple(paths),
        tuple(pi[:ends] for pi in group),
        method,
    )
