"""The job file of a catalog: machines × collectives, as tasks.

    topologies:
      - dgx1                                                     # a name of the grammar in docs/topologies.md
      - {name: dgx1, allocations: all, collectives: [allgather]} # up to isomorphism; or sizes: [3, 4]
      - {file: dump.xml, degraded: all}                          # the machine, and a variant without each of its links
      - {name: dgx1, degraded: [0-3, 0:1/2]}                     # the machine, one without a link, one with a slow rank
    collectives: [allgather, {name: broadcast, roots: all}, {file: halo.yaml}]
    options: {max-steps: 8, max-chunks: 64, time-limit: 30s, memory: 4GB, seed: 0, deterministic: false}

Paths of files are relative to the job file. `collectives` and `options` of a topology replace the general ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from synth import topologies
from synth.catalog.jobs.task import Task
from synth.encodings.engine import Options
from synth.errors import FormatError, SynthError
from synth.model.collective import COLLECTIVES, Collective, canonical_name, collective
from synth.model.documents import collective_files
from synth.model.documents.file_reader import Fields, parse_yaml
from synth.model.documents.text_file import text_of
from synth.model.rational import duration, size_bytes
from synth.model.topology import Topology
from synth.pareto.synthesize import engine_by_ranks
from synth.topologies import importers, modify

MAX_BYTES = 1 << 20  # bytes of a job file
MOST_ITEMS = 10_000  # of a list in it: a limit on the time to read a malformed one
MOST_TASKS = 100_000  # tasks of one job; a larger product of topologies and collectives is refused
MOST_SECONDS = 365 * 86_400.0  # seconds: no time limit is longer than a year
INTEGERS = {"max-steps": 1, "max-chunks": 1, "seed": 0}  # options that are whole numbers, and the least of each


class JobFields(Fields):
    """A reader of checked values from a job file; every error names the file and the key."""

    def items(self, value: Any, place: str) -> Iterator[tuple[Any, str]]:
        """Yield the items of a list, each with its place; a single value is a list of one."""
        if not isinstance(value, list):
            value = [value]
        for i, item in enumerate(self.sequence(value, place, MOST_ITEMS)):
            yield item, f"{place}[{i}]"


def tasks(path: Path, logs: Path, time_limit: float | None = None) -> list[Task]:
    """Return every task of the job in a YAML file, in its order; the logs of the sweeps go to the folder `logs`.

    `time_limit` (wall seconds) replaces the limit of every task. Raises FormatError with the file and the key,
    also for a rank, a link or a machine that does not exist.
    """
    read = JobFields(str(path))
    doc = parse_yaml(text_of(path, MAX_BYTES), str(path))
    doc = read.mapping(doc, None, ("topologies", "collectives", "options"), ("topologies",))
    result: list[Task] = []
    for row, place in read.items(doc["topologies"], "topologies"):
        if isinstance(row, str):
            row = {"name": row}
        row = read.mapping(row, place, ("name", "file", "allocations", "degraded", "collectives", "options"))
        # collectives and options are the machine's own, or those of the whole job
        wanted, given = [], "collectives"
        if row.get("collectives") is not None:
            wanted, given = row["collectives"], f"{place}.collectives"
        elif doc.get("collectives") is not None:
            wanted = doc["collectives"]
        if not wanted:
            read.fail("has no collective; add the key collectives, here or for the whole job", place)
        if row.get("options") is not None:
            options = _options(read, row["options"], f"{place}.options")
        else:
            options = _options(read, doc.get("options") or {}, "options")
        if time_limit is not None:
            options = replace(options, time_limit=time_limit)
        for machine in _machines(read, row, place, path.parent):
            network = machine.network()  # shared by all tasks of the machine
            for item, at in read.items(wanted, given):
                for task in _collectives(read, item, at, path.parent, machine.ranks):
                    if engine_by_ranks("auto", machine, task) == "flow":
                        read.fail(f"{machine.ranks} ranks are too many for a catalog; use `synth pareto -o`", place)
                    result.append(Task(machine, network, task, options, logs))
            if len(result) > MOST_TASKS:
                read.fail(f"makes more than {MOST_TASKS} tasks; split the job", place)
    if not result:
        read.fail("names no topology", "topologies")
    return result


def _machines(read: JobFields, row: dict[str, Any], place: str, folder: Path) -> Iterator[Topology]:
    """Yield the machine of one line or its allocations, then its variants."""
    from synth.scale.baselines import allocations

    if (row.get("name") is None) == (row.get("file") is None):
        read.fail("give a name or a file, one of them", place)
    at = place
    try:
        if row.get("file") is None:
            base = topologies.topology(read.string(row["name"], place))
        else:
            base = importers.load(folder / read.string(row["file"], place, 1000))

        # the machine itself, or one allocation of each class
        at, chosen = f"{place}.allocations", row.get("allocations")
        if chosen is None:
            yield base
        else:
            sizes = None
            if chosen != "all":
                sizes = [read.integer(size, where, 2, base.ranks) for size, where in read.items(chosen, at)]
            for allocation in allocations.allocation_classes(base.network(), sizes):
                yield modify.apply(base, ranks=allocation.ranks)

        # variants, by changes that are given or without each link
        changes = row.get("degraded")
        if changes == "all":
            names = {base.ranks + i: name for i, name in enumerate(base.switches)}
            pairs = sorted({(min(link.src, link.dst), max(link.src, link.dst)) for link in base.links})
            changes = [f"{names.get(src, src)}-{names.get(dst, dst)}" for src, dst in pairs]
        for change, at in read.items(changes or [], f"{place}.degraded"):
            text = read.string(change, at)
            yield modify.apply(base, degrade=[text]) if ":" in text else modify.apply(base, without=[text])
    except SynthError as error:
        if isinstance(error, FormatError) and error.file == read.file:
            raise
        read.fail(str(error), at)


def _collectives(read: JobFields, row: Any, place: str, folder: Path, ranks: int) -> Iterator[Collective]:
    """Yield the collective of one item over so many ranks; with `roots: all` that of each root."""
    if isinstance(row, str):
        row = {"name": row}
    row = read.mapping(row, place, ("name", "file", "roots"))
    try:
        if row.get("file") is not None:
            yield collective_files.load(folder / read.string(row["file"], place, 1000), ranks)
            return
        name = canonical_name(read.string(row.get("name"), place))
        roots = row.get("roots", [])
        if roots == "all":
            if name.startswith("multi-") or "root" not in COLLECTIVES.get(name, ("", ("root",)))[1]:
                read.fail(f"{name} has no single root; remove roots: all", place)
            for root in range(ranks):
                yield collective(name, ranks, (root,))
            return
        listed = [read.integer(root, where, 0, ranks - 1) for root, where in read.items(roots, f"{place}.roots")]
        yield collective(name, ranks, tuple(listed))
    except SynthError as error:
        if isinstance(error, FormatError) and error.file == read.file:
            raise
        read.fail(str(error), place)


def _options(read: JobFields, value: Any, place: str) -> Options:
    """Return the options of the sweep of each task, which runs in one process at a time."""
    options = {}
    row = read.mapping(value, place, (*INTEGERS, "time-limit", "memory", "deterministic"))
    for key, setting in row.items():
        at = f"{place}.{key}"
        try:
            if key in INTEGERS:
                options[key] = read.integer(setting, at, INTEGERS[key], 10**9 - 1)
            elif key == "deterministic":
                options[key] = read.boolean(setting, at)
            elif key == "memory":
                options[key] = size_bytes(read.string(setting, at))
            else:
                options[key] = min(duration(read.string(setting, at)), MOST_SECONDS)
        except ValueError as error:
            read.fail(str(error), at)
    return Options(jobs=1, **{key.replace("-", "_"): setting for key, setting in options.items()})
