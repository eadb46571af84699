"""Distances and components of directed graphs with many nodes, in compiled code (`scipy.sparse.csgraph`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Ends = Sequence[int] | np.ndarray


def distances(nodes: int, src: Ends, dst: Ends, start: int, costs: np.ndarray | None = None) -> np.ndarray:
    """Return the length of the shortest path from `start` to each of `nodes` nodes, int64; -1 where there is none.

    Edge i leads from `src[i]` to `dst[i]`. A path is as long as it has edges, or as the sum of the integers
    ``costs[node]`` >= 0 over the nodes that it enters.
    """
    from scipy.sparse.csgraph import dijkstra

    graph = _graph(nodes, src, dst)
    if costs is not None:
        graph.data = costs[graph.indices].astype(float)  # explicit zeros are edges of length 0
    length = dijkstra(graph, indices=start, unweighted=costs is None)
    return np.where(np.isinf(length), -1, length).astype(np.int64)


def shortest_path_trees(
    nodes: int, src: Ends, dst: Ends, lengths: np.ndarray, sources: Sequence[int] | np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance from each source (default: all nodes) to each node, and the node before it on the path.

    Edge i of length ``lengths[i]`` >= 0 leads from `src[i]` to `dst[i]`. No two edges have the same ends. Both results
    are indexed by source and node. An unreachable node is at the distance infinity.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import dijkstra

    graph = csr_matrix((lengths, (src, dst)), shape=(nodes, nodes))
    return dijkstra(graph, indices=sources, return_predecessors=True)


def components(nodes: int, src: Ends, dst: Ends, *, strong: bool = False) -> np.ndarray:
    """Return the number of the component of each node, weakly or strongly connected, from 0 on."""
    from scipy.sparse.csgraph import connected_components

    connection = "strong" if strong else "weak"
    return connected_components(_graph(nodes, src, dst), connection=connection)[1]


def hops_from(
    rank: int, ranks: int, leaving: Callable[[int], Sequence[tuple[int, int]]]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return (rank, links) of the hops from a rank: links to ranks, and shortest paths through switches.

    `leaving(node)`: (link, node at its end) of each link out of a node. Each switch is reached by a single path.
    """
    hops: list[tuple[int, tuple[int, ...]]] = []
    queue: deque[tuple[int, tuple[int, ...]]] = deque([(rank, ())])
    seen, shortest = {rank}, dict[int, int]()
    while queue:
        at, path = queue.popleft()
        for link, node in leaving(at):
            if node >= ranks:
                if node not in seen:
                    seen.add(node)
                    queue.append((node, (*path, link)))
            elif not path or shortest.setdefault(node, len(path)) == len(path):
                hops.append((node, (*path, link)))
    return hops


def _graph(nodes: int, src: Ends, dst: Ends) -> Any:
    """Return the adjacency matrix with entries 1, one for all parallel edges."""
    from scipy.sparse import csr_matrix

    graph = csr_matrix((np.ones(len(src)), (src, dst)), shape=(nodes, nodes))
    graph.sum_duplicates()
    graph.data[:] = 1
    return graph
