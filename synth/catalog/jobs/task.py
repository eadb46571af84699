"""A task: one problem of a job as JSON, its answer as JSON, and the function that a child process runs.

    Task     topology collective root options log known          `synth.task/1`
    answer   state frontier certificate reason seconds provenance

A task is idempotent: it may be run again, elsewhere or by another runner. Its sweep's log, where it can be reached,
holds the results of earlier attempts. A task that ends early still answers with an interval.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, Entry, Provenance, fingerprint, scale_fingerprint
from synth.catalog.jobs.job_file import TaskOptions
from synth.errors import InfeasibleError, SynthError
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.frontier import Frontier, ParetoFrontier
from synth.model.spanning_forest import ROOTED
from synth.model.topology import Network, Topology

if TYPE_CHECKING:
    from synth.frontiers.engine_choice import Query

SCHEMA = "synth.task/1"
# The greatest number of ranks for which the units of a collective are written out. Above it only the flow methods run,
# and they take the collective by its name.
LISTED = 256
# The beginning of the sweep's reason for an interval that `max-chunks` leaves open, as the options request.
LIMITED = "chunks are limited to"
LIBRARIES = ("ccl-synth", "z3-solver", "python-sat", "ortools", "scipy", "numpy")


@dataclass(frozen=True)
class Task:
    """A topology, a collective (a value, or its name where it would be too large to write out) and options.

    `known`: points of an earlier, open entry, from which the sweep starts. `logs`: the folder of the sweeps' logs.
    """

    topology: Topology
    collective: Collective | str
    root: int = 0
    options: TaskOptions = field(default_factory=TaskOptions)
    logs: Path | None = None
    known: tuple[dict, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """The name of the collective."""
        return self.collective if isinstance(self.collective, str) else self.collective.name

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of the collective; () where it has none."""
        if isinstance(self.collective, str):
            return (self.root,) if self.collective in ROOTED else ()
        return self.collective.roots

    @cached_property
    def engine(self) -> str:
        """The engine, "exact" or "flow". Raises UsageError where the flow methods do not support the collective."""
        from synth.frontiers import engine_choice

        engine = engine_choice.engine_of(self.options.engine, self.topology, self.collective)
        if engine == "flow":
            engine_choice.flow_collective(self.topology, self.collective, self.roots)
        return engine

    @property
    def log(self) -> Path | None:
        """The file of the sweep's results; None where there is no folder for logs."""
        return None if self.logs is None else self.logs / f"{self.fingerprint}.jsonl"

    @cached_property
    def network(self) -> Network:
        """The network of the topology, with exact capacities."""
        return self.topology.network()

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the task's problem, the key of its entry."""
        if self.engine == "flow":
            root = self.roots[0] if self.name in ROOTED and self.roots else None
            return scale_fingerprint(self.topology, self.name, root, self.answer_options)
        return fingerprint(self.network, self.collective_value, self.answer_options)

    @cached_property
    def collective_value(self) -> Collective:
        """The collective as a value, also if the task has only its name."""
        if isinstance(self.collective, Collective):
            return self.collective
        return named_collective(self.collective, self.topology.ranks, self.roots)

    @property
    def answer_options(self) -> tuple[tuple[str, str], ...]:
        """The options that change the answer, as (name, value) pairs as in `Entry.options`."""
        o = self.options
        rows = [
            ("max-steps", o.max_steps),
            ("max-chunks", o.max_chunks),
            ("engine", "flow" if self.engine == "flow" else None),
        ]
        return tuple((name, str(value)) for name, value in rows if value is not None)

    def to_json(self) -> dict:
        """Return the JSON object that is sent to a worker."""
        from synth.topologies import topology_files

        collective = self.collective
        return {
            "schema": SCHEMA,
            "topology": topology_files.dump(self.topology),
            "root": self.root,
            "options": asdict(self.options),
            "collective": collective.to_json(1) if isinstance(collective, Collective) else collective,
            "log": None if self.log is None else str(self.log),
            "known": list(self.known),
        }

    @staticmethod
    def from_json(doc: dict) -> Task:
        """Return the task of a JSON object. Raises KeyError, ValueError, TypeError, FormatError where it is
        malformed."""
        from synth.topologies import topology_files
        from synth.topologies.file_reader import parse_json

        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        topology = topology_files.from_document(parse_json(json.dumps(doc["topology"]), "task"), "task")
        collective = doc["collective"]
        if not isinstance(collective, str):
            collective = Collective.from_json(collective, 1)
        logs = None if doc["log"] is None else Path(doc["log"]).parent
        return Task(topology, collective, doc["root"], TaskOptions(**doc["options"]), logs, tuple(doc["known"]))


def run(text: str) -> str:
    """Carry out the task in the JSON `text` and return its answer as JSON.

    A SynthError becomes an answer; any other exception is a crash. If the document has the key "cut" ("time" or
    "memory"), an earlier run of the task was killed for lack of it, and the answer consists of the results in its log.
    """
    doc, began = json.loads(text), time.monotonic()
    task = Task.from_json(doc)
    try:
        if doc.get("cut"):
            answer = _from_log(task, doc["cut"])
        else:
            answer = _flow(task) if task.engine == "flow" else _exact(task)
    except InfeasibleError as error:
        answer = {
            "state": INFEASIBLE,
            "frontier": _empty_frontier(task),
            "certificate": error.certificate or {},
            "reason": str(error),
        }
    except SynthError as error:
        answer = {"state": FAILED, "reason": str(error)}
    return json.dumps(answer | {"seconds": time.monotonic() - began, "provenance": _provenance(task).to_json()})


def _exact(task: Task) -> dict:
    from synth.frontiers import engine_choice

    return answer_of(task, _with_log(task, engine_choice.synthesize))


def _from_log(task: Task, why: str) -> dict:
    """Return the answer of a task that was ended for lack of `why`, from the results in its log."""
    from synth.frontiers import engine_choice

    if task.engine == "flow":
        raise SynthError(f"stopped for want of {why}; flow methods have no part of an answer")
    return answer_of(task, _with_log(task, lambda query: engine_choice.frontier_from_log(query, why)))


def _with_log(task: Task, answer: Callable[[Query], Frontier]) -> Frontier:
    """Return the answer to the task's query with its shared log, else with a log of this attempt alone.

    Another job may hold the shared log, or its folder may not be here.
    """
    from synth.pareto.log import LogError

    with TemporaryDirectory() as folder:
        private = Path(folder) / "log.jsonl"
        try:
            return answer(query_of(task, task.log or private))
        except LogError:
            return answer(query_of(task, private))


def _flow(task: Task) -> dict:
    from synth.catalog.store import scale_frontiers
    from synth.frontiers import engine_choice

    query = engine_choice.flow_collective(task.topology, task.collective, task.roots)
    frontier = engine_choice.synthesize_flow(task.topology, *query, time_limit=task.options.time_limit)
    frontier = frontier.within(task.options.max_steps, task.options.max_chunks)
    blobs = {}
    for name, blob in scale_frontiers.packed(frontier).items():
        blobs[name] = [blob.sum, blob.size, base64.b64encode(blob.body).decode()]
    return {
        "state": OPEN if frontier.unfinished else DONE,
        "scale_frontier": blobs,
        "reason": ", ".join(frontier.unfinished),
    }


def answer_of(task: Task, frontier: Frontier) -> dict:
    """Return the answer of a frontier of exact synthesis: open where it has an open interval, unless the task's
    `max-chunks` is the reason."""
    limited = task.options.max_chunks is not None
    intervals = [interval for interval in frontier.open if not (limited and interval.reason.startswith(LIMITED))]
    return {
        "state": OPEN if intervals else DONE,
        "frontier": frontier.to_json(),
        "reason": ", ".join(dict.fromkeys(interval.reason for interval in intervals)),
    }


def _empty_frontier(task: Task) -> dict | None:
    """Return a frontier without points, which defines the problem. None for flow methods, which prove no problem
    infeasible."""
    if task.engine == "flow" or isinstance(task.collective, str):
        return None
    return Frontier(task.network, task.collective, (), notes=task.topology.notes, labels=task.topology.labels).to_json()


def query_of(task: Task, log: Path | None) -> Query:
    """Return the query of a task for exact synthesis, whose results are kept in `log`."""
    from synth.frontiers.engine_choice import Query
    from synth.pareto.events import Options

    o = task.options
    options = Options(
        o.max_steps,
        o.max_chunks,
        time_limit=o.time_limit,
        jobs=1,
        seed=o.seed,
        deterministic=o.deterministic,
        memory=o.memory,
    )
    return Query(task.topology, task.collective_value, options, "exact", log, known=task.known)


def _provenance(task: Task) -> Provenance:
    import platform
    from importlib import metadata

    versions = [("python", platform.python_version())]
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append((name, metadata.version(name)))
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    created = datetime.now(UTC).isoformat(timespec="seconds")
    solver = "flow" if task.engine == "flow" else "auto"
    options = task.options
    return Provenance(
        tuple(versions), options.seed, solver, "auto", machine, created, options.time_limit, options.memory
    )


def entry_of(task: Task, text: str) -> Entry:
    """Return the entry of an answer, whose frontier is checked once more.

    Raises VerificationError, and KeyError, ValueError, TypeError for a malformed answer.
    """
    from synth.catalog.store import scale_frontiers
    from synth.catalog.store.blobs import Blob
    from synth.checker.documents import exact_frontier

    doc = json.loads(text)
    frontier: ParetoFrontier | None = None
    if doc.get("scale_frontier"):
        blobs = {}
        for name, (checksum, size, body) in doc["scale_frontier"].items():
            blobs[name] = Blob(checksum, size, base64.b64decode(body))
        frontier = scale_frontiers.unpacked(blobs)
    elif doc.get("frontier"):
        exact_frontier.frontier(doc["frontier"])
        frontier = Frontier.from_json(doc["frontier"])
    state, reason = doc["state"], doc["reason"]
    if frontier is None and state == INFEASIBLE:
        state, reason = FAILED, f"proved infeasible: {reason}"
    return Entry(
        task.fingerprint,
        task.topology.name,
        task.name,
        task.topology.ranks,
        task.answer_options,
        state,
        frontier,
        doc.get("certificate") or {},
        reason,
        round(doc["seconds"], 3),
        Provenance.from_json(doc["provenance"]),
    )


def failure(task: Task, reason: str, seconds: float) -> Entry:
    """Return the failed entry of a task, with the reason and the wall seconds of its attempts."""
    return Entry(
        task.fingerprint,
        task.topology.name,
        task.name,
        task.topology.ranks,
        task.answer_options,
        FAILED,
        None,
        {},
        reason,
        round(seconds, 3),
        _provenance(task),
    )
