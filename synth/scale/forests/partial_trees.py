"""Trees on the edges of a fabric, before `to_forest` translates them into a `SpanningForest` on physical links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError
from synth.scale.bounds.throughput_cut import ROOTED, Throughput
from synth.scale.fabric.fabric import Fabric
from synth.scale.forests.spanning_forest import SpanningForest


class Branch(NamedTuple):
    """The parent of a rank in a tree, and the edges of the fabric from the parent to the rank."""

    parent: int
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BranchForest:
    """A forest as dictionaries: tree k has root `roots[k]` and carries `weights[k]` of the `weight` units of a shard.

    `branches[k]` holds a branch for each rank but the root.
    """

    weight: int
    roots: Sequence[int]
    weights: Sequence[int]
    branches: Sequence[dict[int, Branch]]


def branches_at(ends: Mapping[int, Sequence[tuple[int, Branch]]], unit: int) -> dict[int, Branch]:
    """Return each rank's branch in the tree that carries `unit` of the weight.

    ``ends[y]`` lists (end, branch) by growing end: a branch of rank y serves the units below its end, from the end of
    the branch before on.
    """
    branches: dict[int, Branch] = {}
    for y, parts in ends.items():
        branches[y] = next(branch for end, branch in parts if end > unit)
    return branches


def to_forest(
    fabric: Fabric, bound: Throughput, grown: BranchForest, group: Sequence[np.ndarray], method: str
) -> SpanningForest:
    """Return the forest in terms of the topology's links.

    `group` generates the symmetries whose images of the trees are meant too. `method` names the construction. Raises
    SynthError where a branch uses a path that the topology lacks.
    """
    shape = len(grown.roots), fabric.ranks
    parents, via = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
    paths: dict[tuple[int, ...], int] = {}
    for k, row in enumerate(grown.branches):
        for y, branch in row.items():
            links = fabric.links_of(branch.path)
            if links is None:
                raise SynthError(
                    f"{fabric.name}: the topology lacks the path of the trees from rank {branch.parent} to rank {y}"
                )
            parents[k, y] = branch.parent
            via[k, y] = paths.setdefault(links, len(paths))
    ends = fabric.ranks + len(fabric.topology.switches)
    return SpanningForest(
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
