"""The valid documents that the adversary starts from: every schema but archives, every kind of certificate, machines of
at most five ranks."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds import too_few_steps
from synth.errors import InfeasibleError
from synth.model.collective import Collective, collective
from synth.model.documents import link_columns
from synth.model.frontier import LowerBound
from synth.model.rational import show
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Cap, Limit, Link, Network, Route, Topology
from synth.topologies import modify, topology


@dataclass(frozen=True)
class Case:
    """A document, and what is under test: its schema and the kind of its certificate."""

    name: str
    kind: str
    doc: dict

    @property
    def schema(self) -> str:
        """Without the family's name: ``frontier/1``."""
        return str(self.doc.get("schema")).removeprefix("synth.")

    def copy(self) -> Case:
        """One whose parts can be changed."""
        return replace(self, doc=copy.deepcopy(self.doc))


def _machine(ranks: int, links: list, limits: tuple = (), switches: tuple = ()) -> Topology:
    """A topology of links ``(src, dst, GB/s)`` and limits ``(links, GB/s)``."""
    made = tuple(Link(a, b, Fraction(w)) for a, b, w in links)
    caps = tuple(Limit(f"l{i}", tuple(m), Fraction(w)) for i, (m, w) in enumerate(limits))
    return Topology("mine", ranks, made, caps, switches)


def _both(pairs: list, width: int = 1) -> list:
    return [link for a, b in pairs for link in ((a, b, width), (b, a, width))]


def _task(pre: list, post: list, ranks: int, combining: bool = False, name: str = "mine") -> Collective:
    return Collective(name, ranks, tuple(map(frozenset, pre)), tuple(map(frozenset, post)), combining)


RING = Network("uneven", 4, (Route(0, 1, 1), Route(1, 2, 1), Route(2, 3, 1), Route(3, 0, 3)))
WIRES = ((0, "a", 3), ("a", 1, 3), (0, "b", 2), ("b", 1, 2), (1, "a", 3), ("a", 0, 3))
WAYS = (Route(0, 1, 1, ("a",)), Route(0, 1, 2, ("b",)), Route(1, 0, 3, ("a",)))
SWITCHED = Network("two", 2, WAYS, (Cap((0, 1), 2),), wires=WIRES)
LINE = Network("line", 3, (Route(0, 1, 1), Route(1, 2, 1)))
PORTS = _both([(0, 3), (1, 3), (2, 3)], 2)
HOST = _machine(3, PORTS, (((0, 1), 2), ((2, 3), 2)), ("s",))  # ports that carry 2 both ways together
ROOT = _machine(3, PORTS, (((0, 1, 2, 3), 2),), ("s",))  # a way from 0 to 1 crosses its limit twice
NIC = _machine(4, [*_both([(0, 1), (2, 3)], 4), *_both([(0, 4), (1, 4), (2, 4), (3, 4)], 1)], (((4, 6), 1),), ("nic",))
HALO = _task([[0], [1]], [[2], [3]], 4)  # two messages between ranks that no link joins
PARTS = _task([[0], [0], [1]], [[1, 2], [1, 2], [0, 2]], 3)  # an allgather of two units, one and none
SUMS = _task([[0, 1], [0, 1]], [[0], [0]], 2, True)
SHARDS = _task([[0, 1, 2]] * 3, [[0], [1], [2]], 3, True)
MIXED = replace(_task([[0, 1, 2]], [[0, 2]], 3, True), wants=(((0, frozenset({0, 1})), (2, frozenset({1, 2}))),))


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value))


# ---------------------------------------------------------------- exact synthesis


@cache
def _frontier(machine: Any, task: Any, most: int | None = None) -> dict:
    with TemporaryDirectory(prefix="synth-forge-") as folder:
        log = Path(folder) / "log"
        found = api.frontier(machine, task, max_steps=most, deterministic=True, fresh=True, engine="exact", log=log)
    return _json(found.to_json())


def _left_open(doc: dict) -> dict:
    """A frontier without its last point: what is known there is an open interval."""
    doc = copy.deepcopy(doc)
    last = doc["points"].pop()
    doc["complete"] = False
    row = {"steps": last["steps"], "lower": last["bound"]["value"], "upper": doc["points"][-1]["bandwidth"]}
    doc["open"] = [row | {"reason": "the time limit", "certificate": last["bound"]["certificate"]}]
    return doc


def frontiers() -> Iterator[Case]:
    """Frontiers, and a schedule of each."""
    made = {
        ("allgather", "deadline-cuts"): _frontier("ring:4", "allgather"),
        ("broadcast", "deadline-cuts, covers"): _frontier("ring:3", "broadcast", 2),
        ("reduce-scatter", "distance"): _frontier("ring:3", "reduce-scatter"),
        ("allreduce", "deadline-cuts, count"): _frontier("fully-connected:3", "allreduce"),
        ("halo", "static-cuts"): _frontier(topology("ring:4"), HALO),
        ("parts", "static-cuts"): _frontier(topology("ring:3"), PARTS),
        ("alltoall through a switch", "deadline-cuts"): _frontier(HOST, "alltoall"),
        ("a limit crossed twice", "deadline-cuts"): _frontier(ROOT, "allgather"),
    }  # fmt: skip
    made["open", "deadline-cuts"] = _left_open(_frontier("line:3", "allreduce", 3))
    for (name, kind), doc in made.items():
        yield Case(f"frontier {name}", kind, doc)
        yield Case(f"schedule {name}", "replay", doc["points"][0]["schedule"])


def _bounds(name: str, kind: str, network: Network, task: Collective, found: dict[int | None, LowerBound]) -> Case:
    rows = [{"steps": steps} | bound.to_json() for steps, bound in found.items()]
    doc = {"schema": "synth.bounds/1", "topology": network.to_json(), "collective": task.to_json(1), "bounds": rows}
    return Case(f"bounds {name}", kind, _json(doc))


def _averaged() -> LowerBound:
    """The cut around rank 1 stands for the mean of those around ranks 1 and 2."""
    exchange = [[0, 2, 1], [0]]
    certificate = {
        "kind": "deadline-cuts",
        "problem": problem_fingerprint(topology("fully-connected:3").network(), collective("broadcast", 3)),
        "steps": 1,
        "scale": 2,
        "prices": [["link", 0, 1, 1]],
        "cuts": {"0": [[2, -1, 1, 0]]},
        "averaged": {"0": [exchange]},
        "generators": [exchange],
    }
    return LowerBound(Fraction(1), certificate)


def limits() -> Iterator[Case]:
    """Lower bounds, one kind of certificate in each document."""
    ring, star = topology("ring:4").network(), topology("star:5").network()

    def whole(name: str, kind: str, network: Network, task: Collective, steps: list[int | None]) -> Case:
        return _bounds(name, kind, network, task, {s: bounds.flow(network, task, s) for s in steps})

    gather, tree, scan = collective("allgather", 4), collective("broadcast", 4), collective("scan", 5)
    three, line, sums = topology("ring:3").network(), topology("line:3").network(), collective("allreduce", 3)
    yield _bounds("distance", "distance", ring, gather, {0: bounds.steps(ring, gather)})
    yield _bounds("distance of sums", "distance", star, scan, {0: bounds.steps(star, scan)})
    yield whole("static", "static-cuts", ring, gather, [None])
    yield whole("static, halo", "static-cuts", ring, HALO, [None])
    yield whole("deadlines", "deadline-cuts", ring, gather, [2, 3])
    yield whole("deadlines, parallel", "deadline-cuts", SWITCHED, collective("broadcast", 2), [1])
    yield whole("deadlines, a switch", "deadline-cuts", HOST.network(), collective("alltoall", 3), [1, 2])
    yield whole("scan", "deadline-cuts, sums", three, collective("scan", 3), [1, 2, None])
    yield whole("mixed sums", "deadline-cuts, sums", line, MIXED, [2, None])
    yield whole("covers", "deadline-cuts, covers", ring, tree, [2])
    full, one = topology("fully-connected:3").network(), collective("broadcast", 3)
    yield _bounds("means of cuts", "deadline-cuts, averaged", full, one, {1: _averaged()})
    yield whole("count", "static-cuts, count", line, sums, [None])
    yield whole("count, deadlines", "deadline-cuts, count", three, sums, [2])
    five = topology("ring:5").network(), collective("allreduce", 5)
    few = too_few_steps.too_few_steps(*five, 2)
    assert few is not None
    yield _bounds("steps", "too-few-steps", *five, {0: few})


def refusals() -> Iterator[Case]:
    """Documents of infeasible problems: with any steps, and in so many steps."""
    apart, line = modify.apply(topology("ring:4"), without=("0-1", "2-3")), topology("line:3")
    with TemporaryDirectory(prefix="synth-forge-") as folder:
        for kind, machine, name, most in (
            ("unreachable", apart, "broadcast", None), ("unreachable", apart, "allreduce", None),
            ("distance", line, "allgather", 1), ("too-few-steps", topology("ring:5"), "allreduce", 2),
        ):  # fmt: skip
            try:
                api.frontier(machine, name, max_steps=most, engine="exact", fresh=True, log=Path(folder) / "log")
            except InfeasibleError as error:
                doc = api.infeasible_document(machine, name, error, max_steps=most)
                yield Case(f"infeasible {name}", kind, _json(doc))
    for name in ("broadcast", "reduce", "allgather"):
        try:
            api.scale_bound(apart, name)
        except InfeasibleError as error:
            head = {"name": "mine", "ranks": 4, "unit_gbps": show(apart.unit_bandwidth())}
            doc = {"schema": "synth.infeasible/1", "topology": head | link_columns.columns(apart.live())}
            doc |= {"collective": name, "max_steps": None, "certificate": error.certificate}
            yield Case(f"infeasible at scale {name}", "closed sets", _json(doc))


# ---------------------------------------------------------------- any size


def _weighed(doc: dict) -> dict:
    """One cut as several with weights."""
    doc = _json(doc)
    given = doc["bound"]["certificate"]
    kept = {key: given[key] for key in ("topology", "collective", "root")} | {"kind": "throughput-cuts"}
    limits = [[k, "1"] for k in given["limits"]]
    doc["bound"]["certificate"] = kept | {"cuts": [["1", given["inside"]]], "limits": limits, "potentials": [[4, "0"]]}
    return doc


def scale() -> Iterator[Case]:
    """Bounds and frontiers of flow methods, and their schedules."""
    slow = modify.apply(topology("ring:4"), degrade=("0-1:1/2",))
    one_way = _machine(3, [(0, 1, 1), (1, 2, 2), (2, 0, 1), (1, 0, 3)])
    for name, kind, machine, what in (
        ("allgather", "throughput-cut", slow, "allgather"),
        ("reduce-scatter", "throughput-cut", one_way, "reduce-scatter"),
        ("broadcast", "throughput-cut", slow, "broadcast"),
        ("reduce", "throughput-cut", one_way, "reduce"),
        ("allreduce", "throughput-cut", one_way, "allreduce"),
        ("allreduce parts", "allreduce-parts", slow, "allreduce"),
        ("a shared port", "throughput-cut", NIC, "allgather"),
        ("alltoall", "alltoall-lengths", slow, "alltoall"),
        ("alltoall, a shared port", "alltoall-lengths", NIC, "alltoall"),
        ("alltoall, alike", "alltoall-lengths", topology("ring:5"), "alltoall"),
    ):
        found = api.scale_bound(machine, what)
        assert found is not None
        doc = found.to_json(links=True)
        yield Case(f"large {name}", kind, _json(doc))
        if name == "a shared port":
            yield Case(f"large {name}, weighed", "throughput-cuts", _weighed(doc))
    for name, machine, what in (
        ("ring", topology("ring:5"), "allgather"), ("shards", topology("ring:4"), "reduce-scatter"),
        ("sums", topology("ring:4"), "allreduce"), ("tree", slow, "broadcast"),
        ("pairs", topology("ring:4"), "alltoall"), ("port", NIC, "allgather"),
    ):  # fmt: skip
        found: Any = api.frontier(machine, what, engine="flow")
        doc = _json(found.to_json(links=True))
        doc["points"] = doc["points"][:2]
        yield Case(f"large points {name}", doc["bound"]["certificate"]["kind"], doc)


def cases() -> list[Case]:
    """All seeds, the same every time."""
    return [case for make in (frontiers, limits, refusals, scale) for case in make()]
