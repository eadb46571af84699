"""The batch job: every task answered once, whatever crashes, hangs or is interrupted on the way."""

from __future__ import annotations

import json
import threading

import job_work
import pytest
from catalog_jobs import entries, nobody, planned, run

from synth import api
from synth.catalog.jobs import task as job_task
from synth.catalog.jobs.cost_estimate import CostEstimator, EntryTime
from synth.catalog.jobs.run import Interrupted
from synth.catalog.jobs.runners import WorkAnswer
from synth.catalog.jobs.runners.inline import Inline
from synth.catalog.jobs.runners.processes import Processes
from synth.catalog.store.store import Store
from synth.checker.documents import exact_frontier

ONE = "topologies: ['ring:4']\ncollectives: [allgather]\noptions: {deterministic: true}\n"
# At most a tenth of a second for what takes longer: the interval is what is to be seen.
SHORT = "topologies: [dgx1]\ncollectives: [{name: broadcast}]\noptions: {time-limit: 0.001s, max-steps: 6}\n"
LONGER = SHORT.replace("0.001s", "1000s").replace("max-steps: 6", "max-steps: 3")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder in which the small job has been run to its end, and the summary."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder)


def counts(summary):
    return {state: {k: n for k, n in row.items() if n} for state, row in summary.counts.items() if any(row.values())}


def test_every_task_is_answered_and_the_second_run_solves_nothing(whole):
    folder, summary = whole
    # a ring, and it with one of two links broken, which are the same up to numbering; allgather and every root
    assert len(summary.items) == 3 * 5
    assert summary.exit_code == 0
    assert counts(summary) == {"done": {"solved": 3, "alike": 6}, "infeasible": {"solved": 2, "alike": 4}}
    assert len(entries(folder)) == 5
    again = run(folder, runner=nobody)
    assert counts(again) == {"done": {"known": 3, "alike": 6}, "infeasible": {"known": 2, "alike": 4}}


def test_what_is_equal_up_to_numbering_is_stored_once_and_found_relabelled(tmp_path):
    run(tmp_path, "topologies: ['ring:4']\ncollectives: [{name: broadcast, roots: all}]\noptions: {max-steps: 3}\n")
    (only,) = entries(tmp_path).values()
    assert only[:2] == ("ring:4", "broadcast")
    third = planned(
        tmp_path, "topologies: ['ring:4']\ncollectives: [{name: broadcast, roots: [2]}]\noptions: {max-steps: 3}\n"
    )[0]
    with Store.open(tmp_path / "catalog.db") as store:
        entry, _ = store.find(third.network, third.collective_value, third.answer_options)
    assert entry.frontier.roots == (2,)
    assert exact_frontier.frontier(entry.frontier.to_json())


def test_what_cannot_be_done_is_kept_with_its_certificate(tmp_path):
    summary = run(tmp_path, "topologies: ['ring:4']\ncollectives: [allgather]\noptions: {max-steps: 1}\n")
    assert summary.exit_code == 0
    (entry,) = entries(tmp_path).values()
    assert entry[3] == "infeasible"
    assert entry[5]["kind"] == "distance"
    assert not list((tmp_path / "tasks").glob("*.jsonl"))  # nothing is left to go on from


def test_a_budget_that_runs_out_leaves_an_interval_and_a_larger_one_goes_on(tmp_path):
    first = run(tmp_path, SHORT)
    assert (first.items[0].state, first.exit_code) == ("open", 4)
    (entry,) = entries(tmp_path).values()
    left = entry[6]["open"]
    assert left
    assert all(o["lower"] for o in left)
    assert counts(run(tmp_path, SHORT, nobody)) == {"open": {"known": 1}}  # neither asked to go on, nor with more time
    asked = run(tmp_path, SHORT, again=["retry_open"])
    assert asked.items[0].solved
    assert [p["bandwidth"] for p in asked.items[0].task.known] == [p["bandwidth"] for p in entry[6]["points"]]


def test_a_file_that_is_no_log_stays_as_it_is(tmp_path):
    (task,) = planned(tmp_path, ONE)
    task.log.parent.mkdir(exist_ok=True)
    task.log.write_text("notes of a person")
    assert json.loads(job_task.run(json.dumps(task.to_json())))["state"] == "done"
    assert task.log.read_text() == "notes of a person"


def test_more_time_for_the_same_question_closes_it(tmp_path):
    text = LONGER.replace("1000s", "0.001s")
    run(tmp_path, text)
    assert [e[3] for e in entries(tmp_path).values()] == ["open"]
    assert counts(run(tmp_path, LONGER)) == {"done": {"solved": 1}}
    assert [e[3] for e in entries(tmp_path).values()] == ["done"]


def test_a_crash_is_tried_once_more(tmp_path):
    (tmp_path / "tasks").mkdir()
    summary = run(tmp_path, ONE, lambda: Processes(job_work.crash_once, 1))
    assert (summary.items[0].state, summary.items[0].tries) == ("done", 1)


def test_two_crashes_are_recorded_and_stay(tmp_path):
    summary = run(tmp_path, ONE, lambda: Processes(job_work.crash, 1))
    assert (summary.items[0].state, summary.exit_code) == ("failed", 1)
    assert summary.items[0].reason == "crashed twice: its process ended with code 1"
    assert run(tmp_path, ONE, nobody).exit_code == 1
    assert run(tmp_path, ONE, again=["retry_failed"]).exit_code == 0


def test_a_wrong_answer_is_no_answer(tmp_path):
    summary = run(tmp_path, ONE, lambda: Inline(job_work.wrong))
    assert summary.items[0].state == "failed"
    assert "its answer is wrong: VerificationError" in summary.items[0].reason


class Late(Inline):
    """Ends every task for want of time, some after they had found something; what is left of one is asked for as
    usual."""

    def __init__(self, found):
        super().__init__(job_task.run)
        self.found = found

    def start(self, call):
        if "cut" in json.loads(call.text):
            super().start(call)
            return
        if self.found:
            job_work.fill_log(call.text)
        self.done.append(WorkAnswer(call.number, None, "time", "ended after 1 s"))


@pytest.mark.parametrize("points", [0, 1])
def test_a_task_that_is_ended_leaves_what_its_log_holds(tmp_path, points):
    text = "topologies: [dgx1]\ncollectives: [allgather]\n"
    summary = run(tmp_path, text, lambda: Late(points))
    assert (summary.items[0].state, summary.items[0].reason) == ("open", "time")
    ((*_, frontier, _),) = entries(tmp_path).values()
    assert len(frontier["points"]) == points
    assert [(o["lower"], o["reason"]) for o in frontier["open"]] == [("7/6", "time")]
    with Store.open(tmp_path / "catalog.db") as store:
        (name,) = store.fingerprints()
        lines = exact_frontier.frontier(store.get(name).frontier.to_json())
        assert sum(line.startswith("S=") for line in lines) == points


def test_the_budget_of_the_job_and_ctrl_c_leave_the_rest_for_the_next_run(tmp_path, whole):
    some = run(tmp_path, tasks=2)
    assert (some.exit_code, some.stopped) == (4, "the job's budget ran out")
    assert len(entries(tmp_path)) == 2

    class Stopped(Inline):
        def wait(self, seconds):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stop:
        run(tmp_path, runner=lambda: Stopped(job_task.run))
    assert stop.value.summary.counts["left"]["solved"] > 0
    assert run(tmp_path).exit_code == 0
    assert entries(tmp_path) == entries(whole[0])


def test_a_task_is_the_same_after_json(tmp_path):
    for task in planned(tmp_path):
        again = job_task.Task.from_json(json.loads(json.dumps(task.to_json())))
        assert again == task
        assert again.fingerprint == task.fingerprint


def test_flow_methods_answer_in_the_same_way(tmp_path):
    text = "topologies: ['ring:6']\ncollectives: [allgather, alltoall]\noptions: {engine: flow}\n"
    assert run(tmp_path, text, lambda: Processes(job_task.run, 1)).exit_code == 0
    with Store.open(tmp_path / "catalog.db") as store:
        found = {e.collective: e for e in map(store.get, store.fingerprints())}
    assert found["allgather"].frontier.points[-1].rounds_per_chunk == found["allgather"].frontier.bound
    assert found["allgather"].frontier.points[-1].schedule.step_count == found["allgather"].frontier.points[-1].steps
    assert counts(run(tmp_path, text, nobody)) == {"done": {"known": 2}}


def test_what_flow_methods_find_impossible_is_said_but_not_kept_as_proved(tmp_path):
    text = "topologies: [{name: 'line:3', degraded: [0-1], options: {engine: flow}}]\ncollectives: [allgather]\n"
    summary = run(tmp_path, text)
    assert counts(summary) == {"done": {"solved": 1}, "failed": {"solved": 1}}
    with Store.open(tmp_path / "catalog.db") as store:
        (lost,) = store.fingerprints("failed")
        assert store.get(lost).reason.startswith("proved infeasible: line:3 --without 0-1: no link leads")
        assert [one.error for one in api.catalog.verify(store)] == [None, None]


def test_estimates_follow_what_tasks_took():
    costs = CostEstimator()
    assert costs.estimate("allgather", 16, "exact") > costs.estimate("allgather", 8, "exact")
    assert costs.estimate("scan", 8, "exact", time_limit=10.0) == 12.0
    costs = CostEstimator([EntryTime("allgather", 8, "exact", seconds) for seconds in (1.0, 100.0, 200.0)])
    assert costs.estimate("allgather", 8, "exact") == 100.0
    assert costs.estimate("allgather", 16, "exact") == 800.0


@pytest.mark.slow
def test_two_jobs_on_one_catalog_double_nothing(tmp_path):
    text = "topologies: ['ring:4', 'ring:5']\ncollectives: [allgather]\n"
    runs, tasks = [], planned(tmp_path, text)

    def build():
        runs.append(run(tmp_path, runner=lambda: Processes(job_task.run, 1), job=tasks))

    threads = [threading.Thread(target=build) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [summary.exit_code for summary in runs] == [0, 0]
    assert sorted(entry[0] for entry in entries(tmp_path).values()) == ["ring:4", "ring:5"]
