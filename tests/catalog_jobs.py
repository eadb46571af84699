"""Helpers of the tests of catalog jobs: a small job, its run, and the parts of an entry that must not depend on the
runner."""

from __future__ import annotations

from synth.catalog.jobs import job_file_reader, plan, queue, task
from synth.catalog.jobs.run import JobRun
from synth.catalog.jobs.runners.inline import Inline
from synth.catalog.store.store import Store

CHOICE = ("seconds", "schedule", "chunks", "rounds", "construction")

# Quick, and proved to the end: what is found is the same wherever it runs.
SMALL = """\
topologies:
  - {name: 'ring:4', degraded: [0-1, 1-2]}
collectives: [allgather, {name: broadcast, roots: all}]
options: {max-steps: 2, deterministic: true}
"""


def planned(tmp_path, text=SMALL):
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return plan.tasks(job_file_reader.load(path), tmp_path / "tasks")


def run(tmp_path, text=SMALL, runner=None, db="catalog.db", again=(), job=None, **limits):
    """The summary of a run of the job in `text`, or of its tasks `job`; `runner` makes one, inline unless given."""
    tasks = planned(tmp_path, text) if job is None else job
    with Store.open(tmp_path / db, create=True) as store:
        listed = queue.items(tasks, store, **dict.fromkeys(again, True))
        return JobRun(listed, store, runner or (lambda: Inline(task.run)), **limits).run()


def nobody():
    """A runner that must not be asked for."""
    raise AssertionError("nothing was left to solve")


def entries(tmp_path, db="catalog.db"):
    """Return the answer of every entry by its fingerprint."""
    with Store.open(tmp_path / db) as store:
        return {name: essence(store.get(name)) for name in store.fingerprints()}


def essence(entry):
    """Return the answer of an entry without schedules, since the speed of the machine may choose among several."""
    frontier = entry.frontier.to_json() if entry.frontier else {}
    frontier.pop("seconds", None)
    frontier["points"] = [{k: v for k, v in point.items() if k not in CHOICE} for point in frontier.get("points", [])]
    made = {k: v for k, v in entry.provenance.to_json().items() if k != "created"}
    return entry.topology, entry.collective, entry.options, entry.state, entry.reason, entry.certificate, frontier, made
