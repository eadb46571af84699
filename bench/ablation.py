"""The worth of each engine and heuristic of synthesis: it is switched off, and all that changes is printed.

    python -m bench.ablation --fresh              every problem as it is, then with each engine off
    python -m bench.ablation --minutes N          go on with the runs that are missing, for N minutes of CPU
    python -m bench.ablation --only NAME          one switch ('a|b' for two), or "none"
    python -m bench.ablation --problems TEXT      the problems whose name contains TEXT
    python -m bench.ablation --before FILE        the result of an earlier commit, to compare with
    python -m bench.ablation --table

The problems: frontiers of bench.goals, machines of bench.scale, and 100 random machines of 4 to 8 ranks, which take
all collectives in turn. Each run is a process of its own, forked from one that has loaded the libraries, with two
jobs and seed 0. CPU seconds are those of the process and of all helpers that it waited for.

A switch replaces attributes of modules, most of them fields of an engine's settings, in the process and in its
helpers. It is tried only on problems that reach its engine (`Switch.engines`, compared with the calls of the run as it
is): elsewhere it can change nothing.

``results/ablation.json`` has the runs of today, ``results/ablation_deletions.json`` those by which the engines in
`DELETED` were judged (``--table -o`` prints either).

All runs together take more than an hour of CPU, so each is kept as soon as it ends, and none that is there is made
again: the command may be ended at any time. The quick problems come first, each with all switches.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from bench.measure import RESULTS, keep, markdown, seconds, setting, where
from synth.errors import SynthError
from synth.model.topology import Link, Topology

SECONDS = 2400  # wall time of one run; a busy machine needs more than the ten minutes that suffice on an idle one
WORSE = Fraction(101, 100)  # R/C up to this multiple counts as the same
JOBS = 2

# Functions whose calls are counted.
WATCHED = (
    "synth.bounds.single_chunk:bound", "synth.bounds.trees.tree_bound:tree_bound", "synth.bounds.receive_covers:covers",
    "synth.bounds.first_completion:first_completion_bound", "synth.frontiers.incumbents:find_incumbents",
    "synth.encodings.spanning_tree_packing:forest", "synth.scale.bounds.multi_cut_lp:multi_cut_bound",
)  # fmt: skip

# ------------------------------------------------------------ problems

NAMED = (
    ("dgx1", "allgather"), ("dgx1", "allreduce"), ("ring:8", "allreduce"), ("hypercube:8", "allreduce"),
    ("fully-connected:8", "allreduce"), ("switch:8:units=12", "allreduce"),
    ("dgx1", "broadcast"), ("dgx1", "reduce"), ("dgx1", "scatter"), ("dgx1", "gather"), ("dgx1", "reduce-scatter"),
    ("dgx1", "alltoall"), ("dgx1", "scan"), ("dgx1", "multi-broadcast"), ("dgx1", "multi-scatter"),
    ("dgx1", "multi-gather"), ("dgx1", "alltonext"), ("dgx1", "sendrecv"), ("dgx1", "examples/halo.yaml"),
    ("hypercube:16", "allgather"), ("torus:4x4", "allgather"), ("dgx2", "allgather"), ("dgx-a100*2", "allgather"),
    ("torus:4x4", "reduce-scatter"),
    ("ndv2*2", "allgather"), ("torus:3x3", "alltoall"), ("mi250", "broadcast"), ("ring:5", "scan"),
    ("hypercube:8", "scan"), ("torus:4x5", "scan"), ("dgx-a100", "allreduce"), ("torus:3x3", "allreduce"),
    ("torus:4x4", "allreduce"),
)  # fmt: skip
MORE: Mapping[str, dict] = {
    "broadcast": {"max_steps": 8},
    "reduce": {"max_steps": 8},
    "multi-broadcast": {"roots": (0, 5)},
    "multi-scatter": {"roots": (0, 5)},
    "multi-gather": {"roots": (0, 5)},
}
AT_SCALE = (
    "dgx-a100*8", "dgx-a100*16:net=odd-even", "dgx-h100*16:net=rail", "mi250*2", "mi250*8", "ndv2*4", "torus:8x8",
    "hypercube:64", "random-regular:32", "random-regular:128", "fat-tree:16", "torus:32x32",
)  # fmt: skip
SCALE_COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "allreduce", "alltoall")
RANDOM = 100
COLLECTIVES = (
    "broadcast", "reduce", "scatter", "gather", "allgather", "reduce-scatter", "allreduce", "alltoall", "scan",
    "multi-broadcast", "multi-scatter", "multi-gather", "alltonext", "sendrecv", "allgatherv", "alltoallv",
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A frontier to compute: arguments of `synth.api.frontier`."""

    name: str
    topology: str | Topology
    collective: str
    options: Mapping[str, Any] = field(default_factory=dict)


def problems() -> list[Problem]:
    """Return the fixed set."""
    made = [Problem(f"{t} {c}", t, c, MORE.get(c, {})) for t, c in NAMED]
    for machine in AT_SCALE:
        for collective in SCALE_COLLECTIVES:
            if collective == "alltoall" and machine == "torus:32x32":
                continue  # minutes
            made.append(Problem(f"scale {machine} {collective}", machine, collective, {"engine": "flow"}))
    return made + [random_problem(k) for k in range(RANDOM)]


def random_problem(number: int) -> Problem:
    """Return a collective on a strongly connected machine of 4 to 8 ranks with links of one or two units."""
    random = Random(number)
    ranks = 4 + number // len(COLLECTIVES) % 5
    cycle = random.sample(range(ranks), ranks)
    pairs = set(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    both_ways = random.random() < 0.5
    for a in range(ranks):
        for b in range(ranks):
            if a != b and random.random() < 0.3:
                pairs |= {(a, b), (b, a)} if both_ways else {(a, b)}
    links = tuple(Link(a, b, Fraction(random.choice((1, 1, 2)))) for a, b in sorted(pairs))
    collective = COLLECTIVES[number % len(COLLECTIVES)]
    options: dict[str, Any] = {}
    if collective.startswith("multi"):
        options["roots"] = (0, ranks // 2)
    if collective == "allgatherv":
        options["sizes"] = [random.choice((1, 1, 2, 3)) for _ in range(ranks)]
    if collective == "alltoallv":
        options["sizes"] = [[random.choice((1, 2)) for _ in range(ranks)] for _ in range(ranks)]
    return Problem(f"random {number} {collective}", Topology(f"random-{number}", ranks, links), collective, options)


# ------------------------------------------------------------ deletions

# Engines and heuristics that earned nothing, with the measurement that says so.
DELETED = (
    (
        "ladders of 18 and of 16 efforts in the search of combining collectives",
        "three rounds of growing effort give the same allreduces at 1.02 times the CPU seconds",
    ),
    (
        "chunks placed one by one as an engine of its own",
        "the best at one S of the scans; column generation over single-chunk schedules, which places them too, won 11",
    ),
    ("encodings step-mono and quotient-mono", "members of the portfolio: 6 calls, no answer"),
    ("encoding quotient-shift", "no portfolio has it"),
    ("tree_packing.search.minimise", "nothing called it"),
    ("rings: greedy packing of listed cycles", "six seeds of the annealing find as much (mi250: seed 4)"),
    ("rings: the constraint program with one circuit a ring", "no machine has a lower rate without it"),
    (
        "rings: a first, shorter search for opposite pairs",
        "no rate is lower on the 17 built-in machines, 29 clusters and graphs, and 12 random machines",
    ),
)
RINGS = (
    "on 67 built-in machines and clusters of up to 16 boxes no rate of all rings or of one ring is lower; dragonfly:4x4"
    " alone loses the proof that no more fit. Listing the cycles of small machines stays, or 27 of 50 allocations of a"
    " DGX-1 lose that proof. Opposite pairs stay, or torus:4x5, random-regular:64 and random-regular:512 lose rings."
)

# ------------------------------------------------------------ switches


@dataclass(frozen=True)
class Switch:
    """Attributes to replace: ``"module:attribute"`` or ``"module:SETTINGS.field"`` to a value.

    `engines`: names of calls (`Calls`) of which the engine makes one at least, or none where it is always there.
    """

    name: str
    changes: Mapping[str, Any]
    engines: tuple[str, ...] = ()

    def apply(self) -> None:
        """Replace the attributes in this process."""
        for place, value in self.changes.items():
            module, _, path = place.partition(":")
            owner: Any = importlib.import_module(module)
            *parents, attribute = path.split(".")
            for parent in parents[:-1]:
                owner = getattr(owner, parent)
            if parents and parents[-1] == "SETTINGS":
                owner.SETTINGS = replace(owner.SETTINGS, **{attribute: value})
            else:
                for parent in parents[-1:]:
                    owner = getattr(owner, parent)
                setattr(owner, attribute, value)


def nothing(*arguments: Any, **keywords: Any) -> None:
    """An engine that finds nothing."""


def empty(*arguments: Any, **keywords: Any) -> tuple:
    """An engine that yields nothing."""
    return ()


def no(*arguments: Any, **keywords: Any) -> bool:
    """An engine that does not apply."""
    return False


SEARCH = "synth.pareto.combining."
SWITCHES = (
    Switch("mixtures of hubs", {SEARCH + "candidates:Candidates.mixture": nothing}, ("attempt: mixture",)),
    Switch("hub columns", {SEARCH + "candidates:Candidates.sharing": nothing}, ("attempt: shares",)),
    Switch("chunk columns", {SEARCH + "candidates:Candidates.single_chunk": nothing}, ("attempt: blending",)),
    Switch("invariant representatives", {SEARCH + "symmetry_candidates:_with_inner": empty}, ("attempt:",)),
    Switch("larger candidates", {SEARCH + "candidates:Candidates._larger": empty}, ("attempt:",)),
    Switch("spanning trees", {SEARCH + "constructions:Constructions.forest": None}, ("attempt: shares",)),
    Switch("composition", {SEARCH + "constructions:Constructions._composed": nothing}, ("attempt: shares",)),
    Switch("single-chunk bound", {"synth.bounds.single_chunk:bound": nothing}, ("single_chunk.bound",)),
    Switch("tree bound", {"synth.pareto.meet_bound:_tree_bound": nothing}, ("tree_bound",)),
    Switch("later slices", {"synth.pareto.meet_bound:SETTINGS.later_slices": ()}, ("search.near",)),
    Switch("near on trees", {"synth.pareto.close_step_count:_near": nothing}, ("search.near",)),
    Switch("growing C", {"synth.pareto.close_step_count:_search": nothing}, ("search.near",)),
    Switch("diving", {"synth.encodings.tree_packing.integer_program:TreeProgram.dive": nothing}, ("tree: dive",)),
    Switch("completion", {"synth.encodings.tree_packing.integer_program:complete": nothing}, ("tree: dive",)),
    Switch("path shortening", {"synth.scale.forests.arborescence_packing:shorten_paths": nothing}, ("points: pack",)),
    Switch("re-rooting", {"synth.scale.forests.build:_rerooted": nothing}, ("points: re-rooted",)),
    Switch("breadth-first broadcast", {"synth.scale.greedy.bfs_broadcast:applies": no}, ("points: breadth-first b",)),
    Switch("shortest ways", {"synth.scale.alltoall.concurrent_flow:SMALL": 0}, ("points: flows, shortest",)),
)  # fmt: skip


def by_name(name: str) -> Switch:
    """Return the switch of a name; several joined by '+' are one."""
    parts = [switch for switch in SWITCHES if switch.name in name.split("+")]
    changes: dict[str, Any] = {}
    for switch in parts:
        changes |= switch.changes
    return Switch(name, changes, tuple(engine for switch in parts for engine in switch.engines))


# ------------------------------------------------------------ runs


class Calls:
    """Calls of engines in this process and its helpers: how often, how many answered, and their CPU seconds."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Any]] = []
        self.rows: dict[str, list] = {}

    def count(self, name: str, answered: bool, cpu: float = 0.0) -> None:
        """Add a call."""
        row = self.rows.setdefault(name, [0, 0, 0.0])
        row[0] += 1
        row[1] += answered
        row[2] = round(row[2] + cpu, 3)

    def watch(self, switch: Switch) -> None:
        """Count the calls from here on; `switch` is applied in the helpers too."""
        from synth.pareto.combining import search_at_steps
        from synth.scale.search_state import SearchState
        from synth.solvers.processes.fork_server import ForkServer

        start, add, take = ForkServer.start, SearchState.add_points, search_at_steps.SearchAtSteps._take

        def started(server: ForkServer, number: int, call: Callable, arguments: tuple, memory: int | None) -> Any:
            job = start(server, number, in_helper, (switch.name, call, arguments), memory)
            self.jobs.append((label(call, arguments), job))
            return job

        def added(state: SearchState, points: Any, order: int = 0) -> None:
            points = list(points)
            for point in points:
                self.count(f"points: {point.construction.split(' x ')[0]}", True)
            add(state, points, order)

        def taken(search: Any, schedule: Any, name: str) -> None:
            before = search.upper
            take(search, schedule, name)
            hubs = search.context.candidates.hub_steps is not None
            effort = " ".join(map(str, search_at_steps.efforts(hubs)[search.next]))
            self.count(f"{'effort' if hubs else 'other effort'} {search.next}: {effort}", search.upper != before)

        for place in WATCHED:
            self._watch_function(place)
        search_at_steps.SearchAtSteps._take = taken  # type: ignore[method-assign]
        ForkServer.start = started  # type: ignore[method-assign]
        SearchState.add_points = added  # type: ignore[method-assign]

    def _watch_function(self, place: str) -> None:
        """Count the calls of a function, which is looked up in its module, by their answers."""
        module = importlib.import_module(place.partition(":")[0])
        name = place.partition(":")[2]
        function = getattr(module, name)

        @functools.wraps(function)
        def counted(*arguments: Any, **keywords: Any) -> Any:
            began = time.process_time()
            result = function(*arguments, **keywords)
            self.count(f"{module.__name__.rpartition('.')[2]}.{name}", bool(result), time.process_time() - began)
            return result

        counted.__module__, counted.__qualname__ = module.__name__, name  # a helper finds it by that name
        setattr(module, name, counted)

    def finished(self) -> dict[str, list]:
        """Return the rows, those of the helpers included."""
        for name, job in self.jobs:
            result = job.result[1] if job.result and job.result[0] == "ok" else None
            self.count(name, answers(result), job.cpu)
            how = detail(result)
            if how:
                self.count(f"tree: {how}", True)
        self.jobs.clear()
        return self.rows


def label(call: Callable, arguments: tuple) -> str:
    """Return the name of a helper's call: the engine of an attempt, the member of a portfolio, or the function."""
    function = getattr(call, "func", call)  # that of a partial
    name = function.__name__
    if name == "run_attempt":
        return f"attempt: {arguments[0].engine}"
    if name == "run_member":
        return f"member: {arguments[0]}"
    return f"{function.__module__.rpartition('.')[2]}.{name}"


def answers(result: Any) -> bool:
    """True for a schedule, a refutation, or a bound."""
    status = getattr(result, "status", None)
    if status is not None:
        return status in ("sat", "unsat")
    return result is not None and type(result).__name__ != "Unknown"


def detail(result: Any) -> str:
    """Return how the tree engine made whole chunks, "" of other results."""
    cost = getattr(result, "cost", None)
    profile = cost.detail if cost is not None else getattr(result, "profile", None)
    return str((profile or {}).get("by", ""))


def in_helper(switch: str, call: Callable, arguments: tuple) -> Any:
    """Apply a switch in a helper, then call."""
    by_name(switch).apply()
    return call(*arguments)


def answer(problem: Problem, switch: Switch) -> dict:
    """Return the frontier of a problem with a switch off, in this process."""
    from synth import api
    from synth.model.frontier import Frontier

    switch.apply()
    calls = Calls()
    calls.watch(switch)
    try:
        found = api.frontier(problem.topology, problem.collective, fresh=True, jobs=JOBS, **problem.options)
    except SynthError as error:
        return {"error": f"{type(error).__name__}: {error}"[:200], "calls": calls.finished()}
    if isinstance(found, Frontier):
        points = [
            [
                p.steps,
                str(p.rounds_per_chunk),
                p.status,
                str(p.bound.value),
                p.construction,
                p.bound.certificate.get("kind", ""),
            ]
            for p in found.points
        ]
        left = [[o.steps, str(o.lower), None if o.upper is None else str(o.upper), o.reason] for o in found.open]
        return {"points": points, "open": left, "complete": found.complete, "calls": calls.finished()}
    points = [
        [
            p.steps,
            str(p.rounds_per_chunk),
            "optimal" if p.rounds_per_chunk == found.bound else "best-known",
            str(found.bound),
            p.construction,
        ]
        for p in found.points
    ]
    return {"points": points, "open": list(found.open), "complete": None, "calls": calls.finished()}


def run(problem: Problem, switch: Switch) -> dict:
    """Return `answer` of a forked process, with its CPU and wall seconds."""
    read, write = os.pipe()
    began, child = time.monotonic(), os.fork()
    if not child:
        os.close(read)
        os.setpgid(0, 0)
        signal.alarm(SECONDS)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        with tempfile.TemporaryDirectory(prefix="synth-bench-") as cache:
            os.environ["SYNTH_CACHE"] = cache
            try:
                text = json.dumps(answer(problem, switch))
            except Exception as error:
                text = json.dumps({"error": f"{type(error).__name__}: {error}"[:300]})
            from synth.solvers.processes import pool

            pool.stop()
        with os.fdopen(write, "w") as stream:
            stream.write(text)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    _, _, usage = os.wait4(child, 0)
    found = json.loads(text) if text else {"error": f"stopped after {SECONDS} s"}
    return {"cpu": cpu(usage), "wall": round(time.monotonic() - began, 2), **found}


def cpu(usage: resource.struct_rusage) -> float:
    """User and system seconds."""
    return round(usage.ru_utime + usage.ru_stime, 2)


# ------------------------------------------------------------ comparison


def changes(before: dict, after: dict) -> list[str]:
    """Return what is worse: a lost answer, a lost proof, an R/C above `WORSE` times that before, at each S."""
    if "points" not in after:
        return [] if "points" not in before else [after["error"]]
    if "points" not in before:
        return []
    worse = []
    if before["complete"] and not after["complete"]:
        worse.append("not complete")
    for steps, value, status, *_ in before["points"]:
        best = min((Fraction(v) for s, v, *_ in after["points"] if s <= steps), default=None)
        if best is None or best > Fraction(value) * WORSE:
            worse.append(f"S={steps}: {value} → {best}")
        elif status == "optimal" and best == Fraction(value) and not _proved(after, steps, best):
            worse.append(f"S={steps}: {value} not proved")
    return worse


def _proved(found: dict, steps: int, value: Fraction) -> bool:
    """True where some point with at most so many steps and this R/C is optimal."""
    return any(s <= steps and Fraction(v) == value and status == "optimal" for s, v, status, *_ in found["points"])


def main(arguments: list[str] | None = None) -> int:
    """Measure, or print the table of what was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.ablation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAME", help="switches of these names; 'a|b' for a or b")
    parser.add_argument("--problems", default="", metavar="TEXT", help="problems whose name contains TEXT; 'a|b'")
    parser.add_argument("--before", type=Path, metavar="FILE.json", help="the result of an earlier commit")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin no run after N minutes of CPU")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "ablation.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    document: dict = {"setting": where(), "commits": [], "jobs": JOBS, "seed": 0, "rows": {}}
    if given.output.exists():
        document |= json.loads(given.output.read_text(encoding="utf-8"))
    if given.fresh:
        document = {"setting": where(), "commits": [], "jobs": JOBS, "seed": 0, "rows": {}}
    if given.before:
        document["before"] = _without_calls(json.loads(given.before.read_text(encoding="utf-8")))
    if not given.table:
        _load()
        document["setting"] = where()
        commits = document["commits"]
        left = inf if given.minutes is None else given.minutes * 60
        chosen = [p for p in problems() if any(part in p.name for part in given.problems.split("|"))]
        for problem, switch in runs(chosen, given.only.split("|") if given.only else [], document["rows"]):
            if left <= 0:
                break
            found = run(problem, switch)
            left -= found["cpu"]
            document["rows"].setdefault(problem.name, {})[switch.name] = found
            commits += [] if document["setting"]["commit"] in commits else [document["setting"]["commit"]]
            print(problem.name, switch.name, found["cpu"], found["wall"], found.get("error", ""), file=sys.stderr)
            given.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        keep(document, table(document), given.output)
    print(table(document))
    return 0


def _without_calls(document: dict) -> dict:
    """Return the commit and the runs as they are of another document, without the calls of engines."""
    rows: dict[str, dict] = {}
    for problem, row in document["rows"].items():
        rows[problem] = {key: value for key, value in row["none"].items() if key != "calls"}
    return {"commit": document["setting"]["commit"], "rows": rows}


def _load() -> None:
    """Import the libraries that most runs need, so that forks share them."""
    import scipy.optimize  # noqa: F401

    import synth.pareto.combining.combining_sweep
    import synth.pareto.sweep
    import synth.scale.search  # noqa: F401


def runs(chosen: Sequence[Problem], names: Sequence[str], rows: Mapping) -> Iterator[tuple[Problem, Switch]]:
    """Yield the runs that `rows` lack: each problem as it is, then the switches that can change it.

    `rows` must have each run when the next one is asked for. The problems that took the least CPU come first.
    """
    none = Switch("none", {})
    for problem in chosen:
        if "none" not in rows.get(problem.name, {}):
            yield problem, none
    switches = SWITCHES if not names else [by_name(name) for name in names if name != "none"]
    for problem in sorted(chosen, key=lambda one: rows[one.name]["none"]["cpu"]):
        known = rows[problem.name]
        for switch in switches:
            if switch.name not in known and reaches(known["none"], switch):
                yield problem, switch


def reaches(run: Mapping, switch: Switch) -> bool:
    """Return True if a run as it is calls an engine of `switch`."""
    return not switch.engines or any(call.startswith(switch.engines) for call in run.get("calls", {}))


def table(document: dict) -> str:
    """The measurement as Markdown."""
    none = {problem: row["none"] for problem, row in document["rows"].items() if "none" in row}
    total = seconds(sum(run["cpu"] for run in none.values()))
    lines = [
        "# The worth of each engine and heuristic\n",
        f"{len(none)} problems, {total} CPU seconds as they are. An R/C above 1.01 times that before,"
        f" a lost proof or a lost answer is worse. {setting(document['setting'])}\n",
        *([f"Runs of the commits {', '.join(document['commits'])}.\n"] if len(document["commits"]) > 1 else []),
        *([document["remark"] + "\n"] if "remark" in document else []),
    ]
    if "before" in document:
        lines += _together(document["before"], none)
    names = dict.fromkeys(name for row in document["rows"].values() for name in row if name != "none")
    rows = []
    for name in names:
        pairs = {p: (row["none"], row[name]) for p, row in document["rows"].items() if name in row}
        rows.append((name, *_compared(pairs)))
    head = ("switched off", "problems>", "worse>", "better>", "CPU ×>", "what is worse")
    lines += ["## Deleted\n", markdown(("deleted", "why"), DELETED), "Rings: " + RINGS + "\n"]
    lines += ["## One switched off at a time, on problems that reach it\n", markdown(head, rows), _calls(none)]
    return "\n".join(lines)


def _together(before: dict, none: dict[str, dict]) -> list[str]:
    """Return the section on all deletions together, and on the intervals that changed."""
    pairs = {p: (run, none[p]) for p, run in before["rows"].items() if p in none}
    head = ("", "problems>", "worse>", "better>", "CPU ×>", "what is worse")
    combining = {p: pair for p, pair in pairs.items() if p.endswith("scan")}
    others = {p: pair for p, pair in pairs.items() if p not in combining}
    intervals = []
    for problem, (old, new) in combining.items():
        if old.get("points") != new.get("points"):
            intervals.append((problem, _points(old), _points(new)))
    return [
        "## All deletions together\n",
        f"Against commit {before['commit']}. Scans are judged apart: there a simple search matters more than"
        " the last per cent.\n",
        markdown(head, [("scans", *_compared(combining)), ("all others", *_compared(others))]),
        markdown(("scan", "before", "now"), intervals),
    ]


def _points(run: dict) -> str:
    """Return ``S: R/C`` of each point, with the bound of those that are not proved."""
    texts = []
    for steps, value, status, bound, *_ in run.get("points", []):
        texts.append(f"{steps}: {value}" + ("" if status == "optimal" else f" (≥ {bound})"))
    return ", ".join(texts)


def _compared(pairs: Mapping[str, tuple[dict, dict]]) -> tuple[str, ...]:
    """Return the cells of a comparison: problems, worse ones, better ones, ratio of CPU seconds, and what is worse."""
    before, after = sum(a["cpu"] for a, _ in pairs.values()), sum(b["cpu"] for _, b in pairs.values())
    worse = [f"{problem}: {', '.join(lost)}" for problem, (a, b) in pairs.items() if (lost := changes(a, b))]
    better = sum(bool(changes(b, a)) for a, b in pairs.values())
    ratio = f"{after / before:.2f}" if before else ""
    return str(len(pairs)), str(len(worse)), str(better), ratio, "<br>".join(worse[:8])


def _calls(none: dict[str, dict]) -> str:
    """Return the table of engines: calls, answers and CPU seconds over all problems."""
    total: dict[str, list] = {}
    for run in none.values():
        for name, (calls, answered, cpu_seconds) in run.get("calls", {}).items():
            row = total.setdefault(name, [0, 0, 0, 0.0])
            row[0] += 1
            row[1] += calls
            row[2] += answered
            row[3] += cpu_seconds
    rows = []
    for name, (number, calls, answered, cpu_seconds) in sorted(total.items()):
        rows.append((name, str(number), str(calls), str(answered), seconds(cpu_seconds)))
    head = ("engine", "problems>", "calls>", "answers>", "CPU s>")
    return "## Calls and answers of each engine\n\n" + markdown(head, rows)


if __name__ == "__main__":
    from bench import ablation  # by this name helpers find `in_helper`

    sys.exit(ablation.main())
