"""The fuzzer of the command line: its cases are repeatable, reach every command, and its judgement can fail."""

import json
from random import Random

import pytest

from bench import fuzz


@pytest.fixture
def folder(tmp_path):
    for name, text in fuzz.WRITTEN.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_seed_gives_the_same_cases_and_reaches_every_command(folder):
    cases = [fuzz.case(5, k, folder) for k in range(400)]
    assert cases == [fuzz.case(5, k, folder) for k in range(400)]
    assert cases[:10] != [fuzz.case(6, k, folder) for k in range(10)]
    called = {words for words, _ in fuzz.commands() if any(case.arguments[: len(words)] == words for case in cases)}
    assert called == {words for words, _ in fuzz.commands()}
    assert any(case.files for case in cases)


def test_every_named_value_belongs_to_an_option():
    names = {parameter.name for _, command in fuzz.commands() for parameter in command.params}
    assert fuzz.VALUES.keys() <= names


def test_alterations_change_files():
    text = json.dumps({"a": [1, 2, 3], "b": {"c": "d"}}).encode()
    altered = {fuzz.altered(text, Random(seed)) for seed in range(60)}
    assert len(altered) > 30
    assert len({fuzz.altered(b"one 1\ntwo 2\n", Random(seed)) for seed in range(60)}) > 10
    assert fuzz.altered(b"", Random(1)) == b""


@pytest.mark.parametrize(("code", "said", "fault"), [
    (0, "", ""), (4, "", ""), (130, "synth: interrupted", ""), (1, "synth: error: no", ""),
    (-6, "terminate called", "signal 6"), (7, "", "not documented"),
    (1, "synth: error: internal error, KeyError", "internal"), (1, "", "without a word"),
    (0, "Traceback (most recent call last):", "traceback"),
])  # fmt: skip
def test_what_counts_as_a_fault(code, said, fault):
    assert (fault in fuzz.fault(code, said)) if fault else fuzz.fault(code, said) == ""


def test_a_command_that_fails_is_saved_and_can_be_replayed(folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fuzz, "prepare", lambda place: None)
    monkeypatch.setattr(fuzz, "run", lambda asked, place: fuzz.Ended(-11, fuzz.fault(-11, ""), ""))
    saved = tmp_path / "saved"
    assert fuzz.main(["--seed", "3", "--cases", "2", "--jobs", "1", "--saved", str(saved)]) == 1
    assert sorted(path.name for path in saved.iterdir()) == ["3-0.json", "3-1.json"]
    assert "2 failed" in capsys.readouterr().out
    assert fuzz.main(["--replay", str(saved / "3-0.json")]) == 1


def test_a_case_is_run_in_a_folder_of_its_own(folder):
    ended = fuzz.run(fuzz.Case(("topo", "show", "ring:4", "-o", "out.json"), {}), folder)
    assert (ended.code, ended.fault) == (0, "")
    assert not (folder / "out.json").exists()
