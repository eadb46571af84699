"""A synthesis builds the document of each machine and collective once, and parses none that it made."""

from collections import Counter

import pytest

import synth
from synth.model.collective import Collective
from synth.model.topology import Network


def test_a_synthesis_builds_each_document_once_and_parses_none(tmp_path, monkeypatch):
    built: Counter = Counter()
    for cls in (Network, Collective):
        document = vars(cls)["document"]

        def count(value, make=document.func):
            built[value] += 1
            return make(value)

        def refuse(*arguments, cls=cls):
            pytest.fail(f"parses a document of its own {cls.__name__}")

        monkeypatch.setattr(document, "func", count)
        monkeypatch.setattr(cls, "from_json", refuse)
    found = synth.frontier("ring:4", "allgather", engine="exact", log=tmp_path / "log.jsonl", fresh=True)
    assert found.complete
    assert {type(value) for value in built} == {Network, Collective} and set(built.values()) == {1}
