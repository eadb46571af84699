"""Capacity gadgets: ports, NICs and crossbars that represent limits on sets of links as edges and nodes of a fabric.

Links connected by common limits form a component with out-ports (limits at the sources of links) and in-ports (limits
at their destinations). If every out-port has a link to every in-port, except within groups such as a box, the component
becomes a crossbar: one node in the middle, and as many edges as ports instead of pairs of ports. Otherwise each link
becomes an edge between its two ports.

A limit of links that have a port on either side already, such as that of a PCIe switch behind the streams of single
GPUs, is *inner*: an edge behind the out-ports, through which these links pass. Links of several inner limits first pass
those with few sources and many destinations: out of a box, then into another.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from synth.model.link_table import members
from synth.model.topology import Topology
from synth.scale.fabric.graphs import components

# Limit on the pairs of ports that are compared in search of a crossbar: 64 MB.
MOST_PAIRS = 1 << 26


class FabricBuilder:
    """Construction of the edges of a fabric, as rows ``(src, dst, cap, link, limit)``.

    `ends` counts the ranks and switches of the topology. `src`, `dst` and `cap` are by link. `widths` holds the units
    of each limit. `out[i]` and `into[i]` are the limits at the source and at the destination of link i, or -1.
    """

    def __init__(
        self, topology: Topology, ends: int, src: np.ndarray, dst: np.ndarray, cap: np.ndarray, widths: list[int]
    ) -> None:
        self.topology, self.src, self.dst, self.cap, self.widths = topology, src, dst, cap, widths
        self.hub: list[int] = [-1] * ends
        self.gadget_links: list[np.ndarray] = []
        self.rows: list[np.ndarray] = []
        self.sets: list[list[int]] = []
        self.single: dict[int, int] = {}  # the rank of each limit whose links all start, or all end, at one rank
        self.inner: list[tuple[int, np.ndarray]] = []  # limits that are no port, and their links
        self.out, self.into = np.full(len(src), -1), np.full(len(src), -1)

    def run(self) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
        """Return the rows of all edges, the gadget of each node (-1 for ranks and switches), and the links of each
        gadget."""
        self._assign_sides()
        limited = (self.out >= 0) | (self.into >= 0)
        free = np.flatnonzero(~limited)
        self._add(self.src[free], self.dst[free], self.cap[free], free, -1)
        if limited.any():
            self._components(np.flatnonzero(limited))
        rows = self._with_inner_limits(np.concatenate(self.rows)) if self.inner else np.concatenate(self.rows)
        return rows, np.array(self.hub, np.int64), tuple(self.gadget_links)

    def _with_inner_limits(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows with an edge for each inner limit, from behind the ports of its links to these links."""
        of_link = np.full(len(self.src), -1)
        edges = np.flatnonzero(rows[:, 3] >= 0)
        of_link[rows[edges, 3]] = edges
        self.rows = [rows]
        for k, m in self.inner:
            gadget = len(self.gadget_links)
            self.gadget_links.append(np.zeros(0, np.int64))  # its links are those of the gadget of their ports
            outer, inner = self._node(gadget), self._node(gadget)
            tails = rows[of_link[m], 0]
            for tail in np.unique(tails).tolist():
                mine = m[tails == tail]
                self._add(tail, outer, int(self.cap[mine].sum()), -1, self._links(mine.tolist()))
            self._add(outer, inner, self.widths[k], -1, k)
            rows[of_link[m], 0] = inner
        return np.concatenate(self.rows)

    def _add(self, *columns: np.ndarray | int) -> None:
        """Add rows. The columns src, dst, cap, link and limit are arrays of the same length, or integers."""
        arrays = np.broadcast_arrays(*(np.asarray(column, np.int64) for column in columns))
        self.rows.append(np.stack(arrays, axis=-1).reshape(-1, 5))

    def _node(self, gadget: int) -> int:
        """Add a node of a gadget, and return it."""
        self.hub.append(gadget)
        return len(self.hub) - 1

    def _assign_sides(self) -> None:
        """Assign each binding limit to the sources or to the destinations of its links.

        Limits whose links share a rank stand at this rank. Any other limit stands on the side with fewer distinct
        ranks, if the side is free. A limit that finds no free side is an inner one.
        """
        # The narrowest binding limit on each set of links.
        narrowest: dict[bytes, tuple[int, np.ndarray]] = {}
        for k, listed in enumerate(members(self.topology.limits)):
            links = np.unique(listed)
            before, _ = narrowest.get(links.tobytes(), (None, links))
            binding = int(self.cap[links].sum()) > self.widths[k]
            if binding and (before is None or self.widths[k] < self.widths[before]):
                narrowest[links.tobytes()] = k, links
        limits = sorted(narrowest.values(), key=lambda limit: limit[0])

        for side, ends in ((self.out, self.src), (self.into, self.dst)):
            shared = [(k, m) for k, m in limits if k not in self.single and (ends[m] == ends[m[0]]).all()]
            self.single |= {k: int(ends[m[0]]) for k, m in shared}
            for k, m in sorted(shared, key=lambda limit: -len(limit[1])):
                self._claim(side, k, m)
        for k, m in limits:
            if k not in self.single:
                lean = self._lean(m)
                out_first = lean < 0 or (lean == 0 and (self.out[m] < 0).all())
                first, second = (self.out, self.into) if out_first else (self.into, self.out)
                self._claim(first if (first[m] < 0).all() else second, k, m)
        self.inner.sort(key=lambda limit: self._lean(limit[1]))

    def _lean(self, links: np.ndarray) -> int:
        """Return the number of sources of the links less that of their destinations."""
        return len(np.unique(self.src[links])) - len(np.unique(self.dst[links]))

    def _claim(self, side: np.ndarray, k: int, m: np.ndarray) -> None:
        """Assign limit k to the sender or receiver `side` of its links `m`. If one of them has another limit there, it
        is an inner limit."""
        if (side[m] < 0).all():
            side[m] = k
        else:
            self.inner.append((k, m))

    @cached_property
    def _passes_inner(self) -> np.ndarray:
        """True for each link of an inner limit."""
        passes = np.zeros(len(self.src), bool)
        for _, m in self.inner:
            passes[m] = True
        return passes

    def _components(self, limited: np.ndarray) -> None:
        """Add a gadget for each connected component of the `limited` links and their ports."""
        # A link without a limit on one side has a port of its own there, with number `most` + link.
        most, ports = len(self.widths), len(self.widths) + len(self.src)
        out, into = self.out[limited], self.into[limited]
        out, into = np.where(out >= 0, out, most + limited), np.where(into >= 0, into, most + limited)
        label = components(2 * ports, out, ports + into)[out]
        order = np.argsort(label, kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
            self._component(limited[here], out[here], into[here])

    def _component(self, links: np.ndarray, out: np.ndarray, into: np.ndarray) -> None:
        """Add the gadget of a component: `out` and `into` are the ports of its links."""
        gadget = len(self.gadget_links)
        self.gadget_links.append(links)
        outs, a = np.unique(out, return_inverse=True)
        ins, b = np.unique(into, return_inverse=True)
        if self._is_crossbar(links, outs, a, ins, b):
            middle = self._node(gadget)
            self._ports(gadget, links, outs, a, middle, True)
            self._ports(gadget, links, ins, b, middle, False)
            return
        first = self._port_nodes(gadget, links, outs, a, True)
        last = self._port_nodes(gadget, links, ins, b, False)
        self._add(first[a], last[b], self.cap[links], links, -1)

    def _width(self, ports: np.ndarray) -> np.ndarray:
        """Return the units of each port: those of its limit, or of the link whose own port it is."""
        units = np.empty(len(ports), np.int64)
        for i, port in enumerate(ports.tolist()):
            units[i] = self.widths[port] if port < len(self.widths) else self.cap[port - len(self.widths)]
        return units

    def _is_crossbar(self, links: np.ndarray, outs: np.ndarray, a: np.ndarray, ins: np.ndarray, b: np.ndarray) -> bool:
        """Return True if no link is narrower than both of its ports, and all ports are joined except within groups."""
        narrow = self.cap[links] < np.minimum(self._width(outs)[a], self._width(ins)[b])
        if self._passes_inner[links].any() or narrow.any() or len(outs) * len(ins) > MOST_PAIRS:
            return False
        joined = np.zeros((len(outs), len(ins)), bool)
        joined[a, b] = True
        missing = np.array(list({row.tobytes(): row for row in ~joined}.values()))
        return bool((missing.sum(axis=0) <= 1).all())

    def _ports(
        self, gadget: int, links: np.ndarray, ports: np.ndarray, which: np.ndarray, middle: int, leaving: bool
    ) -> None:
        """Add the edges between ranks and the node `middle`, through a node where several ranks share a port.

        `which` is the port of each link, as an index of `ports`.
        """
        ends = self.src if leaving else self.dst
        for i, (port, width) in enumerate(zip(ports.tolist(), self._width(ports).tolist(), strict=True)):
            limit = port if port < len(self.widths) else -1
            if limit in self.single or limit < 0:
                link = port - len(self.widths)
                if limit >= 0:
                    self._edge(self.single[limit], middle, width, limit, leaving)
                else:
                    self._edge(int(ends[link]), middle, width, self._links([link]), leaving)
                continue
            node = self._node(gadget)
            self._edge(node, middle, width, limit, leaving)
            self._join_ranks(links[which == i], node, leaving)

    def _port_nodes(
        self, gadget: int, links: np.ndarray, ports: np.ndarray, which: np.ndarray, leaving: bool
    ) -> np.ndarray:
        """Add a node behind the capacity of each port, and return these nodes.

        For a link's own port the result is the rank at this end of the link.
        """
        ends = self.src if leaving else self.dst
        nodes = []
        for i, (port, width) in enumerate(zip(ports.tolist(), self._width(ports).tolist(), strict=True)):
            if port >= len(self.widths):
                nodes.append(int(ends[port - len(self.widths)]))
                continue
            inner = self._node(gadget)
            nodes.append(inner)
            if port in self.single:
                self._edge(self.single[port], inner, width, port, leaving)
                continue
            outer = self._node(gadget)
            self._edge(outer, inner, width, port, leaving)
            self._join_ranks(links[which == i], outer, leaving)
        return np.array(nodes, np.int64)

    def _join_ranks(self, links: np.ndarray, node: int, leaving: bool) -> None:
        """Add an edge between each rank of a shared port and its node, as wide as the rank's links together."""
        ends = (self.src if leaving else self.dst)[links]
        for rank in np.unique(ends).tolist():
            mine = links[ends == rank]
            self._edge(rank, node, int(self.cap[mine].sum()), self._links(mine.tolist()), leaving)

    def _links(self, links: list[int]) -> int:
        """Return the entry -2 - i of `Fabric.limit` for an edge as wide as these links together, ``sets[i]``."""
        self.sets.append(links)
        return -1 - len(self.sets)

    def _edge(self, end: int, inner: int, width: int, limit: int, leaving: bool) -> None:
        self.rows.append(np.array([[*((end, inner) if leaving else (inner, end)), width, -1, limit]], np.int64))
