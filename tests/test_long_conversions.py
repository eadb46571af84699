"""Long conversions: they show progress, and a limit is reported before minutes are spent."""

import sys

import pytest

from synth.commands import api
from synth.commands.framework import progress
from synth.errors import UsageError
from synth.program import checked_lowering


def test_a_terminal_shows_the_work(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.waiting("exporting big.npz") as tell:
        tell("half of it")
    assert "exporting big.npz" in capsys.readouterr().err


def test_too_many_sends_for_a_program_are_refused_with_the_limit(monkeypatch):
    schedule = api.frontier("ring:4", "allgather", engine="exact").points[0].schedule
    sends = sum(len(step.sends) for step in schedule.steps)
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", sends - 1)
    with pytest.raises(UsageError, match=f"{sends} sends: programs are made of at most {sends - 1}"):
        api.lower(schedule)
    monkeypatch.setattr(checked_lowering, "MAX_SENDS", sends)
    assert api.lower(schedule).ranks == 4
