"""`synth bench` and `synth.api.bench`: times of programs over sizes, with nccl-tests' columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.framework.declaration import command, function, option
from synth.commands.framework.output import emit, note
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
    sizes_option,
)
from synth.commands.framework.types import Positive
from synth.commands.inputs import integers, named_topology, sizes_in_bytes
from synth.commands.programs.baselines import baseline
from synth.commands.programs.run import opened
from synth.commands.programs.sources import chosen_point
from synth.errors import TooManySendsError, UsageError
from synth.model.frontier import Frontier, StepCount
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.program.lowering_options import LoweringOptions

if TYPE_CHECKING:
    from synth.program.program import Program
    from synth.runtime.benchmark.document import Measured

SIZES = tuple(1 << k for k in range(10, 29, 2))  # 1 KiB to 256 MiB


@dataclass(frozen=True)
class Timing(ExecutorOptions):
    """The options of times over sizes."""

    source: Program | Schedule | Frontier | str | Path = option(
        doc="a frontier, of which every point is timed, or a schedule or program; or a file of one.",
    )
    sizes: int | str | Iterable[int | str] = sizes_option(
        "LOW, LOW times F, ... up to HIGH, as nccl-tests counts; or 1KB,6MB.",
        'bytes as nccl-tests counts them, or texts such as "1MB", one or several.',
        SIZES, 4, "1KiB:256MiB:x4",
    )  # fmt: skip
    executor: str = executor_option("The executor that is timed (`synth list executors`).")
    _: KW_ONLY
    point: int | StepCount | None = point_option(
        "Only the N-th point of a frontier; by default all points.",
        "the number of the only point, from 1, or its `StepCount`. None: all.",
    )
    baselines: Sequence[str] = option(
        "--baseline", default=(), multiple=True, metavar="NAME",
        help="Time this too: ring, tree, .. on the same links.",
    )  # fmt: skip
    protocol: str = protocol_option("Simple, LL or LL128, for frontiers and schedules.", "Simple", show_default=True)
    instances: int = instances_option("Copies side by side, for frontiers and schedules.")
    repeats: int = option(
        "--repeats", default=5, type=Positive(), show_default=True, metavar="N",
        help="Timed launches, for executors that measure.",
    )  # fmt: skip
    warmup: int = option(
        "--warmup", default=1, type=Positive(), show_default=True, metavar="N", help="Launches before the timed ones."
    )
    check: bool | None = option(
        "--check/--no-check", default=None, help="Compare every element; by default for executors that measure."
    )
    graphs: bool | None = option(
        "--graphs/--no-graphs",
        default=None,
        help="For cuda: time replays of CUDA graphs, the default, or single launches.",
    )
    options: Mapping[str, Any] | None = option(default=None, doc="those of an executor of a plug-in.")


@function(Timing, rest="options")
def bench(asked: Timing) -> Measured:
    """Time programs over sizes.

    Returns
    -------
    The times of each program at each size, with nccl-tests' bandwidths. The times of the reference executor are
    modelled.

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
    from synth.program import checked_lowering
    from synth.program.program import Program
    from synth.runtime.benchmark import bench as measure
    from synth.runtime.benchmark.document import BenchmarkProgram
    from synth.runtime.dtypes import dtype
    from synth.runtime.slicing import rounding_text

    sizes, point = sizes_in_bytes(asked.sizes), asked.point
    found = opened(asked.source, None, asked.collective, integers(asked.roots, "roots"))
    machine = None if asked.topology is None else named_topology(asked.topology)
    baselines = [name.lower() for name in asked.baselines]

    # The program as it is; or the points of a frontier that are not too large, or a schedule, and the baselines.
    left_out: list[str] = []
    if isinstance(found, Program):
        if baselines or point is not None or asked.instances != 1:
            raise UsageError(
                "points, instances and baselines go with a schedule or a frontier; this is a program already"
            )
        programs = [BenchmarkProgram(found.name, found)]
    else:
        rows: list[tuple[str, int | None, Schedule]] = []
        if isinstance(found, Frontier):
            chosen, refused = chosen_point(found, point, None), None  # an error for a frontier without points, too
            points = enumerate(found.points, 1) if point is None else [(found.number_of(point), chosen)]
            for number, one in points:
                try:
                    rows.append((f"point {number}", number, found.schedule_of(one, checked_lowering.MAX_SENDS)))
                except TooManySendsError as error:
                    refused = refused or error
                    left_out.append(f"point {number}")
            if refused is not None and not rows:
                raise refused
        elif point is not None:
            raise UsageError("a point is chosen from a frontier; this is none")
        else:
            rows.append(("schedule", None, found))
        rows += [(name, None, baseline(name, found.network, found.collective)) for name in baselines]
        programs = []
        for label, number, schedule in rows:
            program = checked_lowering.lower(schedule, LoweringOptions("synth", asked.protocol, asked.instances))
            rate = show(schedule.rounds_per_chunk)
            programs.append(BenchmarkProgram(label, program, number, len(schedule.steps), rate))
        machine = machine or found.network
    # What is too large to lower is said beside the times.
    sentence = f"left out, of more than {checked_lowering.MAX_SENDS} sends each: {', '.join(left_out)}"

    # Options that only some executors take are handed on where they are given.
    how = measure.Settings(asked.executor, asked.dtype, asked.op, 0, asked.warmup, asked.repeats, asked.check,
                           asked.overheads)  # fmt: skip
    names = ("per_send", "ranks_on", "threads", "timeout", "graphs")
    options = {name: getattr(asked, name) for name in names} | dict(asked.options or {})
    given = {name: value for name, value in options.items() if value is not None}
    done = measure.bench(programs, sizes, machine, how, **given)
    parts = programs[0].program.loop_chunks // programs[0].program.chunks
    said = (sentence,) if left_out else ()
    return replace(done, left_out=(*said, *rounding_text(parts, sizes, dtype(asked.dtype))))


@dataclass(frozen=True, kw_only=True)
class Bench(Output, Changes, StepOption, Timing):
    """The options of `synth bench`."""

    source: Path = option("file", type=FILE)


@command(Bench)
def bench_command(options: Bench) -> None:
    """Time every point of a frontier, or one schedule or program, over sizes: algorithmic bandwidth is size/time, bus
    bandwidth nccl-tests'. The reference executor's times are modelled, the host's those of CPU threads; the table says
    so.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json
      synth bench frontier.json --sizes 1KiB:1GiB:x4 --baseline ring -o measured.json
    """
    from synth.view.run_table import measured

    with waiting(f"timing {options.source}, {options.executor} executor"):
        result = bench.of(replace(options, topology=machine_if_named(options)))
    done = result.to_json()
    for line in result.left_out:
        note(line)
    emit(lambda: done, lambda: measured(done), options)
