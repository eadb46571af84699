"""Plan of a job: the tasks of a job file, topologies × collectives × options; each allocation and variant is a
topology."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from synth.catalog.jobs.job_file import CollectiveRequest, JobFile, MachineRequest, TopologyChange
from synth.catalog.jobs.task import LISTED, Task
from synth.errors import FormatError, SynthError
from synth.model.collective import COLLECTIVES, Collective
from synth.model.collective import collective as named_collective
from synth.model.topology import Topology

MOST_TASKS = 100_000  # tasks of one job; a larger product of topologies, collectives and options is refused


def tasks(fleet: JobFile, logs: Path | None = None, time_limit: float | None = None) -> list[Task]:
    """Return every task of the job in the order of the file; the logs of the sweeps go to the folder `logs`.

    `time_limit` (wall seconds) replaces the limit of every task. Raises FormatError, with the line, where the job file
    names a rank, a link or a machine that does not exist.
    """
    result: list[Task] = []
    for machine in fleet.machines:
        for task in machine_tasks(fleet, machine, logs, time_limit):
            result.append(task)
            if len(result) > MOST_TASKS:
                fleet.read.fail(f"makes more than {MOST_TASKS} tasks; split the job", machine.place)
    return result


def machine_tasks(
    fleet: JobFile, machine: MachineRequest, logs: Path | None = None, time_limit: float | None = None
) -> Iterator[Task]:
    """Yield the tasks of one line of the job file: topology by topology, with every collective and set of options."""
    wanted = fleet.collectives if machine.collectives is None else machine.collectives
    options = machine.options or fleet.options
    if time_limit is not None:
        options = tuple(replace(choice, time_limit=time_limit) for choice in options)
    for topology in topologies(fleet, machine):
        network = None
        for (collective, root), place in _collectives(fleet, topology, wanted):
            for choice in options:
                task = Task(topology, collective, root, choice, logs)
                try:
                    if task.engine == "exact":
                        network = task.__dict__["network"] = (
                            network or task.network
                        )  # shared by all tasks of the topology
                except SynthError as error:
                    fleet.read.reraise(error, place)
                yield task


def topologies(fleet: JobFile, machine: MachineRequest) -> Iterator[Topology]:
    """Yield the machine or its allocations, then its variants."""
    base = _base(fleet, machine)
    if machine.allocations is None:
        yield base
    else:
        yield from _allocations(fleet, machine, base)
    changes = _each_link(base) if machine.degraded == "all" else machine.degraded
    for change in changes:
        yield _changed(fleet, base, change, change.place or f"{machine.place}.degraded")


def _base(fleet: JobFile, machine: MachineRequest) -> Topology:
    from synth import topologies as built
    from synth.topologies import importers

    if machine.file is None:
        try:
            return built.topology(machine.name)
        except SynthError as error:
            fleet.read.reraise(error, f"{machine.place}.name")
    try:
        return importers.load(machine.file)
    except FormatError as error:
        fleet.read.reraise(error, f"{machine.place}.file")


def _allocations(fleet: JobFile, machine: MachineRequest, base: Topology) -> Iterator[Topology]:
    from synth.scale.baselines import allocations
    from synth.topologies import modify

    sizes = None if machine.allocations == "all" else machine.allocations
    try:
        for allocation in allocations.allocation_classes(base.network(), sizes):
            yield modify.apply(base, ranks=allocation.ranks)
    except SynthError as error:
        fleet.read.reraise(error, f"{machine.place}.allocations")


def _each_link(base: Topology) -> Iterator[TopologyChange]:
    """Yield the removal of each pair of ranks or switches that is linked, in both directions."""
    names = {base.ranks + i: name for i, name in enumerate(base.switches)}
    pairs = sorted({(min(k.src, k.dst), max(k.src, k.dst)) for k in base.links})
    for pair in pairs:
        yield TopologyChange(without=("-".join(str(names.get(end, end)) for end in pair),))


def _changed(fleet: JobFile, base: Topology, change: TopologyChange, place: str) -> Topology:
    from synth.topologies import modify

    try:
        return modify.apply(base, ranks=change.ranks, without=change.without, degrade=change.degrade)
    except SynthError as error:
        fleet.read.reraise(error, place)


def _collectives(
    fleet: JobFile, topology: Topology, wanted: tuple[CollectiveRequest, ...]
) -> Iterator[tuple[tuple[Collective | str, int], str]]:
    """Yield the collectives over the ranks of `topology`, each with its root and its place in the job file."""
    n = topology.ranks
    for row in wanted:
        rooted = row.file is None and "root" in COLLECTIVES[row.name][1]
        if row.roots == "all" and not (rooted and not row.name.startswith("multi-")):
            fleet.read.fail(f"{row.name} has no single root; remove roots: all", row.place)
        try:
            if row.file is not None:
                from synth.model.collective_files import load

                yield (load(row.file, n), 0), row.place
            elif row.roots == "all":
                for root in range(n):
                    yield _named(row, n, (root,)), row.place
            else:
                yield _named(row, n, row.roots), row.place  # type: ignore[arg-type]
        except SynthError as error:
            fleet.read.reraise(error, row.place)


def _named(row: CollectiveRequest, ranks: int, roots: tuple[int, ...]) -> tuple[Collective | str, int]:
    if ranks > LISTED and row.sizes is None and len(roots) <= 1:
        named_collective(row.name, ranks if roots else 2, roots)  # raises UsageError for a root that does not exist
        return row.name, roots[0] if roots else 0
    return named_collective(row.name, ranks, roots, _repeated(row, ranks)), 0


def _repeated(row: CollectiveRequest, ranks: int) -> list | None:
    """Return the chunk counts, repeated over the ranks where there are fewer of them."""
    sizes = row.sizes
    if sizes is None:
        return None
    if row.name.startswith("alltoall"):
        table = []
        for source in range(ranks):
            row_sizes = sizes[source % len(sizes)]
            counts = row_sizes if isinstance(row_sizes, tuple) else sizes
            table.append([counts[target % len(counts)] for target in range(ranks)])
        return table
    return [sizes[r % len(sizes)] for r in range(ranks)]
