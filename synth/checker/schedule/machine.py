"""The machine of a schedule, read strictly from its document: links, limits, wires and switches, and what a step may
put on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple
from weakref import finalize

from synth.checker.fields import need
from synth.errors import VerificationError
from synth.model.documents import json_reader
from synth.model.documents.canonical_json import canonical, object_digest
from synth.model.documents.json_reader import items, number
from synth.model.gc_pause import collector_off
from synth.model.topology import Network

LinkKey = tuple[int, int, tuple[str, ...]]  # source, destination, and the switches between them
Wire = tuple[int | str, int | str]  # its ends: ranks or names of switches


@dataclass(frozen=True)
class Switch:
    """A switch that multicasts: whether own data use the port ("through"), and the limits of each rank's port.

    `up[rank]` are the limits that data into the switch count against, `down[rank]` those of data out of it.
    """

    through: bool
    up: dict[int, tuple[int, ...]]
    down: dict[int, tuple[int, ...]]


class LinkEnds(NamedTuple):
    """The links of a machine by their ends: (source, destination, units) of each; the numbers of those into, and out
    of, each rank; and the ranks that links, or switches that multicast, lead to from each rank."""

    links: list[tuple[int, int, int]]
    into: list[list[int]]
    out: list[list[int]]
    peers: list[set[int]]


@dataclass(frozen=True)
class ReplayMachine:
    """Links, limits and physical wires as the document gives them.

    Attributes
    ----------
    ranks : their number.
    links : the number of each link, in the order of the document.
    units : the units of each link.
    limits : (numbers of links, units) of each limit, which counts a link as often as it lists it.
    wires : the units of each wire.
    switches : the switches that multicast.
    problem : the fields of the document by which fingerprints name the machine.
    """

    ranks: int
    links: dict[LinkKey, int]
    units: list[int]
    limits: tuple[tuple[tuple[int, ...], int], ...]
    wires: dict[Wire, int]
    switches: dict[str, Switch]
    problem: dict[str, object]

    @staticmethod
    @collector_off()
    def read(doc: object, place: str) -> ReplayMachine:
        """Read the `topology` object of a schedule. Raises VerificationError where it makes no sense.

        Its wires are for `check_wires`: a certificate does not speak of them.
        """
        optional = {"wires", "latency_us", "multicast", "connections"}
        fields = json_reader.fields(doc, place, {"name", "ranks", "links", "limits", "unit_gbps"}, optional)
        json_reader.text(fields["name"], f"{place}.name")
        ranks = number(fields["ranks"], f"{place}.ranks", 1)
        need(json_reader.fraction(fields["unit_gbps"], f"{place}.unit_gbps"), "is 0", f"{place}.unit_gbps")
        number(fields.get("connections", 1), f"{place}.connections", 1)

        # each link has other ends, or another path, than those before
        links: dict[LinkKey, int] = {}
        units: list[int] = []
        for i, row in enumerate(items(fields["links"], f"{place}.links")):
            here = f"{place}.links[{i}]"
            need(
                type(row) is list and len(row) in (3, 4), "expected [src, dst, units] or [src, dst, units, path]", here
            )
            key = _link([*row[:2], *row[3:]], ranks, here)
            if links.setdefault(key, i) != i:
                raise VerificationError(f"link {key[0]} -> {key[1]} is listed twice", here)
            units.append(number(row[2], f"{here}[2]", 1))

        # a latency for each link, or none; ten thousand links have few different ones
        latencies = items(fields.get("latency_us", []), f"{place}.latency_us")
        need(len(latencies) in (0, len(units)), f"gives {len(latencies)} to {len(units)} links", f"{place}.latency_us")
        known: set[str] = set()
        for i, value in enumerate(latencies):
            if not isinstance(value, str) or value not in known:
                json_reader.fraction(value, f"{place}.latency_us[{i}]")
                known.add(value)

        # limits name links by their ends, and may share rows
        limits: list[tuple[tuple[int, ...], int]] = []
        read: dict[int, int] = {}
        for k, row in enumerate(items(fields["limits"], f"{place}.limits")):
            here = f"{place}.limits[{k}]"
            limit = json_reader.fields(row, here, {"links", "units"})
            members: list[int] = []
            for i, link in enumerate(items(limit["links"], f"{here}.links")):
                if id(link) not in read:
                    key = _link(link, ranks, f"{here}.links[{i}]")
                    need(key in links, f"limits a link {key[0]} -> {key[1]} that does not exist", here)
                    read[id(link)] = links[key]
                members.append(read[id(link)])
            limits.append((tuple(members), number(limit["units"], f"{here}.units", 1)))

        # wires between the same ends count together
        wires: dict[Wire, int] = {}
        for i, row in enumerate(items(fields.get("wires", []), f"{place}.wires")):
            here = f"{place}.wires[{i}]"
            need(len(items(row, here)) == 3, "expected [end, end, units]", here)
            wire = row[0], row[1]
            need({*map(type, wire)} <= {int, str}, "expected [end, end, units]", here)
            wires[wire] = wires.get(wire, 0) + number(row[2], f"{here}[2]", 1)
        switches: dict[str, Switch] = {}
        if "multicast" in fields:
            switches = _read_switches(fields["multicast"], ranks, len(limits), f"{place}.multicast")
        problem = {key: fields[key] for key in ("links", "limits", "multicast") if key in fields}
        return ReplayMachine(ranks, links, units, tuple(limits), wires, switches, problem)

    def check_wires(self, place: str) -> None:
        """Raise VerificationError where a link uses a wire that does not exist, or wires are listed for no link."""
        named = any(path for _, _, path in self.links)
        both = "wires are listed exactly when links name the switches on their way"
        need(bool(self.wires) == named, both, f"{place}.wires")
        if not self.wires:
            return
        for key in self.links:
            for hop in self.hops(key):
                if hop not in self.wires:
                    fault = f"link {key[0]} -> {key[1]} uses a wire {hop[0]} -> {hop[1]} that does not exist"
                    raise VerificationError(fault, place)

    @staticmethod
    def hops(key: LinkKey) -> list[Wire]:
        """Return the physical wires of a link."""
        src, dst, path = key
        return list(pairwise((src, *path, dst)))

    @cached_property
    def limits_of(self) -> list[list[int]]:
        """The limits that each link counts against, each as often as a send over it counts there."""
        limits_of: list[list[int]] = [[] for _ in self.units]
        for k, (members, _) in enumerate(self.limits):
            for i in members:
                limits_of[i].append(k)
        return limits_of

    @cached_property
    @collector_off()
    def ends(self) -> LinkEnds:
        """The links by their ends, for certificates."""
        ranks = range(self.ranks)
        found = LinkEnds([], [[] for _ in ranks], [], [])
        found.out.extend([] for _ in ranks)
        found.peers.extend(set() for _ in ranks)
        for i, (src, dst, _) in enumerate(self.links):
            found.links.append((src, dst, self.units[i]))
            found.into[dst].append(i)
            found.out[src].append(i)
            found.peers[src].add(dst)
        for switch in self.switches.values():
            for rank in switch.up:
                found.peers[rank].update(switch.up.keys() - {rank})
        return found

    @cached_property
    def _canonical_problem(self) -> dict[str, bytes]:
        return {key: canonical(value) for key, value in self.problem.items()}

    def problem_fingerprint(self, collective: dict) -> str:
        """Return the SHA-256 of links, limits, switches that multicast, pre, post and combining.

        `collective` has one chunk per unit. Raises LookupError where it lacks a field.
        """
        fields = {key: canonical(collective[key]) for key in ("combining", "post", "pre")}
        return object_digest(fields | self._canonical_problem)

    def check_loads(self, load: Counter[LinkKey], ports: Counter[int | Wire], rounds: int, place: str) -> None:
        """Raise VerificationError where a link, limit or wire carries more than its units times `rounds` in a step.

        `load`: number of sends over each link in the step. `ports`: what switch sends count against limits and wires.
        """
        against: Counter[int | Wire] = Counter(ports)
        for key, n in load.items():
            link = self.links[key]
            room = self.units[link] * rounds
            if n > room:
                fault = f"link {key[0]} -> {key[1]} carries {n} chunks, {rounds} rounds allow {room}"
                raise VerificationError(fault, place)
            for k in self.limits_of[link]:
                against[k] += n
            if self.wires:
                for hop in self.hops(key):
                    against[hop] += n

        # limits are counted by their numbers, wires by their ends
        for what, n in against.items():
            if isinstance(what, tuple):
                name, room = f"wire {what[0]} -> {what[1]}", self.wires[what] * rounds
            else:
                name, room = f"limit {what}", self.limits[what][1] * rounds
            need(n <= room, f"{name} carries {n} chunks, {rounds} rounds allow {room}", place)


_machines: dict[int, ReplayMachine] = {}  # by the id of each network that is there


def machine_of(topology: Network | object, place: str) -> ReplayMachine:
    """Return the machine of a document, or of a network, whose document is read once. Raises VerificationError."""
    if not isinstance(topology, Network):
        return ReplayMachine.read(topology, place)
    machine = _machines.get(id(topology))
    if machine is None:
        machine = _machines[id(topology)] = ReplayMachine.read(topology.document, place)
        finalize(topology, _machines.pop, id(topology), None).atexit = False
    return machine


def _link(row: object, ranks: int, place: str) -> LinkKey:
    """Return the ends and the path of a link, from [source, destination] and perhaps a path."""
    if type(row) is not list or len(row) not in (2, 3):
        raise VerificationError("expected [src, dst] or [src, dst, path]", place)
    src, dst = row[:2]
    for i, end in enumerate((src, dst)):
        if type(end) is not int or not 0 <= end < ranks:  # else no place is needed
            number(end, f"{place}[{i}]", 0, ranks)
    if src == dst:
        raise VerificationError(f"a link from rank {src} to itself", place)
    return src, dst, read_path(row[2], place) if len(row) == 3 else ()


def read_path(value: object, place: str) -> tuple[str, ...]:
    """Return the names of switches in a list that has some."""
    names = items(value, place)
    if not names or not set(map(type, names)) <= {str}:
        raise VerificationError("expected a list of switch names", place)
    return tuple(names)


def _read_switches(doc: object, ranks: int, limits: int, place: str) -> dict[str, Switch]:
    """Read the switches that multicast, on a machine of `limits` limits.

    Each port counts against a limit in each direction, or it would be free.
    """
    switches: dict[str, Switch] = {}
    for i, row in enumerate(items(doc, place)):
        here = f"{place}[{i}]"
        fields = json_reader.fields(row, here, {"switch", "own", "ports"})
        name = json_reader.text(fields["switch"], f"{here}.switch")
        own = json_reader.one_of(fields["own"], ("through", "local"), f"{here}.own")
        need(name not in switches, f"the switch {name} is listed twice", here)
        switch = switches[name] = Switch(own == "through", {}, {})
        for j, port in enumerate(items(fields["ports"], f"{here}.ports")):
            spot = f"{here}.ports[{j}]"
            need(len(items(port, spot)) == 3, "expected [rank, limits up, limits down]", spot)
            rank = number(port[0], spot, 0, ranks)
            need(rank not in switch.up, f"rank {rank} has two ports", spot)
            for side, numbers in ((switch.up, port[1]), (switch.down, port[2])):
                listed = [number(k, spot, 0, limits) for k in items(numbers, spot)]
                once = len(set(listed)) == len(listed) > 0
                need(once, f"the port of rank {rank} names no limit, or one twice", spot)
                side[rank] = tuple(listed)
        need(len(switch.up) > 1, "has fewer than two ports", here)
    need(switches, "is empty", place)
    return switches
