"""Programs that run: on an executor, or timed over sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.api.baselines import baseline
from synth.commands.api.inputs import (
    CollectiveLike,
    TopologyLike,
    integers,
    named_topology,
    size_in_bytes,
    sizes_in_bytes,
)
from synth.commands.api.inputs import collective as task_of
from synth.commands.api.programs import chosen_point, lowered, read, size_choice
from synth.errors import TooManySendsError, UsageError, VerificationError
from synth.model.frontier import ParetoFrontier, Point, StepCount
from synth.model.number_text import size_text
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program.lowering_options import LoweringOptions
from synth.runtime.run_request import RunRequest

DEFAULT_SIZE = 1 << 20  # bytes of a call that names no size

if TYPE_CHECKING:
    from synth.export.program_reader import SizeChoice
    from synth.program.program import Program
    from synth.runtime.benchmark.document import BenchmarkProgram, Measured
    from synth.runtime.call import Call
    from synth.runtime.prepared_launch import Prepared
    from synth.runtime.run_result import RunResult


def run(
    program: Program | Schedule | ParetoFrontier | str | Path,
    arrays: Any = None,
    executor: str = RunRequest.executor,
    *,
    size: int | str | None = RunRequest.size,
    dtype: str = RunRequest.dtype,
    op: str = RunRequest.op,
    in_place: bool = RunRequest.in_place,
    topology: TopologyLike | None = RunRequest.topology,
    collective: CollectiveLike | None = RunRequest.collective,
    roots: int | Iterable[int] = RunRequest.roots,
    point: int | StepCount | None = RunRequest.point,
    runtime: str | None = RunRequest.runtime,
    protocol: str | None = RunRequest.protocol,
    instances: int = RunRequest.instances,
    seed: int = RunRequest.seed,
    data: bool = RunRequest.data,
    bound: bool = RunRequest.bound,
    overheads: bool = RunRequest.overheads,
    **options: object,
) -> RunResult:
    """Run a program once and compare every element of every output with the definition of its collective.

    Parameters
    ----------
    program : a program, or a schedule or frontier, which is lowered first; or a file of one.
    arrays : the inputs by rank, a list or one array with a row a rank, in the host's memory; their type and size count.
        None: random ones. `prepare` takes arrays in a GPU's memory.
    executor : a name (`synth list executors`).
    size : bytes as nccl-tests counts them. None: 1 MiB, or the next size that divides.
    dtype, op : the type of the elements, and the reduction: sum, prod, min, max or avg.
    in_place : input and output are one buffer, as in NCCL.
    topology : the machine whose links give the times. None: the network that a schedule brings.
    collective, roots : the collective of a file that does not say it.
    point : the number of a frontier's point, from 1, or its `StepCount`. None: the one predicted to be the fastest at
        `size`, in synchronous steps.
    runtime : the runtime that a schedule is lowered for. None: this project's executors.
    protocol, instances : with which a schedule is lowered. None: Simple.
    seed : of the random inputs.
    data : move and compare data. False: only the time.
    bound : compute the certified lower bound on the time.
    overheads : times include a launch and the protocol's costs. False: the α and β of bare links alone.
    options : the executor's; for reference depth, part, delays, trace and per_send.

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
    request = RunRequest(
        executor, None if size is None else size_in_bytes(size, "size", 0), dtype, op, in_place,
        None if topology is None else named_topology(topology), collective,
        integers(roots, "roots"), point, runtime, protocol, instances, seed, data, bound, overheads, options,
    )  # fmt: skip
    return run_request(program, request, arrays)


def run_request(
    program: Program | Schedule | ParetoFrontier | str | Path,
    request: RunRequest,
    arrays: Any = None,
) -> RunResult:
    """Run a program once, as `run` does, with all options as one value."""
    from synth.runtime import call as calls

    open_size = arrays is None
    call = _call(program, request, open_size)
    try:
        return replace(calls.run(call, arrays), choice=call.choice)
    except VerificationError as error:
        hint = _too_large(call) if arrays is None else ""
        if not hint:
            raise
        raise VerificationError(f"{error}; {hint}") from error


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


def _call(program: object, request: RunRequest, open_size: bool = False) -> Call:
    """Return the program that is to run, lowered, with the network that gives its times.

    `open_size`: no arrays give the size. Size and protocol of a choice by size count where none is asked for.
    """
    from synth.runtime.call import Call, timed_links

    machine = None if request.topology is None else named_topology(request.topology)
    found = _opened(program, request.runtime, request.collective, request.roots)
    says = ""
    chosen = size_choice(program, found, request.dtype)
    if chosen is not None:
        request, says = _as_chosen(request, chosen, open_size)
    switch_sends = _has_switch_sends(found, request)
    found, network = lowered(found, request.point, request.size, request.lowering)
    if machine is not None:
        network = timed_links(machine, found)
    from synth.topologies import rank_placement

    if machine is None and network is not None:
        machine = rank_placement.known(network)
    with_switches = machine if machine is not None and machine.multicast else None
    return Call(found, network, request, switch_sends, says, with_switches)


def _as_chosen(request: RunRequest, chosen: SizeChoice, open_size: bool) -> tuple[RunRequest, str]:
    taken = []
    if request.size is None and open_size:
        request = replace(request, size=chosen.size)
        taken.append(size_text(chosen.size))
    if request.protocol is None and chosen.protocol is not None:
        request = replace(request, protocol=chosen.protocol)
        taken.append(chosen.protocol)
    return request, f"as in the file: {' in '.join(taken)}; --size and --protocol choose" if taken else ""


def _has_switch_sends(found: Program | Schedule | ParetoFrontier, request: RunRequest) -> bool:
    chosen: object = found
    if isinstance(found, ParetoFrontier) and found.network.multicast:
        chosen = chosen_point(found, request.point, request.size).schedule
    return isinstance(chosen, Schedule) and chosen.uses_multicast


def prepare(
    program: Program | Schedule | ParetoFrontier | str | Path,
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


def bench(
    source: Program | Schedule | ParetoFrontier | str | Path,
    sizes: int | str | Iterable[int | str],
    executor: str = "reference",
    *,
    point: int | StepCount | None = None,
    baselines: Sequence[str] = (),
    topology: TopologyLike | None = None,
    collective: CollectiveLike | None = None,
    roots: Sequence[int] = (),
    protocol: str = "Simple",
    instances: int = 1,
    dtype: str = "float32",
    op: str = "sum",
    repeats: int = 5,
    warmup: int = 1,
    check: bool | None = None,
    overheads: bool = True,
    **options: object,
) -> Measured:
    """Time programs over sizes.

    Parameters
    ----------
    source : a frontier, of which every point is timed, or a schedule or program; or a file of one.
    sizes : bytes as nccl-tests counts them, or texts such as "1MB", one or several.
    executor : a name (`synth list executors`). The times of the reference executor are modelled.
    point : the number of the only point, from 1, or its `StepCount`. None: all.
    baselines : known algorithms on the links of the schedule; copy is the GPU's memcpy, timed beside them where the
        executor can.
    topology : the machine whose links give modelled times. None: the network that a schedule brings.
    collective, roots : the collective of a file that does not say it.
    protocol, instances : with which schedules are lowered.
    dtype, op : the type of the elements, and the reduction.
    repeats, warmup : timed calls of each size, and calls before them.
    check : compare the outputs. None: where the executor moves data.
    overheads : modelled times include a launch and the costs of protocols.
    options : the executor's.

    Returns
    -------
    The times of each program at each size, with nccl-tests' bandwidths.

    Raises
    ------
    VerificationError where an output is wrong; UsageError for options that do not go together.

    Examples
    --------
    >>> import synth
    >>> ring = synth.api.baseline("ring", "ring:4", "allgather")
    >>> synth.api.bench(ring, [1024, 65536]).modelled
    True
    """
    from synth.runtime.benchmark import bench as measure
    from synth.runtime.dtypes import dtype as dtype_of
    from synth.runtime.slicing import rounding_text

    sizes = sizes_in_bytes(sizes)
    found = _opened(source, None, collective, roots)
    machine = None if topology is None else named_topology(topology)
    copy = "copy" in [name.lower() for name in baselines]
    baselines = [name for name in baselines if name.lower() != "copy"]
    candidates, network, left_out = _candidates(found, point, baselines, LoweringOptions("synth", protocol, instances))
    how = measure.Settings(executor, dtype, op, 0, warmup, repeats, check, overheads)
    given = {name: value for name, value in options.items() if value is not None}
    programs = [candidate for candidate, _ in candidates]
    done = measure.bench(programs, sizes, machine or network, how, copy, **given)
    parts = programs[0].program.loop_chunks // programs[0].program.chunks
    return replace(done, left_out=(*left_out, *rounding_text(parts, sizes, dtype_of(how.dtype))))


def _has_ring(found: ParetoFrontier | Schedule) -> bool:
    try:
        baseline("ring", found.network, found.collective)
    except UsageError:
        return False
    return True


def _candidates(
    found: Program | Schedule | ParetoFrontier,
    point: int | StepCount | None,
    baselines: Sequence[str] | None,
    options: LoweringOptions,
) -> tuple[list[tuple[BenchmarkProgram, Schedule | None]], Network | None, tuple[str, ...]]:
    """Programs to time, with the schedules that they come from, the network of those, and sentences on points that are
    left out for their size. `baselines` None: ring, or direct where there is none."""
    from synth.model.rational import show
    from synth.program import checked_lowering
    from synth.program.program import Program
    from synth.runtime.benchmark.document import BenchmarkProgram

    if isinstance(found, Program):
        if baselines or point is not None or options.instances != 1:
            raise UsageError(
                "points, instances and baselines go with a schedule or a frontier; this is a program already"
            )
        return [(BenchmarkProgram(found.name, found), None)], None, ()
    rows: list[tuple[str, int | None, Schedule]] = []
    left_out: tuple[str, ...] = ()
    if isinstance(found, ParetoFrontier):
        chosen = chosen_point(found, point, None)  # also an error for a frontier without points
        points = enumerate(found.points, 1)
        if point is not None:
            points = [(found.number_of(point), chosen)]
        schedules, left_out = _schedules(found, list(points))
        rows += [(f"point {k}", k, schedule) for k, schedule in schedules]
    else:
        if point is not None:
            raise UsageError("a point is chosen from a frontier; this is none")
        rows.append(("schedule", None, found))
    if baselines is None:
        baselines = ("ring",) if _has_ring(found) else ("direct",)
    rows += [(name.lower(), None, baseline(name, found.network, found.collective)) for name in baselines]
    made = []
    for label, k, schedule in rows:
        program = checked_lowering.lower(schedule, options)
        made.append(
            (BenchmarkProgram(label, program, k, len(schedule.steps), show(schedule.rounds_per_chunk)), schedule)
        )
    return made, found.network, left_out


def _schedules(
    frontier: ParetoFrontier, points: Sequence[tuple[int, Point]]
) -> tuple[list[tuple[int, Schedule]], tuple[str, ...]]:  # fmt: skip
    """The schedules of numbered points that programs are made of, and a sentence on those that are too large.

    Raises TooManySendsError where all are.
    """
    from synth.program.checked_lowering import MAX_SENDS

    schedules: list[tuple[int, Schedule]] = []
    large: list[str] = []
    error: TooManySendsError | None = None
    for k, point in points:
        try:
            schedules.append((k, frontier.schedule_of(point, MAX_SENDS)))
        except TooManySendsError as refused:
            error = error or refused
            large.append(f"point {k}")
    if error is not None and not schedules:
        raise error
    sentence = f"left out, of more than {MAX_SENDS} sends each: {', '.join(large)}"
    return schedules, (sentence,) if large else ()


def trace(done: RunResult) -> str:
    """The Chrome trace of a run, which Perfetto opens. Raises UsageError where `run` was not asked for it, or knew no
    times."""
    from synth.export.chrome_trace import chrome

    if done.execution.events is None:
        raise UsageError("this run kept no events: run it with trace=True")
    if done.network is None:
        raise UsageError("a timeline needs the times of the links: name the machine (--topo)")
    return chrome(done.program, done.execution.events)


def _opened(
    given: object, runtime: str | None, collective: CollectiveLike | None, roots: Sequence[int]
) -> Program | Schedule | ParetoFrontier:
    """Return the program, schedule or frontier to run; read it where a file is given.

    `collective`, `roots`: the collective that a file computes, where the file does not say.
    """
    from synth.program.program import Program

    path = Path(given) if isinstance(given, str | Path) else None
    root = roots[0] if collective is None and len(roots) == 1 else None
    found = given if path is None else read(path, None, root, runtime)
    if not isinstance(found, Program | Schedule | ParetoFrontier):
        raise UsageError(f"a {type(found).__name__} cannot be run; programs, schedules and frontiers can")
    if collective is None:
        return found
    if not isinstance(found, Program):
        raise UsageError("a schedule says which collective it is; remove --coll")
    task = task_of(collective, found.ranks, roots)
    if path is not None and task != found.collective:
        found = read(path, task, None, runtime)
    return replace(found, collective=task) if isinstance(found, Program) else found
