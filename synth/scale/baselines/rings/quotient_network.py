"""Quotient networks: what the ring search works on, a machine as it is or divided by a cyclic group of automorphisms.

A permutation of the ranks that is semiregular (all its cycles have one length B) makes a quotient of N / B nodes out of
N ranks: each node is one cycle, a rank is a node and a position in its cycle. An arc of the quotient stands for B
links, its images under the permutation, and has a *voltage*: the position, modulo B, that it leads to from position 0.
A Hamiltonian cycle of the quotient lifts to a ring through all N ranks if and only if its voltages add up to a number
coprime to B (voltage graphs: Gross and Tucker, "Topological Graph Theory", 1987). So rings of 1024 ranks are found on
the nodes of one box. Nothing rests on the lift being right: rings are lifted and checked link by link
(`synth.scale.baselines.rings.check`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from synth.scale.baselines.rings.ring_network import RingNetwork


@dataclass(frozen=True)
class QuotientSettings:
    """Sizes up to which quotient networks are searched.

    Attributes:
        all_arcs: Arcs up to which a quotient keeps all of them. Of more, those of small voltage are kept.
        maximum_arcs: Arcs above which a network is not searched at all.
        maximum_permutations: Permutations formed as products of the declared automorphisms.
        quotients_per_size: Quotients with equally many nodes that are searched.
        many_links: Links from which on one quotient of each size is searched, because each takes long.
    """

    all_arcs: int = 3_000
    maximum_arcs: int = 24_000
    maximum_permutations: int = 200
    quotients_per_size: int = 2
    many_links: int = 100_000


SETTINGS = QuotientSettings()


@dataclass(frozen=True, eq=False)
class QuotientNetwork:
    """Arc h leads from node `src[h]` to node `dst[h]` with `voltage[h]` modulo `order`.

    It takes `uses[h]`: (resource, times). `capacity[k]`: units of resource k. `link[h]`: the link that the arc is at
    position 0. `rank[node][position]`: the rank at that position of the node's cycle.
    """

    nodes: int
    order: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    voltage: tuple[int, ...]
    uses: tuple[tuple[tuple[int, int], ...], ...]
    capacity: tuple[int, ...]
    link: tuple[int, ...]
    rank: np.ndarray

    @cached_property
    def circulations(self) -> dict[tuple[int, int, int, int], tuple[int, list[int]]]:
        """Cache of `synth.scale.baselines.rings.factor_annealing.circulation`."""
        return {}

    @cached_property
    def narrowest(self) -> tuple[np.ndarray, np.ndarray]:
        """(resource, times) of each arc: the resource that the arc fits into least often, and the times it takes it."""
        rows = [min(uses, key=lambda use: self.capacity[use[0]] // use[1]) for uses in self.uses]
        k, times = np.array(rows, np.int64).reshape(-1, 2).T
        return k, times

    def lift(self, ring: Sequence[int]) -> np.ndarray:
        """Return the ranks of the ring that a closed walk of arcs lifts to, in their order."""
        node = np.array([self.src[h] for h in ring])
        before = np.concatenate([[0], np.cumsum([self.voltage[h] for h in ring])])
        position = (before[None, :-1] + before[-1] * np.arange(self.order)[:, None]) % self.order
        return self.rank[np.broadcast_to(node, position.shape), position].reshape(-1)


@dataclass(frozen=True, eq=False)
class _Semiregular:
    """A semiregular automorphism whose cycles have length `order`.

    `rank[node, position]` numbers its cycles and the ranks in them, `node` and `position` are the inverse, and
    `limits[k]` is (representative, orbit length) of limit k.
    """

    order: int
    rank: np.ndarray
    node: np.ndarray
    position: np.ndarray
    limits: Sequence[tuple[int, int]]


def trivial_quotient(network: RingNetwork) -> QuotientNetwork | None:
    """Return the network as a quotient by the trivial group; None where it has more links than a search takes."""
    links = np.flatnonzero(network.units)
    if (
        len(links) > SETTINGS.all_arcs and network.parallel
    ):  # keep one link of each pair of ranks, a different one for each pair
        order = network.order[np.isin(network.order, links)]
        pair = (network.src * network.ranks + network.dst)[order]
        _, start, count = np.unique(pair, return_index=True, return_counts=True)
        choice = (network.src[order[start]] + network.dst[order[start]]) % count
        links = np.sort(order[start + choice])
    if len(links) > SETTINGS.maximum_arcs:
        return None
    ranks = np.arange(network.ranks)
    limits = [(k, 1) for k in range(len(network.members))]
    trivial = _Semiregular(1, ranks[:, None], ranks, np.zeros(len(ranks), np.int64), limits)
    return _network_of_arcs(network, links, np.zeros(len(links), np.int64), trivial)


def quotients(network: RingNetwork) -> Iterator[QuotientNetwork]:
    """Quotients by the declared automorphisms and their products, fewest nodes first, a few of each size."""
    if network.parallel:  # it is not declared to which of several links between two ranks an automorphism leads
        return
    arc_counts: dict[int, set[int]] = {}
    maximum = SETTINGS.quotients_per_size if len(network.src) < SETTINGS.many_links else 1
    for order, permutation in _semiregular_permutations(network):
        known = arc_counts.setdefault(network.ranks // order, set())
        if len(known) < maximum:
            quotient = _quotient(network, permutation, order, known)
            if quotient is not None:
                known.add(len(quotient.src))
                yield quotient


def _semiregular_permutations(network: RingNetwork) -> list[tuple[int, np.ndarray]]:
    """(cycle length, permutation) of the semiregular products of the generators, the longest cycles first."""
    generators = [np.array(permutation, np.int64) for permutation in network.generators]
    products, known = list(generators), {permutation.tobytes() for permutation in generators}
    at = 0
    while at < len(products) and len(products) < SETTINGS.maximum_permutations:
        for permutation in generators:
            product = permutation[products[at]]
            if product.tobytes() not in known and len(products) < SETTINGS.maximum_permutations:
                known.add(product.tobytes())
                products.append(product)
        at += 1
    lengths = [_cycle_length(permutation) for permutation in products]
    order = sorted((k for k, length in enumerate(lengths) if length > 1), key=lambda k: (-lengths[k], k))
    return [(lengths[k], products[k]) for k in order]


def _cycle_length(permutation: np.ndarray) -> int:
    """Length of the cycles of a permutation where all are equally long, else 0."""
    order, at = 1, int(permutation[0])
    while at:
        at = int(permutation[at])
        order += 1
    identity = np.arange(len(permutation))
    if (_power(permutation, order) != identity).any():
        return 0
    # the cycle of rank 0 has length `order`; no maximal proper divisor of it may fix any rank
    for p in prime_divisors(order):
        if (_power(permutation, order // p) == identity).any():
            return 0
    return order


def prime_divisors(n: int) -> Iterator[int]:
    """The primes that divide n, in ascending order."""
    for p in range(2, n + 1):
        if n % p == 0 and all(p % q for q in range(2, p)):
            yield p


def _power(permutation: np.ndarray, n: int) -> np.ndarray:
    """The n-th power of a permutation."""
    power = np.arange(len(permutation))
    while n:
        power = permutation[power] if n & 1 else power
        permutation, n = permutation[permutation], n >> 1
    return power


def _quotient(network: RingNetwork, permutation: np.ndarray, order: int, known: set[int]) -> QuotientNetwork | None:
    """Return the quotient by a permutation whose cycles have length `order`.

    None where it is no automorphism, and where the number of arcs is too large or in `known`.
    """
    ranks = len(permutation)
    rank = np.empty((ranks // order, order), np.int64)
    unnumbered = np.ones(ranks, bool)
    for node in range(len(rank)):
        at = int(np.argmax(unnumbered))
        for p in range(order):
            rank[node, p] = at
            unnumbered[at] = False
            at = int(permutation[at])
    image = network.find(permutation[network.src], permutation[network.dst])
    if (image < 0).any() or (network.units[image] != network.units).any():
        return None
    limits = _limit_orbits(network, image)
    if limits is None:
        return None
    node, position = np.empty(ranks, np.int64), np.empty(ranks, np.int64)
    node[rank] = np.arange(len(rank))[:, None]
    position[rank] = np.arange(order)
    links = np.flatnonzero((position[network.src] == 0) & (network.units > 0))
    voltages = (position[network.dst[links]]) % order
    loops = node[network.src[links]] == node[network.dst[links]]
    useful = ~loops if len(rank) > 1 else loops  # a Hamiltonian cycle takes loops on a single node only
    links, voltages = links[useful], voltages[useful]
    if len(links) > SETTINGS.all_arcs:
        distance = np.minimum(voltages, order - voltages)
        maximum = max(2, SETTINGS.all_arcs // len(rank) ** 2 // 2)
        links, voltages = links[distance <= maximum], voltages[distance <= maximum]
    if len(links) > SETTINGS.maximum_arcs or len(links) in known:
        return None
    return _network_of_arcs(network, links, voltages, _Semiregular(order, rank, node, position, limits))


def _limit_orbits(network: RingNetwork, image: np.ndarray) -> list[tuple[int, int]] | None:
    """(least limit of the orbit, length of the orbit) of each limit; None where some limit has no image.

    `image[i]` is the link that link i is mapped to.
    """
    if not network.members:
        return []
    links = np.concatenate(network.members)
    start = np.cumsum([0, *(len(m) for m in network.members[:-1])])
    # A set of links is hashed by the sum of random marks. Sets that collide would be noticed when rings are checked.
    mark = np.random.default_rng(0).integers(1 << 62, size=len(network.src), dtype=np.uint64)
    before = np.add.reduceat(mark[links], start).tolist()
    after = np.add.reduceat(mark[image[links]], start).tolist()
    capacity = network.capacity.tolist()
    numbers = {key: k for k, key in enumerate(zip(before, capacity, strict=True))}
    images = [numbers.get(key) for key in zip(after, capacity, strict=True)]
    orbits: list[tuple[int, int] | None] = [None] * len(images)
    for k in range(len(images)):
        if orbits[k] is None:
            orbit, at = [k], images[k]
            while at is not None and at != k and len(orbit) <= len(images):
                orbit.append(at)
                at = images[at]
            if at != k:
                return None
            for member in orbit:
                orbits[member] = (k, len(orbit))
    return [pair for pair in orbits if pair is not None]


def _network_of_arcs(
    network: RingNetwork, links: np.ndarray, voltages: np.ndarray, symmetry: _Semiregular
) -> QuotientNetwork:
    """Return the quotient network with one arc for each of `links`.

    An arc takes the representative of each limit that its link is in, (order / orbit length) times, because so many of
    its images are in that limit. It takes a resource of its own where no limit is as narrow as the link.
    """
    first, limits_of = network.limits
    capacity: list[int] = []
    resource_of: dict[int, int] = {}
    uses = []
    for link in links.tolist():
        times_of: dict[int, int] = {}
        units = int(network.units[link])
        for k in limits_of[first[link] : first[link + 1]].tolist():
            representative, length = symmetry.limits[k]
            if representative not in resource_of:
                resource_of[representative] = len(capacity)
                capacity.append(int(network.capacity[representative]))
            resource = resource_of[representative]
            times_of[resource] = times_of.get(resource, 0) + symmetry.order // length
        if not any(capacity[k] // times <= units for k, times in times_of.items()):
            times_of[len(capacity)] = 1
            capacity.append(units)
        uses.append(tuple(times_of.items()))
    return QuotientNetwork(
        nodes=len(symmetry.rank),
        order=symmetry.order,
        src=tuple(symmetry.node[network.src[links]].tolist()),
        dst=tuple(symmetry.node[network.dst[links]].tolist()),
        voltage=tuple(voltages.tolist()),
        uses=tuple(uses),
        capacity=tuple(capacity),
        link=tuple(links.tolist()),
        rank=symmetry.rank,
    )
