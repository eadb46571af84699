"""Time left at the end of a sweep goes to the open intervals, and the reason says how
their search ended."""

import json
from collections.abc import Iterable, Iterator
from fractions import Fraction

import pytest
from sweeps import begun, swept

import synth
from synth.commands import api
from synth.encodings import bounds
from synth.errors import SynthError
from synth.model.collective import collective
from synth.model.frontier import LowerBound, Open, Point
from synth.model.rational import size_bytes
from synth.pareto import close_step_count
from synth.pareto.first_rows import SingleCut
from synth.pareto.log import Log, LogError, point_record, points_from_records
from synth.pareto.sweep import Sweep
from synth.solvers.deadline import Deadline
from synth.topologies import topology

NETWORK, TASK = topology("dgx1").network(), collective("allgather", 8)


def sweep(limit: float | None = 60.0, *points: Point, opened: Iterable[int] = ()) -> Sweep:
    """Return a sweep in which `points` are found, and some numbers of steps are open."""
    floor = bounds.flow(NETWORK, TASK, None)
    some = Sweep(begun(NETWORK, TASK, time_limit=limit, jobs=1), Deadline.after(limit))
    some.found.points = list(points)
    some.found.open = [Open(steps, floor.value, None, "time", floor.certificate) for steps in opened]
    return some


def known() -> list[Point]:
    found = api.frontier("dgx1", "allgather", jobs=1)
    return list(found.points)


def first_in_vain(monkeypatch: pytest.MonkeyPatch, vain: int = 1) -> list[int]:
    """As if nothing were found at each S when it is tried for the first time; the S that were tried."""
    tried: list[int] = []
    close = close_step_count.close

    def once(self: Sweep, steps: int, bound: LowerBound) -> Iterator[Point]:
        tried.append(steps)
        if tried.count(steps) <= vain:
            self.found.add_open(Open(steps, bound.value, self.found.best(steps), "time", bound.certificate))
        else:
            yield from close(self, steps, bound)

    monkeypatch.setattr(close_step_count, "close", once)
    return tried


def test_open_intervals_are_returned_to_the_widest_first(monkeypatch):
    tried = first_in_vain(monkeypatch)
    found = swept(NETWORK, TASK, time_limit=60.0, jobs=1)
    assert [(p.steps, p.rounds_per_chunk) for p in found.points] == [(2, Fraction(3, 2)), (3, Fraction(7, 6))]
    assert found.complete and not found.open
    first = tried.index(2, 1)
    assert tried[:first] == list(range(2, 2 + first)) and 3 in tried[first:]
    api.verify(found)


def test_without_a_limit_nothing_is_returned_to(monkeypatch):
    tried = first_in_vain(monkeypatch)
    found = swept(NETWORK, TASK, jobs=1)
    assert len(tried) == len(set(tried)) and {interval.reason for interval in found.open} == {"effort"}


def test_what_ends_at_once_is_returned_to_once_and_is_no_matter_of_time(monkeypatch):
    tried = first_in_vain(monkeypatch, vain=100)
    found = swept(NETWORK, TASK, time_limit=60.0, jobs=1)
    assert tried == [*dict.fromkeys(tried)] * 2
    assert found.open and {interval.reason for interval in found.open} == {"gave-up"}
    assert [interval.steps for interval in found.open] == sorted(interval.steps for interval in found.open)


def test_points_of_more_steps_say_nothing_of_fewer():
    found = sweep(None, *known()).found
    assert [found.best(steps) for steps in (None, 2, 1)] == [Fraction(7, 6), Fraction(3, 2), None]


def test_points_narrow_and_close_the_intervals_of_more_steps():
    found = sweep(None, *known(), opened=(1, 2, 3)).found
    found.update_open()
    assert [(o.steps, o.upper) for o in found.open] == [(1, None), (2, Fraction(3, 2))]
    assert found.bounds == [(3, bounds.flow(NETWORK, TASK, None))]


def test_no_return_when_the_time_is_over(monkeypatch):
    some = sweep(-1.0, opened=[2])
    monkeypatch.setattr(close_step_count, "close", lambda *_: pytest.fail("was returned to"))
    list(some.again())
    assert [o.reason for o in some.found.open] == ["time"]


def test_ctrl_c_keeps_the_interval_in_hand(monkeypatch):
    some = sweep(opened=[2])

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(close_step_count, "close", stop)
    with pytest.raises(KeyboardInterrupt):
        list(some.again())
    assert [o.steps for o in some.found.open] == [2]


def test_records_of_points_leave_out_what_the_question_has():
    """A machine of many routes has megabytes of text, and so has a scan of many chunks, which each record had again."""
    points = known()
    records = json.loads(json.dumps([point_record(point) for point in points]))
    for record in records:
        assert not {"topology", "collective"} & record["point"]["schedule"].keys()
    assert [point.to_json() for point in points_from_records(NETWORK, TASK, records)] == [p.to_json() for p in points]
    whole = [{"kind": "point", "point": point.to_json()} for point in points]  # a log of an earlier version has them
    assert len(list(points_from_records(NETWORK, TASK, whole))) == len(points)
    assert not list(points_from_records(topology("dgx1-p100").network(), TASK, records))


def test_points_of_an_earlier_run_that_would_take_longer_than_is_left_are_left_out():
    """An old log may hold schedules of any length."""
    records = [{"kind": "point", "point": point.to_json()} for point in known()]
    assert len(records) == len(list(points_from_records(NETWORK, TASK, records))) == 2
    one = list(points_from_records(NETWORK, TASK, records, steps=3))
    assert [point.steps for point in one] == [3]
    assert not list(points_from_records(NETWORK, TASK, records, deadline=Deadline.after(1e-4)))
    assert len(list(points_from_records(NETWORK, TASK, records, deadline=Deadline.after(1000)))) == 2


# ---------------------------------------------------------------- the log of a sweep


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
