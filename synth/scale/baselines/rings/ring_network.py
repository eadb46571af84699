"""The links of a machine of any size as arrays: what looks for rings works on, and the ring checker reads again by
itself.

    Roads   name ranks src dst units members room generators boxes

Made from a `Network`, whose routes it numbers alike, or straight from a `Topology` without switches, so that a million
links are never made into objects. Links that carry nothing, by themselves or by a limit, stay in their places with 0
units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from synth.model.link_table import ends, widths
from synth.model.topology import Network, Topology

# Capacities are cut off here, so that loads added up over all rings fit 64 bits; less than a link this wide never
# limits a claim.
WIDEST = 1 << 40


@dataclass(frozen=True, eq=False)
class Roads:
    """Link i goes from rank `src[i]` to rank `dst[i]` at `units[i]`; the links `members[k]` together carry `room[k]`
    units.

    A route through switches is in `members[k]` as often as it crosses links of that limit, and counts that often.
    `boxes[r]` is the box of rank r, empty where it is not known.
    """

    name: str
    ranks: int
    src: np.ndarray
    dst: np.ndarray
    units: np.ndarray
    members: tuple[np.ndarray, ...]
    room: np.ndarray
    generators: tuple[tuple[int, ...], ...] = ()
    boxes: tuple[int, ...] = ()

    @cached_property
    def order(self) -> np.ndarray:
        """The links in order of source and destination."""
        return np.argsort(self.src * self.ranks + self.dst, kind="stable")

    @cached_property
    def keys(self) -> np.ndarray:
        """source x ranks + destination of the links in `order`."""
        return (self.src * self.ranks + self.dst)[self.order]

    @cached_property
    def parallel(self) -> bool:
        """Whether some ranks are joined by several links the same way."""
        return bool((self.keys[1:] == self.keys[:-1]).any())

    def find(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """A link for each pair, -1 where there is none."""
        want = src * self.ranks + dst
        at = np.minimum(np.searchsorted(self.keys, want), max(len(self.keys) - 1, 0))
        if not len(self.keys):
            return np.full(len(want), -1)
        return np.where(self.keys[at] == want, self.order[at], -1)

    def share(self) -> np.ndarray:
        """Units of each link when all links of a limit are used alike."""
        share = self.units.astype(float)
        for links, room in zip(self.members, self.room.tolist(), strict=True):
            share[links] = np.minimum(share[links], self.units[links] * (room / self.units[links].sum()))
        return share

    def connected(self, least: int = 1) -> bool:
        """Whether links of `least` units and more lead from every rank to every other."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        wide = self.units >= least
        graph = coo_matrix((np.ones(int(wide.sum())), (self.src[wide], self.dst[wide])), shape=(self.ranks,) * 2)
        return connected_components(graph, directed=True, connection="strong")[0] == 1

    @cached_property
    def held(self) -> tuple[np.ndarray, np.ndarray]:
        """(link, limit): the links of the limits, one limit after the other."""
        return np.concatenate([*self.members, np.empty(0, np.int64)]), np.repeat(
            np.arange(len(self.members)), [len(m) for m in self.members]
        )

    @cached_property
    def counted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(link, limit, times): the links of the limits, one limit after the other, each once, and how often it counts
        there."""
        links, which = self.held
        size = max(len(self.src), 1)
        pair, times = np.unique(which * size + links, return_counts=True)
        return pair % size, pair // size, times

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """(first, limit): link i is in ``limit[first[i]:first[i + 1]]``."""
        links, which = self.held
        order = np.argsort(links, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(links, minlength=len(self.src)))])
        return first, which[order]


def of(machine: Network | Topology) -> Roads:
    """The links of either."""
    return of_network(machine) if isinstance(machine, Network) else of_topology(machine)


def of_network(network: Network) -> Roads:
    """The routes of a network, by their numbers, and its caps."""
    rows = np.array([(r.src, r.dst, min(r.units, WIDEST)) for r in network.routes], np.int64).reshape(-1, 3)
    return _made(
        network.name,
        network.ranks,
        list(rows.T),
        [cap.routes for cap in network.caps],
        [cap.units for cap in network.caps],
        network.generators,
        (),
    )


def of_topology(topology: Topology) -> Roads:
    """The links of a topology, by their numbers, and its limits; with switches its routes from rank to rank."""
    if topology.switches:
        return replace(of_network(topology.network()), boxes=topology.nodes)
    unit = topology.unit_bandwidth()
    wide, which = widths(topology.links)
    units = np.array([min(int(w / unit), WIDEST) for w in wide], np.int64)[which]
    rows = (*ends(topology.links), units)
    limits = topology.limits
    return _made(
        topology.name,
        topology.ranks,
        rows,
        [m.links for m in limits],
        [int(m.bandwidth / unit) for m in limits],
        topology.generators,
        topology.nodes,
    )


def _made(
    name: str, ranks: int, rows: Sequence[np.ndarray], sets: Sequence[Sequence[int]], room: Sequence[int],
    generators: tuple[tuple[int, ...], ...], boxes: tuple[int, ...],
) -> Roads:  # fmt: skip
    src, dst, units = (np.array(row, np.int64) for row in rows)
    members = [np.asarray(m, np.int64) for m in sets]
    for m, n in zip(members, room, strict=True):
        links, times = np.unique(m, return_counts=True)
        units[links] = np.minimum(units[links], n // times)
    kept = [
        k for k, n in enumerate(room) if n and units[members[k]].sum() > n
    ]  # else the links themselves are stricter
    least = np.array([min(room[k], WIDEST) for k in kept], np.int64)
    return Roads(name, ranks, src, dst, units, tuple(members[k] for k in kept), least, generators, boxes)
