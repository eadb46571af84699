"""`synth catalog build`: the batch job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from synth.commands.catalog import build_catalog
from synth.commands.catalog.group import Database
from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit, note
from synth.commands.framework.progress import job_progress
from synth.commands.framework.shared import FILE, Output, jobs_option, time_limit_option
from synth.commands.root import INTERRUPTED
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.catalog.jobs.run import Item
    from synth.view.frontier_text import Report

STATES = {
    "done": "complete, or all that was asked for",
    "open": "an interval is left",
    "infeasible": "proved to have no schedule",
    "failed": "crashed twice, or nothing could be said",
    "left": "not started",
}
SOURCES = {"solved": "solved now", "known": "known", "alike": "alike"}


@dataclass(frozen=True, kw_only=True)
class CatalogBuild(Output, Database):
    """The options of `synth catalog build`."""

    fleet: Path = option("fleet", type=FILE, metavar="FLEET.yaml")
    jobs: int | None = jobs_option("Tasks at a time; by default the number of cores.", "")
    dask: str | None = option(
        "--dask", default=None, metavar="ADDRESS",
        help="Run on the workers of a Dask scheduler, such as tcp://host:8786.",
    )  # fmt: skip
    time_limit: float | None = time_limit_option("Wall time of each task; overrides the job file.", metavar="30s")
    retry_open: bool = option(
        "--retry-open", default=False,
        help="Continue tasks that a time limit left open; a longer one always does.",
    )  # fmt: skip
    dry_run: bool = option("--dry-run", default=False, help="Only list the tasks, with their states.")


@command(CatalogBuild, brief="Solve every task of a job file once; resumable.")
def build_command(options: CatalogBuild) -> int:
    """Run a job: machines x collectives, each task answered by an entry of the catalog.

    What the catalog has, under the same fingerprint or for a machine that is equal up to numbering, is skipped. Ctrl-C,
    or a kill, loses at most the tasks in flight, and these continue from their logs when the same command is given
    again. Exit code: 0 all done, 4 some open or not started, 1 some failed.

    \b
    Examples:
      synth catalog build fleet.yaml --jobs 2
      synth catalog build fleet.yaml --dry-run
      synth catalog build fleet.yaml --dask tcp://scheduler:8786
    """
    from synth.catalog.jobs import run

    code = None
    try:
        with job_progress(str(options.fleet)) as listen:
            items = build_catalog(
                options.fleet, options.db, jobs=options.jobs, dask=options.dask, time_limit=options.time_limit,
                retry_open=options.retry_open, dry=options.dry_run, listen=listen,
            )  # fmt: skip
    except run.Interrupted as stop:
        items, code = stop.items, INTERRUPTED
    emit(lambda: list(map(_document, items)), lambda: _report(items, options.dry_run), options)
    for item in items:
        if item.state in ("infeasible", "failed"):
            note(f"{item.state}: {item.task.name}: {item.reason}")
    if code is not None:
        note("interrupted; the same command continues")
    if options.dry_run:
        return 0
    return run.exit_code(items) if code is None else code


def _document(item: Item) -> dict:
    task = item.task
    return {
        "topology": task.topology.name,
        "collective": task.collective.name,
        "roots": list(task.collective.roots),
        "ranks": task.topology.ranks,
        "options": task.answer_options,
        "time_limit": task.options.time_limit,
        "state": item.state or None,
        "source": item.source or None,
        "entry": item.entry or None,
        "reason": item.reason,
    }


def _report(items: Sequence[Item], listed: bool) -> Report:
    """Return the table of the tasks in each state, or of all tasks."""
    from synth.catalog.jobs.run import counts
    from synth.view.frontier_text import Report

    # Tasks that were listed have a line each; those that ran are counted by state.
    title = counted(len(items), "task")
    if listed:
        columns = ("task", ">ranks", "state", "entry")
        rows = [
            (item.task.name, str(item.task.topology.ranks), item.state or "to do", item.entry) for item in items
        ]  # fmt: skip
        title += f", {sum(not item.state for item in items)} to do"
    else:
        columns = (
            "state", *(f">{words}" for words in SOURCES.values()), ">all", "what"
        )  # fmt: skip
        rows = []
        for state, row in counts(items).items():
            texts = [str(row[source] or "") for source in SOURCES]
            rows.append((state, *texts, str(row.total()), STATES[state]))
    return Report.of(title, columns, rows)
