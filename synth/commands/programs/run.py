"""`synth run`, `synth.run` and `synth.prepare`: run a program, compare its outputs, print its time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.declaration import command, function, option, part
from synth.commands.framework.output import check_writable, emit, note, save
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    FILE,
    Changes,
    ExecutorOptions,
    Output,
    StepOption,
    executor_option,
    instances_option,
    machine_if_named,
    point_option,
    protocol_option,
    refuse_given,
    runtime_option,
)
from synth.commands.framework.types import AnySize, Positive
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import integers, named_topology, size_in_bytes
from synth.commands.programs.baselines import baseline
from synth.commands.programs.sources import chosen_point, lowered, read, size_choice
from synth.errors import SynthError, UsageError, VerificationError
from synth.model.frontier import Frontier, StepCount
from synth.model.number_text import size_text
from synth.model.schedule import Schedule
from synth.runtime.run_request import RunRequest

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike
    from synth.program.program import Program
    from synth.runtime.call import Call
    from synth.runtime.prepared_launch import Prepared
    from synth.runtime.run_result import RunResult

# Options of single executors, which are refused by the others where they are given.
OF_EXECUTORS = ("depth", "part", "delays", "threads", "timeout", "clock", "ranks_on", "per_send", "trace")


@dataclass(frozen=True)
class RunOptions(ExecutorOptions):
    """The options of a run."""

    program: Program | Schedule | Frontier | str | Path = option(
        doc="a program, or a schedule or frontier, which is lowered first; or a file of one."
    )
    arrays: Any = option(
        default=None,
        doc="the inputs by rank, a list or one array with a row a rank, in the host's memory; their type and size "
        "count. None: random ones. `prepare` takes arrays in a GPU's memory.",
    )  # fmt: skip
    executor: str = executor_option("The executor (`synth list executors`).")
    _: KW_ONLY
    size: int | str | None = option(
        "--size", default=None, type=AnySize(), metavar="1MB",
        help="Bytes of the larger of one rank's buffers; by default 1 MB, or the next size that chunks divide.",
        doc="bytes as nccl-tests counts them. None: 1 MiB, or the next size that divides.",
    )  # fmt: skip
    in_place: bool = option("--in-place", default=False, help="Input and output are one buffer, as in NCCL.")
    point: int | StepCount | None = point_option(
        "The N-th point of a frontier; by default the fastest at that size.",
        "the number of a frontier's point, from 1, or its `StepCount`. None: the one predicted to be the fastest at "
        "`size`, in synchronous steps.",
    )
    runtime: str | None = runtime_option(
        "Lower for this runtime, with its slices: msccl, msccl-executor, rccl; by default for synth's own.",
        "the runtime that a schedule is lowered for. None: this project's executors.",
    )
    protocol: str | None = protocol_option(
        "Simple, LL or LL128; by default the program's own, of a schedule or a frontier Simple.",
        doc="with which a schedule is lowered. None: Simple.",
    )
    instances: int = instances_option(
        "Copies of a schedule's program, each for a share of the data.", doc="with which a schedule is lowered."
    )
    seed: int = option(
        "--seed", default=0, type=click.IntRange(0), show_default=True, metavar="N", help="Seed of the random data."
    )
    data: bool = option(
        "--check/--no-data", default=True, doc="move and compare data. False: only the time.",
        help="Compare every element (the default) / compute the time alone, without data.",
    )  # fmt: skip
    bound: bool = option(
        "--bound/--no-bound", default=True, doc="compute the certified lower bound on the time.",
        help="Compare with the certified bound on the time (the default) / leave it out.",
    )  # fmt: skip
    depth: int | None = option(
        "--depth", default=None, type=Positive(), metavar="1..8",
        help="Operations that a connection holds; by default the protocol's.",
    )  # fmt: skip
    part: int | None = option(default=None, doc="bytes of a slot of a connection, for reference.")
    delays: int | None = option(
        "--delays", default=None, type=int, metavar="SEED",
        help="Pause blocks at random: a correct program stays correct.",
    )  # fmt: skip
    clock: str | None = option(
        "--clock",
        default=None,
        metavar="NAME",
        help="For host and cuda: logical, the kernel computes the model's time.",
    )
    trace: bool | None = option(default=None, doc="keep the events of the run, for `synth.api.trace`.")
    options: Mapping[str, Any] | None = option(default=None, doc="those of an executor of a plug-in.")


@function(RunOptions, rest="options")
def run(options: RunOptions) -> RunResult:
    """Run a program once and compare every element of every output with the definition of its collective.

    Returns
    -------
    The checked `outputs`, picoseconds, bandwidths and the certified bound.

    Raises
    ------
    VerificationError where an output is wrong or something is read before it is written; DeadlockError with its cycle;
    SynthError for a size that does not divide.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    >>> done = synth.run(schedule, size="1MB")
    >>> done.checked.elements, done.execution.picoseconds >= done.bound
    (1048576, True)
    """
    from synth.runtime import call as calls

    # The call, with texts of sizes and names of machines as values.
    request = part(
        RunRequest, options,
        size=None if options.size is None else size_in_bytes(options.size, "size", 0),
        topology=None if options.topology is None else named_topology(options.topology),
        roots=integers(options.roots, "roots"),
        options={name: getattr(options, name) for name in OF_EXECUTORS} | dict(options.options or {}),
    )  # fmt: skip
    call = _call(options.program, request, options.arrays is None)
    try:
        return replace(calls.run(call, options.arrays), choice=call.choice)
    except VerificationError as error:
        hint = _too_large(call) if options.arrays is None else ""
        if not hint:
            raise
        raise VerificationError(f"{error}; {hint}") from error


def prepare(
    program: Program | Schedule | Frontier | str | Path,
    arrays: Any,
    outputs: Any,
    executor: str = "cuda",
    *,
    op: str = RunRequest.op,
    in_place: bool = RunRequest.in_place,
    point: int | StepCount | None = RunRequest.point,
    collective: CollectiveLike | None = RunRequest.collective,
    roots: int | Iterable[int] = RunRequest.roots,
    protocol: str | None = RunRequest.protocol,
    instances: int = RunRequest.instances,
    **options: object,
) -> Prepared:
    """Compile a program for the caller's `arrays` and `outputs`, and allocate its buffers.

    Parameters
    ----------
    program : as in `synth.run`.
    arrays, outputs : the inputs and results by rank, of NumPy, CuPy, torch or any with the CUDA array interface.
    executor : cuda; or host, whose launches wait for their end.
    op, in_place, point, collective, roots, protocol, instances : as in `synth.run`.
    options : the executor's.

    Returns
    -------
    A `Prepared`: `launch(stream)` neither allocates nor waits, and a CUDA graph may capture it; `finish()` waits, and
    raises DeadlockError. The outputs are not compared with the definition.

    Raises
    ------
    UsageError where an array is of another size, type or device, not contiguous or not aligned to its elements.

    Examples
    --------
    >>> import numpy as np
    >>> import synth
    >>> schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    >>> inputs = [np.full(4, rank, np.float32) for rank in range(4)]
    >>> outputs = [np.zeros(16, np.float32) for _ in range(4)]
    >>> launched = synth.prepare(schedule, inputs, outputs, "host")  # doctest: +SKIP
    >>> launched.launch()  # doctest: +SKIP
    >>> launched.finish()  # doctest: +SKIP
    """
    from synth.runtime import prepared_launch

    request = RunRequest(
        executor, op=op, in_place=in_place, point=point, collective=collective, roots=integers(roots, "roots"),
        protocol=protocol, instances=instances, options=options,
    )  # fmt: skip
    return prepared_launch.prepare(_call(program, request), arrays, outputs)


def trace(done: RunResult) -> str:
    """The Chrome trace of a run, which Perfetto opens. Raises UsageError where `run` was not asked for it, or knew no
    times."""
    from synth.export.chrome_trace import chrome

    if done.execution.events is None:
        raise UsageError("this run kept no events: run it with trace=True")
    if done.network is None:
        raise UsageError("a timeline needs the times of the links: name the machine (--topo)")
    return chrome(done.program, done.execution.events)


def _call(program: object, request: RunRequest, open_size: bool = False) -> Call:
    """Return the program that is to run, lowered, with the network that gives its times.

    `open_size`: no arrays give the size. Size and protocol of a choice by size count where none is asked for.
    """
    from synth.runtime.call import Call, timed_links
    from synth.topologies import rank_placement

    machine = None if request.topology is None else named_topology(request.topology)
    found = opened(program, request.runtime, request.collective, request.roots)

    # Size and protocol that `synth pareto --size` chose the file for.
    taken = []
    chosen = size_choice(program, found, request.dtype)
    if chosen is not None and request.size is None and open_size:
        request = replace(request, size=chosen.size)
        taken.append(size_text(chosen.size))
    if chosen is not None and request.protocol is None and chosen.protocol is not None:
        request = replace(request, protocol=chosen.protocol)
        taken.append(chosen.protocol)
    says = f"as in the file: {' in '.join(taken)}; --size and --protocol choose" if taken else ""

    # The program, and the links that give its times.
    picked: object = found
    if isinstance(found, Frontier) and found.network.multicast:
        picked = chosen_point(found, request.point, request.size).schedule
    switch_sends = isinstance(picked, Schedule) and picked.uses_multicast
    lowered_program, network = lowered(found, request.point, request.size, request.lowering)
    if machine is not None:
        network = timed_links(machine, lowered_program)
    elif network is not None:
        machine = rank_placement.known(network)
    with_switches = machine if machine is not None and machine.multicast else None
    return Call(lowered_program, network, request, switch_sends, says, with_switches)


def _too_large(call: Call) -> str:
    from synth.program.analysis import check
    from synth.program.analysis.report import size_text

    size = call.request.size
    if size is None or not call.program.one_sided:
        return ""
    safe = check(call.program, "mscclpp").safe
    if not safe or size <= safe:
        return ""
    return f"`synth lint` proves this program only up to {size_text(safe)}; this call has {size_text(size)}"


def opened(
    given: object, runtime: str | None, collective: CollectiveLike | None, roots: Sequence[int]
) -> Program | Schedule | Frontier:
    """Return the program, schedule or frontier to run; read it where a file is given.

    `collective`, `roots`: the collective that a file computes, where the file does not say.
    """
    from synth.program.program import Program

    # The program as it is read, and again with the collective where the file does not say it.
    path = Path(given) if isinstance(given, str | Path) else None
    root = roots[0] if collective is None and len(roots) == 1 else None
    found = given if path is None else read(path, None, root, runtime)
    if not isinstance(found, Program | Schedule | Frontier):
        raise UsageError(f"a {type(found).__name__} cannot be run; programs, schedules and frontiers can")
    if collective is None:
        return found
    if not isinstance(found, Program):
        raise UsageError("a schedule says which collective it is; remove --coll")
    task = task_of(collective, found.ranks, roots)
    if path is not None and task != found.collective:
        found = read(path, task, None, runtime)
    return replace(found, collective=task) if isinstance(found, Program) else found


@dataclass(frozen=True, kw_only=True)
class Run(Output, Changes, StepOption, RunOptions):
    """The options of `synth run`."""

    program: Any = option("file", default=None, type=FILE, required=False)
    baseline: str | None = option(
        "--baseline", default=None, metavar="NAME",
        help="Run a baseline in place of FILE: ring, tree, direct, hierarchical, two-step, "
        "halving-doubling, binomial, bruck or recursive-doubling, for --coll on --topo.",
    )  # fmt: skip
    timeline: Path | None = option(
        "--trace", default=None, type=FILE, metavar="FILE",
        help="Write the timeline of the run to FILE, for Perfetto or chrome://tracing.",
    )  # fmt: skip


@command(Run)
def run_command(options: Run) -> None:
    """Run FILE (MSCCL-IR, a program, a schedule, a frontier) once, on random data, and compare every element of every
    output with the definition of the collective.
    Times are the cost model's, of the schedule's network or of --topo.

    \b
    Examples:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json
      synth run s.json --size 6MB --dtype float16 --in-place
      synth run --baseline ring --topo dgx1 --coll allreduce

    Exit codes: 1 with the cycle where ranks wait for each other for ever, 5 where an output is wrong.
    """
    from synth.runtime.mpi.environment import reports_to_user
    from synth.runtime.slicing import IndivisibleError
    from synth.view.run_table import execution

    check_writable(options.timeline)
    machine, file = machine_if_named(options), options.program
    asked = replace(options, topology=machine, trace=True if options.timeline else None)
    if options.baseline is None and file is None:
        raise UsageError("name a FILE, or a baseline on a machine: --baseline NAME --topo NAME --coll NAME")
    if options.baseline is not None:
        if file is not None:
            raise UsageError(f"{file} and --baseline {options.baseline} are two things to run; give one")
        if machine is None or options.collective is None:
            raise UsageError("--baseline needs the machine (--topo NAME) and the collective (--coll NAME)")
        schedule = baseline(options.baseline, machine, options.collective, roots=integers(options.roots, "roots"))
        asked = replace(asked, program=schedule, collective=None, roots=())
    if not options.data:
        refuse_given("without data nothing is drawn", "seed")
    # A size that chunks do not divide is rounded, and that is said. Of the processes of an MPI job one reports.
    shown = waiting(f"running {file or options.collective}, {options.executor} executor")
    try:
        with shown if reports_to_user() else nullcontext():
            try:
                done = run.of(asked)
            except IndivisibleError as odd:
                if reports_to_user():
                    note(f"{odd.rounding}")
                done = run.of(replace(asked, size=odd.nearest))
    except SynthError:
        if reports_to_user():
            raise
    if not reports_to_user():
        return
    if done.choice:
        note(done.choice)
    timeline = trace(done) if options.timeline else ""
    emit(done.to_json, lambda: execution(done.to_json()), options)
    if options.timeline:
        save(options.timeline, timeline)
