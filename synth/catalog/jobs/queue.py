"""What a job still has to do, in which order: what the catalog answers is skipped, of problems that are equal up to
numbering the first is solved, and the others wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from synth.catalog import isomorphism
from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, Entry
from synth.catalog.jobs.cost_estimate import Costs, Taken
from synth.catalog.jobs.task import Task
from synth.catalog.store.rows import Row
from synth.catalog.store.store import Store
from synth.model.frontier import Frontier

Fate = Literal["todo", "known", "alike"]


@dataclass
class Item:
    """A task on its way. `fate`: to be done; the catalog has it; or it has one that is equal up to numbering.

    `state`, `entry`, `reason`: of the entry that answers it, "" while there is none. `seconds`: the estimate, or what
    it took, 0 where nothing was done. `before`: the entry that is to be tried again, and when it was made. `cut`: what
    its sweep was ended for want of.
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
    """Every task, with what the catalog says of it. Repeated tasks are listed once."""
    costs = costs_of(store)
    found: dict[str, Item] = {}
    for task in tasks:
        if task.fingerprint not in found:
            seconds = costs.estimate(task.name, task.topology.ranks, task.engine, task.options.time_limit)
            item = found[task.fingerprint] = Item(len(found), task, seconds)
            look_up(item, store, retry_open=retry_open, retry_failed=retry_failed)
    return list(found.values())


def costs_of(store: Store) -> Costs:
    """Estimates from what the entries of a catalog took."""
    rows = [row for row in store.ls() if isinstance(row, Row) and row.state != FAILED]
    return Costs(Taken(row.collective, row.ranks, row.engine, row.seconds) for row in rows)


def look_up(
    item: Item, store: Store, *, retry_open: bool = False, retry_failed: bool = False, go_on: bool = True
) -> None:
    """Fill in what the catalog says of the task; one that is to be tried again takes the points that are known along.

    An open entry is to be tried again where the task may spend more than it did, unless `go_on` says not to.
    """
    task = item.task
    fate: Fate = "known"
    state = store.has(task.fingerprint)
    if state in (DONE, INFEASIBLE):
        item.fate, item.state, item.entry, item.seconds = "known", state, task.fingerprint[:12], 0.0
        return
    entry = store.get(task.fingerprint) if state is not None else None
    if entry is None:
        entry, fate = _alike(task, store), "alike"
        if entry is None:
            return
    made = (entry.id, entry.provenance.created)
    if made == item.before:
        return
    if (entry.state == OPEN and (retry_open or (go_on and _more(task, entry)))) or (
        entry.state == FAILED and retry_failed
    ):
        points = entry.frontier.points if isinstance(entry.frontier, Frontier) else ()
        item.task, item.before = replace(task, known=tuple(p.to_json() for p in points)), made
        return
    item.fate, item.state, item.entry, item.reason, item.seconds = fate, entry.state, entry.id, entry.reason, 0.0


def _alike(task: Task, store: Store) -> Entry | None:
    if task.engine == "flow" or not len(store):
        return None
    found = store.find(task.network, task.whole, task.asked, task.topology.labels)
    return None if found is None else found[0]


def _more(task: Task, entry: Entry) -> bool:
    """Whether the task may spend more than the entry did."""
    before, now = entry.provenance.time_limit, task.options.time_limit
    return before is not None and (now is None or now > before)


class Queue:
    """The items to be done, the cheapest first; of those that may be equal up to numbering only the first, until it has
    ended."""

    def __init__(self, listed: Sequence[Item]) -> None:
        self.waiting = [item for item in listed if item.fate == "todo"]
        for item in self.waiting:
            task = item.task
            item.kind = (
                task.fingerprint
                if task.engine == "flow"
                else isomorphism.invariant(task.network, task.whole, task.asked)
            )
        cost: dict[str, float] = {}
        for item in self.waiting:
            cost[item.kind] = max(cost.get(item.kind, 0.0), item.seconds)
        self.waiting.sort(key=lambda item: (cost[item.kind], item.place))
        self._busy: set[str] = set()

    def __len__(self) -> int:
        return len(self.waiting)

    def next(self) -> Item | None:
        """The next item that may start; None while all wait for others, or there are none."""
        for i, item in enumerate(self.waiting):
            if item.kind not in self._busy:
                self._busy.add(item.kind)
                return self.waiting.pop(i)
        return None

    def ended(self, item: Item) -> None:
        """`item` is over: those like it may be looked at."""
        self._busy.discard(item.kind)

    @property
    def seconds(self) -> float:
        """The estimates of all that wait, together; of items that may be equal up to numbering, of one."""
        return sum({item.kind: item.seconds for item in self.waiting}.values())
