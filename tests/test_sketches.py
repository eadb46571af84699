"""Sketches: the links that their rules leave, and frontiers of the machine with these alone."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

import synth
from synth.commands import pareto
from synth.errors import FormatError, InfeasibleError, UsageError, VerificationError
from synth.topologies import sketches
from tests.automorphisms import route_permutation
from tests.command_line import synth as cli

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
    assert {link.bandwidth for link in under.links} <= {link.bandwidth for link in MACHINE.links}
    for limit in under.limits:
        if not limit.links:  # links of 2 units alone, whose rounds are those of the machine
            assert under.network().unit == 1 and not under.network().caps
            continue
        ends = {(under.links[i].src, under.links[i].dst) for i in limit.links}
        source = int(limit.name.partition(" ")[2])
        assert ends == {(a, b) for a, b in left if a == source and a // 2 != b // 2}


def test_the_frontier_is_that_of_the_links_that_are_left():
    under = synth.Sketch("gate", across=((0, 0),)).applied(MACHINE)
    found = synth.frontier(under, "allgather", max_steps=3)
    (point,) = found.points
    assert (point.steps, point.rounds_per_chunk, point.status) == (3, Fraction(5, 2), "optimal")
    for step in point.schedule.steps:
        assert all(send.src // 2 == send.dst // 2 or {send.src, send.dst} == {0, 2} for send in step.sends)
    assert any(note.startswith("sketch gate keeps 6 of 12 links of two boxes:") for note in found.notes)
    with pytest.raises(InfeasibleError, match="on two boxes under apart"):
        synth.frontier(synth.Sketch("apart", across=()).applied(MACHINE), "allgather")


def test_symmetries_that_a_sketch_names_are_declared_first():
    turn, swap = (2, 3, 0, 1), (1, 0, 3, 2)
    under = synth.Sketch("turns", symmetric=[[2, 4], swap]).applied(MACHINE)
    assert under.generators == (turn, swap)
    assert all(route_permutation(under.network(), ranks) for ranks in under.generators)
    for row in ([1, 4], [2, 1, 0, 3], [0, 1], [0, 0, 0, 0], [2, 8], [7]):
        with pytest.raises(UsageError, match=r"symmetric\[0\]: .* does not keep the links and limits of two boxes"):
            synth.Sketch(symmetric=[row]).applied(MACHINE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ": expected a mapping"),
        ("- 0-1", ": expected a mapping"),
        ("# a\nrails: true", ": unknown key 'rails'; the keys here are across, inside, without, symmetric"),
        ("symmetric: 1", ":symmetric: expected a list"),
        ("symmetric:\n- [2, 4]\n- 0-1", ":symmetric[1]: expected a list, found 0-1"),
        ("symmetric:\n- [2, 4]\n- [1, 4]", "symmetric[1]: [1, 4] does not keep the links and limits of two boxes"),
        ("across: ring", "across='ring': 'rail', or pairs of places"),
        ("inside: rail", ":inside: expected a list"),
        ("across: rail\nwithout:\n  - 0-1\n  - 0>2", ":without[1]: expected a pair such as 0-1, found '0>2'"),
        ("across: rail\nwithout:\n  - 0-1\n  - 0-9", "without[1]: two boxes has no such link from rank 0 to rank 9"),
        ("inside: [0-2]", "inside[0]: two boxes has no such link from place 0 to place 2"),
        ("across: !!python/object:os.system x", ":1: the tag"),
        ("across: &a rail\nwithout: *a", ":2: the alias *a is refused"),
        ("across: rail\nacross: rail", ":2: the key 'across' is given twice"),
        ("across: [0-1", "is not YAML"),
    ],
)
def test_bad_sketches_name_the_place(text, says, tmp_path):
    file = tmp_path / "rails.yaml"
    file.write_text(text)
    with pytest.raises(FormatError) as error:
        sketches.load(file, MACHINE)
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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The document of a frontier under a sketch, and its file."""
    folder = tmp_path_factory.mktemp("sketch")
    file, output = folder / "gate.yaml", folder / "f.json"
    file.write_text("across: [0-0]\n")
    names = "--topo rail:2x2 --coll allgather --max-steps 3"
    cli("pareto", names, "--sketch", file, "--time-limit 10min --fresh -o", output)
    return json.loads(output.read_text()), output


def test_the_document_claims_nothing_of_the_whole_machine(written):
    document, _ = written
    claims = synth.verify(document)
    assert claims.subject == "allgather on rail:2x2 under gate, 4 ranks" and not claims.differs
    assert document["notes"][0].startswith("sketch gate keeps 6 of 8 links of rail:2x2:")
    # by the name of the whole machine it is a document of another machine, and with its links the proofs are of another
    whole = synth.topology("rail:2x2").network().to_json()
    named = json.loads(json.dumps(document).replace("rail:2x2 under gate", "rail:2x2"))
    assert synth.verify(named).differs.startswith("differs: the machine of this document is called 'rail:2x2'")
    with pytest.raises(VerificationError):
        synth.verify(named | {"topology": whole})
    for key, value in (("sketch", {}), ("rules", {})):
        with pytest.raises(VerificationError, match=key):
            synth.verify(document | {key: value})
    with pytest.raises(VerificationError, match="rules"):
        synth.verify(document | {"topology": document["topology"] | {"rules": {"boxes": [0, 0, 1, 1]}}})


def test_schedules_of_fewer_links_are_explained_on_the_whole_machine(written):
    _, output = written
    for machine in ("", "--topo rail:2x2"):
        said = cli("explain", output, "--point 1", machine).stdout
        assert "right: every rank ends with what it must" in said
        assert ("idle links" in said) or not machine
    cli("explain", output, "--point 1 --topo ring:4", code=5)


def test_a_machine_under_a_sketch_is_searched_as_any_other(tmp_path, monkeypatch):
    file = tmp_path / "rails.yaml"
    file.write_text("across: rail\n")
    asked = []

    def search(options):
        asked.append((options.topology.name, len(options.topology.links)))
        raise KeyboardInterrupt

    monkeypatch.setattr(pareto.frontier, "of", search)
    cli("pareto --topo dgx-a100*9 --coll allgather --sketch", file, code=130)
    assert asked == [("dgx-a100*9 under rails", 9 * 56 + 72 * 8)]
