"""Relabelled frontiers: schedules and certificates rewritten for an isomorphic problem, and checked like any others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.schedule import Schedule, Send, Step, SwitchSend, problem_fingerprint
from synth.model.sends.bitwise_equality import same_bits
from synth.model.symmetry import Generator, compose, inverse
from synth.model.topology import MulticastSwitch, Network, Route


@dataclass(frozen=True)
class ProblemMap:
    """The isomorphism `map` from the problem of a `stored` entry to the problem of a `query`.

    Its methods take values in the numbering of `stored` and return values in the numbering of `query`.
    """

    stored: tuple[Network, Collective]
    query: tuple[Network, Collective]
    map: Generator

    @cached_property
    def digest(self) -> str:
        """The fingerprint of the query's problem, which its certificates name."""
        return problem_fingerprint(*self.query)

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """The query's index of each shared limit of the stored problem; equal limits keep their order."""
        indices: dict[tuple, list[int]] = {}
        for k, cap in enumerate(self.query[0].caps):
            indices.setdefault((tuple(sorted(cap.routes)), cap.units), []).append(k)
        images = []
        for cap in self.stored[0].caps:
            routes = tuple(sorted(self.map.routes[i] for i in cap.routes))
            images.append(indices[routes, cap.units].pop(0))
        return tuple(images)

    @cached_property
    def switches(self) -> dict[str, str]:
        """The query's name of each switch that multicasts. Raises KeyError where the query has no such switch."""
        names = {}
        for switch in self.query[0].multicast:
            names[_switch_key(switch, range(self.query[0].ranks), range(len(self.query[0].caps)))] = switch.switch
        return {s.switch: names[_switch_key(s, self.map.ranks, self.caps)] for s in self.stored[0].multicast}

    @cached_property
    def route(self) -> dict[tuple, Route]:
        """The query's route for each route of the stored problem, by (src, dst, via)."""
        return {
            (r.src, r.dst, r.via): self.query[0].routes[i]
            for r, i in zip(self.stored[0].routes, self.map.routes, strict=True)
        }

    def switch_send(self, send: SwitchSend, chunk: int) -> SwitchSend:
        """Return the image of `send`, whose chunk is `chunk` there."""
        group = tuple(sorted(self.map.ranks[rank] for rank in send.group))
        return SwitchSend(chunk, self.map.ranks[send.rank], group, send.kind, self.switches[send.switch])

    def reordered(self, row: Sequence[Any]) -> list[Any]:
        """Return `row`, which has one item for each stored rank, in the order of the query's ranks."""
        return [row[r] for r in inverse(self.map.ranks)]


def _switch_key(switch: MulticastSwitch, ranks: Sequence[int], caps: Sequence[int]) -> tuple:
    ports = []
    for port in switch.ports:
        sides = (frozenset(map(caps.__getitem__, side)) for side in (port.up, port.down))
        ports.append((ranks[port.rank], *sides))
    return switch.own, frozenset(ports)


def frontier(
    source: Frontier,
    network: Network,
    collective: Collective,
    map: Generator,
    labels: Sequence[int] = (),
) -> Frontier:
    """Return `source` relabelled for the problem (`network`, `collective`), to which `map` leads from its own.

    `labels`: the numbers of the ranks on the whole machine. The schedules replay on `network`, and the certificates
    prove the same bounds there; the caller checks both.
    """
    move = ProblemMap((source.network, source.collective), (network, collective), map)
    points = tuple(_point(p, move) for p in source.points)
    intervals = []
    for interval in source.open:
        proof = interval.certificate
        intervals.append(replace(interval, certificate=certificate(proof, move)) if proof else interval)
    bounds = tuple((steps, _bound(b, move)) for steps, b in source.bounds)
    return replace(
        source,
        machine=network,
        task=collective,
        points=points,
        open=tuple(intervals),
        bounds=bounds,
        labels=tuple(labels),
    )


def _point(point: Point, move: ProblemMap) -> Point:
    moved = schedule(point.schedule, move)
    # The order of additions does not depend on the numbering, but it is cheap to compute again.
    return replace(point, source=moved, bound=_bound(point.bound, move), same_bits=same_bits(moved))


def _bound(bound: LowerBound, move: ProblemMap) -> LowerBound:
    return replace(bound, certificate=certificate(bound.certificate, move))


def schedule(source: Schedule, move: ProblemMap) -> Schedule:
    """Return the image of `source`: the same sends in the other numbering."""
    chunks, units, routes = source.chunks, move.map.units, move.route

    def send(s: Send) -> Send:
        unit, i = divmod(s.chunk, chunks)
        if s.local:
            return Send(units[unit] * chunks + i, move.map.ranks[s.src], move.map.ranks[s.src], s.kind)
        route = routes[s.src, s.dst, s.via]
        return Send(units[unit] * chunks + i, route.src, route.dst, s.kind, route.via)

    steps = []
    for step in source.steps:
        through = []
        for switch_send in step.switch_sends:
            unit, i = divmod(switch_send.chunk, chunks)
            through.append(move.switch_send(switch_send, units[unit] * chunks + i))
        steps.append(Step(step.rounds, tuple(sorted(map(send, step.sends))), tuple(sorted(through))))
    return Schedule(*move.query, chunks, tuple(steps))


def certificate(source: dict, move: ProblemMap) -> dict:
    """Return the certificate `source` rewritten for the query's problem (kinds: docs/proofs.md).

    Raises KeyError for an unknown kind, and for a refutation that is not found again.
    """
    moved = source | {"problem": move.digest}
    match source["kind"]:
        case "distance":
            return moved | {"pair": _pair(source["pair"], move)}
        case "switch-operations":
            ports = [[move.caps[up], move.caps[down]] for up, down in source["ports"]]
            return moved | {"ports": move.reordered(ports)}
        case "too-few-steps":  # the clauses are numbered by ranks and links: they are refuted again
            from synth.encodings.bounds.too_few_steps import too_few_steps

            proved = too_few_steps(*move.query, source["steps"])
            if proved is not None:
                return proved.certificate
        case "static-cuts" | "deadline-cuts" | "allreduce-partition":
            return moved | _cut_fields(source, move)
    raise KeyError(f"certificate of kind {source['kind']!r}")


def _pair(pair: list, move: ProblemMap) -> list:
    return [move.map.units[pair[0]], move.map.ranks[pair[1]]] if pair else []


def _cut_fields(source: dict, move: ProblemMap) -> dict:
    """Return the fields of a certificate of cuts: the cuts, and the link prices that pay for them."""
    units, ranks = move.map.units, move.map.ranks
    moved: dict[str, Any] = {
        "prices": [_price(row, move) for row in source["prices"]],
        "generators": [_generator(g, move) for g in source["generators"]],
    }
    if "cuts" in source:
        moved["cuts"] = {}
        for name, rows in source["cuts"].items():
            moved["cuts"][str(units[int(name)])] = [[row[0], *move.reordered(row[1:])] for row in rows]
    if "averaged" in source:
        moved["averaged"] = {}
        for name, generators in source["averaged"].items():
            moved["averaged"][str(units[int(name)])] = [_generator(g, move) for g in generators]
    if "covers" in source:
        moved["covers"] = {}
        for name, rows in source["covers"].items():
            images = [[weight, side, ranks[rank], *rest] for weight, side, rank, *rest in rows]
            moved["covers"][str(units[int(name)])] = images
    if "parts" in source:
        moved["parts"] = [sorted(map(ranks.__getitem__, part)) for part in source["parts"]]
    return moved


def _price(row: list, move: ProblemMap) -> list:
    if row[0] == "limit":
        return ["limit", move.caps[row[1]], *row[2:]]
    if len(row) > 3 and isinstance(row[3], list):  # the switches on the route are listed
        route = move.route[row[1], row[2], tuple(row[3])]
        return ["link", route.src, route.dst, list(route.via), *row[4:]]
    route = move.route[row[1], row[2], ()]
    return ["link", route.src, route.dst, *row[3:]]


def _generator(generator: list, move: ProblemMap) -> list:
    maps = (move.map.ranks, move.map.units, move.map.routes)
    return [_conjugate(pi, relabel) for pi, relabel in zip(generator, maps, strict=False)]


def _conjugate(pi: Sequence[int], relabel: Sequence[int]) -> list[int]:
    return list(compose(compose(inverse(relabel), pi), relabel))
