"""Which program a call runs, or the inner library: raced where a (collective, size, type) is first called.

The candidates are the plan's for that size, or, without a plan, programs of the library that suit memory that all ranks
share. A row of the plan that names a library, as MCR-DL's tables do, is that library's without a race. All ranks time
the candidates and the inner library, interleaved, and agree on the greatest median of any rank; so the choice is the
same on all ranks, and whoever uses it loses at most the time of the race, 2 s a job.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch

from synth import topologies, version
from synth.catalog.tuner import mcrdl
from synth.errors import SynthError
from synth.export.plans import lane as lane_plans
from synth.export.plans.read import load
from synth.model.collective import collective
from synth.model.schedule import Schedule
from synth.model.tuning_plan import Algorithm, Plan, Table, joined
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program
from synth.runtime.kernel import build_host, sources
from synth.runtime.shared.lane import Lane, LaneProgram
from synth.runtime.shared.segment import Rendezvous, exchange

RACE_SECONDS = 2.0  # of all races of a job together
ONE_RACE = 0.25  # seconds of one race
ROUNDS = 15
GAIN = 0.97  # a program is chosen where it takes less than so much of the library's time
LARGEST = 64 << 20  # bytes of the data that a race moves; greater calls take the choice of this size

# Programs for memory that all ranks share, by collective: names of the library.
SHARED_MEMORY = {
    "allreduce": ("one-shot", "ring", "two-shot", "recursive-doubling", "halving-doubling"),
    "allgather": ("direct", "ring"),
    "reduce-scatter": ("direct", "ring"),
    "alltoall": ("direct",),
    "broadcast": ("binomial", "chain", "scatter-allgather"),
    "reduce": ("binomial",),
}

Runner = Callable[[], None]


@dataclass(frozen=True)
class Key:
    """The facts that a choice depends on: equal on all ranks of a call. `bucket`: bits of the size in bytes. `row`: the
    number of the plan's range for the size."""

    collective: str
    bucket: int
    type: str
    op: str
    in_place: bool
    root: int = 0
    row: int = 0

    def __str__(self) -> str:
        place = "in place" if self.in_place else "out of place"
        size = f"below 2^{self.bucket} bytes, row {self.row}"
        return f"{self.collective} {self.type} {self.op} {size}, {place}, root {self.root}"


@dataclass
class Chosen:
    """The choice of a key. `program`: None where the inner library carries the call out. `why`: in words, for the log.
    `times`: the median seconds of each candidate on the slowest rank, by name."""

    program: LaneProgram | None
    why: str
    times: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of what carries such calls out."""
        return "gloo" if self.program is None else self.program.program.name


class Chooser:
    """The choices of one process group. `agree` returns the greatest value of all ranks, for each of a list. `store`:
    where rank 0 says what it knows already."""

    def __init__(
        self, lane: Lane, store: Rendezvous, agree: Callable[[Sequence[float]], list[float]], plan: Plan | None = None
    ) -> None:
        self.lane, self.plan = lane, plan
        self._store, self._agree = store, agree
        self._programs: dict[tuple[str, str, bool, int], LaneProgram] = {}
        self._known: dict[Key, Chosen] = {}
        self._kept = Kept(lane.size, plan) if lane.rank == 0 else None

    def _table(self, collective: str, root: int) -> Table | None:
        """Return the plan's table for a collective, of this root if there is one: a lane lets any rank be the root."""
        found = []
        for table in () if self.plan is None else self.plan.tables:
            if (table.collective, table.ranks) == (collective, self.lane.size) and table.ranges:
                found.append(table)
        return next((table for table in found if table.root == root), next(iter(found), None))

    def row(self, collective: str, nbytes: int, root: int) -> int:
        """Return the number of the plan's range for a size: the nearest, where none has the size."""
        table = self._table(collective, root)
        return 0 if table is None else max(0, bisect_right(table.ranges, nbytes, key=lambda row: row.low) - 1)

    def candidates(self, key: Key) -> tuple[dict[str, LaneProgram], str]:
        """Return the programs for a call, loaded, by name, and why there is none, or not one of the plan."""
        found, refused = {}, []
        sources, why = self._sources(key)
        for name, make in sources:
            place = key.collective, name, key.in_place, key.root
            try:
                if place not in self._programs:
                    made = make()
                    task = made.collective
                    first = task.roots[0] if task is not None and task.roots else 0
                    root = (key.root - first) % self.lane.size
                    self._programs[place] = self.lane.load(made, in_place=key.in_place, root=root)
                found[name] = self._programs[place]
            except SynthError as error:  # on all ranks alike: it is the program's, not the rank's
                refused.append(f"{name}: {error}")
        return found, why if found else "; ".join(filter(None, [why, *refused]))

    def _sources(self, key: Key) -> tuple[list[tuple[str, Callable[[], Program]]], str]:
        """Return the names of the programs that come into question, and what makes each; and why they are these."""
        table, why = self._table(key.collective, key.root), ""
        if self.plan is not None and table is not None:
            row = table.ranges[key.row]
            chosen = [self.plan.algorithms[i] for i in lane_plans.candidates(self.plan, row)]
            named = [algorithm for algorithm in chosen if algorithm.schedule is not None]
            if named:
                return [(algorithm.label, partial(_planned, algorithm)) for algorithm in named], ""
            if not chosen and self.plan.source != "model":
                return [], f"the plan names {self.plan.algorithms[row.order[0]].label}"
        elif self.plan is not None:
            why = f"the plan has no {key.collective} on {self.lane.size} ranks"
        found: list[tuple[str, Callable[[], Program]]] = []
        for name in SHARED_MEMORY.get(key.collective, ()):
            found.append((name, partial(of_library, name, key.collective, self.lane.size)))
        return found, why

    def choose(self, key: Key, prepare: Callable[[LaneProgram | None], Runner]) -> Chosen:
        """Return the choice of `key`, raced at its first use. `prepare` returns what runs a program, or the library
        (None), once, on data of its own."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._race(key, prepare)
        return found

    def _race(self, key: Key, prepare: Callable[[LaneProgram | None], Runner]) -> Chosen:
        programs, remark = self.candidates(key)
        if not programs:
            return Chosen(None, remark or f"no program does {key.collective}")
        remark = remark and f"; {remark}"

        # rank 0 says what an earlier race found, or that one begins
        self.lane.meet()
        place = f"choice/{len(self._known)}"
        if self._kept is not None:
            self._store.set(place, self._kept.answer(key))
        known = bytes(self._store.get(place)).decode()
        if known in ("library", *programs):
            times = {} if self._kept is None else self._kept.times(key)
            return Chosen(programs.get(known), f"kept from an earlier race{remark}", times)
        if known != "race":
            return Chosen(None, f"SYNTH_RACE=0, and no kept answer{remark}")
        if self._agree([Kept.spent])[0] >= RACE_SECONDS:
            return Chosen(None, f"no time was left for a race{remark}")

        # a first round is not counted: it loads and builds; the second says how many there is time for
        runners: dict[str, Runner] = {"library": prepare(None)}
        for name, program in programs.items():
            runners[name] = prepare(program)
        taken: dict[str, list[float]] = {name: [] for name in runners}
        for runner in runners.values():
            runner()
        begun = time.perf_counter()
        rounds, done = 1, 0
        while done < rounds:
            for name, runner in runners.items():
                self._agree([0.0])  # in a job, too, threads sleep between calls, and ranks come one after the other
                start = time.perf_counter()
                runner()
                taken[name].append(time.perf_counter() - start)
            done += 1
            if done == 1:
                longest = self._agree([time.perf_counter() - begun])[0]
                rounds = max(3, min(ROUNDS, int(ONE_RACE / longest)))
        medians = self._agree([statistics.median(times) for times in taken.values()])
        times = dict(zip(taken, medians, strict=True))
        best = min(programs, key=lambda name: times[name])
        share = times[best] / times["library"]
        won, why = "library", f"the library is faster than {best}"
        if share < GAIN:
            won, why = best, f"{best} takes {share:.2f} of the library's time"
        if self._kept is not None:
            self._kept.keep(key, won, times)
        Kept.spent += time.perf_counter() - begun
        return Chosen(programs.get(won), why + remark, times)


class Kept:
    """The answers of races, of this process and of earlier jobs: a file for each machine, version, plan and number of
    ranks. Rank 0 reads and writes it. `spent`: seconds of the races of this process, whatever the group; no race begins
    where one of its ranks has spent RACE_SECONDS."""

    spent = 0.0
    answers: ClassVar[dict[str, dict[str, dict]]] = {}

    def __init__(self, ranks: int, plan: Plan | None) -> None:
        cores = len(os.sched_getaffinity(0))
        facts = [platform.node(), platform.machine(), cores, torch.__version__, version.__version__, ranks]
        facts += [sources.fingerprint(), plan and plan.to_json()]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
        self._file = build_host.cache_directory().parent / "race" / f"{digest}.json"
        self._found = self.answers.setdefault(digest, {})
        if not self._found and os.environ.get("SYNTH_RACE") != "again":
            with suppress(OSError, ValueError, TypeError):
                self._found.update(json.loads(self._file.read_text(encoding="utf-8")))

    def answer(self, key: Key) -> str:
        """Return the name of what won, "race" where it is not known yet, or "" where SYNTH_RACE forbids one."""
        known = self._found.get(str(key))
        if isinstance(known, dict) and isinstance(known.get("won"), str):
            return known["won"]
        return "" if os.environ.get("SYNTH_RACE") == "0" else "race"

    def times(self, key: Key) -> dict[str, float]:
        """Return the seconds of each candidate in the race that is known."""
        return self._found[str(key)].get("seconds", {})

    def keep(self, key: Key, won: str, times: dict[str, float]) -> None:
        """Write down what won, and the seconds of each."""
        self._found[str(key)] = {"won": won, "seconds": times}
        with suppress(SynthError):  # then the next job races again
            build_host.write_atomically(self._file, json.dumps(self._found, indent=1).encode())


def plan_of_all(store: Rendezvous, rank: int, size: int) -> Plan | None:
    """Return the plan of SYNTH_PLAN; None where there is none.

    Raises SynthError, on all ranks, unless all have the same version and the same plan: else they would choose
    differently.
    """
    mine = f"synth {version.__version__}, torch {torch.__version__}, "
    plan = None
    try:
        plan = plan_of(os.environ.get("SYNTH_PLAN"))
    except SynthError as error:
        mine += f"no plan that it can read: {error}"
    if plan is None:
        mine += "no plan"
    else:
        digest = hashlib.sha256(json.dumps(plan.to_json(), sort_keys=True).encode()).hexdigest()
        mine += f"the plan {digest[:8]} of {plan.topology.name if plan.topology else 'libraries alone'}"
    for other, theirs in enumerate(exchange(store, "rank", rank, size, mine)):
        if theirs != mine:
            raise SynthError(f"rank {other} has {theirs}; rank {rank} has {mine}: all ranks need the same")
    if "no plan that it can read" in mine:
        raise SynthError(f"rank {rank} has {mine}")
    return plan


def of_library(name: str, task: str, ranks: int) -> Program:
    """Return a program of the library for ranks that share memory: each as near to all others."""
    from synth.language.library import LIBRARY

    machine = topologies.topology(f"fully-connected:{ranks}")
    wanted = collective(task, ranks)
    for algorithm in LIBRARY:
        if (algorithm.name, algorithm.collective) == (name, task):
            made = algorithm.schedule(machine, wanted)
            schedule = Schedule(machine.network(), wanted, made.chunks, made.steps)
            return lane_plans.program(schedule, LoweringOptions(name=name))
    raise SynthError(f"the library has no {name} for {task}")


def _planned(algorithm: Algorithm) -> Program:
    assert algorithm.schedule is not None
    options = LoweringOptions(instances=algorithm.instances, name=algorithm.label)
    return lane_plans.program(algorithm.schedule, options)


def plan_of(path: str | None) -> Plan | None:
    """Return the plan of SYNTH_PLAN: a file or folder of `synth build` or `synth tune`, a table in MCR-DL's form (.csv)
    or a folder of such; None without one.

    Raises SynthError for a path that holds none.
    """
    if not path:
        return None
    file = Path(path)
    if file.is_dir():
        tables = sorted(file.glob("*.csv"))
        if tables and not (file / "plan.json").is_file():
            return joined([mcrdl.load(table) for table in tables])
        file /= "plan.json"
    if not file.is_file():
        raise SynthError(f"SYNTH_PLAN={path}: there is no plan; `synth build --for torch` writes one")
    return mcrdl.load(file) if file.suffix == ".csv" else load(file)
