"""Tables of a catalog's answers to a job, as Markdown: one for each machine, or for all allocations and variants of a
machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN
from synth.catalog.entry_summary import EntrySummary
from synth.catalog.jobs.job_file import JobFile
from synth.catalog.jobs.plan import machine_tasks
from synth.catalog.jobs.queue import Item, look_up
from synth.catalog.jobs.task import Task
from synth.catalog.store.store import Store
from synth.model.rational import show
from synth.model.topology import Topology

MISSING = "not in the catalog"
LEGEND = (
    "Each figure is *steps: rounds per chunk*, one chunk per unit of bandwidth and round. A single value such as 7/6 "
    "is the least possible of any schedule with that many steps and any number of chunks, proved by a certificate in "
    "the catalog. *8/3 to 11/4* is an interval: 8/3 is a proved lower bound, 11/4 is reached by a schedule. *≥ 8/3* is "
    "a proved lower bound where no schedule was found. A number of steps that is not listed allows no fewer rounds per "
    "chunk than the listed number before it."
)


@dataclass(frozen=True)
class TaskAnswer:
    """A task and the summary of the entry that answers it, None where there is none."""

    task: Task
    entry: EntrySummary | None


def markdown(fleet: JobFile, store: Store, title: str) -> str:
    """Return the whole page. Raises FormatError as `machine_tasks` does, and for a damaged entry."""
    parts: list[str] = []
    every: list[TaskAnswer] = []
    for machine in fleet.machines:
        answers = [_answer(task, store) for task in machine_tasks(fleet, machine)]
        every += answers
        topologies = list(dict.fromkeys(id(a.task.topology) for a in answers))
        if len(topologies) > 1:
            heading = _heading(machine.name, machine.allocations is not None, bool(machine.degraded))
            parts.append(_matrix(answers, heading))
        elif answers:
            parts.append(_single(answers))
    return "\n".join([f"# {title}\n", *_head(every), *parts])


def _answer(task: Task, store: Store) -> TaskAnswer:
    name = task.fingerprint
    if store.state_of(name) is None:  # the entry of an isomorphic problem may answer it
        item = Item(0, task)
        look_up(item, store, go_on=False)
        name = item.entry
    return TaskAnswer(task, store.summary(name) if name else None)


def _head(answers: Sequence[TaskAnswer]) -> list[str]:
    problems = list({a.task.fingerprint: a for a in answers}.values())  # repeated tasks are one problem, as in the job
    states: Counter[str] = Counter()
    for a in problems:
        states[a.entry.row.state if a.entry else MISSING] += 1
    entries = {a.entry.row.fingerprint: a.entry for a in problems if a.entry}
    counts = ", ".join(f"{states[s]} {s}" for s in (DONE, OPEN, INFEASIBLE, FAILED, MISSING) if states[s])
    seconds = sum(entry.row.seconds for entry in entries.values())
    lines = [
        f"{len(problems)} problems ({counts}), answered by {len(entries)} entries: problems that are equal up to the "
        f"numbering of ranks share one.\n"
    ]
    versions = sorted({_versions(entry) for entry in entries.values()})
    if versions:
        lines.append(f"Made by {'; '.join(versions)}; {seconds:.0f} s of tasks in all.\n")
    return [*lines, LEGEND + "\n"]


def _versions(entry: EntrySummary) -> str:
    known = entry.versions
    names = {"ccl-synth": "synth", "python-sat": "python-sat", "ortools": "ortools", "z3-solver": "z3"}
    return ", ".join(f"{shown} {known[name]}" for name, shown in names.items() if name in known)


def _heading(name: str, allocations: bool, variants: bool) -> str:
    flags = (("allocations up to isomorphism", allocations), ("variants", variants))
    kinds = [word for word, present in flags if present]
    return f"{name}: {' and '.join(kinds)}" if kinds else name


def _single(answers: Sequence[TaskAnswer]) -> str:
    topology = answers[0].task.topology
    rows = [(_name(a.task), figures(a.entry), _state(a), _source(a, topology)) for a in answers]
    head = f"## {topology.name}\n\n{topology.ranks} ranks, 1 unit = {show(topology.unit_bandwidth())} GB/s.\n"
    return f"{head}\n{_table(('collective', 'steps: rounds per chunk', 'state', 'entry'), rows)}"


def _matrix(answers: Sequence[TaskAnswer], heading: str) -> str:
    columns = list(dict.fromkeys(_name(a.task) for a in answers))
    machines: dict[int, dict[str, TaskAnswer]] = {}
    for a in answers:
        machines.setdefault(id(a.task.topology), {})[_name(a.task)] = a
    rows = []
    for cells in machines.values():
        topology = next(iter(cells.values())).task.topology
        row = [_variant(topology), str(topology.ranks)]
        for column in columns:
            row.append(figures(cells[column].entry) if column in cells else "")
        rows.append(row)
    unit = show(answers[0].task.topology.unit_bandwidth())
    return f"## {heading}\n\n1 unit = {unit} GB/s.\n\n{_table(('machine', 'ranks', *columns), rows)}"


def _variant(topology: Topology) -> str:
    """Return the changes in a topology's name, such as ``without 0-1``; the whole name where it has no changes."""
    _, dashes, changes = topology.name.partition(" --")
    return changes.removeprefix("ranks ") if dashes else topology.name


def _name(task: Task) -> str:
    return task.name + (f" from {','.join(map(str, task.roots))}" if any(task.roots) else "")


def figures(entry: EntrySummary | None) -> str:
    """Return the figures of an entry as text: steps and rounds per chunk, as in ``2: 3/2, 3: 1 to 7/6``.

    An interval contains the least rounds per chunk. Without an entry, without a schedule or without points the text
    says so.
    """
    if entry is None:
        return MISSING
    if entry.row.state == INFEASIBLE:
        return f"no schedule exists: {entry.row.reason}"
    if entry.bound is not None:
        points = [f"{steps}: {show(rounds_per_chunk)}" for steps, rounds_per_chunk in entry.reached]
        return f"≥ {show(entry.bound)}; " + ", ".join(points)
    return ", ".join(_intervals(entry)) or ("nothing to do" if entry.complete else entry.row.reason)


def _intervals(entry: EntrySummary) -> Iterable[str]:
    for steps, low, high in entry.rows:
        if high is None:
            yield f"{steps}: ≥ {show(low)}"
        elif low == high:
            yield f"{steps}: {show(low)}"
        else:
            yield f"{steps}: {show(low)} to {show(high)}"


def _state(a: TaskAnswer) -> str:
    if a.entry is None:
        return MISSING
    if a.entry.row.state == DONE and a.entry.complete:
        return "complete" if a.entry.max_steps is None else f"complete to {a.entry.max_steps} steps"
    return f"open: {a.entry.row.reason}" if a.entry.row.state == OPEN else a.entry.row.state


def _source(a: TaskAnswer, topology: Topology) -> str:
    if a.entry is None:
        return ""
    return f"`{a.entry.row.id}`" + (f" of {a.entry.row.topology}" if a.entry.row.topology != topology.name else "")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
