"""`synth catalog build`: the batch job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.catalog.group import db_option
from synth.commands.framework.options import FILE, jobs_option, output_options, time_limit_option
from synth.commands.framework.output import check_writable, emit, note
from synth.commands.framework.progress import job_progress
from synth.commands.root import CONTEXT, INTERRUPTED
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.catalog.jobs.run import Item

STATES = {
    "done": "complete, or all that was asked for",
    "open": "an interval is left",
    "infeasible": "proved to have no schedule",
    "failed": "crashed twice, or nothing could be said",
    "left": "not started",
}
SOURCES = {"solved": "solved now", "known": "known", "alike": "alike"}


@click.command(context_settings=CONTEXT, short_help="Solve every task of a job file once; resumable.")
@click.argument("fleet", type=FILE, metavar="FLEET.yaml")
@db_option
@jobs_option("Tasks at a time; by default the number of cores.")
@click.option("--dask", metavar="ADDRESS", help="Run on the workers of a Dask scheduler, such as tcp://host:8786.")
@time_limit_option("Wall time of each task; overrides the job file.", "30s")
@click.option(
    "--retry-open", is_flag=True, help="Continue tasks that a time limit left open; a longer one always does."
)
@click.option("--dry-run", is_flag=True, help="Only list the tasks, with their states.")
@output_options
def build(
    fleet: Path,
    db: Path,
    jobs: int | None,
    dask: str | None,
    time_limit: float | None,
    retry_open: bool,
    dry_run: bool,
    output: str | None,
    form: str | None,
) -> int:
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
    from synth.commands.api import catalog

    check_writable(output)
    code = None
    try:
        with job_progress(str(fleet)) as listen:
            how = {"jobs": jobs, "dask": dask, "time_limit": time_limit, "retry_open": retry_open, "dry": dry_run}
            items = catalog.build_catalog(fleet, db, listen=listen, **how)
    except run.Interrupted as stop:
        items, code = stop.items, INTERRUPTED
    emit(lambda: list(map(_document, items)), lambda: _print(items, dry_run), output, form)
    for item in items:
        if item.state in ("infeasible", "failed"):
            note(f"{item.state}: {item.task.name}: {item.reason}")
    if code is not None:
        note("interrupted; the same command continues")
    if dry_run:
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


def _print(items: Sequence[Item], listed: bool) -> None:
    """Print the tasks in each state, or a line for each task."""
    from synth.catalog.jobs.run import counts
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

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
    print_report(Report.of(title, columns, rows))
