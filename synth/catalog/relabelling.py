"""A frontier in another numbering: schedules and certificates moved, so that they are checked like any others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from synth.catalog.isomorphism import Relabelling
from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.schedule import Schedule, Send, Step, problem_fingerprint
from synth.model.symmetry import compose, inverse
from synth.model.topology import Network, Route


@dataclass(frozen=True)
class Move:
    """From the problem that is kept to the one that is asked. Everything in `kept` numbering goes in, everything in
    `asked` comes out."""

    kept: tuple[Network, Collective]
    asked: tuple[Network, Collective]
    map: Relabelling

    @cached_property
    def digest(self) -> str:
        """What certificates of the asked problem speak about."""
        return problem_fingerprint(*self.asked)

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """Where each limit is; equal ones in their order."""
        places: dict[tuple, list[int]] = {}
        for k, cap in enumerate(self.asked[0].caps):
            places.setdefault((tuple(sorted(cap.routes)), cap.units), []).append(k)
        moved = [(tuple(sorted(self.map.routes[i] for i in cap.routes)), cap.units) for cap in self.kept[0].caps]
        return tuple(places[cap].pop(0) for cap in moved)

    @cached_property
    def route(self) -> dict[tuple, Route]:
        """The route that each route, by its ends and switches, becomes."""
        return {
            (r.src, r.dst, r.via): self.asked[0].routes[i]
            for r, i in zip(self.kept[0].routes, self.map.routes, strict=True)
        }

    def ranked(self, row: Sequence[Any]) -> list[Any]:
        """A list with one item for each rank."""
        return [row[r] for r in inverse(self.map.ranks)]


def frontier(
    given: Frontier, network: Network, collective: Collective, map: Relabelling, labels: Sequence[int] = ()
) -> Frontier:
    """`given` for `network` and `collective`, which `map` makes of its own: schedules replay, certificates prove the
    same bounds."""
    move = Move((given.network, given.collective), (network, collective), map)
    points = tuple(_point(p, move) for p in given.points)
    opened = tuple(replace(o, certificate=certificate(o.certificate, move)) if o.certificate else o for o in given.open)
    bounds = tuple((steps, _bound(b, move)) for steps, b in given.bounds)
    return replace(
        given, network=network, collective=collective, points=points, open=opened, bounds=bounds, labels=tuple(labels)
    )


def _point(given: Point, move: Move) -> Point:
    moved = schedule(given.schedule, move)
    # What a step adds does not depend on the numbering, but is cheap to look at again.
    return replace(given, schedule=moved, bound=_bound(given.bound, move), same_bits=same_bits(moved))


def _bound(given: LowerBound, move: Move) -> LowerBound:
    return replace(given, certificate=certificate(given.certificate, move))


def schedule(given: Schedule, move: Move) -> Schedule:
    """The same sends in the other numbering."""
    chunks, units, ways = given.chunks, move.map.units, move.route

    def send(s: Send) -> Send:
        unit, i = divmod(s.chunk, chunks)
        if s.local:
            return Send(units[unit] * chunks + i, move.map.ranks[s.src], move.map.ranks[s.src], s.kind)
        way = ways[s.src, s.dst, s.via]
        return Send(units[unit] * chunks + i, way.src, way.dst, s.kind, way.via)

    steps = tuple(Step(step.rounds, tuple(sorted(map(send, step.sends)))) for step in given.steps)
    return Schedule(*move.asked, chunks, steps)


def certificate(given: dict, move: Move) -> dict:
    """The certificate for the asked problem (kinds: docs/proofs.md). Raises KeyError for a kind that is not known."""
    moved = given | {"problem": move.digest}
    match given["kind"]:
        case "distance":
            return moved | {"pair": _pair(given["pair"], move)}
        case "unreachable":
            return moved | {
                "pair": _pair(given["pair"], move),
                "closed": sorted(move.map.ranks[r] for r in given["closed"]),
            }
        case "one-chunk" | "too-few-steps":
            return moved | {"numbering": _numbering(given.get("numbering"), move)}
        case "static-cuts" | "deadline-cuts" | "deadline-cut-trees" | "allreduce-cuts":
            return moved | _packing(given, move)
    raise KeyError(f"certificate of kind {given['kind']!r}")


def _pair(pair: list, move: Move) -> list:
    return [move.map.units[pair[0]], move.map.ranks[pair[1]]] if pair else []


def _packing(given: dict, move: Move) -> dict:
    """The fields of cuts and the prices that pay for them."""
    units, ranks = move.map.units, move.map.ranks
    moved: dict[str, Any] = {
        "prices": [_price(row, move) for row in given["prices"]],
        "generators": [_generator(g, move) for g in given["generators"]],
    }
    if "cuts" in given:
        moved["cuts"] = {str(units[int(name)]): _cuts(part, move) for name, part in given["cuts"].items()}
    if "covers" in given:
        moved["covers"] = {
            str(units[int(name)]): [[weight, side, ranks[rank], *rest] for weight, side, rank, *rest in rows]
            for name, rows in given["covers"].items()
        }
    if "roots" in given:
        moved["roots"] = {
            str(ranks[int(name)]): {
                "before": _cuts(part["before"], move),
                "after": move.ranked(part["after"]),
                "overall": _cuts(part["overall"], move),
            }
            for name, part in given["roots"].items()
        }
    return moved


def _price(row: list, move: Move) -> list:
    if row[0] == "limit":
        return ["limit", move.caps[row[1]], *row[2:]]
    named = len(row) > 3 and isinstance(row[3], list)
    way = move.route[row[1], row[2], tuple(row[3]) if named else ()]
    return ["link", way.src, way.dst, *([list(way.via)] if named else []), *row[4 if named else 3 :]]


def _generator(given: list, move: Move) -> list:
    return [
        _conjugate(pi, where)
        for pi, where in zip(given, (move.map.ranks, move.map.units, move.map.routes), strict=False)
    ]


def _conjugate(pi: Sequence[int], where: Sequence[int]) -> list[int]:
    return list(compose(compose(inverse(where), pi), where))


def _cuts(part: Any, move: Move) -> Any:
    """Rows of a weight and a time for each rank, or a tree of cases with such rows at its ends."""
    if isinstance(part, list):
        return [[row[0], *move.ranked(row[1:])] for row in part]
    if "cuts" in part:
        return {"cuts": _cuts(part["cuts"], move)}
    if "dead" in part:
        return {"dead": move.ranked(part["dead"])}
    rank, time = part["node"]
    return {"node": [move.map.ranks[rank], time], "has": _cuts(part["has"], move), "not": _cuts(part["not"], move)}


def _numbering(before: dict | None, move: Move) -> dict:
    """Where ranks, links, limits, units and switches of the asked problem are in the one that the proof was written
    for."""
    switches = {
        b: a
        for r, i in zip(move.kept[0].routes, move.map.routes, strict=True)
        for a, b in zip(r.via, move.asked[0].routes[i].via, strict=True)
    }
    back = {
        "ranks": inverse(move.map.ranks),
        "links": inverse(move.map.routes),
        "limits": inverse(move.caps),
        "units": inverse(move.map.units),
    }
    if before is None:
        return {name: list(pi) for name, pi in back.items()} | {"switches": switches}
    return {name: list(compose(pi, before[name])) for name, pi in back.items()} | {
        "switches": {b: before["switches"].get(a, a) for b, a in switches.items()}
    }
