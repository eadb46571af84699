"""The certified lower bound on the time of any program for a collective on a network, with steps or without."""

from __future__ import annotations

import heapq
from fractions import Fraction

from synth import bounds
from synth.model.collective import Collective
from synth.model.topology import Network


def certified_time_bound(network: Network, collective: Collective, size: int) -> Fraction:
    """Return the picoseconds that every program which moves whole messages takes for `size` bytes (nccl-tests' size).

    It is the greater of two bounds. Bandwidth: the bound on R/C for any number of steps counts the data that must cross
    cuts of the network, and no cut carries more by time t than its bandwidth times t, whether or not a program has
    rounds; the last byte then takes at least the smallest α. Latency: the longest of the shortest paths, by α, from a
    rank that has a unit of data to a rank that wants it. Raises InfeasibleError where a rank cannot be reached.
    """
    alphas = [route.latency * 10**6 for route in network.routes]
    nearest = [_distances(network, alphas, rank) for rank in range(network.ranks)]
    latency = Fraction(0)
    moves = False
    for unit, holders in enumerate(collective.pre):
        for rank in collective.post[unit]:
            sources = collective.wanted(unit, rank) if collective.combining else holders
            if not sources or (not collective.combining and rank in holders):
                continue
            lengths = [nearest[source].get(rank, Fraction(0)) for source in sources]
            # a sum needs every contribution; a copy may come from the nearest rank that has it
            latency = max(latency, max(lengths) if collective.combining else min(lengths))
            moves = moves or any(source != rank for source in sources)
    if not moves or size == 0:
        return Fraction(0)
    bound = bounds.combining if collective.name == "allreduce" else bounds.flow
    value = bound(network, collective, None).value
    return max(latency, value * size * collective.unit_share * 1000 / network.unit + min(alphas))


def _distances(network: Network, alphas: list[Fraction], start: int) -> dict[int, Fraction]:
    """Shortest-path distances in ps of α from `start` to every rank that it reaches."""
    distances: dict[int, Fraction] = {}
    heap = [(Fraction(0), start)]
    while heap:
        distance, rank = heapq.heappop(heap)
        if rank in distances:
            continue
        distances[rank] = distance
        for i in network.out[rank]:
            if network.routes[i].dst not in distances:
                heapq.heappush(heap, (distance + alphas[i], network.routes[i].dst))
    return distances
