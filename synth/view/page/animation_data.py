"""What moves on the page: where ranks and links are drawn, and a schedule in few bytes.

    Machine   a drawing of ranks, switches and wires; which wires each route takes; caps that routes share
    Packed    a schedule over the routes of one Network, as deflated JSON in base 64 (unpacked by assets/replay.js)

The packed document is ``{"chunks", "combining", "from", "to", "wants", "rounds", "sends"}``: `from` and `to` hold for
each unit a rank, a list of ranks, or -1 for all of them; ``sends[t]`` is [routes, chunks, kinds], three columns as long
as step t has sends, ordered by route and chunk, routes as differences; kinds is 0 where all are copies. What rank n
adds of its own has the number n after those of the routes.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from synth.model.collective import Collective
from synth.model.rational import show
from synth.model.schedule import SEND_KINDS, Schedule
from synth.model.topology import Network, Topology
from synth.view.topology_svg import places

MOST_SENDS = 50_000
MOST_RANKS = 256
MOST_LINES = 5_000
_CLUSTER = re.compile(r"[\w.+-]+\*(\d{1,4})(?::[^\[\]]*)?")


@dataclass(frozen=True)
class Packed:
    """`data`: base 64; `sends`: how many there are."""

    data: str
    sends: int


@dataclass(frozen=True)
class Machine:
    """`ends`: (x, y, name, is a switch); `links`: (end, end, units, GB/s); `routes`: (src, dst, links on the way).

    `caps`: (name, units, routes that share them).
    """

    width: int
    height: int
    ends: tuple[tuple[float, float, str, bool], ...]
    links: tuple[tuple[int, int, int, str], ...]
    routes: tuple[tuple[int, int, tuple[int, ...]], ...]
    caps: tuple[tuple[str, int, tuple[int, ...]], ...]

    def to_json(self) -> dict:
        """As the page reads it."""
        return {
            "width": self.width,
            "height": self.height,
            "ends": [[round(x, 1), round(y, 1), name, int(s)] for x, y, name, s in self.ends],
            "links": [list(link) for link in self.links],
            "routes": [[a, b, list(way)] for a, b, way in self.routes],
            "caps": [[name, units, list(routes)] for name, units, routes in self.caps],
        }


def lack(schedule: Schedule) -> str:
    """Why this schedule is not shown step by step; empty where it is."""
    network = schedule.network
    sends = sum(len(step.sends) for step in schedule.steps)
    if sends > MOST_SENDS:
        return f"{sends} sends are not drawn step by step; at most {MOST_SENDS} are"
    if network.ranks > MOST_RANKS or len(network.wires or network.routes) > MOST_LINES:
        return (
            f"{network.ranks} ranks and {len(network.wires or network.routes)} links are not drawn; at most "
            f"{MOST_RANKS} and {MOST_LINES}"
        )
    return ""


def boxes(name: str, ranks: int) -> tuple[int, ...]:
    """The box of each rank of a machine called ``dgx1*2`` or ``dgx1*2:...``; () where the name says nothing of
    boxes."""
    said = _CLUSTER.fullmatch(name)
    count = int(said[1]) if said else 1
    return tuple(rank * count // ranks for rank in range(ranks)) if 1 < count <= ranks and not ranks % count else ()


def machine(network: Network) -> Machine:
    """The drawing of `network`: a circle of ranks, or one for each box where its name says that it has several."""
    switches = tuple(dict.fromkeys(end for a, b, _ in network.wires for end in (a, b) if isinstance(end, str)))
    several = boxes(network.name, network.ranks)
    spots, width, height = places(Topology(network.name, network.ranks, (), (), switches, several))
    wider = 1.35 if several else 1.0  # room for what travels between ranks of a box
    spots, width, height = [(x * wider, y * wider) for x, y in spots], round(width * wider), round(height * wider)
    names = [*map(str, range(network.ranks)), *switches]
    ends = tuple((x, y, name, i >= network.ranks) for i, ((x, y), name) in enumerate(zip(spots, names, strict=True)))
    if not network.wires:
        links = tuple((r.src, r.dst, r.units, show(r.units * network.unit)) for r in network.routes)
        routes = tuple((r.src, r.dst, (i,)) for i, r in enumerate(network.routes))
        caps = tuple(
            (_cap_name(network, cap.routes, k), cap.units, cap.routes) for k, cap in enumerate(network.caps, 1)
        )
        return Machine(width, height, ends, links, routes, caps)
    number = {name: network.ranks + i for i, name in enumerate(switches)}
    at = {(a, b): k for k, (a, b, _) in enumerate(network.wires)}
    links = tuple(
        (_end(a, number), _end(b, number), units, show(units * network.unit)) for a, b, units in network.wires
    )
    ways = [_way((r.src, *r.via, r.dst), at) for r in network.routes]
    routes = tuple((r.src, r.dst, way) for r, way in zip(network.routes, ways, strict=True))
    riders: dict[int, list[int]] = {}
    for i, way in enumerate(ways):
        for k in way:
            riders.setdefault(k, []).append(i)
    shared = set(map(tuple, riders.values()))
    own = [
        cap for cap in network.caps if tuple(sorted(cap.routes)) not in shared
    ]  # the others are the wires themselves
    caps = tuple((_cap_name(network, cap.routes, k), cap.units, cap.routes) for k, cap in enumerate(own, 1))
    return Machine(width, height, ends, links, routes, caps)


def _end(end: int | str, number: dict[str, int]) -> int:
    return end if isinstance(end, int) else number[end]


def _way(stops: tuple[int | str, ...], at: dict[tuple[int | str, int | str], int]) -> tuple[int, ...]:
    return tuple(at[a, b] for a, b in pairwise(stops) if (a, b) in at)


def _cap_name(network: Network, routes: Sequence[int], k: int) -> str:
    """What the routes of a limit have in common, else its number."""
    ends = [(network.routes[i].src, network.routes[i].dst) for i in routes]
    sources, targets = {a for a, _ in ends}, {b for _, b in ends}
    if len(sources) == 1:
        return f"all out of {next(iter(sources))}"
    if len(targets) == 1:
        return f"all into {next(iter(targets))}"
    return f"limit {k} ({len(set(routes))} links)"


def packed(schedule: Schedule) -> Packed:
    """`schedule` in few bytes. Raises KeyError where a send takes no route of its network."""
    index = {(r.src, r.dst, r.via): i for i, r in enumerate(schedule.network.routes)}
    ranks = schedule.network.ranks
    index |= {(n, n, ()): len(index) + n for n in range(ranks)}
    steps = []
    for step in schedule.steps:
        rows = sorted((index[s.src, s.dst, s.via], s.chunk, SEND_KINDS.index(s.kind)) for s in step.sends)
        routes = [row[0] - (rows[i - 1][0] if i else 0) for i, row in enumerate(rows)]
        kinds = [row[2] for row in rows]
        steps.append([routes, [row[1] for row in rows], kinds if any(kinds) else 0])
    task = schedule.collective
    doc = {
        "chunks": schedule.chunks,
        "combining": task.combining,
        "from": _sides(task.pre, task.ranks),
        "to": _sides(task.post, task.ranks),
        "wants": _wants(task),
        "rounds": [step.rounds for step in schedule.steps],
        "sends": steps,
    }
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = raw.compress(json.dumps(doc, separators=(",", ":")).encode()) + raw.flush()
    return Packed(
        base64.b64encode(data).decode(), sum(not send.local for step in schedule.steps for send in step.sends)
    )


def _sides(sets: tuple[frozenset[int], ...], ranks: int) -> list:
    return [-1 if len(s) == ranks else next(iter(s)) if len(s) == 1 else sorted(s) for s in sets]


def _wants(task: Collective) -> list | None:
    """For each unit [rank, contributions] where ranks want different sums."""
    return None if task.wants is None else [[[rank, sorted(want)] for rank, want in row] for row in task.wants]
