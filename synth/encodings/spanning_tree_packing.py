"""Allreduce on undirected spanning trees: the greatest rate τ, its partition, and pipelined schedules.

Where every link has the same capacity both ways and nothing else limits the network, each chunk crosses a partition of
the ranks into m parts at least 2(m - 1) times, so the rate is at most τ, the least over partitions of
(units of the pairs across) / (m - 1); packed spanning trees attain it (Nash-Williams, "Edge-disjoint spanning trees of
finite graphs", 1961; Tutte, "On the problem of decomposing a graph into n connected factors", 1961). Each tree sums up
to its root and broadcasts down again, both at once on the two directions of its edges.

    Forest   rate partition trees       p trees on the network scaled by q, for rate p/q
    Tree     root parents               parents[n]: the parent of rank n, -1 for the root
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, repeat

from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.processes.deadline import check

Edge = tuple[int, int]


@dataclass(frozen=True)
class Tree:
    """A spanning tree, rooted where it is least high."""

    root: int
    parents: tuple[int, ...]

    def depth(self, rank: int) -> int:
        """Edges from `rank` up to the root."""
        return 0 if rank == self.root else 1 + self.depth(self.parents[rank])

    @property
    def height(self) -> int:
        """The greatest depth."""
        return max(map(self.depth, range(len(self.parents))))


@dataclass(frozen=True)
class Forest:
    """`rate` = p/q units: p `trees`, of which at most q * units use a pair; `partition` names the part of each rank and
    proves it."""

    network: Network
    rate: Fraction
    partition: tuple[int, ...]
    trees: tuple[Tree, ...]

    @property
    def height(self) -> int:
        """Of the highest tree."""
        return max(tree.height for tree in self.trees)


# Units of all links together up to which every unit is an edge to pack.
MOST_UNITS = 1 << 13


def applies(network: Network) -> bool:
    """Whether τ is the bound and trees attain it: links alike both ways, no caps, connected; and few enough units to
    pack one by one."""
    units = _units(network)
    if sum(units.values()) > MOST_UNITS:
        return False
    if network.caps or any(units.get((b, a)) != n for (a, b), n in units.items()):
        return False
    return network.ranks > 1 and all(d is not None for d in network.distances[0])


def partition_rate(network: Network, partition: Sequence[int]) -> Fraction:
    """Units of the pairs across, over parts less one: no allreduce is faster. Raises SynthError for fewer than two
    parts."""
    parts = len(set(partition))
    if len(partition) != network.ranks or parts < 2:
        raise SynthError(
            f"a partition names the part of each of {network.ranks} ranks, in two parts or more; got {list(partition)}"
        )
    across = sum(r.units for r in network.routes if partition[r.src] != partition[r.dst])
    return Fraction(across, 2 * (parts - 1))


def forest(network: Network) -> Forest:
    """τ and trees that attain it, by Newton's method on partitions: each failed packing names a worse one.

    Raises SynthError where `applies` is false.
    """
    if not applies(network):
        raise SynthError(
            f"{network.name}: tree packings need links of the same units both ways, no limits, and a connected network"
        )
    partition = start(network)
    while True:
        rate = partition_rate(network, partition)
        # a tree holds one edge of a pair at most; one more than there are trees, so that a full pair is seen to be
        # stuck
        times = {
            e: min(n * rate.denominator, rate.numerator + 1) for e, n in sorted(_units(network).items()) if e[0] < e[1]
        }
        edges = [e for e, n in times.items() for _ in range(n)]
        packed = _Packing(network.ranks, edges, rate.numerator)
        if packed.complete:
            trees = tuple(_rooted(network.ranks, [edges[i] for i in members]) for members in packed.forests)
            return Forest(network, rate, partition, trees)
        partition = packed.tight_partition()


def schedule(made: Forest, collective: Collective, pipeline: int) -> Schedule:
    """The forest's allreduce with `pipeline` chunks a tree: S = 2 * height + pipeline - 1, R = q * S, C = p * pipeline.

    All ranks end with the same bits: each total is formed once, at its root.
    """
    length = 2 * made.height + pipeline - 1
    steps: list[list[Send]] = [[] for _ in range(length)]
    ways = _ways(made)
    for k, tree in enumerate(made.trees):
        for n, parent in enumerate(tree.parents):
            if n == tree.root:
                continue
            up, down = tree.height - tree.depth(n), tree.height + tree.depth(parent)
            there, back = next(ways[n, parent]), next(ways[parent, n])
            for i in range(pipeline):
                chunk = k * pipeline + i
                steps[up + i].append(Send(chunk, n, parent, "reduce", there))
                steps[down + i].append(Send(chunk, parent, n, "copy", back))
    rows = tuple(Step(made.rate.denominator, tuple(sorted(sends))) for sends in steps)
    return prune(Schedule(made.network, collective, made.rate.numerator * pipeline, rows))


def _ways(made: Forest) -> dict[Edge, Iterator[tuple[str, ...]]]:
    """For each pair the ways of the trees on it, one after the other: a route takes as many in a step as there is room
    for."""
    routes: dict[Edge, list[Iterator[tuple[str, ...]]]] = {}
    for r in made.network.routes:
        routes.setdefault((r.src, r.dst), []).append(repeat(r.via, r.units * made.rate.denominator))
    return {pair: chain(*ways) for pair, ways in routes.items()}


def start(network: Network) -> tuple[int, ...]:
    """Of the partitions met while the parts with most units between them are joined, one by one, the first of least
    rate."""
    units, part = _units(network), tuple(range(network.ranks))
    best, least = part, partition_rate(network, part)
    for _ in range(network.ranks - 2):
        across: dict[Edge, int] = {}
        for (a, b), n in sorted(units.items()):
            if part[a] < part[b]:
                across[part[a], part[b]] = across.get((part[a], part[b]), 0) + n
        first, second = max(across, key=across.__getitem__)
        part = tuple(first if p == second else p for p in part)
        if (rate := partition_rate(network, part)) < least:
            best, least = part, rate
    return best


def _units(network: Network) -> dict[Edge, int]:
    units: dict[Edge, int] = {}
    for r in network.routes:
        units[r.src, r.dst] = units.get((r.src, r.dst), 0) + r.units
    return units


def _rooted(ranks: int, edges: Sequence[Edge]) -> Tree:
    near: list[list[int]] = [[] for _ in range(ranks)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)

    def grown(root: int) -> Tree:
        parents = [-1] * ranks
        queue = deque([root])
        while queue:
            u = queue.popleft()
            for v in near[u]:
                if v != root and parents[v] < 0:
                    parents[v] = u
                    queue.append(v)
        return Tree(root, tuple(parents))

    return min(map(grown, range(ranks)), key=lambda tree: tree.height)


class _Packing:
    """As many edges as `count` edge-disjoint forests can hold: matroid union by shortest augmenting paths.

    (Edmonds, "Minimum partition of a matroid into independent subsets", 1965.)
    """

    def __init__(self, ranks: int, edges: Sequence[Edge], count: int) -> None:
        self.ranks, self.edges = ranks, edges
        self.forests: list[set[int]] = [set() for _ in range(count)]
        self.home: dict[int, int] = {}
        self.stuck: set[int] = set()
        self.near: dict[int, dict[int, list[tuple[int, int]]]] = {}  # of the forests that did not change since
        for e in range(len(edges)):
            reached = self._insert(e)
            if reached is not None:  # a set that spans itself in every forest stays so
                self.stuck |= reached

    @property
    def complete(self) -> bool:
        """Whether every forest is a spanning tree."""
        return all(len(members) == self.ranks - 1 for members in self.forests)

    def tight_partition(self) -> tuple[int, ...]:
        """The components of the edges that could not give way: too few edges run between them."""
        part = list(range(self.ranks))
        for e in self.stuck:
            a, b = (part[x] for x in self.edges[e])
            part = [min(a, b) if p in (a, b) else p for p in part]
        return tuple(part)

    def _insert(self, new: int) -> set[int] | None:
        """Inserts an edge, moving others between forests; None, or all edges reached when that is impossible. Raises
        TimeUp."""
        check()
        came: dict[int, tuple[int, int] | None] = {new: None}
        queue = deque([new])
        while queue:
            e = queue.popleft()
            for k in range(len(self.forests)):
                if self.home.get(e) == k:
                    continue
                cycle = self._path(k, self.edges[e])
                if cycle is None:
                    self._shift(e, k, came)
                    return None
                for f in cycle:
                    if f not in came:
                        came[f] = (e, k)
                        queue.append(f)
        return set(came)

    def _shift(self, e: int, k: int, came: dict[int, tuple[int, int] | None]) -> None:
        """Edge e enters forest k and leaves the one it was in to the edge that reached it, and so on back."""
        while True:
            old = self.home.get(e)
            if old is not None:
                self.forests[old].discard(e)
                self.near.pop(old, None)
            self.near.pop(k, None)
            self.forests[k].add(e)
            self.home[e] = k
            before = came[e]
            if before is None:
                return
            e, k = before

    def _path(self, k: int, ends: Edge) -> list[int] | None:
        """The edges of forest k between two ranks, None when they are not connected."""
        if k not in self.near:
            near = self.near[k] = {}
            for f in self.forests[k]:
                a, b = self.edges[f]
                near.setdefault(a, []).append((b, f))
                near.setdefault(b, []).append((a, f))
        near = self.near[k]
        start, goal = ends
        via: dict[int, tuple[int, int] | None] = {start: None}
        queue = deque([start])
        while queue:
            u = queue.popleft()
            if u == goal:
                break
            for v, f in near.get(u, ()):
                if v not in via:
                    via[v] = (u, f)
                    queue.append(v)
        if goal not in via:
            return None
        path = []
        at = via[goal]
        while at is not None:
            path.append(at[1])
            at = via[at[0]]
        return path
