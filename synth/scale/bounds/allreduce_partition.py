"""The best lower bound on allreduce from all partitions of the ranks, and from the cut around each rank.

The capacities in and out of a part are alike on most machines. Then the partition into two parts says what a single cut
between them says. Where a rank takes in less than it may send out, or the other way round, the cut around it may say
more: every byte leaves and enters it, however its sums are formed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from synth.checker.certificates import machine_digest, throughput_cuts
from synth.checker.certificates import partition as check_parts
from synth.scale.bounds import unreachability
from synth.scale.bounds.graph_strength import partitions
from synth.scale.bounds.throughput_cut import Throughput
from synth.scale.fabric.automorphisms import symmetries
from synth.scale.fabric.fabric import Fabric
from synth.solvers.deadline import TimeUp, no_time_limit
from synth.solvers.max_flow import CapacityOverflowError, MaxFlow

# Limit on the parts whose least regions are still computed after the time limit: one maximum flow each.
FEW = 64

# The fabric whose edges leave the parts, the part of each rank, and False if each part is bounded without switches.
Parted = tuple[Fabric, np.ndarray, bool]


def bound(fabric: Fabric) -> tuple[Fraction, dict, str]:
    """Return (lower bound on R / C in the unit of the fabric, certificate, reason why the search was cut short or "").

    The bound is the best of all partitions of the ranks, counting the capacity out of or into the parts, and of the
    cuts around single ranks. A time limit (see `synth.solvers.deadline`) and bandwidths with very many
    digits cut the search short. Then the result is the best bound so far, at least that of the partition into boxes and
    of the one into single ranks. Raises InfeasibleError where data cannot reach a rank.
    """
    unreachability.check(fabric.topology, "allreduce")
    value, certificate, short = partition(fabric)

    # the rank with the least capacity in or out
    out, into = _capacities(fabric)[:, : fabric.ranks]
    nodes = np.arange(fabric.nodes)
    inside = nodes == out.argmin() if out.min() <= into.min() else nodes != into.argmin()
    least = Fraction(1, int(min(out.min(), into.min())))
    if least > value:
        cut = Throughput(fabric, "allreduce", 0, np.ones(fabric.ranks, np.int64), least, inside, 0)
        proved = throughput_cuts.check(cut.certificate, fabric.topology) * fabric.unit
        value, certificate = max((value, certificate), (proved, cut.certificate), key=lambda pair: pair[0])
    return value, certificate, short


def _capacities(fabric: Fabric) -> np.ndarray:
    """Return the capacity out of each node, and that into each node."""
    total = np.zeros((2, fabric.nodes), np.int64)
    np.add.at(total[0], fabric.src, fabric.cap)
    np.add.at(total[1], fabric.dst, fabric.cap)
    return total


def partition(fabric: Fabric) -> tuple[Fraction, dict, str]:
    """Return the best bound of all partitions, in the form of `bound`. Every rank must be reachable."""
    best: Parted = fabric, np.arange(fabric.ranks), False
    try:
        for better in _improving_partitions(fabric):
            best = better
        return *_proved(*best), ""
    except TimeUp:
        short = "ended by the time limit"
    except CapacityOverflowError:
        short = "not tried: the bandwidths have too many digits for it"
    with no_time_limit():
        return *_best_so_far(fabric, best), short


def _improving_partitions(fabric: Fabric) -> Iterator[Parted]:
    """Yield partitions with rising bounds, on the fabric and on the reversed fabric. The first is the one into single
    ranks without switches.
    """
    moves, ratio = symmetries(fabric), None
    for graph in (fabric, fabric.reversed()):
        alone = Fraction(int(graph.cap[graph.src < graph.ranks].sum()), graph.ranks - 1)
        if ratio is None or alone < ratio:
            ratio = alone
            yield graph, np.arange(graph.ranks), False
        for least, label in _partitions(graph, ratio, moves):
            ratio = least
            yield graph, label, True


def _partitions(graph: Fabric, ratio: Fraction, moves: Sequence[np.ndarray]) -> Iterator[tuple[Fraction, np.ndarray]]:
    try:
        for better in partitions(graph, ratio, moves):
            ratio = better[0]
            yield better
    except CapacityOverflowError:  # equal entries for an orbit need greater denominators than entries of single ranks
        yield from partitions(graph, ratio)


def _best_so_far(fabric: Fabric, best: Parted) -> tuple[Fraction, dict]:
    """Return the better bound of `best` and the partition into boxes. Least regions are computed for few parts only."""
    boxes = np.array(fabric.topology.nodes)
    candidates = [best] if len(np.unique(boxes)) < 2 else [best, (fabric, boxes, True)]
    proved = (_proved(graph, label, least and len(np.unique(label)) <= FEW) for graph, label, least in candidates)
    return max(proved, key=lambda pair: pair[0])


def _proved(graph: Fabric, label: np.ndarray, least: bool) -> tuple[Fraction, dict]:
    """Return the bound of a partition, as the checker computes it, and the certificate."""
    certificate = _certificate(graph, label, least)
    return check_parts.check(certificate, graph.topology) * graph.unit, certificate


def _certificate(graph: Fabric, label: np.ndarray, least: bool) -> dict:
    """Return the certificate of kind ``allreduce-parts`` with a region around each part.

    If `least`, the region is a minimum cut between the ranks of the part and all others. Otherwise it is these ranks.
    """
    ranks, nodes, source, sink = graph.ranks, graph.nodes, graph.nodes, graph.nodes + 1
    ends = ranks + len(graph.topology.switches)
    rank = np.arange(ranks)
    network = MaxFlow(np.r_[graph.src, np.full(ranks, source), rank], np.r_[graph.dst, rank, np.full(ranks, sink)])
    # A rank sends and receives no more than these capacities, so they replace infinity at the source and the sink.
    out, into = _capacities(graph)
    regions, limits = [], []
    for name in np.unique(label).tolist():
        mine, inside = label == name, np.zeros(nodes, bool)
        if least:
            network.set_capacities(np.r_[graph.cap, np.where(mine, out[:ranks], 0), np.where(mine, 0, into[:ranks])])
            network.value(source, sink)
            inside = network.source_side(nodes)
        inside[:ranks] = mine
        crossing = inside[graph.src] & ~inside[graph.dst]
        ruled = np.unique(graph.limit[crossing])
        regions.append(np.flatnonzero(inside[:ends]).tolist())
        limits.append(ruled[ruled >= 0].tolist())
    certificate = {
        "kind": "allreduce-parts",
        "topology": machine_digest.digest(graph.topology),
        "regions": regions,
        "limits": limits,
    }
    return {**certificate, check_parts.ENTERING: True} if graph.flipped else certificate
