"""Option values and where they come from: flag > environment > synth.toml > default."""

from __future__ import annotations

import os

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from synth.commands import pareto, root
from synth.commands.framework.types import Counts, Duration, Positive, Ranks, Size
from synth.model.frontier import Frontier

# Kinds of options, what is given to them, and the value.
GOOD = [
    *((Duration, text, seconds) for text, seconds in (("30s", 30), ("5 m", 300), ("5min", 300), ("1h", 3600))),
    *((Duration, text, seconds) for text, seconds in (("1h30m", 5400), ("90", 90), ("0.5s", 0.5), ("1.5M", 90))),
    *((Size, text, 1024) for text in ("1KB", "1kb", "1KiB")),
    *((Size, text, size) for text, size in (("1MB", 1 << 20), ("1.5 MB", 3 << 19), ("1GB", 1 << 30), ("17", 17))),
    (Size, 7, 7),
    (Ranks, "0,3,1", (0, 3, 1)),
    (Ranks, [0, 3], (0, 3)),
    (Ranks, "5,0-2", (5, 0, 1, 2)),
    (Counts, "2,1,0", [2, 1, 0]),
    (Counts, "0,1;2,3", [[0, 1], [2, 3]]),
    (Positive, "3", 3),
]
BAD = {
    Duration: ["", "s", "5 parsecs", "-3s", "0", "0h0m0s", "m5", "nan", "inf", "1d", "30s5m"],
    Size: ["", "MB", "1XB", "-1", "0", "0.5", "1e9", "nan", "1MBB"],
    Ranks: ["", "0,,1", "a", "-1", "0,0", "1.5", "3-1", "0-2,1", "0-99999999", "0-"],
    Counts: ["", ";", "x", "1,-1"],
    Positive: ["0", "-1", "x", "1.5", ""],
}


@pytest.mark.parametrize(("kind", "text", "value"), GOOD)
def test_a_value_is_read(kind, text, value):
    assert kind().convert(text, None, None) == value


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in BAD.items() for text in texts])
def test_what_is_no_value_is_refused(kind, text):
    with pytest.raises(click.BadParameter):
        kind().convert(text, None, None)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(1, 59))
def test_durations_add_up(hours, minutes, seconds):
    assert Duration().convert(f"{hours}h{minutes}m{seconds}s", None, None) == 3600 * hours + 60 * minutes + seconds


def test_counts_are_read_from_a_file_and_not_from_a_folder(tmp_path):
    (tmp_path / "m.txt").write_text("0 1\n2, 3\n\n")
    assert Counts().convert(str(tmp_path / "m.txt"), None, None) == [[0, 1], [2, 3]]
    with pytest.raises(click.BadParameter):
        Counts().convert(str(tmp_path), None, None)


# ---------------------------------------------------------------- where values come from


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Runs `synth pareto` on ring:4 allgather and returns what the API was asked."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SYNTH_")]:
        monkeypatch.delenv(name)
    seen = {}

    def record(search):
        machine, task = search.topology, search.collective
        seen.update(vars(search), topology=machine.name, collective=task.name)
        return Frontier(machine.network(), task, (), complete=True)

    monkeypatch.setattr(pareto.frontier, "of", record)

    def run(words: str = "--topo ring:4 --coll allgather", code: int = 0):
        outcome = CliRunner().invoke(root, ["pareto", *words.split()])
        assert outcome.exit_code == code, (outcome.stdout, outcome.stderr)
        return seen if code == 0 else outcome.stderr

    run.toml = (tmp_path / "synth.toml").write_text
    run.env = monkeypatch.setenv
    return run


def test_default_then_file_then_environment_then_flag(asked):
    assert asked()["jobs"] is None
    asked.toml("[pareto]\njobs = 2\n")
    assert asked()["jobs"] == 2
    asked.env("SYNTH_JOBS", "3")
    assert asked()["jobs"] == 3
    assert asked("--topo ring:4 --coll allgather --jobs 4")["jobs"] == 4


def test_every_kind_of_value_from_file_and_environment(asked):
    asked.toml(
        '[pareto]\ntopo = "ring:6"\nranks = [0, 1, 2]\nwithout = "0-1"\n'
        'time-limit = "2m"\nmax_steps = 5\nsame-bits = true\n'
    )
    asked.env("SYNTH_COLL", "broadcast")
    asked.env("SYNTH_DETERMINISTIC", "1")
    seen = asked("")
    values = [seen[name] for name in ("collective", "time_limit", "max_steps", "same_bits", "deterministic")]
    assert values == ["broadcast", 120.0, 5, True, True] and "--without 0-1" in seen["topology"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs = ", "synth.toml is not TOML: "),
        ("jobs = 1", "synth.toml:jobs: unknown command 'jobs'; options stand in its table"),
        ("[pareto]\nchunks = 2", "synth.toml:pareto: pareto has no option 'chunks'"),
        ("[paretto]\njobs = 2", "synth.toml:paretto: unknown command 'paretto'; did you mean pareto?"),
        ("[topo.shw]\nranks = [1]", "synth.toml:topo.shw: unknown command 'shw'; did you mean show?"),
        ('[pareto]\njobs = "many"', "Invalid value for '--jobs'"),
    ],
)
def test_a_wrong_file_is_refused_in_a_line(asked, text, says):
    asked.toml(text)
    line = asked(code=2)
    assert says in line and line.startswith("synth: error: ") and line.count("\n") == 1


def test_the_main_command_has_few_options():
    assert len(pareto.pareto_command.params) <= 26
