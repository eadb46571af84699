"""Data of the page's animations: the drawing of a machine, and schedules in few bytes.

    Machine   a drawing of ranks, switches and links; the links of each route; caps that have no link of their own
    Packed    a schedule over the routes of one Network, as deflated JSON in base 64 (unpacked by assets/replay.js)

The packed document is ``{"name", "root", "fingerprint", "timed", "chunks", "combining", "from", "to", "wants",
"rounds", "sends"}``, of which the page can make the schedule's document again. `from` and `to` hold for each unit a
rank, a list of ranks, or -1 for all of them; ``sends[t]`` is [routes, chunks, kinds], three columns with an entry for
each send of step t, ordered by route and chunk, routes as differences; kinds is 0 where all are copies. A send of
rank n to itself, which adds its own contribution, has the n-th number after those of the routes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from synth.model.collective import Collective
from synth.model.rational import show
from synth.model.schedule import SEND_KINDS, Schedule
from synth.model.topology import Network
from synth.view.drawings.machine_layout import layout
from synth.view.drawings.port_switches import Pairs, wiring

MOST_SENDS = 50_000  # maximum sends of a schedule that is animated
MOST_RANKS = 256  # maximum ranks of a machine that is drawn
MOST_ROUTES = 10_000  # maximum routes, or links where switches are listed, of a machine that is drawn


@dataclass(frozen=True)
class PackedSchedule:
    """A packed schedule. `data`: base 64. `sends`: number of sends over links."""

    data: str
    sends: int


@dataclass(frozen=True)
class MachineDrawing:
    """The drawing of a machine.

    `ends`: (x, y, name, is a switch). `links`: (end, end, units, GB/s, bend). `routes`: (src, dst, links of the
    path). `caps`: (name, units, routes that share them). `frames`: (x, y, width, height) about groups.
    `topology`: the topology's document, deflated, in base 64.
    """

    width: int
    height: int
    ends: tuple[tuple[float, float, str, bool], ...]
    links: tuple[tuple[int, int, int, str, float], ...]
    routes: tuple[tuple[int, int, tuple[int, ...]], ...]
    caps: tuple[tuple[str, int, tuple[int, ...]], ...]
    frames: tuple[tuple[float, float, float, float], ...]
    topology: str

    def to_json(self) -> dict:
        """Return the JSON that the page reads."""
        return {
            "width": self.width,
            "height": self.height,
            "ends": [[round(x, 1), round(y, 1), name, int(s)] for x, y, name, s in self.ends],
            "links": [[*link[:4], round(link[4])] for link in self.links],
            "routes": [[a, b, list(way)] for a, b, way in self.routes],
            "caps": [[name, units, list(routes)] for name, units, routes in self.caps],
            "topology": self.topology,
            "frames": [list(map(round, frame)) for frame in self.frames],
        }


def reason_not_drawn(schedule: Schedule) -> str:
    """Return the reason why this schedule is not shown step by step; empty where it is shown."""
    network = schedule.network
    if schedule.uses_multicast:
        return "sends of switches that multicast are not drawn step by step"
    sends = sum(len(step.sends) for step in schedule.steps)
    if sends > MOST_SENDS:
        return f"{sends} sends are not drawn step by step; at most {MOST_SENDS} are"
    if network.ranks > MOST_RANKS or len(network.wires or network.routes) > MOST_ROUTES:
        return (
            f"{network.ranks} ranks and {len(network.wires or network.routes)} links are not drawn; at most "
            f"{MOST_RANKS} and {MOST_ROUTES}"
        )
    return ""


@lru_cache(maxsize=64)
def machine(network: Network) -> MachineDrawing:
    """Return the drawing of `network`, with the switches that it names or that its limits show."""
    if network.wires:
        names = tuple(dict.fromkeys(end for a, b, _ in network.wires for end in (a, b) if isinstance(end, str)))
        number = {name: network.ranks + i for i, name in enumerate(names)}
        at = {(a, b): k for k, (a, b, _) in enumerate(network.wires)}
        lines = [(_end(a, number), _end(b, number), units) for a, b, units in network.wires]
        names, lines, paths = names, lines, [_path((r.src, *r.via, r.dst), at) for r in network.routes]
        users: dict[int, list[int]] = {}
        for i, path in enumerate(paths):
            for k in path:
                users.setdefault(k, []).append(i)
        link_users = set(map(tuple, users.values()))
        # a cap on all routes over one link is that link, which is drawn already
        extra = [cap for cap in network.caps if tuple(sorted(cap.routes)) not in link_users]
    else:
        pairs = [(r.src, r.dst, r.units) for r in network.routes]
        found = wiring(Pairs(network.ranks, pairs, [(cap.routes, cap.units) for cap in network.caps]))
        names, lines, paths = found.names, found.lines, found.paths
        extra = [network.caps[k] for k in found.limits]
    # Places of all ends, and the links, routes and limits by their numbers.
    names = [*map(str, range(network.ranks)), *names]
    drawn = layout(network.ranks, lines, len(names))
    ends = tuple(
        (x, y, name, i >= network.ranks) for i, ((x, y), name) in enumerate(zip(drawn.spots, names, strict=True))
    )
    links = tuple(
        (a, b, int(units), show(units * network.unit), bend)
        for (a, b, units), bend in zip(lines, drawn.bends, strict=True)
    )
    routes = tuple((r.src, r.dst, path) for r, path in zip(network.routes, paths, strict=True))
    caps = tuple((_cap_name(network, cap.routes, k), cap.units, cap.routes) for k, cap in enumerate(extra, 1))
    return MachineDrawing(
        drawn.width, drawn.height, ends, links, routes, caps, drawn.frames, _deflated(network.document)
    )


def _end(end: int | str, number: dict[str, int]) -> int:
    return end if isinstance(end, int) else number[end]


def _path(stops: tuple[int | str, ...], at: dict[tuple[int | str, int | str], int]) -> tuple[int, ...]:
    return tuple(at[a, b] for a, b in pairwise(stops) if (a, b) in at)


def _cap_name(network: Network, routes: Sequence[int], k: int) -> str:
    # A limit of one source or one destination is named by it.
    ends = [(network.routes[i].src, network.routes[i].dst) for i in routes]
    sources = {source for source, _ in ends}
    targets = {target for _, target in ends}
    if len(sources) == 1:
        return f"all out of {next(iter(sources))}"
    if len(targets) == 1:
        return f"all into {next(iter(targets))}"
    return f"limit {k} ({len(set(routes))} links)"


def pack_schedule(schedule: Schedule) -> PackedSchedule:
    """Return `schedule` as a deflated document for the page. Raises KeyError if a send uses no route of its network."""
    # Routes by number, then each rank's own addition.
    index = {(r.src, r.dst, r.via): i for i, r in enumerate(schedule.network.routes)}
    ranks = schedule.network.ranks
    index |= {(n, n, ()): len(index) + n for n in range(ranks)}
    steps = []
    for step in schedule.steps:
        rows = sorted((index[s.src, s.dst, s.via], s.chunk, SEND_KINDS.index(s.kind)) for s in step.sends)
        routes, last = [], 0
        for route, _, _ in rows:
            routes.append(route - last)
            last = route
        chunks = [chunk for _, chunk, _ in rows]
        kinds = [kind for _, _, kind in rows]
        steps.append([routes, chunks, kinds if any(kinds) else 0])
    # What the page needs to make the document of the schedule again.
    collective = schedule.collective
    doc = {
        "name": collective.name,
        "root": collective.document["root"],
        "fingerprint": schedule.problem.fingerprint,
        "timed": schedule.timed,
        "chunks": schedule.chunks,
        "combining": collective.combining,
        "from": [_side(ranks_of_unit, ranks) for ranks_of_unit in collective.pre],
        "to": [_side(ranks_of_unit, ranks) for ranks_of_unit in collective.post],
        "wants": _wants(collective),
        "rounds": [step.rounds for step in schedule.steps],
        "sends": steps,
    }
    return PackedSchedule(_deflated(doc), sum(not send.local for step in schedule.steps for send in step.sends))


def _deflated(doc: dict) -> str:
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = raw.compress(json.dumps(doc, separators=(",", ":")).encode()) + raw.flush()
    return base64.b64encode(data).decode()


def _side(members: frozenset[int], ranks: int) -> int | list[int]:
    if len(members) == ranks:
        return -1
    return next(iter(members)) if len(members) == 1 else sorted(members)


def _wants(collective: Collective) -> list | None:
    if collective.wants is None:
        return None
    units = []
    for row in collective.wants:
        units.append([[rank, sorted(contributors)] for rank, contributors in row])
    return units
