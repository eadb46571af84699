"""The batch job: each task of a job file is answered by an entry of the catalog, once.

A task that the catalog answers, under its own fingerprint or up to the numbering of its ranks, is skipped. A task that
crashes is tried once more, then recorded as failed. A task that is ended for lack of time or memory is recorded as open
with the interval that its sweep's log holds. If this process ends early, at most the tasks in flight are lost, and
these continue from their logs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from synth.catalog.entry import FAILED, OPEN, STATES, Entry
from synth.catalog.jobs.queue import Item, Queue, look_up
from synth.catalog.jobs.runners import Runner, WorkAnswer, WorkCall
from synth.catalog.jobs.task import Task, entry_of, failure
from synth.catalog.store.store import Store
from synth.errors import SynthError

TRIES = 2  # attempts at a task: one that crashes as often is recorded as failed
# A sweep ends itself at its time limit, give or take a linear program. A task is killed this many times its limit, plus
# this many seconds, after it was started.
LATE, LATER = 1.5, 20.0
NO_LIMIT = 6 * 3600.0  # seconds after which a task without a time limit is killed
CUT_SECONDS = 60.0  # seconds to read the log of a task that was ended from outside
TICK = 1.0  # seconds between two reports of progress


class Progress(NamedTuple):
    """The progress of a job: tasks ended, tasks in all, and the running ones."""

    ended: int
    total: int
    running: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """The result of a job: its items, its wall seconds, and `stopped`, the reason why some tasks were not started (""
    where all were)."""

    items: tuple[Item, ...]
    seconds: float = 0.0
    stopped: str = ""

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The number of tasks in each state ("left": not started), as solved now, known before, or isomorphic to a
        known problem."""
        counts: dict[str, dict[str, int]] = {}
        for state in (*STATES, "left"):
            counts[state] = {"solved": 0, "known": 0, "alike": 0}
        for item in self.items:
            origin = "solved" if item.solved or not item.state else item.fate
            counts[item.state or "left"][origin] += 1
        return counts

    @property
    def exit_code(self) -> int:
        """The exit code: 0 all done, 1 some failed, 4 some open or not started."""
        states = {item.state for item in self.items}
        if FAILED in states:
            return 1
        return 4 if states & {OPEN, ""} else 0


class Interrupted(KeyboardInterrupt):
    """Raised by Ctrl-C during a job. The catalog holds every task that had ended; `summary` says which."""

    def __init__(self, summary: Summary) -> None:
        super().__init__("interrupted")
        self.summary = summary


@dataclass
class JobRun:
    """One run of a job over `items`, limited to `seconds` (wall time) and `tasks`. `listen` is called with its
    progress."""

    items: Sequence[Item]
    store: Store
    runner: Callable[[], Runner]
    seconds: float | None = None
    tasks: int | None = None
    listen: Callable[[Progress], None] = lambda progress: None
    began: float = field(default_factory=time.monotonic)
    ended: int = 0
    started: int = 0
    _running: dict[int, Item] = field(default_factory=dict)
    _since: dict[int, float] = field(default_factory=dict)

    def run(self) -> Summary:
        """Run the tasks until all have ended or the budget is spent, and return the summary.

        Raises Interrupted on Ctrl-C, SynthError where the catalog or the runner fails.
        """
        queue = Queue(self.items)
        total = len(queue)
        if not total:
            return self._summary()
        runner = self.runner()
        try:
            while len(queue) or self._running:
                while len(self._running) < runner.slots and not self.spent and (item := queue.next()) is not None:
                    self._start(item, queue, runner)
                    self._report(total)
                if not self._running:
                    if self.spent:
                        break
                    continue
                for answer in runner.wait(TICK):
                    self._handle(answer, queue, runner)
                self._report(total)
        except KeyboardInterrupt:
            raise Interrupted(self._summary("interrupted")) from None
        finally:
            runner.close()
        return self._summary("the job's budget ran out" if len(queue) else "")

    @property
    def spent(self) -> bool:
        """True if the budget is spent, so that no more tasks are started."""
        over = self.seconds is not None and time.monotonic() - self.began >= self.seconds
        return over or (self.tasks is not None and self.started >= self.tasks)

    def _start(self, item: Item, queue: Queue, runner: Runner) -> None:
        """Start a task, unless an isomorphic task or another process has answered it in the meantime."""
        look_up(item, self.store)
        if item.fate != "todo":
            self.ended += 1
            queue.ended(item)
            return
        self.started += 1
        item.task = self._clipped(item.task)
        self._call(item, runner)

    def _clipped(self, task: Task) -> Task:
        """Return the task with a time limit no longer than the remaining time of the job."""
        if self.seconds is None:
            return task
        remaining_seconds = max(1.0, self.seconds - (time.monotonic() - self.began))
        limit = task.options.time_limit
        if limit is not None and limit <= remaining_seconds:
            return task
        return replace(task, options=replace(task.options, time_limit=remaining_seconds))

    def _call(self, item: Item, runner: Runner) -> None:
        doc, limit = item.task.to_json(), item.task.options.time_limit
        deadline = NO_LIMIT if limit is None else LATE * limit + LATER
        if item.cut:
            doc["cut"], deadline = item.cut, CUT_SECONDS
        self._running[item.place] = item
        self._since.setdefault(item.place, time.monotonic())
        runner.start(WorkCall(item.place, json.dumps(doc), deadline, item.task.options.memory))

    def _handle(self, answer: WorkAnswer, queue: Queue, runner: Runner) -> None:
        item = self._running.pop(answer.number)
        seconds = time.monotonic() - self._since[item.place]
        entry, why, detail = self._read(item, answer, seconds)
        if entry is None and why in ("time", "memory") and not item.cut:
            item.cut = why
        elif entry is None:
            item.tries += 1
            if item.tries >= TRIES or (item.cut and why != "crash"):
                reason = f"crashed twice: {detail}"
                if item.cut:
                    reason = f"stopped for want of {item.cut} before anything was known"
                entry = failure(item.task, reason, seconds)
        if entry is None:
            self._call(item, runner)
        else:
            self._keep(item, entry, queue)

    @staticmethod
    def _read(item: Item, answer: WorkAnswer, seconds: float) -> tuple[Entry | None, str, str]:
        """Return the entry of an answer, "" and ""; or None, the cause and its description."""
        if answer.text is None:
            return None, answer.why, answer.detail
        try:
            return replace(entry_of(item.task, answer.text), seconds=round(seconds, 3)), "", ""
        except (SynthError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            return None, "crash", f"its answer is wrong: {type(error).__name__}: {error}"

    def _keep(self, item: Item, entry: Entry, queue: Queue) -> None:
        self.store.put(entry)
        self.ended += 1
        item.state, item.entry, item.reason = entry.state, entry.id, entry.reason
        item.solved, item.seconds = True, entry.seconds
        queue.ended(item)

    def _report(self, total: int) -> None:
        running = [f"{item.task.name} on {item.task.topology.name}" for item in self._running.values()]
        self.listen(Progress(self.ended, total, tuple(running)))

    def _summary(self, stopped: str = "") -> Summary:
        return Summary(tuple(self.items), time.monotonic() - self.began, stopped)
