"""The batch job: every task answered once, whatever crashes, hangs or is interrupted on the way."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import distributed
import psutil
import pytest
from catalog_jobs import SMALL, Here, answers, built, planned

from synth.catalog.jobs import runners
from synth.catalog.jobs.run import exit_code
from synth.catalog.jobs.task import TaskAnswer
from synth.encodings.engine import Options
from synth.errors import MissingDependencyError, SynthError, UsageError
from synth.model.frontier import Frontier

ONE = "topologies: ['ring:4']\ncollectives: [allgather]\noptions: {deterministic: true}\n"
# At most a tenth of a second for what takes longer: the interval is what is to be seen.
SHORT = "topologies: [dgx1]\ncollectives: [broadcast]\noptions: {max-steps: 3}\n"


def sources(items):
    return Counter((item.state, item.source) for item in items)


def crashing(*given):
    raise ValueError("no")


def test_every_task_is_answered_and_the_second_run_finds_what_the_first_one_did(tmp_path):
    # a ring, and it with one of two links broken, which are the same up to numbering; allgather and every root
    runner = Here()
    items = built(tmp_path, runner=runner)
    assert runner.closed and exit_code(items) == 0
    found = sources(items)
    assert found == {("done", "solved"): 3, ("done", "alike"): 6, ("infeasible", "solved"): 6}
    assert "at most 2 were allowed" in next(item.reason for item in items if item.state == "infeasible")
    assert len(answers(tmp_path)) == 3
    again = built(tmp_path, runner=Here(lambda task: TaskAnswer(None, "infeasible")))
    assert sources(again) == {("done", "known"): 3, ("done", "alike"): 6, ("infeasible", "solved"): 6}
    assert not list((tmp_path / "tasks").glob("*.jsonl")), "nothing is left to go on from"


def test_a_limit_leaves_an_interval_and_a_longer_one_or_retry_goes_on(tmp_path):
    first = built(tmp_path, SHORT, time_limit=0.001)
    assert (first[0].state, exit_code(first)) == ("open", 4)
    never = Here(crashing)
    assert sources(built(tmp_path, SHORT, never, time_limit=0.001)) == {("open", "known"): 1}
    assert sources(built(tmp_path, SHORT, retry_open=True, time_limit=0.001)) == {("open", "solved"): 1}
    assert sources(built(tmp_path, SHORT, time_limit=1000.0)) == {("done", "solved"): 1}
    assert [state for _, _, state, _ in answers(tmp_path).values()] == ["done"]


def test_a_file_that_is_no_log_stays_as_it_is(tmp_path):
    (task,) = planned(tmp_path, ONE)
    task.logs.mkdir()
    log = task.logs / f"{task.fingerprint}.jsonl"
    log.write_text("notes of a person")
    assert task.answer().state == "done"
    assert log.read_text() == "notes of a person"


def test_a_crash_is_tried_once_more_and_two_are_reported(tmp_path):
    tries = []

    def once(task):
        tries.append(task)
        return crashing() if len(tries) == 1 else task.answer()

    assert exit_code(built(tmp_path, ONE, Here(crashing))) == 1
    (item,) = built(tmp_path, ONE, Here(crashing))
    assert (item.state, item.reason) == ("failed", "crashed twice: no") and not answers(tmp_path)
    (item,) = built(tmp_path, ONE, Here(once))
    assert (item.state, item.crashes) == ("done", 1)


def test_a_wrong_answer_is_no_answer(tmp_path):
    def forged(task):
        answer = task.answer()
        document = answer.entry.frontier.to_json()
        document["points"][0]["schedule"]["steps"][0]["sends"].pop()
        return answer._replace(entry=replace(answer.entry, frontier=Frontier.from_json(document)))

    (item,) = built(tmp_path, ONE, Here(forged))
    assert item.state == "failed" and item.reason.startswith("its answer is wrong: ")
    assert not answers(tmp_path)


# ---------------------------------------------------------------- child processes and Dask


class Job:
    """Work of a child, in place of a task."""

    def __init__(self, what, time_limit=None):
        self.what = what
        self.options = Options(time_limit=time_limit)

    def answer(self):
        match self.what:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise":
                raise ValueError("no")
            case "sleep":
                time.sleep(60)
        print("printed")
        return TaskAnswer(None, "infeasible", self.what * 2)


ENDS = {"die": "its process ended with code -9", "raise": "ValueError: no"}


def test_children_answer_or_crash(monkeypatch):
    monkeypatch.setattr(runners, "LATER", 3.0)
    runner = runners.Processes(2)
    try:
        crashes = {what: runner.submit(Job(what)) for what in ENDS}
        good, late = runner.submit(Job("a")), runner.submit(Job("sleep", 0.1))
        assert good.result() == TaskAnswer(None, "infeasible", "aa")
        for what, says in ENDS.items():
            with pytest.raises(SynthError, match=says):
                crashes[what].result()
        assert late.result().state == "failed" and "its log is kept" in late.result().reason
    finally:
        runner.close()


def children_of(process, before=()):
    """The children of a process beside those `before`, once there are some."""
    until = time.monotonic() + 60
    while not (found := set(psutil.Process(process).children()) - set(before)) and time.monotonic() < until:
        time.sleep(0.02)
    assert found
    return found


def test_nothing_is_left_when_a_runner_closes_or_its_process_is_killed():
    before, runner = psutil.Process().children(), runners.Processes(1)
    runner.submit(Job("sleep"))
    found = children_of(os.getpid(), before)
    runner.close()
    assert not psutil.wait_procs(found, timeout=20)[1]
    code = f"import sys; sys.path[:] = {sys.path!r}; from test_catalog_job import *; runners.in_child(Job('sleep'))"
    parent = subprocess.Popen([sys.executable, "-c", code])
    found = children_of(parent.pid)
    time.sleep(1)
    parent.kill()
    assert not psutil.wait_procs(found, timeout=20)[1]
    parent.wait()


KILLED = """
import os, sys
sys.path[:] = {path!r}
from concurrent.futures import Future
from pathlib import Path
from catalog_jobs import Here, built

class Killed(Here):
    def submit(self, task):
        if self.closed: os.kill(os.getpid(), 9)
        self.closed = True
        return super().submit(task)

built(Path({folder!r}), runner=Killed())
"""


def test_a_job_that_is_killed_and_resumed_gives_the_same_catalog(tmp_path):
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    code = KILLED.format(path=sys.path, folder=str(tmp_path / "killed"))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert len(answers(tmp_path / "killed")) == 1
    assert exit_code(built(tmp_path / "killed")) == exit_code(built(tmp_path / "whole")) == 0
    assert answers(tmp_path / "killed") == answers(tmp_path / "whole")


@pytest.mark.slow
def test_dask_workers_give_the_same_catalog_and_are_left_running(tmp_path):
    (tmp_path / "here").mkdir()
    text = SMALL.replace(", degraded: [0-1, 1-2]", "")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None,
        silence_logs=logging.CRITICAL,
    )  # fmt: skip
    try:
        runner = runners.Dask(cluster.scheduler_address)
        assert runner.slots == 2
        assert exit_code(built(tmp_path, text, runner)) == 0
        assert answers(tmp_path) == (built(tmp_path / "here", text), answers(tmp_path / "here"))[1]
        assert cluster.status.name == "running"
    finally:
        cluster.close()


def test_a_scheduler_that_is_not_there_is_reported(monkeypatch):
    monkeypatch.setattr(runners, "CONNECT_SECONDS", 0.5)
    with pytest.raises(SynthError, match=r"answers at tcp://127\.0\.0\.1:1 "):
        runners.Dask("tcp://127.0.0.1:1")
    with pytest.raises(UsageError, match="expected the address of a scheduler"):
        runners.Dask("nowhere")
    monkeypatch.setattr("synth.model.registry.installed", lambda module: False)
    with pytest.raises(MissingDependencyError, match=r"needs distributed, .*pip install 'ccl-synth\[cluster\]'"):
        runners.Dask("tcp://127.0.0.1:1")
