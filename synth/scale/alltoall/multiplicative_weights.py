"""Alltoall flows by multiplicative weights over shortest-path trees, with a certified gap: for machines too large for
the linear program.

In each phase every source, batch by batch, sends its data along its shortest-path tree under the current lengths. The
length of an edge is the exponential of its scaled average load so far (follow the regularised leader; Garg and
Könemann, "Faster and simpler algorithms for multicommodity flow", FOCS 1998). The average of the lengths certifies a
bound, and the average of the trees is a flow. Their quotient bounds the gap at any time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from synth.scale.alltoall.concurrent_flow import ConcurrentFlow, edge_orbits, integer_lengths, unreachable_error
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.graphs import shortest_path_trees
from synth.solvers.deadline import TimeUp, check_deadline

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
    fabric: Fabric,
    group: tuple[np.ndarray, ...],
    sources: np.ndarray,
    phases: int = PHASES,
    gap: float = GAP,
) -> ConcurrentFlow:
    """Return flows and lengths in the form of `concurrent_flow.least_congestion_flows`.

    The gap is the quotient of `ConcurrentFlow.congestion` and the bound of the certificate. A time limit (see
    `synth.solvers.deadline`) ends the loop early with a greater gap. Raises TimeUp where the first phase is
    not complete by then, InfeasibleError where a rank cannot reach another.
    """
    return _Weights(fabric, group, sources).run(phases, gap)


class _Weights:
    def __init__(self, fabric: Fabric, group: tuple[np.ndarray, ...], sources: np.ndarray) -> None:
        self.fabric, self.group, self.sources = fabric, group, sources
        # Parallel edges share the load of their pair of nodes in proportion to their capacities.
        pair = fabric.src * fabric.nodes + fabric.dst
        self.keys, self.at = np.unique(pair, return_inverse=True)
        self.tail, self.head = self.keys // fabric.nodes, self.keys % fabric.nodes
        self.wide = np.zeros(len(self.keys))
        np.add.at(self.wide, self.at, fabric.cap)
        self.copies = fabric.ranks // len(sources)
        # The orbit of a pair of nodes is that of its first edge.
        label = edge_orbits(fabric, group)
        first = np.full(len(self.keys), len(label))
        np.minimum.at(first, self.at, label)
        _, self.orbit = np.unique(first, return_inverse=True)
        self.size = np.bincount(self.orbit)

    def run(self, phases: int, gap: float) -> ConcurrentFlow:
        """Run the phases until the gap is at most `gap`."""
        count = len(self.sources)
        parts = [part for part in np.array_split(np.arange(count), min(BATCHES, count)) if len(part)]
        flow = np.zeros((count, len(self.keys)))
        lengths, total, best, best_lengths, updates = 1 / self.wide, np.zeros(len(self.keys)), 0.0, 1 / self.wide, 0
        for phase in range(phases):
            for part in parts:
                try:
                    check_deadline()
                except TimeUp:
                    if not phase:
                        raise
                    return replace(self._result(flow, best_lengths), whole=False)
                distance, predecessor = self._trees(lengths, self.sources[part])
                flow[part] += (self._loads(distance, predecessor) - flow[part]) / (phase + 1)
                updates += 1
                load = self._spread(flow.sum(axis=0)) / self.wide
                lengths = np.exp(SHARPNESS * updates**0.5 * (load / load.max() - 1)) / self.wide
                if phase >= phases // 4 or phase % LOOK == LOOK - 1:
                    total += lengths / (lengths * self.wide).sum()
            if phase % LOOK == LOOK - 1:
                proved = self._bound(total)
                if proved > best:
                    best, best_lengths = proved, total.copy()
                if (self._spread(flow.sum(axis=0)) / self.wide).max() <= best * gap:
                    break
        return self._result(flow, best_lengths)

    def _result(self, flow: np.ndarray, best_lengths: np.ndarray) -> ConcurrentFlow:
        share = self.fabric.cap / self.wide[self.at]
        return ConcurrentFlow(
            self.fabric,
            self.group,
            self.sources,
            flow[:, self.at] * share,
            integer_lengths(best_lengths)[self.at],
            "multiplicative weights",
        )

    def _trees(self, lengths: np.ndarray, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return distances and predecessors of all nodes in the shortest-path trees of some sources."""
        distance, predecessor = shortest_path_trees(self.fabric.nodes, self.tail, self.head, lengths, sources)
        if np.isinf(distance[:, : self.fabric.ranks]).any():
            raise unreachable_error(self.fabric)
        return distance, predecessor

    def _loads(self, distance: np.ndarray, predecessor: np.ndarray) -> np.ndarray:
        """Return the load of each pair of nodes in each tree, for one unit from its root to every rank.

        Nodes are processed from the farthest to the nearest, so that children come before parents, in all trees at
        once.
        """
        nodes, rows = self.fabric.nodes, np.arange(len(distance))
        need = np.zeros((len(distance), nodes))
        need[:, : self.fabric.ranks] = 1
        order = np.argsort(-np.where(np.isinf(distance), -1, distance), axis=1, kind="stable")
        for j in range(nodes):
            v = order[:, j]
            u = predecessor[rows, v]
            inner = u >= 0
            need[rows[inner], u[inner]] += need[rows[inner], v[inner]]
        tree, v = np.nonzero(predecessor >= 0)
        loads = np.zeros((len(distance), len(self.keys)))
        loads[tree, np.searchsorted(self.keys, predecessor[tree, v].astype(np.int64) * nodes + v)] = need[tree, v]
        return loads

    def _spread(self, flow: np.ndarray) -> np.ndarray:
        """Return the load of each pair of nodes from all images of the flows."""
        return (np.bincount(self.orbit, flow, len(self.size)) * self.copies / self.size)[self.orbit]

    def _bound(self, lengths: np.ndarray) -> float:
        """Return the lower bound on the congestion that these lengths certify."""
        distance, _ = self._trees(lengths, self.sources)
        return self.copies * distance[:, : self.fabric.ranks].sum() / (lengths * self.wide).sum()
