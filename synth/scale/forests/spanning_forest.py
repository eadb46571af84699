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

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.model.topology import Topology


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
