"""What notebooks and the command line call. Every function takes names or values and returns values.

`topology` arguments are a name in the grammar of docs/topologies.md, a path to a file or dump, or a `Topology`;
`collective` arguments a name, a path to a file, or a `Collective`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from synth.collective import Collective
from synth.collective import collective as _named_collective
from synth.errors import InfeasibleError, SynthError, UsageError
from synth.frontier import Frontier, LowerBound, Point
from synth.pareto.events import Listener, Options
from synth.schedule import Problem, Schedule, canonical, problem_fingerprint
from synth.topology import Network, Topology
from synth.verdict import Budget, Unsat, Verdict

# Above this many ranks `auto` takes the flow methods: exact synthesis would spend its budget without an end.
EXACT_RANKS = 64
LARGE_SCHEMA = "synth.large/1"

if TYPE_CHECKING:
    from synth.export.package import Exported
    from synth.flows.allocations import Allocation, Rates
    from synth.flows.explain import Explanation
    from synth.flows.groups import Together
    from synth.groups import Group
    from synth.large import Large
    from synth.lint.report import Report
    from synth.program.events import Event
    from synth.program.program import InPlace, Program
    from synth.runtime.emulation import Emulated
    from synth.runtime.measured import Candidate, Measured
    from synth.runtime.outcome import Ran


def topology(
    spec: str | Path | Topology,
    *,
    file: str | Path | None = None,
    ranks: str | Sequence[int] | None = None,
    without: Sequence[str] = (),
    degrade: Sequence[str] = (),
    links: str | Path | None = None,
) -> Topology:
    """A machine by name, file, dump or value, with the user's changes: an allocation, broken, slow or measured links."""
    from synth.topologies import modify

    if isinstance(spec, Topology) and file is None:
        return modify.apply(spec, ranks=ranks, without=without, degrade=degrade, links=links)
    base = _load(Path(file)) if file is not None else _named_topology(spec)
    return modify.apply(base, ranks=ranks, without=without, degrade=degrade, links=links)


def _named_topology(spec: str | Path | Topology) -> Topology:
    from synth import topologies

    if isinstance(spec, Topology):
        return spec
    if isinstance(spec, Path) or os.sep in str(spec) or Path(str(spec)).is_file():
        return _load(Path(spec))
    return topologies.topology(str(spec))


def _load(path: Path) -> Topology:
    from synth.topologies import importers

    return importers.load(path)


def collective(name: str | Path | Collective, ranks: int, roots: Sequence[int] = (), sizes: Sequence | None = None) -> Collective:
    """A collective by name, or from a file with pre, post and combining."""
    if isinstance(name, Collective):
        if name.ranks != ranks:
            raise UsageError(f"{name.name} is over {name.ranks} ranks, the topology has {ranks}")
        return name
    if isinstance(name, Path) or Path(str(name)).suffix in (".yaml", ".yml", ".json"):
        from synth.collective_file import load

        return load(Path(name), ranks)
    return _named_collective(str(name), ranks, roots, sizes)


def pareto(
    topology: str | Path | Topology,
    collective: str | Path | Collective,
    *,
    roots: Sequence[int] = (),
    sizes: Sequence | None = None,
    max_steps: int | None = None,
    max_chunks: int | None = None,
    encoding: str = "auto",
    solver: str = "auto",
    sweep: str = "guided",
    time_limit: float | None = None,
    jobs: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    same_bits: bool = False,
    proof: Path | None = None,
    fresh: bool = False,
    log: Path | None = None,
    on_event: Listener | None = None,
    engine: str = "auto",
) -> Frontier | Large:
    """The Pareto frontier between steps and rounds per chunk, each point with its proof.

    `engine`: "exact" synthesis, "flow" methods (for any size: a `Large`, every point with its certified gap), or "auto":
    flow above `EXACT_RANKS` ranks for the collectives that it knows.

    Seconds are wall time. A budget that runs out is no error: what it left open stands in `Frontier.open`. Raises
    InfeasibleError when no schedule exists, SweepInterrupted (with the partial frontier) on Ctrl-C. The same call
    continues from `log` (default: a file in the cache directory) unless `fresh`.
    """
    from synth.pareto.log import Log, default_directory
    from synth.pareto.sweep import Sweep

    if sweep not in ("guided", "blind"):
        raise UsageError(f"unknown sweep {sweep!r}; guided and blind exist")
    machine = _named_topology(topology)
    chosen = _engine(engine, machine, collective)
    if chosen == "flow":
        return _flow(machine, collective, roots, sizes, on_event)
    network = machine.network()
    task = _collective(collective, network.ranks, roots, sizes)
    options = Options(
        max_steps, max_chunks, encoding, solver, time_limit, jobs=_jobs(jobs), seed=seed, deterministic=deterministic,
        same_bits=same_bits, proof=proof,
    )  # fmt: skip
    how = [max_steps, max_chunks, encoding, solver, sweep, seed, same_bits, deterministic, proof is not None]
    key = _digest([problem_fingerprint(network, task), *how])
    record = Log(log or default_directory() / f"{key[:24]}.jsonl", key, fresh)
    if record.trouble and log is not None:
        raise SynthError(record.trouble)
    notes = machine.notes + ((f"no log: {record.trouble}",) if record.trouble else ())
    kind: type[Sweep] = Sweep
    if sweep == "blind":
        from synth.pareto.blind import BlindSweep as kind
    try:
        return kind(network, task, options, record, on_event or (lambda event: None), notes, machine.labels).run()
    except InfeasibleError as error:
        raise _labelled(error, machine.labels) from None


def _labelled(error: InfeasibleError, labels: Sequence[int]) -> InfeasibleError:
    """The error with the machine's own number of the rank that its certificate names, where an allocation renumbered ranks."""
    pair = (error.certificate or {}).get("pair")
    if not pair or pair[1] >= len(labels) or labels[pair[1]] == pair[1]:
        return error
    return InfeasibleError(f"{error}; rank {pair[1]} here is the machine's {labels[pair[1]]}", error.certificate)


def _engine(engine: str, machine: Topology, collective: str | Path | Collective) -> str:
    if engine not in ("exact", "flow", "auto"):
        raise UsageError(f"unknown engine {engine!r}; exact, flow and auto exist")
    if engine != "auto":
        return engine
    from synth.bulk import COLLECTIVES

    try:
        name = collective.name if isinstance(collective, Collective) else _named_collective(str(collective), 2).name
    except UsageError:  # a file, uneven sizes, or no such name: the exact side says which
        return "exact"
    return "flow" if machine.ranks > EXACT_RANKS and name in COLLECTIVES else "exact"


def large_bound(
    topology: str | Path | Topology, collective: str | Path | Collective, *, roots: Sequence[int] = (), engine: str = "flow"
) -> Large | None:
    """The bound of a machine of any size by flow methods, with its certificate; None where `engine` "auto" leaves it to `bound`."""
    from synth.flows.large import bound as flow_bound

    machine = _named_topology(topology)
    if _engine(engine, machine, collective) == "exact":
        return None
    name, root = _flow_task(machine, collective, roots, None)
    return flow_bound(machine, name, root)


def _flow_task(
    machine: Topology, collective: str | Path | Collective, roots: Sequence[int], sizes: Sequence | None
) -> tuple[str, int]:  # fmt: skip
    """Name and root of a collective that flow methods know. Raises UsageError."""
    from synth.bulk import COLLECTIVES

    small = collective if isinstance(collective, Collective) else None
    name = small.name if small else _named_collective(str(collective), 2, ()).name
    if name not in COLLECTIVES or sizes is not None:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {name} use --engine exact")
    chosen = list(small.roots if small else roots) or [0]
    if len(chosen) > 1 or not 0 <= chosen[0] < machine.ranks:
        raise UsageError(f"roots {','.join(map(str, chosen))}: flow methods take one root of 0..{machine.ranks - 1}")
    return name, chosen[0]


def _flow(
    machine: Topology, collective: str | Path | Collective, roots: Sequence[int], sizes: Sequence | None, on_event: Listener | None
) -> Large:  # fmt: skip
    from synth.flows.large import frontier
    from synth.pareto.events import Event

    name, root = _flow_task(machine, collective, roots, sizes)
    tell = (lambda text: on_event(Event("query", text))) if on_event else (lambda text: None)
    return frontier(machine, name, root, progress=tell)


_collective = collective  # for the functions that have a parameter of that name


def _digest(doc: object) -> str:
    import hashlib

    return hashlib.sha256(canonical(doc)).hexdigest()


def _jobs(jobs: int | None) -> int:
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs is {jobs}; it must be at least 1")
    return jobs or min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


def solve(
    topology: str | Path | Topology,
    collective: str | Path | Collective,
    chunks: int,
    steps: int,
    rounds: int,
    *,
    roots: Sequence[int] = (),
    sizes: Sequence | None = None,
    encoding: str = "auto",
    solver: str = "auto",
    time_limit: float | None = None,
    jobs: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    proof: Path | None = None,
) -> Verdict:
    """Is there a schedule with `chunks` chunks per unit, `steps` steps and `rounds` rounds? Sat, Unsat or Unknown.

    With encoding "auto" the lower bounds are asked first; Unsat then names the bound. Sat schedules have been replayed.
    Allreduce, scan and other combining collectives that are no reversal have engines of their own: "auto" only.
    """
    from synth import verify
    from synth.pareto import race
    from synth.verdict import Sat, Unknown

    if min(chunks, steps, rounds) < 1 or rounds < steps:
        raise UsageError(f"C={chunks} S={steps} R={rounds}: all at least 1, and each step has at least one round, so R >= S")
    network = _named_topology(topology).network()
    task = _collective(collective, network.ranks, roots, sizes)
    problem = Problem(network, task, chunks, steps, rounds)
    direct = task.combining and not task.reversible
    if direct and (encoding != "auto" or solver not in ("auto", "cadical")):
        raise UsageError(f"{task.name} has engines of its own, with cadical; remove --encoding and --solver")
    if encoding == "auto":
        refuted = _by_bounds(problem, proof)
        if refuted is not None:
            return refuted
    budget = Budget(time_limit, seed=seed, jobs=_jobs(jobs), deterministic=deterministic)
    try:
        if direct:
            from synth.pareto import combining

            verdict = combining.solve(problem, budget)
        else:
            verdict = race.solve(problem, budget=budget, encoding=encoding, solver=solver, proof=proof)
    finally:
        race.stop()
    if direct and isinstance(verdict, Unknown):
        from synth import bounds

        least = ceil(bounds.allreduce(network, task, steps).value * chunks)
        verdict = replace(verdict, detail=f"no schedule found; the bounds say at least {least} rounds")
    if direct and proof is not None and isinstance(verdict, Unsat):
        verdict = replace(verdict, reason=f"{verdict.reason}; no proof was written: the direct encoding has none")
    if isinstance(verdict, Sat):
        verify.schedule(verdict.schedule)
    return verdict


def _by_bounds(problem: Problem, proof: Path | None) -> Unsat | None:
    """The refutation of `problem` by a lower bound, where one is enough; its document goes to the folder `proof`."""
    from synth import bounds
    from synth.pareto import refutation

    network, task = problem.network, problem.collective
    least = bounds.steps(network, task)
    if least.value > problem.steps:
        reason, certificate = f"at least {least.value} steps are needed", least.certificate
    else:
        any_chunks = bounds.allreduce(network, task, problem.steps) if task.combining and not task.reversible else None
        fewest, per_chunks = bounds.rounds(network, task, problem.steps, problem.chunks, any_chunks)
        if fewest <= problem.rounds:
            return None
        reason = f"C={problem.chunks} in {problem.steps} steps needs at least {fewest} rounds, by a cut certificate"
        certificate = per_chunks.certificate
    return Unsat(reason, proof=None if proof is None else str(refutation.write(problem, certificate, proof)))


def bound(
    topology: str | Path | Topology, collective: str | Path | Collective, *, roots: Sequence[int] = (), sizes: Sequence | None = None,
    max_steps: int | None = None,
) -> list[tuple[int | None, LowerBound]]:  # fmt: skip
    """Every lower bound with its certificate: (0, on steps), (S, on R/C at S steps) ..., (None, on R/C at any S).

    Stops at the first S whose bound is the one for any S, or at `max_steps`. Raises InfeasibleError.
    """
    from synth import bounds
    from synth.pareto.sweep import STEPS_BEYOND

    network = _named_topology(topology).network()
    task = _collective(collective, network.ranks, roots, sizes)
    least = bounds.steps(network, task)
    found: list[tuple[int | None, LowerBound]] = [(0, least)]
    if least.value == 0:
        return found
    at = bounds.allreduce if task.combining and not task.reversible else bounds.flow
    floor = at(network, task, None)
    for steps in range(int(least.value), (max_steps or int(least.value) + STEPS_BEYOND) + 1):
        found.append((steps, at(network, task, steps)))
        if found[-1][1].value <= floor.value:
            break
    return [*found, (None, floor)]


def verify(given: str | Path | dict | Frontier | Schedule, proof: Path | None = None) -> list[str]:
    """Replay and re-check a schedule, frontier or refutation, from a file or a value; one line for each thing established.

    `proof` is the folder of proof files (default: the folder of the file). Raises VerificationError with the place of
    what is wrong, FormatError for a file that is none of these.
    """
    from synth import audit
    from synth.pareto import refutation

    if isinstance(given, str | Path) and Path(given).suffix == ".npz":
        from synth import auditlarge, bulk

        return [auditlarge.schedule(bulk.load(Path(given)))]
    doc = given if isinstance(given, dict) else given.to_json() if isinstance(given, Frontier | Schedule) else audit.read(Path(given))
    try:
        if doc.get("schema") == LARGE_SCHEMA:
            from synth import auditlarge

            return auditlarge.document(doc, Path(given).parent if isinstance(given, str | Path) else Path(), _by_name(doc))
        if doc.get("schema") == refutation.SCHEMA:
            return refutation.verify(doc, proof or (Path(given).parent if isinstance(given, str | Path) else Path()))
        return audit.document(doc)
    except SynthError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        from synth.errors import VerificationError

        raise VerificationError(f"malformed document: {error!r}") from None


def _by_name(doc: dict) -> Topology | None:
    """The machine that a large frontier names, None where that is no name but a file or a changed machine."""
    try:
        return _named_topology(str(doc["topology"]["name"]))
    except SynthError:
        return None


def explain(topology: str | Path | Topology, collective: str | Path | Collective) -> Explanation:
    """The optimal rate of a collective beside rings and double binary trees on the same links, and what limits it."""
    from synth.flows.explain import explain as explained

    machine = _named_topology(topology)
    network = machine.network()
    return explained(network, _collective(collective, network.ranks).name, machine.labels)


def allocations(
    topology: str | Path | Topology,
    names: Sequence[str] = ("broadcast", "allgather", "allreduce"),
    sizes: Sequence[int] | None = None,
    *,
    every: bool = False,
) -> list[tuple[Allocation, Rates]]:
    """The classes of allocations of a machine up to isomorphism with the optimal rates of the collectives `names`.

    `sizes`: how many GPUs (3 and more unless given); `every`: also those that the links do not connect.
    """
    from synth.flows import allocations as flows

    names = tuple(_named_collective(name, 2).name for name in names)
    return [(made, flows.rates(made.network, names)) for made in flows.classes(_named_topology(topology).network(), sizes, every=every)]


def groups(
    topology: str | Path | Topology, given: str | Path | Sequence[Group], *, chunks: int | None = None, search: bool = True
) -> Together:
    """Several process groups at once (a file, or `Group`s): the joint bound, that of each alone, and a schedule of all, replayed.

    `chunks`: chunks of each unit of data; `search=False`: no schedule.
    """
    from synth import groupcheck, verify
    from synth.flows.groups import together
    from synth.topologies.groups import load

    machine = _named_topology(topology)
    rows = load(Path(given), machine.ranks) if isinstance(given, str | Path) else given
    found = together(machine, rows, chunks=chunks, search=search)
    groupcheck.check(found.bound.certificate, found.network, found.groups)
    if found.schedule is not None:
        verify.schedule(found.schedule)
    return found


def baseline(
    name: str, topology: str | Path | Topology | Network, collective: str | Path | Collective, *, roots: Sequence[int] = (),
    pieces: int | None = None,
) -> Schedule:  # fmt: skip
    """A known algorithm on the same links, replayed: ring, tree (double binary), recursive-doubling or direct.

    `pieces`: of pipelined broadcasts and trees. Raises UsageError where the algorithm does not do the collective, or the
    links do not carry it.
    """
    from synth import verify as replay
    from synth.flows import rings
    from synth.runtime import baselines

    network = topology if isinstance(topology, Network) else _named_topology(topology).network()
    task = _collective(collective, network.ranks, roots)
    found = rings.disjoint(network).rings if name.lower() == "ring" else ()
    trees = rings.binary_trees(network.ranks) if name.lower() == "tree" else ()
    made = baselines.baseline(name, network, task, rings=found, trees=trees, pieces=pieces or baselines.PIECES)
    replay.schedule(made)
    return made


def lower(
    schedule: Schedule,
    *,
    runtime: str = "synth",
    protocol: str = "Simple",
    instances: int = 1,
    in_place: InPlace | None = None,
    fuse: bool = True,
    aggregate: bool = True,
    lanes: int | None = None,
    name: str | None = None,
) -> Program:
    """What thread blocks do to carry out `schedule`, which is replayed first, in the form that `runtime` takes.

    The options are those of synth.program.lower. Raises SynthError naming the limit of the runtime that is met.
    """
    from synth.audit import document
    from synth.program.lower import lower as lowered

    document(schedule.to_json())
    return lowered(
        schedule, runtime=runtime, protocol=protocol, instances=instances, in_place=in_place, fuse=fuse, aggregate=aggregate, lanes=lanes,
        name=name,
    )  # fmt: skip


def run(
    program: Program | Schedule | Frontier | str | Path,
    arrays: Sequence | None = None,
    executor: str = "reference",
    *,
    size: int | None = None,
    dtype: str = "float32",
    op: str = "sum",
    in_place: bool = False,
    topology: str | Path | Topology | None = None,
    collective: str | Path | Collective | None = None,
    roots: Sequence[int] = (),
    point: int | None = None,
    runtime: str | None = None,
    protocol: str | None = None,
    instances: int = 1,
    seed: int = 0,
    data: bool = True,
    bound: bool = True,
    **options: object,
) -> Ran:
    """Run a program once and compare every element of every output with the definition of its collective.

    `arrays`: the inputs by rank (their type and size count), else random ones of `size` bytes (default: 1 MiB, or the next
    size that divides). A schedule, or `point` of a frontier (from 1; default: the best at that size), is lowered first, for
    `runtime`, with `protocol` and `instances`, and brings its network; anything else takes times from `topology`, if given.
    `collective`, `roots`: what a file computes where it does not say. `runtime` also gives the bytes of a FIFO operation.
    `data=False`: only the time. `options` are the executor's: for reference depth, part, local, delays, trace.

    Raises VerificationError where an output is wrong or something is read before it is written, DeadlockError (with its
    cycle), SynthError for a size that does not divide.
    """
    from synth.runtime import calls

    machine = None if topology is None else _named_topology(topology)
    found = _opened(program, runtime, collective, roots)
    found, network = _lowered(found, point, size, runtime or "synth", protocol or "Simple", instances)
    given = {"runtime": runtime, "protocol": protocol} | options
    call = calls.Call(found, network if machine is None else machine.network(), size, dtype, op, in_place, seed, data, bound)
    return calls.run(call, arrays, executor, {name: value for name, value in given.items() if value is not None})


def bench(
    source: Program | Schedule | Frontier | str | Path,
    sizes: Sequence[int],
    executor: str = "reference",
    *,
    point: int | None = None,
    baselines: Sequence[str] = (),
    topology: str | Path | Topology | None = None,
    collective: str | Path | Collective | None = None,
    roots: Sequence[int] = (),
    protocol: str = "Simple",
    instances: int = 1,
    dtype: str = "float32",
    op: str = "sum",
    repeats: int = 5,
    warmup: int = 1,
    check: bool | None = None,
    **options: object,
) -> Measured:
    """Times over `sizes` in bytes of every point of a frontier (or `point`), or of one schedule or program, and of `baselines`
    on the links of the schedule. The reference executor's are modelled. Raises VerificationError where an output is wrong.
    """
    from synth.runtime import measure

    found = _opened(source, None, collective, roots)
    machine = None if topology is None else _named_topology(topology).network()
    candidates, network = _candidates(found, point, baselines, protocol, instances)
    how = measure.Settings(executor, dtype, op, 0, warmup, repeats, check)
    return measure.bench([candidate for candidate, _ in candidates], sizes, machine or network, how, **options)


def emulate(
    frontier: Frontier | Schedule | str | Path,
    sizes: Sequence[int],
    executor: str = "reference",
    *,
    baselines: Sequence[str] = (),
    protocol: str = "Simple",
    instances: int = 1,
) -> Emulated:
    """Predicted and emulated time of each point at each size in bytes, beside `baselines` (the ring, or direct where there is
    none, unless given), and the negative control. An execution-driven model, not a measurement.
    """
    from synth.runtime import emulation

    found = _opened(frontier, None, None, ())
    if not isinstance(found, Frontier | Schedule):
        raise UsageError("a program has no prediction; emulate a frontier or a schedule")
    if not baselines:
        baselines = ("ring",) if _has_ring(found) else ("direct",)
    candidates, network = _candidates(found, None, baselines, protocol, instances)
    entries = [
        emulation.Entry(candidate.label, schedule, candidate.program, candidate.label not in baselines)
        for candidate, schedule in candidates
        if schedule is not None
    ]
    return emulation.emulate(network or found.network, entries, sizes, executor)


def _has_ring(found: Frontier | Schedule) -> bool:
    try:
        baseline("ring", found.network, found.collective)
    except UsageError:
        return False
    return True


def _candidates(
    found: Program | Schedule | Frontier, point: int | None, baselines: Sequence[str], protocol: str, instances: int
) -> tuple[list[tuple[Candidate, Schedule | None]], Network | None]:
    """Programs to time, with the schedules that they come from, and the network of those."""
    from synth.program.program import Program
    from synth.rational import show
    from synth.runtime.measured import Candidate

    if isinstance(found, Program):
        if baselines or point is not None or instances != 1:
            raise UsageError("points, instances and baselines go with a schedule or a frontier; this is a program already")
        return [(Candidate(found.name, found), None)], None
    network = found.network
    if isinstance(found, Frontier):
        chosen = _chosen(found, point, None) if point is not None else None
        points = [(k, p.schedule) for k, p in enumerate(found.points, 1) if chosen in (None, p)]
        if not points:
            raise SynthError("this frontier has no point")
        rows: list[tuple[str, int | None, Schedule]] = [(f"point {k}", k, schedule) for k, schedule in points]
    else:
        if point is not None:
            raise UsageError("a point is chosen from a frontier; this is none")
        rows = [("schedule", None, found)]
    rows += [(name.lower(), None, baseline(name, network, found.collective)) for name in baselines]
    made = []
    for label, k, schedule in rows:
        program = lower(schedule, protocol=protocol, instances=instances)
        made.append((Candidate(label, program, k, len(schedule.steps), show(schedule.bandwidth)), schedule))
    return made, network


def trace(done: Ran) -> str:
    """The Chrome trace of a run, which Perfetto opens. Raises UsageError where `run` was not asked for it, or knew no times."""
    from synth.export.trace import chrome

    if done.execution.events is None:
        raise UsageError("this run kept no events: run it with trace=True")
    if done.network is None:
        raise UsageError("a timeline needs the times of the links: name the machine (--topo)")
    return chrome(done.program, done.execution.events)


def _opened(
    given: object, runtime: str | None, collective: str | Path | Collective | None, roots: Sequence[int]
) -> Program | Schedule | Frontier:
    """What is to be run, read from a file where it is one, and said what it computes."""
    from synth.program.program import Program

    path, root = Path(given) if isinstance(given, str | Path) else None, roots[0] if collective is None and len(roots) == 1 else None
    found = given if path is None else _read(path, None, root, runtime)
    if not isinstance(found, Program | Schedule | Frontier):
        raise UsageError(f"a {type(found).__name__} cannot be run; programs, schedules and frontiers can")
    if collective is None:
        return found
    if not isinstance(found, Program):
        raise UsageError("a schedule says which collective it is; remove --coll")
    task = _collective(collective, found.ranks, roots)
    if path is not None and task != found.collective:
        found = _read(path, task, None, runtime)
    return replace(found, collective=task) if isinstance(found, Program) else found


def _read(
    path: Path, collective: Collective | None = None, root: int | None = None, runtime: str | None = None
) -> Program | Schedule | Frontier:  # fmt: skip
    """What a file holds; a compact schedule of the flow methods (``.npz``) is written out. Raises FormatError, UsageError."""
    if path.suffix == ".npz":
        from synth import bulk
        from synth.flows.expand import schedule

        return schedule(bulk.load(path))
    from synth.export.reading import load

    return load(path, collective, root, runtime)


def _lowered(
    given: Program | Schedule | Frontier, point: int | None, size: int | None, runtime: str, protocol: str, instances: int
) -> tuple[Program, Network | None]:
    """A program, and the network that it brings if it was lowered from a schedule or a point of a frontier."""
    if isinstance(given, Frontier):
        given = _chosen(given, point, size).schedule
    elif point is not None:
        raise UsageError("a point is chosen from a frontier; this is none")
    if isinstance(given, Schedule):
        return lower(given, runtime=runtime, protocol=protocol, instances=instances), given.network
    if instances != 1:
        raise UsageError("instances are made when a schedule is lowered; this is a program already")
    return given, None


def _chosen(frontier: Frontier, point: int | None, size: int | None) -> Point:
    """The point of that number, from 1, or the best at `size` (default 1 MiB)."""
    if not frontier.points:
        raise SynthError("this frontier has no point")
    if point is None:
        return frontier.best(size or 1 << 20)
    if not 1 <= point <= len(frontier.points):
        raise UsageError(f"point {point}: the frontier has points 1 to {len(frontier.points)}")
    return frontier.points[point - 1]


def load_program(
    path: str | Path,
    *,
    point: int | None = None,
    collective: Collective | None = None,
    root: int | None = None,
    runtime: str | None = None,
    protocol: str = "Simple",
    instances: int = 1,
    in_place: InPlace | None = None,
) -> Program:
    """The Program in any file: Program as JSON or text, MSCCL-IR, a MSCCL++ plan, or a schedule or point of a frontier, lowered.

    Schedules may be compact ones (``.npz``, of the flow methods), as long as they are small enough to write out.

    `collective`, `root`: what a foreign file computes where it does not say. `runtime`: what MSCCL-IR's sizes mean, and
    what schedules are lowered for (default: this project's executors). Raises FormatError with the place.
    """
    found = _read(Path(path), collective, root, runtime)
    if not isinstance(found, Frontier | Schedule):
        return found
    if isinstance(found, Frontier):
        if point is None and len(found.points) > 1:
            raise UsageError(f"{path} has {len(found.points)} points; choose one, 1 to {len(found.points)} in the order of its table")
        found = _chosen(found, point, None).schedule
    return lower(found, runtime=runtime or "synth", protocol=protocol, instances=instances, in_place=in_place)


def lint(
    program: Program | str | Path,
    *,
    runtime: str | None = None,
    collective: str | Path | Collective | None = None,
    roots: Sequence[int] = (),
    in_place: InPlace | None = None,
    point: int | None = None,
) -> Report:
    """What is wrong with a program, or with the one in a file of any kind that `load_program` reads, and what is proved of it.

    `runtime`: whose rules hold and whose FIFOs it gets (default: this project's executors). `collective`, `roots`: what
    a file computes where it does not say. `in_place`: how it is called, where not as it claims. Raises FormatError for
    a file that cannot be read; whatever is wrong with the program is a finding.
    """
    from synth.lint import check

    if isinstance(program, str | Path):
        path, rooted = Path(program), collective is None and len(roots) == 1
        program = load_program(path, point=point, root=roots[0] if rooted else None, runtime=runtime)
        if collective is not None:
            task = _collective(collective, program.ranks, roots)
            if task != program.collective:
                program = replace(load_program(path, point=point, collective=task, runtime=runtime), collective=task)
    elif collective is not None:
        program = replace(program, collective=_collective(collective, program.ranks, roots))
    return check(program, runtime, in_place)


def export(
    source: str | Path | Frontier | Schedule | Program,
    to: str = "msccl-xml",
    *,
    runtime: str = "",
    point: int | None = None,
    every: bool = False,
    protocol: str | None = None,
    instances: int | None = None,
    in_place: InPlace | None = None,
    topology: str | Path | Topology | None = None,
    rank_map: Sequence[int] | None = None,
    assume_root: int | None = None,
    assume_nvlink: bool = False,
    assume_one_node: bool = False,
    sizes: Sequence[int] = (),
    element: int = 4,
    min_size: int = 0,
    max_size: int | None = None,
    size: int | None = None,
    collective: Collective | None = None,
    root: int | None = None,
) -> Exported:
    """The file of one program in the format `to`, or with `every` a folder of all points of a frontier.

    `topology` is the machine it is for (default: the one that the schedule names, if its links are the same): kinds of
    links are taken from it, and links that the schedule uses must exist. `rank_map[r]` is the machine's rank of rank r
    (default: the labels of an allocation, or a match). `sizes`, bytes of elements of `element` bytes, are to be
    served. Raises SynthError naming what the runtime cannot take.
    """
    from synth.export import package, rankmap
    from synth.export.request import Machine, Request
    from synth.topologies import placing

    found = _read(Path(source), collective, root) if isinstance(source, str | Path) else source
    machine = None if topology is None else _named_topology(topology)
    links = None if machine is None else machine.network()
    ranks, said, facts = rank_map, [], None if machine is None else Machine.of(machine)
    if isinstance(found, Frontier | Schedule):
        network = found.network
        if links is not None and links.ranks != network.ranks:
            raise UsageError(f"{links.name} has {links.ranks} ranks, the schedule is for {network.ranks}")
        default = rankmap.from_labels(found.labels if isinstance(found, Frontier) else (), network.ranks)
        if ranks is None:
            ranks, matched = placing.place(network, links, default) if links is not None else (default, False)
            said += [f"ranks of {network.name} matched to those of {links.name}: {','.join(map(str, ranks))}"] if matched and links else []
        if machine is None and (made_for := placing.known(network)) is not None and sorted(ranks) == list(range(network.ranks)):
            facts = Machine.of(made_for).relabelled(ranks)
    request = Request(runtime, facts, None, size, assume_root, assume_nvlink, assume_one_node, _timeline)
    wish = package.Wish(
        to, request, protocol, instances, in_place, None if ranks is None else tuple(ranks), links, point, tuple(sizes), element,
        min_size, max_size,
    )  # fmt: skip
    if every and not isinstance(found, Frontier):
        raise UsageError("--all is for a frontier; this is one schedule or program")
    made = package.folder(found, wish) if every and isinstance(found, Frontier) else package.one(found, wish)
    return replace(made, remarks=(*said, *made.remarks))


def _timeline(program: Program, network: Network, size: int | None) -> Sequence[Event]:
    """What happens when, in a run of the reference executor for its time alone."""
    from synth.runtime import calls

    call = calls.Call(program, network, size, in_place=program.in_place == "in", values=False, bound=False)
    return calls.run(call, None, "reference", {"trace": True}).execution.events or ()
