"""The certified bound on the time of any program that computes a collective on a network, steps or none."""

from __future__ import annotations

import heapq
from fractions import Fraction

from synth import bounds
from synth.model.collective import Collective
from synth.model.topology import Network


def certified(network: Network, collective: Collective, size: int) -> Fraction:
    """No program that moves whole messages moves `size` bytes (nccl-tests') in fewer picoseconds.

    The greater of two. Bandwidth: the bound on R/C for any number of steps counts what must cross cuts of the network,
    and no cut lets more through by time t than its bandwidth times t, rounds or none; the last byte then takes at
    least the least α. Latency: the longest of the shortest ways, by α, from who has a unit to who wants it.
    Raises InfeasibleError where someone cannot be reached.
    """
    alphas = [route.latency * 10**6 for route in network.routes]
    nearest = [_distances(network, alphas, rank) for rank in range(network.ranks)]
    latency = Fraction(0)
    moves = False
    for unit, held in enumerate(collective.pre):
        for rank in collective.post[unit]:
            from_ = collective.wanted(unit, rank) if collective.combining else held
            if not from_ or (not collective.combining and rank in held):
                continue
            ways = [nearest[source].get(rank, Fraction(0)) for source in from_]
            latency = max(latency, max(ways) if collective.combining else min(ways))
            moves = moves or any(source != rank for source in from_)
    if not moves or size == 0:
        return Fraction(0)
    kind = bounds.allreduce if collective.name == "allreduce" else bounds.flow
    value = kind(network, collective, None).value
    return max(latency, value * size * collective.unit_share * 1000 / network.unit + min(alphas))


def _distances(network: Network, alphas: list[Fraction], start: int) -> dict[int, Fraction]:
    far: dict[int, Fraction] = {}
    heap = [(Fraction(0), start)]
    while heap:
        at, rank = heapq.heappop(heap)
        if rank in far:
            continue
        far[rank] = at
        for i in network.out[rank]:
            if network.routes[i].dst not in far:
                heapq.heappush(heap, (at + alphas[i], network.routes[i].dst))
    return far
