"""The frontier of a machine and a collective by the engine that suits it: exact synthesis with its log, or flow
methods."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import InfeasibleError, SynthError, UsageError
from synth.frontiers.incumbents import seeds
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.frontier import Frontier
from synth.model.schedule import canonical, problem_fingerprint
from synth.model.topology import Topology
from synth.pareto.events import Event, Listener, NoBoundError, Options, SweepInterrupted
from synth.solvers.processes.deadline import until

if TYPE_CHECKING:
    from synth.model.scale_frontier import Large
    from synth.pareto.sweep import Sweep

ENGINES = ("auto", "exact", "flow")
# Above this many ranks `auto` takes the flow methods: exact synthesis would spend its budget without an end.
EXACT_RANKS = 64
# And of these collectives, whose units are pairs of ranks, above so many: the flow methods' bounds and points are no
# worse, in seconds.
EXACT_PAIRED = {"alltoall": 40}
# What greedy schedules may take of a time limit, which is one for them and the sweep.
SEEDED = 0.4
# Seconds of a time limit that are kept for flow methods above so many ranks, and no more than this share of it: they
# take 2 to 3.
KEPT, KEPT_SHARE, KEPT_RANKS = 3.0, 0.4, 16


def engine_of(engine: str, machine: Topology, collective: str | Path | Collective) -> str:
    """ "exact" or "flow": what `engine` means for this machine and collective. Raises UsageError."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; exact, flow and auto exist")
    if engine != "auto":
        return engine
    from synth.model.scale_frontier import COLLECTIVES

    try:
        name = collective.name if isinstance(collective, Collective) else named_collective(str(collective), 2).name
    except UsageError:  # a file, uneven sizes, or no such name: the exact side says which
        return "exact"
    return "flow" if machine.ranks > exact_ranks(name) and name in COLLECTIVES else "exact"


def exact_ranks(name: str) -> int:
    """The most ranks for which `auto` takes exact synthesis of this collective, where flow methods know it."""
    return EXACT_PAIRED.get(name, EXACT_RANKS)


def flow_task(
    machine: Topology, collective: str | Path | Collective, roots: Sequence[int] = (), sizes: Sequence | None = None
) -> tuple[str, int]:
    """Name and root of a collective that flow methods know. Raises UsageError."""
    from synth.model.scale_frontier import COLLECTIVES

    small = collective if isinstance(collective, Collective) else None
    name = small.name if small else named_collective(str(collective), 2, ()).name
    if name not in COLLECTIVES or sizes is not None:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {name} use --engine exact")
    chosen = list(small.roots if small else roots) or [0]
    if len(chosen) > 1 or not 0 <= chosen[0] < machine.ranks:
        raise UsageError(f"roots {','.join(map(str, chosen))}: flow methods take one root of 0..{machine.ranks - 1}")
    return name, chosen[0]


def flow(
    machine: Topology, name: str, root: int = 0, on_event: Listener | None = None, *, time_limit: float | None = None
) -> Large:
    """The frontier by flow methods; `Large.open` says what `time_limit` (seconds) left undone.

    Raises InfeasibleError, UsageError for a collective that they do not know, SweepInterrupted with what there is on
    Ctrl-C.
    """
    from synth.scale.search import frontier

    tell = (lambda text: on_event(Event("query", text))) if on_event else (lambda text: None)
    try:
        found = frontier(machine, name, root, progress=tell, time_limit=time_limit)
    except InfeasibleError as error:
        raise labelled(error, machine.labels) from None
    if found.interrupted:
        raise SweepInterrupted(found, None)
    return found


def exact(
    machine: Topology,
    task: Collective,
    options: Options,
    *,
    sweep: str = "guided",
    fresh: bool = False,
    log: Path | None = None,
    on_event: Listener | None = None,
) -> Frontier:
    """The frontier by exact synthesis; the same call continues from `log` (default: a file in the cache directory)
    unless `fresh`.

    Raises InfeasibleError when no schedule exists, SweepInterrupted (with the partial frontier) on Ctrl-C, NoBoundError
    where a time limit came before any bound, SynthError where a `log` that was asked for cannot be written or is no
    log.
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
        with until(None if options.time_limit is None else options.time_limit * SEEDED):
            first = seeds(machine, network, task, options.deterministic) if free else ()
        given = network, task, options, record, on_event or (lambda event: None), notes, machine.labels, first
        return _kind(sweep)(*given, started=began).run()
    except InfeasibleError as error:
        record.close(finished=True)
        raise labelled(error, machine.labels) from None
    except NoBoundError:
        record.close(finished=False)
        raise


def flows_know(machine: Topology, task: Collective, sizes: Sequence | None) -> bool:
    """Whether flow methods take `task`: a collective by its name, with one root at most."""
    from synth.model.scale_frontier import COLLECTIVES

    if sizes is not None or task.name not in COLLECTIVES or len(task.roots) > 1:
        return False
    return task == named_collective(task.name, machine.ranks, task.roots)


def kept(machine: Topology, task: Collective, engine: str, sizes: Sequence | None, time_limit: float | None) -> float:
    """Seconds of `time_limit` that "auto" keeps for flow methods, which have something for many ranks sooner than exact
    synthesis."""
    if time_limit is None or engine != "auto" or machine.ranks <= KEPT_RANKS or not flows_know(machine, task, sizes):
        return 0.0
    return min(KEPT, KEPT_SHARE * time_limit)


def helped(
    found: Frontier,
    machine: Topology,
    engine: str,
    sizes: Sequence | None,
    options: Options,
    on_event: Listener | None = None,
    *,
    time_limit: float | None = None,
) -> Frontier:
    """`found` with points of the flow methods where `engine` is "auto" and something was left open that they may
    improve.

    They may take `time_limit` seconds. Raises SweepInterrupted with what there is on Ctrl-C.
    """
    task = found.collective
    if engine != "auto" or not found.open or not flows_know(machine, task, sizes):
        return found
    root = task.roots[0] if task.roots else 0
    from synth.frontiers.merge_scale_points import mixed

    tell = (lambda text: on_event(Event("query", text))) if on_event else (lambda text: None)
    asked = {"allows": options.allows, "alike": options.same_bits, "progress": tell, "time_limit": time_limit}
    try:
        return mixed(found, machine, task.name, root, **asked)
    except SweepInterrupted:  # which has the points by then
        raise
    except KeyboardInterrupt:
        raise SweepInterrupted(found, None) from None


def seeded(log: Path, machine: Topology, task: Collective, options: Options, known: Sequence[dict]) -> Path | None:
    """`log` with the documents of `known` points in it, unless it holds records of this question; None where it cannot
    be written."""
    from synth.pareto.log import Log

    record = Log(log, _key(problem_fingerprint(machine.network(), task), options, "guided"))
    if record.path is not None and not record.records:
        for point in known:
            record.append({"kind": "point", "point": point})
    record.close(finished=False)
    return record.path


def cut_short(machine: Topology, task: Collective, options: Options, log: Path | None, why: str) -> Frontier:
    """What is known of a question whose sweep was ended from outside: the points in its log, and an interval where they
    stop.

    The bound is the one that the log holds, checked again, else a quick one. Raises InfeasibleError.
    """
    from synth.pareto.log import Log
    from synth.pareto.resume import rest

    network = machine.network()
    record = Log(log, _key(problem_fingerprint(network, task), options, "guided"))
    record.close(finished=False)
    return rest(network, task, record.records, why, machine.notes, machine.labels)


def _kind(sweep: str) -> type[Sweep]:
    if sweep == "blind":
        from synth.pareto.sccl_sweep import ScclSweep

        return ScclSweep
    if sweep != "guided":
        raise UsageError(f"unknown sweep {sweep!r}; guided and blind exist")
    from synth.pareto.sweep import Sweep

    return Sweep


def _key(fingerprint: str, options: Options, sweep: str) -> str:
    """What a log belongs to: the problem and every option that changes what is asked."""
    how = [
        options.max_steps, options.max_chunks, options.encoding, options.solver, sweep, options.seed, options.same_bits,
        options.deterministic, options.proof is not None, options.max_extra_rounds, options.extra_memory,
    ]  # fmt: skip
    return hashlib.sha256(canonical([fingerprint, *how])).hexdigest()


def labelled(error: InfeasibleError, labels: Sequence[int]) -> InfeasibleError:
    """The error with the machine's own number of every rank that it names, where an allocation renumbered ranks."""
    if not (error.certificate or {}).get("pair"):
        return error
    named = [r for r in map(int, re.findall(r"\brank (\d+)", str(error))) if r < len(labels) and labels[r] != r]
    if not named:
        return error
    own = ", ".join(f"rank {r} here is the machine's {labels[r]}" for r in dict.fromkeys(named))
    return InfeasibleError(f"{error}; {own}", error.certificate)
