"""A document whose numbers do not belong together says which field differs, and how."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from synth.commands import api
from synth.errors import VerificationError
from synth.model.documents import json_diff
from synth.scale.search import bound, frontier
from synth.topologies import modify, topology


@pytest.mark.parametrize(
    ("here", "there", "message"),
    [
        ({"a": 1}, {"a": 2}, "a is 1, there 2"),
        ({"a": 1}, {}, "a stands, there is missing"),
        ([[1, 2], [3]], [[1, 2], [4]], "[1] is [3], there [4]"),
        ({"a": [[0]]}, {"a": [[0], [1]]}, "a has 1 entry, there 2"),
        ({"a": {}}, {"a": 3}, "a is {}, there 3"),
        (1, True, "the whole is 1, there True"),
        ({"a": [1]}, {"a": [1]}, "nothing that differs from it there"),
    ],
)
def test_the_first_difference_is_named(here, there, message):
    assert json_diff.describe(here, there, "there") == message


def test_a_number_that_does_not_belong_there_is_named():
    small, machine = api.frontier("ring:4", "allgather"), modify.apply(topology("dgx1"), degrade=("0-1:1/2",))
    doc, other, third = (json.loads(json.dumps(each.to_json())) for each in (small, small, bound(machine, "allgather")))
    doc["topology"]["links"][2][2] = 3
    other["collective"]["post"].pop()
    third["topology"]["sorts"][0][0] = "75"
    for changed, message in (
        (doc, r"than the frontier's: links\[2\] is \[1, 2, 1\], in \$.topology \[1, 2, 3\]"),
        (other, r"^\$.collective: pre and post are not those of allgather over 4 ranks"),
        (third, r"^bound.certificate: topology: speaks about another topology than these 8 ranks, 0 switches, "),
    ):
        with pytest.raises(VerificationError, match=message):
            api.verify(changed)


def test_a_file_for_another_machine(tmp_path):
    large = frontier(topology("ring:4"), "allgather", 0)
    made = large.points[-1].schedule
    links = (replace(made.topology.links[0], bandwidth=Fraction(3)), *made.topology.links[1:])
    replace(made, topology=replace(made.topology, links=links)).save(tmp_path / "p.npz")
    doc = large.to_json()
    (tmp_path / "a.json").write_text(json.dumps(doc | {"points": [doc["points"][-1] | {"file": "p.npz"}]}))
    with pytest.raises(
        VerificationError,
        match=r"its file is for another machine: links\[0\] is \[0, 1, '3'\], in the document \[0, 1, '1'\]",
    ):
        api.verify(tmp_path / "a.json")
