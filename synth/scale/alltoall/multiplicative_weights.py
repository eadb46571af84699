"""Alltoall flows by multiplicative weights over shortest-path trees, with a certified gap: for machines too large for
the linear program, and for first rows.

In each phase every source, batch by batch, sends its data along its shortest-path tree under the current lengths. The
length of an edge is the exponential of its scaled average load so far (follow the regularised leader; Garg and
Könemann, "Faster and simpler algorithms for multicommodity flow", FOCS 1998). The average of the lengths certifies a
bound, and the average of the trees is a flow. Their quotient bounds the gap at any time.
"""

from __future__ import annotations

import numpy as np

from synth.scale.alltoall.concurrent_flow import ConcurrentFlow, integer_lengths
from synth.scale.fabric.automorphisms import edge_orbits
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.graphs import shortest_path_trees
from synth.solvers.deadline import current_deadline

# Limit on the phases.
PHASES = 120
# Batches of sources in a phase; the lengths are updated after each batch.
BATCHES = 8
# The loop ends when the congestion is at most this multiple of the certified bound.
GAP = 1.02
# Factor of the exponent of the lengths, which also grows with the square root of the number of updates.
SHARPNESS = 2.0
# Phases between two computations of the bound, each of which takes as long as a phase.
LOOK = 10


def by_weights(
    fabric: Fabric, group: tuple[np.ndarray, ...], sources: np.ndarray, phases: int = PHASES
) -> ConcurrentFlow:
    """Return flows and lengths in the form of `concurrent_flow.least_congestion_flows`. Every rank must be reachable.

    The gap is the quotient of `ConcurrentFlow.congestion` and the bound of the certificate. A time limit (see
    `synth.solvers.deadline`) ends the loop early with a greater gap. Raises TimeUp where the first phase is not
    complete by then.
    """
    # Parallel edges share the load of their pair of nodes in proportion to their capacities. The orbit of a pair is
    # that of its first edge.
    keys, pair = np.unique(fabric.src * fabric.nodes + fabric.dst, return_inverse=True)
    tail, head = keys // fabric.nodes, keys % fabric.nodes
    wide = np.bincount(pair, fabric.cap)
    label = edge_orbits(fabric, group)
    first = np.full(len(keys), len(label))
    np.minimum.at(first, pair, label)
    _, orbit = np.unique(first, return_inverse=True)
    images = fabric.ranks // len(sources) / np.bincount(orbit)

    def loads(flow: np.ndarray) -> np.ndarray:
        """Return the load of each pair, over its capacity, from all images of the flows."""
        return (np.bincount(orbit, flow.sum(axis=0)) * images)[orbit] / wide

    flow = np.zeros((len(sources), len(keys)))
    lengths, total, best, best_lengths, updates = 1 / wide, np.zeros(len(keys)), 0.0, 1 / wide, 0
    whole = True
    for phase in range(phases):
        for part in np.array_split(np.arange(len(sources)), min(BATCHES, len(sources))):
            if phase and current_deadline().over:
                whole = False
                break
            current_deadline().check()
            trees = shortest_path_trees(fabric.nodes, tail, head, lengths, sources[part])
            flow[part] += (_tree_loads(fabric, keys, *trees) - flow[part]) / (phase + 1)
            updates += 1
            load = loads(flow)
            lengths = np.exp(SHARPNESS * updates**0.5 * (load / load.max() - 1)) / wide
            if phase >= phases // 4 or phase % LOOK == LOOK - 1:
                total += lengths / (lengths * wide).sum()
        if not whole:
            break
        # The bound that the sum of the lengths certifies.
        if phase % LOOK == LOOK - 1:
            distance, _ = shortest_path_trees(fabric.nodes, tail, head, total, sources)
            proved = fabric.ranks // len(sources) * distance[:, : fabric.ranks].sum() / (total * wide).sum()
            if proved > best:
                best, best_lengths = proved, total.copy()
            if loads(flow).max() <= best * GAP:
                break
    spread, lengths = flow[:, pair] * (fabric.cap / wide[pair]), integer_lengths(best_lengths)[pair]
    return ConcurrentFlow(fabric, group, sources, spread, lengths, "multiplicative weights", whole)


def _tree_loads(fabric: Fabric, keys: np.ndarray, distance: np.ndarray, predecessor: np.ndarray) -> np.ndarray:
    """Return the load of each pair of nodes in each tree, for one unit from its root to every rank.

    Nodes are processed from the farthest to the nearest, so that children come before parents, in all trees at once.
    """
    rows = np.arange(len(distance))
    need = np.zeros(distance.shape)
    need[:, : fabric.ranks] = 1
    order = np.argsort(-np.where(np.isinf(distance), -1, distance), axis=1, kind="stable")
    for v in order.T:
        u = predecessor[rows, v]
        inner = u >= 0
        need[rows[inner], u[inner]] += need[rows[inner], v[inner]]
    tree, v = np.nonzero(predecessor >= 0)
    loads = np.zeros((len(distance), len(keys)))
    loads[tree, np.searchsorted(keys, predecessor[tree, v].astype(np.int64) * fabric.nodes + v)] = need[tree, v]
    return loads
