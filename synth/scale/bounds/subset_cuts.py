"""Exact broadcast and allgather rates of a small network without limits, by enumeration of all cuts.

The rate of a broadcast from r is the least capacity out of a set that contains r (Edmonds, "Edge-disjoint branchings",
1973). The rate of an allgather is the minimum of (capacity out of S) / |S|, per shard (ForestColl, arXiv 2402.06787).
Both range over 2^N sets. For up to `MOST` ranks this is less work than one linear program.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.errors import SynthError
from synth.model.topology import Network

# Limit on the ranks: 2^16 sets.
MAX_RANKS = 16


@dataclass(frozen=True)
class RateCut:
    """A rate and the cut that limits it: `value` in units of algorithmic bandwidth, `side` the ranks inside the cut."""

    value: Fraction
    side: tuple[int, ...]


def applies(network: Network) -> bool:
    """Return True if the network is small enough and has no limits besides its links."""
    return 2 <= network.ranks <= MAX_RANKS and not network.caps and sum(r.units for r in network.routes) < 1 << 62


def capacity_out_of_sets(network: Network) -> np.ndarray:
    """Return the units of the routes out of each set of ranks, indexed by its bit mask.

    Raises SynthError where `applies` is false.
    """
    if not applies(network):
        raise SynthError(
            f"{network.name}: all cuts are listed for networks without limits of 2 to {MAX_RANKS} ranks only"
        )
    sets = np.arange(1 << network.ranks, dtype=np.int64)
    total = np.zeros(1 << network.ranks, dtype=np.int64)
    for route in network.routes:
        total += route.units * ((sets >> route.src & 1) & (1 - (sets >> route.dst & 1)))
    return total


def broadcast(network: Network, root: int) -> RateCut:
    """Return the greatest rate of a broadcast from `root` (bytes of the buffer over time), and the cut that limits it.

    Raises SynthError where `applies` is false.
    """
    total = capacity_out_of_sets(network)
    sets = np.arange(len(total))
    candidates = np.flatnonzero((sets >> root & 1) & (sets != len(total) - 1))
    best = int(candidates[np.argmin(total[candidates])])
    return RateCut(Fraction(int(total[best])), _members(best, network.ranks))


def allgather(network: Network) -> RateCut:
    """Return the greatest rate of an allgather (gathered bytes over time), and the cut that limits it.

    It is 0 where the network is not connected. Raises SynthError where `applies` is false.
    """
    total = capacity_out_of_sets(network)[1:-1]
    sizes = np.array([int(s).bit_count() for s in range(1, len(total) + 1)], dtype=np.int64)
    if not total.all():
        at = int(np.argmin(total))
        return RateCut(Fraction(0), _members(at + 1, network.ranks))
    # The comparison is exact: quotients |S| / capacity that differ have equal floats only for capacities near 2^53, far
    # above those of 16 ranks.
    at = int(np.argmax(sizes / total))
    return RateCut(Fraction(int(total[at]) * network.ranks, int(sizes[at])), _members(at + 1, network.ranks))


def _members(mask: int, ranks: int) -> tuple[int, ...]:
    return tuple(r for r in range(ranks) if mask >> r & 1)
