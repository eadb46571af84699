"""What every builder of topologies uses: links both ways, crossbars, declared symmetries and the check of them.

A declared generator is a claim; `preserves` decides it in time linear in the links, so a wrong one is dropped, not believed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

from synth.errors import UsageError
from synth.topology import Limit, Link, Topology

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


@contextmanager
def collector_off() -> Iterator[None]:
    """Python's cycle collector rests: it would look again and again at millions of links, none of which is in a cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


# Links from which arrays are worth their set-up.
LARGE = 20_000


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
    keeps = _Large(topology).preserves if len(topology.links) > LARGE and not topology.switches else lambda pi: preserves(topology, pi)
    return replace(topology, generators=tuple(pi for pi in distinct if pi != identity and keeps(pi)))


class _Large:
    """`preserves` for a topology of very many links and no switches: the same comparisons, in arrays made once."""

    def __init__(self, topology: Topology) -> None:
        import numpy as np

        self.np, self.ranks = np, topology.ranks
        links, limits = topology.links, topology.limits
        names: dict[Fraction, int] = {}
        keys = np.fromiter((id(k.bandwidth) for k in links), np.int64, len(links))  # few objects, shared by many links
        few, first, which = np.unique(keys, return_index=True, return_inverse=True)
        ids = {key: names.setdefault(links[i].bandwidth, len(names)) for key, i in zip(few.tolist(), first.tolist(), strict=True)}
        ids |= {id(m.bandwidth): names.setdefault(m.bandwidth, len(names)) for m in limits}
        self.width = np.array([ids[key] for key in few.tolist()], np.int64)[which]
        self.src = np.fromiter((k.src for k in links), np.int64, len(links))
        self.dst = np.fromiter((k.dst for k in links), np.int64, len(links))
        ends = self.src * self.ranks + self.dst
        self.order = np.argsort(ends, kind="stable")
        self.keys = ends[self.order]
        self.single = bool((np.diff(self.keys) > 0).all())
        self.limits = [(ids[id(m.bandwidth)], np.array(m.links, np.int64)) for m in limits]
        self.known = sorted((width, np.sort(members).tobytes()) for width, members in self.limits)

    def preserves(self, pi: Sequence[int]) -> bool:
        if not self.single or not is_permutation(pi, self.ranks):
            return False
        np, image = self.np, self.np.array(pi, self.np.int64)
        moved = image[self.src] * self.ranks + image[self.dst]
        at = np.minimum(np.searchsorted(self.keys, moved), len(self.keys) - 1)
        if (self.keys[at] != moved).any():
            return False
        target = self.order[at]
        if (self.width[target] != self.width).any():
            return False
        return sorted((width, np.sort(target[members]).tobytes()) for width, members in self.limits) == self.known


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
