"""Choice of the engine for a machine and a collective: exact synthesis with its log, or flow methods."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import InfeasibleError, SynthError, UsageError
from synth.frontiers.incumbents import find_incumbents
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.frontier import Frontier
from synth.model.schedule import canonical, problem_fingerprint
from synth.model.topology import Topology
from synth.pareto.events import Event, Listener, NoBoundError, Options, SweepInterrupted
from synth.solvers.processes.deadline import Deadline, time_limited

if TYPE_CHECKING:
    from synth.model.scale_frontier import Large
    from synth.pareto.sweep import Sweep

ENGINES = ("auto", "exact", "flow")
# Above this many ranks "auto" means flow methods: exact synthesis would spend its budget without an end.
EXACT_RANKS = 64
# The same number for collectives whose units are pairs of ranks. Above it flow methods have bounds and points that are
# no worse, in seconds.
EXACT_PAIRED = {"alltoall": 40}
# Share of a time limit, which is one for incumbents and sweep, that incumbents may take.
INCUMBENT_SHARE = 0.4
# Seconds of a time limit that are reserved for flow methods, which take 2 to 3; the maximum share of the time limit for
# them; and the number of ranks above which they are reserved.
FLOW_SECONDS, FLOW_SHARE, FLOW_RANKS = 3.0, 0.4, 16


def engine_of(engine: str, machine: Topology, collective: str | Path | Collective) -> str:
    """Return the engine, "exact" or "flow", that `engine` means for this machine and collective. Raises UsageError."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; exact, flow and auto exist")
    if engine != "auto":
        return engine
    from synth.model.scale_frontier import COLLECTIVES

    try:
        name = collective.name if isinstance(collective, Collective) else named_collective(str(collective), 2).name
    except UsageError:  # a file, uneven sizes, or an unknown name: exact synthesis reports which
        return "exact"
    return "flow" if machine.ranks > exact_ranks(name) and name in COLLECTIVES else "exact"


def exact_ranks(name: str) -> int:
    """Return the maximum ranks for which "auto" means exact synthesis of a collective that flow methods know."""
    return EXACT_PAIRED.get(name, EXACT_RANKS)


def flow_collective(
    machine: Topology, collective: str | Path | Collective, roots: Sequence[int] = (), sizes: Sequence | None = None
) -> tuple[str, int]:
    """Return name and root of a collective for flow methods. Raises UsageError where they do not know it."""
    from synth.model.scale_frontier import COLLECTIVES

    value = collective if isinstance(collective, Collective) else None
    name = value.name if value else named_collective(str(collective), 2, ()).name
    if name not in COLLECTIVES or sizes is not None:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {name} use --engine exact")
    used_roots = list(value.roots if value else roots) or [0]
    if len(used_roots) > 1 or not 0 <= used_roots[0] < machine.ranks:
        raise UsageError(
            f"roots {','.join(map(str, used_roots))}: flow methods take one root of 0..{machine.ranks - 1}"
        )
    return name, used_roots[0]


def synthesize_flow(
    machine: Topology, name: str, root: int = 0, on_event: Listener | None = None, *, time_limit: float | None = None
) -> Large:
    """Return the frontier by flow methods. `Large.open` lists the searches that `time_limit` (seconds) ended.

    Raises InfeasibleError, UsageError for a collective that they do not know, and SweepInterrupted with the points so
    far on Ctrl-C.
    """
    from synth.scale.search import frontier

    tell = (lambda text: on_event(Event("query", text))) if on_event else (lambda text: None)
    try:
        scale_frontier = frontier(machine, name, root, progress=tell, time_limit=time_limit)
    except InfeasibleError as error:
        raise with_machine_ranks(error, machine.labels) from None
    if scale_frontier.interrupted:
        raise SweepInterrupted(scale_frontier, None)
    return scale_frontier


def synthesize_exact(
    machine: Topology,
    task: Collective,
    options: Options,
    *,
    sweep: str = "guided",
    fresh: bool = False,
    log: Path | None = None,
    on_event: Listener | None = None,
) -> Frontier:
    """Return the frontier by exact synthesis.

    `log`: file from which the same call continues unless `fresh` (default: a file in the cache directory). Raises
    InfeasibleError where no schedule exists, SweepInterrupted with the partial frontier on Ctrl-C, NoBoundError where a
    time limit came before any bound, and SynthError where an explicit `log` cannot be written or is no log.
    """
    from synth.pareto.log import Log, default_directory, foreign

    began, network = time.monotonic(), machine.network()
    key = _key(problem_fingerprint(network, task), options, sweep)
    if log is not None and foreign(log):
        raise SynthError(f"{log}: is no log of a sweep, and is not overwritten; name another file")
    record = Log(log or default_directory() / f"{key[:24]}.jsonl", key, fresh)
    if record.trouble and log is not None:
        raise SynthError(record.trouble)
    notes = machine.notes + ((f"no log: {record.trouble}",) if record.trouble else ())
    free = sweep == "guided" and options.encoding == "auto" and options.solver == "auto" and not options.limits
    try:
        with time_limited(Deadline.after(options.time_limit).share(INCUMBENT_SHARE)):
            incumbents = ()
            if free:
                incumbents = find_incumbents(machine, network, task, options.deterministic, options.same_bits)
        listener = on_event or (lambda event: None)
        state = network, task, options, record, listener, notes, machine.labels, incumbents
        return _sweep_class(sweep)(*state, started=began).run()
    except InfeasibleError as error:
        record.close(finished=True)
        raise with_machine_ranks(error, machine.labels) from None
    except NoBoundError:
        record.close(finished=False)
        raise


def flows_know(machine: Topology, task: Collective, sizes: Sequence | None) -> bool:
    """Return True where flow methods know `task`: a named collective of equal sizes with one root at most."""
    from synth.model.scale_frontier import COLLECTIVES

    if sizes is not None or task.name not in COLLECTIVES or len(task.roots) > 1:
        return False
    return task == named_collective(task.name, machine.ranks, task.roots)


def flow_seconds(
    machine: Topology, task: Collective, engine: str, sizes: Sequence | None, time_limit: float | None
) -> float:
    """Return the seconds of `time_limit` that "auto" reserves for flow methods.

    For many ranks they have points sooner than exact synthesis.
    """
    if time_limit is None or engine != "auto" or machine.ranks <= FLOW_RANKS or not flows_know(machine, task, sizes):
        return 0.0
    return min(FLOW_SECONDS, FLOW_SHARE * time_limit)


def with_flow_points(
    found: Frontier,
    machine: Topology,
    engine: str,
    sizes: Sequence | None,
    options: Options,
    on_event: Listener | None = None,
    *,
    time_limit: float | None = None,
) -> Frontier:
    """Return the frontier `found` with points of flow methods, where `engine` is "auto" and it has an open interval.

    They may take `time_limit` seconds. Raises SweepInterrupted with the points so far on Ctrl-C.
    """
    task = found.collective
    if engine != "auto" or not found.open or not flows_know(machine, task, sizes):
        return found
    root = task.roots[0] if task.roots else 0
    from synth.frontiers.merge_scale_points import merge_scale_points

    tell = (lambda text: on_event(Event("query", text))) if on_event else (lambda text: None)
    limits = {"allows": options.allows, "alike": options.same_bits, "progress": tell, "time_limit": time_limit}
    try:
        return merge_scale_points(found, machine, task.name, root, **limits)
    except SweepInterrupted:  # it holds the points so far
        raise
    except KeyboardInterrupt:
        raise SweepInterrupted(found, None) from None


def log_with_points(
    log: Path, machine: Topology, task: Collective, options: Options, known: Sequence[dict]
) -> Path | None:
    """Write the documents of `known` points into `log`, unless that has records of this question; return its path.

    The path is None where the log cannot be written.
    """
    from synth.pareto.log import Log

    record = Log(log, _key(problem_fingerprint(machine.network(), task), options, "guided"))
    if record.path is not None and not record.records:
        for point in known:
            record.append({"kind": "point", "point": point})
    record.close(finished=False)
    return record.path


def frontier_from_log(machine: Topology, task: Collective, options: Options, log: Path | None, why: str) -> Frontier:
    """Return the frontier of a sweep that was ended from outside: the points of its log, and an interval after them.

    Its bound is the one in the log, checked again, else a quick one. `why`: reason in the interval. Raises
    InfeasibleError.
    """
    from synth.pareto.log import Log
    from synth.pareto.resume import frontier_from_records

    network = machine.network()
    record = Log(log, _key(problem_fingerprint(network, task), options, "guided"))
    record.close(finished=False)
    return frontier_from_records(network, task, record.records, why, machine.notes, machine.labels)


def _sweep_class(sweep: str) -> type[Sweep]:
    if sweep == "blind":
        from synth.pareto.sccl_sweep import ScclSweep

        return ScclSweep
    if sweep != "guided":
        raise UsageError(f"unknown sweep {sweep!r}; guided and blind exist")
    from synth.pareto.sweep import Sweep

    return Sweep


def _key(fingerprint: str, options: Options, sweep: str) -> str:
    """Return the key of a log: a digest of the problem and of every option that changes the queries."""
    choices = [
        options.max_steps, options.max_chunks, options.encoding, options.solver, sweep, options.seed, options.same_bits,
        options.deterministic, options.proof is not None, options.max_extra_rounds, options.extra_memory,
    ]  # fmt: skip
    return hashlib.sha256(canonical([fingerprint, *choices])).hexdigest()


def with_machine_ranks(error: InfeasibleError, labels: Sequence[int]) -> InfeasibleError:
    """Return the error with the machine's own number of each rank in it, where an allocation renumbered ranks."""
    if not (error.certificate or {}).get("pair"):
        return error
    ranks = [r for r in map(int, re.findall(r"\brank (\d+)", str(error))) if r < len(labels) and labels[r] != r]
    if not ranks:
        return error
    numbers = ", ".join(f"rank {r} here is the machine's {labels[r]}" for r in dict.fromkeys(ranks))
    return InfeasibleError(f"{error}; {numbers}", error.certificate)
