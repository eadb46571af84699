"""Work for the runners' tests: functions that children import by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from synth.catalog.jobs import task as job_task


def echo(text: str) -> str:
    """Do the work that the text names: crash in some way, sleep, use up memory; else return the text twice."""
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


def fill_log(text: str) -> None:
    """The first point of the frontier goes into the task's log, as a sweep's does."""
    doc = json.loads(text)
    task = job_task.Task.from_json(doc)
    found = json.loads(job_task.run(json.dumps(doc | {"log": None})))["frontier"]
    job_task.query_of(replace(task, known=tuple(found["points"][:1])), task.log).open_log().close(finished=False)
