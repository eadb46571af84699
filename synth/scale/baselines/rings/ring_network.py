"""Links of a machine as arrays, for the ring search, the ring bound and the double binary trees.

    RingNetwork   name ranks src dst units members capacity generators boxes

Made from a `Network`, with the numbers of its routes, or straight from a `Topology` without switches, so that a million
links never become objects. Links without capacity, by themselves or by a limit, keep their numbers and have 0 units.
The ring checker (`synth.scale.baselines.rings.check`) reads the machine by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from synth.model.link_table import ends, widths
from synth.model.topology import Network, Topology
from synth.scale.fabric.graphs import components

# Capacities, in units, are cut off here, so that loads added up over all rings fit 64 bits. Wider links never limit
# the rings that are searched for.
MAXIMUM_UNITS = 1 << 40


@dataclass(frozen=True, eq=False)
class RingNetwork:
    """Link i goes from rank `src[i]` to rank `dst[i]` with a capacity of `units[i]`.

    The links `members[k]` together carry at most `capacity[k]` units (limit k). A route through switches is in
    `members[k]` as often as it crosses links of that limit, and counts that often. `generators` are automorphisms, as
    permutations of the ranks. `boxes[r]` is the box of rank r; empty where boxes are not known.
    """

    name: str
    ranks: int
    src: np.ndarray
    dst: np.ndarray
    units: np.ndarray
    members: tuple[np.ndarray, ...]
    capacity: np.ndarray
    generators: tuple[tuple[int, ...], ...] = ()
    boxes: tuple[int, ...] = ()

    @cached_property
    def order(self) -> np.ndarray:
        """Link numbers sorted by source, then destination."""
        return np.argsort(self.src * self.ranks + self.dst, kind="stable")

    @cached_property
    def keys(self) -> np.ndarray:
        """Sort key (source x ranks + destination) of each link of `order`."""
        return (self.src * self.ranks + self.dst)[self.order]

    @cached_property
    def parallel(self) -> bool:
        """True where several links lead from one rank to the same other rank."""
        return bool((self.keys[1:] == self.keys[:-1]).any())

    def find(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return a link for each pair of ranks, -1 where there is none."""
        pairs = src * self.ranks + dst
        at = np.minimum(np.searchsorted(self.keys, pairs), max(len(self.keys) - 1, 0))
        if not len(self.keys):
            return np.full(len(pairs), -1)
        return np.where(self.keys[at] == pairs, self.order[at], -1)

    def share(self) -> np.ndarray:
        """Units of each link when all links of a limit are used in proportion to their capacities."""
        share = self.units.astype(float)
        for links, capacity in zip(self.members, self.capacity.tolist(), strict=True):
            share[links] = np.minimum(share[links], self.units[links] * (capacity / self.units[links].sum()))
        return share

    def connected(self, units: int = 1) -> bool:
        """True where links of at least `units` units lead from every rank to every other."""
        wide = self.units >= units
        return not components(self.ranks, self.src[wide], self.dst[wide], strong=True).any()

    @cached_property
    def memberships(self) -> tuple[np.ndarray, np.ndarray]:
        """(link, limit): the members of limit 0, then those of limit 1, and so on."""
        sizes = [len(links) for links in self.members]
        links = np.concatenate([*self.members, np.empty(0, np.int64)])
        return links, np.repeat(np.arange(len(self.members)), sizes)

    @cached_property
    def multiplicities(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(link, limit, times): each member of each limit once, limit by limit, with the times that it counts there."""
        links, limits = self.memberships
        size = max(len(self.src), 1)
        pair, times = np.unique(limits * size + links, return_counts=True)
        return pair % size, pair // size, times

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """(first, limit): link i is in the limits ``limit[first[i]:first[i + 1]]``."""
        links, limits = self.memberships
        order = np.argsort(links, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(links, minlength=len(self.src)))])
        return first, limits[order]


def of_machine(topology: Network | Topology) -> RingNetwork:
    """Return the links of a network or a topology as arrays."""
    return of_network(topology) if isinstance(topology, Network) else of_topology(topology)


def of_network(network: Network) -> RingNetwork:
    """Return the routes of a network, with their numbers, and its caps as limits."""
    rows = np.array([(r.src, r.dst, min(r.units, MAXIMUM_UNITS)) for r in network.routes], np.int64).reshape(-1, 3)
    src, dst, units = rows.T.copy()
    none = np.empty(0, np.int64)
    return _build(
        RingNetwork(network.name, network.ranks, src, dst, units, (), none, network.generators),
        [cap.routes for cap in network.caps],
        [cap.units for cap in network.caps],
    )


def of_topology(topology: Topology) -> RingNetwork:
    """Return the links of a topology, with their numbers, and its limits; with switches, the routes between ranks."""
    if topology.switches:
        return replace(of_network(topology.network()), boxes=topology.nodes)
    unit = topology.unit_bandwidth()
    distinct, index = widths(topology.links)
    units = np.array([min(int(width / unit), MAXIMUM_UNITS) for width in distinct], np.int64)[index]
    src, dst = (np.array(row, np.int64) for row in ends(topology.links))
    none = np.empty(0, np.int64)
    return _build(
        RingNetwork(topology.name, topology.ranks, src, dst, units, (), none, topology.generators, topology.nodes),
        [limit.links for limit in topology.limits],
        [int(limit.bandwidth / unit) for limit in topology.limits],
    )


def _build(links: RingNetwork, sets: Sequence[Sequence[int]], capacities: Sequence[int]) -> RingNetwork:
    """Add limits to `links`: the links `sets[k]` together carry `capacities[k]` units.

    No link keeps more units than a limit lets through it alone. Limits that their links alone satisfy are left out.
    """
    units = links.units.copy()
    members = [np.asarray(numbers, np.int64) for numbers in sets]
    for numbers, capacity in zip(members, capacities, strict=True):
        distinct, times = np.unique(numbers, return_counts=True)
        units[distinct] = np.minimum(units[distinct], capacity // times)
    binding = [k for k, capacity in enumerate(capacities) if capacity and units[members[k]].sum() > capacity]
    capacity = np.array([min(capacities[k], MAXIMUM_UNITS) for k in binding], np.int64)
    return replace(links, units=units, members=tuple(members[k] for k in binding), capacity=capacity)
