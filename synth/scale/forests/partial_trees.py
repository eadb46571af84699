"""Trees as they are grown, before they become a `Forest`: parents and the fabric's edges to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError
from synth.model.spanning_forest import Forest
from synth.scale.bounds.throughput_cut import ROOTED, Throughput
from synth.scale.fabric.fabric import Fabric


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


@dataclass(frozen=True, eq=False)
class Flat:
    """As `Grown`, in arrays: row k of `parent` and `way` holds each rank's parent and which of `ways` leads to it, -1
    at the root."""

    weight: int
    roots: Sequence[int]
    weights: Sequence[int]
    parent: np.ndarray
    way: np.ndarray
    ways: Sequence[tuple[int, ...]]

    @property
    def branches(self) -> list[dict[int, Branch]]:
        """As `Grown.branches`."""
        rows = zip(self.parent.tolist(), self.way.tolist(), strict=True)
        return [
            {y: Branch(x, self.ways[w]) for y, (x, w) in enumerate(zip(*row, strict=True)) if w >= 0} for row in rows
        ]


def finished(
    fabric: Fabric, bound: Throughput, grown: Grown | Flat, group: Sequence[np.ndarray], method: str
) -> Forest:
    """The forest in terms of the topology's links. Raises SynthError where a branch uses a way that the topology
    lacks."""
    parents, via, paths = _flat(fabric, grown) if isinstance(grown, Flat) else _branched(fabric, grown)
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
        paths,
        tuple(pi[:ends] for pi in group),
        method,
    )


def _flat(fabric: Fabric, grown: Flat) -> tuple[np.ndarray, np.ndarray, tuple[tuple[int, ...], ...]]:
    paths: dict[tuple[int, ...], int] = {}
    number = np.full(len(grown.ways) + 1, -1, np.int32)
    for i, links in enumerate(fabric.links_of_all(grown.ways)):
        if links is None:
            raise SynthError(f"{fabric.name}: the topology has no way as the trees take it")
        number[i] = paths.setdefault(links, len(paths))
    return grown.parent.astype(np.int32), number[grown.way], tuple(paths)


def _branched(fabric: Fabric, grown: Grown) -> tuple[np.ndarray, np.ndarray, tuple[tuple[int, ...], ...]]:
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
    return parents, via, tuple(paths)
