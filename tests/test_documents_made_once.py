"""A synthesis builds the document of each machine and collective once, and parses none that it made."""

from collections import Counter

import pytest
from click.testing import CliRunner

from synth.commands.root import root
from synth.model.collective import Collective
from synth.model.topology import Network


def test_synth_pareto_builds_each_document_once_and_parses_none(tmp_path, monkeypatch):
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
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    run = CliRunner().invoke(root, ["pareto", "--topo", "dgx1", "--coll", "allgather", "-o", str(tmp_path / "f.json")])
    assert run.exit_code == 0, run.output
    assert "complete" in run.output
    assert {type(value) for value in built} == {Network, Collective} and set(built.values()) == {1}
    print({f"{type(value).__name__} {value.name}": times for value, times in built.items()})
