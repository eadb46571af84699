"""Loads of phases on links and limits, exact, for all images under the machine's symmetries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from synth.model.link_table import ends, members, widths
from synth.model.topology import Topology
from synth.scale.composition.phases import Phase
from synth.scale.forests.pipelining import group_order, link_orbits


class LinkIndex:
    """Links of a topology without switches by their ends. `generators` of a free commuting group of automorphisms.

    Of parallel links between two ranks the widest counts. With `flipped` every link has the opposite direction.
    """

    def __init__(self, topology: Topology, generators: Sequence[np.ndarray] = (), *, flipped: bool = False) -> None:
        self.topology, self.generators, self.flipped = topology, tuple(generators), flipped
        src, dst = ends(topology.links)
        self.src, self.dst = (dst, src) if flipped else (src, dst)
        unit = topology.unit_bandwidth()
        wide, which = widths(topology.links)
        self.capacity = np.array([int(width / unit) for width in wide], np.int64)[which]
        keys = src * topology.ranks + dst
        self._order = np.lexsort((self.capacity, keys))
        self._keys = keys[self._order]

    @cached_property
    def orbit(self) -> np.ndarray:
        """The least link of each link's orbit."""
        return link_orbits(self.topology, self.generators)

    @cached_property
    def images(self) -> int:
        """The number of symmetries."""
        return group_order(self.topology, self.generators)

    def find(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Return the topology's link from each source to each destination in its own direction, -1 where there is
        none."""
        keys = src * self.topology.ranks + dst
        at = np.searchsorted(self._keys, keys, side="right") - 1
        links = self._order[at]
        return np.where((at >= 0) & (self._keys[at] == keys), links, -1)

    def joins(self, src: int, dst: int) -> bool:
        """Return True if a link leads from `src` to `dst`, or the opposite way where this index is flipped."""
        return self.width(src, dst) > 0

    def width(self, src: int, dst: int) -> int:
        """Return the units of the link from `src` to `dst`, 0 where there is none."""
        return self._width.get((src, dst), 0)

    @cached_property
    def orbit_of(self) -> dict[tuple[int, int], int]:
        """The orbit of the link between two ranks."""
        pairs = zip(self.src[self._order].tolist(), self.dst[self._order].tolist(), strict=True)
        return dict(zip(pairs, self.orbit[self._order].tolist(), strict=True))

    @cached_property
    def _width(self) -> dict[tuple[int, int], int]:
        pairs = zip(self.src[self._order].tolist(), self.dst[self._order].tolist(), strict=True)
        return dict(zip(pairs, self.capacity[self._order].tolist(), strict=True))


def phase_loads(links: LinkIndex, phases: Sequence[Phase]) -> tuple[np.ndarray, np.ndarray]:
    """Return ``loads[phase, resource]`` in chunks, and the capacity of each resource in chunks per round.

    Resources are orbits of links, and limits. Loads count one chunk of each block with all its images. Equal resources
    are counted once, and those that others dominate are left out.
    """
    sizes = np.bincount(links.orbit, minlength=len(links.orbit))
    rows = []
    for phase in phases:
        _, src, dst = np.array(phase.sends, np.int64).reshape(-1, 3).T
        count = np.bincount(links.orbit[links.find(src, dst)], minlength=len(sizes))
        rows.append(count * links.images // np.maximum(sizes, 1))
    table = np.array(rows, np.int64).reshape(len(phases), -1)
    unit = links.topology.unit_bandwidth()
    columns = [table[:, np.unique(links.orbit)]]
    capacities = [links.capacity[np.unique(links.orbit)]]
    whole = table[:, links.orbit]
    for limit, held in zip(links.topology.limits, members(links.topology.limits), strict=True):
        columns.append(whole[:, held].sum(axis=1)[:, None])
        capacities.append(np.array([int(limit.bandwidth / unit)]))
    return _undominated(np.concatenate(columns, axis=1), np.concatenate(capacities))


def _undominated(loads: np.ndarray, capacity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns that no other column's load per capacity dominates, each once."""
    used = loads.any(axis=0)
    table = np.concatenate([loads[:, used], capacity[None, used]])
    factor = np.gcd.reduce(table, axis=0) if table.shape[1] else np.ones(0, np.int64)
    table = np.unique(table // factor, axis=1)
    keep = []
    for k in range(table.shape[1]):
        # loads[i] / capacity[i] <= loads[j] / capacity[j], cross-multiplied
        below = table[:-1, k, None] * table[None, -1] <= table[:-1] * table[-1, k]
        equal = table[:-1, k, None] * table[None, -1] == table[:-1] * table[-1, k]
        strictly = below.all(axis=0) & ~equal.all(axis=0)
        if not strictly.any():
            keep.append(k)
    return table[:-1, keep], table[-1, keep]
