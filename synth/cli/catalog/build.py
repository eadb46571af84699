"""`synth catalog build`: the batch job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.cli.catalog.group import db_option
from synth.cli.framework.options import FILE, jobs_option, output_options, time_limit_option
from synth.cli.framework.output import check_writable, emit, note
from synth.cli.framework.plain_progress import clock
from synth.cli.framework.progress import job_progress
from synth.cli.framework.types import Duration
from synth.cli.root import CONTEXT, INTERRUPTED
from synth.model.rational import counted

if TYPE_CHECKING:
    from synth.catalog.jobs.queue import Item
    from synth.catalog.jobs.run import Summary

STATES = {
    "done": "complete, or all that was asked for",
    "open": "an interval is left",
    "infeasible": "proved to have no schedule",
    "failed": "crashed twice, or nothing could be said",
    "left": "not started",
}


@click.command(context_settings=CONTEXT, short_help="Solve every task of a job file once; resumable.")
@click.argument("fleet", type=FILE, metavar="FLEET.yaml")
@db_option
@jobs_option("Tasks at a time; by default the number of cores.")
@click.option(
    "--inline",
    is_flag=True,
    help="Run tasks in this process, one after the other, without a hard deadline: to debug one.",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Run on the workers of a Dask scheduler, such as tcp://host:8786; local starts one here.",
)
@click.option("--slurm", is_flag=True, help="Run in N SLURM jobs as the job file's `slurm` describes them.")
@time_limit_option("Wall time of each task; overrides the job file.", "30s")
@click.option(
    "--budget", type=Duration(), metavar="2h", help="Wall time of the whole job: no task is started after it."
)
@click.option("--retry-open", is_flag=True, help="Continue tasks that a budget left open; a larger budget always does.")
@click.option("--retry-failed", is_flag=True, help="Run tasks again that crashed twice.")
@click.option("--dry-run", is_flag=True, help="Only list the tasks, in their order, with an estimate of their seconds.")
@output_options
def build(fleet: Path, db: Path, dry_run: bool, output: str | None, form: str | None, **flags: Any) -> int:
    """Run a job: topologies x collectives x options, each task answered by an entry of the catalog.

    What the catalog has, under the same fingerprint or for a machine that is equal up to numbering, is skipped. Ctrl-C,
    or a kill, loses at most the tasks in flight, and these continue from their logs when the same command is given
    again. Exit code: 0 all done, 4 some open or not started, 1 some failed.

    \b
    Examples:
      synth catalog build fleet.yaml --jobs 2
      synth catalog build fleet.yaml --dry-run
      synth catalog build fleet.yaml --dask tcp://scheduler:8786
    """
    from synth.api import catalog_jobs
    from synth.catalog.jobs.run import Interrupted

    check_writable(output)
    again = {key: flags[key] for key in ("time_limit", "retry_open", "retry_failed")}
    if dry_run:
        listed = catalog_jobs.plan_catalog(fleet, db, **again)
        emit(lambda: [_document(item) for item in listed], lambda: _print_plan(listed), output, form)
        return 0
    code = None
    try:
        with job_progress(str(fleet), flags["budget"]) as listen:
            how = {key: flags[key] for key in ("jobs", "inline", "dask", "slurm", "budget")}
            summary = catalog_jobs.build_catalog(fleet, db, listen=listen, **how, **again)
    except Interrupted as stop:
        summary, code = stop.summary, INTERRUPTED
    emit(lambda: _summary(summary), lambda: _print_summary(summary), output, form)
    for item in summary.items:
        if item.state == "failed":
            note(f"failed: {_what(item)}: {item.reason}")
    if summary.stopped:
        note(f"{summary.stopped}; the same command continues")
    return summary.exit_code if code is None else code


def _what(item: Item) -> str:
    task = item.task
    roots = f" from {','.join(map(str, task.roots))}" if any(task.roots) else ""
    return f"{task.name}{roots} on {task.topology.name}"


def _document(item: Item) -> dict:
    task = item.task
    return {
        "topology": task.topology.name,
        "collective": task.name,
        "roots": list(task.roots),
        "ranks": task.topology.ranks,
        "options": dict(task.answer_options),
        "time_limit": task.options.time_limit,
        "fate": item.fate,
        "state": item.state or None,
        "entry": item.entry or None,
        "reason": item.reason,
        "seconds": round(item.seconds, 3),
    }


def _summary(summary: Summary) -> dict:
    return {
        "counts": summary.counts,
        "seconds": round(summary.seconds, 1),
        "tasks": [_document(item) for item in summary.items],
    }


def _print_summary(summary: Summary) -> None:
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    rows = []
    for state, counts in summary.counts.items():
        if any(counts.values()):
            texts = [""] * len(counts)
            if state != "left":
                texts = [str(n or "") for n in counts.values()]
            rows.append((state, *texts, str(sum(counts.values())), STATES[state]))
    title = f"{len(summary.items)} task{'s' * (len(summary.items) != 1)} in {clock(summary.seconds)}"
    columns = (
        ("state", "left"),
        ("solved now", "right"),
        ("known", "right"),
        ("alike", "right"),
        ("all", "right"),
        ("what", "left"),
    )
    print_report(Report(title, columns, tuple(rows)))


def _print_plan(listed: list[Item]) -> None:
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    rows = []
    for item in listed:
        seconds = f"{item.seconds:.1f}" if item.fate == "todo" else ""
        rows.append((_what(item), str(item.task.topology.ranks), item.state or "to do", item.entry, seconds))
    todo = [item for item in listed if item.fate == "todo"]
    title = (
        f"{counted(len(listed), 'task')}, {len(todo)} to do, about {clock(sum(item.seconds for item in todo))} "
        f"of one process"
    )
    columns = (("task", "left"), ("ranks", "right"), ("state", "left"), ("entry", "left"), ("seconds", "right"))
    print_report(Report(title, columns, tuple(rows)))
