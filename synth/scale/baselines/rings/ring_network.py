"""Links of a machine as arrays, the rings that fit them, and the cut bound on these.

    RingNetwork   name ranks src dst units members capacity generators boxes
    Rings         rings proved_maximum links bound complete
    RingBound     units side leaving

A RingNetwork is made from a `Network`, with the numbers of its routes, or straight from a `Topology` without switches,
so that a million links never become objects. Links without capacity, by themselves or by a limit, keep their numbers
and have 0 units.
The ring checker (`synth.scale.baselines.rings.check`) reads the machine by itself.

Cut-set bound: all rings together carry at most what leaves, or enters, a set of ranks. The sets tried are the single
ranks, the boxes, the components of the links of at least a given width (a link in a limit counts with its share of it),
and on few ranks without limits all sets. What leaves a set is the sum over its links. A limit that is narrower than
those of its links that leave the set replaces them in the sum, each link counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from synth.model.link_table import ends, widths
from synth.model.topology import Network, Topology
from synth.scale.fabric.graphs import components

# Capacities, in units, are cut off here, so that loads added up over all rings fit 64 bits. Wider links never limit
# the rings that are searched for.
MAXIMUM_UNITS = 1 << 40

Ring = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class RingBoundSettings:
    """Sets of ranks that the cut bound tries.

    Attributes:
        all_sets_ranks: Ranks up to which all sets of ranks are tried (2^16 sets).
        maximum_limits: Pairs of a limit and a set in which the limit may replace its links, the narrowest first.
        maximum_widths: Widths of links for which components are tried.
    """

    all_sets_ranks: int = 16
    maximum_limits: int = 20_000
    maximum_widths: int = 8


SETTINGS = RingBoundSettings()


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


@dataclass(frozen=True)
class RingBound:
    """Rings carry at most `units` together: so much leaves the ranks `side`, or enters them if not `leaving`."""

    units: int
    side: tuple[int, ...]
    leaving: bool


def ring_cut_bound(network: RingNetwork) -> RingBound:
    """Return the least capacity of the cuts that are tried."""
    bounds = []
    share = network.share()
    widths = np.unique(np.round(share[share > 0], 6))
    partitions = [np.arange(network.ranks)]
    for width in widths[:: max(1, len(widths) // SETTINGS.maximum_widths)].tolist():
        wide = share > width * 0.999
        partitions.append(components(network.ranks, network.src[wide], network.dst[wide]))
    if len(network.boxes) == network.ranks:
        partitions.append(np.array(network.boxes))
    distinct = {label.tobytes(): label for label in map(_canonical, partitions)}
    for label in distinct.values():
        count = int(label.max()) + 1
        if count == 1:
            continue
        for leaving in (True, False):
            total = _capacities(network, label, count, leaving)
            least = int(np.argmin(total))
            bounds.append(RingBound(int(total[least]), tuple(np.flatnonzero(label == least).tolist()), leaving))
    if network.ranks <= SETTINGS.all_sets_ranks and not network.members:
        bounds.append(_least_cut_of_all(network))
    return min(bounds, key=lambda b: (b.units, len(b.side)))


def _canonical(label: np.ndarray) -> np.ndarray:
    """Renumber labels in the order of their first occurrence, so that equal partitions are equal arrays."""
    _, first, index = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[index]


def _capacities(network: RingNetwork, label: np.ndarray, count: int, leaving: bool) -> np.ndarray:
    """Units that leave (or enter) the set of ranks of each of `count` labels."""
    end, other = (network.src, network.dst) if leaving else (network.dst, network.src)
    crossing = (label[end] != label[other]) & (network.units > 0)
    label_of_link = label[end]
    total = np.bincount(label_of_link[crossing], network.units[crossing], count)
    if not network.members:
        return total
    link, limit, times = network.multiplicities
    keep = crossing[link]
    link, limit, times = link[keep], limit[keep], times[keep]
    # group the crossing links by pair (limit, label); a group may be replaced by the capacity of its limit
    pair = limit * count + label_of_link[link]
    if (pair[1:] < pair[:-1]).any():  # otherwise the links of each limit cross out of sets of one label
        order = np.argsort(pair, kind="stable")
        link, pair, times = link[order], pair[order], times[order]
    start = np.flatnonzero(np.r_[True, pair[1:] != pair[:-1]][: len(pair)])
    pairs = pair[start]
    units = np.add.reduceat(network.units[link], start) if len(start) else np.empty(0)
    fewest = np.minimum.reduceat(times, start) if len(start) else np.empty(0, np.int64)
    capacity = network.capacity[pairs // count] // fewest
    narrow = np.flatnonzero(units > capacity)
    narrow = narrow[
        np.argsort(-(units[narrow] / np.maximum(capacity[narrow], 1)), kind="stable")[: SETTINGS.maximum_limits]
    ]
    size = np.diff(np.append(start, len(link)))
    counted = np.zeros(len(network.src), bool)  # links that a limit has replaced already
    # Links that leave sets of different labels are different links, so one group of each label is handled at a time.
    for k in _one_per_label(pairs[narrow] % count):
        group = narrow[k]
        first = np.cumsum(size[group]) - size[group]
        members = link[np.arange(size[group].sum()) + np.repeat(start[group] - first, size[group])]
        uncounted = np.where(counted[members], 0, network.units[members])
        saving = np.add.reduceat(uncounted, first) - capacity[group]
        total[pairs[group] % count] -= np.maximum(saving, 0)
        counted[members] |= np.repeat(saving > 0, size[group])
    return total


def _one_per_label(label: np.ndarray) -> Iterator[np.ndarray]:
    """Indices of the first occurrence of each label, then of the second of each, and so on."""
    order = np.argsort(label, kind="stable")
    names, start, counts = np.unique(label[order], return_index=True, return_counts=True)
    for k in range(int(counts.max()) if len(names) else 0):
        yield order[start[counts > k] + k]


def _least_cut_of_all(network: RingNetwork) -> RingBound:
    """Least cut of all sets of ranks, which are bit masks."""
    sets = np.arange(1, (1 << network.ranks) - 1)
    total = np.zeros(len(sets), np.int64)
    for a, b, units in zip(network.src.tolist(), network.dst.tolist(), network.units.tolist(), strict=True):
        total += units * ((sets >> a & 1) & (1 - (sets >> b & 1)))
    least = int(np.argmin(total))
    side = tuple(r for r in range(network.ranks) if sets[least] >> r & 1)
    return RingBound(int(total[least]), side, True)


@dataclass(frozen=True)
class Rings:
    """Rings that fit the links together.

    `rings`: directed Hamiltonian cycles ((rank, rank, ..), units), checked link by link. `proved_maximum`: it is proved
    that no other rings carry more in all. `links[k][i]`: number of the link that ring k takes from its i-th rank.
    `bound`: a cut bound on the units of all rings together. `complete`: False where a time limit ended the search.
    """

    rings: tuple[Ring, ...]
    proved_maximum: bool
    links: tuple[tuple[int, ...], ...] = ()
    bound: RingBound | None = None
    complete: bool = True

    @property
    def units(self) -> int:
        """Units of all rings together."""
        return sum(units for _, units in self.rings)


def merged(rings: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> Rings:
    """Return rings given as (ranks, links, units), equal ones joined into one ring with the sum of their units."""
    units: Counter[tuple[int, ...]] = Counter()
    ranks: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order, links, width in rings:
        start = int(np.argmin(order))
        cycle = tuple(np.roll(links, -start).tolist())
        ranks[cycle] = tuple(np.roll(order, -start).tolist())
        units[cycle] += width
    cycles = sorted(units, key=lambda cycle: (ranks[cycle], cycle))
    return Rings(tuple((ranks[cycle], units[cycle]) for cycle in cycles), False, tuple(cycles))
