"""Relabelled frontiers: schedules and certificates rewritten for an isomorphic problem, and checked like any others.

Problems of a catalog are those of machines without switches that multicast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound
from synth.model.schedule import Schedule, Send, Step, problem_fingerprint
from synth.model.sends.bitwise_equality import same_bits
from synth.model.symmetry import Generator, compose, inverse
from synth.model.topology import Network, Route


@dataclass(frozen=True)
class ProblemMap:
    """The isomorphism `map` from the problem of a `stored` entry to the problem of a `query`.

    Its methods take values in the numbering of `stored` and return values in the numbering of `query`.
    """

    stored: tuple[Network, Collective]
    query: tuple[Network, Collective]
    map: Generator

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """The query's index of each shared limit of the stored problem; equal limits keep their order."""
        indices: defaultdict[tuple, list[int]] = defaultdict(list)
        for k, cap in enumerate(self.query[0].caps):
            indices[tuple(sorted(cap.routes)), cap.units].append(k)
        images = []
        for cap in self.stored[0].caps:
            routes = tuple(sorted([self.map.routes[i] for i in cap.routes]))
            images.append(indices[routes, cap.units].pop(0))
        return tuple(images)

    @cached_property
    def route(self) -> dict[tuple, Route]:
        """The query's route for each route of the stored problem, by (src, dst, via)."""
        found = {}
        for route, i in zip(self.stored[0].routes, self.map.routes, strict=True):
            found[route.src, route.dst, route.via] = self.query[0].routes[i]
        return found

    def generator(self, generator: list) -> list[list[int]]:
        """Return a symmetry of the stored problem, as a certificate has it, as one of the query's."""
        found = []
        for pi, relabel in zip(generator, (self.map.ranks, self.map.units, self.map.routes), strict=False):
            found.append(list(compose(compose(inverse(relabel), pi), relabel)))
        return found


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

    def bound(given: LowerBound) -> LowerBound:
        return replace(given, certificate=certificate(given.certificate, move))

    points = []
    for point in source.points:
        # the order of additions does not depend on the numbering, but it is cheap to compute again
        moved = schedule(point.schedule, move)
        points.append(replace(point, source=moved, bound=bound(point.bound), same_bits=same_bits(moved)))
    intervals = []
    for interval in source.open:
        proof = interval.certificate
        intervals.append(replace(interval, certificate=certificate(proof, move)) if proof else interval)
    return replace(
        source, machine=network, task=collective, points=tuple(points), open=tuple(intervals),
        bounds=tuple((steps, bound(given)) for steps, given in source.bounds), labels=tuple(labels),
    )  # fmt: skip


def schedule(source: Schedule, move: ProblemMap) -> Schedule:
    """Return the image of `source`: the same sends in the other numbering."""
    steps = []
    for step in source.steps:
        sends = []
        for send in step.unicast_sends:
            unit, i = divmod(send.chunk, source.chunks)
            chunk = move.map.units[unit] * source.chunks + i
            if send.local:
                rank = move.map.ranks[send.src]
                sends.append(Send(chunk, rank, rank, send.kind))
            else:
                route = move.route[send.src, send.dst, send.via]
                sends.append(Send(chunk, route.src, route.dst, send.kind, route.via))
        steps.append(Step(step.rounds, tuple(sorted(sends))))
    return Schedule(*move.query, source.chunks, tuple(steps))


def certificate(source: dict, move: ProblemMap) -> dict:
    """Return the certificate `source` rewritten for the query's problem (kinds: docs/proofs.md).

    Raises KeyError for a kind that no frontier without multicasts has, and for a refutation that is not found again.
    """
    ranks, units = move.map.ranks, move.map.units
    kind = source["kind"]
    moved: dict[str, Any] = source | {"problem": problem_fingerprint(*move.query)}
    if kind == "distance":
        if source["pair"]:
            unit, rank = source["pair"]
            moved["pair"] = [units[unit], ranks[rank]]
        return moved
    if kind == "too-few-steps":  # the clauses are numbered by ranks and links: they are refuted again
        from synth.encodings.bounds.too_few_steps import too_few_steps

        proved = too_few_steps(*move.query, source["steps"])
        if proved is None:
            raise KeyError(kind)
        return proved.certificate
    if kind not in ("static-cuts", "deadline-cuts", "allreduce-partition"):
        raise KeyError(kind)

    # prices of links and limits, and the symmetries by which one price stands for many
    moved["prices"] = []
    for what, key, *rest in source["prices"]:
        if what == "limit":
            moved["prices"].append([what, move.caps[key], *rest])
        else:
            dst, *row = rest
            via = tuple(row.pop(0)) if row and isinstance(row[0], list) else ()
            route = move.route[key, dst, via]
            named = [list(route.via)] if via else []
            moved["prices"].append([what, route.src, route.dst, *named, *row])
    moved["generators"] = [move.generator(g) for g in source["generators"]]
    if "parts" in source:
        moved["parts"] = []
        for part in source["parts"]:
            moved["parts"].append(sorted([ranks[rank] for rank in part]))

    # by unit: cuts have a time for each rank, covers name a rank
    order = inverse(ranks)
    images: dict[str, Callable[[list], list]] = {
        "cuts": lambda row: [row[0], *(row[1 + rank] for rank in order)],
        "averaged": move.generator,
        "covers": lambda row: [*row[:2], ranks[row[2]], *row[3:]],
    }
    for field, image in images.items():
        if field in source:
            moved[field] = {}
            for unit, rows in source[field].items():
                moved[field][str(units[int(unit)])] = [image(row) for row in rows]
    return moved
