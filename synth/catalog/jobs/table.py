"""What a catalog answers of a job, as Markdown: a table for each machine, one for all allocations or variants of a
machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN
from synth.catalog.entry_summary import Told
from synth.catalog.jobs.job_file import Fleet
from synth.catalog.jobs.plan import machine_tasks
from synth.catalog.jobs.queue import Item, look_up
from synth.catalog.jobs.task import Task
from synth.catalog.store.store import Store
from synth.model.rational import show
from synth.model.topology import Topology

MISSING = "not in the catalog"
LEGEND = (
    "Each figure is *steps: rounds per chunk*, one chunk per unit of bandwidth and round; 7/6 means the least "
    "possible of any schedule"
    " with that many steps, whatever its number of chunks, proved by a certificate in the catalog. *8/3 to 11/4* "
    "means that the least"
    " lies between the two: the first is proved, the second reached by a schedule. *≥ 8/3* means that no schedule "
    "was found. Numbers of"
    " steps that are left out are no better than the one before them."
)


@dataclass(frozen=True)
class Answered:
    """A task and what the entry that answers it says, None where none does."""

    task: Task
    entry: Told | None


def markdown(fleet: Fleet, store: Store, title: str) -> str:
    """The whole page. Raises FormatError as `machine_tasks` does, and for a damaged entry."""
    parts: list[str] = []
    every: list[Answered] = []
    for machine in fleet.machines:
        found = [_answered(task, store) for task in machine_tasks(fleet, machine)]
        every += found
        topologies = list(dict.fromkeys(id(a.task.topology) for a in found))
        if len(topologies) > 1:
            parts.append(
                _matrix(found, _heading(machine.name, machine.allocations is not None, bool(machine.degraded)))
            )
        elif found:
            parts.append(_single(found))
    return "\n".join([f"# {title}\n", *_head(every), *parts])


def _answered(task: Task, store: Store) -> Answered:
    name = task.fingerprint
    if store.has(name) is None:  # it may be answered by an entry that another numbering makes its own
        item = Item(0, task)
        look_up(item, store, go_on=False)
        name = item.entry
    return Answered(task, store.told(name) if name else None)


def _head(found: Sequence[Answered]) -> list[str]:
    every = list({a.task.fingerprint: a for a in found}.values())  # what is named twice is one problem, as in the job
    states = Counter(a.entry.row.state if a.entry else MISSING for a in every)
    own = {a.entry.row.fingerprint: a.entry for a in every if a.entry}
    said = ", ".join(f"{states[s]} {s}" for s in (DONE, OPEN, INFEASIBLE, FAILED, MISSING) if states[s])
    seconds = sum(entry.row.seconds for entry in own.values())
    lines = [
        f"{len(every)} problems ({said}), answered by {len(own)} entries: problems that are equal up to the "
        f"numbering of ranks share one.\n"
    ]
    versions = sorted({_versions(entry) for entry in own.values()})
    if versions:
        lines.append(f"Made by {'; '.join(versions)}; {seconds:.0f} s of tasks in all.\n")
    return [*lines, LEGEND + "\n"]


def _versions(entry: Told) -> str:
    known = entry.versions
    names = {"ccl-synth": "synth", "python-sat": "python-sat", "ortools": "ortools", "z3-solver": "z3"}
    return ", ".join(f"{shown} {known[name]}" for name, shown in names.items() if name in known)


def _heading(name: str, allocations: bool, variants: bool) -> str:
    kinds = [word for word, there in (("allocations up to isomorphism", allocations), ("variants", variants)) if there]
    return f"{name}: {' and '.join(kinds)}" if kinds else name


def _single(found: Sequence[Answered]) -> str:
    topology = found[0].task.topology
    rows = [(_name(a.task), figures(a.entry), _state(a), _source(a, topology)) for a in found]
    head = f"## {topology.name}\n\n{topology.ranks} ranks, 1 unit = {show(topology.unit_bandwidth())} GB/s.\n"
    return f"{head}\n{_table(('collective', 'steps: rounds per chunk', 'state', 'entry'), rows)}"


def _matrix(found: Sequence[Answered], heading: str) -> str:
    columns = list(dict.fromkeys(_name(a.task) for a in found))
    machines: dict[int, dict[str, Answered]] = {}
    for a in found:
        machines.setdefault(id(a.task.topology), {})[_name(a.task)] = a
    rows = []
    for cells in machines.values():
        topology = next(iter(cells.values())).task.topology
        rows.append(
            (_variant(topology), str(topology.ranks), *(figures(cells[c].entry) if c in cells else "" for c in columns))
        )
    unit = show(found[0].task.topology.unit_bandwidth())
    return f"## {heading}\n\n1 unit = {unit} GB/s.\n\n{_table(('machine', 'ranks', *columns), rows)}"


def _variant(topology: Topology) -> str:
    """What tells a variant apart: its changes, or the whole name."""
    _, dashes, changes = topology.name.partition(" --")
    return changes.removeprefix("ranks ") if dashes else topology.name


def _name(task: Task) -> str:
    return task.name + (f" from {','.join(map(str, task.roots))}" if any(task.roots) else "")


def figures(entry: Told | None) -> str:
    """``2: 3/2, 3: 7/6``: steps and rounds per chunk, or the interval in which they lie."""
    if entry is None:
        return MISSING
    if entry.row.state == INFEASIBLE:
        return f"no schedule exists: {entry.row.reason}"
    if entry.bound is not None:
        return f"≥ {show(entry.bound)}; " + ", ".join(f"{steps}: {show(rate)}" for steps, rate in entry.reached)
    return ", ".join(_intervals(entry)) or ("nothing to do" if entry.complete else entry.row.reason)


def _intervals(found: Told) -> Iterable[str]:
    for steps, low, high in found.rows:
        yield f"{steps}: " + (
            f"≥ {show(low)}" if high is None else show(low) if low == high else f"{show(low)} to {show(high)}"
        )


def _state(a: Answered) -> str:
    if a.entry is None:
        return MISSING
    if a.entry.row.state == DONE and a.entry.complete:
        return "complete" if a.entry.max_steps is None else f"complete to {a.entry.max_steps} steps"
    return f"open: {a.entry.row.reason}" if a.entry.row.state == OPEN else a.entry.row.state


def _source(a: Answered, topology: Topology) -> str:
    if a.entry is None:
        return ""
    return f"`{a.entry.row.id}`" + (f" of {a.entry.row.topology}" if a.entry.row.topology != topology.name else "")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
