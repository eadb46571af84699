"""Parts of the GPU suite and the GPU bench: where they run, their table, and a section that fails without ending the
rest.

Both run on one GPU (`--executor cuda`) and, with small sizes, on CPU threads (`--executor host`): the same calls, so
that they have been through once before they meet a GPU. Neither needs a solver: schedules are baselines, or frontiers
in bench/frontiers.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench import measure
from bench.measure import RESULTS, ROOT
from synth.commands import api
from synth.commands.programs.sources import read
from synth.errors import SynthError
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule
from synth.program.program import Program
from synth.runtime.benchmark.document import device, versions
from synth.runtime.cuda import executor as cuda_executor
from synth.runtime.cuda.executor import Cuda, prebuild
from synth.runtime.host.executor import Host
from synth.runtime.kernel import sources
from synth.runtime.run_result import RunResult

FRONTIERS = ROOT / "bench" / "frontiers"


def known(algorithm: str, machine: str, collective: str) -> Schedule:
    """Return the library's algorithm, which needs no solver as the rings of a machine's links do; else the baseline."""
    for one in api.library():
        if (one.name, one.collective) == (algorithm, collective):
            return one.schedule(machine)
    return api.baseline(algorithm, machine, collective)


def compared(done: RunResult) -> int:
    """Return how many elements of a run were compared with the definition."""
    return done.checked.elements if done.checked else 0


@dataclass
class Suite:
    """Rows of a table: `name`, what was `found`, whether it is as it should be (None: it was only looked at). Small
    ones are of 4 virtual ranks, others of 8, all joined."""

    executor: str
    small: bool
    rows: list[dict] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def row(self, name: str, found: str, good: bool | None, **values: Any) -> None:
        """Add a row, and print it."""
        self.rows.append({"name": name, "found": found, "good": good, **values})
        mark = {True: "ok", False: "WRONG", None: "--"}[good]
        print(f"{mark:6}{name:62}{found}", flush=True)

    def section(self, name: str, work: Callable[[], None]) -> None:
        """Do `work`; what it raises is a wrong row, and the next section follows."""
        start = time.monotonic()
        try:
            work()
        except Exception as error:  # the first time on a GPU: the rest is worth seeing
            more = {} if isinstance(error, SynthError) else {"traceback": traceback.format_exc()}
            self.row(name, f"{type(error).__name__}: {(str(error).splitlines() or ['-'])[0]}", False, **more)
        print(f"      {name}: {time.monotonic() - start:.1f} s", flush=True)

    @property
    def ranks(self) -> int:
        """Return the number of virtual ranks."""
        return 4 if self.small else 8

    def program(self, algorithm: str, collective: str) -> Program:
        """A known algorithm on as many joined ranks, lowered."""
        return api.lower(known(algorithm, f"full:{self.ranks}", collective))

    @property
    def wrong(self) -> int:
        """Rows that are not as they should be."""
        return sum(row["good"] is False for row in self.rows)

    def keep(self, path: Path) -> None:
        """Write the document so far, and a table of its rows beside it."""
        where, used = Cuda().facts() if self.executor == "cuda" else ({}, {})
        doc = {
            "schema": "synth.gpu_suite/1",
            "executor": self.executor,
            "small": self.small,
            "commit": measure.commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "device": device() | where,
            "versions": versions() | used,
            "seconds": round(time.monotonic() - self.started, 1),
            "wrong": self.wrong,
            "rows": self.rows,
            **self.more,
        }
        measure.keep(doc, table(doc), path)

    def run(self, sections: Mapping[str, Callable[[], None]], only: str | None, path: Path) -> int:
        """Do the sections with the word `only` in their names, and keep the document after each. The exit code: 1 where
        a row is wrong, or there is none."""
        for name, work in sections.items():
            if only is None or only in name:
                self.section(name, work)
                self.keep(path)
        print(f"{len(self.rows)} rows, {self.wrong} wrong, {time.monotonic() - self.started:.1f} s; written to {path}")
        return int(self.wrong > 0 or not self.rows)


def library(suite: Suite) -> Any:
    """Return CuPy or NumPy, whose arrays the executor takes."""
    return cuda_executor._cupy() if suite.executor == "cuda" else np


def table(doc: dict) -> str:
    """Return the rows of a document as Markdown."""
    gpus = doc["device"].get("gpus", ())
    names = ", ".join(gpu["name"] for gpu in gpus) or "CPU threads"
    versions = ", ".join(f"{name} {version}" for name, version in doc["versions"].items())
    marks = {True: "right", False: "**not as it should be**", None: ""}
    rows = [(row["name"], row["found"], marks[row["good"]]) for row in doc["rows"]]
    return (
        f"# {names}\n\n{len(doc['rows'])} rows, {doc['wrong']} not as they should be, {doc['seconds']} s.\n\n"
        + measure.markdown(("what", "found", ""), rows)
        + f"\n{versions}; commit {doc['commit'] or 'unknown'}, {doc['date']}.\n"
    )


def start(description: str | None, name: str, arguments: Sequence[str]) -> tuple[Suite, argparse.Namespace]:
    """Read the options of both commands; end with one line where the executor cannot run here."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--small", action="store_true", help="few cases and small sizes; so with --executor host, too")
    where = f"bench/results/{name}.json, or {name}_host.json, unless given"
    parser.add_argument("-o", type=Path, dest="output", help=where)
    parser.add_argument("--only", metavar="WORD", help="only sections with this word in their name")
    given = parser.parse_args(arguments)
    given.output = given.output or RESULTS / f"{name}{'' if given.executor == 'cuda' else '_host'}.json"
    missing = (Cuda() if given.executor == "cuda" else Host()).available()
    if missing:
        sys.exit(f"the {given.executor} executor cannot run here: {missing}")
    return Suite(given.executor, given.small or given.executor == "host"), given


def build(suite: Suite, groups: Sequence[str]) -> None:
    """Compile these groups of kernels for this GPU before anything is timed, as many at once as there are
    processors."""
    if suite.executor == "cuda":
        with ThreadPoolExecutor() as pool:
            list(pool.map(prebuild, groups))
        suite.row("kernels", f"{len(groups)} groups compiled, or found in the cache", None)


def frontier(collective: str) -> Frontier:
    """The DGX-1's, from the repository: found once, with proofs, by `synth pareto`."""
    found = read(FRONTIERS / f"dgx1-{collective}.json")
    if not isinstance(found, Frontier):
        raise SynthError(f"dgx1-{collective}.json is no frontier")
    return found


def group(name: str, feature: str) -> str:
    """A group of `kernels.GROUPS`."""
    found = f"{name}-{feature}".rstrip("-")
    if found not in sources.GROUPS:
        raise SynthError(f"there is no group {found}")
    return found
