"""Rings in pairs, one each way, where links are alike both ways: Hamiltonian cycles side by side in an undirected
multigraph.

Every unit of a pair of opposite links is an edge. As many edges at each node as the cycles take are chosen, two for
each, and fall into factors of two edges at each node (Petersen, "Die Theorie der regulären graphs", 1891: along an
Euler tour they are a bipartite graph, which falls into matchings). Then two factors, or one and the edges left over,
exchange the edges of a short closed trail that takes from both in turn. Exchanges that leave fewer cycles are kept,
others sometimes (simulated annealing, in a fixed pseudo-random order); Nikolaev and Kozlova (arXiv 2001.04683) join the
cycles of two factors by exchanges too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from math import exp
from random import Random

import numpy as np

from synth.scale.baselines.rings.ring_network import Roads
from synth.solvers.highs import integer
from synth.solvers.processes.deadline import check, left

# Edges, with those left over, that are looked at.
MOST_EDGES = 24_000
# An exchange that leaves more cycles is kept with probability exp(-cycles / heat); heat falls from the first to the
# second.
HEAT = (0.7, 0.2)
# Places that the search for a trail looks at, and seconds that the choice of edges may take.
REACH = 4_000
PATIENCE = 10.0

Edge = tuple[int, int, int, int]
Way = tuple[list[int], list[int]]
Ring = tuple[np.ndarray, np.ndarray]


def search(roads: Roads, widths: Sequence[int], known: int, most: int, steps: int) -> Iterator[tuple[int, list[Ring]]]:
    """(width, rings as ranks and links), of more than `known` and at most `most` units together, by at most `steps`
    exchanges each time.

    Of the `widths` that one is taken of which degrees leave room for most.
    """
    best: tuple[int, int, list[Edge]] = 0, 0, []
    for width in widths:
        made = _edges(roads, width)
        count = min(most // width, int(_degrees(roads.ranks, made).min())) // 2
        if count * width > best[0] * best[1]:
            best = count, width, made
            if 2 * count * width == most:
                break
    count, width, made = best
    less = 0
    while 2 * (count - less) * width > known:
        ways = cycles(roads.ranks, made, count - less, steps)
        if 2 * len(ways) * width > known:
            known = 2 * len(ways) * width
            yield width, [ring for way in ways for ring in _both(way, made)]
        less = max(1, 2 * less)


def _both(way: Way, made: list[Edge]) -> tuple[Ring, Ring]:
    """The ring along a cycle and the one back."""
    order, taken = way
    there = [made[e][2 if made[e][0] == rank else 3] for rank, e in zip(order, taken, strict=True)]
    back = [made[e][3 if made[e][0] == rank else 2] for rank, e in zip(order, taken, strict=True)]
    turned = np.roll(order[::-1], 1), np.array(back[::-1])
    return (np.array(order), np.array(there)), turned


def _degrees(ranks: int, made: list[Edge]) -> np.ndarray:
    return np.bincount(np.array([edge[:2] for edge in made], np.int64).reshape(-1), minlength=ranks)


def _edges(roads: Roads, width: int) -> list[Edge]:
    """(rank, rank, link there, link back) for every `width` units of links both ways; [] where there are limits or too
    many edges."""
    if len(roads.members):
        return []
    times = roads.units // width
    if int(times.sum()) > 2 * MOST_EDGES:
        return []
    there: dict[tuple[int, int], list[int]] = {}
    for a, b, link, many in zip(roads.src.tolist(), roads.dst.tolist(), range(len(times)), times.tolist(), strict=True):
        there.setdefault((a, b), []).extend([link] * many)
    return [
        (a, b, one, two)
        for (a, b), links in there.items()
        if a < b
        for one, two in zip(links, there.get((b, a), ()), strict=False)
    ]


def cycles(ranks: int, made: list[Edge], wanted: int, steps: int, seed: int = 0) -> list[Way]:
    """Up to `wanted` cycles through all ranks that share no edge: of each the ranks in their order and the edges
    between them."""
    random = Random(seed)
    chosen = _factor(ranks, made, 2 * wanted, seed)
    if chosen is None:
        return []
    search = _Search(ranks, made, _layers(ranks, made, chosen, wanted, random), wanted, random)
    search.run(steps)
    return [search.way(i) for i in range(wanted) if not search.energy[i]]


def _factor(ranks: int, made: list[Edge], degree: int, seed: int) -> list[int] | None:
    """Edges, `degree` at each rank; None where there are none such."""
    at = _degrees(ranks, made)
    if (at < degree).any():
        return None
    if (at == degree).all():
        return list(range(len(made)))
    from scipy.sparse import csr_matrix

    count = len(made)
    ends = np.array([edge[:2] for edge in made], np.int64)
    rows = csr_matrix((np.ones(2 * count), (ends.reshape(-1), np.repeat(np.arange(count), 2))), shape=(ranks, count))
    wish = np.random.default_rng(seed).random(count)
    time = left()
    patience = PATIENCE if time is None else min(PATIENCE, max(time, 0.01))
    found = integer(wish, [(rows, degree, degree)], 1, time_limit=patience, node_limit=50, mip_rel_gap=0.5)
    return None if found.x is None else np.flatnonzero(np.rint(found.x)).tolist()


def _layers(ranks: int, made: list[Edge], chosen: list[int], count: int, random: Random) -> list[int]:
    """For each edge its factor, `count` for those left over: the edges go along Euler tours, and matchings out of ranks
    into ranks."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    near: list[list[int]] = [[] for _ in range(ranks)]
    order = chosen.copy()
    random.shuffle(order)
    for e in order:
        near[made[e][0]].append(e)
        near[made[e][1]].append(e)
    gone = [False] * len(made)
    between: dict[tuple[int, int], list[int]] = {}
    for start in range(ranks):  # every rank has as many edges in as out: a walk ends only where it began
        at = start
        while near[at]:
            e = near[at].pop()
            if not gone[e]:
                gone[e] = True
                other = made[e][1] if made[e][0] == at else made[e][0]
                between.setdefault((at, other), []).append(e)
                at = other
    layer = [count] * len(made)
    for k in range(count):
        name = list(range(ranks))
        random.shuffle(name)
        real = {name[v]: v for v in range(ranks)}
        pairs = [(u, name[v]) for u, v in between]
        matrix = csr_matrix((np.ones(len(pairs)), tuple(zip(*pairs, strict=True))), shape=(ranks, ranks))
        for u, v in enumerate(maximum_bipartite_matching(matrix, "column").tolist()):
            pair = (u, real[v])
            layer[between[pair].pop()] = k
            if not between[pair]:
                del between[pair]
    return layer


class _Search:
    """`layer[e]` is the factor of edge e, `near[k][v]` its edges at v; `energy[k]` is one less than its cycles."""

    def __init__(self, ranks: int, made: list[Edge], layer: list[int], count: int, random: Random) -> None:
        self.ranks, self.layer, self.count, self.random = ranks, layer, count, random
        self.sum = [a + b for a, b, *_ in made]  # less one end it is the other
        self.start = [a for a, *_ in made]
        self.near: list[list[list[int]]] = [[[] for _ in range(ranks)] for _ in range(count + 1)]
        for e, (a, b, *_) in enumerate(made):
            self.near[layer[e]][a].append(e)
            self.near[layer[e]][b].append(e)
        self.others = [k for k in range(count + 1) if k < count or any(self.near[count])]
        self.energy = [self._energy(k) for k in range(count)]

    def _energy(self, k: int) -> int:
        near, ends = self.near[k], self.sum
        seen = [False] * self.ranks
        found = -1
        for start in range(self.ranks):
            if not seen[start]:
                found += 1
                at, e = start, -1
                while not seen[at]:
                    seen[at] = True
                    one, two = near[at]
                    e = two if e == one else one
                    at = ends[e] - at
        return found

    def way(self, k: int) -> Way:
        """The ranks of cycle k in their order, from rank 0, and the edges between them."""
        order: list[int] = []
        taken: list[int] = []
        at, e = 0, -1
        for _ in range(self.ranks):
            one, two = self.near[k][at]
            e = two if e == one else one
            order.append(at)
            taken.append(e)
            at = self.sum[e] - at
        return order, taken

    def run(self, steps: int) -> None:
        """At most `steps` exchanges, until every factor is one cycle."""
        pick, energy = self.random.random, self.energy
        for step in range(steps):
            if not step & 63:
                check()
            bad = [k for k in range(self.count) if energy[k]]
            if not bad or len(self.others) < 2:
                return
            i = bad[int(pick() * len(bad))]
            j = i
            while j == i:
                j = self.others[int(pick() * len(self.others))]
            trail = self._trail(int(pick() * self.ranks), i, j)
            if not trail:
                continue
            self._exchange(trail, i, j)
            new = self._energy(i), self._energy(j) if j < self.count else 0
            gain = sum(new) - energy[i] - (energy[j] if j < self.count else 0)
            heat = HEAT[0] + (HEAT[1] - HEAT[0]) * step / steps
            if gain <= 0 or pick() < exp(-gain / heat):
                energy[i] = new[0]
                if j < self.count:
                    energy[j] = new[1]
            else:
                self._exchange(trail, j, i)

    def _trail(self, u: int, i: int, j: int) -> list[int]:
        """A shortest closed trail from u by edges of i and j in turn, found in random order; [] where none was, or one
        that repeats."""
        near, ends, flip = (self.near[i], self.near[j]), self.sum, self.random.random
        came: dict[int, tuple[int, int]] = {}
        queue = deque([2 * u])  # 2 x rank + whether the next edge is one of j
        while queue and len(came) < REACH:
            state = queue.popleft()
            at, turn = state >> 1, state & 1
            row = near[turn][at]
            for e in reversed(row) if flip() < 0.5 else row:
                after = 2 * (ends[e] - at) + 1 - turn
                if after not in came:
                    came[after] = (state, e)
                    if after == 2 * u:
                        return self._back(after, came)
                    queue.append(after)
        return []

    def _back(self, state: int, came: dict[int, tuple[int, int]]) -> list[int]:
        trail: list[int] = []
        goal = state
        while True:
            state, e = came[state]
            trail.append(e)
            if state == goal:
                return trail if len(set(trail)) == len(trail) else []

    def _exchange(self, trail: list[int], i: int, j: int) -> None:
        """Edges of the trail, which begins with one of j, change places."""
        for turn, e in enumerate(trail):
            old, new = (i, j) if turn & 1 else (j, i)
            for end in (self.start[e], self.sum[e] - self.start[e]):
                self.near[old][end].remove(e)
                self.near[new][end].append(e)
            self.layer[e] = new
