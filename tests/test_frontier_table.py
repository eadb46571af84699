"""The table that says what a change of the engines costs."""

import json

import pytest

import synth
from bench.frontier_table import compare, problems, random_machine, rows

BEFORE = {
    "group": "built-in", "machine": "dgx2", "collective": "allreduce",
    "points": [[1, "8", "optimal"], [2, "1", "optimal"], [3, "1/2", "best-known"]], "bound": "1/4", "complete": False,
    "open": [[3, "1/4", "1/2"]],
}  # fmt: skip


def table(tmp_path, **changes):
    """Lines of the comparison of BEFORE with what `changes` make of it."""
    for name, row in (("before", BEFORE), ("after", BEFORE | changes)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    return compare(tmp_path / "before.jsonl", tmp_path / "after.jsonl").splitlines()


def test_the_same_frontier_loses_nothing(tmp_path):
    assert table(tmp_path)[2:] == ["| built-in | 1 | 100.0% | 1.000 | 1.000 | 0 of 1 |", ""]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"points": BEFORE["points"][:2]}, "- dgx2 allreduce: S=3 1/2 -> 1"),
        ({"points": [[1, "8", "best-known"], *BEFORE["points"][1:]]}, "- dgx2 allreduce: 1 statuses lost"),
        ({"open": [[3, "1/5", "1/2"]]}, "- dgx2 allreduce: S=3 open from 1/5 to 1/2"),
        ({"open": [[4, "1/4", "1/2"]]}, "- dgx2 allreduce: S=4 open from 1/4 to 1/2"),
    ],
)
def test_what_got_worse_is_listed(tmp_path, changes, said):
    assert said in table(tmp_path, **changes)


def test_a_complete_frontier_keeps_the_statuses_of_points_that_it_dominates(tmp_path):
    lines = table(tmp_path, points=[[1, "1/4", "optimal"]], complete=True, open=[])
    assert lines[2].startswith("| built-in | 1 | 100.0% | 0.250 |")


def test_a_row_that_was_cut_off_is_measured_again(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(BEFORE) + "\n" + json.dumps(BEFORE)[:40])
    assert rows(file) == [BEFORE]


def test_random_machines_are_read_and_the_same_each_time(tmp_path):
    seeds = {problem.machine.partition("-")[2] for problem in problems() if problem.group == "random"}
    assert len(seeds) == 40
    for seed in range(8):
        assert random_machine(seed) == random_machine(seed)
        file = tmp_path / f"{seed}.json"
        file.write_text(json.dumps(random_machine(seed)))
        machine = synth.topology(str(file))
        assert 3 <= machine.ranks <= 10
