"""Runners: deadlines, memory and kills; the same entries whoever ran the job; clusters that are not there."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time

import distributed
import job_work
import psutil
import pytest
from catalog_jobs import entries, run

from synth.catalog.jobs import task
from synth.catalog.jobs.runners import WorkCall, cluster
from synth.catalog.jobs.runners.inline import Inline
from synth.catalog.jobs.runners.processes import Processes
from synth.errors import MissingDependencyError, SynthError, UsageError

MB = 1 << 20


def answers(runner, calls):
    for call in calls:
        runner.start(call)
    found = []
    while len(found) < len(calls):
        found += runner.wait(5)
    return {a.number: a for a in found}


def forked(runner):
    """The children of a runner's server, once there are some."""
    server, until = psutil.Process(runner.pids[0]), time.monotonic() + 30
    while not (children := server.children()) and time.monotonic() < until:
        time.sleep(0.02)
    assert children
    return children


def test_processes_end_what_is_late_or_too_large_and_tell_why():
    texts = ["a", "die", "leave", "raise", "eat", "sleep"]
    runner = Processes(job_work.echo, 2, modules=("job_work",))
    try:
        found = answers(
            runner, [WorkCall(i, text, 4.0 if text == "sleep" else 60.0, 300 * MB) for i, text in enumerate(texts)]
        )
    finally:
        runner.close()
    message = [(found[i].text, found[i].why, found[i].detail) for i in range(5)]
    assert message == [
        ("aa", "", ""),
        (None, "crash", "its process was killed by SIGKILL"),
        (None, "crash", "its process ended with code 3"),
        (None, "crash", "ValueError: no"),
        (None, "memory", "its process was killed by SIGKILL"),
    ]
    assert (found[5].text, found[5].why) == (None, "time")


def test_inline_answers_with_what_was_raised():
    found = answers(Inline(job_work.echo), [WorkCall(1, "a"), WorkCall(2, "raise")])
    assert (found[1].text, found[2].why, found[2].detail) == ("aa", "crash", "ValueError: no")


def test_the_process_that_children_come_from_may_be_killed_too():
    runner = Processes(job_work.echo, 1, modules=("job_work",))
    try:
        runner.start(WorkCall(1, "sleep", 60.0))
        children = forked(runner)
        os.kill(runner.pids[0], signal.SIGKILL)
        (lost,) = runner.wait(10)
        assert (lost.text, lost.why) == (None, "crash")
        assert not psutil.wait_procs(children, timeout=10)[1]
        assert answers(runner, [WorkCall(2, "b", 60.0)])[2].text == "bb"
    finally:
        runner.close()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Return the answers of the small job in this process."""
    folder = tmp_path_factory.mktemp("inline")
    run(folder)
    return entries(folder)


def killed(folder, victim):
    """A thread that waits for the task that waits, and kills a process of it: what `victim` makes of the two it
    names."""

    def kill():
        marker = folder / "tasks" / "waiting"
        until = time.monotonic() + 60
        while time.monotonic() < until and not (marker.exists() and marker.read_text().endswith("\n")):
            time.sleep(0.02)
        os.kill(victim(*map(int, marker.read_text().split())), signal.SIGKILL)

    (folder / "tasks").mkdir(exist_ok=True)
    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_processes_give_the_same_entries_with_a_child_killed_on_the_way(tmp_path, reference):
    thread = killed(tmp_path, lambda child, server: child)
    summary = run(tmp_path, runner=lambda: Processes(job_work.first_waits, 2))
    thread.join()
    assert entries(tmp_path) == reference
    assert sorted(item.tries for item in summary.items)[-2:] == [0, 1]


@pytest.mark.slow
def test_two_dask_workers_give_the_same_entries_with_one_killed_on_the_way(tmp_path, reference):
    thread = killed(tmp_path, lambda child, server: psutil.Process(server).ppid())
    summary = run(tmp_path, runner=lambda: cluster.connect(job_work.first_waits, "local", 2))
    thread.join()
    assert entries(tmp_path) == reference
    assert summary.exit_code == 0


def test_a_scheduler_that_is_not_there_is_reported_soon(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(SynthError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 within 0\.5 s"):
        cluster.connect(task.run, "tcp://127.0.0.1:1", 1)
    with pytest.raises(UsageError, match="expected local, or the address of a scheduler"):
        cluster.connect(task.run, "nowhere", 1)


def test_a_missing_library_is_reported_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("synth.model.registry.installed", lambda module: False)
    with pytest.raises(MissingDependencyError, match=r"needs distributed, .*pip install 'ccl-synth\[cluster\]'"):
        cluster.connect(task.run, "local", 1)


def test_a_slurm_job_is_what_the_job_file_says(monkeypatch):
    options = {
        "queue": "gpu", "account": "lab", "cores": 4, "processes": 2, "memory": "16GB", "walltime": "02:00:00",
        "job_extra_directives": ["--exclusive"], "job_script_prologue": ["module load python"],
    }  # fmt: skip
    made = cluster.slurm_cluster(options)
    try:
        lines = made.job_script().splitlines()
    finally:
        made.close()
    for line in ("-p gpu", "-A lab", "-n 1", "--cpus-per-task=4", "--mem=15G", "-t 02:00:00", "--exclusive"):
        assert f"#SBATCH {line}" in lines
    assert "module load python" in lines
    assert "--nworkers 2" in lines[-1]
    assert "--nthreads 2" in lines[-1]
    with pytest.raises(SynthError, match="--slurm needs cores and memory"):
        cluster.slurm_cluster({"queue": "gpu"})
    monkeypatch.setattr(cluster.shutil, "which", lambda name: None)
    with pytest.raises(SynthError, match="there is no `sbatch` on this machine"):
        cluster.slurm(task.run, options, 2)


def test_a_scheduler_that_runs_already_is_used_and_left_running():
    own = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None,
        silence_logs=logging.CRITICAL,
    )  # fmt: skip
    try:
        runner = cluster.connect(job_work.echo, own.scheduler_address, 1)
        found = answers(runner, [WorkCall(1, "a", 60.0), WorkCall(2, "die", 60.0)])
        assert runner.slots == 1
        assert (found[1].text, found[2].why) == ("aa", "crash")
        runner.start(WorkCall(3, "sleep", 60.0))
        children = forked(next(one for (whose, _), one in cluster._runners.items() if whose == runner.owner))
        runner.close()
        assert not psutil.wait_procs(children, timeout=10)[1]
        assert own.status.name == "running"
    finally:
        own.close()


class Workers:
    """A client whose workers answer with `found`."""

    def __init__(self, found):
        self.found, self.closed = found, False

    def run(self, function):
        if isinstance(self.found, Exception):
            raise self.found
        return {f"tcp://worker-{i}": version for i, version in enumerate(self.found)}

    def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (["0.0.9"], "the workers of tcp://s have synth 0.0.9, here it is"),
        (ModuleNotFoundError("No module named 'synth'"), "cannot run synth"),
    ],
)
def test_workers_with_another_synth_or_none_are_refused(found, message):
    client = Workers(found)
    with pytest.raises(SynthError, match=message):
        cluster.check_versions(client, "tcp://s")
    assert client.closed
    cluster.check_versions(Workers([cluster.version()]), "tcp://s")


def test_nothing_is_left_when_a_runner_closes():
    runner = Processes(job_work.echo, 1, modules=("job_work",))
    runner.start(WorkCall(1, "sleep", 60.0))
    server, children = psutil.Process(runner.pids[0]), forked(runner)
    assert runner.wait(0.05) == []
    runner.close()
    assert not psutil.wait_procs([server, *children], timeout=10)[1]


def test_importing_the_runners_loads_no_dask():
    code = (
        "import sys, synth.catalog.jobs.runners.cluster, synth.cli.catalog.build; sys.exit('distributed' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
