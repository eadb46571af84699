"""The log of a sweep where it cannot be kept, and what a frontier says of itself."""

from fractions import Fraction

import pytest

import synth
from synth.errors import SynthError
from synth.model.rational import size_bytes
from synth.pareto.first_rows import SingleCut
from synth.pareto.log import Log, LogError


def test_a_cache_that_cannot_be_written_stops_no_sweep(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "file"))
    found = synth.frontier("ring:4", "allgather")
    assert found.complete
    assert any("no log: cannot write" in note and "SYNTH_CACHE" in note for note in found.notes)
    with pytest.raises(SynthError, match="cannot write the sweep's log"):  # a log that was asked for is another matter
        synth.frontier("ring:4", "allgather", log=tmp_path / "file" / "log.jsonl")


def test_two_runs_of_one_question_do_not_share_a_log(tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    first = Log(path, "key")
    first.append({"kind": "unsat", "query": [1, 2, 3]})
    second = Log(path, "key")
    assert second.path is None
    assert "another run" in second.trouble
    second.append({"kind": "unsat", "query": [9, 9, 9]})
    second.close(finished=True)
    assert path.exists(), "the other run's log is not removed"
    first.close(finished=False)
    third = Log(path, "key")
    assert third.records == [{"kind": "unsat", "query": [1, 2, 3]}]
    third.close(finished=True)
    assert not path.exists()


def test_a_fresh_run_forgets_the_log(tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    log = Log(path, "key")
    log.append({"kind": "unsat", "query": [1, 2, 3]})
    log.close(finished=False)
    again = Log(path, "key", fresh=True)
    assert again.records == []
    again.close(finished=False)
    assert Log(path, "key").records == []


def test_a_log_that_cannot_be_written_is_reported_before_any_search(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(SingleCut, "improve", lambda *_: pytest.fail("a search began"))
    (tmp_path / "file").write_text("not a log")
    for log in (tmp_path / "file", tmp_path / "file" / "log.jsonl"):
        with pytest.raises(LogError):
            synth.frontier("ring:4", "allgather", log=log)
    with Log(tmp_path / "log", "key"), pytest.raises(LogError, match="another run"):
        synth.frontier("ring:4", "allgather", log=tmp_path / "log")


def test_sizes_in_words() -> None:
    assert [size_bytes(x) for x in (7, "64", "1KB", "1.5 MB", "2GiB", "1t")] == [7, 64, 1024, 3 << 19, 2 << 30, 1 << 40]
    for bad in ("", "KB", "-1", "0", "0.1", "1e3", True, None, Fraction(1)):
        with pytest.raises(ValueError, match=r"is not a size|less than one byte"):
            size_bytes(bad)  # type: ignore[arg-type]
