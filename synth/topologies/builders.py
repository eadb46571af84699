"""Parts of topologies: links both ways, crossbars, limits of ports and NICs, permutations to declare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from synth.errors import UsageError
from synth.model.topology import Limit, Link, Topology

if TYPE_CHECKING:
    import numpy as np

    from synth.model.link_table import LinkTable


MAX_RANKS = 16384
MAX_LINKS = 1 << 20


@dataclass(frozen=True)
class Nic:
    """Network cards of a box: `bandwidth` in GB/s each way per NIC, `latency` in µs, `count` a box (0: one a rank)."""

    bandwidth: Fraction
    latency: Fraction
    count: int = 0


@dataclass(frozen=True)
class TopologyBuilder:
    """A line of `synth list topologies`. `build(sizes, options)` makes the topology; `sizes` shows their form."""

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
LARGE = 6_000


def duplex(edges: Iterable[tuple[int, int]], bandwidth: Fraction, latency: Fraction, kind: str) -> tuple[Link, ...]:
    """Return two links, one each way, for each edge."""
    return tuple(Link(u, v, bandwidth, latency, kind) for a, b in edges for u, v in ((a, b), (b, a)))


def crossbar(
    ranks: int, bandwidth: Fraction, latency: Fraction, kind: str
) -> tuple[tuple[Link, ...], tuple[Limit, ...]]:
    """One non-blocking switch: every pair is a link, all that a rank sends, and all it receives, shares `bandwidth`."""
    links = tuple(Link(u, v, bandwidth, latency, kind) for u in range(ranks) for v in range(ranks) if u != v)
    return links, tuple(port_limits(links, [(n,) for n in range(ranks)], bandwidth, "switch port"))


def port_limits(
    links: Sequence[Link], groups: Sequence[Sequence[int]], bandwidth: Fraction, what: str, start: int = 0
) -> list[Limit]:
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
            # Stops at the first partial sum that is more than `bandwidth`.
            sums = accumulate(links[i].bandwidth for i in members)
            if any(total > bandwidth for total in sums):
                limits.append(Limit(f"{what} {g} {way}", tuple(members), bandwidth))
    return limits


def table_limits(
    table: LinkTable, ranks: int, share: int, bandwidth: Fraction, what: str, start: int = 0
) -> list[Limit]:
    """Return `port_limits` for a table of links and groups of `share` consecutive ranks."""
    import numpy as np

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
                limits.append(Limit(f"{what} {g} {way}", (members + start).tolist(), bandwidth))
    return limits


# Declared symmetries, and the check of them: a declared generator is a claim.
#
# `preserves` decides it in time linear in the links, so a wrong one is dropped, not believed.


def is_permutation(pi: Sequence[int], ranks: int) -> bool:
    """True if `pi` lists each of 0..ranks-1 once."""
    return len(pi) == ranks and set(pi) == set(range(ranks))


def preserves(topology: Topology, pi: Sequence[int]) -> bool:
    """True if the rank permutation `pi` maps links to links of equal bandwidth and limits to equal limits.

    Explicit switches follow their neighbours: any images that make the links agree will do. The answer may be False for
    an automorphism where switches look alike yet are connected differently. It is never True for another permutation.
    """
    if not is_permutation(pi, topology.ranks):
        return False
    image = [*pi, *_switch_images(topology, pi)] if topology.switches else pi
    here = [(link.src, link.dst) for link in topology.links]
    there = [(image[src], image[dst]) for src, dst in here]
    width = {ends: link.bandwidth for ends, link in zip(here, topology.links, strict=True)}
    if any(width.get(ends) != link.bandwidth for ends, link in zip(there, topology.links, strict=True)):
        return False

    # Each limit as its bandwidth and the ends of its links, before and after.
    before, after = [], []
    for limit in topology.limits:
        before.append((limit.bandwidth, sorted(here[i] for i in limit.links)))
        after.append((limit.bandwidth, sorted(there[i] for i in limit.links)))
    return sorted(before) == sorted(after)


def with_generators(topology: Topology, candidates: Iterable[Sequence[int]]) -> Topology:
    """`topology` with those of the candidates that are automorphisms of it declared; the identity and repeats are
    dropped."""
    identity = tuple(range(topology.ranks))
    distinct = {tuple(pi): None for pi in candidates}
    large = len(topology.links) > LARGE and not topology.switches
    keeps = _array_test(topology) if large else partial(preserves, topology)
    return replace(topology, generators=tuple(pi for pi in distinct if pi != identity and keeps(pi)))


def _array_test(topology: Topology) -> Callable[[Sequence[int]], bool]:
    """Return `preserves` of a topology of very many links and no switches: the same comparisons, in arrays."""
    import numpy as np

    from synth.model.link_table import ends, members, widths

    ranks, (src, dst), width = topology.ranks, ends(topology.links), widths(topology.links)[1]
    keys = src * ranks + dst
    order = np.argsort(keys, kind="stable")
    known = keys[order]
    single = bool((np.diff(known) > 0).all())
    held, bandwidth = members(topology.limits), widths(topology.limits)[1].tolist()
    sizes = np.array([len(links) for links in held], np.int64)
    flat = np.concatenate([np.zeros(0, np.int64), *held])
    owner = np.repeat(np.arange(len(held)), sizes) * len(keys)

    def limits(links: np.ndarray) -> Counter[tuple[int, bytes]]:
        # Each limit as its bandwidth and its links in ascending order, of which `links` are those of all limits.
        rows = np.split(np.sort(owner + links) - owner, np.cumsum(sizes)[:-1])
        return Counter((bandwidth[k], row.tobytes()) for k, row in enumerate(rows[: len(held)]))

    before = limits(flat)

    def keeps(pi: Sequence[int]) -> bool:
        if not single or not is_permutation(pi, ranks):
            return False
        image = np.array(pi, np.int64)
        moved = image[src] * ranks + image[dst]
        at = np.minimum(np.searchsorted(known, moved), len(known) - 1)
        target = order[at]
        return bool((known[at] == moved).all() and (width[target] == width).all()) and limits(target[flat]) == before

    return keeps


def _switch_images(topology: Topology, pi: Sequence[int]) -> list[int]:
    """Where each switch goes when the ranks move by `pi`: colour refinement of the graph and of its image side by
    side."""
    ranks, ends = topology.ranks, topology.ranks + len(topology.switches)
    near: list[list[tuple[bool, Fraction, int]]] = [[] for _ in range(ends)]
    for link in topology.links:
        near[link.src].append((True, link.bandwidth, link.dst))
        near[link.dst].append((False, link.bandwidth, link.src))
    before = [*pi, *[ranks] * len(topology.switches)]
    after = [*range(ranks), *[ranks] * len(topology.switches)]
    known = 0
    while len(set(after[ranks:])) > known:
        known = len(set(after[ranks:]))
        names: dict[tuple, int] = {}
        before, after = _refined(before, near, ranks, names), _refined(after, near, ranks, names)
    # Switches of one colour are exchanged in their order.
    places: dict[int, list[int]] = {}
    for i in range(ends - 1, ranks - 1, -1):
        places.setdefault(after[i], []).append(i)
    images = []
    for colour in before[ranks:]:
        images.append(places[colour].pop() if places.get(colour) else ends)
    return images


def _refined(
    colours: list[int], near: list[list[tuple[bool, Fraction, int]]], ranks: int, names: dict[tuple, int]
) -> list[int]:
    fresh = colours[:ranks]
    for i in range(ranks, len(colours)):
        key = (colours[i], tuple(sorted((out, width, colours[end]) for out, width, end in near[i])))
        fresh.append(ranks + names.setdefault(key, len(names)))
    return fresh
