"""Task: one problem of a job as JSON, its answer as JSON, and what runs in the child between the two.

    Task     topology collective root options log known          `synth.task/1`
    answer   state frontier certificate reason seconds provenance

A task is idempotent: it may be run again, elsewhere or by another runner; its sweep's log, where it can be reached,
saves what an earlier try had found. Whatever ends a task early, its answer holds an interval.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, Entry, Provenance, fingerprint, large_fingerprint
from synth.catalog.jobs.job_file import TaskOptions
from synth.errors import InfeasibleError, SynthError
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.frontier import Frontier
from synth.model.spanning_forest import ROOTED
from synth.model.topology import Network, Topology

if TYPE_CHECKING:
    from synth.model.scale_frontier import Large
    from synth.pareto.events import Options

SCHEMA = "synth.task/1"
# Ranks above which a collective's units are not written out: only flow methods see it, by its name.
LISTED = 256
# How the sweep says that `max-chunks` ended it, which is what was asked for.
LIMITED = "chunks are limited to"
LIBRARIES = ("ccl-synth", "z3-solver", "python-sat", "ortools", "scipy", "numpy")


@dataclass(frozen=True)
class Task:
    """A machine, a collective (a value, or by name where it would be too large to write out) and options.

    `known`: points of an earlier, open entry, which the sweep starts from. `logs`: the folder where the sweep keeps its
    log.
    """

    topology: Topology
    collective: Collective | str
    root: int = 0
    options: TaskOptions = field(default_factory=TaskOptions)
    logs: Path | None = None
    known: tuple[dict, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """The collective's name."""
        return self.collective if isinstance(self.collective, str) else self.collective.name

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of the collective, () where it has none."""
        if isinstance(self.collective, str):
            return (self.root,) if self.collective in ROOTED else ()
        return self.collective.roots

    @cached_property
    def engine(self) -> str:
        """ "exact" or "flow". Raises UsageError where flow methods do not know the collective."""
        from synth.frontiers import engine_choice

        found = engine_choice.engine_of(self.options.engine, self.topology, self.collective)
        if found == "flow":
            engine_choice.flow_task(self.topology, self.collective, self.roots)
        return found

    @property
    def log(self) -> Path | None:
        """The file in which the sweep keeps what it finds."""
        return None if self.logs is None else self.logs / f"{self.fingerprint}.jsonl"

    @cached_property
    def network(self) -> Network:
        """The exact view of the machine."""
        return self.topology.network()

    @cached_property
    def fingerprint(self) -> str:
        """What the store keys its entry by."""
        if self.engine == "flow":
            root = self.roots[0] if self.name in ROOTED and self.roots else None
            return large_fingerprint(self.topology, self.name, root, self.asked)
        return fingerprint(self.network, self.whole, self.asked)

    @cached_property
    def whole(self) -> Collective:
        """The collective as a value."""
        if isinstance(self.collective, Collective):
            return self.collective
        return named_collective(self.collective, self.topology.ranks, self.roots)

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """The options that change the answer, as an entry has them."""
        o = self.options
        rows = [
            ("max-steps", o.max_steps),
            ("max-chunks", o.max_chunks),
            ("engine", "flow" if self.engine == "flow" else None),
        ]
        return tuple((name, str(value)) for name, value in rows if value is not None)

    def to_json(self) -> dict:
        """As sent to a worker."""
        from synth.topologies import topology_files

        given = self.collective
        return {
            "schema": SCHEMA,
            "topology": topology_files.dump(self.topology),
            "root": self.root,
            "options": asdict(self.options),
            "collective": given.to_json(1) if isinstance(given, Collective) else given,
            "log": None if self.log is None else str(self.log),
            "known": list(self.known),
        }

    @staticmethod
    def from_json(doc: dict) -> Task:
        """The inverse of `to_json`. Raises KeyError, ValueError, TypeError, FormatError on a malformed document."""
        from synth.topologies import topology_files
        from synth.topologies.file_reader import parse_json

        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        topology = topology_files.from_document(parse_json(json.dumps(doc["topology"]), "task"), "task")
        given = doc["collective"]
        collective = given if isinstance(given, str) else Collective.from_json(given, 1)
        logs = None if doc["log"] is None else Path(doc["log"]).parent
        return Task(topology, collective, doc["root"], TaskOptions(**doc["options"]), logs, tuple(doc["known"]))


def run(text: str) -> str:
    """The answer to a task: JSON in, JSON out. Errors of ours are answers; anything else is a crash.

    A document with "cut" ("time" or "memory") is of a task that was ended from outside: what it had found is the
    answer.
    """
    doc, began = json.loads(text), time.monotonic()
    task = Task.from_json(doc)
    try:
        answer = _cut(task, doc["cut"]) if doc.get("cut") else _flow(task) if task.engine == "flow" else _exact(task)
    except InfeasibleError as error:
        answer = {
            "state": INFEASIBLE,
            "frontier": _nothing(task),
            "certificate": error.certificate or {},
            "reason": str(error),
        }
    except SynthError as error:
        answer = {"state": FAILED, "reason": str(error)}
    return json.dumps(answer | {"seconds": time.monotonic() - began, "provenance": _provenance(task).to_json()})


def _exact(task: Task) -> dict:
    from synth.frontiers import engine_choice

    options, collective = sweep_options(task), task.whole
    log = None if task.log is None else engine_choice.seeded(task.log, task.topology, collective, options, task.known)
    with (
        TemporaryDirectory() as own
    ):  # where there is no log to share, as another job has it, or its folder is not here
        return answer_of(
            task, engine_choice.exact(task.topology, collective, options, log=log or Path(own) / "log.jsonl")
        )


def _cut(task: Task, why: str) -> dict:
    from synth.frontiers import engine_choice

    if task.engine == "flow":
        raise SynthError(f"stopped for want of {why}; flow methods have no part of an answer")
    return answer_of(task, engine_choice.cut_short(task.topology, task.whole, sweep_options(task), task.log, why))


def _flow(task: Task) -> dict:
    from synth.catalog.store import scale_frontiers
    from synth.frontiers import engine_choice

    asked = engine_choice.flow_task(task.topology, task.collective, task.roots)
    found = engine_choice.flow(task.topology, *asked, time_limit=task.options.time_limit)
    found = found.within(task.options.max_steps, task.options.max_chunks)
    blobs = {
        name: [b.sum, b.size, base64.b64encode(b.body).decode()] for name, b in scale_frontiers.packed(found).items()
    }
    return {"state": OPEN if found.open else DONE, "large": blobs, "reason": ", ".join(found.open)}


def answer_of(task: Task, found: Frontier) -> dict:
    """The answer that a frontier by exact synthesis is: open where an interval is left that the options do not ask
    for."""
    asked = task.options.max_chunks is not None
    left = [o for o in found.open if not (asked and o.reason.startswith(LIMITED))]
    return {
        "state": OPEN if left else DONE,
        "frontier": found.to_json(),
        "reason": ", ".join(dict.fromkeys(o.reason for o in left)),
    }


def _nothing(task: Task) -> dict | None:
    """A frontier without points, which says what the problem is; None of flow methods, whose problem it cannot say, nor
    they prove."""
    if task.engine == "flow" or isinstance(task.collective, str):
        return None
    return Frontier(task.network, task.collective, (), notes=task.topology.notes, labels=task.topology.labels).to_json()


def sweep_options(task: Task) -> Options:
    """The task's options as the sweep takes them."""
    from synth.pareto.events import Options

    o = task.options
    return Options(
        o.max_steps,
        o.max_chunks,
        time_limit=o.time_limit,
        jobs=1,
        seed=o.seed,
        deterministic=o.deterministic,
        memory=o.memory,
    )


def _provenance(task: Task) -> Provenance:
    import platform
    from importlib import metadata

    found = [("python", platform.python_version())]
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    created = datetime.now(UTC).isoformat(timespec="seconds")
    solver = "flow" if task.engine == "flow" else "auto"
    return Provenance(
        tuple(found), task.options.seed, solver, "auto", machine, created, task.options.time_limit, task.options.memory
    )


def entry_of(task: Task, text: str) -> Entry:
    """The entry that an answer makes, its frontier checked once more. Raises VerificationError, KeyError, ValueError,
    TypeError."""
    from synth.catalog.store import scale_frontiers
    from synth.catalog.store.blobs import Blob
    from synth.checker.documents import exact_frontier

    doc = json.loads(text)
    found: Frontier | Large | None = None
    if doc.get("large"):
        found = scale_frontiers.unpacked(
            {name: Blob(s, n, base64.b64decode(body)) for name, (s, n, body) in doc["large"].items()}
        )
    elif doc.get("frontier"):
        exact_frontier.frontier(doc["frontier"])
        found = Frontier.from_json(doc["frontier"])
    state, reason = doc["state"], doc["reason"]
    if found is None and state == INFEASIBLE:
        state, reason = FAILED, f"proved infeasible: {reason}"
    return Entry(
        task.fingerprint,
        task.topology.name,
        task.name,
        task.topology.ranks,
        task.asked,
        state,
        found,
        doc.get("certificate") or {},
        reason,
        round(doc["seconds"], 3),
        Provenance.from_json(doc["provenance"]),
    )


def failure(task: Task, reason: str, seconds: float) -> Entry:
    """The entry of a task that crashed twice."""
    return Entry(
        task.fingerprint,
        task.topology.name,
        task.name,
        task.topology.ranks,
        task.asked,
        FAILED,
        None,
        {},
        reason,
        round(seconds, 3),
        _provenance(task),
    )
