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


@dataclass(frozen=True, eq=False)
class Flat:
    """As `Grown` where every way is one edge: row k of `parent` and `edge` holds each rank's, -1 at the root."""

    weight: int
    roots: Sequence[int]
    weights: Sequence[int]
    parent: np.ndarray
    edge: np.ndarray

    @property
    def branches(self) -> list[dict[int, Branch]]:
        """As `Grown.branches`."""
        rows = zip(self.parent.tolist(), self.edge.tolist(), strict=True)
        return [{y: Branch(x, (e,)) for y, (x, e) in enumerate(zip(*row, strict=True)) if e >= 0} for row in rows]


def finished(fabric: Fabric, bound: Throughput, grown: Grown | Flat, group: Sequence[np.ndarray], method: str) -> Forest:
    """The forest in terms of the topology's links. Raises SynthError where a branch uses a way that the topology lacks."""
    parents, via, paths = _single(fabric, grown) if isinstance(grown, Flat) else _branched(fabric, grown)
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


def _single(fabric: Fabric, grown: Flat) -> tuple[np.ndarray, np.ndarray, tuple[tuple[int, ...], ...]]:
    inner = grown.edge >= 0
    used, number = np.unique(fabric.link[grown.edge[inner]], return_inverse=True)
    if len(used) and used[0] < 0:
        raise SynthError(f"{fabric.name}: an edge of a tree is no link")
    via = np.full(grown.edge.shape, -1, np.int32)
    via[inner] = number
    return grown.parent.astype(np.int32), via, tuple((link,) for link in used.tolist())


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
