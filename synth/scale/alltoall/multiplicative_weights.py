"""Alltoall beyond the reach of a linear program: multiplicative weights over shortest-path trees, with a certified gap.

Sources take turns in batches: each sends everything along its shortest-path tree under the present lengths, and edges
grow longer with the average load so far (Garg and Könemann, "Faster and simpler algorithms for multicommodity flow",
FOCS 1998; the lengths follow the regularised leader, exp of the scaled load). The average of the lengths proves a
bound, and the average of the trees is a flow: their ratio is the gap, whatever the progress.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from synth.scale.alltoall.concurrent_flow import Flows, cut_off, edge_orbits, whole
from synth.scale.fabric.fabric import Fabric
from synth.solvers.processes.deadline import TimeUp, check

PHASES = 120
BATCHES = 8
# The gap at which it stops: load of the flows over the proved least.
GAP = 1.02
SHARPNESS = 2.0
# Phases between two looks at the bound, which costs as much as a phase.
LOOK = 10


def by_weights(
    fabric: Fabric, group: tuple[np.ndarray, ...], sources: np.ndarray, phases: int = PHASES, gap: float = GAP
) -> Flows:
    """Flows and lengths as `alltoall.flows`, within a gap that the caller can read off `congestion` and the
    certificate.

    A time limit (see `synth.solvers.processes.deadline`) ends it early, with a greater gap; TimeUp where not all
    sources have had a turn. Raises InfeasibleError where a rank cannot reach another.
    """
    return _Weights(fabric, group, sources).run(phases, gap)


class _Weights:
    def __init__(self, fabric: Fabric, group: tuple[np.ndarray, ...], sources: np.ndarray) -> None:
        self.fabric, self.group, self.sources = fabric, group, sources
        # parallel edges share what takes their pair, in proportion to their widths
        pair = fabric.src * fabric.nodes + fabric.dst
        self.keys, self.at = np.unique(pair, return_inverse=True)
        self.tail, self.head = self.keys // fabric.nodes, self.keys % fabric.nodes
        self.wide = np.zeros(len(self.keys))
        np.add.at(self.wide, self.at, fabric.cap)
        self.copies = fabric.ranks // len(sources)
        # the orbit of each pair of nodes, through that of its first edge
        label = edge_orbits(fabric, group)
        first = np.full(len(self.keys), len(label))
        np.minimum.at(first, self.at, label)
        _, self.orbit = np.unique(first, return_inverse=True)
        self.size = np.bincount(self.orbit)

    def run(self, phases: int, gap: float) -> Flows:
        """The loop; see the module."""
        count = len(self.sources)
        parts = [part for part in np.array_split(np.arange(count), min(BATCHES, count)) if len(part)]
        flow = np.zeros((count, len(self.keys)))
        lengths, total, best, kept, updates = 1 / self.wide, np.zeros(len(self.keys)), 0.0, 1 / self.wide, 0
        for phase in range(phases):
            for part in parts:
                try:
                    check()
                except TimeUp:
                    if not phase:
                        raise
                    return replace(self._made(flow, kept), whole=False)
                far, before = self._trees(lengths, self.sources[part])
                flow[part] += (self._loads(far, before) - flow[part]) / (phase + 1)
                updates += 1
                load = self._spread(flow.sum(axis=0)) / self.wide
                lengths = np.exp(SHARPNESS * updates**0.5 * (load / load.max() - 1)) / self.wide
                if phase >= phases // 4 or phase % LOOK == LOOK - 1:
                    total += lengths / (lengths * self.wide).sum()
            if phase % LOOK == LOOK - 1:
                proved = self._bound(total)
                if proved > best:
                    best, kept = proved, total.copy()
                if (self._spread(flow.sum(axis=0)) / self.wide).max() <= best * gap:
                    break
        return self._made(flow, kept)

    def _made(self, flow: np.ndarray, kept: np.ndarray) -> Flows:
        share = self.fabric.cap / self.wide[self.at]
        return Flows(
            self.fabric,
            self.group,
            self.sources,
            flow[:, self.at] * share,
            whole(kept)[self.at],
            "multiplicative weights",
        )

    def _trees(self, lengths: np.ndarray, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from scipy import sparse
        from scipy.sparse.csgraph import dijkstra

        nodes, ranks = self.fabric.nodes, self.fabric.ranks
        graph = sparse.csr_matrix((lengths, (self.tail, self.head)), shape=(nodes, nodes))
        far, before = dijkstra(graph, indices=sources, return_predecessors=True)
        if np.isinf(far[:, :ranks]).any():
            raise cut_off(self.fabric)
        return far, before

    def _loads(self, far: np.ndarray, before: np.ndarray) -> np.ndarray:
        """What one unit to every rank puts on each pair of nodes, for each tree: children before parents, all trees at
        once."""
        nodes, rows = self.fabric.nodes, np.arange(len(far))
        need = np.zeros((len(far), nodes))
        need[:, : self.fabric.ranks] = 1
        order = np.argsort(-np.where(np.isinf(far), -1, far), axis=1, kind="stable")
        for j in range(nodes):
            v = order[:, j]
            u = before[rows, v]
            inner = u >= 0
            need[rows[inner], u[inner]] += need[rows[inner], v[inner]]
        tree, v = np.nonzero(before >= 0)
        found = np.zeros((len(far), len(self.keys)))
        found[tree, np.searchsorted(self.keys, before[tree, v].astype(np.int64) * nodes + v)] = need[tree, v]
        return found

    def _spread(self, flow: np.ndarray) -> np.ndarray:
        """The load of each pair of nodes when all images of the flows run."""
        return (np.bincount(self.orbit, flow, len(self.size)) * self.copies / self.size)[self.orbit]

    def _bound(self, lengths: np.ndarray) -> float:
        far, _ = self._trees(lengths, self.sources)
        return self.copies * far[:, : self.fabric.ranks].sum() / (lengths * self.wide).sum()
