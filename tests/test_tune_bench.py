"""bench.tuning on a small machine: what is held back is not seen, and what is lost is counted right."""

from dataclasses import replace

import pytest

from bench import tuning
from synth.catalog.tuner import tune
from synth.catalog.tuner.tune import Question


@pytest.fixture(scope="module")
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "LARGEST", {"Simple": 1 << 20, "LL": 1 << 18})
        patch.setattr(tuning, "LOW", 12)
        patch.setattr(tuning, "HIGH", 20)
        patch.setattr(tuning, "NOISES", 4)
        found = tuning.timed("full:4", "allgather", ("ring", "direct"), (1, 2))
        return found, tuning.judged(found)


def test_every_way_is_timed_at_sizes_that_all_divide(small):
    found, _ = small
    assert {(c.algorithm.protocol, c.algorithm.instances) for c in found.found} == {
        ("Simple", 1),
        ("Simple", 2),
        ("LL", 1),
        ("LL", 2),
    }
    assert all(c.algorithm.admits(size, 4) for c in found.found for size in found.sizes)
    assert {s.size for c in found.found for s in c.samples} == set(found.sizes)


def test_fitted_on_half_and_judged_on_the_other(small):
    _, row = small
    assert [size for size, _ in row["by_size"]] == row["sizes"]  # each is held back once
    assert row["losses"]["measured"]["greatest"] < tuning.GOAL
    assert all(0 <= loss["mean"] <= loss["greatest"] for loss in row["losses"].values())
    assert "allgather" in tuning.table({"rows": [row | {"timing_cpu": 1.0, "tuning_cpu": 1.0}], **SETTING})


def test_a_wrong_choice_costs_what_it_takes_longer(small):
    """A tuner that reads the opposite of every time loses, and the bench says how much."""
    found, _ = small
    upside = [replace(c, samples=tuple(s._replace(seconds=1e-9 / s.seconds) for s in c.samples)) for c in found.found]
    answer = tune.choose_algorithms(Question("allgather", 4, found.sizes), upside, None)
    lost = tuning.losses(found, answer.table, answer.algorithms, list(found.sizes))
    size, loss = max(lost, key=lambda row: row[1])
    at = sorted(times[size] for times in found.times.values() if size in times)
    assert 0.5 < loss <= at[-1] / at[0] - 1 + 1e-9


SETTING = {
    "goal": 0.05, "noise": 0.03, "repeats": 5,
    "setting": {"cpu": "x", "cores": 1, "python": "3", "libraries": {}, "commit": "0", "changed": False, "date": "0"},
}  # fmt: skip
