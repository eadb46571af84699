"""The best single-cut bound on allreduce: every byte must leave, or enter, a region, however its sums are formed.

Where the capacities into and out of each node are equal, they are equal for each region too. Then the partition into
the region and the rest gives the same bound (`synth.scale.bounds.allreduce_partition`). Where they differ, a single
region may give a better one. The bound needs the least of all minimum cuts from rank to rank. Under commuting
symmetries without fixed ranks, a least region either is a union of orbits, or contains some rank v but not its image
g(v) under one of the generators g. The symmetry that maps v to the first rank of its orbit maps the region to one that
separates this first rank from its image. So a few flows for each orbit find the least cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from synth.scale.bounds.throughput_cut import Throughput
from synth.scale.fabric.automorphisms import orbits
from synth.scale.fabric.fabric import Fabric
from synth.solvers.deadline import TimeUp
from synth.solvers.max_flow import MaxFlow

Sets = tuple[np.ndarray, np.ndarray]


def is_balanced(fabric: Fabric) -> bool:
    """Return True if each node has equal capacities in and out: then no single cut beats the best partition."""
    return not (capacity_out(fabric) - capacity_out(fabric.reversed())).any()


def capacity_out(fabric: Fabric) -> np.ndarray:
    """Return the capacity out of each node."""
    total = np.zeros(fabric.nodes, np.int64)
    np.add.at(total, fabric.src, fabric.cap)
    return total


def narrowest_cut(fabric: Fabric, group: Sequence[np.ndarray] = ()) -> Throughput:
    """Return the bound of the region with the least capacity out of it, among regions with ranks inside and outside.

    A byte of an allreduce takes at least 1 / capacity. `group`: commuting symmetries that fix no rank
    (`synth.scale.fabric.automorphisms.free_group`). When a time limit (`synth.solvers.deadline`) ends the
    search, the result is the best cut so far, which is no worse than the cut around each single rank. Every rank must
    be reachable from every other.
    """
    ranks, source, sink = fabric.ranks, fabric.nodes, fabric.nodes + 1
    rank, out, into = np.arange(ranks), capacity_out(fabric), capacity_out(fabric.reversed())
    sends, takes = out[:ranks], into[:ranks]
    least, inside = int(sends.min()), np.arange(fabric.nodes) == np.argmin(sends)
    if takes.min() < least:
        least, inside = int(takes.min()), np.arange(fabric.nodes) != np.argmin(takes)
    flow = MaxFlow(np.r_[fabric.src, np.full(ranks, source), rank], np.r_[fabric.dst, rank, np.full(ranks, sink)])
    whole = True
    try:
        for first, second in _pairs(ranks, group):
            flow.set_capacities(np.r_[fabric.cap, np.where(first, sends, 0), np.where(second, takes, 0)])
            if (value := flow.value(source, sink)) < least:
                # The source feeds a rank with all that the rank can send. So moving the ranks of `first` into the
                # region, and those of `second` out of it, does not increase the cut.
                least, inside = (
                    value,
                    (flow.source_side(fabric.nodes) | _by_node(fabric, first)) & ~_by_node(fabric, second),
                )
    except TimeUp:
        whole = False
    shards = np.ones(ranks, np.int64)
    return Throughput(fabric, "allreduce", 0, shards, Fraction(1, least), inside, flow.calls, whole=whole)


def _pairs(ranks: int, group: Sequence[np.ndarray]) -> Iterator[Sets]:
    """Yield pairs (ranks inside the region, ranks outside) as masks.

    The least of the minimum cuts between these pairs is the least cut of all.
    """
    rank = np.arange(ranks)
    label = orbits(ranks, [pi[:ranks] for pi in group])
    first = np.flatnonzero(label == rank).tolist()
    for at in first:
        for pi in group:
            yield rank == at, rank == pi[at]
    for at in first[1:]:
        yield label == first[0], label == at
        yield label == at, label == first[0]


def _by_node(fabric: Fabric, ranks: np.ndarray) -> np.ndarray:
    return np.r_[ranks, np.zeros(fabric.nodes - fabric.ranks, bool)]
