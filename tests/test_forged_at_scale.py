"""False documents at scale do not verify: frontiers, bounds, and proofs that nothing arrives."""

import json
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from synth.checker.certificates import machine_digest, partition, path_lengths, throughput_cuts, unreachable
from synth.checker.documents import link_columns as linkread
from synth.checker.documents import scale_frontier
from synth.commands import api, root
from synth.errors import VerificationError
from synth.model.documents import link_columns
from synth.model.topology import Limit, Link, Topology
from synth.scale.search import bound, frontier
from tests.command_line import synth


def verified(doc: dict, tmp_path) -> tuple[int, str]:
    """The answer of `verdict` on a document."""
    (tmp_path / "f.json").write_text(json.dumps(doc))
    return verdict(tmp_path / "f.json")


def verdict(path: Path) -> tuple[int, str]:
    """Exit code of `synth verify`, and all it said: one line where something is wrong, and no traceback."""
    done = CliRunner().invoke(root, ["verify", str(path)])
    assert done.exit_code in (0, 4) or (done.stdout == "" and done.stderr.count("\n") == 1), done.output
    return done.exit_code, done.output


def changed(doc: dict, path: str, value: object) -> dict:
    """Return `doc` with another value at `path`."""
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    inner = doc
    for key in way:
        inner = inner[key]
    inner[last] = value  # type: ignore[index]
    return doc


def parallel(count: int, narrow: int, limits: tuple[Limit, ...] = ()) -> Topology:
    """Two ranks: `count` links of 1000 there, and one of 1, and one of 1 back."""
    links = [*(Link(0, 1, Fraction(1000)) for _ in range(count)), Link(0, 1, Fraction(narrow)), Link(1, 0, Fraction(1))]
    return Topology("wide", 2, tuple(links), limits)


def lengths(machine: Topology, links: list, limits: list = (), generators: list = ()) -> dict:  # type: ignore[assignment]
    return {
        "kind": "alltoall-lengths",
        "topology": path_lengths.alltoall_digest(machine),
        "links": links,
        "limits": list(limits),
        "generators": list(generators),
    }


@pytest.mark.parametrize("power", [31, 52, 53, 59, 60])
def test_lengths_are_added_up_without_wrapping(power, monkeypatch):
    """Links that come to 2^64 together cost nothing, and a bound that two ranks are far beyond was proved."""
    monkeypatch.setattr(path_lengths, "MAX_LENGTH", 1 << 61)  # so that a few links do what took millions
    count = 1 << 64 - power if power > 55 else 64
    machine, long = parallel(count, 1), 1 << power
    proved = path_lengths.check(lengths(machine, [[count, long], [1, long], [1, 0]]), machine)
    assert proved == Fraction(long, (1000 * count + 1) * long)


@pytest.mark.parametrize("long", [1 << 40, 1 << 53, 1 << 62, 1 << 63, 1 << 64, -1, True, 1.0, "1", None])
def test_a_length_is_a_small_whole_number(long):
    machine = parallel(1, 1)
    with pytest.raises(VerificationError, match=r"links\[0\]|links: is too|add up"):
        path_lengths.check(lengths(machine, [[3, long]]), machine)


def test_lengths_of_many_limits_add_up_without_wrapping(monkeypatch):
    monkeypatch.setattr(path_lengths, "MAX_LENGTH", 1 << 61)
    machine = parallel(1, 1, tuple(Limit(f"l{i}", (0, 1, 2), Fraction(1)) for i in range(16)))
    with pytest.raises(VerificationError, match="the lengths of a way add up to"):
        path_lengths.check(lengths(machine, [[3, 0]], [[16, 1 << 60]]), machine)


@pytest.mark.parametrize(
    "row",
    [[0, 1, 2], [1, 1, 2, 3], [True, 0, 2, 3], ["1", "0", "2", "3"], [1.0, 0, 2, 3], [1, 0, 3, 2], [-1, 0, 1, 2], 3],
)
def test_a_generator_is_an_automorphism_in_whole_numbers(row):
    """1 and 0 exchanged alone keep no line 0-1-2-3."""
    machine = api.topology("line:4")
    with pytest.raises(VerificationError, match=r"generators\[0\]|malformed"):
        path_lengths.check(lengths(machine, [[6, 1]], [], [row]), machine)


def test_one_rank_and_links_of_nothing_prove_no_alltoall():
    alone = Topology("alone", 1, ())
    with pytest.raises(VerificationError, match="proves nothing"):
        path_lengths.check(lengths(alone, []), alone)
    dead = Topology("dead", 2, (Link(0, 1, Fraction(0)), Link(1, 0, Fraction(0))))
    with pytest.raises(VerificationError, match="proves nothing"):
        path_lengths.check(lengths(dead, [[2, 1]]), dead)


@cache
def ring() -> str:
    """The frontier of an alltoall on a ring of four, with its links in the document."""
    return json.dumps(frontier(api.topology("ring:4"), "alltoall").to_json())


def test_each_point_that_is_not_replayed_is_named(tmp_path):
    doc = json.loads(ring())
    code, said = verified(doc, tmp_path)
    lines = [line for line in said.splitlines() if line.startswith("not checked: the point")]
    assert code == 4 and len(lines) == len(doc["points"]) > 0
    for line, row in zip(lines, doc["points"], strict=True):
        assert f"the point of {row['steps']} step" in line and f"R/C={row['bandwidth']}:" in line
    claims = f"verified but for {len(lines)} claim{'s' * (len(lines) > 1)} not checked: alltoall on ring:4, 4 ranks"
    assert said.splitlines()[-1].endswith(claims)
    assert verified(doc | {"points": []}, tmp_path)[0] == 0


def test_points_have_growing_steps(tmp_path):
    doc = json.loads(ring())
    row = doc["points"][0]
    gap = str(Fraction(8) / Fraction(doc["bound"]["value"]) - 1)
    slower = row | {"bandwidth": "8", "rounds": 8 * row["chunks"], "gap": gap}
    code, said = verified(doc | {"points": [slower, row]}, tmp_path)
    assert code == 5 and "points[1].steps: " in said


def test_the_least_number_of_steps_is_checked_or_named(tmp_path, monkeypatch):
    doc = json.loads(ring()) | {"points": []}
    assert "takes fewer than 2 steps\n" in verified(doc, tmp_path)[1]
    monkeypatch.setattr(scale_frontier, "MOST_LOOKED_AT", 8)  # one rank alone: it is as far from another as any
    assert verified(doc, tmp_path)[0] == 0
    assert verified(doc | {"least_steps": 3}, tmp_path)[0] == 4
    monkeypatch.setattr(scale_frontier, "MOST_LOOKED_AT", 7)
    code, said = verified(doc, tmp_path)
    assert code == 4 and "not checked: that no alltoall on " in said
    assert "takes fewer than 2 steps: the machine is large" in said


def test_the_root_is_part_of_what_is_said(tmp_path):
    found = api.scale_bound("ring:5", "broadcast", roots=[3])
    code, said = verified(api.frontier_document(found), tmp_path)
    assert code == 0 and "no broadcast on ring:5 with root 3 takes fewer" in said


def certificate(machine: Topology, kind: str, **fields: object) -> dict:
    """A certificate of the rate of an allgather, or of an allreduce."""
    about = {} if kind == "allreduce-parts" else {"collective": "allgather", "root": None}
    return {"kind": kind, "topology": machine_digest.digest(machine)} | about | fields


@pytest.mark.parametrize("width", [Fraction(0), Fraction(-1)])
@pytest.mark.parametrize("where", ["link", "limit"])
def test_bandwidths_that_are_none_prove_nothing(where, width):
    """A bandwidth of -1 beside one of 2 made a cut that is left by 1."""
    links = [Link(0, 1, Fraction(2)), Link(0, 1, width if where == "link" else Fraction(1)), Link(1, 0, Fraction(2))]
    machine = Topology("odd", 2, tuple(links), (Limit("l", (1,), width if where == "limit" else Fraction(1)),))
    cut = certificate(machine, "throughput-cut", inside=[[0, 0]], limits=[0] if where == "limit" else [])
    halves = certificate(machine, "allreduce-parts", regions=[[0], [1]], limits=[[0], []])
    checks = ((throughput_cuts.check, cut), (partition.check, halves))
    for check, proof in checks:
        if width < 0:
            with pytest.raises(VerificationError, match="negative bandwidth"):
                check(proof, machine)
        else:
            assert check(proof, machine) <= Fraction(1, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"limits": [[0, 0], []]}, {"regions": [[0, 0], [1]]}, {"regions": [[0], []]}, {"regions": [[0, 1]]},
        {"regions": []}, {"entering": False}, {"regions": [[False], [1]]}, {"limits": [[True], []]},
    ],
)  # fmt: skip
def test_parts_are_sets_that_hold_every_rank_once(change):
    links = (Link(0, 1, Fraction(2)), Link(1, 0, Fraction(2)))
    machine = Topology("two", 2, links, (Limit("a", (0,), Fraction(1)), Limit("b", (1,), Fraction(1))))
    good = certificate(machine, "allreduce-parts", regions=[[0], [1]], limits=[[0], [1]])
    assert partition.check(good, machine) == 1
    with pytest.raises(VerificationError):
        partition.check(good | change, machine)


@pytest.mark.parametrize(
    "change",
    [
        {"cuts": []}, {"cuts": [["0", [[0, 0]]]]}, {"cuts": [["1", []]]}, {"cuts": [["1", [[0, 1]]]]}, {"cuts": {}},
        {"limits": [[0, "1"], [0, "1"]]}, {"limits": [[0, "-1"]]}, {"potentials": [[0, "1"]]},
        {"potentials": [[2, "1"], [2, "1"]]}, {"cuts": [["-1", [[0, 0]]]]},
    ],
)  # fmt: skip
def test_several_cuts_need_weights(change):
    links = (Link(0, 2, Fraction(2)), Link(2, 1, Fraction(2)), Link(1, 0, Fraction(1)))
    machine = Topology("hub", 2, links, (Limit("a", (0,), Fraction(1)),), ("s",))
    fields = {"cuts": [["1", [[0, 0]]]], "limits": [[0, "1"]], "potentials": []}
    good = certificate(machine, "throughput-cuts", **fields)
    assert throughput_cuts.check(good, machine) == 1
    with pytest.raises(VerificationError):
        throughput_cuts.check(good | change, machine)


def apart() -> dict:
    """Nothing leads from ranks 0 and 1 to rank 2."""
    machine = Topology("apart", 3, tuple(Link(a, b, Fraction(1)) for a, b in ((0, 1), (1, 0), (2, 0))))
    proof = certificate(machine, "unreachable", pair=[0, 2], closed=[[0, 1]], collective="broadcast", root=0)
    topology = {"name": "apart", "ranks": 3, "unit_gbps": "1"} | link_columns.columns(machine)
    head = {"schema": "synth.infeasible/1", "topology": topology, "collective": "broadcast", "max_steps": None}
    return head | {"certificate": proof}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("root", False), ("root", 1), ("root", None), ("pair", [0, 1]), ("pair", [False, 2]), ("pair", [0]),
        ("closed", []), ("closed", [[0, 2]]), ("closed", [[0, 0]]), ("collective", "scan"), ("kind", "distance"),
        ("collective", "allgather"), ("collective", ["broadcast"]), ("more", 1),
    ],
)  # fmt: skip
def test_what_cannot_be_reached_is_for_one_root(key, value, tmp_path):
    doc = apart()
    code, said = verified(doc, tmp_path)
    assert code == 0 and "with root 0: no schedule, rank 0 cannot reach rank 2" in said
    doc["certificate"][key] = value
    assert verified(doc, tmp_path)[0] == 5


@pytest.mark.parametrize(
    "change", [{"collective": "gather"}, {"max_steps": 3}, {"max_steps": False}, {"more": 1}, {"certificate": None}]
)
def test_an_altered_proof_is_refused(change, tmp_path):
    assert verified(apart() | change, tmp_path)[0] == 5
    assert verified(changed(apart(), "topology.extra", 1), tmp_path)[0] == 5
    doc = apart()
    doc["topology"]["unit_gbps"] = "25"
    code, said = verified(doc, tmp_path)
    assert code == 5 and "topology.unit_gbps: says '25'" in said


def test_a_proof_for_no_root_names_none():
    machine = linkread.read(apart()["topology"])
    proof = apart()["certificate"] | {"collective": "alltoall"}
    with pytest.raises(VerificationError, match="rooted"):
        unreachable.check(proof, machine)
    assert unreachable.check(proof | {"root": None}, machine) == (0, 2)


def test_all_files_are_checked_where_one_is_wrong(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    synth("bound --topo ring:4 --coll allgather -o right.json")
    lie = json.loads(Path("right.json").read_text())
    lie["bounds"][-1]["value"] = "99"
    Path("lie.json").write_text(json.dumps(lie))
    Path("no.json").write_text("{")
    outcome = synth("verify no.json lie.json right.json", code=5)
    assert "right.json: verified" in outcome.stdout
    assert "no.json" in outcome.stderr and "says 99" in outcome.stderr


# every field is read strictly


# what is refused wherever that is said
ALTERED = [
    ("topology.sorts", [["0", "1", "unknown"]]), ("topology.sorts", [["-1", "1", "unknown"]]), ("open", "soon"),
    ("topology.sorts", [[1, "1", "unknown"]]), ("topology.sorts", [[True, "1", "unknown"]]),
    ("topology.connection", "-1"), ("topology.unit", "1"), ("topology.links.src.0", True), ("topology.links.more", []),
    ("topology.switches", ["s"]), ("topology.limits", [["l", "1", [0, 0]]]), ("topology.limits", [["l", "1"]]),
    ("points.0.gap", "-1"), ("points.0.bandwidth", "0"), ("points.0.rounds", -1), ("points.0.chunks", 0),
    ("points.0.steps", True), ("least_steps", 3), ("bound.certificate", []), ("bound.certificate.more", 1),
    ("bound.certificate.kind", ["alltoall-lengths"]), ("bound.certificate.kind", "throughput-cut"),
    ("collective", "allgather"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("extra", 1, "$: 'extra' is not a known field"),
        ("topology.extra", 1, "topology: 'extra' is not a known field"),
        ("points.0.extra", 1, "points[0]: 'extra' is not a known field"),
        ("bound.extra", 1, "bound: 'extra' is not a known field"),
        ("root", 0, "root: alltoall has no root"),
        ("root", "x", "root: alltoall has no root"),
        ("seconds", "soon", "seconds: "),
        ("seconds", -1, "seconds: "),
        ("seconds", None, "seconds: "),
        ("seconds", True, "seconds: "),
        ("points.0.engine", 7, "points[0].engine: "),
        ("points.0.engine", None, "points[0].engine: "),
        ("points.0.engine", "a\u001b[2J", "points[0].engine: "),
        ("notes", "x", "notes: "),
        ("notes", [3], "notes[0]: "),
        ("open", {}, "open: "),
        ("open", [None], "open[0]: "),
        ("points.0.steps", 0, "points[0].steps: "),
        ("points.0.steps", 2.0, "points[0].steps: "),
        ("points.0.file", 3, "points[0].file: "),
        ("points", {}, "points: "),
        ("points.0.gap", 0.5, "points[0].gap: "),
        ("bound.value", 3, "bound.value: "),
        ("least_steps", True, "least_steps: "),
        ("topology.name", 5, "topology.name: "),
        ("topology.ranks", "4", "topology.ranks: "),
        ("collective", ["allgather"], "collective: "),
        ("collective", "scan", "collective: "),
        *(("bound.value", value, "bound.value: ") for value in ("0", "-1", "0/5", "1/0", 0, None, "nan", "1e999")),
        *((path, value, "") for path, value in ALTERED),
    ],
)
def test_any_altered_field_is_refused_with_its_place(path, value, place, tmp_path):
    assert verified(json.loads(ring()), tmp_path)[0] == 4  # its points have no files
    code, said = verified(changed(json.loads(ring()), path, value), tmp_path)
    assert code == 5 and f"f.json: {place}" in said


@pytest.mark.parametrize("value", [None, 4, -1, 1.0, True, "1"])
def test_a_broadcast_has_a_rank_as_its_root(value, tmp_path):
    rooted = json.loads(json.dumps(frontier(api.topology("ring:4"), "broadcast", 1).to_json()))
    assert verified(rooted, tmp_path)[0] == 4
    code, said = verified(changed(rooted, "root", value), tmp_path)
    assert code == 5 and "f.json: root: " in said


def test_seconds_are_finite(tmp_path):
    text = json.dumps(json.loads(ring()) | {"seconds": 123, "open": ["a line"]})
    assert verified(json.loads(text), tmp_path)[0] == 4  # its points have no files
    (tmp_path / "a.json").write_text(text.replace('"seconds": 123', '"seconds": 1e999'))
    assert "seconds: expected seconds" in synth("verify", tmp_path / "a.json", code=5).stderr


def test_a_report_refuses_it_too(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(changed(json.loads(ring()), "points.0.engine", 7)))
    found = synth("report", tmp_path / "a.json", "-o", tmp_path / "a.html", code=1)
    assert "points[0].engine: expected a line of text" in found.stderr


# a certificate is about the document's own collective and root

MESH = api.topology("mesh:3x3")


@pytest.fixture(scope="module")
def mesh_bounds():
    names = ("allgather", "broadcast", "allreduce", "alltoall")
    return {name: bound(MESH, name) for name in names} | {"from 4": bound(MESH, "broadcast", 4)}


def checked(claim, proof) -> list[str]:
    doc = api.frontier_document(claim)
    doc["bound"] = {"value": str(proof.bound), "certificate": proof.certificate}
    return scale_frontier.document(doc, Path(), lambda: MESH)


@pytest.mark.parametrize("claim", ["allgather", "broadcast", "allreduce", "alltoall"])
@pytest.mark.parametrize("proof", ["allgather", "broadcast", "allreduce", "alltoall"])
def test_of_its_own_collective(mesh_bounds, claim, proof):
    if claim == proof:
        assert f"no {claim} on" in checked(mesh_bounds[claim], mesh_bounds[proof])[0]
    else:
        with pytest.raises(VerificationError, match="another collective"):
            checked(mesh_bounds[claim], mesh_bounds[proof])


def test_of_its_own_root(mesh_bounds):
    assert checked(mesh_bounds["from 4"], mesh_bounds["from 4"])
    with pytest.raises(VerificationError, match="another root"):
        checked(mesh_bounds["from 4"], mesh_bounds["broadcast"])
