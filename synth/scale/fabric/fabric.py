"""A topology of up to thousands of ranks as a capacitated directed graph, without a list of routes from rank to rank.

    Fabric   topology nodes src dst cap unit link limit hub flipped

Nodes are the ranks, then the topology's switches, then nodes of *gadgets*. A limit that is a port or a NIC becomes an
edge or a node, and a crossbar behind ports becomes one node. A gadget may admit pairs of ranks without a link, such as
out of a box and back into it. So the fabric is a relaxation, and its cuts bound the topology. The bounds also count
paths through switches that are not shortest and that no schedule takes. `Fabric.links_of` decides which paths schedules
may take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from synth.errors import SynthError
from synth.model.link_table import ends, widths
from synth.model.topology import Topology
from synth.scale.fabric.shortest_paths import ShortestPaths
from synth.solvers.max_flow import check_capacity_sum


@dataclass(frozen=True, eq=False)
class Fabric:
    """Edge e goes from `src[e]` to `dst[e]` and carries `cap[e]` units of `unit` GB/s; all arrays are int64.

    `link[e]` is the topology's link for edge e, or -1 for edges of gadgets. `limit[e]` is the limit for edge e, or -1,
    or -2 - i where e is as wide as the links ``sets[i]`` of its gadget together. `hub[n]` numbers the gadget of node n
    and is -1 for ranks and switches. `gadget_links[h]` are the links of gadget h. `tail` and `head` are the ends of the
    topology's links. `shortest` decides which paths through switches schedules may take (all where it is None). In a
    `flipped` fabric every edge has the opposite direction of its links. `inner_limits` is True where a link is in more
    than one limit on one side: the fabric then relaxes more than pairs of ranks.
    """

    topology: Topology
    nodes: int
    src: np.ndarray
    dst: np.ndarray
    cap: np.ndarray
    link: np.ndarray
    limit: np.ndarray
    hub: np.ndarray
    gadget_links: tuple[np.ndarray, ...]
    tail: np.ndarray
    head: np.ndarray
    unit: Fraction
    shortest: ShortestPaths | None
    flipped: bool = False
    sets: tuple[list[int], ...] = ()
    inner_limits: bool = False

    @property
    def name(self) -> str:
        """The name of the topology."""
        return self.topology.name

    @property
    def ranks(self) -> int:
        """The number of ranks, which are the first nodes."""
        return self.topology.ranks

    def reversed(self) -> Fabric:
        """Return the fabric with reversed edges, on which reduce-scatter and reduce are allgather and broadcast."""
        return replace(self, src=self.dst, dst=self.src, flipped=not self.flipped)

    @cached_property
    def leaving(self) -> list[list[int]]:
        """The edges out of each node."""
        edges: list[list[int]] = [[] for _ in range(self.nodes)]
        for e, node in enumerate(self.src.tolist()):
            edges[node].append(e)
        return edges

    @property
    def entering(self) -> list[list[int]]:
        """The edges into each node."""
        return self.reversed().leaving

    @cached_property
    def edge_order(self) -> np.ndarray:
        """The edges by their ends and capacities."""
        return self.order_of_edges(np.arange(self.nodes))

    def order_of_edges(self, permutation: np.ndarray) -> np.ndarray:
        """Return the edges by the images of their ends under a permutation of the nodes, and by their capacities."""
        return np.lexsort((self.cap, permutation[self.src] * self.nodes + permutation[self.dst]))

    def links_in_gadgets(self, permutation: np.ndarray) -> np.ndarray:
        """Return the ends and bandwidths of the images of the links in gadgets, in one integer each, sorted.

        Links outside gadgets are edges.
        """
        links = np.concatenate([np.zeros(0, np.int64), *self.gadget_links])
        if not len(links):
            return links
        names, which = widths(self.topology.links)
        ends = permutation[self.tail[links]] * self.nodes + permutation[self.head[links]]
        return np.sort(ends * len(names) + np.asarray(which)[links])

    def links_of(self, path: Sequence[int]) -> tuple[int, ...] | None:
        """Return the topology's links on a path of edges, in the order in which data takes them.

        None where the topology lacks a link on the path, or schedules may not take the path because a shorter one leads
        through switches.
        """
        path = tuple(path)
        if path not in self._known:
            self._known[path] = self._links(path)
        return self._known[path]

    @cached_property
    def _known(self) -> dict[tuple[int, ...], tuple[int, ...] | None]:
        """The links of the paths so far, as forests ask for the same ones many times."""
        return {}

    def _links(self, path: tuple[int, ...]) -> tuple[int, ...] | None:
        src, dst, link, hub = self._lists
        if len(path) == 1 and link[path[0]] >= 0 and hub[src[path[0]]] < 0 and hub[dst[path[0]]] < 0:
            return (link[path[0]],)
        path_links: list[int] = []
        start, inner, admissible = -1, -1, True
        for e in path:
            a, b = src[e], dst[e]
            if hub[a] < 0:
                start, inner = a, -1
            if link[e] >= 0:
                inner = link[e]
            if hub[b] < 0:
                if inner < 0:
                    inner = self._between(hub[a], start, b) if hub[a] >= 0 else -1
                if inner < 0 or not self._joins(inner, start, b):
                    admissible = False
                    break
                path_links.append(inner)
        if self.flipped:
            path_links.reverse()
        if admissible and len(path_links) > 1 and self.shortest is not None:
            admissible = self.shortest.allows(
                int(self.tail[path_links[0]]), int(self.head[path_links[-1]]), len(path_links)
            )
        return tuple(path_links) if admissible else None

    def _joins(self, link: int, start: int, end: int) -> bool:
        """Return True if the link has these ends, in the direction of this fabric's edges."""
        ends = self.tail[link], self.head[link]
        return ends == ((end, start) if self.flipped else (start, end))

    def _between(self, gadget: int, start: int, end: int) -> int:
        """Return a link of the gadget with these ends, or -1. Parallel links of a gadget are interchangeable."""
        keys, links = self._links_by_ends[gadget]
        tail, head = (end, start) if self.flipped else (start, end)
        key = tail * self.nodes + head
        at = int(np.searchsorted(keys, key))
        return int(links[at]) if at < len(keys) and keys[at] == key else -1

    @cached_property
    def _links_by_ends(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The links of each gadget by their ends: sorted keys, and the link of each."""
        rows = []
        for links in self.gadget_links:
            keys = self.tail[links] * self.nodes + self.head[links]
            order = np.argsort(keys, kind="stable")
            rows.append((keys[order], links[order]))
        return rows

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int], list[int]]:
        return self.src.tolist(), self.dst.tolist(), self.link.tolist(), self.hub.tolist()


def fabric(topology: Topology) -> Fabric:
    """Return the fabric of a topology.

    Raises SynthError for capacities whose whole multiples do not fit 64 bits, and where no link has any.
    """
    from synth.scale.fabric.port_gadgets import FabricBuilder

    links = topology.links
    if not links:
        raise SynthError(f"{topology.name} has no links")
    wide, which = widths(links)
    if not any(wide):
        raise SynthError(f"{topology.name}: no link has any bandwidth")
    unit = topology.unit_bandwidth()
    each = [int(width / unit) for width in wide]
    limits = [int(limit.bandwidth / unit) for limit in topology.limits]
    if min(each + limits) < 0:
        raise SynthError(f"{topology.name}: a bandwidth is negative; a link that is down has 0")
    total = sum(n * int(c) for n, c in zip(each, np.bincount(which), strict=True))
    check_capacity_sum(total + sum(limits), topology.name)
    cap = np.array(each, np.int64)[which]
    src, dst = ends(links)
    build = FabricBuilder(topology, topology.ranks + len(topology.switches), src, dst, cap, limits)
    rows, hub, gadget_links = build.run()
    keep = rows[:, 2] > 0
    rows = rows[keep]
    tail, head, width, link, limit = (np.ascontiguousarray(rows[:, i]) for i in range(5))
    return Fabric(
        topology,
        len(hub),
        tail,
        head,
        width,
        link,
        limit,
        hub,
        gadget_links,
        src,
        dst,
        unit,
        ShortestPaths(topology),
        sets=tuple(build.sets),
        inner_limits=bool(build.inner),
    )
