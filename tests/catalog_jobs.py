"""Helpers of the tests of catalogs: entries, and a small job that is run in this process."""

from __future__ import annotations

from concurrent.futures import Future

from synth.catalog.entry import Entry
from synth.catalog.jobs import job_file
from synth.catalog.jobs.run import items_of, run
from synth.catalog.store import Store

# Quick, and proved to the end: what is found is the same wherever it runs.
SMALL = """\
topologies:
  - {name: 'ring:4', degraded: [0-1, 1-2]}
collectives: [allgather, {name: broadcast, roots: all}]
options: {max-steps: 2, deterministic: true}
"""
ORIGIN = {"versions": {"synth": "0.1.0", "z3": "4.13"}, "seed": 7, "created": "2026-11-21", "time_limit": 30.0}


def entry(frontier, **options) -> Entry:
    return Entry.of(frontier, options, 1.5, ORIGIN)


class Here:
    """A runner in this process; `work` makes the answer of a task."""

    slots = 1

    def __init__(self, work=lambda task: task.answer()):
        self.work = work
        self.closed = False

    def submit(self, task):
        future = Future()
        try:
            future.set_result(self.work(task))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self):
        self.closed = True


def planned(folder, text=SMALL, time_limit=None):
    path = folder / "fleet.yaml"
    path.write_text(text)
    return job_file.tasks(path, folder / "tasks", time_limit)


def built(folder, text=SMALL, runner=None, retry_open=False, time_limit=None):
    """The items of a run of the job in `text`."""
    with Store.open(folder / "catalog.db", create=True) as store:
        items = items_of(planned(folder, text, time_limit), store, retry_open)
        run(items, store, runner or Here(), lambda progress: None)
        return items


def answers(folder):
    """Return what the catalog says of each problem, without what differs from run to run."""
    with Store.open(folder / "catalog.db") as store:
        return {row.fingerprint: (row.topology, row.collective, row.state, row.points) for row in store.ls()}
