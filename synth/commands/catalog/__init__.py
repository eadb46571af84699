"""The commands of `synth catalog`, one a file; and the catalog from notebooks.

`synth.api.catalog.open("catalog.db")` is a `Store`, `build_catalog` fills one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from synth.commands.inputs import workers

if TYPE_CHECKING:
    from synth.catalog.jobs.run import Item, Progress
    from synth.catalog.store import Store


def open(path: str | Path = "catalog.db", *, create: bool = False) -> Store:
    """The catalog at `path`, a context manager; with `create` it can be written, and is made where there is none.

    Raises FormatError, SynthError."""
    from synth.catalog.store import Store

    return Store.open(path, create=create)


def build_catalog(
    fleet: str | Path,
    db: str | Path = "catalog.db",
    *,
    jobs: int | None = None,
    dask: str | None = None,
    time_limit: float | None = None,
    retry_open: bool = False,
    dry: bool = False,
    listen: Callable[[Progress], None] = lambda progress: None,
) -> list[Item]:
    """Answer every task of the job file `fleet` in the catalog `db`, made where there is none; what it answers is
    skipped. Return the tasks with their answers.

    Tasks run in `jobs` processes of this machine, or on the Dask scheduler at the address `dask`. `time_limit`, wall
    seconds, replaces that of every task. Open entries are continued with `retry_open`, or a longer time limit. With
    `dry` nothing is run. Raises FormatError (the job file, with its line), UsageError, SynthError;
    `synth.catalog.jobs.run.Interrupted` on Ctrl-C, after which the same call continues.
    """
    from synth.catalog.jobs import job_file, runners
    from synth.catalog.jobs.run import items_of, run

    db = Path(db)
    tasks = job_file.tasks(Path(fleet), db.absolute().with_name(db.name + ".tasks"), time_limit)
    if dry and not db.exists():
        return items_of(tasks, None)
    if dry:
        with open(db) as store:
            return items_of(tasks, store, retry_open)

    # The runner comes before the file: a scheduler that does not answer leaves no empty catalog behind.
    runner = runners.Dask(dask) if dask else runners.Processes(workers(jobs))
    with closing(runner), open(db, create=True) as store:
        items = items_of(tasks, store, retry_open)
        if not all(item.state for item in items):
            run(items, store, runner, listen)
        return items
