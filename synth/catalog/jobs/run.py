"""The batch job: each task of a job file is answered by an entry of the catalog, once.

A task that the catalog answers, under its own fingerprint or up to the numbering of its ranks, is skipped. A task that
crashes is tried once more. If this process ends early, at most the tasks in flight are lost, and these continue from
their logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from typing import NamedTuple

from synth.catalog.entry import OPEN
from synth.catalog.jobs.runners import Runner
from synth.catalog.jobs.task import FAILED, Task, TaskAnswer
from synth.catalog.store import Store
from synth.checker.documents import exact_frontier
from synth.errors import SynthError

TICK = 1.0  # seconds between two reports of progress


@dataclass
class Item:
    """A task of a job and its answer.

    `state`: "done" or "open" as the entry that answers it, "infeasible", "failed", or "" while there is none. `entry`:
    the id of that entry. `source`: "solved", "known" or "alike" (the entry is of an isomorphic problem). `before`: the
    date of the open entry that is to be tried again.
    """

    task: Task
    state: str = ""
    entry: str = ""
    source: str = ""
    reason: str = ""
    before: str = ""
    crashes: int = 0


class Progress(NamedTuple):
    """The progress of a job: tasks ended, tasks in all, and the running ones."""

    ended: int
    total: int
    running: tuple[str, ...]


class Interrupted(KeyboardInterrupt):
    """Raised by Ctrl-C during a job. The catalog holds every task that had ended; `items` says which."""

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__("interrupted")
        self.items = items


def items_of(tasks: Sequence[Task], store: Store | None, retry_open: bool = False) -> list[Item]:
    """Return an item for each task, with the answer of the catalog if it has one; repeated tasks have one item.

    An open entry is no answer with `retry_open`, or where its time limit was shorter than that of the task.
    """
    items: dict[str, Item] = {}
    for task in tasks:
        if task.fingerprint not in items:
            item = items[task.fingerprint] = Item(task)
            if store is not None:
                look_up(item, store, retry_open)
    return list(items.values())


def look_up(item: Item, store: Store, retry_open: bool = False) -> None:
    """Set the answer of `item` from the catalog's entry of its problem, or of an isomorphic one."""
    task = item.task
    row, source = store.row(task.fingerprint), "known"
    if row is None:
        row, source = store.find(task.network, task.collective, task.answer_options), "alike"
    if row is None:
        return
    created = str(row.provenance.get("created"))
    before, now = row.provenance.get("time_limit"), task.options.time_limit
    more_time = before is not None and (now is None or now > before)
    if row.state == OPEN and (retry_open or created == item.before or more_time):
        item.before = created
        return
    item.state, item.entry, item.source = row.state, row.id, source


def run(items: Sequence[Item], store: Store, runner: Runner, listen: Callable[[Progress], None]) -> None:
    """Answer every item in the catalog. Raises Interrupted on Ctrl-C, SynthError where catalog or runner fails."""
    waiting = [item for item in items if not item.state]
    running: dict[Future[TaskAnswer], Item] = {}
    total = len(waiting)
    try:
        while waiting or running:
            # of tasks that may be isomorphic only one runs at a time: its answer may be that of the others
            busy = {item.task.invariant for item in running.values()}
            for item in list(waiting):
                if len(running) >= runner.slots:
                    break
                if item.task.invariant not in busy:
                    waiting.remove(item)
                    look_up(item, store)
                    if not item.state:
                        busy.add(item.task.invariant)
                        running[runner.submit(item.task)] = item
            names = tuple(item.task.name for item in running.values())
            listen(Progress(total - len(waiting) - len(running), total, names))

            # each answer is stored as it comes; a crash is tried once more
            for future in wait(running, TICK, FIRST_COMPLETED).done:
                item = running.pop(future)
                try:
                    keep(item, future.result(), store)
                except CancelledError:
                    raise SynthError("the Dask scheduler dropped a task; the same command continues") from None
                except Exception as error:  # whatever a child or a worker ended with
                    item.crashes += 1
                    if item.crashes == 2:
                        item.state, item.source, item.reason = FAILED, "solved", f"crashed twice: {error}"
                    else:
                        waiting.insert(0, item)
    except KeyboardInterrupt:
        raise Interrupted(items) from None
    finally:
        runner.close()


def keep(item: Item, answer: TaskAnswer, store: Store) -> None:
    """Store the answer of a task, whose frontier is checked once more."""
    item.state, item.source, item.reason = answer.state, "solved", answer.reason
    entry = answer.entry
    if entry is None:
        return
    try:
        exact_frontier.document(entry.frontier.to_json())
        if entry.fingerprint != item.task.fingerprint:
            raise SynthError("it is of another problem")
    except SynthError as error:
        item.state, item.reason = FAILED, f"its answer is wrong: {error}"
        return
    item.entry = entry.id
    store.put(entry)


def counts(items: Sequence[Item]) -> dict[str, Counter[str]]:
    """Return the number of items in each state ("left": not started) by source."""
    table: dict[str, Counter[str]] = {}
    for item in items:
        table.setdefault(item.state or "left", Counter())[item.source] += 1
    return table


def exit_code(items: Sequence[Item]) -> int:
    """Return the exit code: 0 all done, 1 some failed, 4 some open or not started."""
    states = {item.state for item in items}
    if FAILED in states:
        return 1
    return 4 if states & {OPEN, ""} else 0
