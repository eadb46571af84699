"""Pairs of opposite rings where links are symmetric: edge-disjoint Hamiltonian cycles of an undirected multigraph.

Every unit of a pair of opposite links is an edge. An edge subset with degree 2k at each node falls into k 2-factors
(Petersen, "Die Theorie der regulären graphs", 1891: oriented along an Euler tour it is a bipartite graph, which falls
into matchings). Then two 2-factors, or one 2-factor and the edges left over, exchange the edges of a short closed
alternating trail (a Kempe chain), so that their cycles join. Exchanges that leave fewer cycles are accepted, others
sometimes (simulated annealing, in a fixed pseudo-random order). Nikolaev and Kozlova (arXiv 2001.04683) join the cycles
of two factors by exchanges too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from random import Random

import numpy as np

from synth.scale.baselines.rings.ring_network import RingNetwork
from synth.solvers.highs import integer
from synth.solvers.processes.deadline import check_deadline, current_deadline


@dataclass(frozen=True)
class PairSettings:
    """Limits of the search for opposite pairs.

    Attributes:
        maximum_edges: Edges of the multigraph. Larger ones are not searched, since each move takes time in the
            number of nodes.
        temperature: First and last temperature. An exchange that leaves n more cycles is accepted with
            probability exp(-n / temperature), and the temperature falls linearly over the exchanges.
        maximum_states: States (a rank, and which factor is next) that the search for a closed trail visits.
        program_seconds: Seconds that the integer program for the edge subset may take.
    """

    maximum_edges: int = 24_000
    temperature: tuple[float, ...] = (0.7, 0.2)
    maximum_states: int = 4_000
    program_seconds: float = 10.0


SETTINGS = PairSettings()

# (rank, rank, link from the first to the second, link back)
Edge = tuple[int, int, int, int]
# Ranks of a cycle in their order, and the edges from each to the next.
EdgeCycle = tuple[list[int], list[int]]
# Ranks of a ring in their order, and the links from each to the next.
Ring = tuple[np.ndarray, np.ndarray]


def search(
    network: RingNetwork, widths: Sequence[int], known: int, maximum: int, steps: int
) -> Iterator[tuple[int, list[Ring]]]:
    """Yield (width, rings as ranks and links), each time with more units together than `known` and than before.

    The width is that of `widths` for which degrees allow the most units, `maximum` in all. Each attempt takes at most
    `steps` exchanges. Raises TimeUp.
    """
    pairs, width = 0, 0
    edges: list[Edge] = []
    for candidate in widths:
        candidate_edges = _edges(network, candidate)
        degree = int(_degrees(network.ranks, candidate_edges).min())
        count = min(maximum // candidate, degree) // 2
        if count * candidate > pairs * width:
            pairs, width, edges = count, candidate, candidate_edges
            if 2 * count * candidate == maximum:
                break
    reduction = 0  # fewer pairs are tried where all that degrees allow were not found
    while 2 * (pairs - reduction) * width > known:
        found = cycles(network.ranks, edges, pairs - reduction, steps)
        if 2 * len(found) * width > known:
            known = 2 * len(found) * width
            rings: list[Ring] = []
            for cycle in found:
                rings += _both_directions(cycle, edges)
            yield width, rings
        reduction = max(1, 2 * reduction)


def _both_directions(cycle: EdgeCycle, edges: list[Edge]) -> tuple[Ring, Ring]:
    """The ring along a cycle and the opposite ring."""
    order, numbers = cycle
    forward, backward = [], []
    for rank, e in zip(order, numbers, strict=True):
        start, _, there, back = edges[e]
        forward.append(there if start == rank else back)
        backward.append(back if start == rank else there)
    opposite = np.roll(order[::-1], 1), np.array(backward[::-1])
    return (np.array(order), np.array(forward)), opposite


def _degrees(ranks: int, edges: list[Edge]) -> np.ndarray:
    return np.bincount(np.array([edge[:2] for edge in edges], np.int64).reshape(-1), minlength=ranks)


def _edges(network: RingNetwork, width: int) -> list[Edge]:
    """An edge for every `width` units of links both ways; [] where there are limits or too many edges."""
    if len(network.members):
        return []
    times = network.units // width
    if int(times.sum()) > 2 * SETTINGS.maximum_edges:
        return []
    links_of: dict[tuple[int, int], list[int]] = {}
    for link, (a, b, count) in enumerate(zip(network.src.tolist(), network.dst.tolist(), times.tolist(), strict=True)):
        links_of.setdefault((a, b), []).extend([link] * count)
    edges = []
    for (a, b), links in links_of.items():
        if a < b:
            opposite = links_of.get((b, a), ())
            edges += [(a, b, there, back) for there, back in zip(links, opposite, strict=False)]
    return edges


def cycles(ranks: int, edges: list[Edge], wanted: int, steps: int, seed: int = 0) -> list[EdgeCycle]:
    """Search for up to `wanted` edge-disjoint Hamiltonian cycles by at most `steps` exchanges. Raises TimeUp."""
    random = Random(seed)
    subset = _regular_subset(ranks, edges, 2 * wanted, seed)
    if subset is None:
        return []
    search = _FactorAnnealing(ranks, edges, _two_factors(ranks, edges, subset, wanted, random), wanted, random)
    search.run(steps)
    return [search.cycle(i) for i in range(wanted) if not search.energy[i]]


def _regular_subset(ranks: int, edges: list[Edge], degree: int, seed: int) -> list[int] | None:
    """Edges with `degree` at each rank, by an integer program with random costs; None where none were found."""
    degrees = _degrees(ranks, edges)
    if (degrees < degree).any():
        return None
    if (degrees == degree).all():
        return list(range(len(edges)))
    from scipy.sparse import csr_matrix

    count = len(edges)
    ends = np.array([edge[:2] for edge in edges], np.int64)
    rows = csr_matrix((np.ones(2 * count), (ends.reshape(-1), np.repeat(np.arange(count), 2))), shape=(ranks, count))
    cost = np.random.default_rng(seed).random(count)
    seconds = min(SETTINGS.program_seconds, max(current_deadline().remaining(), 0.01))
    solution = integer(cost, [(rows, degree, degree)], 1, time_limit=seconds, node_limit=50, mip_rel_gap=0.5)
    return None if solution.x is None else np.flatnonzero(np.rint(solution.x)).tolist()


def _two_factors(ranks: int, edges: list[Edge], subset: list[int], count: int, random: Random) -> list[int]:
    """2-factor of each edge, a number below `count`; `count` for the edges outside `subset`.

    The edges are oriented along Euler tours. Then each rank has `count` edges out and in, and these fall into perfect
    matchings between tails and heads (Petersen).
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    incident: list[list[int]] = [[] for _ in range(ranks)]
    order = subset.copy()
    random.shuffle(order)
    for e in order:
        incident[edges[e][0]].append(e)
        incident[edges[e][1]].append(e)
    oriented = [False] * len(edges)
    between: dict[tuple[int, int], list[int]] = {}
    for start in range(ranks):  # all degrees are even: a walk ends only where it began
        at = start
        while incident[at]:
            e = incident[at].pop()
            if not oriented[e]:
                oriented[e] = True
                other = edges[e][1] if edges[e][0] == at else edges[e][0]
                between.setdefault((at, other), []).append(e)
                at = other
    factor = [count] * len(edges)
    for k in range(count):
        name = list(range(ranks))  # random names of the heads, so that matchings differ
        random.shuffle(name)
        rank = {name[v]: v for v in range(ranks)}
        pairs = [(u, name[v]) for u, v in between]
        matrix = csr_matrix((np.ones(len(pairs)), tuple(zip(*pairs, strict=True))), shape=(ranks, ranks))
        for u, v in enumerate(maximum_bipartite_matching(matrix, "column").tolist()):
            pair = (u, rank[v])
            factor[between[pair].pop()] = k
            if not between[pair]:
                del between[pair]
    return factor


class _FactorAnnealing:
    """Simulated annealing over 2-factors.

    `incident[k][v]` are the edges of factor k at rank v (factor `count`: the edges left over); `energy[k]` is the
    number of cycles of factor k less one.
    """

    def __init__(self, ranks: int, edges: list[Edge], factor: list[int], count: int, random: Random) -> None:
        self.ranks, self.count, self.random = ranks, count, random
        self.end_sum = [a + b for a, b, *_ in edges]  # minus one end it is the other end
        self.start = [a for a, *_ in edges]
        self.incident: list[list[list[int]]] = []
        for _ in range(count + 1):
            self.incident.append([[] for _ in range(ranks)])
        for e, (a, b, *_) in enumerate(edges):
            self.incident[factor[e]][a].append(e)
            self.incident[factor[e]][b].append(e)
        self.partners = [k for k in range(count + 1) if k < count or any(self.incident[count])]
        self.energy = [self._energy(k) for k in range(count)]

    def _energy(self, k: int) -> int:
        """Number of cycles of factor k, less one."""
        incident, ends = self.incident[k], self.end_sum
        seen = [False] * self.ranks
        energy = -1
        for start in range(self.ranks):
            if not seen[start]:
                energy += 1
                at, e = start, -1
                while not seen[at]:
                    seen[at] = True
                    one, two = incident[at]
                    e = two if e == one else one
                    at = ends[e] - at
        return energy

    def cycle(self, k: int) -> EdgeCycle:
        """Ranks of cycle k in their order, from rank 0, and the edges between them."""
        order: list[int] = []
        numbers: list[int] = []
        at, e = 0, -1
        for _ in range(self.ranks):
            one, two = self.incident[k][at]
            e = two if e == one else one
            order.append(at)
            numbers.append(e)
            at = self.end_sum[e] - at
        return order, numbers

    def run(self, steps: int) -> None:
        """Make at most `steps` exchanges, until every factor is one cycle. Raises TimeUp."""
        uniform, energy = self.random.random, self.energy
        for step in range(steps):
            if not step & 63:
                check_deadline()
            unfinished = [k for k in range(self.count) if energy[k]]
            if not unfinished or len(self.partners) < 2:
                return
            i = unfinished[int(uniform() * len(unfinished))]
            j = i
            while j == i:
                j = self.partners[int(uniform() * len(self.partners))]
            trail = self._alternating_trail(int(uniform() * self.ranks), i, j)
            if not trail:
                continue
            self._exchange(trail, i, j)
            energy_i = self._energy(i)
            energy_j = self._energy(j) if j < self.count else 0
            increase = energy_i + energy_j - energy[i] - (energy[j] if j < self.count else 0)
            temperature = SETTINGS.temperature[0] + (SETTINGS.temperature[1] - SETTINGS.temperature[0]) * step / steps
            if increase <= 0 or uniform() < exp(-increase / temperature):
                energy[i] = energy_i
                if j < self.count:
                    energy[j] = energy_j
            else:
                self._exchange(trail, j, i)

    def _alternating_trail(self, u: int, i: int, j: int) -> list[int]:
        """A shortest closed trail from u with edges of factors i and j in turn, in random order; [] if none is found.

        A breadth-first search over states 2 x rank + (1 if the next edge is one of j). Trails that repeat an edge are
        refused.
        """
        incident, ends, uniform = (self.incident[i], self.incident[j]), self.end_sum, self.random.random
        came_from: dict[int, tuple[int, int]] = {}
        queue = deque([2 * u])
        while queue and len(came_from) < SETTINGS.maximum_states:
            state = queue.popleft()
            at, side = state >> 1, state & 1
            row = incident[side][at]
            for e in reversed(row) if uniform() < 0.5 else row:
                after = 2 * (ends[e] - at) + 1 - side
                if after not in came_from:
                    came_from[after] = (state, e)
                    if after == 2 * u:
                        return self._traced(after, came_from)
                    queue.append(after)
        return []

    def _traced(self, state: int, came_from: dict[int, tuple[int, int]]) -> list[int]:
        """The edges back from `state` to itself; [] where one repeats."""
        trail: list[int] = []
        goal = state
        while True:
            state, e = came_from[state]
            trail.append(e)
            if state == goal:
                return trail if len(set(trail)) == len(trail) else []

    def _exchange(self, trail: list[int], i: int, j: int) -> None:
        """Move the edges of j on the trail to i, and those of i to j. The trail begins with an edge of j."""
        for place, e in enumerate(trail):
            old, new = (i, j) if place & 1 else (j, i)
            for end in (self.start[e], self.end_sum[e] - self.start[e]):
                self.incident[old][end].remove(e)
                self.incident[new][end].append(e)
