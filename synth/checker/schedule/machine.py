"""The machine of a schedule, read strictly: its links, limits and wires, and the loads of a step.

It is read from a document, or from a network: both by the same rules, which `ReplayMachine.read` has for documents and
`ReplayMachine.of_network` for the values of a network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain, pairwise, repeat
from operator import eq
from weakref import finalize

from synth.errors import VerificationError
from synth.model.documents import json_reader
from synth.model.documents.canonical_json import canonical, object_digest
from synth.model.gc_pause import collector_off
from synth.model.topology import Network, Route

KINDS = ("copy", "reduce", "copy-input", "reduce-input")
SWITCH_KINDS = ("multicast", "multicast-reduce", "fetch-reduce")

LinkKey = tuple[int, int, tuple[str, ...]]
Wire = tuple[int | str, int | str]  # its ends: ranks or names of switches


@dataclass(frozen=True)
class Switch:
    """A switch that multicasts: whether own data use the port ("through"), and the limits of each rank's port.

    `up[rank]` are the limits that data into the switch count against, `down[rank]` those of data out of it.
    """

    through: bool
    up: dict[int, tuple[int, ...]]
    down: dict[int, tuple[int, ...]]

    def loads(self, rank: int, group: list[int], kind: str) -> list[int]:
        """Return the limits that a send between `rank` and `group` counts against, each as often as it counts."""
        one, many = (self.down, self.up) if kind == "fetch-reduce" else (self.up, self.down)
        limits = list(one[rank])
        for member in self._counted(rank, group):
            limits += many[member]
        return limits

    def wires(self, name: str, rank: int, group: list[int], kind: str) -> list[Wire]:
        """Return the wires between the switch, called `name`, and ranks that a send between `rank` and `group` uses."""
        if kind == "fetch-reduce":
            return [(name, rank), *((member, name) for member in self._counted(rank, group))]
        return [(rank, name), *((name, member) for member in self._counted(rank, group))]

    def _counted(self, rank: int, group: list[int]) -> list[int]:
        """Return the members of `group` whose data use their port: all with "through", else not the issuer `rank`."""
        return [member for member in group if member != rank or self.through]


@dataclass(frozen=True)
class DirectedLinks:
    """The links of a machine, or those of it turned round, by their ends.

    Attributes
    ----------
    links : (source, destination, units) of each link, by its number.
    into, out : numbers of the links into, and out of, each rank.
    peers : the ranks that links lead to from each rank.
    """

    links: list[tuple[int, int, int]]
    into: list[list[int]]
    out: list[list[int]]
    peers: list[frozenset[int]]

    @staticmethod
    @collector_off()
    def of(links: list[tuple[int, int, int]], ranks: int) -> DirectedLinks:
        """Return the links of a machine of `ranks` by their ends."""
        into: list[list[int]] = [[] for _ in range(ranks)]
        out: list[list[int]] = [[] for _ in range(ranks)]
        for i, (src, dst, _) in enumerate(links):
            out[src].append(i)
            into[dst].append(i)
        peers = []
        for row in out:
            peers.append(frozenset([links[i][1] for i in row]))
        return DirectedLinks(links, into, out, peers)


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
    further : the fields of the document on `switches`, by which fingerprints name them.
    """

    ranks: int
    links: dict[LinkKey, int]
    units: list[int]
    limits: tuple[tuple[tuple[int, ...], int], ...]
    wires: dict[Wire, int]
    switches: dict[str, Switch] = field(default_factory=dict)
    further: dict[str, object] = field(default_factory=dict)

    @staticmethod
    @collector_off()
    def read(doc: object, place: str) -> ReplayMachine:
        """Read the `topology` object of a schedule. Raises VerificationError where it makes no sense.

        Its wires are for `check_wires`: a certificate does not speak of them.
        """
        optional = {"wires", "latency_us", "multicast", "connections"}
        fields = json_reader.fields(doc, place, {"name", "ranks", "links", "limits", "unit_gbps"}, optional)
        ranks = json_reader.number(fields["ranks"], f"{place}.ranks", 1)
        paths: dict[int, tuple[str, ...]] = {}  # by the id of a list of switches, which many rows may share
        rows = json_reader.items(fields["links"], f"{place}.links")
        if not set(map(type, rows)) <= {list} or not set(map(len, rows)) <= {3, 4}:
            for i, row in enumerate(rows):
                here = f"{place}.links[{i}]"
                if len(json_reader.items(row, here)) not in (3, 4):
                    raise VerificationError("expected [src, dst, units] or [src, dst, units, path]", here)
        keys = _link_keys(rows, 1, ranks, paths, f"{place}.links")
        links = dict(zip(keys, range(len(keys)), strict=True))
        if len(links) < len(keys):
            src, dst, _ = twice = next(key for i, key in enumerate(keys) if links[key] > i)
            raise VerificationError(f"link {src} -> {dst} is listed twice", f"{place}.links[{links[twice]}]")
        units = [row[2] for row in rows]
        if set(map(type, units)) != {int} or min(units) < 1 or max(units) >= json_reader.BIG:  # else no place is needed
            for i, n in enumerate(units):
                json_reader.number(n, f"{place}.links[{i}][2]", 1)
        limits: list[tuple[tuple[int, ...], int]] = []
        read: dict[int, int] = {}  # numbers of links by the id of a row, which several limits may share
        for k, row in enumerate(json_reader.items(fields["limits"], f"{place}.limits")):
            here = f"{place}.limits[{k}]"
            cap = json_reader.fields(row, here, {"links", "units"})
            members = json_reader.items(cap["links"], f"{here}.links")
            same = list(map(id, members))
            new = [row for row, row_id in zip(members, same, strict=True) if row_id not in read]
            for row, key in zip(new, _link_keys(new, 0, ranks, paths, f"{here}.links"), strict=True):
                number = read[id(row)] = links.get(key, -1)
                if number < 0:
                    raise VerificationError(f"limits a link {key[0]} -> {key[1]} that does not exist", here)
            limits.append((tuple(map(read.__getitem__, same)), json_reader.number(cap["units"], f"{here}.units", 1)))
        wires = _read_wires(fields.get("wires", []), f"{place}.wires")
        switches: dict[str, Switch] = {}
        if "multicast" in fields:
            switches = _read_switches(fields["multicast"], ranks, len(limits), f"{place}.multicast")
        _check_name_and_latencies(fields, place)
        json_reader.number(fields.get("connections", 1), f"{place}.connections", 1)
        further = {key: fields[key] for key in ("multicast",) if key in fields}
        return ReplayMachine(ranks, links, units, tuple(limits), wires, switches, further)

    @staticmethod
    @collector_off()
    def of_network(network: Network) -> ReplayMachine | None:
        """Return the machine of a network's values, column by column; None where its document is to be read.

        So it is for values that the document could not have, for which the document's reader says what is wrong, and
        for networks with switches that multicast.
        """
        if network.multicast or not _are_numbers([network.ranks], 1) or not set(map(type, network.routes)) <= {Route}:
            return None
        src, dst, units, paths, latencies = zip(*network.routes, strict=True) if network.routes else ((),) * 5
        if not _are_numbers((*src, *dst), 0, network.ranks) or any(map(eq, src, dst)) or not _are_numbers(units, 1):
            return None
        for path in dict(zip(map(id, paths), paths, strict=True)).values():  # many routes share one
            if type(path) is not tuple or not set(map(type, path)) <= {str}:
                return None
        for latency in dict(zip(map(id, latencies), latencies, strict=True)).values():
            if type(latency) is not Fraction or latency < 0:
                return None
        keys: list[LinkKey] = list(zip(src, dst, paths, strict=True))
        links = dict(zip(keys, range(len(keys)), strict=True))
        limits = []
        for cap in network.caps:
            whole = type(cap.routes) is tuple and _are_numbers(cap.routes, 0, len(src))
            if not whole or not _are_numbers([cap.units], 1):
                return None
            limits.append((cap.routes, cap.units))
        if len(links) < len(src) or type(network.unit) is not Fraction or network.unit <= 0:
            return None
        if not _are_numbers([network.connections], 1):
            return None
        if not isinstance(network.name, str) or not network.name.isprintable():
            return None
        try:
            wires = _read_wires(list(map(list, network.wires)), "")
        except VerificationError:
            return None
        return ReplayMachine(network.ranks, links, list(units), tuple(limits), wires)

    def check_wires(self, place: str) -> None:
        """Raise VerificationError where a link uses a wire that does not exist, or wires are listed for no link."""
        if self._wires_fault is not None:
            message, field = self._wires_fault
            raise VerificationError(message, place + field)

    @cached_property
    def _wires_fault(self) -> tuple[str, str] | None:
        """The fault of the wires and its place, None where there is none; a path that links share is checked once."""
        wires, right = self.wires, set[tuple[str, ...]]()
        if bool(wires) != any(path for *_, path in self.links):
            return "wires are listed exactly when links name the switches on their way", ".wires"
        for key in self.links if wires else ():
            src, dst, path = key
            if path in right and (src, path[0]) in wires and (path[-1], dst) in wires:
                continue
            for hop in self.hops(key):
                if hop not in wires:
                    return f"link {src} -> {dst} uses a wire {hop[0]} -> {hop[1]} that does not exist", ""
            if path:
                right.add(path)
        return None

    @cached_property
    def directed(self) -> DirectedLinks:
        """The links by their ends."""
        rows = [(src, dst, n) for (src, dst, _), n in zip(self.links, self.units, strict=True)]
        return DirectedLinks.of(rows, self.ranks)

    @cached_property
    def turned(self) -> DirectedLinks:
        """The links turned round, by their ends."""
        rows = [(dst, src, n) for (src, dst, _), n in zip(self.links, self.units, strict=True)]
        return DirectedLinks.of(rows, self.ranks)

    @cached_property
    def limits_of(self) -> list[list[int]]:
        """The limits that each link counts against, each as often as a send over it counts there."""
        limits_of: list[list[int]] = [[] for _ in self.units]
        for k, (members, _) in enumerate(self.limits):
            for i in members:
                limits_of[i].append(k)
        return limits_of

    def problem_fingerprint(self, collective: dict) -> str:
        """Return the SHA-256 of links, limits, switches that multicast, pre, post and combining.

        `collective` has one chunk per unit. Raises LookupError where it lacks a field.
        """
        fields = {key: canonical(collective[key]) for key in ("combining", "post", "pre")}
        return object_digest(fields | self._canonical_fields)

    @cached_property
    def _canonical_fields(self) -> dict[str, bytes]:
        """The canonical JSON of links, limits, and switches that multicast where there are any.

        It is that of the fields that were read. The text of a link is joined into all limits that hold it.
        """
        paths: dict[tuple[str, ...], str] = {(): ""}
        for path in {path for *_, path in self.links} - {()}:
            paths[path] = "," + canonical(path).decode()
        ends = [f"[{src},{dst}{paths[path]}]" for src, dst, path in self.links]
        rows = [f"[{src},{dst},{n}{paths[path]}]" for (src, dst, path), n in zip(self.links, self.units, strict=True)]
        limits = []
        for members, units in self.limits:
            limits.append(f'{{"links":[{",".join(map(ends.__getitem__, members))}],"units":{units}}}')
        texts = {"links": f"[{','.join(rows)}]".encode(), "limits": f"[{','.join(limits)}]".encode()}
        return texts | {key: canonical(value) for key, value in self.further.items()}

    @staticmethod
    def hops(key: LinkKey) -> list[Wire]:
        """Return the physical wires of a link."""
        ends = [key[0], *key[2], key[1]]
        return list(pairwise(ends))

    def check_loads(self, load: dict[LinkKey, int], ports: Counter[int | Wire], rounds: int, place: str) -> None:
        """Raise VerificationError where a link, limit or wire carries more than its units times `rounds` in a step.

        `load`: number of sends over each link in the step. `ports`: what switch sends count against limits and wires.
        """
        for (src, dst, via), n in load.items():
            room = self.units[self.links[src, dst, via]] * rounds
            if n > room:
                raise VerificationError(f"link {src} -> {dst} carries {n} chunks, {rounds} rounds allow {room}", place)
        against = [0] * len(self.limits)
        for key, n in load.items():
            for k in self.limits_of[self.links[key]]:
                against[k] += n
        for i, (_, units) in enumerate(self.limits):
            n = against[i] + ports[i]
            if n > units * rounds:
                raise VerificationError(f"limit {i} carries {n} chunks, {rounds} rounds allow {units * rounds}", place)
        if self.wires:
            physical: Counter[Wire] = Counter()
            for wire, n in ports.items():
                if isinstance(wire, tuple):
                    physical[wire] += n
            for key, n in load.items():
                for hop in self.hops(key):
                    physical[hop] += n
            for (a, b), n in physical.items():
                if n > self.wires[a, b] * rounds:
                    raise VerificationError(
                        f"wire {a} -> {b} carries {n} chunks, {rounds} rounds allow {self.wires[a, b] * rounds}", place
                    )


_machines: dict[int, ReplayMachine] = {}  # by the id of each network that is there


def machine_of(topology: Network | object, place: str) -> ReplayMachine:
    """Return the machine of a document, or of a network, which is read once. Raises VerificationError."""
    if not isinstance(topology, Network):
        return ReplayMachine.read(topology, place)
    machine = _machines.get(id(topology))
    if machine is None:
        machine = ReplayMachine.of_network(topology) or ReplayMachine.read(topology.document, place)
        _machines[id(topology)] = machine
        finalize(topology, _machines.pop, id(topology), None).atexit = False
    return machine


def _are_numbers(values: Collection[int], low: int, below: int = json_reader.BIG) -> bool:
    """Return True where all values are plain integers, as their types say, from `low` to below `below`."""
    return set(map(type, values)) <= {int} and min(values, default=low) >= low and max(values, default=low) < below


def _check_name_and_latencies(fields: dict, place: str) -> None:
    """Check a topology's name, that its unit is above 0, and that it has no latency or one for each link."""
    json_reader.text(fields["name"], f"{place}.name")
    if not json_reader.fraction(fields["unit_gbps"], f"{place}.unit_gbps"):
        raise VerificationError("is 0: a unit of bandwidth is more than nothing", f"{place}.unit_gbps")
    latency = json_reader.items(fields.get("latency_us", []), f"{place}.latency_us")
    known: set[str] = set()  # ten thousand links have few different latencies
    for i, value in enumerate(latency):
        if not isinstance(value, str) or value not in known:
            json_reader.fraction(value, f"{place}.latency_us[{i}]")
            known.add(value)
    if latency and len(latency) != len(fields["links"]):
        raise VerificationError(
            f"gives {len(latency)} latencies to {len(fields['links'])} links", f"{place}.latency_us"
        )


def _link_keys(rows: list, skipped: int, ranks: int, paths: dict[int, tuple[str, ...]], place: str) -> list[LinkKey]:
    """Return the ends and the path of each of many rows: source, destination, `skipped` fields and perhaps a path.

    `paths`: those read before, by the ids of their lists. Rows of one length are read column by column. Where something
    is amiss, each row is looked at by `_link_key`, which raises VerificationError.
    """
    lengths = set(map(len, rows)) if set(map(type, rows)) == {list} else set[int]()
    if lengths in ({2 + skipped}, {3 + skipped}):
        src, dst, *rest = zip(*rows, strict=True)
        whole = set(map(type, chain(src, dst))) == {int} and min(*src, *dst) >= 0 and max(*src, *dst) < ranks
        if whole and not any(map(eq, src, dst)):
            with suppress(VerificationError):
                new = {id(path): path for path in chain(*rest[skipped:]) if id(path) not in paths}
                paths.update((path_id, _path(path, place)) for path_id, path in new.items())
                column = map(paths.__getitem__, map(id, *rest[skipped:])) if rest[skipped:] else repeat((), len(rows))
                return list(zip(src, dst, column, strict=True))
    return [_link_key([*row[:2], *row[2 + skipped :]], ranks, paths, f"{place}[{i}]") for i, row in enumerate(rows)]


def _link_key(row: object, ranks: int, paths: dict[int, tuple[str, ...]], place: str) -> LinkKey:
    """Return the ends and the path of a link. `paths`: those read before, by the ids of their lists."""
    row = json_reader.items(row, place)
    if len(row) not in (2, 3):
        raise VerificationError("expected [src, dst] or [src, dst, path]", place)
    src, dst = row[:2]
    for i, end in enumerate((src, dst)):
        if type(end) is not int or not 0 <= end < ranks:  # else no place is needed
            json_reader.number(end, f"{place}[{i}]", 0, ranks)
    if src == dst:
        raise VerificationError(f"a link from rank {src} to itself", place)
    if len(row) == 2:
        return src, dst, ()
    path = paths.get(id(row[2]))
    if path is None:
        path = paths[id(row[2])] = _path(row[2], place)
    return src, dst, path


def _read_wires(doc: object, place: str) -> dict[Wire, int]:
    wires: dict[Wire, int] = {}
    for i, row in enumerate(json_reader.items(doc, place)):
        here = f"{place}[{i}]"
        if len(json_reader.items(row, here)) != 3 or not all(
            isinstance(end, str) or type(end) is int for end in row[:2]
        ):
            raise VerificationError("expected [end, end, units]", here)
        wires[row[0], row[1]] = wires.get((row[0], row[1]), 0) + json_reader.number(row[2], f"{here}[2]", 1)
    return wires


def count_loads(rows: list, chunks: int, machine: ReplayMachine, place: str) -> dict[LinkKey, int]:
    """Return the number of sends of a step over each link, after checking the form of every row.

    `rows`: the sends as the document gives them. `chunks`: number of chunks. Raises VerificationError. Rows without
    paths are counted in one plain loop, as a step may have some ten thousand; where something is amiss, or there are
    paths, each is looked at by `_send`.
    """
    load: dict[int, dict[int, int]] = {}
    try:
        for chunk, src, dst, kind in rows:
            if (
                type(chunk) is not int
                or type(src) is not int
                or type(dst) is not int
                or not 0 <= chunk < chunks
                or kind not in KINDS
            ):
                break
            try:
                load[src][dst] += 1
            except KeyError:  # the first on its link
                if (src, dst, ()) not in machine.links:
                    break
                load.setdefault(src, {})[dst] = 1
        else:
            return {(src, dst, ()): n for src, row in load.items() for dst, n in row.items()}
    except (TypeError, ValueError):  # no row of four
        pass
    keys = [_send(row, chunks, machine, f"{place}[{i}]") for i, row in enumerate(rows)]
    return Counter([key for key in keys if key is not None])


def _send(row: object, chunks: int, machine: ReplayMachine, place: str) -> LinkKey | None:
    """Return the link of a send; None for a rank that adds its input to what it holds, or puts it there."""
    row = json_reader.items(row, place)
    if len(row) not in (4, 5):
        raise VerificationError("expected [chunk, src, dst, kind] or [chunk, src, dst, kind, path]", place)
    json_reader.number(row[0], f"{place}[0]", 0, chunks)
    src, dst = (
        json_reader.number(row[1], f"{place}[1]", 0, machine.ranks),
        json_reader.number(row[2], f"{place}[2]", 0, machine.ranks),
    )
    via = _path(row[4], f"{place}[4]") if len(row) == 5 else ()
    if row[3] not in KINDS:
        raise VerificationError(f"kind {row[3]!r} is none of {', '.join(KINDS)}", f"{place}[3]")
    if src == dst and not via and row[3] in ("copy-input", "reduce-input"):
        return None
    if (src, dst, via) not in machine.links:
        through = f" through {' '.join(via)}" if via else ""
        raise VerificationError(f"there is no link {src} -> {dst}{through}", place)
    return src, dst, via


def _read_switches(doc: object, ranks: int, limits: int, place: str) -> dict[str, Switch]:
    """Read the switches that multicast, on a machine of `limits` limits.

    Each port counts against a limit in each direction, or it would be free.
    """
    switches: dict[str, Switch] = {}
    for i, row in enumerate(json_reader.items(doc, place)):
        here = f"{place}[{i}]"
        fields = json_reader.fields(row, here, {"switch", "own", "ports"})
        name = json_reader.text(fields["switch"], f"{here}.switch")
        if name in switches:
            raise VerificationError(f"the switch {name} is listed twice", here)
        own = json_reader.one_of(fields["own"], ("through", "local"), f"{here}.own")
        up: dict[int, tuple[int, ...]] = {}
        down: dict[int, tuple[int, ...]] = {}
        for j, port in enumerate(json_reader.items(fields["ports"], f"{here}.ports")):
            spot = f"{here}.ports[{j}]"
            if len(json_reader.items(port, spot)) != 3:
                raise VerificationError("expected [rank, limits up, limits down]", spot)
            rank = json_reader.number(port[0], spot, 0, ranks)
            if rank in up:
                raise VerificationError(f"rank {rank} has two ports", spot)
            for side, numbers in ((up, port[1]), (down, port[2])):
                listed = json_reader.items(numbers, spot)
                side[rank] = tuple(json_reader.number(k, spot, 0, limits) for k in listed)
                if not side[rank] or len(set(side[rank])) < len(side[rank]):
                    raise VerificationError(f"the port of rank {rank} names no limit, or one twice", spot)
        if len(up) < 2:
            raise VerificationError("has fewer than two ports", here)
        switches[name] = Switch(own == "through", up, down)
    if not switches:
        raise VerificationError("is empty", place)
    return switches


def switch_sends(rows: list, chunks: int, machine: ReplayMachine, place: str) -> tuple[list[list], Counter[int | Wire]]:
    """Return the sends from rank to rank with the effect of the switch sends `rows`, and their loads.

    The loads are those of limits, by index, and of wires, where wires end at the switch. Each send ends with the place
    of its row, after an unused path. `chunks`: number of chunks. Raises VerificationError for a row that is wrong.
    """
    moves: list[list] = []
    loads: Counter[int | Wire] = Counter()
    wired = set(chain.from_iterable(machine.wires))
    for i, row in enumerate(rows):
        here = f"{place}[{i}]"
        if len(json_reader.items(row, here)) != 5:
            raise VerificationError("expected [chunk, rank, group, kind, switch]", here)
        chunk = json_reader.number(row[0], f"{here}[0]", 0, chunks)
        rank = json_reader.number(row[1], f"{here}[1]", 0, machine.ranks)
        group = [json_reader.number(r, f"{here}[2]", 0, machine.ranks) for r in json_reader.items(row[2], f"{here}[2]")]
        kind = json_reader.one_of(row[3], SWITCH_KINDS, f"{here}[3]")
        switch = machine.switches.get(json_reader.text(row[4], f"{here}[4]"))
        if switch is None:
            raise VerificationError(f"there is no switch {row[4]} that multicasts", f"{here}[4]")
        if any(a >= b for a, b in pairwise(group)) or rank not in group or len(group) < 2:
            raise VerificationError(f"expected ascending ranks, rank {rank} and others", f"{here}[2]")
        for member in group:
            if member not in switch.up:
                raise VerificationError(f"rank {member} has no port at {row[4]}", f"{here}[2]")
        for member in group:
            if member == rank:
                continue
            if kind == "fetch-reduce":
                moves.append([chunk, member, rank, "reduce", None, here])
            else:
                moves.append([chunk, rank, member, "copy" if kind == "multicast" else "reduce", None, here])
        loads.update(switch.loads(rank, group, kind))
        for wire in switch.wires(row[4], rank, group, kind) if row[4] in wired else ():
            if wire not in machine.wires:
                raise VerificationError(f"there is no wire {wire[0]} -> {wire[1]}", here)
            loads[wire] += 1
    return moves, loads


def _path(value: object, place: str) -> tuple[str, ...]:
    names = json_reader.items(value, place)
    if not names:
        raise VerificationError("expected a list of switch names", place)
    for name in names:
        if not isinstance(name, str):
            raise VerificationError("expected a list of switch names", place)
    return tuple(names)
