"""Reading the job file of a catalog: nothing in it is believed, and what is wrong is told with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from synth.catalog.jobs.job_file import Change, Fleet, Lined, Machine, Sizes, TaskOptions, Wanted
from synth.model.documents.text_file import text_of
from synth.model.rational import duration, size_bytes
from synth.topologies.file_reader import Plain, parse_yaml

MAX_BYTES = 1 << 20
MAX_TOPOLOGIES, MAX_VARIANTS, MAX_COLLECTIVES, MAX_OPTIONS = 2_000, 10_000, 200, 20
MAX_RANKS = 1 << 20
MOST_SECONDS = 365 * 86_400.0
LEAST_MEMORY = 64 << 20
KEYS = ("topologies", "collectives", "options", "budget", "slurm")
TOPOLOGY_KEYS = ("name", "file", "allocations", "degraded", "collectives", "options")
CHANGE_KEYS = ("without", "degrade", "ranks")
COLLECTIVE_KEYS = ("name", "file", "roots", "sizes")
OPTION_KEYS = ("max-steps", "max-chunks", "time-limit", "memory", "seed", "engine", "deterministic")
# What dask-jobqueue's SLURMCluster takes, and what a job file may say of it; texts unless noted.
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
SLURM_NUMBERS, SLURM_LISTS = (
    ("cores", "processes"),
    ("job_extra_directives", "job_script_prologue", "worker_extra_args"),
)
ENGINES = ("auto", "exact", "flow")


def load(path: Path) -> Fleet:
    """The job in a YAML file. Raises FormatError with the file, the line and the key."""
    lines: dict[str, int] = {}
    doc = parse_yaml(text_of(path, MAX_BYTES), str(path), lines)
    read = Lined(str(path), lines)
    doc = read.mapping(doc, None, KEYS, ("topologies",))
    where = path.parent
    collectives = _collectives(read, doc.get("collectives"), "collectives", where) or ()
    rows = read.sequence(doc["topologies"], "topologies", MAX_TOPOLOGIES)
    machines = tuple(_machine(read, row, f"topologies[{i}]", where) for i, row in enumerate(rows))
    if not machines:
        read.fail("names no topology", "topologies")
    lacking = next((m for m in machines if not (collectives if m.collectives is None else m.collectives)), None)
    if lacking is not None:
        read.fail("has no collective; add the key collectives, here or for the whole job", lacking.place)
    budget = read.mapping(doc.get("budget") or {}, "budget", ("time", "tasks"))
    seconds = _duration(read, budget["time"], "budget.time") if budget.get("time") is not None else None
    tasks = read.integer(budget["tasks"], "budget.tasks", 1, 10**9 - 1) if budget.get("tasks") is not None else None
    options = _options(read, doc.get("options"), "options") or (TaskOptions(),)
    return Fleet(machines, collectives, options, seconds, tasks, _slurm(read, doc.get("slurm") or {}), read)


def _machine(read: Lined, value: Any, place: str, where: Path) -> Machine:
    if isinstance(value, str):
        return Machine(read.string(value, place), place=place)
    row = read.mapping(value, place, TOPOLOGY_KEYS)
    name, file = _named(read, row, place, where)
    allocations: tuple[int, ...] | Literal["all"] | None = None
    given = row.get("allocations")
    if isinstance(given, list):
        given = read.sequence(given, f"{place}.allocations", 4096)
        allocations = tuple(read.integer(x, f"{place}.allocations[{i}]", 2, MAX_RANKS) for i, x in enumerate(given))
    elif given is not None:
        allocations = _all(read, given, f"{place}.allocations", "sizes such as [3, 4]")
    degraded: tuple[Change, ...] | Literal["all"] = ()
    given = row.get("degraded")
    if isinstance(given, list):
        changes = read.sequence(given, f"{place}.degraded", MAX_VARIANTS)
        degraded = tuple(_change(read, x, f"{place}.degraded[{i}]") for i, x in enumerate(changes))
    elif given is not None:
        degraded = _all(read, given, f"{place}.degraded", "a list of changes such as [0-3]")
    collectives = _collectives(read, row.get("collectives"), f"{place}.collectives", where)
    return Machine(
        name, file, allocations, degraded, collectives, _options(read, row.get("options"), f"{place}.options"), place
    )


def _named(read: Lined, row: dict[str, Any], place: str, where: Path) -> tuple[str, Path | None]:
    if (row.get("name") is None) == (row.get("file") is None):
        read.fail("give a name or a file" if row.get("name") is None else "name and file exclude each other", place)
    if row.get("name") is not None:
        return read.string(row["name"], f"{place}.name"), None
    file = read.string(row["file"], f"{place}.file", 1000)
    return file, where / file


def _all(read: Lined, value: Any, place: str, otherwise: str) -> Literal["all"]:
    if value != "all":
        read.fail(f"expected all, or {otherwise}, found {str(value)[:40]!r}", place)
    return "all"


def _change(read: Lined, value: Any, place: str) -> Change:
    if isinstance(value, str):
        return Change(without=(read.string(value, place),), place=place)
    row = read.mapping(value, place, CHANGE_KEYS)
    if not row:
        read.fail(f"changes nothing; the keys here are {', '.join(CHANGE_KEYS)}", place)
    lists = {}
    for key in ("without", "degrade"):
        given = row.get(key)
        texts = given if isinstance(given, list) else [] if given is None else [given]
        texts = read.sequence(texts, f"{place}.{key}", MAX_VARIANTS)
        lists[key] = tuple(read.string(x, f"{place}.{key}[{i}]") for i, x in enumerate(texts))
    given = row.get("ranks")
    ranks = ",".join(read.string(x, f"{place}.ranks") for x in given) if isinstance(given, list) else given
    return Change(
        lists["without"],
        lists["degrade"],
        None if ranks is None else read.string(ranks, f"{place}.ranks", 10_000),
        place,
    )


def _collectives(read: Lined, value: Any, place: str, where: Path) -> tuple[Wanted, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = [value]
    rows = read.sequence(value, place, MAX_COLLECTIVES)
    return tuple(_wanted(read, row, f"{place}[{i}]", where) for i, row in enumerate(rows))


def _wanted(read: Lined, value: Any, place: str, where: Path) -> Wanted:
    if isinstance(value, str):
        return Wanted(_known(read, value, place), place=place)
    row = read.mapping(value, place, COLLECTIVE_KEYS)
    name, file = _named(read, row, place, where)
    roots: tuple[int, ...] | Literal["all"] = ()
    given = row.get("roots")
    if isinstance(given, list):
        given = read.sequence(given, f"{place}.roots", 4096)
        roots = tuple(read.integer(x, f"{place}.roots[{i}]", 0, MAX_RANKS) for i, x in enumerate(given))
    elif given is not None:
        roots = "all" if given == "all" else (read.integer(given, f"{place}.roots", 0, MAX_RANKS),)
    sizes = None if row.get("sizes") is None else _sizes(read, row["sizes"], f"{place}.sizes")
    if file is not None and (given is not None or sizes is not None):
        read.fail("a file says all of its collective; roots and sizes are for names", place)
    return Wanted(name if file else _known(read, name, f"{place}.name"), file, roots, sizes, place)


def _known(read: Lined, name: Any, place: str) -> str:
    """The name of a collective, in its own spelling."""
    from synth.model.collective import ALIASES, COLLECTIVES

    key = read.string(name, place).lower()
    key = ALIASES.get(key, key)
    return read.choice(key, "collective", COLLECTIVES, place)


def _sizes(read: Lined, value: Any, place: str) -> Sizes:
    rows = read.sequence(value, place, 4096)
    if rows and isinstance(rows[0], list):
        return tuple(_row(read, row, f"{place}[{i}]") for i, row in enumerate(rows))
    return _row(read, rows, place)


def _row(read: Lined, value: Any, place: str) -> tuple[int, ...]:
    found = tuple(read.integer(x, f"{place}[{i}]", 0, 4096) for i, x in enumerate(read.sequence(value, place, 4096)))
    if not found:
        read.fail("names no chunk counts", place)
    return found


def _options(read: Lined, value: Any, place: str) -> tuple[TaskOptions, ...] | None:
    if value is None:
        return None
    if isinstance(value, list):
        rows = read.sequence(value, place, MAX_OPTIONS)
        return tuple(_one(read, row, f"{place}[{i}]") for i, row in enumerate(rows)) or None
    return (_one(read, value, place),)


def _one(read: Lined, value: Any, place: str) -> TaskOptions:
    row, default = read.mapping(value, place, OPTION_KEYS), TaskOptions()

    def whole(key: str, low: int, otherwise: int | None) -> int | None:
        return otherwise if row.get(key) is None else read.integer(row[key], f"{place}.{key}", low, 10**9 - 1)

    memory = default.memory
    if row.get("memory") is not None:
        memory = size(read, row["memory"], f"{place}.memory")
        if memory < LEAST_MEMORY:
            read.fail(f"expected 64MB or more, found {row['memory']}", f"{place}.memory")
    limit = None if row.get("time-limit") is None else _duration(read, row["time-limit"], f"{place}.time-limit")
    engine = (
        read.choice(row["engine"], "engine", ENGINES, f"{place}.engine")
        if row.get("engine") is not None
        else default.engine
    )
    ordered = row.get("deterministic") is not None and read.boolean(row["deterministic"], f"{place}.deterministic")
    return TaskOptions(
        whole("max-steps", 1, None),
        whole("max-chunks", 1, None),
        engine,
        limit,
        memory,
        whole("seed", 0, 0) or 0,
        ordered,
    )


def _duration(read: Lined, value: Any, place: str) -> float:
    try:
        found = duration(read.string(value, place))
    except ValueError as error:
        read.fail(str(error), place)
    if found > MOST_SECONDS:
        read.fail(f"{value} is more than a year", place)
    return found


def size(read: Lined, value: Any, place: str) -> int:
    """Bytes of a text such as 4GB."""
    try:
        return size_bytes(read.string(value, place))
    except ValueError as error:
        read.fail(str(error), place)


def _slurm(read: Lined, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, given in read.mapping(value, "slurm", SLURM_KEYS).items():
        place = f"slurm.{key}"
        if given is None:
            continue
        if key in SLURM_NUMBERS:
            found[key] = read.integer(given, place, 1, 4096)
        elif key in SLURM_LISTS:
            found[key] = [read.string(x, f"{place}[{i}]", 1000) for i, x in enumerate(read.sequence(given, place, 200))]
        else:
            found[key] = read.string(given, place, 1000)
    if "memory" in found:
        size(read, Plain(found["memory"]), "slurm.memory")
    return found
