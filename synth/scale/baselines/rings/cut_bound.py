"""No rings carry more together than what leaves, or enters, a set of ranks: a short proof that no more rings fit.

Looked at are the ranks one by one, the boxes, what hangs together by links of each width or wider (of a limit, a link
has its share), and on few ranks without limits all sets. What leaves a set is added up over its links; a limit that is
narrower than those of its links that leave the set stands in for them, each link counted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from synth.scale.baselines.rings.ring_network import Roads

# Ranks up to which all sets are looked at, and limits that stand in for links of one kind of sets.
ALL_SETS = 16
MOST_LIMITS = 20_000
# Widths of links whose components are looked at.
MOST_WIDTHS = 8


@dataclass(frozen=True)
class RingBound:
    """Rings carry at most `units` together: that much leaves the ranks `side`, or enters them if not `leaving`."""

    units: int
    side: tuple[int, ...]
    leaving: bool


def bound(roads: Roads) -> RingBound:
    """The least of what leaves or enters the sets looked at."""
    found = []
    share = roads.share()
    wide = np.unique(np.round(share[share > 0], 6))
    labels = [np.arange(roads.ranks)]
    labels += [
        _components(roads, share > width * 0.999) for width in wide[:: max(1, len(wide) // MOST_WIDTHS)].tolist()
    ]
    if len(roads.boxes) == roads.ranks:
        labels.append(np.array(roads.boxes))
    for label in {label.tobytes(): label for label in map(_numbered, labels)}.values():
        count = int(label.max()) + 1
        if count == 1:
            continue
        for leaving in (True, False):
            total = _across(roads, label, count, leaving)
            least = int(np.argmin(total))
            found.append(RingBound(int(total[least]), tuple(np.flatnonzero(label == least).tolist()), leaving))
    if roads.ranks <= ALL_SETS and not roads.members:
        found.append(_every(roads))
    return min(found, key=lambda b: (b.units, len(b.side)))


def _numbered(label: np.ndarray) -> np.ndarray:
    """The labels in the order in which they come first, so that equal partitions are equal arrays."""
    _, first, which = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]


def _components(roads: Roads, keep: np.ndarray) -> np.ndarray:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    src, dst = roads.src[keep], roads.dst[keep]
    return connected_components(coo_matrix((np.ones(len(src)), (src, dst)), shape=(roads.ranks,) * 2), directed=False)[
        1
    ]


def _across(roads: Roads, label: np.ndarray, count: int, leaving: bool) -> np.ndarray:
    """For each label what leaves (enters) the ranks that have it."""
    end, other = (roads.src, roads.dst) if leaving else (roads.dst, roads.src)
    crossing = (label[end] != label[other]) & (roads.units > 0)
    whose = label[end]
    total = np.bincount(whose[crossing], roads.units[crossing], count)
    if not roads.members:
        return total
    link, which, times = roads.counted
    keep = crossing[link]
    link, which, times = link[keep], which[keep], times[keep]
    pair = which * count + whose[link]
    if (pair[1:] < pair[:-1]).any():  # else each limit is of ranks with one label
        order = np.argsort(pair, kind="stable")
        link, pair, times = link[order], pair[order], times[order]
    start = np.flatnonzero(np.r_[True, pair[1:] != pair[:-1]][: len(pair)])
    pairs = pair[start]
    much = np.add.reduceat(roads.units[link], start) if len(start) else np.empty(0)
    fewest = np.minimum.reduceat(times, start) if len(start) else np.empty(0, np.int64)
    room = roads.room[pairs // count] // fewest
    narrow = np.flatnonzero(much > room)
    narrow = narrow[np.argsort(-(much[narrow] / np.maximum(room[narrow], 1)), kind="stable")[:MOST_LIMITS]]
    size = np.diff(np.append(start, len(link)))
    counted = np.zeros(len(roads.src), bool)
    for k in _rounds(pairs[narrow] % count):  # links that leave sets of different labels are different ones
        these = narrow[k]
        first = np.cumsum(size[these]) - size[these]
        mine = link[np.arange(size[these].sum()) + np.repeat(start[these] - first, size[these])]
        less = np.add.reduceat(np.where(counted[mine], 0, roads.units[mine]), first) - room[these]
        total[pairs[these] % count] -= np.maximum(less, 0)
        counted[mine] |= np.repeat(less > 0, size[these])
    return total


def _rounds(label: np.ndarray) -> Iterator[np.ndarray]:
    """The places of the first of each label, then of the second of each, and so on."""
    order = np.argsort(label, kind="stable")
    names, start, many = np.unique(label[order], return_index=True, return_counts=True)
    for turn in range(int(many.max()) if len(names) else 0):
        yield order[start[many > turn] + turn]


def _every(roads: Roads) -> RingBound:
    """The least cut of all: sets are bit masks."""
    sets = np.arange(1, (1 << roads.ranks) - 1)
    total = np.zeros(len(sets), np.int64)
    for a, b, units in zip(roads.src.tolist(), roads.dst.tolist(), roads.units.tolist(), strict=True):
        total += units * ((sets >> a & 1) & (1 - (sets >> b & 1)))
    least = int(np.argmin(total))
    return RingBound(int(total[least]), tuple(r for r in range(roads.ranks) if sets[least] >> r & 1), True)
