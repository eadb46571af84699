"""`synth torch`: the log of a job as a table; what is missing where there is no torch."""

import importlib.util
import json
import os
import pickle

import pytest
from click.testing import CliRunner

from synth.commands import root
from synth.model.tuning_plan import Algorithm, Plan, Range, Table
from synth.torch.profile import repetition
from synth.torch.record import Record, prometheus

ROW = {
    "job": "day", "group": "0", "rank": 0, "collective": "allreduce", "bytes": 4096, "type": "float32", "ran": "ring",
    "why": "kept", "calls": 3, "total": 12288, "ranks": 2, "number": 0, "last": 0, "behind": 0.0, "waits": [],
    "times": {"library": 5e-6, "ring": 3e-6},
}  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(root, ["torch", *map(str, arguments)])


def write(folder, rank, *rows):
    lines = [json.dumps(row | {"rank": rank}) for row in rows]
    (folder / f"day-rank-{rank}.jsonl").write_text("\n".join(lines) + "\n")


def test_a_log_tells_waiting_from_transfer_and_who_came_last(tmp_path):
    gloo = ROW | {"ran": "gloo", "why": "type", "bytes": 64, "total": 64, "calls": 1, "seconds": [], "number": 1}
    write(tmp_path, 0, ROW | {"seconds": [2e-6, 4e-6, 9e-6], "waits": [1e-6, 3e-6, 7e-6]}, gloo)
    late = {"last": 2, "behind": 4e-6}
    write(tmp_path, 1, ROW | late | {"seconds": [1e-6, 2e-6, 2e-6], "waits": [0, 0, 0]}, gloo)
    lines = [line.split() for line in run("log", tmp_path).stdout.splitlines()]
    last = ["1", "(67%,", "2", "µs)"]
    assert ["0", "allreduce", "4096", "float32", "3", "4", "3", "2", "2.05", "2.05", *last, "ring", "kept"] in lines
    assert ["0", "allreduce", "64", "float32", "1", "gloo", "type"] in lines
    first = json.loads(run("log", tmp_path, "--format", "json").stdout)[0]
    assert (first["median"], first["waiting"], first["transfer"], first["total"]) == (4e-6, 3e-6, 2e-6, 12288)


def test_jobs_and_groups_in_one_folder_are_not_mixed(tmp_path):
    first, second = ROW | {"seconds": [1e-6], "waits": [0]}, ROW | {"seconds": [9e-6], "waits": [0]}
    write(tmp_path, 0, first, second | {"group": "1"}, second | {"job": "night"})
    found = json.loads(run("log", tmp_path, "--format", "json").stdout)
    assert [(row["job"], row["group"], row["calls"]) for row in found] == [
        ("day", "0", 3),
        ("day", "1", 3),
        ("night", "0", 3),
    ]
    titles = [line for line in run("log", tmp_path).stdout.splitlines() if line.startswith("job ")]
    assert titles == ["job day, 2 ranks", "job night, 2 ranks"]


@pytest.mark.parametrize(
    "line",
    ["{", "[]", json.dumps(ROW), json.dumps(ROW | {"seconds": [1]}), json.dumps(ROW | {"seconds": [], "calls": "3"}),
     json.dumps({"job": "day", "rank": 0, "order": [1], "ended": []})],
    ids=str,
)  # fmt: skip
def test_what_is_no_log_is_refused_with_its_line(tmp_path, line):
    (tmp_path / "a-rank-0.jsonl").write_text(json.dumps(ROW | {"seconds": [1], "waits": [0]}) + "\n" + line + "\n")
    result = run("log", tmp_path)
    assert result.exit_code != 0 and "a-rank-0.jsonl:2: is no row of a log" in result.output


def test_a_step_of_a_log_is_what_repeats(tmp_path):
    rows = []
    for number, nbytes in enumerate((64, 4096)):
        rows.append(ROW | {"bytes": nbytes, "number": number, "seconds": [2e-6], "waits": [0]})
    order = [1, 0, *[0, 0, 1] * 4]
    write(tmp_path, 0, *rows, {"job": "day", "order": order, "ended": [1e-3 * place for place in range(len(order))]})
    step = json.loads(run("profile", tmp_path, "--format", "json").stdout)
    assert step["period"] == 3 and step["seconds"] == pytest.approx(3e-3)
    calls = {row["kind"]["bytes"]: (row["calls"], row["library"], row["plan"]) for row in step["rows"]}
    assert calls == {64: (2, 5e-6, 3e-6), 4096: (1, 5e-6, 3e-6)}
    text = run("profile", tmp_path).stdout
    assert "a step of 3 calls, 3 ms" in text and "by the plan: 0.009 ms for 3 calls" in text
    assert "as it ran: 0.006 ms for 3 calls, 0% of the step" in text


def dump(**changes):
    """A dump of torch 2.14's flight recorder, version 2.10, with two steps of an allreduce and an allgather."""
    entries = []
    for place in range(4):
        kind, out = (("all_reduce", [1000]), ("_all_gather_base", [2000]))[place % 2]
        entries.append(
            {
                "profiling_name": f"nccl:{kind}", "process_group": ["0", "default_pg"], "input_sizes": [[1000]],
                "input_dtypes": ["Float"], "output_sizes": [out], "output_dtypes": ["Float"],
                "time_created_ns": 10**6 * place, "duration_ms": 0.5, "state": "completed", "record_id": place,
            }
        )  # fmt: skip
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    return {"version": "2.10", "pg_config": {"0": group}, "entries": entries} | changes


def test_a_step_of_a_flight_recorders_dump_with_times_of_a_plan(tmp_path):
    table = Table(
        "allreduce", 2, (Range(1, None, (0,)),), (1000, 16000), (4e-6, 8e-6), (4e-6, 8e-6), ours=(4e-6, 2e-6),
        library=(4e-6, 8e-6),
    )  # fmt: skip
    plan = Plan((Algorithm("NCCL", "nccl"),), (table,), "model", "")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()))
    (tmp_path / "json").write_text(json.dumps(dump()))
    (tmp_path / "pickle").write_bytes(pickle.dumps(dump(), 2))
    for name in ("json", "pickle"):
        step = json.loads(run("profile", tmp_path / name, "--plan", tmp_path / "plan.json", "--format", "json").stdout)
        assert (step["period"], step["seconds"]) == (2, pytest.approx(2e-3))
        rows = {row["kind"]["collective"]: row for row in step["rows"]}
        assert rows["allgather"]["kind"] == {
            "group": "0", "ranks": 2, "collective": "allgather", "bytes": 8000, "type": "float"
        }  # fmt: skip
        assert rows["allreduce"]["library"] == pytest.approx(8e-6) and rows["allreduce"]["plan"] == pytest.approx(2e-6)
        assert rows["allgather"]["library"] is None and rows["allgather"]["seconds"] == 5e-4


class Stranger:
    def __reduce__(self):
        return (os.mkdir, ("harm",))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pickle.dumps(dump(entries=[Stranger()])), "asks for posix.mkdir"),
        (pickle.dumps(dump())[:-20], "is no dump"), (b"", "is no dump"), (b"{}", "is no dump"),
        (b"\x80\x02.", "is no dump"),
        (json.dumps(dump(entries=[{"profiling_name": "x"}])).encode(), "is no dump"),
    ],
    ids=range(6),
)  # fmt: skip
def test_a_strangers_dump_runs_nothing(tmp_path, monkeypatch, data, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump").write_bytes(data)
    result = run("profile", tmp_path / "dump")
    assert result.exit_code == 1 and said in result.output, result.output
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("order", "length"),
    [("", 0), ("ab", 0), ("aa", 1), ("xyabab", 2), ("aabaab", 3), ("xxxabcdabcdy", 4), ("abcdefgh", 0)],
)
def test_a_step_is_the_least_that_repeats(order, length):
    assert repetition(order)[0] == length


def test_counters_are_prometheus_text():
    log = Record("day", 'a"b', 0, 2)
    row = log.row("allreduce", 64, "float32", "ring", "kept")
    row.count(64, 1.0, 1.5, [1.25, 1.0], 1)
    row.count(64, 2.0, 2.5, [1.5, 2.0], 1)
    row.count(64, 3.0, 3.5, [0.0, 3.0], 1)  # the other has not come
    labels = '{group="a\\"b",collective="allreduce",type="float32",ran="ring"}'
    lines = prometheus([log]).splitlines()
    for line in (
        "calls_total L 3",
        "bytes_total L 192",
        "seconds_total L 1.5",
        "waiting_seconds_total L 0.25",
        "last_total L 1",
    ):
        assert "synth_" + line.replace(" L", labels) in lines
    assert row.behind == 0.5 and "# TYPE synth_calls_total counter" in lines


def test_a_folder_without_a_log(tmp_path):
    assert "a job writes one with SYNTH_LOG" in run("log", tmp_path).output


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is here")
def test_the_doctor_says_what_is_missing():
    assert "no program runs in a PyTorch job here: torch not installed; pip install" in run("bench").output
    result = run("doctor")
    assert "pip install 'ccl-synth[torch]'" in result.stdout
    assert "no program runs in a PyTorch job here, for torch" in result.output
