"""Every cut of a small network without limits at once: exact broadcast and allgather rates, each with the cut that
limits it.

A broadcast from r runs at the least capacity that leaves a set holding r (Edmonds, "Edge-disjoint branchings", 1973);
an allgather at rate 1 / max |S| / capacity leaving S per rank's part (ForestColl, arXiv 2402.06787). Both maxima are
over 2^N sets, which for a box of up to `MOST` ranks is less work than one linear program.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.errors import SynthError
from synth.model.topology import Network

MOST = 16


@dataclass(frozen=True)
class Cut:
    """`value` (units of algorithmic bandwidth) cannot be exceeded: `side` is the set of ranks whose outgoing links say
    so."""

    value: Fraction
    side: tuple[int, ...]


def applies(network: Network) -> bool:
    """Whether the network is small enough, and nothing but its links limits it."""
    return 2 <= network.ranks <= MOST and not network.caps and sum(r.units for r in network.routes) < 1 << 62


def leaving(network: Network) -> np.ndarray:
    """`leaving[S]`: units of the routes that leave the set of ranks S, a bit mask. Raises SynthError where `applies` is
    false."""
    if not applies(network):
        raise SynthError(f"{network.name}: all cuts are listed for networks without limits of 2 to {MOST} ranks only")
    sets = np.arange(1 << network.ranks, dtype=np.int64)
    total = np.zeros(1 << network.ranks, dtype=np.int64)
    for route in network.routes:
        total += route.units * ((sets >> route.src & 1) & (1 - (sets >> route.dst & 1)))
    return total


def broadcast(network: Network, root: int) -> Cut:
    """The greatest rate of a broadcast from `root`, as buffer bytes over time in units of bandwidth."""
    total = leaving(network)
    sets = np.arange(len(total))
    held = np.flatnonzero((sets >> root & 1) & (sets != len(total) - 1))
    best = int(held[np.argmin(total[held])])
    return Cut(Fraction(int(total[best])), _members(best, network.ranks))


def allgather(network: Network) -> Cut:
    """The greatest rate of an allgather: gathered bytes over time, in units of bandwidth; 0 where the network is not
    connected."""
    total = leaving(network)[1:-1]
    sizes = np.array([int(s).bit_count() for s in range(1, len(total) + 1)], dtype=np.int64)
    if not total.all():
        at = int(np.argmin(total))
        return Cut(Fraction(0), _members(at + 1, network.ranks))
    # |S| / capacity compared exactly: equal floats may hide a difference only above 2^53, far beyond 16 ranks
    at = int(np.argmax(sizes / total))
    return Cut(Fraction(int(total[at]) * network.ranks, int(sizes[at])), _members(at + 1, network.ranks))


def _members(mask: int, ranks: int) -> tuple[int, ...]:
    return tuple(r for r in range(ranks) if mask >> r & 1)
