"""Searches along the links of a machine: the greatest latency between ranks, and connected components."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from synth.model.topology import Topology


def latency(topology: Topology) -> Fraction:
    """The greatest latency, µs, of any way with the fewest links through switches: that of `Topology.network`, which
    lists them."""
    links: Any = topology.links
    if not topology.switches:
        sorts = links.sorts if hasattr(links, "sorts") else links  # a table of links names each latency once
        return max({id(k.latency): k.latency for k in sorts}.values(), default=Fraction(0))

    # Through switches: of parallel links the slowest counts, as `Topology.network` has them all.
    leaving: list[dict[int, Fraction]] = [{} for _ in range(topology.ranks + len(topology.switches))]
    for link in links:
        late = leaving[link.src].get(link.dst, Fraction(0))
        leaving[link.src][link.dst] = max(late, link.latency)
    most, seen = Fraction(0), set()
    for start in range(topology.ranks):
        if (alike := frozenset(leaving[start].items())) not in seen or min(leaving[start], default=0) < topology.ranks:
            seen.add(alike)  # ranks on the same switches see the same ways
            most = max(most, _farthest(leaving, topology.ranks, start))
    return most


def _farthest(leaving: list[dict[int, Fraction]], ranks: int, start: int) -> Fraction:
    """The greatest latency of the shortest ways that leave `start`, link by link; a way ends at the first rank."""
    most, reached, front = Fraction(0), {start}, {start: Fraction(0)}
    while front:
        further: dict[int, Fraction] = {}
        for node, late in front.items():
            for end, more in leaving[node].items():
                if end not in reached:
                    further[end] = max(further.get(end, Fraction(0)), late + more)
        reached |= further.keys()
        most = max([most, *(late for end, late in further.items() if end < ranks)])
        front = {end: late for end, late in further.items() if end >= ranks}
    return most


def components(ends: Iterable[int], pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return for each end the least end to which pairs join it, directly or through others (union-find)."""
    parent = {end: end for end in ends}

    def root(end: int) -> int:
        while parent[end] != end:
            parent[end] = parent[parent[end]]
            end = parent[end]
        return end

    # The least end of a component is its root.
    for a, b in pairs:
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return {end: root(end) for end in parent}
