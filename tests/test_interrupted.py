"""Ctrl-C at known points of the commands: what was found is printed, nothing more is begun, and the exit code is
130."""

import pytest
from click.testing import CliRunner

from synth.commands import pareto, root
from synth.encodings import bounds
from synth.scale.baselines import comparison
from synth.solvers import pool


@pytest.fixture(autouse=True, scope="module")
def stopped():
    yield
    pool.stop()


def interrupt(*_, **__):
    raise KeyboardInterrupt


def run(*words):
    return CliRunner().invoke(root, list(words))


def test_bounds_that_there_are_are_printed(monkeypatch):
    flow = bounds.flow

    def some(network, task, steps):
        return interrupt() if steps == 3 else flow(network, task, steps)

    monkeypatch.setattr(bounds, "flow", some)
    done = run("bound", "--topo", "dgx1", "--coll", "allgather")
    assert done.exit_code == 130, done.output
    assert (
        "3/2" in done.output and "7/6" in done.output and "Ctrl-C came before the bounds at more steps" in done.output
    )


@pytest.mark.parametrize("place", ["disjoint_rings", "_composed_rate"])
def test_the_rates_that_are_known_are_printed(monkeypatch, place):
    monkeypatch.setattr(comparison, place, interrupt)
    done = run("explain", "--topo", "dgx1", "--coll", "allreduce", "--ranks", "0-3")
    assert done.exit_code == 130, done.output
    assert "optimum" in done.output or "upper bound" in done.output


@pytest.mark.parametrize(
    "words", [("solve", "--chunks", "6", "--steps", "3", "--rounds", "7"), ("tune",), ("pareto", "--engine", "flow")]
)
def test_commands_without_a_result_end_with_the_code_of_ctrl_c(monkeypatch, words):
    monkeypatch.setattr(pool, "wait", interrupt)
    if words[0] == "tune":
        monkeypatch.setattr(pareto, "frontier", interrupt)
    monkeypatch.setattr("synth.scale.search.fabric", interrupt)
    done = run(words[0], "--topo", "dgx1", "--coll", "allgather", *words[1:])
    assert done.exit_code == 130, done.output
    assert "interrupted" in done.output and "Traceback" not in done.output
