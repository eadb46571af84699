"""A document of a large frontier stands for itself: the links of its machine are in it, unless its name makes the same
machine."""

import json
from dataclasses import replace

import pytest
from test_forged_at_scale import verdict

from synth.checker.certificates import path_lengths
from synth.checker.documents import link_columns as linkread
from synth.checker.documents import scale_frontier
from synth.commands import api
from synth.errors import FormatError, VerificationError
from synth.model.documents import link_columns
from synth.scale.forests import pipelining
from synth.scale.search import bound, frontier
from synth.topologies import modify, topology
from tests.command_line import synth

BOX = """
name: {name}
ranks: 4
links: [{{src: 0, dst: 1, bandwidth: 25, both: true}}, {{src: 1, dst: 2, bandwidth: 25, both: true}},
        {{src: 2, dst: 3, bandwidth: {last}, both: true}}]
"""


@pytest.mark.parametrize("name", ["dgx1", "dgx-a100*2", "fat-tree:4", "torus:3x4", "dgx2", "ndv2*2"])
def test_machines_come_back(name):
    made = modify.apply(topology(name), degrade=("0-1:1/3",) if name == "dgx1" else ())
    doc = json.loads(json.dumps({"name": made.name, "ranks": made.ranks} | link_columns.columns(made)))
    back = linkread.read(doc)
    assert back.links == made.links and (back.limits, back.switches) == (made.limits, made.switches)
    assert back.connection == made.connection


def test_boxes_of_many_links_are_short():
    assert len(json.dumps(link_columns.columns(topology("dgx-a100*16")))) < 120_000


@pytest.mark.parametrize("command", ["pareto", "bound"])
@pytest.mark.parametrize("collective", ["allgather", "allreduce", "alltoall", "broadcast"])
def test_a_changed_machine_is_verified_alone(command, collective, tmp_path):
    synth(command, "--engine flow --topo dgx1 --degrade 0-1:1/2 --coll", collective, "-o", tmp_path / "a.json")
    said = "the machine written in the document ('dgx1-v100 --degrade 0-1:1/2', 8 ranks, "
    assert said in synth("verify", tmp_path / "a.json").stdout


def test_a_file_with_a_known_name_is_not_taken_for_that_machine(tmp_path):
    (tmp_path / "m.yaml").write_text(BOX.format(name="line:4", last=5))
    synth("bound --engine flow --topo", tmp_path / "m.yaml", "--coll allgather -o", tmp_path / "a.json")
    checked = synth("verify", tmp_path / "a.json").stdout
    assert "the machine written in the document" in checked and ": 6.66667 GB/s" in checked


def test_a_machine_known_by_name_needs_no_links(tmp_path):
    synth("bound --topo torus:9x9 --coll allgather -o", tmp_path / "a.json")
    doc = json.loads((tmp_path / "a.json").read_text())
    assert "links" not in doc["topology"]
    assert "on torus:9x9 takes" in synth("verify", tmp_path / "a.json").stdout


def _doc():
    slower = modify.apply(topology("dgx1"), degrade=("0-1:1/2",))
    return json.loads(json.dumps(api.frontier_document(bound(slower, "allgather"))))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unit_gbps", "50"), ("ranks", 9), ("unit", "7"), ("links", {}), ("links", None), ("switches", 3),
        ("links", {"src": [0], "dst": [0], "sort": [0]}), ("links", {"src": [[0, 1, 10**12]], "dst": [1], "sort": [0]}),
        ("links", {"src": ["0"], "dst": [1], "sort": [0]}), ("sorts", [["25", "0", "nvlink"]]), ("ranks", 10**9),
        ("sorts", [["-1", "0", "nvlink"]]), ("sorts", [["25", "0", "string"]]), ("limits", [["a", "1", [900]]]),
        ("limits", None), ("name", "a\nb"), ("connection", "0"),
    ],
)  # fmt: skip
def test_a_changed_machine_is_caught(key, value, tmp_path):
    doc = _doc()
    doc["topology"][key] = value
    (tmp_path / "a.json").write_text(json.dumps(doc))
    assert synth("verify", tmp_path / "a.json", code=5).stderr.count("\n") == 1


def test_every_link_counts():
    doc = _doc()
    doc["topology"]["links"]["src"][0] = [0, 1, 4]
    with pytest.raises(VerificationError, match="another topology"):
        api.verify(doc)
    doc = _doc()
    for key in ("links", "limits", "sorts", "switches", "connection"):
        del doc["topology"][key]
    with pytest.raises(FormatError, match="holds no links"):
        api.verify(doc)


def test_the_unit_of_a_known_machine_is_checked():
    doc = api.frontier_document(bound(topology("torus:9x9"), "allgather"))
    doc["topology"]["unit_gbps"] = "100"
    with pytest.raises(VerificationError, match=r"topology.unit_gbps: says '100', the machine has '1'"):
        api.verify(doc)


FLOW = "pareto --engine flow --topo ring:6 --coll"


def test_a_frontier_that_is_written_has_its_schedules_beside_it(tmp_path):
    stderr = synth(FLOW, "alltoall -o", tmp_path / "a.b.json").stderr
    points = json.loads((tmp_path / "a.b.json").read_text())["points"]
    assert f"{tmp_path}/a.b.schedules" in stderr
    assert [row["file"] for row in points] == [
        f"a.b.schedules/{i + 1:02}-alltoall-S{row['steps']}.npz" for i, row in enumerate(points)
    ]
    checked = synth("verify", tmp_path / "a.b.json").stdout
    assert "not checked: the point" not in checked and checked.count("every rank ends") == len(points)
    (tmp_path / points[0]["file"]).unlink()
    synth("verify", tmp_path / "a.b.json", code=4)


def test_a_frontier_on_standard_output_or_a_device_names_no_files(tmp_path):
    (tmp_path / "a.json").write_text(synth(FLOW, "allgather -o -").stdout)
    assert "not checked: the point of 3 steps" in synth("verify", tmp_path / "a.json", code=4).stdout
    synth(FLOW, "allgather -o /dev/null")


def test_a_frontier_is_not_lost_where_its_schedules_cannot_be_written(tmp_path):
    (tmp_path / "a.schedules").write_text("a file")
    done = synth(FLOW, "allgather -o", tmp_path / "a.json", code=1)
    assert "error: cannot write " in done.stderr and "take the 3-step point" in done.stdout
    synth("verify", tmp_path / "a.json", code=4)


def test_a_point_that_is_too_long_to_be_listed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(pipelining, "MOST_SENDS", 9)
    note = "not written out, so not replayed by `synth verify`: the schedules of 3 steps"
    assert note in synth(FLOW, "allgather -o", tmp_path / "a.json").stdout
    assert json.loads((tmp_path / "a.json").read_text())["notes"] == [note]
    assert "not checked: the point of 3 steps" in synth("verify", tmp_path / "a.json", code=4).stdout


@pytest.fixture
def kept(tmp_path):
    """A frontier with its schedule beside it, and both as they are."""
    large = frontier(topology("ring:4"), "allgather", 0)
    made = large.points[-1].schedule
    doc = json.loads(json.dumps(large.to_json()))
    doc["points"] = [doc["points"][-1] | {"file": "p.npz"}]

    def judged(change: dict, schedule=made) -> int:
        schedule.save(tmp_path / "p.npz")
        whole = doc | {"points": [doc["points"][0] | change]}
        (tmp_path / "frontier.json").write_text(json.dumps(whole))
        return verdict(tmp_path / "frontier.json")[0]

    return judged, made


def test_a_schedule_on_slower_links_is_another_schedule(kept):
    judged, made = kept
    assert judged({}) == 0
    slower = replace(made.topology, links=tuple(replace(k, bandwidth=k.bandwidth / 5) for k in made.topology.links))
    assert judged({}, replace(made, topology=slower)) == 5


@pytest.mark.parametrize(
    "change", [{"rounds": 1}, {"rounds": 0}, {"rounds": -5}, {"rounds": 111.0}, {"rounds": None}, {"chunks": 10**6}]
)
def test_rounds_and_chunks_make_the_rate(kept, change):
    assert kept[0](change) == 5


def test_a_limit_counts_a_link_once():
    """Listed twice, it would pay twice: two ranks would need 2 rounds for an alltoall that takes 1."""
    doc = {
        "name": "x", "ranks": 2, "connection": None, "switches": [], "sorts": [["10", "1", "nvlink"]],
        "links": {"src": [0, 1], "dst": [1, 0], "sort": [0, 0]}, "limits": [["a", "10", [0, 0]], ["b", "10", [1]]],
    }  # fmt: skip
    with pytest.raises(VerificationError, match="twice"):
        linkread.read(doc)
    machine = linkread.read(doc | {"limits": [["a", "10", [0]], ["b", "10", [1]]]})
    twice = replace(machine, limits=tuple(replace(m, links=(*m.links, *m.links)) for m in machine.limits))
    proof = {"kind": "alltoall-lengths", "links": [[2, 0]], "limits": [[2, 1]], "generators": []}
    assert scale_frontier.bound(proof | {"topology": path_lengths.alltoall_digest(machine)}, machine) == 1
    with pytest.raises(VerificationError, match="twice"):
        scale_frontier.bound(proof | {"topology": path_lengths.alltoall_digest(twice)}, twice)
