"""Lower bounds on allreduce at scale: of all partitions of the ranks, and of all single cuts, the one that says most.

Weights would not say more: let each part p of a partition into m count a_p for each time that it is left and b_p for
each time that it is entered. A byte may be summed at the part of least b, go to that of least a, and be sent out from
there; this counts the sum of all a and b, and m - 2 times the least a and the least b more. So it is a mean of what the
even partition and the single regions say, left or entered, and one of these says no less. (Cuts together may say more
where switches are uneven:
`synth.scale.bounds.multi_cut_lp`.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction

import numpy as np

from synth.checker.certificates import partition as check_parts
from synth.checker.certificates import throughput_cuts
from synth.errors import InfeasibleError
from synth.scale.bounds import single_cut, unreachability
from synth.scale.bounds.graph_strength import partitions
from synth.scale.bounds.multi_cut_lp import multi_cut_bound
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.solvers.max_flow import MaxFlow, TooLarge
from synth.solvers.processes.deadline import TimeUp, endless, left

# Parts up to which the least region of each is looked for when the time is over.
FEW = 64

# The fabric that data leaves the parts on, the part of each rank, and whether a part may gain by switches around it.
Parted = tuple[Fabric, np.ndarray, bool]


def bound(fabric: Fabric) -> tuple[Fraction, dict, str]:
    """(least R / C in the unit of the fabric, certificate, what cut the search short): no allreduce takes fewer rounds
    per chunk.

    The best of all partitions of the ranks, by what leaves the parts or by what enters them, and of all single cuts. A
    time limit (see
    `synth.solvers.processes.deadline`) and bandwidths of very many digits cut it short: then the best so far, at least
    that of the boxes and of every rank alone. Raises InfeasibleError where data cannot reach a rank.
    """
    _reached(fabric)
    found = partition(fabric)
    return found if single_cut.even(fabric) else _cut(fabric, *found)


def _cut(fabric: Fabric, value: Fraction, certificate: dict, short: str) -> tuple[Fraction, dict, str]:
    """As `bound`, of what is given and the best single cut, or the best cuts together."""
    limit = single_cut.narrowest(fabric, free_group(symmetries(fabric), fabric.ranks))
    with suppress(TimeUp, TooLarge):
        limit, _ = multi_cut_bound(limit)
    if limit.time > value:
        proved = throughput_cuts.check(limit.certificate, fabric.topology) * fabric.unit
        value, certificate = max((value, certificate), (proved, limit.certificate), key=lambda found: found[0])
    return value, certificate, short or ("ended by the time limit" if not limit.whole or left() == 0 else "")


def partition(fabric: Fabric) -> tuple[Fraction, dict, str]:
    """As `bound`, of all partitions: by what leaves the parts or by what enters them. Every rank must be reached."""
    best: Parted = fabric, np.arange(fabric.ranks), False
    try:
        for better in _better(fabric):
            best = better
        return *_proved(*best), ""
    except TimeUp:
        short = "ended by the time limit"
    except TooLarge:
        short = "not tried: the bandwidths have too many digits for it"
    with endless():
        return *_hurried(fabric, best), short


def _better(fabric: Fabric) -> Iterator[Parted]:
    """Partitions, each better than the one before, on the fabric or on it turned round; first ranks alone without their
    switches."""
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
        for found in partitions(graph, ratio, moves):
            ratio = found[0]
            yield found
    except TooLarge:  # the entries of whole orbits are finer fractions than those of single ranks
        yield from partitions(graph, ratio)


def _hurried(fabric: Fabric, best: Parted) -> tuple[Fraction, dict]:
    """The best so far, or the boxes: least regions of a few parts, of more the ranks themselves."""
    boxes = np.array(fabric.topology.nodes)
    tried = [best] if len(np.unique(boxes)) < 2 else [best, (fabric, boxes, True)]
    proved = (_proved(graph, label, least and len(np.unique(label)) <= FEW) for graph, label, least in tried)
    return max(proved, key=lambda found: found[0])


def _proved(graph: Fabric, label: np.ndarray, least: bool) -> tuple[Fraction, dict]:
    certificate = _certificate(graph, label, least)
    return check_parts.check(certificate, graph.topology) * graph.unit, certificate


def _certificate(graph: Fabric, label: np.ndarray, least: bool) -> dict:
    """For each part a region of least capacity around it, by a minimum cut between its ranks and all others, or its
    ranks alone."""
    ranks, nodes, source, sink = graph.ranks, graph.nodes, graph.nodes, graph.nodes + 1
    ends = ranks + len(graph.topology.switches)
    rank = np.arange(ranks)
    network = MaxFlow(np.r_[graph.src, np.full(ranks, source), rank], np.r_[graph.dst, rank, np.full(ranks, sink)])
    out, into = np.zeros((2, nodes), np.int64)  # wide enough: no rank sends or takes in more
    np.add.at(out, graph.src, graph.cap)
    np.add.at(into, graph.dst, graph.cap)
    regions, limits = [], []
    for name in np.unique(label).tolist():
        mine, inside = label == name, np.zeros(nodes, bool)
        if least:
            network.set(np.r_[graph.cap, np.where(mine, out[:ranks], 0), np.where(mine, 0, into[:ranks])])
            network.value(source, sink)
            inside = network.inside(nodes)
        inside[:ranks] = mine
        crossing = inside[graph.src] & ~inside[graph.dst]
        ruled = np.unique(graph.limit[crossing])
        regions.append(np.flatnonzero(inside[:ends]).tolist())
        limits.append(ruled[ruled >= 0].tolist())
    made = {
        "kind": "allreduce-parts",
        "topology": throughput_cuts.digest(graph.topology),
        "regions": regions,
        "limits": limits,
    }
    return {**made, check_parts.ENTERING: True} if graph.flipped else made


def _reached(fabric: Fabric) -> None:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(fabric.src)), (fabric.src, fabric.dst)), shape=(fabric.nodes,) * 2)
    label = connected_components(graph, connection="strong")[1][: fabric.ranks]
    if (label != label[0]).any() and (proof := unreachability.certificate(fabric.topology, "allreduce")) is not None:
        start, lost = proof["pair"]
        raise InfeasibleError(f"{fabric.name}: no link leads to rank {lost} from where rank {start} is")
