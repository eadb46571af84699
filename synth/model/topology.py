"""Topology: a machine as users and importers describe it, and Network: its exact integer view.

    Topology   name ranks links limits switches nodes unit generators labels notes multicast
    Link       src dst bandwidth latency kind         ends below `ranks` are ranks, the others switches
    Limit      name links bandwidth                   those links together carry at most `bandwidth`
    Multicast  switch ranks own                       a switch that copies to, and sums from, several of `ranks` at once

    Network    name ranks routes limits unit wires multicast
                                                      rank to rank only, capacities in whole units (chunks per round)
    Route      src dst units via                      `via`: names of the switches on the way
    Cap        routes units                           those routes, each as often as listed, carry at most `units` per
                                                      round
    MulticastSwitch  switch own ports                 a `Multicast` and its ports
    SwitchPort rank up down                           caps that data of `rank` into the switch, and out of it, count
                                                      against

Bandwidths are GB/s (1e9 bytes/s) per direction, latencies µs. `Topology.network()` goes from one to the other;
everything exact (bounds, encodings, verify) sees the Network only.
"""

from __future__ import annotations

import json
import operator
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any, NamedTuple

from synth.errors import SynthError
from synth.model.gc_pause import collector_off
from synth.model.rational import Number, gcd, given_number, printable, rational, show
from synth.model.registry import NOTEBOOK, load

KINDS = ("nvlink", "xgmi", "pcie", "net", "unknown")
OWN = ("through", "local")
# The note of a machine whose switches multicast. Results that show schedules with them leave it out.
MULTICAST_NOTE = "its switches multicast and reduce (NVLS); schedules that use this are not among those compared"
MAX_ROUTES_PER_PAIR = 64
# Maximum number of paths from a rank to switches that are followed at a time.
MAX_OPEN_PATHS = 100_000


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link of a `Topology`.

    Parameters
    ----------
    src, dst : the ends. Numbers below `Topology.ranks` are ranks, the others switches.
    bandwidth : GB/s (1e9 bytes/s) in this direction. A float counts as the decimal that Python prints: 0.1 is 1/10.
    latency : µs.
    kind : one of `KINDS`: nvlink, xgmi, pcie, net or unknown.

    Raises
    ------
    UsageError for a bandwidth or latency that is no number.

    Examples
    --------
    >>> import synth
    >>> synth.Link(0, 1, 12.5, latency="3/5").bandwidth
    Fraction(25, 2)
    """

    src: int
    dst: int
    bandwidth: Fraction
    latency: Fraction = Fraction(0)
    kind: str = "unknown"

    def __init__(
        self, src: int, dst: int, bandwidth: Number, latency: Number = Fraction(0), kind: str = "unknown"
    ) -> None:
        put = object.__setattr__
        put(self, "src", src if type(src) is int else operator.index(src))
        put(self, "dst", dst if type(dst) is int else operator.index(dst))
        exact = type(bandwidth) is Fraction and type(latency) is Fraction  # of a million links, nearly all
        put(self, "bandwidth", bandwidth if exact else given_number(bandwidth, f"bandwidth of the link {src}-{dst}"))
        put(self, "latency", latency if exact else given_number(latency, f"latency of the link {src}-{dst}"))
        put(self, "kind", kind)


@dataclass(frozen=True, slots=True)
class Limit:
    """A set of links that share one bandwidth: those of a switch port, a NIC, a PCIe root.

    Parameters
    ----------
    name : of the limit, in messages.
    links : indices into `Topology.links`, none twice.
    bandwidth : GB/s that the links carry together; numbers as in `Link`.

    Raises
    ------
    UsageError for a bandwidth that is no number.

    Examples
    --------
    >>> import synth
    >>> links = [synth.Link(0, 1, 50), synth.Link(0, 2, 50)]
    >>> synth.Topology("star", 3, links, [synth.Limit("NIC of rank 0", [0, 1], 50)]).network().caps
    (Cap(routes=(0, 1), units=1),)
    """

    name: str
    links: Sequence[int]
    bandwidth: Fraction

    def __init__(self, name: str, links: Iterable[int], bandwidth: Number) -> None:
        object.__setattr__(self, "name", name)
        members = links if isinstance(links, Sequence) else sorted(links)
        object.__setattr__(self, "links", tuple(members) if isinstance(members, list) else members)
        object.__setattr__(self, "bandwidth", given_number(bandwidth, f"bandwidth of the limit {name!r}"))


@dataclass(frozen=True, slots=True)
class Multicast:
    """A switch that multicasts and reduces among `ranks`.

    `switch` is one of `Topology.switches`, and `ranks` () means all that it has links from and to. Or it is the name of
    a switch that the topology describes by links and limits alone. `own` is "through" (the issuer's own data uses its
    port, as in an NVSwitch) or "local" (it does not).
    """

    switch: str
    ranks: tuple[int, ...] = ()
    own: str = "through"


def check_multicast(multicast: Multicast, ranks: int, switches: Sequence[str]) -> None:
    """Raise SynthError, in one line, for a `Multicast` that makes no sense on a topology of `ranks` and `switches`."""
    name = f"the switch {multicast.switch!r} that multicasts"
    if multicast.own not in OWN:
        raise SynthError(f"{name}: own is {multicast.own!r}; {' and '.join(OWN)} exist")
    if not multicast.ranks and multicast.switch not in switches:
        raise SynthError(f"{name} has no ranks; list them, or name one of the switches")
    for rank in multicast.ranks:
        if not 0 <= rank < ranks:
            raise SynthError(f"{name} names rank {rank}; the ranks are 0 to {ranks - 1}")
        if multicast.ranks.count(rank) > 1:
            raise SynthError(f"{name} names rank {rank} twice")
    if len(multicast.ranks) == 1:
        raise SynthError(f"{name} has rank {multicast.ranks[0]} alone; a group has at least two")


def columns(links: Sequence[Link]) -> tuple[Sequence[int], Sequence[int], Iterable[Fraction]]:
    """Return sources, destinations and bandwidths (GB/s) of all links, one list each.

    A `LinkTable` answers from its arrays, without making a `Link` for each row.
    """
    from_table = getattr(links, "columns", None)
    if from_table is not None:
        return from_table()
    sources = [link.src for link in links]
    destinations = [link.dst for link in links]
    return sources, destinations, [link.bandwidth for link in links]


def bandwidths(items: Sequence[Link] | Sequence[Limit]) -> list[Fraction]:
    """Return the bandwidths (GB/s) of links or limits, each Fraction object once.

    A million links share a few Fraction objects, and hashing an object's id is much cheaper than hashing a Fraction.
    """
    from_table = getattr(items, "bandwidths", None)
    if from_table is not None:
        return from_table()
    return list({id(item.bandwidth): item.bandwidth for item in items}.values())


class Route(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """The port of `rank` at a switch that multicasts.

    What the rank sends into the switch counts against the caps `up`, what it receives against the caps `down` (indices
    into `Network.caps`).
    """

    rank: int
    up: tuple[int, ...]
    down: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MulticastSwitch:
    """A switch that multicasts and reduces among the ranks of its ports; `own` as in `Multicast`."""

    switch: str
    own: str
    ports: tuple[SwitchPort, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have ports."""
        return tuple(port.rank for port in self.ports)

    def caps(self, rank: int, group: Sequence[int], *, fetches: bool) -> list[int]:
        """Return the caps that a multicast of `rank` to `group` counts against, each as often as it counts.

        With `fetches` those of a sum that `rank` fetches from `group`.
        """
        ports = {port.rank: port for port in self.ports}
        counted = list(ports[rank].down if fetches else ports[rank].up)
        for member in group:
            if member != rank or self.own == "through":
                counted += ports[member].up if fetches else ports[member].down
        return counted


@dataclass(frozen=True)
class Network:
    """The exact, integer view of a topology: schedules run on it, certificates speak about it.

    `Topology.network()` makes it.

    Attributes
    ----------
    name, ranks : as of the topology.
    routes : rank-to-rank links, with their capacity in chunks per round.
    caps : sets of routes that share a capacity; one for each wire that more than one route crosses.
    unit : GB/s of one unit of capacity.
    connections : the physical connections of one unit, such as NVLinks, over which a program spreads its messages.
    wires : the physical links ``(end, end, units)`` where switches are explicit, else empty.
    generators : declared rank automorphisms.
    multicast : switches that multicast and reduce; empty unless `Topology.multicast_network` made the network.

    Examples
    --------
    >>> import synth
    >>> network = synth.topology("dgx1").network()
    >>> network
    <Network dgx1-v100: 8 ranks, 32 routes of units of 25 GB/s>
    >>> network.routes[0].units
    2
    """

    name: str
    ranks: int
    routes: tuple[Route, ...]
    caps: tuple[Cap, ...] = ()
    unit: Fraction = Fraction(1)
    wires: tuple[tuple[int | str, int | str, int], ...] = ()
    generators: tuple[tuple[int, ...], ...] = ()
    multicast: tuple[MulticastSwitch, ...] = ()
    connections: int = 1

    def __repr__(self) -> str:
        return (
            f"<Network {self.name}: {self.ranks} ranks, {len(self.routes)} routes of units of {show(self.unit)} GB/s>"
        )

    @cached_property
    def out(self) -> tuple[tuple[int, ...], ...]:
        """Route indices leaving each rank."""
        return self._by_end([route.src for route in self.routes])

    @cached_property
    def into(self) -> tuple[tuple[int, ...], ...]:
        """Route indices entering each rank."""
        return self._by_end([route.dst for route in self.routes])

    def _by_end(self, ends: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        indices: list[list[int]] = [[] for _ in range(self.ranks)]
        for i, end in enumerate(ends):
            indices[end].append(i)
        return tuple(map(tuple, indices))

    @cached_property
    def route_index(self) -> dict[tuple[int, int, tuple[str, ...]], int]:
        """The number of each route by its source, destination and switches."""
        return {(route.src, route.dst, route.via): i for i, route in enumerate(self.routes)}

    @cached_property
    @collector_off()
    def caps_of(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the caps on each route, each as often as the cap lists the route."""
        indices: list[list[int]] = [[] for _ in self.routes]
        for k, cap in enumerate(self.caps):
            for r in cap.routes:
                indices[r].append(k)
        return tuple(map(tuple, indices))

    @cached_property
    def distances(self) -> tuple[tuple[int | None, ...], ...]:
        """`distances[u][v]`: the fewest steps in which data get from u to v, None where v cannot be reached."""
        return tuple(tuple(self.distances_from([n])) for n in range(self.ranks))

    def distances_from(self, sources: Iterable[int]) -> list[int | None]:
        """Return the distance of each rank from the nearest of `sources`; None for unreachable ranks.

        A route, or a switch that multicasts, is a distance of 1.
        """
        distance: list[int | None] = [None] * self.ranks
        queue = list(dict.fromkeys(sources))
        for n in queue:
            distance[n] = 0
        for u in queue:
            if len(queue) == self.ranks:  # all have a distance
                break
            length = (distance[u] or 0) + 1
            for v in self._neighbors[u]:
                if distance[v] is None:
                    distance[v] = length
                    queue.append(v)
        return distance

    @cached_property
    def _neighbors(self) -> list[list[int]]:
        """The ranks that routes and switches lead to from each rank, each once, in ascending order."""
        neighbors: list[set[int]] = [set() for _ in range(self.ranks)]
        for route in self.routes:
            neighbors[route.src].add(route.dst)
        for switch in self.multicast:
            members = {port.rank for port in switch.ports}
            for rank in members:
                neighbors[rank] |= members - {rank}
        return list(map(sorted, neighbors))

    @cached_property
    def latency(self) -> Fraction:
        """Greatest latency of a route in µs: the α of the cost model."""
        return max(self._latencies.values(), default=Fraction(0))

    @property
    def _latencies(self) -> dict[int, Fraction]:
        """The latency objects of the routes by id: of many routes a few, and an id is hashed sooner than a Fraction."""
        return {id(r.latency): r.latency for r in self.routes}

    def as_topology(self) -> Topology:
        """Return a topology of the routes as links from rank to rank. A limit holds each of its routes
        once."""
        links = [Link(r.src, r.dst, r.units * self.unit, r.latency) for r in self.routes]
        limits = []
        for k, cap in enumerate(self.caps):
            limits.append(Limit(f"limit {k}", tuple(dict.fromkeys(cap.routes)), cap.units * self.unit))
        return Topology(self.name, self.ranks, tuple(links), tuple(limits), connection=self.unit / self.connections)

    def without_parallel_routes(self) -> Network:
        """Return a network with one route for all that join the same ranks through the same switches.

        It carries what they carry together, and has their least latency. A cap holds it where it holds all of them. So
        the result can do what this network can, without multicasts; it is this network where no routes are parallel.
        """
        # Routes alike in ends and switches, by which they are merged.
        members: dict[tuple, list[int]] = {}
        for i, route in enumerate(self.routes):
            members.setdefault((route.src, route.dst, route.via), []).append(i)
        if len(members) == len(self.routes):
            return self
        routes = []
        for (src, dst, via), same in members.items():
            units = sum(self.routes[i].units for i in same)
            routes.append(Route(src, dst, units, via, min(self.routes[i].latency for i in same)))

        # A cap binds a merged route as often as it binds the one of its members that it lists least.
        caps = []
        for cap in self.caps:
            crossed, times = [], Counter(cap.routes)
            for k, same in enumerate(members.values()):
                crossed += [k] * min(times[i] for i in same)
            if crossed:
                caps.append(Cap(tuple(crossed), cap.units))
        return Network(self.name, self.ranks, tuple(routes), tuple(caps), self.unit, connections=self.connections)

    def reversed(self) -> Network:
        """Return the network with every route reversed. Route i of the result is route i reversed; caps stay."""
        routes = tuple(Route(r.dst, r.src, r.units, r.via[::-1], r.latency) for r in self.routes)
        wires = tuple((b, a, units) for a, b, units in self.wires)
        multicast = []
        for switch in self.multicast:
            ports = tuple(SwitchPort(port.rank, port.down, port.up) for port in switch.ports)
            multicast.append(replace(switch, ports=ports))
        return replace(self, routes=routes, wires=wires, multicast=tuple(multicast))

    def to_json(self) -> dict:
        """The `topology` object of schedules and frontiers (schema: docs/formats.md)."""
        return json.loads(json.dumps(self.document))

    @cached_property
    @collector_off()
    def document(self) -> dict:
        """`to_json()` without a copy, for readers that change nothing in it.

        Limits share the rows of routes, and routes through the same switches the list of their names.
        """
        # Rows of routes share the lists of their switches, and limits the rows of routes.
        doc: dict = {"name": self.name, "ranks": self.ranks}
        paths: dict[tuple[str, ...], list] = {}  # the last field of a route's row in a list, or an empty list
        for route in self.routes:
            if route.via not in paths:
                paths[route.via] = [list(route.via)] if route.via else []
        doc["links"] = [[r.src, r.dst, r.units, *paths[r.via]] for r in self.routes]
        members: list[list] = []  # one row of each route, the same one in all limits that hold it
        if self.caps:
            members = [[src, dst, *via] for src, dst, _, *via in doc["links"]]
        doc["limits"] = []
        for cap in self.caps:
            doc["limits"].append({"links": list(map(members.__getitem__, cap.routes)), "units": cap.units})

        # Fields that most networks do not need are left out where they say nothing.
        doc["unit_gbps"] = show(self.unit)
        if self.connections > 1:
            doc["connections"] = self.connections
        if self.wires:
            doc["wires"] = [list(w) for w in self.wires]
        if self.latency:
            shown = {key: show(latency) for key, latency in self._latencies.items()}
            doc["latency_us"] = [shown[id(r.latency)] for r in self.routes]
        if self.multicast:
            doc["multicast"] = []
        for switch in self.multicast:
            ports = [[port.rank, list(port.up), list(port.down)] for port in switch.ports]
            doc["multicast"].append({"switch": switch.switch, "own": switch.own, "ports": ports})
        return doc

    @cached_property
    def fingerprints(self) -> dict[Hashable, str]:
        """The fingerprint of the problem of each collective for which `problem_fingerprint` has computed it."""
        return {}

    @staticmethod
    def from_json(doc: dict) -> Network:
        """Return the network of a document: the inverse of `to_json`, but for generators, which it does not hold.

        Raises KeyError, ValueError or TypeError on a malformed document.
        """
        latencies = [rational(x) for x in doc.get("latency_us", [])] or [Fraction(0)] * len(doc["links"])
        routes = []
        for (src, dst, units, *via), latency in zip(doc["links"], latencies, strict=True):
            routes.append(Route(src, dst, units, _names(via), latency))

        # Limits name their routes by ends and switches.
        index = {(r.src, r.dst, r.via): i for i, r in enumerate(routes)}
        caps = []
        for cap in doc["limits"]:
            members = tuple(index[src, dst, _names(via)] for src, dst, *via in cap["links"])
            caps.append(Cap(members, cap["units"]))
        wires = tuple((a, b, units) for a, b, units in doc.get("wires", []))
        unit, multicast = rational(doc["unit_gbps"]), []
        for switch in doc.get("multicast", []):
            ports = tuple(SwitchPort(rank, tuple(up), tuple(down)) for rank, up, down in switch["ports"])
            multicast.append(MulticastSwitch(printable(switch["switch"]), switch["own"], ports))
        return Network(
            printable(doc["name"]), doc["ranks"], tuple(routes), tuple(caps), unit, wires, (), tuple(multicast),
            doc.get("connections", 1),
        )  # fmt: skip


def _names(via: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The switches that the optional last field of a row names."""
    return tuple(via[0]) if via else ()


@dataclass(frozen=True)
class Topology:
    """A machine: ranks, switches and the links between them. `synth.topology` makes one of names, files and graphs.

    Parameters
    ----------
    name : in tables and documents.
    ranks : their number. Link ends below it are ranks; `ranks + i` is the switch ``switches[i]``.
    links : the directed links; a `LinkTable` where there are very many.
    limits : sets of links that share a bandwidth.
    switches : names.
    nodes : ``nodes[r]`` is the box of rank r; () where all are in one.
    connection : GB/s of one physical connection, such as an NVLink: programs use as many at a time. None: no matter.
    generators : declared rank automorphisms, which are verified before use.
    labels : ``labels[r]`` is the machine's own number of rank r, which exports use.
    notes : sentences shown wherever results are printed.
    multicast : the switches that multicast and reduce.

    Raises
    ------
    UsageError for a `connection` that is no number.

    Examples
    --------
    >>> import synth
    >>> pair = synth.Topology("pair", 2, [synth.Link(0, 1, 12.5), synth.Link(1, 0, 25)])
    >>> pair
    <Topology pair: 2 ranks, 2 links>
    >>> print(pair.unit_bandwidth())
    25/2
    """

    name: str
    ranks: int
    links: Sequence[Link]
    limits: tuple[Limit, ...] = ()
    switches: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    connection: Fraction | None = None
    generators: tuple[tuple[int, ...], ...] = ()
    labels: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=())
    multicast: tuple[Multicast, ...] = ()

    def __init__(
        self, name: str, ranks: int, links: Sequence[Link], limits: Iterable[Limit] = (), switches: Iterable[str] = (),
        nodes: Iterable[int] = (), connection: Number | None = None, generators: Iterable[tuple[int, ...]] = (),
        labels: Iterable[int] = (), notes: Iterable[str] = (), multicast: Iterable[Multicast] = (),
    ) -> None:  # fmt: skip
        put = object.__setattr__
        put(self, "name", name)
        put(self, "ranks", operator.index(ranks))
        put(self, "links", tuple(links) if isinstance(links, list) else links)
        put(self, "limits", tuple(limits))
        put(self, "switches", tuple(switches))
        put(self, "nodes", tuple(nodes))
        put(self, "connection", None if connection is None else given_number(connection, "connection"))
        put(self, "generators", tuple(generators))
        put(self, "labels", tuple(labels))
        put(self, "notes", tuple(notes))
        put(self, "multicast", tuple(multicast))

    def __repr__(self) -> str:
        switches = f", {len(self.switches)} switches" if self.switches else ""
        return f"<Topology {self.name}: {self.ranks} ranks{switches}, {len(self.links)} links>"

    def _repr_svg_(self) -> str | None:
        return load(NOTEBOOK["topology"])(self)

    def unit_bandwidth(self) -> Fraction:
        """Return the GB/s of one unit: the greatest common divisor of all bandwidths, 1 where there are none."""
        values = [value for value in (*bandwidths(self.links), *bandwidths(self.limits)) if value]
        return gcd(values) if values else Fraction(1)

    def live(self) -> Topology:
        """Return the topology without links of no bandwidth, their own or that of a limit.

        Raises SynthError for a negative bandwidth.
        """
        widths = [*bandwidths(self.links), *bandwidths(self.limits)]
        if all(width > 0 for width in widths):
            return self
        if any(width < 0 for width in widths):
            raise SynthError(f"{self.name}: a bandwidth is negative; a link that is down has 0")
        # Links that carry nothing go, and those that are left are numbered anew in their limits.
        dead = {i for limit in self.limits if not limit.bandwidth for i in limit.links}
        alive = [i for i, link in enumerate(self.links) if link.bandwidth and i not in dead]
        index = {i: k for k, i in enumerate(alive)}
        limits = []
        for limit in self.limits:
            members = tuple(index[i] for i in limit.links if i in index)
            if limit.bandwidth and members:
                limits.append(replace(limit, links=members))
        note = f"{len(self.links) - len(alive)} links carry nothing and are left out"
        links = tuple(self.links[i] for i in alive)
        return replace(self, links=links, limits=tuple(limits), notes=(*self.notes, note))

    def multicast_network(self) -> Network:
        """Return `network()` with the switches that multicast and their ports.

        A port has the caps that hold all routes of its rank into, or out of, the switch. A rank without such routes
        takes no part. Raises SynthError for a `Multicast` that makes no sense.
        """
        # A port is all that its rank sends into the switch, and all that it receives from it.
        network = self.network()
        caps, switches = list(network.caps), []
        for multicast in self.multicast:
            check_multicast(multicast, self.ranks, self.switches)
            ports = []
            for rank in sorted(multicast.ranks) or range(self.ranks):
                sent = [i for i in network.out[rank] if self._passes(network.routes[i], multicast, 0)]
                received = [i for i in network.into[rank] if self._passes(network.routes[i], multicast, -1)]
                if sent and received:
                    up, down = (self._port_caps(network, caps, side) for side in (sent, received))
                    ports.append(SwitchPort(rank, up, down))
            if len(ports) > 1:
                switches.append(MulticastSwitch(multicast.switch, multicast.own, tuple(ports)))
        return replace(network, caps=tuple(caps), multicast=tuple(switches))

    def _passes(self, route: Route, multicast: Multicast, end: int) -> bool:
        """Return True where the first (`end` 0) or the last (-1) switch of `route` is that of `multicast`."""
        if multicast.switch in self.switches:
            return bool(route.via) and route.via[end] == multicast.switch
        return not route.via and route.src in multicast.ranks and route.dst in multicast.ranks

    @staticmethod
    def _port_caps(network: Network, caps: list[Cap], routes: list[int]) -> tuple[int, ...]:
        """Return the caps of `network` that hold all of `routes`; if there is none, a new one of what these carry.

        The new one is the port's own, and is added to `caps`.
        """
        holding = tuple(k for k, cap in enumerate(network.caps) if set(routes) <= set(cap.routes))
        if holding:
            return holding
        caps.append(Cap(tuple(routes), sum(network.routes[i].units for i in routes)))
        return (len(caps) - 1,)

    def network(self) -> Network:
        """Return routes and caps in whole units, the same value each time.

        Raises SynthError where switches give too many routes to list.
        """
        return self._network

    def __getstate__(self) -> dict[str, Any]:
        """The fields: a process that gets the topology makes its network where it needs one."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    @collector_off()
    def _network(self) -> Network:
        for limit in self.limits:
            if len(set(limit.links)) < len(limit.links):
                raise SynthError(f"{self.name}: limit {limit.name!r} lists a link twice; a limit is a set of links")
        unit = self.unit_bandwidth()
        units = [int(link.bandwidth / unit) for link in self.links]
        # As many whole connections as there are in a unit; where a connection is no part of it, their common divisor.
        connections = (unit / (self.connection or unit)).numerator
        if self.switches:
            return replace(self._through_switches(unit, units), connections=connections)

        # Without switches a link is a route, and a limit a cap.
        routes = tuple(
            Route(link.src, link.dst, n, (), link.latency) for link, n in zip(self.links, units, strict=True)
        )
        caps = [Cap(tuple(limit.links), int(limit.bandwidth / unit)) for limit in self.limits]
        return Network(self.name, self.ranks, routes, tuple(caps), unit, (), self.generators, (), connections)

    def _through_switches(self, unit: Fraction, units: list[int]) -> Network:
        """Rank-to-rank routes: direct links and the shortest paths through switches.

        A physical link that several routes cross becomes a cap.
        """
        name = {self.ranks + i: s for i, s in enumerate(self.switches)}
        scale = lcm(*(link.latency.denominator for link in self.links))  # latencies are whole multiples of 1/scale
        leaving: list[list[_Hop]] = [[] for _ in range(self.ranks + len(self.switches))]
        for i, link in enumerate(self.links):
            leaving[link.src].append(_Hop(i, link.dst, units[i], int(link.latency * scale)))

        # A route for each path; equal latencies are one object, since there are few and many routes share them.
        latencies: dict[int, Fraction] = {}
        routes: list[Route] = []
        crossing: list[list[int]] = [[] for _ in self.links]  # the routes on each link
        for start in range(self.ranks):
            for path, hop in self._switch_paths(start, leaving, name):
                time = path.ticks + hop.ticks
                if time not in latencies:
                    latencies[time] = Fraction(time, scale)
                width = hop.units if path.units is None or hop.units < path.units else path.units
                for i in path.links:
                    crossing[i].append(len(routes))
                crossing[hop.link].append(len(routes))
                routes.append(Route(start, hop.dst, width, path.via, latencies[time]))

        # A link that one route alone crosses is narrow enough in that route's own units.
        caps = [Cap(tuple(members), units[i]) for i, members in enumerate(crossing) if len(members) > 1]
        for limit in self.limits:
            # A limit is the sum of what crosses its links: a route is listed once for each of its links in the limit.
            members = sorted(r for i in limit.links for r in crossing[i])
            if members:  # perhaps no route passes the links of this limit
                caps.append(Cap(tuple(members), int(limit.bandwidth / unit)))

        # The links themselves are kept for those who draw the machine or look for its symmetries.
        used = any(route.via for route in routes)  # perhaps no switch joins two ranks
        wires = tuple(
            (name.get(k.src, k.src), name.get(k.dst, k.dst), n) for k, n in zip(self.links, units, strict=True) if used
        )
        return Network(self.name, self.ranks, tuple(routes), tuple(caps), unit, wires, self.generators)

    def _switch_paths(
        self, start: int, leaving: list[list[_Hop]], name: dict[int, str]
    ) -> list[tuple[_SwitchPath, _Hop]]:
        """Paths from `start` to other ranks, each with its last link: direct links, and the shortest ones through
        switches.

        `leaving`: the links out of each rank and switch. `name`: the names of the switches.
        """
        best: dict[int, int] = {}  # links of the shortest path to each end; a path that comes back to one is longer
        paths: dict[int, list[tuple[_SwitchPath, _Hop]]] = {}
        queue: deque[tuple[int, _SwitchPath]] = deque([(start, _SwitchPath())])
        while queue:
            node, path = queue.popleft()
            length = len(path.links) + 1
            for hop in leaving[node]:
                end = hop.dst
                # Besides a direct link the shortest path through switches is a route of its own.
                direct = end < self.ranks and length == 1
                if end == start or (not direct and best.setdefault(end, length) < length):
                    continue
                if end >= self.ranks:
                    width = hop.units if path.units is None else min(path.units, hop.units)
                    via = (*path.via, name[end])
                    queue.append((end, _SwitchPath((*path.links, hop.link), via, width, path.ticks + hop.ticks)))
                    if len(queue) > MAX_OPEN_PATHS:
                        raise SynthError(
                            f"{self.name}: more than {MAX_OPEN_PATHS} paths lead from rank {start} through switches;"
                            " describe the fabric with limits instead of switches"
                        )
                    continue
                paths.setdefault(end, []).append((path, hop))
                if len(paths[end]) > MAX_ROUTES_PER_PAIR:
                    raise SynthError(
                        f"{self.name}: more than {MAX_ROUTES_PER_PAIR} switch paths from rank {start} to rank {end};"
                        " describe the fabric with limits instead of switches"
                    )
        return [path for end in sorted(paths) for path in paths[end]]


class _Hop(NamedTuple):
    """A link of a path: its number, the rank or switch it leads to, its units, and its latency in whole ticks."""

    link: int
    dst: int
    units: int
    ticks: int


class _SwitchPath(NamedTuple):
    """A path from a rank to a switch: its links, the switches, the units of its narrowest link (None: it has no link),
    and its latency in ticks."""

    links: tuple[int, ...] = ()
    via: tuple[str, ...] = ()
    units: int | None = None
    ticks: int = 0
