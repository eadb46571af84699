"""Lower bounds on allreduce at scale: the best of a few partitions of the ranks, with certificates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from synth.bounds import check_parts, check_scale
from synth.flows.cuts import throughput
from synth.flows.fabric import Fabric
from synth.flows.until import TimeUp, endless

# Ranks up to which the packing of trees is asked for its partition.
PACKED = 16


def bound(fabric: Fabric) -> tuple[Fraction, dict, bool]:
    """(least R / C in the unit of the fabric, certificate, whether all were tried): no allreduce takes fewer rounds per chunk.

    Tried: every rank alone, the boxes, the two sides of the cut that limits allgather, and on direct machines of equal
    links both ways the partition of the tree packing. A time limit (see `synth.flows.until`) ends it with the best so far,
    at least that of rank 0 against all others.
    """
    best, kept = Fraction(0), {}
    try:
        for label in _partitions(fabric):
            value, certificate = _proved(fabric, label)
            if value > best:
                best, kept = value, certificate
    except TimeUp:
        if not kept:
            with endless():
                best, kept = _proved(fabric, [0, *[1] * (fabric.ranks - 1)])
        return best, kept, False
    return best, kept, True


def _proved(fabric: Fabric, label: Sequence[int]) -> tuple[Fraction, dict]:
    certificate = _certificate(fabric, label)
    return check_parts.check(certificate, fabric.topology) * fabric.unit, certificate


def _partitions(fabric: Fabric) -> Iterable[Sequence[int]]:
    topology, ranks = fabric.topology, fabric.ranks
    yield range(ranks)
    if len(set(topology.nodes)) > 1:
        yield topology.nodes
    for name in ("allgather", "reduce-scatter"):
        inside = throughput(fabric, name).inside[:ranks]
        yield inside.astype(int).tolist()
        if len(set(topology.nodes)) > 1:
            pairs = list(zip(topology.nodes, inside.tolist(), strict=True))
            numbers = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
            yield [numbers[pair] for pair in pairs]
    if ranks <= PACKED and not topology.switches and not topology.limits:
        from synth.flows import tau

        network = topology.network()
        if tau.applies(network):
            yield tau.forest(network).partition


def _certificate(fabric: Fabric, label: Sequence[int]) -> dict:
    """For each part the region of least capacity around it: a minimum cut between its ranks and all others."""
    from synth.flows.maxflow import MaxFlow

    names = sorted(set(label))
    ranks, nodes, source, sink = fabric.ranks, fabric.nodes, fabric.nodes, fabric.nodes + 1
    ends = ranks + len(fabric.topology.switches)
    rank = np.arange(ranks)
    network = MaxFlow(np.r_[fabric.src, np.full(ranks, source), rank], np.r_[fabric.dst, rank, np.full(ranks, sink)])
    most = int(fabric.cap.sum()) + 1
    number = {name: i for i, name in enumerate(names)}
    part = np.array([number[name] for name in label])
    regions, limits = [], []
    for p in range(len(names)):
        mine = part == p
        network.set(np.r_[fabric.cap, np.where(mine, most, 0), np.where(mine, 0, most)])
        network.value(source, sink)
        inside = network.inside(nodes)
        inside[:ranks] = mine
        crossing = inside[fabric.src] & ~inside[fabric.dst]
        ruled = np.unique(fabric.limit[crossing])
        regions.append(np.flatnonzero(inside[:ends]).tolist())
        limits.append(ruled[ruled >= 0].tolist())
    return {"kind": "allreduce-parts", "topology": check_scale.digest(fabric.topology), "regions": regions, "limits": limits}
