"""Users' topology files: the form, exact numbers, hostile input, and the way back."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.errors import FormatError
from synth.model.topology import Topology
from synth.topologies import topology, topology_files

PAIR = '{"ranks": 2, "links": [{"src": 0, "dst": 1, "bandwidth": %s}]}'


def load(tmp_path: Path, text: str | bytes, name: str = "topo.json") -> Topology:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return topology_files.load(path)


HAND_WRITTEN = """
name: two boxes
ranks: 4
connection: 25
nodes: [0, 0, 1, 1]
links:
- {src: 0, dst: 1, bandwidth: 50, both: true, kind: nvlink, latency: 0.7}
- {src: 2, dst: 3, bandwidth: 50, both: true, kind: nvlink, latency: 0.7}
- {src: 0, dst: 2, bandwidth: 12.5, both: true, kind: net}
- {src: 1, dst: 3, bandwidth: 12.5, both: true, kind: net}
limits:
- {name: NIC 0 out, links: [[0, 2], [1, 3]], bandwidth: 12.5}
- {name: NIC 1 out, links: [[2, 0], [3, 1]], bandwidth: 25/2}
symmetries: [[1, 0, 3, 2], [2, 3, 0, 1]]
"""


def test_a_file_written_by_hand(tmp_path):
    machine = load(tmp_path, HAND_WRITTEN, "topo.yaml")
    network = machine.network()
    assert (machine.name, machine.ranks, machine.nodes) == ("two boxes", 4, (0, 0, 1, 1))
    assert network.unit == Fraction(25, 2)
    assert {(r.src, r.dst): r.units for r in network.routes} == {
        (0, 1): 4, (1, 0): 4, (2, 3): 4, (3, 2): 4, (0, 2): 1, (2, 0): 1, (1, 3): 1, (3, 1): 1,
    }  # fmt: skip
    assert [c.units for c in network.caps] == [1, 1]
    assert machine.generators == ((1, 0, 3, 2), (2, 3, 0, 1))
    assert machine.links[0].latency == Fraction(7, 10)
    assert {k.latency for k in machine.links if k.kind == "net"} == {Fraction(27, 10)}


def test_json_and_yaml_say_the_same(tmp_path):
    yaml = pytest.importorskip("yaml")
    doc = yaml.safe_load(HAND_WRITTEN)
    assert load(tmp_path, json.dumps(doc)) == load(tmp_path, HAND_WRITTEN, "topo.yaml")
    assert load(tmp_path, json.dumps(doc), "no-suffix") == load(tmp_path, HAND_WRITTEN, "topo.yml")


@pytest.mark.parametrize(("text", "value"), [
    ("0.1", Fraction(1, 10)), ("25", Fraction(25)), ('"7/2"', Fraction(7, 2)), ("1e1", Fraction(10)),
    ("23.7", Fraction(237, 10)), ("0.30000000000000004", None), ("1e-3", Fraction(1, 1000)),
])  # fmt: skip
def test_numbers_are_read_from_their_text(tmp_path, text, value):
    if value is None:
        with pytest.raises(FormatError, match="no common unit"):
            load(tmp_path, PAIR % text)
        return
    assert load(tmp_path, PAIR % text).links[0].bandwidth == value
    assert load(tmp_path, PAIR % text, "topo.yaml").links[0].bandwidth == value


def test_explicit_switches(tmp_path):
    doc = {
        "ranks": 3,
        "switches": ["left", "right"],
        "links": [{"src": r, "dst": s, "bandwidth": 2, "both": True} for r in range(3) for s in ("left", "right")],
        "limits": [{"links": [[0, "left"], [0, "right"]], "bandwidth": 3}],
        "symmetries": [[0, 2, 1]],
    }
    network = load(tmp_path, json.dumps(doc)).network()
    assert {r.via for r in network.routes if (r.src, r.dst) == (0, 2)} == {("left",), ("right",)}
    assert network.caps[-1].units == 3
    with pytest.raises(FormatError, match=r"symmetries\[0\]: does not map"):
        load(tmp_path, json.dumps({**doc, "symmetries": [[1, 0, 2]]}))


def test_parallel_links_add_up_and_are_noted(tmp_path):
    links = [
        {"src": 0, "dst": 1, "bandwidth": 1, "kind": "nvlink"},
        {"src": 0, "dst": 1, "bandwidth": "0.5", "latency": 9},
    ]
    machine = load(tmp_path, json.dumps({"ranks": 2, "links": links}))
    assert [(k.bandwidth, k.latency, k.kind) for k in machine.links] == [(Fraction(3, 2), 9, "unknown")]
    assert machine.notes == ("parallel links added up: 0→1 (2 entries)",)


ROUND_TRIP = "dgx1 dgx-h100 mi100 mi50-z52 fat-tree:16 dgx1*2 dgx1*2:cross=0+2 dgx-a100*2:net=rail ring:5:units=1/3"


@pytest.mark.parametrize("name", ROUND_TRIP.split())
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_round_trip(tmp_path, name, form):
    yaml = pytest.importorskip("yaml")
    machine = topology(name)
    doc = topology_files.dump(machine)
    text = json.dumps(doc) if form == "json" else yaml.safe_dump(doc)
    assert load(tmp_path, text, f"x.{form}") == machine


def test_labels_survive(tmp_path):
    from synth.topologies.modify import apply

    machine = apply(topology("dgx1"), ranks="7,1,2")
    assert load(tmp_path, json.dumps(topology_files.dump(machine))).labels == (7, 1, 2)


_fraction = st.fractions(min_value=Fraction(1, 20), max_value=100, max_denominator=20)


@st.composite
def topologies(draw):
    n = draw(st.integers(2, 6))
    every = [(a, b) for a in range(n) for b in range(n) if a != b]
    pairs = draw(st.lists(st.sampled_from(every), unique=True, min_size=1))
    links = [{"src": a, "dst": b, "bandwidth": str(draw(_fraction)), "latency": str(draw(_fraction))} for a, b in pairs]
    member = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    limits = [{"name": "m", "links": member, "bandwidth": str(draw(_fraction))}]
    return {"ranks": n, "name": "x", "links": links, "limits": limits}


@given(topologies())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_topology_round_trips(tmp_path, doc):
    try:
        machine = load(tmp_path, json.dumps(doc))
    except FormatError as error:
        assert "common unit" in str(error)
        return
    assert load(tmp_path, json.dumps(topology_files.dump(machine))) == machine
    assert {(k.src, k.dst): str(k.bandwidth) for k in machine.links} == {
        (k["src"], k["dst"]): k["bandwidth"] for k in doc["links"]
    }


LIMITED = '{"ranks": 2, "links": [{"src": 0, "dst": 1, "bandwidth": 1}], "limits": [%s]}'
SYMMETRIC = '{"ranks": 2, "links": [{"src": 0, "dst": 1, "bandwidth": 1}], "symmetries": [%s]}'
# file name, content, where in the file, words of the message
HOSTILE = [
    ("a.json", PAIR % "NaN", "links[0].bandwidth", "expected a number"),
    ("a.json", PAIR % "Infinity", "links[0].bandwidth", "expected a number"),
    ("a.yaml", "ranks: 2\nlinks: [{src: 0, dst: 1, bandwidth: .nan}]", "links[0].bandwidth", "expected a number"),
    ("a.yaml", "ranks: 2\nlinks: [{src: 0, dst: 1, bandwidth: -.inf}]", "links[0].bandwidth", "expected a number"),
    ("a.json", PAIR % "-3", "links[0].bandwidth", "positive, found -3"),
    ("a.json", PAIR % "0", "links[0].bandwidth", "positive, found 0"),
    ("a.json", PAIR % '"0/5"', "links[0].bandwidth", "positive"),
    ("a.json", PAIR % '"5/0"', "links[0].bandwidth", "expected a number"),
    ("a.json", PAIR % "1e400", "links[0].bandwidth", "expected a number"),
    ("a.json", PAIR % "1e99", "links[0].bandwidth", "out of range"),
    ("a.json", PAIR % ("9" * 6000), "links[0].bandwidth", "expected a number"),
    ("a.json", PAIR % "true", "links[0].bandwidth", "expected a number"),
    ("a.json", PAIR % "null", "links[0]", "'bandwidth' is missing"),
    ("a.json", PAIR % "[1]", "links[0].bandwidth", "expected a number"),
    ("a.json", PAIR % '1, "latency": -1', "links[0].latency", "at least 0"),
    ("a.json", PAIR % '1, "kind": "nvlnk"', "links[0].kind", "did you mean nvlink"),
    ("a.json", PAIR % '1, "both": 1', "links[0].both", "true or false"),
    ("a.json", PAIR % '1, "bandwith": 2', "links[0]", "unknown key 'bandwith'"),
    ("a.json", '{"ranks": 2, "links": [], "lnks": 1}', None, "unknown key 'lnks'"),
    ("a.json", '{"ranks": 2}', None, "'links' is missing"),
    ("a.json", '{"ranks": 2, "links": [{"src": 0, "dst": 1, "bandw', "1:45", "not JSON"),
    ("a.json", '{"ranks": 2, "ranks": 3, "links": []}', None, "'ranks' is given twice"),
    ("a.json", '{"ranks": 0, "links": []}', "ranks", "from 1 to"),
    ("a.json", '{"ranks": 2.5, "links": []}', "ranks", "whole number"),
    ("a.json", '{"ranks": true, "links": []}', "ranks", "whole number"),
    ("a.json", '{"ranks": 99999999999, "links": []}', "ranks", "whole number"),
    ("a.json", "[]", None, "expected a mapping"),
    ("a.json", "", "1:1", "not JSON"),
    ("a.yaml", "", None, "expected a mapping"),
    ("a.json", "[" * 100000, None, "nested too deeply"),
    ("a.json", '{"ranks": 2, "links": [{"src": 0, "dst": 2, "bandwidth": 1}]}', "links[0].dst", "from 0 to 1"),
    ("a.json", '{"ranks": 2, "links": [{"src": -1, "dst": 1, "bandwidth": 1}]}', "links[0].src", "from 0 to 1"),
    ("a.json", '{"ranks": 2, "links": [{"src": 0, "dst": 0, "bandwidth": 1}]}', "links[0]", "to itself"),
    ("a.json", '{"ranks": 2, "links": [{"src": 0, "dst": "s", "bandwidth": 1}]}', "links[0].dst", "neither a rank nor"),
    ("a.json", '{"ranks": 2, "links": {"src": 0}}', "links", "expected a list"),
    ("a.json", '{"ranks": 2, "links": [7]}', "links[0]", "expected a mapping"),
    ("a.json", '{"ranks": 2, "links": [], "switches": ["5"]}', "switches[0]", "taken for a rank"),
    ("a.json", '{"ranks": 2, "links": [], "switches": ["a", "a"]}', "switches[1]", "listed twice"),
    ("a.json", '{"ranks": 2, "links": [], "name": "a\\nb"}', "name", "printable"),
    ("a.json", '{"ranks": 2, "links": [], "nodes": [0]}', "nodes", "expected 2 items"),
    ("a.json", '{"ranks": 2, "links": [], "labels": [4, 4]}', "labels", "same label"),
    ("a.json", SYMMETRIC % "[0, 0]", "symmetries[0]", "not a permutation"),
    ("a.json", SYMMETRIC % "[1, 0]", "symmetries[0]", "does not map"),
    ("a.json", LIMITED % '{"links": [[0, 1], [0, 1]], "bandwidth": 1}', "limits[0].links[1]", "twice"),
    ("a.json", LIMITED % '{"links": [[1, 0]], "bandwidth": 1}', "limits[0].links[0]", "no link 1→0"),
    ("a.json", LIMITED % '{"links": [], "bandwidth": 1}', "limits[0].links", "no links"),
    ("a.json", LIMITED % '{"links": [[0, 1]], "bandwidth": 0}', "limits[0].bandwidth", "positive"),
    ("a.json", PAIR % '"1/999999937"}, {"src": 1, "dst": 0, "bandwidth": "1/999999929"', "links 1→0", "no common unit"),
    ("a.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\nranks: 2", "2", "alias"),
    ("a.yaml", 'ranks: !!python/object/apply:os.system ["true"]', "1", "tag"),
    ("a.yaml", "ranks: 2\nranks: 3", "2", "'ranks' is given twice"),
    ("a.yaml", "[" * 1000, "1", "nested too deeply"),
    ("a.yaml", "ranks: 2\n---\nranks: 3", "2", "second document"),
    ("a.yaml", "ranks: [2", "2", "not YAML"),
    ("a.yaml", "? [a]\n: b", "1", "key must be text"),
    ("a.json", b"\xff\xfe{", None, "not UTF-8"),
    ("a.json", '{"nodes": [{"id": 0}], "links": []}', None, "is node-link JSON: in Python"),
]


@pytest.mark.parametrize(("name", "text", "place", "words"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_get_one_line_with_file_and_place(tmp_path, name, text, place, words):
    with pytest.raises(FormatError) as caught:
        load(tmp_path, text, name)
    message = str(caught.value)
    assert words in message
    assert message.startswith(str(tmp_path / name) + ":")
    assert "\n" not in message
    assert len(message) < 400 + len(str(tmp_path))
    assert caught.value.place == (int(place) if place and place.isdecimal() else place)


def test_a_file_of_100_mb_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "big.json"
    with path.open("wb") as out:
        out.truncate(100_000_000)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("was read"))
    with pytest.raises(FormatError, match="has 100000000 bytes; at most 8388608 are read"):
        topology_files.load(path)


def test_what_is_no_file_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent.json", Path("/dev/zero")):
        with pytest.raises(FormatError, match=r"is a folder|is not a file|does not exist"):
            topology_files.load(path)


@given(st.integers(0, 400), st.binary(max_size=6))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_damage_is_read_or_refused_but_never_crashes(tmp_path, at, noise):
    ring = json.dumps(topology_files.dump(topology("ring:3")))
    for name, text in (("topo.yaml", HAND_WRITTEN.encode()), ("topo.json", ring.encode())):
        try:
            load(tmp_path, text[:at] + noise + text[at + len(noise) :], name)
        except FormatError as error:
            assert "\n" not in str(error)
