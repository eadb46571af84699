"""Ctrl-C at known points of the commands: what was found is printed, nothing more is begun, and the exit code is
130."""

import pytest
from click.testing import CliRunner

from synth import bounds
from synth.api import synthesis
from synth.cli import root
from synth.scale.baselines import comparison
from synth.solvers.processes import pool
from synth.solvers.processes.deadline import NEVER, Deadline, current_deadline, give_up, given_up, time_limited


@pytest.fixture(autouse=True, scope="module")
def stopped():
    yield
    pool.stop()


def interrupt(*_, **__):
    raise KeyboardInterrupt


def run(*words):
    return CliRunner().invoke(root, list(words))


def test_giving_up_leaves_no_time_inside_the_block_alone():
    with time_limited(Deadline.after(1000)):
        with time_limited(NEVER):
            give_up()
            assert given_up() and current_deadline().over
        assert not given_up() and current_deadline().remaining() > 0
    assert not current_deadline().limited


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


@pytest.mark.parametrize("place", ["disjoint_rings", "bound"])
def test_the_rates_that_are_known_are_printed(monkeypatch, place):
    bound = comparison._Bounds.bound
    if place == "bound":  # of reduce-scatter and allgather
        monkeypatch.setattr(
            comparison._Bounds, "bound", lambda self, name: bound(self, name) if name == self.name else interrupt()
        )
    else:
        monkeypatch.setattr(comparison, place, interrupt)
    done = run("explain", "--topo", "dgx1", "--coll", "allreduce", "--ranks", "0-3")
    assert done.exit_code == 130, done.output
    assert "optimum" in done.output or "upper bound" in done.output


@pytest.mark.parametrize(
    "words", [("solve", "--chunks", "6", "--steps", "3", "--rounds", "7"), ("tune",), ("pareto", "--engine", "flow")]
)
def test_commands_without_a_result_end_with_the_code_of_ctrl_c(monkeypatch, words):
    monkeypatch.setattr(pool, "wait", interrupt)
    monkeypatch.setattr(synthesis, "frontier", interrupt)
    monkeypatch.setattr("synth.scale.search.fabric", interrupt)
    done = run(words[0], "--topo", "dgx1", "--coll", "allgather", *words[1:])
    assert done.exit_code == 130, done.output
    assert "interrupted" in done.output and "Traceback" not in done.output
