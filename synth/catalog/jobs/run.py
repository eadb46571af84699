"""The batch job: every task of a fleet answered by an entry of the catalog, once.

A task that the catalog answers, under its own fingerprint or up to the numbering of its ranks, is skipped; one that
crashes is tried once more, then recorded as failed; one that is ended for want of time or memory is recorded as open
with the interval that its sweep's log holds. What ends this process loses at most the tasks in flight, and these
continue from their logs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from synth.catalog.entry import FAILED, OPEN, STATES, Entry
from synth.catalog.jobs.queue import Item, Queue, look_up
from synth.catalog.jobs.runners import Answer, Call, Runner
from synth.catalog.jobs.task import Task, entry_of, failure
from synth.catalog.store.store import Store
from synth.errors import SynthError

TRIES = 2
# A sweep ends itself at its time limit, give or take a linear program; what has not ended then is killed.
LATE, LATER = 1.5, 20.0
NO_LIMIT = 6 * 3600.0
CUT_SECONDS = 60.0
TICK = 1.0


class Progress(NamedTuple):
    """How far a job is: tasks ended of those to do, what runs, and the seconds that are left by the estimates."""

    ended: int
    total: int
    running: tuple[str, ...]
    left: float


@dataclass(frozen=True)
class Summary:
    """What came of a job. `left`: tasks that were not started, as the job's budget ran out or it was interrupted."""

    items: tuple[Item, ...]
    seconds: float = 0.0
    stopped: str = ""

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many tasks are in each state ("left": not started): solved now, known before, or equal up to numbering to
        another."""
        found: dict[str, dict[str, int]] = {state: {"solved": 0, "known": 0, "alike": 0} for state in (*STATES, "left")}
        for item in self.items:
            found[item.state or "left"]["solved" if item.solved or not item.state else item.fate] += 1
        return found

    @property
    def exit_code(self) -> int:
        """0 all done, 1 some failed, 4 some open or left."""
        states = {item.state for item in self.items}
        return 1 if FAILED in states else 4 if states & {OPEN, ""} else 0


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a job; everything that had ended is in the catalog."""

    def __init__(self, summary: Summary) -> None:
        super().__init__("interrupted")
        self.summary = summary


@dataclass
class Job:
    """One run of a job over `items`. `seconds` and `tasks` limit it; `listen` hears how far it is."""

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
    _expected: float = 0.0
    _taken: float = 0.0

    def run(self) -> Summary:
        """To the end, the budget or Ctrl-C (Interrupted). Raises SynthError where the catalog or the runner gives
        up."""
        queue = Queue(self.items)
        total = len(queue)
        if not total:
            return self._summary()
        runner = self.runner()
        try:
            while len(queue) or self._running:
                while len(self._running) < runner.slots and not self.spent and (item := queue.next()) is not None:
                    self._start(item, queue, runner)
                    self._tell(queue, total, runner)
                if not self._running:
                    if self.spent:
                        break
                    continue
                for answer in runner.wait(TICK):
                    self._take(answer, queue, runner)
                self._tell(queue, total, runner)
        except KeyboardInterrupt:
            raise Interrupted(self._summary("interrupted")) from None
        finally:
            runner.close()
        return self._summary("the job's budget ran out" if len(queue) else "")

    @property
    def spent(self) -> bool:
        """Whether no more tasks are to be started."""
        over = self.seconds is not None and time.monotonic() - self.began >= self.seconds
        return over or (self.tasks is not None and self.started >= self.tasks)

    def _start(self, item: Item, queue: Queue, runner: Runner) -> None:
        """Begin a task, unless one that is equal up to numbering, or another process, has answered it by now."""
        look_up(item, self.store)
        if item.fate != "todo":
            self.ended += 1
            queue.ended(item)
            return
        self.started += 1
        item.task = self._clipped(item.task)
        self._call(item, runner)

    def _clipped(self, task: Task) -> Task:
        """The task with no more time than the job has left."""
        if self.seconds is None:
            return task
        left, limit = max(1.0, self.seconds - (time.monotonic() - self.began)), task.options.time_limit
        return replace(task, options=replace(task.options, time_limit=left)) if limit is None or limit > left else task

    def _call(self, item: Item, runner: Runner) -> None:
        doc, limit = item.task.to_json(), item.task.options.time_limit
        deadline = NO_LIMIT if limit is None else LATE * limit + LATER
        if item.cut:
            doc["cut"], deadline = item.cut, CUT_SECONDS
        self._running[item.place] = item
        self._since.setdefault(item.place, time.monotonic())
        runner.start(Call(item.place, json.dumps(doc), deadline, item.task.options.memory))

    def _take(self, answer: Answer, queue: Queue, runner: Runner) -> None:
        item = self._running.pop(answer.number)
        seconds = time.monotonic() - self._since[item.place]
        entry, why, detail = self._read(item, answer, seconds)
        if entry is None and why in ("time", "memory") and not item.cut:
            item.cut = why
        elif entry is None:
            item.tries += 1
            if item.tries >= TRIES or (item.cut and why != "crash"):
                told = (
                    f"stopped for want of {item.cut} before anything was known"
                    if item.cut
                    else f"crashed twice: {detail}"
                )
                entry = failure(item.task, told, seconds)
        if entry is None:
            self._call(item, runner)
        else:
            self._keep(item, entry, queue)

    @staticmethod
    def _read(item: Item, answer: Answer, seconds: float) -> tuple[Entry | None, str, str]:
        """The entry that an answer makes; or None, why, and what is to be told of it."""
        if answer.text is None:
            return None, answer.why, answer.detail
        try:
            return replace(entry_of(item.task, answer.text), seconds=round(seconds, 3)), "", ""
        except (SynthError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            return None, "crash", f"its answer is wrong: {type(error).__name__}: {error}"

    def _keep(self, item: Item, entry: Entry, queue: Queue) -> None:
        self.store.put(entry)
        self.ended += 1
        self._expected, self._taken = self._expected + item.seconds, self._taken + entry.seconds
        item.state, item.entry, item.reason, item.solved, item.seconds = (
            entry.state,
            entry.id,
            entry.reason,
            True,
            entry.seconds,
        )
        queue.ended(item)

    def _tell(self, queue: Queue, total: int, runner: Runner) -> None:
        now = time.monotonic()
        running = [f"{item.task.name} on {item.task.topology.name}" for item in self._running.values()]
        rest = sum(max(0.0, item.seconds - (now - self._since[item.place])) for item in self._running.values())
        pace = (
            self._taken / self._expected if self._expected else 1.0
        )  # what the tasks so far took, against their estimates
        self.listen(Progress(self.ended, total, tuple(running), pace * (queue.seconds + rest) / runner.slots))

    def _summary(self, stopped: str = "") -> Summary:
        return Summary(tuple(self.items), time.monotonic() - self.began, stopped)
