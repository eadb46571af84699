"""Trees on the edges of a fabric, before `to_forest` translates them into a `SpanningForest` on physical links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError
from synth.model.scale_collectives import ROOTED
from synth.scale.bounds.throughput_cut import Throughput
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
    roots: list[int]
    weights: list[int]
    branches: list[dict[int, Branch]]

    def add(self, root: int, weight: int, parts: Mapping[int, Sequence[tuple[int, Branch]]]) -> None:
        """Add the trees from a root that together carry `weight` units, where ranks take them over several branches.

        ``parts[y]`` lists (end, branch) by growing end: a branch of rank y serves the units below its end, from the end
        of the branch before on. So one tree ends, and the next begins, where the branch of any rank ends.
        """
        ends = {0, weight}
        for branches in parts.values():
            ends.update(end for end, _ in branches)
        for start, end in pairwise(sorted(ends)):
            row = {}
            for y, branches in parts.items():
                row[y] = next(branch for stop, branch in branches if stop > start)
            self.roots.append(root)
            self.weights.append(end - start)
            self.branches.append(row)


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
    root = bound.root if bound.collective in ROOTED else None
    return SpanningForest(
        fabric.topology, bound.collective, root, bound.time / fabric.unit, grown.weight,
        np.array(grown.roots, np.int32), np.array(grown.weights, np.int64), parents, via, tuple(paths),
        tuple(pi[:ends] for pi in group), method,
    )  # fmt: skip
