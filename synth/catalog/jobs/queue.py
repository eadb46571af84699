"""The queue of a job: the tasks that the catalog does not answer yet, in the order in which they are started.

Of isomorphic problems, equal up to the numbering of their ranks, the first is solved, and the others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from synth.catalog import isomorphism
from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, Entry
from synth.catalog.jobs.cost_estimate import CostEstimator, EntryTime
from synth.catalog.jobs.task import Task
from synth.catalog.store.rows import EntryRow
from synth.catalog.store.store import Store

Fate = Literal["todo", "known", "alike"]


@dataclass
class Item:
    """A task of a job and its state.

    `fate`: "todo", "known" (the catalog has its entry) or "alike" (the catalog has the entry of an isomorphic problem).
    `state`, `entry`, `reason`: of the entry that answers the task, "" while there is none. `seconds`: the estimate, or
    the time the task took, 0 where it was not run. `before`: the id of the entry that is to be tried again, and its
    date. `tries`: crashes so far. `cut`: "time" or "memory" where its sweep was ended for lack of it. `kind`: equal for
    tasks that may be isomorphic.
    """

    place: int
    task: Task
    seconds: float = 0.0
    fate: Fate = "todo"
    state: str = ""
    entry: str = ""
    reason: str = ""
    before: tuple[str, str] | None = None
    tries: int = 0
    cut: str = ""
    solved: bool = False
    kind: str = field(default="", repr=False)


def items(tasks: Sequence[Task], store: Store, *, retry_open: bool = False, retry_failed: bool = False) -> list[Item]:
    """Return an item for each task, with the answer of the catalog if it has one; repeated tasks have one item.

    `retry_open`, `retry_failed`: see `look_up`.
    """
    costs = cost_estimator(store)
    unique: dict[str, Item] = {}
    for task in tasks:
        if task.fingerprint not in unique:
            seconds = costs.estimate(task.name, task.topology.ranks, task.engine, task.options.time_limit)
            item = unique[task.fingerprint] = Item(len(unique), task, seconds)
            look_up(item, store, retry_open=retry_open, retry_failed=retry_failed)
    return list(unique.values())


def cost_estimator(store: Store) -> CostEstimator:
    """Return the estimator of task times that is based on all entries of `store` that have not failed."""
    rows = [row for row in store.ls() if isinstance(row, EntryRow) and row.state != FAILED]
    return CostEstimator(EntryTime(row.collective, row.ranks, row.engine, row.seconds) for row in rows)


def look_up(
    item: Item, store: Store, *, retry_open: bool = False, retry_failed: bool = False, go_on: bool = True
) -> None:
    """Set the fate and the answer of `item` from the catalog's entry of its problem, or of an isomorphic one.

    The item stays to be done where there is no entry, and where its task began with this very entry. It also stays
    where the entry is tried again: a failed one with `retry_failed`, an open one with `retry_open`, or with `go_on`
    under a longer time limit than the entry had. The task then begins with the entry's points.
    """
    task = item.task
    fate: Fate = "known"
    state = store.state_of(task.fingerprint)
    if state in (DONE, INFEASIBLE):
        item.fate, item.state, item.entry, item.seconds = "known", state, task.fingerprint[:12], 0.0
        return
    entry = store.get(task.fingerprint) if state is not None else None
    if entry is None:
        entry, fate = _isomorphic_entry(task, store), "alike"
        if entry is None:
            return
    version = (entry.id, entry.provenance.created)
    if version == item.before:
        return
    continued = entry.state == OPEN and (retry_open or (go_on and _has_more_time(task, entry)))
    if continued or (entry.state == FAILED and retry_failed):
        points = entry.exact.points if entry.exact is not None else ()
        item.task, item.before = replace(task, known=tuple(p.to_json() for p in points)), version
        return
    item.fate, item.state, item.entry, item.reason, item.seconds = fate, entry.state, entry.id, entry.reason, 0.0


def _isomorphic_entry(task: Task, store: Store) -> Entry | None:
    if task.engine == "flow" or not len(store):
        return None
    labels = task.topology.labels
    match = store.find(task.network, task.collective_value, task.answer_options, labels)
    return None if match is None else match[0]


def _has_more_time(task: Task, entry: Entry) -> bool:
    """Return True if the time limit of the task is longer than the limit of the entry was."""
    before, now = entry.provenance.time_limit, task.options.time_limit
    return before is not None and (now is None or now > before)


class Queue:
    """The items to be done, the cheapest first. Of items that may be isomorphic, only one is started at a time."""

    def __init__(self, listed: Sequence[Item]) -> None:
        self.waiting = [item for item in listed if item.fate == "todo"]
        for item in self.waiting:
            task = item.task
            if task.engine == "flow":
                item.kind = task.fingerprint
            else:
                item.kind = isomorphism.invariant(task.network, task.collective_value, task.answer_options)
        cost: dict[str, float] = {}
        for item in self.waiting:
            cost[item.kind] = max(cost.get(item.kind, 0.0), item.seconds)
        self.waiting.sort(key=lambda item: (cost[item.kind], item.place))
        self._busy: set[str] = set()

    def __len__(self) -> int:
        return len(self.waiting)

    def next(self) -> Item | None:
        """Return the next item that may start; None where every item waits for another one, or none is left."""
        for i, item in enumerate(self.waiting):
            if item.kind not in self._busy:
                self._busy.add(item.kind)
                return self.waiting.pop(i)
        return None

    def ended(self, item: Item) -> None:
        """Record that `item` has ended, so that the next item that may be isomorphic can start."""
        self._busy.discard(item.kind)
