"""Topology: a machine as users and importers describe it, and Network: its exact integer view.

    Topology  name ranks links limits switches nodes unit generators labels notes
    Link      src dst bandwidth latency kind          ends below `ranks` are ranks, the others switches
    Limit     name links bandwidth                    those links together carry at most `bandwidth`

    Network   name ranks routes limits unit wires     rank to rank only, capacities in whole units (chunks per round)
    Route     src dst units via                       `via`: names of the switches on the way
    Cap       routes units                            those routes, each as often as listed, carry at most `units` per
                                                      round

Bandwidths are GB/s (1e9 bytes/s) per direction, latencies µs. `Topology.network()` goes from one to the other;
everything exact (bounds, encodings, verify) sees the Network only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import lcm

from synth.errors import SynthError
from synth.model.rational import gcd, printable, rational, show

KINDS = ("nvlink", "xgmi", "pcie", "net", "unknown")
MAX_ROUTES_PER_PAIR = 64


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link. `bandwidth` in GB/s, `latency` in µs, `kind` one of `KINDS`."""

    src: int
    dst: int
    bandwidth: Fraction
    latency: Fraction = Fraction(0)
    kind: str = "unknown"


@dataclass(frozen=True, slots=True)
class Limit:
    """A set of links (indices into `Topology.links`, none twice) that share `bandwidth` GB/s: a switch port, a NIC, a
    PCIe root."""

    name: str
    links: Sequence[int]
    bandwidth: Fraction


def columns(links: Sequence[Link]) -> tuple[Sequence[int], Sequence[int], Iterable[Fraction]]:
    """Sources, destinations and bandwidths of all links; a table of links (linktable.py) makes no Links for it."""
    table = getattr(links, "columns", None)
    return ([k.src for k in links], [k.dst for k in links], [k.bandwidth for k in links]) if table is None else table()


def bandwidths(items: Sequence[Link] | Sequence[Limit]) -> list[Fraction]:
    """Every bandwidth of links or limits; a million of them share a few, and each object is looked at once."""
    table = getattr(items, "bandwidths", None)
    return list({id(item.bandwidth): item.bandwidth for item in items}.values()) if table is None else table()


@dataclass(frozen=True, slots=True)
class Route:
    """A rank-to-rank link of `units` chunks per round, through the switches named in `via`."""

    src: int
    dst: int
    units: int
    via: tuple[str, ...] = ()
    latency: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Cap:
    """Routes (indices into `Network.routes`) that together carry at most `units` chunks per round.

    `routes` is a multiset: a route is listed as often as it crosses links of the limit, and counts that often against
    it.
    """

    routes: tuple[int, ...]
    units: int


@dataclass(frozen=True)
class Network:
    """The exact, integer view of a topology: what schedules run on and what certificates speak about.

    `wires` is empty unless switches are explicit; then it lists the physical links ``(end, end, units)`` whose ends
    are ranks or switch names, and `caps` holds one entry per wire that more than one route shares.
    """

    name: str
    ranks: int
    routes: tuple[Route, ...]
    caps: tuple[Cap, ...] = ()
    unit: Fraction = Fraction(1)
    wires: tuple[tuple[int | str, int | str, int], ...] = ()
    generators: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return (
            f"<Network {self.name}: {self.ranks} ranks, {len(self.routes)} routes of units of {show(self.unit)} GB/s>"
        )

    @cached_property
    def out(self) -> tuple[tuple[int, ...], ...]:
        """Route indices leaving each rank."""
        return self._by_end(lambda route: route.src)

    @cached_property
    def into(self) -> tuple[tuple[int, ...], ...]:
        """Route indices entering each rank."""
        return self._by_end(lambda route: route.dst)

    def _by_end(self, end: Callable[[Route], int]) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.ranks)]
        for i, route in enumerate(self.routes):
            found[end(route)].append(i)
        return tuple(map(tuple, found))

    @cached_property
    def caps_of(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the caps on each route, each as often as the cap lists the route."""
        found: list[list[int]] = [[] for _ in self.routes]
        for k, cap in enumerate(self.caps):
            for r in cap.routes:
                found[r].append(k)
        return tuple(map(tuple, found))

    @cached_property
    def distances(self) -> tuple[tuple[int | None, ...], ...]:
        """`distances[u][v]`: fewest routes from u to v, None when v cannot be reached."""
        peers = [sorted({self.routes[i].dst for i in self.out[n]}) for n in range(self.ranks)]
        return tuple(_hops(peers, n) for n in range(self.ranks))

    @cached_property
    def latency(self) -> Fraction:
        """The greatest latency of a route, µs: the α of the cost model."""
        return max((r.latency for r in self.routes), default=Fraction(0))

    def reversed(self) -> Network:
        """Every route turned round; caps and indices are kept, so route i of the result is route i reversed."""
        turned = tuple(Route(r.dst, r.src, r.units, r.via[::-1], r.latency) for r in self.routes)
        wires = tuple((b, a, units) for a, b, units in self.wires)
        return Network(self.name, self.ranks, turned, self.caps, self.unit, wires, self.generators)

    def to_json(self) -> dict:
        """The `topology` object of schedules and frontiers (schema: docs/formats.md)."""
        doc: dict = {"name": self.name, "ranks": self.ranks, "links": [_ends(r) + _tail(r) for r in self.routes]}
        doc["limits"] = [
            {"links": [_ends(self.routes[i])[:2] + _via(self.routes[i]) for i in c.routes], "units": c.units}
            for c in self.caps
        ]
        doc["unit_gbps"] = show(self.unit)
        if self.wires:
            doc["wires"] = [list(w) for w in self.wires]
        if self.latency:
            doc["latency_us"] = [show(r.latency) for r in self.routes]
        return doc

    @staticmethod
    def from_json(doc: dict) -> Network:
        """The inverse of `to_json` (generators are not part of the document). Raises KeyError, ValueError,
        TypeError."""
        latency = [rational(x) for x in doc.get("latency_us", [])] or [Fraction(0)] * len(doc["links"])
        routes = tuple(
            Route(row[0], row[1], row[2], tuple(row[3]) if len(row) > 3 else (), late)
            for row, late in zip(doc["links"], latency, strict=True)
        )
        index = {(r.src, r.dst, r.via): i for i, r in enumerate(routes)}
        caps = tuple(
            Cap(tuple(index[(e[0], e[1], tuple(e[2]) if len(e) > 2 else ())] for e in cap["links"]), cap["units"])
            for cap in doc["limits"]
        )
        wires = tuple((a, b, units) for a, b, units in doc.get("wires", []))
        return Network(printable(doc["name"]), doc["ranks"], routes, caps, rational(doc["unit_gbps"]), wires)


def _ends(route: Route) -> list:
    return [route.src, route.dst]


def _via(route: Route) -> list:
    return [list(route.via)] if route.via else []


def _tail(route: Route) -> list:
    return [route.units, *_via(route)]


def _hops(peers: list[list[int]], start: int) -> tuple[int | None, ...]:
    far: list[int | None] = [None] * len(peers)
    far[start] = 0
    queue = deque([start])
    while queue:
        u = queue.popleft()
        for v in peers[u]:
            if far[v] is None:
                far[v] = far[u] + 1  # type: ignore[operator]
                queue.append(v)
    return tuple(far)


@dataclass(frozen=True)
class Topology:
    """A machine. Link ends below `ranks` are ranks; `ranks + i` is the switch ``switches[i]``.

    `links` is a tuple, or a table of very many links that acts like one (linktable.py). `nodes[r]` is the box that rank
    r sits in. `unit` (GB/s) is the declared bandwidth of one unit, None to derive it. `generators` are declared rank
    automorphisms (verified before use). `labels[r]` is the machine's own label of rank r (after `--ranks`), used by
    exports.
    `notes` are shown wherever results are printed (NVLS, PCIe fallback).
    """

    name: str
    ranks: int
    links: Sequence[Link]
    limits: tuple[Limit, ...] = ()
    switches: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    unit: Fraction | None = None
    generators: tuple[tuple[int, ...], ...] = ()
    labels: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        switches = f", {len(self.switches)} switches" if self.switches else ""
        return f"<Topology {self.name}: {self.ranks} ranks{switches}, {len(self.links)} links>"

    def unit_bandwidth(self) -> Fraction:
        """GB/s of one unit: the declared unit, divided by the least integer that makes all capacities whole; else the
        gcd."""
        values = [value for value in (*bandwidths(self.links), *bandwidths(self.limits)) if value]
        if not values:
            return self.unit or Fraction(1)
        if self.unit is None:
            return gcd(values)
        return self.unit / lcm(*((value / self.unit).denominator for value in values))

    def live(self) -> Topology:
        """Without the links that carry nothing, by their own bandwidth or a limit's. Raises SynthError for a negative
        bandwidth."""
        widths = [*bandwidths(self.links), *bandwidths(self.limits)]
        if all(width > 0 for width in widths):
            return self
        if any(width < 0 for width in widths):
            raise SynthError(f"{self.name}: a bandwidth is negative; a link that is down has 0")
        dead = {i for limit in self.limits if not limit.bandwidth for i in limit.links}
        kept = {i: k for k, i in enumerate(i for i, link in enumerate(self.links) if link.bandwidth and i not in dead)}
        limits = [replace(m, links=tuple(kept[i] for i in m.links if i in kept)) for m in self.limits if m.bandwidth]
        note = f"{len(self.links) - len(kept)} links carry nothing and are left out"
        return replace(
            self,
            links=tuple(self.links[i] for i in kept),
            limits=tuple(m for m in limits if m.links),
            notes=(*self.notes, note),
        )

    def network(self) -> Network:
        """Routes and caps in whole units. Raises SynthError where switches give too many routes to list."""
        for limit in self.limits:
            if len(set(limit.links)) < len(limit.links):
                raise SynthError(f"{self.name}: limit {limit.name!r} lists a link twice; a limit is a set of links")
        unit = self.unit_bandwidth()
        units = [int(link.bandwidth / unit) for link in self.links]
        if self.switches:
            return self._through_switches(unit, units)
        routes = tuple(
            Route(link.src, link.dst, n, (), link.latency) for link, n in zip(self.links, units, strict=True)
        )
        caps = tuple(Cap(tuple(limit.links), int(limit.bandwidth / unit)) for limit in self.limits)
        return Network(self.name, self.ranks, routes, caps, unit, (), self.generators)

    def _through_switches(self, unit: Fraction, units: list[int]) -> Network:
        """Rank-to-rank routes: links, and beside them the shortest ways through switches; each shared wire becomes a
        cap."""
        paths = [path for n in range(self.ranks) for path in self._switch_paths(n)]
        name = {self.ranks + i: s for i, s in enumerate(self.switches)}
        routes, riders = [], [[] for _ in self.links]
        for path in paths:
            links = [self.links[i] for i in path]
            via = tuple(name[link.dst] for link in links[:-1])
            latency = sum((link.latency for link in links), Fraction(0))
            routes.append(Route(links[0].src, links[-1].dst, min(units[i] for i in path), via, latency))
            for i in path:
                riders[i].append(len(routes) - 1)
        caps = [Cap(tuple(rs), units[i]) for i, rs in enumerate(riders) if len(rs) > 1]
        for limit in self.limits:
            crossing = sorted(
                r for i in limit.links for r in riders[i]
            )  # a route stands there once for each of its links
            if crossing:  # no route may pass the links of a limit
                caps.append(Cap(tuple(crossing), int(limit.bandwidth / unit)))
        used = any(route.via for route in routes)  # no switch may join two ranks
        wires = tuple(
            (name.get(k.src, k.src), name.get(k.dst, k.dst), n) for k, n in zip(self.links, units, strict=True) if used
        )
        return Network(self.name, self.ranks, tuple(routes), tuple(caps), unit, wires, self.generators)

    def _switch_paths(self, start: int) -> list[tuple[int, ...]]:
        """Ways from a rank to others, as links: direct ones, and of those through switches the shortest."""
        leaving: list[list[int]] = [[] for _ in range(self.ranks + len(self.switches))]
        for i, link in enumerate(self.links):
            leaving[link.src].append(i)
        best: dict[int, int] = {}
        ways: dict[int, list[tuple[int, ...]]] = {}
        queue: deque[tuple[int, tuple[int, ...], frozenset[int]]] = deque([(start, (), frozenset())])
        while queue:
            node, path, seen = queue.popleft()
            for i in leaving[node]:
                end, way = self.links[i].dst, (*path, i)
                direct = end < self.ranks and not path  # beside which the shortest way through switches counts too
                if end == start or end in seen or (not direct and best.setdefault(end, len(way)) < len(way)):
                    continue
                if end >= self.ranks:
                    queue.append((end, way, seen | {end}))
                    continue
                ways.setdefault(end, []).append(way)
                if len(ways[end]) > MAX_ROUTES_PER_PAIR:
                    raise SynthError(
                        f"{self.name}: more than {MAX_ROUTES_PER_PAIR} switch paths from rank {start} to rank {end};"
                        " describe the fabric with limits instead of switches"
                    )
        return [way for end in sorted(ways) for way in ways[end]]
