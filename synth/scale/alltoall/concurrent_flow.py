"""Alltoall as a maximum concurrent flow: the least time by a linear program on orbits, with an exact certificate.

The linear program minimises the congestion U. From each source one unit flows to every other rank, and all flows
together load each edge with at most U · cap. Flows are aggregated by source, and one source of each orbit under a free
group is enough, because the flows of the others are images. The dual gives every edge a length. For any lengths, no
schedule takes less than Σ distances / Σ capacity · length (Shahrokhi and Matula, "The maximum concurrent flow problem",
JACM 1990). So rounded lengths certify a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from synth.checker.certificates.path_lengths import alltoall_digest
from synth.errors import InfeasibleError, SynthError
from synth.scale.fabric.automorphisms import edge_orbits, free_group, orbits, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.graphs import distances
from synth.solvers.deadline import TimeUp, current_deadline, time_limited
from synth.solvers.linear_program import linear
from synth.solvers.rationalise import near_integers

# Limit on the variables of the linear program, which then ends within a minute.
MOST_VARIABLES = 400_000
# Below this number of variables the dual simplex method solves the program, because its vertices are simple fractions,
# and a second program minimises the lengths of paths.
SMALL = 10_000


@dataclass(frozen=True, eq=False)
class ConcurrentFlow:
    """A concurrent flow: source `sources[k]` sends `flow[k, e]` over edge e if it sends one unit to every other rank.

    The flows of all sources are the images under `group`, generators of a free group of permutations of the fabric's
    nodes. `lengths[e]` are the integers of the certificate. `whole` is False where a time limit ended the search.
    """

    fabric: Fabric
    group: tuple[np.ndarray, ...]
    sources: np.ndarray
    flow: np.ndarray
    lengths: np.ndarray
    method: str
    whole: bool = True

    @property
    def congestion(self) -> float:
        """The greatest quotient of load and capacity, which is the time that these flows take."""
        label = edge_orbits(self.fabric, self.group)
        load = np.bincount(label, self.flow.sum(axis=0), len(label)) * (self.fabric.ranks // len(self.sources))
        size = np.bincount(label, minlength=len(label))
        return float((load[label] / size[label] / self.fabric.cap).max(initial=0.0))

    def certificate(self) -> dict:
        """Return the lengths of links and limits, which `synth.checker.certificates.path_lengths.check` verifies."""
        fabric = self.fabric
        links = np.zeros(len(fabric.topology.links), np.int64)
        limits = np.zeros(len(fabric.topology.limits), np.int64)
        own = (fabric.link >= 0) & (fabric.limit < 0)
        np.add.at(links, fabric.link[own], self.lengths[own])
        ruled = fabric.limit >= 0
        np.add.at(limits, fabric.limit[ruled], self.lengths[ruled])
        for e in np.flatnonzero(fabric.limit < -1).tolist():
            links[fabric.sets[-2 - int(fabric.limit[e])]] += self.lengths[e]
        ends = fabric.ranks + len(fabric.topology.switches)
        return {
            "kind": "alltoall-lengths",
            "topology": alltoall_digest(fabric.topology),
            "links": _runs(links),
            "limits": _runs(limits),
            "generators": [pi[:ends].tolist() for pi in self.group],
        }


def _runs(values: np.ndarray) -> list[list[int]]:
    """Return the run-length encoding: ``[count, value]`` of each run."""
    if not len(values):
        return []
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    return [[int(n), int(values[a])] for a, n in zip(starts, np.diff(np.r_[starts, len(values)]), strict=True)]


def least_congestion_flows(
    fabric: Fabric, group: Sequence[np.ndarray] | None = None, *, shortest: bool = False
) -> ConcurrentFlow:
    """Return flows of least congestion, with lengths that certify it.

    They come from the linear program, or from multiplicative weights where it is too large. `shortest`: only paths with
    the fewest sends are used; the bound of the lengths is then below the congestion. Of a time limit (see
    `synth.solvers.deadline`) the program may take half and multiplicative weights the rest. Raises
    InfeasibleError where a rank cannot reach another, TimeUp where the time is too short for both.
    """
    moves = free_group(symmetries(fabric), fabric.ranks) if group is None else tuple(group)
    sources = np.unique(orbits(fabric.ranks, [pi[: fabric.ranks] for pi in moves]))
    if len(sources) * len(fabric.src) <= MOST_VARIABLES:
        try:
            with time_limited(current_deadline() if shortest else current_deadline().share(1 / 2)):
                return _by_program(fabric, moves, sources, _on_shortest(fabric, sources) if shortest else None)
        except TimeUp:
            if shortest:
                raise
    from synth.scale.alltoall.multiplicative_weights import by_weights

    return by_weights(fabric, moves, sources)


def capacity_lengths(fabric: Fabric, group: Sequence[np.ndarray]) -> ConcurrentFlow:
    """Return a `ConcurrentFlow` of zero flows, whose lengths certify a quick bound: they are proportional to 1 /
    capacity."""
    sources = np.unique(orbits(fabric.ranks, [pi[: fabric.ranks] for pi in group]))
    flow = np.zeros((len(sources), len(fabric.src)))
    lengths = np.maximum(integer_lengths(1 / fabric.cap), 1)
    return ConcurrentFlow(fabric, tuple(group), sources, flow, lengths, "no search")


def _on_shortest(fabric: Fabric, sources: np.ndarray) -> np.ndarray:
    """Return the mask, by source and edge, of the edges on paths with the fewest sends. A send ends at a rank."""
    entered = (np.arange(fabric.nodes) < fabric.ranks).astype(np.int64)
    step, rows = entered[fabric.dst], []
    for source in sources.tolist():
        reach = distances(fabric.nodes, fabric.src, fabric.dst, source, entered)
        rows.append((reach[fabric.src] >= 0) & (reach[fabric.src] + step == reach[fabric.dst]))
    return np.array(rows)


def _by_program(
    fabric: Fabric, group: tuple[np.ndarray, ...], sources: np.ndarray, allowed: np.ndarray | None = None
) -> ConcurrentFlow:
    """Return the flows of the linear program, over the `allowed` edges of each source."""
    from scipy import sparse

    edges, nodes, kinds = len(fabric.src), fabric.nodes, len(sources)
    names, place, size = np.unique(edge_orbits(fabric, group), return_inverse=True, return_counts=True)

    # A column for the flow of each source over each edge, and the congestion. A row for each source and node: what
    # enters less what leaves.
    congestion = kinds * edges
    columns, ones = np.arange(congestion), np.ones(congestion)
    shift = np.repeat(np.arange(kinds), edges) * nodes
    entered, left = np.tile(fabric.dst, kinds) + shift, np.tile(fabric.src, kinds) + shift
    conservation = sparse.coo_matrix(
        (np.r_[ones, -ones], (np.r_[entered, left], np.r_[columns, columns])), shape=(kinds * nodes, congestion + 1)
    )
    wanted = np.zeros((kinds, nodes))
    wanted[:, : fabric.ranks] = 1
    wanted[np.arange(kinds), sources] = 1 - fabric.ranks

    # A row for each orbit of edges: the load of all images, less what the congestion times their capacity allows.
    rows = np.r_[np.tile(place, kinds), np.arange(len(size))]
    values = np.r_[fabric.ranks // kinds * ones, -fabric.cap[names] * size]
    columns = np.r_[columns, np.full(len(size), congestion)]
    loads = sparse.coo_matrix((values, (rows, columns)), shape=(len(size), congestion + 1))

    small = congestion < SMALL
    top = np.full(congestion + 1, np.inf)
    if allowed is not None:
        top[:-1][~allowed.ravel()] = 0

    def solved(cost: np.ndarray) -> Any:
        """Return the solution of the program with these costs of the columns."""
        return linear(
            cost, A_ub=loads.tocsr(), b_ub=np.zeros(len(size)), A_eq=conservation.tocsr(), b_eq=wanted.ravel(),
            bounds=np.stack([np.zeros(len(top)), top], axis=1), method="highs-ds" if small else "highs-ipm",
        )  # fmt: skip

    solution = solved(np.r_[np.zeros(congestion), 1.0])
    if solution.status == 2:
        raise InfeasibleError(f"{fabric.name}: its links cannot carry an alltoall")
    if solution.x is None:
        raise SynthError(f"{fabric.name}: the linear program of alltoall ended without an answer: {solution.message}")
    answer = solution.x
    # Shortest paths among the flows of least congestion: fewer steps.
    if small and allowed is None:
        top[-1] = answer[-1] * (1 + 1e-9)
        again = solved(np.r_[np.tile((fabric.dst < fabric.ranks).astype(float), kinds), 0.0])
        answer = answer if again.x is None else again.x
    flow = np.maximum(answer[:-1], 0).reshape(kinds, edges)
    lengths = integer_lengths(-solution.ineqlin.marginals)[place]
    return ConcurrentFlow(fabric, group, sources, flow, lengths, "linear program")


def integer_lengths(lengths: np.ndarray) -> np.ndarray:
    """Return the lengths as integers in nearly the same proportions: exactly, if these are simple fractions."""
    lengths = np.maximum(np.asarray(lengths, float), 0)
    top = lengths.max(initial=0.0)
    if top <= 0:
        return np.ones(len(lengths), np.int64)
    return np.array(near_integers((lengths / top).tolist(), 5040, 10**6, 1e-7)[1], np.int64)
