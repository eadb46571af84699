"""Lower bounds in time: known answers, certificates in words of the topology alone, and forged ones, which are
refused."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

import synth
from synth import api
from synth.api.tuning import clock_bound_at, times_at
from synth.checker.certificates import time_bounds as checker
from synth.checker.documents.dispatch import check_document
from synth.checker.schedule.machine import machine_of
from synth.errors import InfeasibleError, UsageError, VerificationError
from synth.model.collective import collective
from synth.model.topology import Limit, Link, Topology
from synth.scale.time_bound import time_bound
from synth.view import plans, tables

TECCL = Path(__file__).parent.parent / "examples" / "teccl"


def line(latencies: list[int], gbps: int = 1) -> Topology:
    """A one-way line of ranks."""
    links = [Link(i, i + 1, Fraction(gbps), Fraction(late)) for i, late in enumerate(latencies)]
    return Topology("line", len(latencies) + 1, tuple(links))


def microseconds(machine: Topology, task: str, size: int) -> Fraction:
    return time_bound(machine, task, [size]).rows[0].microseconds


@pytest.mark.parametrize(
    ("file", "task", "size", "expected"),
    [
        ("ndv2-x2", "allgather", 1_000, "4.115"),  # 5, 6, 7 to 0, three units over the NIC, then two links
        ("ndv2-x2", "allgather", 64_000, "5.64"),  # seven units that are a link away from the NIC
        ("ndv2-x2", "allgather", 10**9, "40002.7"),
        ("ndv2-x4", "allgather", 1_000, "5.4225"),
        ("ndv2-x4", "allgather", 10**6, "64"),
        ("dgx2-x2", "allgather", 1_000, "4.0025"),
        ("dgx2-x2", "allgather", 10**9, "7750.7"),
        ("dgx2-x2", "alltoall", 1_000, "4.02"),
        ("dgx2-x2", "alltoall", 10**9, "80002.6"),
    ],
)
def test_the_machines_of_teccl(file: str, task: str, size: int, expected: str) -> None:
    assert microseconds(api.topology(TECCL / f"{file}.yaml"), task, size) == Fraction(expected)


def test_a_broadcast_along_a_line_takes_its_latencies_and_its_bytes_once() -> None:
    assert microseconds(line([1, 5, 2], gbps=4), "broadcast", 8000) == 8 + 2


def test_a_sum_arrives_after_its_farthest_contribution() -> None:
    machine = Topology("back", 3, tuple(Link(i + 1, i, Fraction(1), Fraction(3)) for i in range(2)))
    assert microseconds(machine, "reduce", 2000) == 6 + 2


def test_slow_links_count_from_when_they_can_help() -> None:
    links = (Link(0, 1, Fraction(1), Fraction(1)), Link(0, 1, Fraction(1), Fraction(5)))
    machine = Topology("two", 2, links)
    assert microseconds(machine, "broadcast", 2000) == 3  # 2000 bytes at 1 GB/s; the other link is too late
    assert microseconds(machine, "broadcast", 10_000) == Fraction(10 + 1 + 5, 2)


def test_a_limit_holds_all_its_links_together() -> None:
    links = (Link(0, 1, Fraction(4), Fraction(1)), Link(0, 2, Fraction(4), Fraction(2)))
    machine = Topology("nic", 3, links, (Limit("nic", (0, 1), Fraction(2)),))
    assert microseconds(machine, "scatter", 6000) == 1 + 2  # two units of 2000 bytes through 2 GB/s


def test_a_switch_is_passed_in_no_time_but_the_latencies_of_its_links() -> None:
    machine = api.topology("fully-connected:4")
    hub = Topology(
        "hub", 3,
        tuple(Link(*pair, Fraction(2), Fraction(1, 2)) for r in range(3) for pair in ((r, 3), (3, r))),
        switches=("s",),
    )  # fmt: skip
    assert microseconds(hub, "allgather", 3000) == 1 + 1
    assert time_bound(machine, "allreduce", [1 << 20]).rows[0].microseconds > 0


def test_a_value_that_makes_no_claim_is_not_verified() -> None:
    with pytest.raises(UsageError, match="a Sat is not verified; give a frontier"):
        api.verify(api.solve("ring:4", "allgather", 1, 2, 2))  # pyright: ignore[reportArgumentType]


def test_far_ranks_and_large_sizes_have_different_reasons() -> None:
    bound = synth.time_bound("ring:8", "allgather", ["1KB", "1GB"])
    assert [row.size for row in bound.rows] == [1024, 1 << 30]
    assert bound.rows[0].reason.startswith("4 µs path") and "7/8" not in bound.rows[1].reason
    assert bound.microseconds(1 << 30) == Fraction(7 * (1 << 30), 8 * 2000) + 1


@pytest.mark.parametrize("task", ["allreduce", "scan", "gather", "sendrecv", "multi-broadcast", "reduce-scatter"])
def test_every_document_verifies(task: str) -> None:
    bound = api.time_bound("dgx1", task, [1 << 10, 1 << 20, 1 << 30])
    lines = api.verify(json.loads(json.dumps(bound.to_json())))
    assert api.verify(bound) == lines
    assert len(lines) == 4 and all("certificate checked" in line for line in lines[:3])
    times = [row.microseconds for row in bound.rows]
    assert times == sorted(times) and times[0] > 0


def test_large_machines_name_their_collective() -> None:
    doc = api.time_bound("dgx-a100*9", "alltoall", "1MB").to_json()
    assert doc["collective"] == "alltoall" and "certificate checked" in api.verify(doc)[0]


def test_named_collectives_count_the_units_that_they_have() -> None:
    random, ranks = Random(5), 6
    for name in checker.NAMED:
        root = 2 if name in checker.ROOTED else None
        named = checker.named_demand(name, ranks, root)
        task = collective(name, ranks, () if root is None else (root,))
        written = checker.written_demand(task.to_json(1), ranks, "collective")
        assert named.share == written.share
        for _ in range(60):
            side = np.array([random.random() < 0.5 for _ in range(ranks)])
            some = np.array([random.random() < 0.8 for _ in range(ranks)])
            assert named.crossing(side & some, ~side) == written.crossing(side & some, ~side), name


def test_the_impossible_and_the_idle() -> None:
    with pytest.raises(InfeasibleError):
        time_bound(line([1, 1]), "allgather", [1000])
    assert time_bound(Topology("one", 1, ()), "allreduce", [1000]).rows[0].microseconds == 0
    with pytest.raises(UsageError, match="not a size"):
        api.time_bound("dgx1", "allgather", "much")


def test_a_network_is_a_machine_without_switches() -> None:
    direct = time_bound(HUB.network().as_topology(), "allgather", [10_000], rates=False).rows[0].microseconds
    assert direct == time_bound(HUB, "allgather", [10_000], rates=False).rows[0].microseconds


def test_a_point_and_a_plan_are_compared_with_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    frontier = synth.frontier("ring:4", "allgather", max_steps=2)
    size = 1 << 20
    tables.print_choice(frontier, size, clock_bound_at(frontier, size), times_at(frontier, size))
    said = capsys.readouterr().out
    assert "takes less than 406 µs by this clock (8.4 µs launch in Simple" in said  # 394 µs on bare links, and a hop
    plan = api.tune("ring:4", "allgather", sizes=[1 << 10, 1 << 20], frontiers=[], time_limit=600)
    rows = plans.reports(plan, api.plan_bounds(plan))[1].rows
    assert all(float(row[-1]) >= 1 for row in rows) and float(rows[1][-2]) == 406


# ---------------------------------------------------------------- forged documents

PODS = [(0, 1), (1, 0), (2, 3), (3, 2)]
UPLINKS = [(r, 4) for r in range(4)] + [(4, r) for r in range(4)]
HUB = Topology(
    "pods",
    4,
    (*(Link(*ends, Fraction(8), Fraction(1)) for ends in PODS), *(Link(*e, Fraction(2), Fraction(2)) for e in UPLINKS)),
    (Limit("nic", (4, 5), Fraction(1)),),
    ("net",),
)


def document(size: int = 10_000) -> dict:
    return json.loads(json.dumps(time_bound(HUB, "allgather", [size], rates=False).to_json()))


def _claim(doc: dict) -> None:
    doc["bounds"][0]["time_us"] = str(Fraction(doc["bounds"][0]["time_us"]) + Fraction(1, 10**9))


def _set(key: str, value: object):
    return lambda doc: doc["bounds"][0]["certificate"].__setitem__(key, value)


FORGED = {
    "a greater time": _claim,
    "a smaller size": lambda doc: doc["bounds"][0].update(size=doc["bounds"][0]["size"] - 1),
    "sources outside": _set("sources", [[0, 3]]),
    "targets inside": _set("targets", [[0, 3]]),
    "no sources": _set("sources", []),
    "everything inside": _set("inside", [[0, 4]]),
    "without its limit": _set("limits", []),
    "a limit twice": _set("limits", [0, 0]),
    "no such limit": _set("limits", [1]),
    "a limit that is no number": _set("limits", [True]),
    "nodes beyond the last": _set("inside", [[0, 9]]),
    "a stretch backwards": _set("sources", [[1, 0]]),
    "another kind": _set("kind", "time-rate"),
    "one more field": _set("window", 3),
    "a rate that is none": lambda doc: doc["bounds"][0].update(
        certificate={"kind": "time-rate", "rate": {"kind": "distance", "problem": "", "pair": [], "distance": 0}}
    ),
    "no certificate": lambda doc: doc["bounds"][0].update(certificate=None),
    "no time": lambda doc: doc["bounds"][0].update(time_us="0"),
    "a wider link": lambda doc: doc["topology"]["limits"][0].__setitem__(1, "2"),
    "shorter latencies": lambda doc: doc["topology"]["sorts"][1].__setitem__(1, "1"),
    "another collective": lambda doc: doc.update(collective="reduce", root=0),
    "a root": lambda doc: doc.update(root=1),
    "no bounds": lambda doc: doc.update(bounds=[]),
    "a size of nothing": lambda doc: doc["bounds"][0].update(size=0),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_document_is_refused(name: str) -> None:
    doc = document()
    api.verify(copy.deepcopy(doc))
    FORGED[name](doc)
    with pytest.raises(VerificationError):
        api.verify(doc)


def test_a_rate_proves_no_latency_where_nothing_moves() -> None:
    topology = line([5])
    task = {"name": "own", "ranks": 2, "root": None, "chunks": 1, "combining": False, "pre": [[0, 0]], "post": [[0, 0]]}
    demand = checker.written_demand(task, 2, "collective")
    problem = machine_of(topology.network(), "topology").problem_fingerprint(task)
    rate = {"kind": "static-cuts", "problem": problem, "steps": None}
    rate |= {"scale": 1, "prices": [], "cuts": {}, "generators": []}
    with pytest.raises(VerificationError, match="proves nothing"):
        checker.check({"kind": "time-rate", "rate": rate}, topology, demand, 1)


def test_a_rate_of_another_collective_is_refused() -> None:
    doc = json.loads(json.dumps(api.time_bound("dgx1", "allreduce", 1 << 30).to_json()))
    assert doc["bounds"][0]["certificate"]["kind"] == "time-rate"
    doc["collective"] = "alltoall"
    with pytest.raises(VerificationError, match="another collective"):
        api.verify(doc)


def test_no_random_sets_prove_more_than_the_optimum() -> None:
    """A broadcast along a line has a known time; no cut of it, whatever it says, may prove more."""
    random, machine = Random(8), line([1, 4, 2, 3], gbps=2)
    demand = checker.named_demand("broadcast", 5, 0)
    optimum, proved = Fraction(10 + 3), []
    for _ in range(400):
        inside = sorted(random.sample(range(5), random.randint(1, 4)))
        outside = sorted({0, 1, 2, 3, 4} - set(inside))
        sets = {"inside": inside}
        sets["sources"] = sorted(random.sample(inside, random.randint(1, len(inside))))
        sets["targets"] = sorted(random.sample(outside, random.randint(1, len(outside))))
        certificate = {"kind": "time-cut", "limits": []}
        certificate |= {key: [[n, n] for n in some] for key, some in sets.items()}
        try:
            proved.append(checker.check(certificate, machine, demand, 6000))
        except VerificationError:
            continue
    assert len(proved) > 50 and max(proved) == optimum


@pytest.mark.parametrize("name", ["gather", "scan", "scatter", "alltoall"])
def test_parallel_links_count_together(name):
    """They were refused: "topology.links[1]: appears twice"."""
    ends = ((1, 2), (2, 0))
    others = tuple(Link(a, b, Fraction(1), Fraction(1)) for a, b in ends)
    two = (Link(0, 1, Fraction(1), Fraction(1)), Link(0, 1, Fraction(2), Fraction(1)))
    one = (Link(0, 1, Fraction(3), Fraction(1)),)
    bounds = []
    for links in (two, one):
        found = api.time_bound(Topology("parallel", 3, links + others), name, [1 << 10, 1 << 24])
        check_document(json.loads(json.dumps(found.to_json())), None, lambda name: None)
        bounds.append([row.microseconds for row in found.rows])
    assert bounds[0] == bounds[1]


def test_a_limit_of_one_of_two_parallel_links_is_left_out():
    links = (Link(0, 1, Fraction(1)), Link(0, 1, Fraction(2)), Link(1, 0, Fraction(1)))
    limits = (Limit("one", (0, 2), Fraction(1)), Limit("both", (0, 1, 2), Fraction(2)))
    network = Topology("parallel", 2, links, limits).network().without_parallel_routes()
    assert [(route.src, route.dst, route.units) for route in network.routes] == [(0, 1, 3), (1, 0, 1)]
    assert [(cap.routes, cap.units) for cap in network.caps] == [((1,), 1), ((0, 1), 2)]
    assert network.without_parallel_routes() is network


@pytest.mark.parametrize("name", ["allgather", "allreduce", "broadcast"])
def test_a_machine_whose_limits_flow_methods_cannot_read_has_an_exact_bound(name):
    """It was refused: a link shares two limits on one side."""
    machine = api.topology("fat-tree:4").network().as_topology()
    found = api.time_bound(machine, name, [64, 1 << 20])
    check_document(json.loads(json.dumps(found.to_json())), None, lambda name: None)
    cuts = api.time_bound(machine, name, [64, 1 << 20], rates=False)
    for with_rate, single in zip(found.rows, cuts.rows, strict=True):
        assert with_rate.microseconds >= single.microseconds > 0
