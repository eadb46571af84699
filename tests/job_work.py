"""Work for the runners' tests: functions that children import by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from synth.catalog import job_task


def echo(text: str) -> str:
    """What the text asks for: to crash in some way, to sleep, to eat memory; else the text twice."""
    if text == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "leave":
        os._exit(3)
    if text == "raise":
        raise ValueError("no")
    if text == "eat":
        held = []
        while True:
            held.append(bytearray(32 << 20))
            time.sleep(0.01)
    if text == "sleep":
        time.sleep(60)
    return text * 2


def first_waits(text: str) -> str:
    """The task; but the very first of them all leaves its process numbers in a file and waits to be killed."""
    task = json.loads(text)
    marker = Path(task["log"]).parent / "waiting"
    with contextlib.suppress(FileExistsError), marker.open("x") as file:
        file.write(f"{os.getpid()} {os.getppid()}\n")
        file.flush()
        time.sleep(60)
    return job_task.run(text)


def crash_once(text: str) -> str:
    """The task; but each one crashes the first time."""
    marker = Path(json.loads(text)["log"]).with_suffix(".once")
    if not marker.exists():
        marker.touch()
        os._exit(1)
    return job_task.run(text)


def crash(text: str) -> str:
    """No task survives this."""
    os._exit(1)


def wrong(text: str) -> str:
    """An answer whose schedule is not right: a send is lost."""
    doc = json.loads(job_task.run(text))
    doc["frontier"]["points"][0]["schedule"]["steps"][0]["sends"].pop()
    return json.dumps(doc)


def never(text: str) -> str:
    """A task that does not end by itself; what is left of it once it was ended does."""
    if "cut" not in json.loads(text):
        time.sleep(60)
    return job_task.run(text)


def finds_then_hangs(text: str) -> str:
    """The whole frontier goes into the log, as a sweep's does; then the task hangs."""
    doc = json.loads(text)
    if "cut" in doc:
        return job_task.run(text)
    task = job_task.Task.from_json(doc)
    patient = doc | {"log": None, "options": doc["options"] | {"time_limit": None}}
    found = json.loads(job_task.run(json.dumps(patient)))["frontier"]
    from synth.pareto import frontiers

    assert task.log is not None
    frontiers.seeded(task.log, task.topology, task.whole, job_task.sweep_options(task), found["points"][:1])
    time.sleep(60)
    return ""
