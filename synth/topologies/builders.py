"""Parts of topologies: links both ways, crossbars, limits of ports and NICs, permutations to declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.errors import UsageError
from synth.model.topology import Limit, Link, Topology

if TYPE_CHECKING:
    from synth.model.link_table import LinkTable

MAX_RANKS = 16384
MAX_LINKS = 1 << 20

Permutation = tuple[int, ...]


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
            # True if the widths add up to more than `bandwidth`.
            widths = (links[i].bandwidth for i in members)
            total = Fraction(0)
            if any((total := total + width) > bandwidth for width in widths):
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


def symmetric_group(members: Sequence[int], ranks: int) -> list[Permutation]:
    """Two generators of all permutations of `members`: the cycle through them and the exchange of the first two."""
    if len(members) < 2:
        return []
    cycle, swap = list(range(ranks)), list(range(ranks))
    for a, b in zip(members, [*members[1:], members[0]], strict=True):
        cycle[a] = b
    swap[members[0]], swap[members[1]] = members[1], members[0]
    return [tuple(cycle)] if len(members) == 2 else [tuple(cycle), tuple(swap)]
