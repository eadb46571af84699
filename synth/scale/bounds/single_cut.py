"""The one cut that bounds allreduce best: a region that every byte must leave, or enter, however its sums are formed.

Where as much enters every node as leaves it, a region is left by as much as enters it, and the partition into the
region and the rest says the same (`synth.scale.bounds.allreduce_partition`); where directions differ, the narrower one
of a single region may say more. Sought is the least of all minimum cuts from rank to rank. Under commuting symmetries
without fixed ranks a least region either is made of whole orbits, or holds some rank v and not its image g(v) by one of
the generators g; the symmetry that takes v to the first rank of its orbit takes the region to one that parts this rank
from its own image: a few flows for each orbit find the least of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from synth.scale.bounds.throughput_cut import Throughput
from synth.scale.fabric.automorphisms import orbits
from synth.scale.fabric.fabric import Fabric
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import TimeUp

Sets = tuple[np.ndarray, np.ndarray]


def even(fabric: Fabric) -> bool:
    """Whether as much enters each node as leaves it, so that no single cut says more than the best partition."""
    return not (leaving(fabric) - leaving(fabric.reversed())).any()


def leaving(fabric: Fabric) -> np.ndarray:
    """What leaves each node."""
    total = np.zeros(fabric.nodes, np.int64)
    np.add.at(total, fabric.src, fabric.cap)
    return total


def narrowest(fabric: Fabric, group: Sequence[np.ndarray] = ()) -> Throughput:
    """The region with ranks in and out of it that least leaves: a byte of an allreduce takes no less time than 1 over
    that.

    `group`: commuting symmetries that fix no rank (`synth.scale.fabric.automorphisms.free_group`). A time limit
    (`synth.solvers.processes.deadline`) leaves the least so far, at least that of each rank alone. Every rank must be
    reached from every other.
    """
    ranks, source, sink = fabric.ranks, fabric.nodes, fabric.nodes + 1
    rank, out, into = np.arange(ranks), leaving(fabric), leaving(fabric.reversed())
    sends, takes = out[:ranks], into[:ranks]
    least, inside = int(sends.min()), np.arange(fabric.nodes) == np.argmin(sends)
    if takes.min() < least:
        least, inside = int(takes.min()), np.arange(fabric.nodes) != np.argmin(takes)
    flow = MaxFlow(np.r_[fabric.src, np.full(ranks, source), rank], np.r_[fabric.dst, rank, np.full(ranks, sink)])
    whole = True
    try:
        for held, other in _pairs(ranks, group):
            flow.set(np.r_[fabric.cap, np.where(held, sends, 0), np.where(other, takes, 0)])
            if (value := flow.value(source, sink)) < least:
                # what the source cannot feed stands for its ranks: they stay inside, and the others outside, at the
                # same cut or less
                least, inside = value, (flow.inside(fabric.nodes) | _wide(fabric, held)) & ~_wide(fabric, other)
    except TimeUp:
        whole = False
    shards = np.ones(ranks, np.int64)
    return Throughput(fabric, "allreduce", 0, shards, Fraction(1, least), inside, flow.calls, whole=whole)


def _pairs(ranks: int, group: Sequence[np.ndarray]) -> Iterator[Sets]:
    """Ranks to have in the region and ranks to have out of it: the least cuts of all these pairs have a least one of
    all among them."""
    rank = np.arange(ranks)
    label = orbits(ranks, [pi[:ranks] for pi in group])
    first = np.flatnonzero(label == rank).tolist()
    for at in first:
        for pi in group:
            yield rank == at, rank == pi[at]
    for at in first[1:]:
        yield label == first[0], label == at
        yield label == at, label == first[0]


def _wide(fabric: Fabric, held: np.ndarray) -> np.ndarray:
    return np.r_[held, np.zeros(fabric.nodes - fabric.ranks, bool)]
