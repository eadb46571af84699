"""Cut-set bound of rings: all rings together carry at most what leaves, or enters, a set of ranks.

The sets tried are the single ranks, the boxes, the components of the links of at least a given width (a link in a limit
counts with its share of it), and on few ranks without limits all sets. What leaves a set is the sum over its links. A
limit that is narrower than those of its links that leave the set replaces them in the sum, each link counted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from synth.scale.baselines.rings.ring_network import RingNetwork
from synth.scale.fabric.graphs import components

# Ranks up to which all sets of ranks are tried (2^16 sets).
ALL_SETS_RANKS = 16
# Pairs of a limit and a set in which the limit may replace its links, the narrowest first.
MAXIMUM_LIMITS = 20_000
# Widths of links for which components are tried.
MAXIMUM_WIDTHS = 8


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
    for width in widths[:: max(1, len(widths) // MAXIMUM_WIDTHS)].tolist():
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
    if network.ranks <= ALL_SETS_RANKS and not network.members:
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
    narrow = narrow[np.argsort(-(units[narrow] / np.maximum(capacity[narrow], 1)), kind="stable")[:MAXIMUM_LIMITS]]
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
