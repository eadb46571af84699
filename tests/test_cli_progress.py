"""Progress where stderr is no terminal. Time is given to it: no test waits for a clock."""

from __future__ import annotations

import sys
import threading
from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth.checker.documents import dispatch
from synth.commands import root
from synth.commands.framework import progress as progress_module
from synth.commands.framework.output import QUIET
from synth.commands.framework.progress import EVERY, PlainProgress, clock, job_progress, progress, waiting
from synth.pareto.events import Event


class Time:
    """A clock that goes on by what is waited for, until `lines` lines were printed."""

    def __init__(self, lines: int) -> None:
        self.seconds, self.end = 100.0, 100.0 + EVERY * lines

    def now(self) -> float:
        return self.seconds

    def ended(self, seconds: float) -> bool:
        self.seconds += seconds
        return self.seconds > self.end


@pytest.mark.parametrize(
    ("limit", "lines"),
    [
        (None, ["synth: 10 s: bounds", "synth: 20 s: bounds"]),
        (300.0, ["synth: 10 s of 5 min 0 s: bounds", "synth: 20 s of 5 min 0 s: bounds"]),
    ],
)
def test_a_line_every_ten_seconds(limit, lines, capsys):
    time = Time(2)
    PlainProgress("bounds", limit, time.now).print_lines(time.ended)
    assert capsys.readouterr().err.splitlines() == lines


def test_short_work_prints_nothing(capsys):
    with progress("bounds") as listen:
        listen(Event("bound", "S=2"))
    with waiting("rings") as tell:
        tell("first")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("seconds", "text"), [(9.6, "10 s"), (65, "1 min 5 s"), (7260, "2 h 1 min")])
def test_times_are_whole_seconds(seconds, text):
    assert clock(seconds) == text


def test_the_line_is_of_the_present_work(monkeypatch):
    seen = []

    class Recorded(PlainProgress):
        def __init__(self, text: str, limit: float | None = None) -> None:
            super().__init__(text, limit)
            seen.append(self)

    monkeypatch.setattr(progress_module, "PlainProgress", Recorded)
    with progress("allgather on dgx1", limit=60.0) as listen:
        listen(Event("bound", "S=2", bound=Fraction(7, 6)))
        assert seen[-1].text == "S=2 (bound so far 7/6)" and seen[-1].limit == 60.0
    with waiting("rings") as tell:
        tell("8 found")
        assert seen[-1].text == "rings: 8 found" and seen[-1].limit is None
    with job_progress("fleet.yaml") as listen:
        listen(type("Now", (), {"ended": 1, "total": 5, "running": ("a", "b", "c")}))
        assert seen[-1].text == "1 of 5 tasks ended; a, b and 1 more"


def test_a_command_prints_its_progress_and_not_with_quiet(tmp_path, monkeypatch):
    assert CliRunner().invoke(root, ["solve", *PROBLEM, "-o", str(tmp_path / "s.json")]).exit_code == 0
    whole, said = dispatch.check_document, threading.Event()
    monkeypatch.setattr(progress_module, "EVERY", 0.001)
    monkeypatch.setattr(progress_module, "note", lambda text: said.set())

    def slow(*given):
        assert said.wait(60)
        return whole(*given)

    monkeypatch.setattr(dispatch, "check_document", slow)
    assert CliRunner().invoke(root, ["verify", str(tmp_path / "s.json")]).exit_code == 0
    assert said.is_set()
    said.clear()
    assert CliRunner().invoke(root, ["solve", *PROBLEM, "--quiet"]).exit_code == 0
    assert not said.is_set()


def test_quiet_prints_no_progress_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    token = QUIET.set(True)
    try:
        with progress("bounds") as listen, job_progress("fleet.yaml") as follow:
            listen(Event("bound", "S=2", bound=Fraction(7, 6)))
            follow(type("Now", (), {"ended": 1, "total": 5, "running": ("a",)}))
    finally:
        QUIET.reset(token)
    assert capsys.readouterr() == ("", "")


PROBLEM = ["--topo", "ring:3", "--coll", "allgather", "--chunks", "1", "--steps", "1", "--rounds", "1"]
