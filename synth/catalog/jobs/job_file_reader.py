"""Reader of the job file of a catalog: every value is checked, and an error names the file, the line and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from synth.catalog.jobs.job_file import (
    CollectiveRequest,
    JobFile,
    LocatedFields,
    MachineRequest,
    Sizes,
    TaskOptions,
    TopologyChange,
)
from synth.model.documents.text_file import text_of
from synth.model.rational import duration, size_bytes
from synth.topologies.file_reader import Plain, parse_yaml

MAX_BYTES = 1 << 20  # bytes of a job file
# The greatest numbers of items in the lists of a job file: they bound the time to read a malformed one.
MAX_TOPOLOGIES, MAX_VARIANTS, MAX_COLLECTIVES, MAX_OPTIONS = 2_000, 10_000, 200, 20
MAX_RANKS = 1 << 20  # the greatest rank and the greatest number of ranks
MOST_SECONDS = 365 * 86_400.0  # seconds: no time limit is longer than a year
LEAST_MEMORY = 64 << 20  # bytes: the least memory limit of a task
KEYS = ("topologies", "collectives", "options", "budget", "slurm")
TOPOLOGY_KEYS = ("name", "file", "allocations", "degraded", "collectives", "options")
CHANGE_KEYS = ("without", "degrade", "ranks")
COLLECTIVE_KEYS = ("name", "file", "roots", "sizes")
OPTION_KEYS = ("max-steps", "max-chunks", "time-limit", "memory", "seed", "engine", "deterministic")
# The arguments of dask-jobqueue's SLURMCluster that a job file may set; texts, but for those listed below.
SLURM_KEYS = (
    "queue",
    "account",
    "walltime",
    "cores",
    "processes",
    "memory",
    "job_name",
    "interface",
    "local_directory",
    "log_directory",
    "python",
    "job_extra_directives",
    "job_script_prologue",
    "worker_extra_args",
)
SLURM_NUMBERS = ("cores", "processes")
SLURM_LISTS = ("job_extra_directives", "job_script_prologue", "worker_extra_args")
ENGINES = ("auto", "exact", "flow")


def load(path: Path) -> JobFile:
    """Return the job in a YAML file. Raises FormatError with the file, the line and the key."""
    lines: dict[str, int] = {}
    doc = parse_yaml(text_of(path, MAX_BYTES), str(path), lines)
    read = LocatedFields(str(path), lines)
    doc = read.mapping(doc, None, KEYS, ("topologies",))
    folder = path.parent
    collectives = _collectives(read, doc.get("collectives"), "collectives", folder) or ()
    rows = read.sequence(doc["topologies"], "topologies", MAX_TOPOLOGIES)
    machines = tuple(_machine(read, row, f"topologies[{i}]", folder) for i, row in enumerate(rows))
    if not machines:
        read.fail("names no topology", "topologies")
    for machine in machines:
        if not (collectives if machine.collectives is None else machine.collectives):
            read.fail("has no collective; add the key collectives, here or for the whole job", machine.place)
    budget = read.mapping(doc.get("budget") or {}, "budget", ("time", "tasks"))
    seconds = _duration(read, budget["time"], "budget.time") if budget.get("time") is not None else None
    tasks = read.integer(budget["tasks"], "budget.tasks", 1, 10**9 - 1) if budget.get("tasks") is not None else None
    options = _options(read, doc.get("options"), "options") or (TaskOptions(),)
    return JobFile(machines, collectives, options, seconds, tasks, _slurm(read, doc.get("slurm") or {}), read)


def _machine(read: LocatedFields, value: Any, place: str, folder: Path) -> MachineRequest:
    if isinstance(value, str):
        return MachineRequest(_name(read, value, place, folder), place=place)
    row = read.mapping(value, place, TOPOLOGY_KEYS)
    name, file = _name_or_file(read, row, place, folder)
    allocations: tuple[int, ...] | Literal["all"] | None = None
    value = row.get("allocations")
    if isinstance(value, list):
        sizes = read.sequence(value, f"{place}.allocations", 4096)
        allocations = tuple(read.integer(x, f"{place}.allocations[{i}]", 2, MAX_RANKS) for i, x in enumerate(sizes))
    elif value is not None:
        allocations = _all(read, value, f"{place}.allocations", "sizes such as [3, 4]")
    degraded: tuple[TopologyChange, ...] | Literal["all"] = ()
    value = row.get("degraded")
    if isinstance(value, list):
        changes = read.sequence(value, f"{place}.degraded", MAX_VARIANTS)
        degraded = tuple(_change(read, x, f"{place}.degraded[{i}]") for i, x in enumerate(changes))
    elif value is not None:
        degraded = _all(read, value, f"{place}.degraded", "a list of changes such as [0-3]")
    collectives = _collectives(read, row.get("collectives"), f"{place}.collectives", folder)
    return MachineRequest(
        name, file, allocations, degraded, collectives, _options(read, row.get("options"), f"{place}.options"), place
    )


def _name_or_file(read: LocatedFields, row: dict[str, Any], place: str, folder: Path) -> tuple[str, Path | None]:
    """Return a name and None, or the text and the path of a file; exactly one of the keys name and file is present."""
    if (row.get("name") is None) == (row.get("file") is None):
        read.fail("give a name or a file" if row.get("name") is None else "name and file exclude each other", place)
    if row.get("name") is not None:
        return _name(read, row["name"], f"{place}.name", folder), None
    file = read.string(row["file"], f"{place}.file", 1000)
    return file, folder / file


def _name(read: LocatedFields, value: Any, place: str, folder: Path) -> str:
    name = read.string(value, place)
    if Path(name).suffix and (folder / name).is_file():
        read.fail(f"{name} is a file: write {{file: {name}}}", place)
    return name


def _all(read: LocatedFields, value: Any, place: str, otherwise: str) -> Literal["all"]:
    if value != "all":
        read.fail(f"expected all, or {otherwise}, found {str(value)[:40]!r}", place)
    return "all"


def _change(read: LocatedFields, value: Any, place: str) -> TopologyChange:
    if isinstance(value, str):
        return TopologyChange(without=(read.string(value, place),), place=place)
    row = read.mapping(value, place, CHANGE_KEYS)
    if not row:
        read.fail(f"changes nothing; the keys here are {', '.join(CHANGE_KEYS)}", place)
    lists = {}
    for key in ("without", "degrade"):
        texts = row.get(key)
        if not isinstance(texts, list):
            texts = [] if texts is None else [texts]
        texts = read.sequence(texts, f"{place}.{key}", MAX_VARIANTS)
        lists[key] = tuple(read.string(x, f"{place}.{key}[{i}]") for i, x in enumerate(texts))
    ranks = row.get("ranks")
    if isinstance(ranks, list):
        ranks = ",".join(read.string(x, f"{place}.ranks") for x in ranks)
    if ranks is not None:
        ranks = read.string(ranks, f"{place}.ranks", 10_000)
    return TopologyChange(lists["without"], lists["degrade"], ranks, place)


def _collectives(read: LocatedFields, value: Any, place: str, folder: Path) -> tuple[CollectiveRequest, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = [value]
    rows = read.sequence(value, place, MAX_COLLECTIVES)
    return tuple(_collective(read, row, f"{place}[{i}]", folder) for i, row in enumerate(rows))


def _collective(read: LocatedFields, value: Any, place: str, folder: Path) -> CollectiveRequest:
    if isinstance(value, str):
        return CollectiveRequest(_collective_name(read, value, place), place=place)
    row = read.mapping(value, place, COLLECTIVE_KEYS)
    name, file = _name_or_file(read, row, place, folder)
    roots: tuple[int, ...] | Literal["all"] = ()
    value = row.get("roots")
    if isinstance(value, list):
        ranks = read.sequence(value, f"{place}.roots", 4096)
        roots = tuple(read.integer(x, f"{place}.roots[{i}]", 0, MAX_RANKS) for i, x in enumerate(ranks))
    elif value is not None:
        roots = "all" if value == "all" else (read.integer(value, f"{place}.roots", 0, MAX_RANKS),)
    sizes = None if row.get("sizes") is None else _sizes(read, row["sizes"], f"{place}.sizes")
    if file is not None and (value is not None or sizes is not None):
        read.fail("the file defines the whole collective; roots and sizes are for collectives by name", place)
    return CollectiveRequest(name if file else _collective_name(read, name, f"{place}.name"), file, roots, sizes, place)


def _collective_name(read: LocatedFields, name: Any, place: str) -> str:
    """Return the full name of a collective that is given by its name or an alias, in any case."""
    from synth.model.collective import COLLECTIVES, canonical_name

    key = canonical_name(read.string(name, place))
    return read.choice(key, "collective", COLLECTIVES, place)


def _sizes(read: LocatedFields, value: Any, place: str) -> Sizes:
    rows = read.sequence(value, place, 4096)
    if rows and isinstance(rows[0], list):
        return tuple(_chunk_counts(read, row, f"{place}[{i}]") for i, row in enumerate(rows))
    return _chunk_counts(read, rows, place)


def _chunk_counts(read: LocatedFields, value: Any, place: str) -> tuple[int, ...]:
    counts = tuple(read.integer(x, f"{place}[{i}]", 0, 4096) for i, x in enumerate(read.sequence(value, place, 4096)))
    if not counts:
        read.fail("names no chunk counts", place)
    return counts


def _options(read: LocatedFields, value: Any, place: str) -> tuple[TaskOptions, ...] | None:
    if value is None:
        return None
    if isinstance(value, list):
        rows = read.sequence(value, place, MAX_OPTIONS)
        return tuple(_task_options(read, row, f"{place}[{i}]") for i, row in enumerate(rows)) or None
    return (_task_options(read, value, place),)


def _task_options(read: LocatedFields, value: Any, place: str) -> TaskOptions:
    row, default = read.mapping(value, place, OPTION_KEYS), TaskOptions()

    def integer(key: str, low: int, default: int | None) -> int | None:
        return default if row.get(key) is None else read.integer(row[key], f"{place}.{key}", low, 10**9 - 1)

    memory = default.memory
    if row.get("memory") is not None:
        memory = size(read, row["memory"], f"{place}.memory")
        if memory < LEAST_MEMORY:
            read.fail(f"expected 64MB or more, found {row['memory']}", f"{place}.memory")
    limit = None if row.get("time-limit") is None else _duration(read, row["time-limit"], f"{place}.time-limit")
    engine = default.engine
    if row.get("engine") is not None:
        engine = read.choice(row["engine"], "engine", ENGINES, f"{place}.engine")
    deterministic = row.get("deterministic") is not None and read.boolean(
        row["deterministic"], f"{place}.deterministic"
    )
    return TaskOptions(
        integer("max-steps", 1, None),
        integer("max-chunks", 1, None),
        engine,
        limit,
        memory,
        integer("seed", 0, 0) or 0,
        deterministic,
    )


def _duration(read: LocatedFields, value: Any, place: str) -> float:
    try:
        seconds = duration(read.string(value, place))
    except ValueError as error:
        read.fail(str(error), place)
    if seconds > MOST_SECONDS:
        read.fail(f"{value} is more than a year", place)
    return seconds


def size(read: LocatedFields, value: Any, place: str) -> int:
    """Return the number of bytes that a text such as 4GB stands for."""
    try:
        return size_bytes(read.string(value, place))
    except ValueError as error:
        read.fail(str(error), place)


def _slurm(read: LocatedFields, value: Any) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, setting in read.mapping(value, "slurm", SLURM_KEYS).items():
        place = f"slurm.{key}"
        if setting is None:
            continue
        if key in SLURM_NUMBERS:
            options[key] = read.integer(setting, place, 1, 4096)
        elif key in SLURM_LISTS:
            texts = read.sequence(setting, place, 200)
            options[key] = [read.string(x, f"{place}[{i}]", 1000) for i, x in enumerate(texts)]
        else:
            options[key] = read.string(setting, place, 1000)
    if "memory" in options:
        size(read, Plain(options["memory"]), "slurm.memory")
    return options
