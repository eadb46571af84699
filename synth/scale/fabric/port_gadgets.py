"""Limits as ports, NICs and crossbars: how links that share a capacity become edges and nodes of a fabric.

Links that meet at the same limits form a component: its out-ports (limits of what leaves) and in-ports (of what
enters). Where every out-port reaches every in-port, except within groups such as a box, one node in the middle says the
same with as many edges as ports, not pairs; otherwise each link stays an edge between its two ports.
"""

from __future__ import annotations

import numpy as np

from synth.errors import SynthError
from synth.model.link_table import members
from synth.model.topology import Topology

MOST_PAIRS = 1 << 26


class Builder:
    """One topology's arrays on their way to a fabric: rows ``(src, dst, cap, link, limit)``."""

    def __init__(
        self, topology: Topology, ends: int, src: np.ndarray, dst: np.ndarray, cap: np.ndarray, widths: list[int]
    ) -> None:
        self.topology, self.src, self.dst, self.cap, self.widths = topology, src, dst, cap, widths
        self.hub: list[int] = [-1] * ends
        self.ways: list[np.ndarray] = []
        self.rows: list[np.ndarray] = []
        self.sets: list[list[int]] = []
        self.single: dict[int, int] = {}  # limits of one rank on their own side: that rank
        # 32 bits, as a million links are looked at many times
        self.out = np.full(len(src), -1, np.int32)
        self.into = np.full(len(src), -1, np.int32)

    def run(self) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
        """The rows, the gadget of each node, and the links of each gadget."""
        self._sides()
        limited = (self.out >= 0) | (self.into >= 0)
        free = np.flatnonzero(~limited)
        self._add(self.src[free], self.dst[free], self.cap[free], free, -1)
        if limited.any():
            self._components(np.flatnonzero(limited))
        return np.concatenate(self.rows), np.array(self.hub, np.int64), tuple(self.ways)

    def _add(self, *columns: np.ndarray | int) -> None:
        """Rows of src, dst, cap, link and limit: arrays of one length, or numbers."""
        whole = np.broadcast_arrays(*(np.asarray(column, np.int64) for column in columns))
        self.rows.append(np.stack(whole, axis=-1).reshape(-1, 5))

    def _node(self, gadget: int) -> int:
        self.hub.append(gadget)
        return len(self.hub) - 1

    def _sides(self) -> None:
        """Which limit each link meets on its way out and on its way in."""
        given = [(k, m) for k, m in enumerate(members(self.topology.limits)) if len(m)]
        if not given:
            return
        for i, (k, m) in enumerate(given):
            if (m[1:] <= m[:-1]).any():
                given[i] = k, np.unique(m)
        flat, starts = _joined([m for _, m in given])
        width = np.array([self.widths[k] for k, _ in given], np.int64)
        sides = [side.astype(np.int32) for side in (self.src, self.dst)]
        ends = [(op.reduceat(side[flat], starts)) for side in sides for op in (np.minimum, np.maximum)]
        binding = np.add.reduceat(self.cap[flat], starts) > width
        tightest = self._tightest(given, np.flatnonzero(binding).tolist())
        single = (
            [i for i in tightest if ends[0][i] == ends[1][i]],
            [i for i in tightest if ends[0][i] != ends[1][i] and ends[2][i] == ends[3][i]],
        )
        for side, chosen, own in ((self.out, single[0], ends[0]), (self.into, single[1], ends[2])):
            self.single |= {given[i][0]: int(own[i]) for i in chosen}
            self._claim(side, [given[i] for i in chosen])
        wide = []
        for i in tightest:
            k, m = given[i]
            if k not in self.single:
                wide.append((len(np.unique(self.src[m])) - len(np.unique(self.dst[m])), k, m))
        for lean, k, m in wide:
            order = (
                (self.out, self.into) if lean < 0 or (lean == 0 and (self.out[m] < 0).all()) else (self.into, self.out)
            )
            self._claim(order[0] if (order[0][m] < 0).all() else order[1], [(k, m)])

    def _tightest(self, given: list[tuple[int, np.ndarray]], binding: list[int]) -> list[int]:
        """Of limits on the same links the narrowest, the first of several; places in `given`."""
        alike: dict[tuple[int, int, int], list[int]] = {}
        for i in binding:
            m = given[i][1]
            rivals = alike.setdefault((len(m), int(m[0]), int(m[-1])), [])
            at = next((j for j, r in enumerate(rivals) if (given[r][1] == m).all()), -1)
            if at < 0:
                rivals.append(i)
            elif self.widths[given[i][0]] < self.widths[given[rivals[at]][0]]:
                rivals[at] = i
        return sorted(i for rivals in alike.values() for i in rivals)

    def _claim(self, side: np.ndarray, chosen: list[tuple[int, np.ndarray]]) -> None:
        """Puts limits on a side of their links. Raises SynthError where one stands there already."""
        if not chosen:
            return
        flat, starts = _joined([m for _, m in chosen])
        owner = np.repeat(np.array([k for k, _ in chosen], np.int32), np.diff(np.r_[starts, len(flat)]))
        taken = side[flat] >= 0
        if not taken.any():
            side[flat] = owner
            taken = side[flat] != owner
        if not taken.any():
            return
        at = int(np.flatnonzero(taken)[0])
        one, other = (self.topology.limits[k].name for k in sorted((int(side[flat[at]]), int(owner[at]))))
        link = self.topology.links[int(flat[at])]
        raise SynthError(
            f"{self.topology.name}: the link {link.src} to {link.dst} shares two limits on one side, {one!r}"
            f" and {other!r}; flow methods take one out of"
            f" and one into each link: merge them, or describe a switch"
        )

    def _components(self, limited: np.ndarray) -> None:
        count, most = len(self.src), len(self.widths)
        # A link without a limit on one side has a port of its own there.
        every = len(limited) == count
        out, into = (side if every else side[limited] for side in (self.out, self.into))
        shift = 0
        if min(out.min(), into.min()) >= 0:
            ports, a, b = most, out, into  # a limit stands on one side only
        else:
            shift = most + count
            out = np.where(out >= 0, out, most + limited)
            into = np.where(into >= 0, into, most + limited) + shift
            names, ends = _numbered(np.concatenate([out, into]))
            ports, a, b = len(names), ends[: len(limited)], ends[len(limited) :]
        label = np.arange(ports, dtype=np.int32)
        while True:
            least = label.copy()
            np.minimum.at(least, a, label[b])
            np.minimum.at(least, b, label[a])
            least = least[least]
            if (least == label).all():
                break
            label = least
        names, number = _numbered(label)
        if not shift:  # in order of their ports out
            used, first = np.unique(number[np.flatnonzero(np.bincount(out))], return_index=True)
            place = np.zeros(len(names), np.int32)  # limits on no link are of no component
            place[used[np.argsort(first)]] = np.arange(len(used), dtype=np.int32)
            number = place[number]
        part = number.astype(np.uint16 if len(names) < 1 << 16 else np.int32)[a]  # NumPy sorts 16 bits by counting
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=len(names)))
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            if start < end:
                here = order[start:end]
                self._component(here if every else limited[here], out[here], into[here] - shift)

    def _component(self, links: np.ndarray, out: np.ndarray, into: np.ndarray) -> None:
        gadget = len(self.ways)
        self.ways.append(links)
        outs, a = _numbered(out)
        ins, b = _numbered(into)
        if self._crossbar(links, outs, a, ins, b):
            middle = self._node(gadget)
            self._ports(gadget, links, outs, a, middle, True)
            self._ports(gadget, links, ins, b, middle, False)
            return
        first = self._doors(gadget, links, outs, a, True)
        last = self._doors(gadget, links, ins, b, False)
        self._add(first[a], last[b], self.cap[links], links, -1)

    def _width(self, ports: np.ndarray) -> np.ndarray:
        """Units of each port; a link's own port has the link's."""
        most = len(self.widths)
        return np.array([self.widths[p] if p < most else self.cap[p - most] for p in ports.tolist()], np.int64)

    def _crossbar(self, links: np.ndarray, outs: np.ndarray, a: np.ndarray, ins: np.ndarray, b: np.ndarray) -> bool:
        """Whether links are no narrower than their ports, and all ports joined but within groups."""
        if (self.cap[links] < np.minimum(self._width(outs)[a], self._width(ins)[b])).any() or len(outs) * len(
            ins
        ) > MOST_PAIRS:
            return False
        joined = np.zeros((len(outs), len(ins)), bool)
        joined[a, b] = True
        missing = np.array(list({row.tobytes(): row for row in ~joined}.values()))
        return bool((missing.sum(axis=0) <= 1).all())

    def _ports(
        self, gadget: int, links: np.ndarray, ports: np.ndarray, which: np.ndarray, middle: int, leaving: bool
    ) -> None:
        """Edges between ranks and the middle, through a node where several ranks share a port."""
        ends = self.src if leaving else self.dst
        for i, (port, width) in enumerate(zip(ports.tolist(), self._width(ports).tolist(), strict=True)):
            limit = port if port < len(self.widths) else -1
            if limit in self.single or limit < 0:
                own = port - len(self.widths)
                self._edge(
                    self.single[limit] if limit >= 0 else int(ends[own]),
                    middle,
                    width,
                    limit if limit >= 0 else self._links([own]),
                    leaving,
                )
                continue
            door = self._node(gadget)
            self._edge(door, middle, width, limit, leaving)
            self._fan(links[which == i], door, leaving)

    def _doors(self, gadget: int, links: np.ndarray, ports: np.ndarray, which: np.ndarray, leaving: bool) -> np.ndarray:
        """A node for each port, that the port's capacity leads to, or the rank itself for a link's own port."""
        ends = self.src if leaving else self.dst
        doors = []
        for i, (port, width) in enumerate(zip(ports.tolist(), self._width(ports).tolist(), strict=True)):
            if port >= len(self.widths):
                doors.append(int(ends[port - len(self.widths)]))
                continue
            door = self._node(gadget)
            doors.append(door)
            if port in self.single:
                self._edge(self.single[port], door, width, port, leaving)
                continue
            outer = self._node(gadget)
            self._edge(outer, door, width, port, leaving)
            self._fan(links[which == i], outer, leaving)
        return np.array(doors, np.int64)

    def _fan(self, links: np.ndarray, door: int, leaving: bool) -> None:
        """Each rank of a shared port reaches it with all its links' units."""
        ends = (self.src if leaving else self.dst)[links]
        for rank in np.unique(ends).tolist():
            mine = links[ends == rank]
            self._edge(rank, door, int(self.cap[mine].sum()), self._links(mine.tolist()), leaving)

    def _links(self, links: list[int]) -> int:
        """What stands in the place of a limit for an edge as wide as these links together: -2 less its place in
        `sets`."""
        self.sets.append(links)
        return -1 - len(self.sets)

    def _edge(self, end: int, inner: int, width: int, limit: int, leaving: bool) -> None:
        self.rows.append(np.array([[*((end, inner) if leaving else (inner, end)), width, -1, limit]], np.int64))


def _joined(sets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Sets of links one after the other, and where each starts."""
    sizes = np.array([len(m) for m in sets], np.int64)
    return np.concatenate(sets, dtype=np.int32), np.cumsum(sizes) - sizes


def _numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `np.unique` with its inverse, by counting where the values are dense enough."""
    top = int(values.max()) + 1
    if top > 8 * len(values):
        return np.unique(values, return_inverse=True)
    distinct = np.flatnonzero(np.bincount(values, minlength=top))
    place = np.empty(top, np.int32)
    place[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, place[values]
