"""`synth verify` of what `synth groups` writes."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache

import pytest
from click.testing import CliRunner

from synth import api
from synth.cli import root as cli
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.process_groups import Group
from synth.view import groups as view

FILE = (
    "groups:\n  - {name: tensor, size: 2, collective: allreduce, bytes: 2}\n  - {stride: 2, collective: "
    "broadcast, bytes: 1}\n"
)


@cache
def made(search: bool = True) -> str:
    """Tensor pairs and data groups on a ring of 4."""
    groups = [
        Group((0, 1), "allreduce", Fraction(2), None, "tensor"),
        Group((2, 3), "allreduce", Fraction(2), None, "tensor"),
        Group((0, 2), "broadcast", Fraction(1), 0),
        Group((1, 3), "broadcast", Fraction(1), 1),
    ]
    return json.dumps(view.document(api.groups("ring:4", groups, search=search)))


def test_what_groups_writes_is_verified(tmp_path):
    (tmp_path / "groups.yaml").write_text(FILE)
    run = CliRunner().invoke(
        cli, ["groups", "--topo", "ring:4", "--file", f"{tmp_path}/groups.yaml", "-o", f"{tmp_path}/out.json"]
    )
    assert run.exit_code == 0, run.stderr
    said = CliRunner().invoke(cli, ["verify", f"{tmp_path}/out.json"])
    assert said.exit_code == 0, said.stderr
    first, schedule, alone, beside, last = said.stdout.splitlines()
    assert (
        first.startswith("4 groups at once on ring:4: at least ")
        and alone == "bounds of 4 groups with the machine to itself: checked"
    )
    assert schedule.startswith("schedule: C=") and last.endswith("verified: 4 groups on ring:4, 4 ranks")
    assert beside.startswith("assumed, not checked: that the machine has these links")


def test_without_a_schedule_the_bound_is_checked():
    assert len(api.verify(json.loads(made(False)))) == 3


def test_what_a_time_limit_left_open_is_verified_as_far_as_it_goes():
    doc = json.loads(made(False)) | {"open": ["a schedule", "bounds of groups alone"]}
    for row in doc["groups"]:
        row |= {"alone_seconds": None, "slowdown": None}
    assert len(api.verify(doc)) == 2
    for change, place in (({"open": "x"}, r"\$.open"), ({"open": [3]}, r"\$.open\[0\]")):
        with pytest.raises(VerificationError, match=place):
            api.verify(doc | change)
    del doc["open"]
    with pytest.raises(VerificationError):
        api.verify(doc)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("groups.0.extra", 1, r"groups\[0\]: 'extra' is not a known field"),
        ("groups.0", 3, r"groups\[0\]: " r"expected an object"),
        ("bound.seconds", "1000", "is claimed"),
        ("groups.0.slowdown", "9", r"groups\[0\].slowdown"),
        ("groups.0.bytes", "3", "other groups"),
        ("groups.0.ranks", [0, 0], "two different ranks"),
        ("groups.0.ranks", ["a", 1], r"ranks\[0\]: expected a " r"whole"),
        ("unit_bytes", "7", "unit_bytes"),
        ("seconds", "1/9", "the schedule takes"),
        ("schedule.steps.0.sends", [], r"schedule"),
        ("gap", "9", "the gap is"),
        ("topology.links.0", [0, 1, 7], "speaks about other groups or another topology"),
        ("extra", 1, "not a known field"),
        ("bound.certificate.routes", [], "proved|weighs|claimed"),
        ("topology", "ring:4", "without its links"),
        ("schema", "synth.groups/9", "schema"),
        ("schedule", None, "there is none"),
        ("groups", 3, "expected a list"),
    ],
)
def test_a_changed_document_is_refused(path, value, words):
    doc = json.loads(made())
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    inner = doc
    for key in way:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(SynthError, match=words) as caught:
        api.verify(doc)
    assert isinstance(caught.value, VerificationError | FormatError) and "\n" not in str(caught.value)


def test_a_schedule_of_other_groups_or_another_machine_is_refused():
    doc = json.loads(made())
    pair = [Group((0, 1), "allreduce", Fraction(2))]
    doc["schedule"] = view.document(api.groups("ring:4", pair))["schedule"]
    with pytest.raises(VerificationError, match="moves other data than the groups ask for"):
        api.verify(doc)
    doc["schedule"] = view.document(api.groups("fully-connected:4", pair))["schedule"]
    with pytest.raises(VerificationError, match="runs on another topology"):
        api.verify(doc)


def test_bounds_of_groups_alone_are_proved_by_one_of_each_orbit():
    rows = json.loads(made())["groups"]
    assert ["alone_certificate" in row for row in rows] == [True, False, True, False]
    assert [row["alone_as"][0] for row in rows if "alone_as" in row] == [0, 2]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("0.alone_seconds", "9", "is claimed"),
        ("1.alone_as", [1, [0, 1, 2, 3]], "names no group before"),
        ("1.alone_as", [0], "names no"),
        ("1.alone_as", [0, [0, 1, 2, 3]], "does not take group 0"),
        ("1.alone_as", [0, [2, 3, 1, 0]], "no automorphism"),
        ("1.alone_as", [2, [1, 2, 3, 0]], "names no group before"),
        ("3.alone_as", [0, [2, 3, 0, 1]], "does not take group 0"),
        ("1.alone_as", [0, [2, 2, 3, 3]], "no automorphism"),
        ("1.alone_as", [0, [True, False, 3, 2]], "no automorphism"),
        ("1.alone_as", [0, []], "no automorphism"),
        ("2.alone_certificate", None, "malformed|object"),
        ("0.alone_certificate.routes", [], "price"),
    ],
)
def test_a_bound_of_a_group_alone_that_is_not_proved_is_refused(path, value, words):
    doc = json.loads(made())
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    inner = doc["groups"]
    for key in way:
        inner = inner[key]
    inner[last] = value
    for row in doc["groups"]:
        row["slowdown"] = str(Fraction(doc["bound"]["seconds"]) / Fraction(row["alone_seconds"]))
    with pytest.raises(VerificationError, match=words):
        api.verify(doc)


def test_a_bound_of_a_group_alone_without_a_proof_is_named():
    doc = json.loads(made())
    del doc["groups"][1]["alone_as"]
    assert api.verify(doc)[-2] == "not checked: the bounds of 1 group alone, which carry no certificate"
