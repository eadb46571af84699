"""SpanningForest: trees that move data of a collective at a rate, over physical links, with symmetries for most of
them.

    SpanningForest  topology collective root time weight roots weights parents via paths generators method

Every shard is cut into `weight` units. Tree k is rooted at `roots[k]`, carries `weights[k]` units of that rank's shard,
and
`parents[k, r]` is the rank that rank r hears from (for reductions: sends its sum to), along `paths[via[k, r]]`: links
of the topology in the order that data takes them. `generators` are permutations of ranks and switches; the whole forest
holds the image of every tree under every element of the group they generate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from synth.model.topology import Topology

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce")
TURNED = ("reduce-scatter", "reduce")
ROOTED = ("broadcast", "reduce")


@dataclass(frozen=True, eq=False)
class SpanningForest:
    """`time`: seconds per GB of one shard that the trees need at full bandwidth. `parents` and `via` are int32, -1 at
    the root.

    `method` says how it was made. Nothing here is checked: `tests/spanning_forest_check.py` does that.
    """

    topology: Topology
    collective: str
    root: int | None
    time: Fraction
    weight: int
    roots: np.ndarray
    weights: np.ndarray
    parents: np.ndarray
    via: np.ndarray
    paths: tuple[tuple[int, ...], ...]
    generators: tuple[np.ndarray, ...]
    method: str

    @property
    def bandwidth(self) -> Fraction:
        """Algorithmic bandwidth in GB/s: bytes of all shards over time."""
        return (1 if self.collective in ROOTED else self.topology.ranks) / self.time

    @cached_property
    def depth(self) -> int:
        """Ranks that data passes through on its longest way, less one."""
        home = self.roots[:, None].astype(np.int64)
        above = np.where(self.parents < 0, home, self.parents)
        at, far = above, 0
        while (at != home).any():
            at, far = np.take_along_axis(above, at, 1), far + 1
        return far + 1 if self.topology.ranks > 1 else 0

    def elements(self) -> Iterator[np.ndarray]:
        """Every element of the group, the identity first, as permutations of ranks and switches; made one by one."""
        nodes = self.topology.ranks + len(self.topology.switches)
        identity = np.arange(nodes)
        if not self.generators:
            yield identity
            return
        points = np.arange(self.topology.ranks)
        seen = {identity[points].tobytes()}
        queue = [identity]
        while queue:
            fresh = []
            for pi in queue:
                yield pi
                for g in self.generators:
                    made = g[pi]
                    key = made[points].tobytes()
                    if key not in seen:
                        seen.add(key)
                        fresh.append(made)
            queue = fresh

    def trees(self) -> Iterator[tuple[int, int, np.ndarray, int, np.ndarray]]:
        """Every tree of the whole forest, one by one: root, weight, parents, and the tree k and the element it is the
        image of.

        The link that rank ``element[r]`` uses is the image of the link that r uses in tree k, between the images of its
        ends.
        """
        for element in self.elements():
            for k, root in enumerate(self.roots.tolist()):
                parents = np.empty_like(self.parents[k])
                above = self.parents[k]
                parents[element[: len(above)]] = np.where(above < 0, -1, element[np.maximum(above, 0)])
                yield int(element[root]), int(self.weights[k]), parents, k, element
