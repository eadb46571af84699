"""Documents of exact synthesis that claim something false: each is refused, and the true one beside it is not."""

import copy
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from test_forged_at_scale import changed

from synth.checker.certificates import cuts as check
from synth.checker.certificates import instance, single_chunk
from synth.checker.documents import exact_frontier
from synth.commands import api
from synth.errors import UncheckedError, VerificationError
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.model.documents.json_reader import assumed
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Cap, MulticastSwitch, Network, Route, SwitchPort
from synth.topologies import topology
from tests.command_line import synth

RING = topology("ring:4").network()
TWO = Network("two", 2, (Route(0, 1, 1), Route(1, 0, 1)))
HALO = Collective("halo", 4, (frozenset({0}), frozenset({1})), (frozenset({2}), frozenset({3})))
SUM = Collective(
    "mine", 2, (frozenset({0, 1}),) * 2, (frozenset({0}), frozenset()), True
)  # nobody wants the second sum


def frontier(network: Network, task: Collective, **fields: Any) -> dict:
    """A frontier document with nothing in it but `fields`."""
    return {
        "schema": "synth.frontier/1", "topology": network.to_json(), "collective": task.to_json(1), "complete": False,
        "max_steps": None, "points": [], "open": [], "seconds": 0.1, "bounds": [], "notes": [], "labels": [], **fields,
    }  # fmt: skip


def bound(network: Network, task: Collective, kind: str, steps: int | None, value: str, **fields: Any) -> dict:
    """An entry of `bounds` with a certificate of this kind."""
    certificate = {"kind": kind, "problem": problem_fingerprint(network, task), **fields}
    return {"steps": steps, "value": value, "scope": "any-chunks", "certificate": certificate}


def schedule(network: Network, task: Collective, chunks: int, *steps: tuple[int, list[list]]) -> dict:
    """A schedule document."""
    rows = [{"rounds": rounds, "sends": sends} for rounds, sends in steps]
    head = {"schema": "synth.schedule/1", "topology": network.to_json(), "collective": task.to_json(chunks)}
    return head | {"chunks": chunks, "steps": rows}


def refused(doc: dict, match: str) -> None:
    """Raises unless verification fails with one line that has `match` in it."""
    with pytest.raises(VerificationError, match=match) as raised:
        api.verify(doc)
    assert "\n" not in str(raised.value)


@pytest.fixture(scope="module")
def halo() -> dict:
    return json.loads(json.dumps(api.frontier("ring:4", HALO, engine="exact", jobs=1).to_json()))


@pytest.fixture(scope="module")
def gathered() -> dict:
    return json.loads(json.dumps(api.frontier("ring:4", "allgather", engine="exact", jobs=1).to_json()))


# nothing is to be done


def test_nothing_is_to_be_done_only_where_everybody_has_what_it_wants():
    nothing = {"pair": [], "distance": 0}
    task = collective("allgather", 4)
    refused(frontier(RING, task, complete=True, bounds=[bound(RING, task, "distance", 0, "0", **nothing)]), "pair")
    refused(frontier(RING, task, complete=True), "complete")
    apart = Network("apart", 2, (Route(0, 1, 1),))
    refused(frontier(apart, collective("reduce", 2, roots=[1]), complete=True), "complete")
    own = Collective("own", 4, (frozenset({0}), frozenset({1, 2})), (frozenset({0}), frozenset({1})))
    lines = api.verify(frontier(RING, own, complete=True, bounds=[bound(RING, own, "distance", 0, "0", **nothing)]))
    assert lines[-2] == "complete: nothing is to be done, every rank has what it must have"
    part = Collective("part", 4, (frozenset({0, 1}),), (frozenset({0}),), True, (), (((0, frozenset({0})),),))
    assert api.verify(frontier(RING, part, complete=True))
    all_of_it = Collective("all", 4, (frozenset({0, 1}),), (frozenset({0}),), True)
    refused(frontier(RING, all_of_it, complete=True), "complete")


# every chunk of every unit


def test_a_schedule_that_drops_chunks_answers_another_collective(halo):
    assert api.verify(halo)
    forged = copy.deepcopy(halo)
    for point in forged["points"]:
        inner, chunks = point["schedule"], 2 * point["chunks"]
        inner.pop("fingerprint")
        inner["collective"]["chunks"] *= 2
        inner["collective"]["pre"] = [[u * chunks + i, u] for u in range(2) for i in range(chunks)]
        inner["collective"]["post"] = [[u * chunks + i, u + 2] for u in range(2) for i in range(point["chunks"])]
        for step in inner["steps"]:
            step["sends"] = [
                [chunk // point["chunks"] * chunks + chunk % point["chunks"], *row] for chunk, *row in step["sends"]
            ]
        inner["chunks"] = point["chunks"] = chunks
        point["bandwidth"] = str(Fraction(point["rounds"], chunks))
        refused(inner, "chunk")
    refused(forged, "chunk")


@pytest.mark.parametrize("name", ["allgatherv", "reduce-scatterv", "alltoallv"])
def test_a_chunk_of_a_v_collective_is_missed(name):
    sizes = [[0, 2], [1, 0]] if name == "alltoallv" else [2, 1]
    task = collective(name, 2, sizes=sizes)
    found = api.solve(api.topology("ring:2"), task, 2, 1, 4, jobs=1)
    doc = json.loads(json.dumps(found.schedule.to_json()))  # type: ignore[union-attr]
    assert api.verify(doc)
    doc.pop("fingerprint")
    for rows in ("pre", "post"):
        bad = copy.deepcopy(doc)
        bad["collective"][rows].pop()
        refused(bad, "pre and post")
        bad["chunks"] = 1
        refused(bad, "pre and post")
    one = "post" if name == "reduce-scatterv" else "pre"
    bad = copy.deepcopy(doc)
    bad["collective"][one] = [[chunk, 1 - rank] for chunk, rank in bad["collective"][one]]
    refused(bad, "pre and post")
    bad["collective"] = doc["collective"] | {"chunks": doc["collective"]["chunks"] + 2}
    refused(bad, "pre and post")


def test_a_name_of_a_collective_means_what_it_says():
    good = schedule(TWO, collective("broadcast", 2), 1, (1, [[0, 0, 1, "copy"]]))
    assert api.verify(good)
    for change in (
        {"root": None}, {"root": [0]}, {"root": True}, {"root": 0.0}, {"root": [0, 1]}, {"root": {}}, {"chunks": True},
        {"name": "multi-broadcast"}, {"name": "a\nb"}, {"ranks": 2.0}, {"more": 1},
    ):  # fmt: skip
        bad = copy.deepcopy(good)
        bad["collective"].update(change)
        refused(bad, r"collective")
    empty = schedule(TWO, Collective("broadcast", 2, (), (), False, (0,)), 1)
    refused(empty, "pre and post")


# units that nobody wants, and sums of nothing


@pytest.mark.parametrize("want", [[[]], [[0, 1, 1]], [[1, 0], [0]], [[0, 3]]], ids=str)
def test_what_a_rank_wants_is_a_sum_of_contributions(want):
    line = topology("line:4").network()
    task = Collective("mine", 4, (frozenset({0, 1}),), (frozenset({1}),), True).to_json(1)
    task["post"] = [[0, 1, *want]]
    doc = {"schema": "synth.bounds/1", "topology": line.to_json(), "collective": task, "bounds": []}
    refused(doc, "post")


# open intervals


def test_an_open_interval_begins_at_a_bound_that_is_proved(gathered):
    points = gathered["points"]
    assert [p["bandwidth"] for p in points] == ["3/2"]
    floor = next(entry for entry in gathered["bounds"] if entry["steps"] is None)
    assert floor["value"] == "3/2"
    entry = {"steps": 3, "lower": "3/2", "upper": "3/2", "reason": "time"}

    def doc(bounds: list, **fields: Any) -> dict:
        return gathered | {"complete": False, "bounds": bounds, "open": [entry | fields]}

    for true in (doc([floor]), doc([], certificate=floor["certificate"]), doc([], lower="0")):
        assert api.verify(true)
    assert api.verify(doc([], steps=2))  # the point of two steps has a bound of its own
    refused(doc([]), "nothing proves")
    refused(doc([], lower="1/10"), "nothing proves")
    refused(doc([floor], lower="1000"), "open")
    refused(doc([], lower="1", certificate=floor["certificate"]), "says 1")
    refused(doc([], lower="0", certificate={}), "certificate")
    refused(doc([], lower="0", certificate=None), "certificate")
    least = next(entry for entry in gathered["bounds"] if entry["steps"] == 0)
    refused(doc([least], lower="2"), "open")  # a bound on steps is none on R/C
    at_two = copy.deepcopy(floor)
    at_two["steps"] = 2
    refused(doc([at_two]), "nothing proves")  # that for two steps may not hold for three
    assert api.verify(doc([at_two], steps=2))


def test_an_open_interval_is_none_where_the_bound_is_above_what_is_found(gathered):
    ring = gathered["topology"]
    few = {"steps": 1, "lower": "3/2", "upper": None, "reason": "time"}
    floor = next(entry for entry in gathered["bounds"] if entry["steps"] is None)
    doc = {key: gathered[key] for key in gathered} | {"complete": False, "open": [few], "bounds": [floor]}
    assert api.verify(doc)
    refused(doc | {"open": [few | {"upper": "1"}]}, "upper")
    assert ring["ranks"] == 4


# one rank


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_rank_has_all_there_is(name, tmp_path):
    (tmp_path / "one.json").write_text('{"ranks": 1, "links": []}')
    counts = "--counts 2" if name in ("allgatherv", "reduce-scatterv", "alltoallv") else ""
    file = tmp_path / "f.json"
    verbs = {
        "bound": "S ≥ 0, certificate checked",
        "pareto": "complete: nothing is to be done, every rank has what it must have",
    }
    if name in ("allgather", "allreduce", "alltonext"):
        verbs["solve --chunks 1 --steps 1 --rounds 1 --jobs 1"] = "0 sends replayed, postcondition holds"
    for verb, said in verbs.items():
        synth(verb, "--topo", tmp_path / "one.json", "--coll", name, counts, "-o", file)
        assert said in synth("verify", file).output


# what is said


def test_every_claim_has_a_line(gathered, halo):
    floor = next(entry for entry in gathered["bounds"] if entry["steps"] is None)
    left = {"steps": 3, "lower": "3/2", "upper": "3/2", "reason": "time"}
    assert api.verify(
        gathered | {"complete": False, "bounds": [floor], "open": [left, left | {"steps": 1, "upper": None}]}
    ) == [
        "S=2: R/C 3/2 with C=2, 24 sends replayed, optimal for any C",
        "bounds: R/C ≥ 3/2 for any S: 1 certificate checked",
        "open at S=3: R/C ≥ 3/2 is proved, 3/2 is known",
        "open at S=1: R/C ≥ 3/2 is proved, none is known",
        "not complete: there may be other points",
        assumed() + exact_frontier.FRONTIER_ASSUMED,
    ]
    beyond = [left | {"steps": steps} for steps in (3, 4, 5, 7)]
    said = api.verify(gathered | {"complete": False, "bounds": [floor], "open": beyond})
    assert "open at S=3, 4, 5, 7: R/C ≥ 3/2 is proved, 3/2 is known" in said
    added = api.frontier("ring:3", "allreduce", engine="exact", jobs=1, max_steps=2)
    first, second, *_ = api.verify(added.to_json())
    assert first.endswith("optimal for any C, bits may differ") and second.endswith(
        "optimal for any C, same bits on all ranks"
    )
    assert api.verify(halo)[-2] == "complete: no schedule in this model, with any number of chunks, is better"


def test_a_document_that_claims_nothing_is_refused(gathered):
    problem = {key: gathered[key] for key in ("topology", "collective")}
    refused({"schema": "synth.bounds/1", **problem, "bounds": []}, "claims nothing")
    refused(frontier(RING, HALO) | {"topology": RING.to_json() | {"links": [[0, 1, -7]]}}, "topology")
    refused(
        frontier(RING, HALO, bounds=[{"steps": None, "value": "0", "scope": "this-chunks", "certificate": {}}]), "scope"
    )


def test_a_certificate_that_takes_too_much_work_is_not_checked(gathered, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps(gathered))
    monkeypatch.setattr(instance, "MOST_WORK", 10)
    output = synth("verify", tmp_path / "a.json", code=4).output
    assert "points[0].bound.certificate" in output and "too large to check" in output


def kept_busy(network: Network, task: Collective, steps: int, **fields: Any) -> str:
    """Return the refusal of a certificate whose check takes too much work."""
    certificate = {"problem": problem_fingerprint(network, task), "steps": steps, "generators": [], **fields}
    with pytest.raises(UncheckedError) as caught:
        check.check(certificate, network.to_json(), task.to_json(1), steps=steps)
    return str(caught.value)


def test_small_certificates_do_not_keep_the_checker_busy(monkeypatch):
    monkeypatch.setattr(instance, "MOST_WORK", 10_000)
    ring, units = topology("ring:20").network(), 20
    messages = Collective("mine", 20, (frozenset({0}),) * units, (frozenset({1}),) * units, False)
    empty: dict[str, list] = {str(unit): [] for unit in range(units)}
    fields = {"scale": 1, "prices": [], "cuts": empty, "averaged": empty}
    assert "too large" in kept_busy(ring, messages, 100, kind="deadline-cuts", **fields)

    monkeypatch.setattr(single_chunk, "Variables", None)  # are not made
    many = {"kind": "too-few-steps", "problem": problem_fingerprint(TWO, SUM), "steps": 1000, "unit": 0, "proof": ""}
    with pytest.raises(UncheckedError, match="too large"):
        check.check(many, TWO.to_json(), SUM.to_json(1))


def test_limits_that_ports_list_count_as_work(monkeypatch):
    monkeypatch.setattr(instance, "MOST_WORK", 10_000)
    limits = tuple(Cap((), 1) for _ in range(500))
    ports = tuple(SwitchPort(rank, tuple(range(500)), tuple(range(500))) for rank in (0, 1))
    machine = replace(TWO, caps=limits, multicast=(MulticastSwitch("s", "local", ports),))
    messages = Collective("mine", 2, (frozenset({0}),) * 10, (frozenset({1}),) * 10, False)
    cuts = {str(unit): [[unit, -1, 1]] for unit in range(10)}
    prices = [["link", 0, 1, 10], ["limit", 0, 10]]
    assert "too large" in kept_busy(machine, messages, 1, kind="deadline-cuts", scale=100, prices=prices, cuts=cuts)


# every field is read strictly

OPEN = {"steps": 1, "lower": "3/2", "upper": None, "reason": "effort"}


@pytest.mark.parametrize(("path", "value", "place"), [
    ("points.0.extra", 1, r"points\[0\]: 'extra' is not a known field"),
    ("points.0.construction", 7, r"points\[0\].construction: "),
    ("points.0.bound.extra", 1, r"points\[0\].bound: 'extra'"), ("bounds.0.extra", 1, r"bounds\[0\]: 'extra'"),
    ("notes", "x", "notes: "), ("notes", [1], r"notes\[0\]: "), ("labels", 5, "labels: "),
    ("open", [OPEN | {"extra": 1}], r"open\[0\]: 'extra'"), ("open", [OPEN | {"reason": 3}], r"open\[0\].reason: "),
    ("open", [OPEN | {"steps": "1"}], r"open\[0\].steps: "),
])  # fmt: skip
def test_anything_else_is_refused_with_its_place(path, value, place, gathered):
    refused(changed(copy.deepcopy(gathered), path, value), r"^\$\." + place)
