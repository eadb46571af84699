"""Check of rings: each is a Hamiltonian cycle, and together they stay within the capacity of every link and limit.

Reads the machine itself and shares no code with the ring search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.errors import VerificationError
from synth.model.link_table import ends, members, widths
from synth.model.topology import Network, Topology


def check(
    topology: Network | Topology, rings: Sequence[tuple[Sequence[int], int]], ring_links: Sequence[Sequence[int]]
) -> None:
    """Raise VerificationError unless the rings, each (ranks in their order, units), fit the links together.

    `ring_links[k][i]` is the link (of a Network or a Topology with switches: the route) from the i-th rank of ring k to
    the next.
    """
    src, dst, capacity, limits = _read(topology)
    if len(ring_links) != len(rings):
        raise VerificationError(f"{len(rings)} rings with the links of {len(ring_links)}")
    total = sum(int(units) for _, units in rings) * topology.ranks
    load = np.zeros(len(capacity), np.int64 if total < 1 << 62 else object)
    for k, ((order, units), numbers) in enumerate(zip(rings, ring_links, strict=True)):
        ranks, links = np.array(order, np.int64), np.array(numbers, np.int64)
        if units < 1 or not np.array_equal(np.sort(ranks), np.arange(topology.ranks)) or len(links) != len(ranks):
            raise VerificationError(f"ring {k} is not once round through all {topology.ranks} ranks")
        if ((links < 0) | (links >= len(capacity))).any():
            raise VerificationError(f"ring {k} uses a link that {topology.name} does not have")
        wrong = (src[links] != ranks) | (dst[links] != np.roll(ranks, -1))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise VerificationError(f"ring {k}: link {links[at]} does not lead from rank {ranks[at]} to the next one")
        np.add.at(load, links, units)
    over = [i for i in np.flatnonzero(load).tolist() if load[i] > capacity[i]]
    if over:
        raise VerificationError(f"rings use {load[over[0]]} units of link {over[0]}, which has {capacity[over[0]]}")
    for k, (links, units) in enumerate(limits):
        if load[links].sum() > units:
            raise VerificationError(f"rings use {load[links].sum()} units of limit {k}, which has {units}")


def _read(topology: Network | Topology) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple[np.ndarray, int]]]:
    """Return source, destination and capacity of each link, and each limit as (links, units)."""
    if isinstance(topology, Topology) and topology.switches:
        topology = topology.network()
    if isinstance(topology, Network):
        src = np.array([route.src for route in topology.routes], np.int64)
        dst = np.array([route.dst for route in topology.routes], np.int64)
        capacity = np.array([route.units for route in topology.routes], object)
        return src, dst, capacity, [(np.array(cap.routes, np.int64), cap.units) for cap in topology.caps]
    unit = topology.unit_bandwidth()
    distinct, index = widths(topology.links)
    capacity = np.array([int(width / unit) for width in distinct], object)[index]
    sets = zip(members(topology.limits), topology.limits, strict=True)
    return *ends(topology.links), capacity, [(links, int(limit.bandwidth / unit)) for links, limit in sets]
