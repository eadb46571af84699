"""What every builder of topologies uses: links both ways, crossbars, declared symmetries and the check of them.

A declared generator is a claim; `preserves` decides it in time linear in the links, so a wrong one is dropped, not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.errors import UsageError
from synth.topology import Limit, Link, Topology

if TYPE_CHECKING:
    import numpy as np

    from synth.linktable import LinkTable

MAX_RANKS = 16384
MAX_LINKS = 1 << 20

Permutation = tuple[int, ...]


@dataclass(frozen=True)
class Nic:
    """How a box reaches others: `bandwidth` GB/s each way per NIC, `latency` µs, `count` NICs a box (0: one per rank)."""

    bandwidth: Fraction
    latency: Fraction
    count: int = 0


@dataclass(frozen=True)
class Entry:
    """A line of `synth list topologies`: `build(sizes, options)` makes the topology; `sizes` shows the form of its sizes."""

    summary: str
    build: Callable[[tuple[int, ...], dict[str, str]], Topology]
    nic: Nic
    sizes: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


def counted(pairs: Iterable[tuple[int, int]], name: str) -> list[tuple[int, int]]:
    """The pairs as a list. Raises UsageError once there are more than `MAX_LINKS`, before memory runs out."""
    found: list[tuple[int, int]] = []
    for pair in pairs:
        found.append(pair)
        if len(found) > MAX_LINKS:
            raise UsageError(f"{name} has more than {MAX_LINKS} links; ask for fewer ranks")
    return found


# Links from which arrays are worth their set-up.
LARGE = 20_000
# Pairs of ranks for each link up to which they are looked up in a table.
DENSE = 4


def duplex(edges: Iterable[tuple[int, int]], bandwidth: Fraction, latency: Fraction, kind: str) -> tuple[Link, ...]:
    """Links both ways along each edge."""
    return tuple(Link(u, v, bandwidth, latency, kind) for a, b in edges for u, v in ((a, b), (b, a)))


def crossbar(ranks: int, bandwidth: Fraction, latency: Fraction, kind: str) -> tuple[tuple[Link, ...], tuple[Limit, ...]]:
    """One non-blocking switch: every pair is a link, all that a rank sends, and all it receives, shares `bandwidth`."""
    links = tuple(Link(u, v, bandwidth, latency, kind) for u in range(ranks) for v in range(ranks) if u != v)
    return links, tuple(port_limits(links, [(n,) for n in range(ranks)], bandwidth, "switch port"))


def port_limits(links: Sequence[Link], groups: Sequence[Sequence[int]], bandwidth: Fraction, what: str, start: int = 0) -> list[Limit]:
    """For each group of ranks one limit on the links (from index `start` on) that leave it and one on those that enter.

    A limit that cannot bind (its links together carry no more) is left out. Group names end in the group's number.
    """
    group = {rank: g for g, members in enumerate(groups) for rank in members}
    out: list[list[int]] = [[] for _ in groups]
    into: list[list[int]] = [[] for _ in groups]
    for i, link in enumerate(links[start:] if start else links, start):
        out[group[link.src]].append(i)
        into[group[link.dst]].append(i)
    limits = []
    for g in range(len(groups)):
        for way, members in (("out", out[g]), ("in", into[g])):
            if _exceeds((links[i].bandwidth for i in members), bandwidth):
                limits.append(Limit(f"{what} {g} {way}", tuple(members), bandwidth))
    return limits


def table_limits(table: LinkTable, ranks: int, share: int, bandwidth: Fraction, what: str, start: int = 0) -> list[Limit]:
    """`port_limits` of a table of links for groups of `share` ranks that follow one another."""
    import numpy as np

    from synth.linktable import Members

    far, limits, ways = table[start:], [], []
    width = [sort.bandwidth for sort in far.sorts]
    for ends in (far.src, far.dst):
        group = ends // share
        # NumPy sorts 16 bits by counting.
        order = np.argsort(group.astype(np.uint16) if ranks // share < 1 << 16 else group, kind="stable")
        cuts = np.searchsorted(group[order], np.arange(ranks // share + 1)).tolist()
        ways.append((order, cuts))
    for g in range(ranks // share):
        for way, (order, cuts) in zip(("out", "in"), ways, strict=True):
            members = order[cuts[g] : cuts[g + 1]]
            counts = np.bincount(far.sort[members], minlength=len(width)).tolist()
            if sum(n * w for n, w in zip(counts, width, strict=True)) > bandwidth:
                limits.append(Limit(f"{what} {g} {way}", Members(members + start), bandwidth))
    return limits


def _exceeds(widths: Iterable[Fraction], bandwidth: Fraction) -> bool:
    """Whether the widths add up to more; looks at no more of them than it takes."""
    total = Fraction(0)
    return any((total := total + width) > bandwidth for width in widths)


def symmetric_group(members: Sequence[int], ranks: int) -> list[Permutation]:
    """Two generators of all permutations of `members`: the cycle through them and the exchange of the first two."""
    if len(members) < 2:
        return []
    cycle, swap = list(range(ranks)), list(range(ranks))
    for a, b in zip(members, [*members[1:], members[0]], strict=True):
        cycle[a] = b
    swap[members[0]], swap[members[1]] = members[1], members[0]
    return [tuple(cycle)] if len(members) == 2 else [tuple(cycle), tuple(swap)]


def is_permutation(pi: Sequence[int], ranks: int) -> bool:
    """Whether `pi` lists each of 0..ranks-1 once."""
    return len(pi) == ranks and set(pi) == set(range(ranks))


def preserves(topology: Topology, pi: Sequence[int]) -> bool:
    """Whether the rank permutation `pi` maps links to links of equal bandwidth and limits to equal limits.

    Explicit switches follow their neighbours (any images that make the links agree will do). May say no of a true
    automorphism only where switches look alike yet are wired differently; never says yes of a false one.
    """
    if not is_permutation(pi, topology.ranks):
        return False
    image = [*pi, *_switch_images(topology, pi)] if topology.switches else pi
    links = {(k.src, k.dst): (i, k.bandwidth) for i, k in enumerate(topology.links)}
    moved = []
    for link in topology.links:
        target = links.get((image[link.src], image[link.dst]))
        if target is None or target[1] != link.bandwidth:
            return False
        moved.append(target[0])
    if not topology.limits:
        return True
    limits = sorted((limit.bandwidth, sorted(limit.links)) for limit in topology.limits)
    return limits == sorted((limit.bandwidth, sorted(moved[i] for i in limit.links)) for limit in topology.limits)


def with_generators(topology: Topology, candidates: Iterable[Sequence[int]]) -> Topology:
    """`topology` with those of the candidates that are automorphisms of it declared; the identity and repeats are dropped."""
    identity = tuple(range(topology.ranks))
    distinct = {tuple(pi): None for pi in candidates}
    large = _Large(topology) if len(topology.links) > LARGE and not topology.switches else None
    keeps = large.preserves if large is not None and large.plain else lambda pi: preserves(topology, pi)
    return replace(topology, generators=tuple(pi for pi in distinct if pi != identity and keeps(pi)))


class _Large:
    """`preserves` for a topology of very many links and no switches: the same comparisons, in arrays made once.

    `plain`: no limit is empty or names a link twice; for others it is no judge.
    """

    def __init__(self, topology: Topology) -> None:
        import numpy as np

        from synth.linktable import ends, members, widths

        self.np, self.ranks = np, topology.ranks
        _, self.width = widths(topology.links)
        self.src, self.dst = ends(topology.links)
        keys = self.src * self.ranks + self.dst
        if self.ranks**2 <= DENSE * len(keys):
            self.order = np.full(self.ranks**2, -1, np.int64)  # the link of each pair
            self.order[keys] = np.arange(len(keys))
            self.single = bool((self.order[keys] == np.arange(len(keys))).all())
            self.keys = None
        else:
            self.order = np.argsort(keys, kind="stable")
            self.keys = keys[self.order]
            self.single = bool((np.diff(self.keys) > 0).all())
        number: dict[tuple[int, bytes], int] = {}  # limits alike in width and links, and how many there are of each
        held, times = [], []
        self.plain = True
        for width, links in zip(widths(topology.limits)[1].tolist(), members(topology.limits), strict=True):
            if not (links[1:] > links[:-1]).all():
                links = np.sort(links)
                self.plain &= bool((links[1:] > links[:-1]).all())
            self.plain &= len(links) > 0
            at = number.setdefault((width, links.tobytes()), len(number))
            if at == len(held):
                held.append(links)
                times.append(0)
            times[at] += 1
        self.like = np.array([(width, count) for (width, _), count in zip(number, times, strict=True)], np.int64).reshape(-1, 2)
        self.sizes = np.array([len(m) for m in held], np.int64)
        self.members = np.concatenate([np.zeros(0, np.int64), *held])
        self.owner = np.repeat(np.arange(len(held)), self.sizes)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.holders = self._holders(len(keys))

    def _holders(self, links: int) -> list[np.ndarray]:
        """For each link the limits that hold it, one in each array; -1 where there are fewer."""
        np, found = self.np, []
        order = np.argsort(self.members, kind="stable")
        link, limit = self.members[order], self.owner[order]
        first = np.searchsorted(link, np.arange(links))
        place = np.arange(len(link)) - first[link]
        for layer in range(int(place.max()) + 1 if len(place) else 0):
            row = np.full(links, -1, np.int64)
            row[link[place == layer]] = limit[place == layer]
            found.append(row)
        return found

    def preserves(self, pi: Sequence[int]) -> bool:
        if not self.single or not is_permutation(pi, self.ranks):
            return False
        np, image = self.np, self.np.array(pi, self.np.int64)
        moved = image[self.src] * self.ranks + image[self.dst]
        if self.keys is not None:
            at = np.minimum(np.searchsorted(self.keys, moved), len(self.keys) - 1)
            if (self.keys[at] != moved).any():
                return False
            moved = at
        target = self.order[moved]
        if (target < 0).any() or (self.width[target] != self.width).any():
            return False
        return not len(self.sizes) or self._limits(target)

    def _limits(self, target: np.ndarray) -> bool:
        """Whether each set of links goes to one of as many, as wide and as often a limit, and no two to the same."""
        np, moved = self.np, target[self.members]
        goes = np.full(len(self.sizes), -1, np.int64)
        for row in self.holders:
            candidate = row[moved[self.starts]]
            held = np.zeros(len(moved), bool)
            for other in self.holders:
                held |= other[moved] == candidate[self.owner]
            good = np.logical_and.reduceat(held, self.starts) & (candidate >= 0)
            good &= (self.sizes[candidate] == self.sizes) & (self.like[candidate] == self.like).all(axis=1)
            goes = np.where(good & (goes < 0), candidate, goes)
        return bool((goes >= 0).all()) and len(np.unique(goes)) == len(goes)


def _switch_images(topology: Topology, pi: Sequence[int]) -> list[int]:
    """Where each switch goes when the ranks move by `pi`: colour refinement of the graph and of its image side by side."""
    ranks, ends = topology.ranks, topology.ranks + len(topology.switches)
    near: list[list[tuple[bool, Fraction, int]]] = [[] for _ in range(ends)]
    for link in topology.links:
        near[link.src].append((True, link.bandwidth, link.dst))
        near[link.dst].append((False, link.bandwidth, link.src))
    before = [*pi, *[ranks] * len(topology.switches)]
    after = [*range(ranks), *[ranks] * len(topology.switches)]
    while True:
        known = len(set(after[ranks:]))
        while True:
            names: dict[tuple, int] = {}
            before, after = _refined(before, near, ranks, names), _refined(after, near, ranks, names)
            if len(set(after[ranks:])) == known:
                break
            known = len(set(after[ranks:]))
        if known == len(topology.switches):
            break
        colour = next(c for c in after[ranks:] if after[ranks:].count(c) > 1)
        if colour not in before[ranks:]:
            break
        # Tell apart one switch of the class on either side, and refine again.
        after[after.index(colour, ranks)] = before[before.index(colour, ranks)] = -1
    place = {colour: i for i, colour in enumerate(after) if i >= ranks}
    return [place.get(before[i], ends) for i in range(ranks, ends)]


def _refined(colours: list[int], near: list[list[tuple[bool, Fraction, int]]], ranks: int, names: dict[tuple, int]) -> list[int]:
    fresh = colours[:ranks]
    for i in range(ranks, len(colours)):
        key = (colours[i], tuple(sorted((out, width, colours[end]) for out, width, end in near[i])))
        fresh.append(ranks + names.setdefault(key, len(names)))
    return fresh
