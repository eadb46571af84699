"""Sketches: the links that their rules leave, frontiers under them, and the check of the documents."""

import copy
import json
from dataclasses import replace
from fractions import Fraction

import pytest

import synth
from synth import api
from synth.checker.documents import exact_frontier, sketches
from synth.cli.root import root
from synth.errors import FormatError, InfeasibleError, UsageError, VerificationError
from synth.frontiers import engine_choice
from synth.topologies import sketch_files

PAIRS = [(a, b) for a in range(4) for b in range(4) if a != b]
# two boxes of two ranks, whose links between boxes share the port of their source
MACHINE = synth.Topology(
    "two boxes", 4, [synth.Link(a, b, 2 if a // 2 == b // 2 else 1) for a, b in PAIRS],
    [synth.Limit(f"port {a}", [i for i, (x, y) in enumerate(PAIRS) if x == a and x // 2 != y // 2], 1)
     for a in range(4)],
    nodes=(0, 0, 1, 1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("sketch", "left"),
    [
        (synth.Sketch(), set(PAIRS)),
        (synth.Sketch(across="rail"), {(0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1)}),
        (synth.Sketch(across=((0, 1),)), {(0, 1), (1, 0), (2, 3), (3, 2), (0, 3), (2, 1)}),
        (synth.Sketch(across=(), inside=((1, 0),)), {(1, 0), (3, 2)}),
        (synth.Sketch(without=((0, 2), (3, 2))), set(PAIRS) - {(0, 2), (3, 2)}),
    ],
)
def test_rules_leave_links_and_their_limits(sketch, left):
    under = sketch.applied(MACHINE)
    assert {(link.src, link.dst) for link in under.links} == left
    assert under.unit_bandwidth() == MACHINE.unit_bandwidth()
    for limit in under.limits:
        ends = {(under.links[i].src, under.links[i].dst) for i in limit.links}
        source = int(limit.name.partition(" ")[2])
        assert ends == {(a, b) for a, b in left if a == source and a // 2 != b // 2}


def test_bounds_with_and_without():
    rails = api.sketched_frontier(MACHINE, "allgather", synth.Sketch("rails", across="rail"), max_steps=2)
    assert [(point.steps, point.rounds_per_chunk) for point in rails.frontier.points] == [(2, Fraction(6, 5))]
    assert (rails.free_bound(1), rails.free_bound(2), rails.cost(2)) == (2, Fraction(6, 5), 0)
    assert dict(rails.free)[0].value == 1
    gate = api.sketched_frontier(MACHINE, "allgather", synth.Sketch("gate", across=((0, 0),)), max_steps=3)
    (point,) = gate.frontier.points
    assert (point.steps, point.rounds_per_chunk, point.status) == (3, Fraction(5, 2), "optimal")
    assert gate.cost(3) == Fraction(5, 2) / Fraction(14, 13) - 1
    for step in point.schedule.steps:
        assert all(send.src // 2 == send.dst // 2 or {send.src, send.dst} == {0, 2} for send in step.sends)
    document = api.frontier_document(gate)
    assert document["schema"] == "synth.frontier/1" and document["sketch"]["rules"] == gate.sketch.rules
    assert list(synth.verify(document)) == list(synth.verify(gate))
    assert any(line.startswith("sketch gate:") for line in synth.verify(gate))


def test_a_sketch_that_parts_the_machine_proves_nothing_without_it():
    with pytest.raises(InfeasibleError, match="on two boxes under apart"):
        api.sketched_frontier(MACHINE, "allgather", synth.Sketch("apart", across=()))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: expected a mapping with across, inside, without, ways, phases, symmetric, fixed, fan, relay_memory"),
        ("- 0-1", ":1: expected a mapping"),
        (
            "# a\nrails: true",
            ":2: unknown rule 'rails'; there are across, inside, without, ways, phases, symmetric, fixed, fan, "
            "relay_memory",
        ),
        ("ways: rail", ":1: expected own rail or home, each once, found 'rail'"),
        ("ways:\n- home\n- home", ":3: expected own rail or home, each once, found 'home'"),
        ("ways: {home: 1}", ":1: expected own rail or home"),
        ("phases: 1-2", ":1: expected steps such as across: 1-2 or inside: 2-"),
        ("phases:\n  across: 1-2\n  rail: 1", ":3: unknown links 'rail'; there are across and inside"),
        ("phases: {across: 2-1}", ":1: expected steps such as 1-2, 3 or 2-, from 1, found '2-1'"),
        ("phases: {across: 0}", ":1: expected steps"),
        ("phases: {across: 1-999999}", ":1: expected steps"),
        ("phases: {across: [1, 2]}", ":1: expected steps"),
        ("phases: {across: true}", ":1: expected steps"),
        ("across: ring", ":1: expected rail, or a list of pairs such as [0-1, 2-3]"),
        ("inside: rail", ":1: expected a list of pairs"),
        ("across: rail\nwithout:\n  - 0-1\n  - 0>2", ":4: expected a pair such as 0-1, found '0>2'"),
        ("across: rail\nwithout:\n  - 0-1\n  - 0-9", ":4: two boxes has no such link from rank 0 to rank 9"),
        ("inside: [0-2]", ":1: two boxes has no such link from place 0 to place 2"),
        ("across: !!python/object:os.system x", ":1: the tag"),
        ("across: &a rail\nwithout: *a", ":2: the alias *a is refused"),
        ("across: rail\nacross: rail", ":2: the key 'across' is given twice"),
        ("across: [0-1", "is not YAML"),
    ],
)
def test_bad_sketches_name_the_line(text, says, tmp_path):
    file = tmp_path / "rails.yaml"
    file.write_text(text)
    with pytest.raises(FormatError) as error:
        sketch_files.load(file, MACHINE)
    assert str(error.value).startswith(str(file)) and says in str(error.value)
    assert "\n" not in str(error.value)


def test_machines_that_no_sketch_fits():
    with pytest.raises(UsageError, match="has switches of its own"):
        synth.Sketch().applied(synth.topology("fat-tree:4"))
    with pytest.raises(UsageError, match="across='rails'"):
        synth.Sketch(across="rails")
    alone = replace(MACHINE, nodes=(0, 1, 2, 3))
    with pytest.raises(UsageError, match="across: each rank of two boxes is a box of its own"):
        synth.Sketch(across="rail").applied(alone)
    with pytest.raises(UsageError, match="inside: each rank"):
        synth.Sketch(inside=((0, 1),)).applied(alone)
    assert synth.Sketch(without=((0, 1),)).applied(alone)
    with pytest.raises(UsageError, match="has no links between boxes"):
        synth.Sketch(across="rail").applied(synth.topology("ring:4"))


@pytest.mark.parametrize("text", ["across: [0-0]", "fan: 1", "without: [0-1]"])
def test_schedules_of_fewer_links_are_explained_on_the_whole_machine(text, tmp_path, capsys):
    file, output = tmp_path / "s.yaml", tmp_path / "f.json"
    file.write_text(text)
    names = ["--topo", "rail:2x2", "--coll", "allgather", "--max-steps", "3", "-o", str(output), "--fresh"]
    with pytest.raises(SystemExit):
        root.main(["pareto", *names, "--sketch", str(file), "--time-limit", "20s"])
    for machine in ([], ["--topo", "rail:2x2"]):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            root.main(["explain", str(output), "--point", "1", *machine])
        assert end.value.code == 0
        said = capsys.readouterr().out
        assert "right: every rank ends with what it must" in said
        assert ("idle links" in said) or not machine
    with pytest.raises(SystemExit) as end:
        root.main(["explain", str(output), "--point", "1", "--topo", "ring:4"])
    assert end.value.code in (2, 5)


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sketch")
    file, output = folder / "rails.yaml", folder / "f.json"
    file.write_text("across: rail\nwithout: [0-1]\n")
    names = ["--topo", "rail:2x3", "--coll", "allgather", "--max-steps", "3", "--max-chunks", "2"]
    with pytest.raises(SystemExit) as end:
        root.main(["pareto", *names, "--sketch", str(file), "--time-limit", "20s", "-o", str(output), "--fresh"])
    assert end.value.code in (0, 4)
    return json.loads(output.read_text())


def test_the_document_is_verified(document):
    lines = exact_frontier.document(document)
    assert "sketch rails: its rules leave 17 of 18 links, and every schedule keeps to them" in lines
    assert any(line.startswith("without the sketch: ") for line in lines)
    stated = "boxes of the sketch, which the document states and nothing here can check: "
    assert stated + "2 boxes of 3 ranks" in lines
    odd = {"topology": {"ranks": 3}, "rules": {"across": "rail"}, "nodes": [0, 1, 0]}
    assert sketches.boxes_stated(odd, "$") == stated + "by rank 0 1 0"
    assert not sketches.boxes_stated(odd | {"rules": {"without": [[0, 1]]}}, "$")


def forged(change):
    def apply(document):
        changed = copy.deepcopy(document)
        change(changed["sketch"])
        return changed

    return apply


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda sketch: sketch["rules"].update(without=[[0, 2]]), "are not the links that the rules"),
        (lambda sketch: sketch["rules"].update(inside=[]), "are not the links that the rules"),
        (lambda sketch: sketch["rules"].update(fans=2), "unknown rule 'fans'"),
        (lambda sketch: sketch["rules"].update(across="rails"), "expected a list, found text"),
        (lambda sketch: sketch.update(nodes=[0, 0, 0, 0, 1, 1]), "links that the rules"),
        (lambda sketch: sketch.update(nodes=[]), "puts no link between two boxes"),
        (lambda sketch: sketch.update(nodes=[4] * 6), "puts no link between two boxes"),
        (lambda sketch: sketch.update(nodes=list(range(6))), "a box of its own"),
        (lambda sketch: sketch.update(nodes=list(range(6)), rules={"inside": [[0, 1]]}), "a box of its own"),
        (lambda sketch: sketch.update(nodes=[0, 1]), "names 2 boxes for 6 ranks"),
        (lambda sketch: sketch["topology"]["links"].pop(), ""),
        (lambda sketch: sketch["topology"].update(unit_gbps="1/7"), "is not the machine's"),
        (lambda sketch: sketch["bounds"][-1].update(value="9"), "the certificate proves"),
        (lambda sketch: sketch.pop("bounds"), "bounds"),
        (lambda sketch: sketch["rules"].update(without=[[0]]), "expected a pair"),
    ],
)
def test_forged_documents_are_refused(document, change, says):
    with pytest.raises(VerificationError) as error:
        exact_frontier.document(forged(change)(document))
    assert says in str(error.value)


@pytest.mark.parametrize("key", ["wires", "multicast"])
def test_switches_are_no_part_of_a_sketch(document, key):
    sketch, topology = document["sketch"], document["topology"]
    assert sketches.check_links(sketch, topology, "$.sketch") == (17, 18)
    with pytest.raises(VerificationError, match=f"has {key}"):
        sketches.check_links(sketch, topology | {key: []}, "$.sketch")
    with pytest.raises(VerificationError, match=f"has {key}"):
        sketches.check_links(sketch | {"topology": sketch["topology"] | {key: []}}, topology, "$.sketch")


def test_sketches_keep_exact_synthesis_where_auto_means_flow_methods(tmp_path, monkeypatch):
    file = tmp_path / "rails.yaml"
    file.write_text("across: rail\n")
    asked = []

    def search(topology, collective, *, engine, **_):
        asked.append((topology.name, engine, engine_choice.engine_of_frontier(topology, collective)))
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "frontier", search)
    for machine in ("mi300x*3", "dgx-a100*3"):
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            root.main(["pareto", "--topo", machine, "--coll", "allgather", "--sketch", str(file)])
    assert asked == [("mi300x*3 under rails", "exact", "flow"), ("dgx-a100*3 under rails", "auto", "exact")]


def test_large_machines_are_refused(tmp_path, capsys):
    file = tmp_path / "rails.yaml"
    file.write_text("across: rail\n")
    with pytest.raises(SystemExit) as end:
        root.main(["pareto", "--topo", "dgx-a100*9", "--coll", "allgather", "--sketch", str(file)])
    assert end.value.code == 2
    assert "--sketch is for exact synthesis" in capsys.readouterr().err
