"""Allreduce by spanning-tree packing (Nash-Williams, Tutte): the greatest rate τ, its partition, and the trees.

Where every link has the same capacity both ways and nothing else limits the network, each chunk crosses a partition of
the ranks into m parts at least 2(m - 1) times, so the rate is at most τ, the least over partitions of
(units of the pairs across) / (m - 1); packed spanning trees attain it (Nash-Williams, "Edge-disjoint spanning trees of
finite graphs", 1961; Tutte, "On the problem of decomposing a graph into n connected factors", 1961). Each tree sums up
to its root and broadcasts down again, both at once on the two directions of its edges.

    SpanningTreePacking  rate partition trees   p trees on the network scaled by q, for rate p/q
    Tree                 root parents           parents[n]: the parent of rank n, -1 for the root
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import SynthError
from synth.model.topology import Network
from synth.solvers.deadline import check_deadline

Edge = tuple[int, int]


@dataclass(frozen=True)
class Tree:
    """A spanning tree, rooted where its height is least."""

    root: int
    parents: tuple[int, ...]

    def depth(self, rank: int) -> int:
        """Return the number of edges from `rank` up to the root."""
        return 0 if rank == self.root else 1 + self.depth(self.parents[rank])

    @property
    def height(self) -> int:
        """The greatest depth."""
        return max(map(self.depth, range(len(self.parents))))


@dataclass(frozen=True)
class SpanningTreePacking:
    """`rate` = p/q units: p `trees`, of which at most q * units use a pair; `partition` names the part of each rank and
    proves it."""

    network: Network
    rate: Fraction
    partition: tuple[int, ...]
    trees: tuple[Tree, ...]


# Maximum number of units of all links together, as every unit is an edge of the matroid union.
MOST_UNITS = 1 << 13


def applies(network: Network) -> bool:
    """Return True if τ is the bound and trees attain it: links alike in both directions, no shared limits, connected;
    and few enough units to pack one by one."""
    units = _units(network)
    if sum(units.values()) > MOST_UNITS:
        return False
    if network.caps or any(units.get((b, a)) != n for (a, b), n in units.items()):
        return False
    return network.ranks > 1 and all(d is not None for d in network.distances[0])


def partition_rate(network: Network, partition: Sequence[int]) -> Fraction:
    """Return the bound on the rate by a partition: units of the pairs across it, divided by the parts less one. Raises
    SynthError for fewer than two parts."""
    parts = len(set(partition))
    if len(partition) != network.ranks or parts < 2:
        raise SynthError(
            f"a partition names the part of each of {network.ranks} ranks, in two parts or more; got {list(partition)}"
        )
    across = sum(r.units for r in network.routes if partition[r.src] != partition[r.dst])
    return Fraction(across, 2 * (parts - 1))


def forest(network: Network) -> SpanningTreePacking:
    """Return τ and trees that attain it, by Newton's method on partitions: each failed packing names a partition of
    lower rate.

    Raises SynthError where `applies` is false.
    """
    if not applies(network):
        raise SynthError(
            f"{network.name}: tree packings need links of the same units both ways, no limits, and a connected network"
        )
    partition = start(network)
    while True:
        rate = partition_rate(network, partition)
        edges: list[Edge] = []
        for e, n in sorted(_units(network).items()):
            if e[0] < e[1]:
                # A tree holds at most one edge of a pair. One edge more than there are trees shows that a pair is full.
                edges += [e] * min(n * rate.denominator, rate.numerator + 1)
        packed = _Packing(network.ranks, edges, rate.numerator)
        if packed.complete:
            trees = []
            for members in packed.forests:
                trees.append(_rooted(network.ranks, [edges[i] for i in members]))
            return SpanningTreePacking(network, rate, partition, tuple(trees))
        partition = packed.tight_partition()


def start(network: Network) -> tuple[int, ...]:
    """Return the first partition of least rate among those met while the two parts with most units between them are
    joined repeatedly."""
    units, part = _units(network), tuple(range(network.ranks))
    best, least = part, partition_rate(network, part)
    for _ in range(network.ranks - 2):
        across: dict[Edge, int] = {}
        for (a, b), n in sorted(units.items()):
            if part[a] < part[b]:
                across[part[a], part[b]] = across.get((part[a], part[b]), 0) + n
        first, second = max(across, key=across.__getitem__)
        merged = {second: first}
        part = tuple(merged.get(p, p) for p in part)
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
    """Maximum edge set of `count` edge-disjoint forests: matroid union by shortest augmenting paths.

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
        """True if every forest is a spanning tree."""
        return all(len(members) == self.ranks - 1 for members in self.forests)

    def tight_partition(self) -> tuple[int, ...]:
        """Return the partition into components of the edges that no augmenting path freed: too few edges run
        between the parts."""
        part = list(range(self.ranks))
        for e in self.stuck:
            low, high = sorted(map(part.__getitem__, self.edges[e]))
            merged = {high: low}
            part = [merged.get(p, p) for p in part]
        return tuple(part)

    def _insert(self, new: int) -> set[int] | None:
        """Insert an edge and move others between forests; return None, or all edges reached if that is impossible.
        Raises TimeUp."""
        check_deadline()
        came: dict[int, tuple[int, int] | None] = {new: None}
        queue = deque([new])
        while queue:
            e = queue.popleft()
            for k in range(len(self.forests)):
                if self.home.get(e) == k:
                    continue
                cycle = self._path(k, self.edges[e])
                if cycle is None:
                    self._augment(e, k, came)
                    return None
                for f in cycle:
                    if f not in came:
                        came[f] = (e, k)
                        queue.append(f)
        return set(came)

    def _augment(self, e: int, k: int, came: dict[int, tuple[int, int] | None]) -> None:
        """Apply the augmenting path of the matroid union: insert edge `e` into forest `k`, then walk back through
        `came`, moving each displaced edge into the forest in which it closed the cycle."""
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
        """Return the edges of forest k between two ranks; None if they are not connected."""
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
