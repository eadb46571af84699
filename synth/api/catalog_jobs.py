"""The batch job of a catalog from notebooks: what is to be done, and doing it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from synth.api.inputs import workers
from synth.errors import UsageError

if TYPE_CHECKING:
    from synth.catalog.jobs.job_file import JobFile
    from synth.catalog.jobs.queue import Item
    from synth.catalog.jobs.run import Progress, Summary
    from synth.catalog.jobs.runners import Runner
    from synth.catalog.jobs.task import Task


def build_catalog(
    fleet: str | Path,
    db: str | Path = "catalog.db",
    *,
    jobs: int | None = None,
    inline: bool = False,
    dask: str | None = None,
    slurm: bool = False,
    time_limit: float | None = None,
    budget: float | None = None,
    retry_open: bool = False,
    retry_failed: bool = False,
    listen: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Answer every task of the job file `fleet` in the catalog `db`, made where there is none; what it answers is
    skipped.

    Tasks run in `jobs` processes of this machine, in this process (`inline`), on the Dask scheduler at the address
    `dask` ("local": one of our own), or in SLURM jobs as the job file says. `time_limit`, wall seconds, replaces that
    of every task, `budget` that of the whole job. Raises FormatError (the job file, with its line), UsageError,
    SynthError;
    `synth.catalog.jobs.run.Interrupted` on Ctrl-C, after which the same call continues.
    """
    from synth.catalog.jobs.queue import items
    from synth.catalog.jobs.run import JobRun
    from synth.catalog.store.store import Store

    if inline + bool(dask) + slurm > 1:
        raise UsageError("--inline, --dask and --slurm exclude each other; give one")
    job, path = _fleet(fleet), Path(db)
    tasks = _tasks(job, path, time_limit)
    with Store.open(path, create=True) as store:
        listed = items(tasks, store, retry_open=retry_open, retry_failed=retry_failed)
        seconds = job.seconds if budget is None else budget
        run = JobRun(
            listed, store, lambda: _runner(job, workers(jobs), inline, dask, slurm), seconds, job.tasks, listen
        )
        return run.run()


def plan_catalog(
    fleet: str | Path, db: str | Path = "catalog.db", *, time_limit: float | None = None, retry_open: bool = False,
    retry_failed: bool = False,
) -> list[Item]:  # fmt: skip
    """Return the tasks of a job in the order of `build_catalog`, which is not started.

    Each has its state (whether the catalog answers it) and an estimate of its CPU seconds.
    """
    from synth.catalog.jobs.queue import Queue, items
    from synth.catalog.store.store import Store

    job, path = _fleet(fleet), Path(db)
    tasks = _tasks(job, path, time_limit)
    # no catalog is made where nothing is to be solved
    with (
        TemporaryDirectory() as empty,
        Store.open(path if path.exists() else Path(empty) / "none.db", create=not path.exists()) as store,
    ):
        listed = items(tasks, store, retry_open=retry_open, retry_failed=retry_failed)
    return [item for item in listed if item.fate != "todo"] + Queue(listed).waiting


def catalog_table(fleet: str | Path, db: str | Path = "catalog.db", *, title: str = "Results") -> str:
    """Return the answers of the catalog to a job, as Markdown. Raises FormatError, SynthError."""
    from synth.catalog.jobs.table import markdown
    from synth.catalog.store.store import Store

    with Store.open(db) as store:
        return markdown(_fleet(fleet), store, title)


def _fleet(fleet: str | Path) -> JobFile:
    from synth.catalog.jobs.job_file_reader import load

    return load(Path(fleet))


def _tasks(fleet: JobFile, db: Path, time_limit: float | None) -> list[Task]:
    """The tasks of a job; their sweeps keep their logs in a folder beside the catalog."""
    from synth.catalog.jobs.plan import tasks

    return tasks(fleet, db.absolute().with_name(db.name + ".tasks"), time_limit)


def _runner(fleet: JobFile, jobs: int, inline: bool, dask: str | None, slurm: bool) -> Runner:
    from synth.catalog.jobs.task import run

    if inline:
        from synth.catalog.jobs.runners.inline import Inline

        return Inline(run)
    if dask or slurm:
        from synth.catalog.jobs.runners import cluster

        return cluster.slurm(run, fleet.slurm, jobs) if slurm else cluster.connect(run, str(dask), jobs)
    from synth.catalog.jobs.runners.processes import Processes

    return Processes(run, jobs)
