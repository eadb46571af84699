"""Long conversions: they show progress after a moment, and a limit is reported before minutes are spent."""

import sys
import threading
from contextlib import contextmanager

import pytest

from synth import api
from synth.cli.framework import progress
from synth.errors import UsageError
from synth.program import checked_lowering


def test_a_terminal_shows_what_takes_longer_than_a_moment(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    whole, shown = progress.progress, threading.Event()

    @contextmanager
    def seen(what, limit=None):
        with whole(what, limit=limit) as listen:
            shown.set()
            yield listen

    monkeypatch.setattr(progress, "progress", seen)
    with progress.waiting("exporting big.npz"):
        assert shown.wait(60)
    assert "exporting big.npz" in capsys.readouterr().err
    monkeypatch.setattr(progress, "PATIENCE", 60)
    with progress.waiting("exporting small.npz"):
        pass
    assert capsys.readouterr().err == ""


def test_elsewhere_nothing_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(progress, "progress", lambda _: pytest.fail("was shown"))
    monkeypatch.setattr(progress.threading, "Timer", lambda *_: pytest.fail("would be shown"))
    with progress.waiting("exporting big.npz"):
        pass
    assert capsys.readouterr().err == ""


def test_too_many_sends_for_a_program_are_refused_with_the_limit(monkeypatch):
    schedule = api.frontier("ring:4", "allgather", engine="exact").points[0].schedule
    sends = sum(len(step.sends) for step in schedule.steps)
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", sends - 1)
    with pytest.raises(UsageError, match=f"{sends} sends: programs are made of at most {sends - 1}"):
        api.lower(schedule)
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", sends)
    assert api.lower(schedule).ranks == 4
