"""A task: one problem of a job, and the function that solves it, here or in another process.

A task may be run again: its sweep's log, where it can be reached, holds the results of earlier attempts.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from synth.catalog import isomorphism
from synth.catalog.entry import Entry, fingerprint
from synth.encodings.engine import FrontierProblem, Options
from synth.errors import InfeasibleError, SynthError
from synth.model.collective import Collective
from synth.model.topology import Network, Topology
from synth.pareto.log import LogError
from synth.pareto.synthesize import synthesize

LIBRARIES = ("ccl-synth", "z3-solver", "python-sat", "ortools", "scipy", "numpy")
INFEASIBLE, FAILED = "infeasible", "failed"


class TaskAnswer(NamedTuple):
    """The answer of a task: its entry; or None, and whether it is infeasible or failed, and why."""

    entry: Entry | None
    state: str
    reason: str = ""


@dataclass(frozen=True)
class Task:
    """A machine with its network, a collective and options. `logs`: the folder of the sweeps' logs."""

    topology: Topology
    network: Network
    collective: Collective
    options: Options
    logs: Path

    @property
    def name(self) -> str:
        """The collective, its root if that is not rank 0, and the machine, in words."""
        roots = self.collective.roots
        of_root = f" from {','.join(map(str, roots))}" if any(roots) else ""
        return f"{self.collective.name}{of_root} on {self.topology.name}"

    @property
    def answer_options(self) -> dict[str, str]:
        """The options that change the answer, as in `Entry.options`."""
        rows = (("max-steps", self.options.max_steps), ("max-chunks", self.options.max_chunks))
        return {name: str(value) for name, value in rows if value is not None}

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the problem, the key of its entry."""
        return fingerprint(self.network, self.collective, self.answer_options)

    @cached_property
    def invariant(self) -> str:
        """Equal for tasks whose problems are equal up to the numbering of ranks."""
        return isomorphism.invariant(self.network, self.collective, self.answer_options)

    def answer(self) -> TaskAnswer:
        """Solve the task. A SynthError becomes an answer; any other exception is a crash."""
        # a log that cannot be had here only means that a run that was cut short does not continue
        began, task = time.monotonic(), self.collective
        problem = FrontierProblem(self.topology, task, self.options)
        try:
            with TemporaryDirectory() as folder:
                try:
                    frontier = synthesize(problem, log=self.logs / f"{self.fingerprint}.jsonl")
                except LogError:  # another job holds the log, or its folder is not here
                    frontier = synthesize(problem, log=Path(folder) / "log.jsonl")
        except InfeasibleError as error:
            return TaskAnswer(None, INFEASIBLE, str(error))
        except SynthError as error:
            return TaskAnswer(None, FAILED, str(error))
        entry = Entry.of(frontier, self.answer_options, time.monotonic() - began, self._provenance())
        return TaskAnswer(entry, entry.state, ", ".join(dict.fromkeys(interval.reason for interval in frontier.open)))

    def _provenance(self) -> dict:
        versions = {"python": platform.python_version()}
        for name in LIBRARIES:
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions[name] = metadata.version(name)
        options = self.options
        return {
            "versions": versions,
            "seed": options.seed,
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
            "created": datetime.now(UTC).isoformat(timespec="microseconds"),
            "time_limit": options.time_limit,
            "memory": options.memory,
        }
