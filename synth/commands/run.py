"""`synth run`: run a program, compare its outputs, print its time."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from synth.commands.framework.frontier_source import file_or_frontier, search_limit_option
from synth.commands.framework.options import (
    FILE,
    coll_option,
    data_root_option,
    dtype_option,
    executor_option,
    instances_option,
    machine_if_named,
    machine_options,
    op_option,
    output_options,
    overheads_option,
    per_send_option,
    point_option,
    protocol_option,
    ranks_on_option,
    refuse_given,
    runtime_option,
    threads_option,
    timeout_option,
)
from synth.commands.framework.output import check_writable, emit, note, save
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Positive, Size
from synth.commands.root import CONTEXT
from synth.errors import SynthError, UsageError
from synth.model.schedule import Schedule
from synth.model.topology import Topology

# options that RunRequest calls the same, and those of some executors alone
SAME = (
    "executor", "size", "dtype", "op", "in_place", "point", "runtime", "protocol", "instances", "seed",
)  # fmt: skip
EXECUTOR = ("depth", "delays", "threads", "timeout", "clock", "ranks_on", "per_send")


class AnySize(Size):
    """Bytes, 0 too: a call of no elements is a call."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As a whole number of bytes >= 0."""
        return 0 if str(value).strip() == "0" else super().convert(value, param, ctx)


@click.command(context_settings=CONTEXT, short_help="Run a program, compare its outputs, print its time.")
@click.argument("file", type=FILE, required=False)
@click.option(
    "--baseline",
    metavar="NAME",
    help="Run a baseline in place of FILE: ring, tree, direct, hierarchical, two-step, "
    "halving-doubling, binomial, bruck or recursive-doubling, for --coll on --topo.",
)
@executor_option("The executor (`synth list executors`).")
@click.option(
    "--size",
    type=AnySize(),
    metavar="1MB",
    help="Bytes of the larger of one rank's buffers; by default 1 MB, or the next size that chunks divide.",
)
@dtype_option()
@op_option
@click.option("--in-place", is_flag=True, help="Input and output are one buffer, as in NCCL.")
@point_option("The N-th point of a frontier; by default the fastest at that size.")
@search_limit_option
@runtime_option("Lower for this runtime, with its slices: msccl, msccl-executor, rccl; by default for synth's own.")
@protocol_option("Simple, LL or LL128; by default the program's own, of a schedule or a frontier Simple.")
@instances_option("Copies of a schedule's program, each for a share of the data.", default=1)
@coll_option("The collective, if there is no FILE or it does not name it.")
@data_root_option
@machine_options
@click.option(
    "--depth", type=Positive(), metavar="1..8", help="Operations that a connection holds; by default the protocol's."
)
@per_send_option
@overheads_option
@click.option("--delays", type=int, metavar="SEED", help="Pause blocks at random: a correct program stays correct.")
@ranks_on_option
@threads_option("Threads of each thread block, for host and cuda.")
@timeout_option
@click.option(
    "--clock",
    metavar="NAME",
    help="For host and cuda: logical, the kernel computes the model's time.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of the random data."
)
@click.option(
    "--no-data/--check",
    help="Compute the time alone, without data / compare every element (the default).",
)
@click.option("--no-bound", is_flag=True, help="Leave out the certified bound on the time.")
@click.option(
    "--trace",
    type=FILE,
    metavar="FILE",
    help="Write the timeline of the run to FILE, for Perfetto or chrome://tracing.",
)
@output_options
def run(file: Path | None, output: str | None, form: str | None, **flags: Any) -> None:
    """Run FILE (MSCCL-IR, a program, a schedule, a frontier) once, on random data, and compare every element of every
    output with the definition of the collective. Without FILE the frontier of --coll on --topo is searched for first.
    Times are the cost model's, of the schedule's network or of --topo.

    \b
    Examples:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json
      synth run s.json --size 6MB --dtype float16 --in-place
      synth run --baseline ring --topo dgx1 --coll allreduce

    Exit codes: 1 with the cycle where ranks wait for each other for ever, 5 where an output is wrong.
    """
    from synth.commands import api
    from synth.commands.api import running
    from synth.runtime.mpi.environment import reports_to_user
    from synth.runtime.run_request import RunRequest
    from synth.runtime.slicing import IndivisibleError
    from synth.view.run_table import execution
    from synth.view.tables import print_report

    check_writable(output, flags["trace"])
    machine = machine_if_named(flags)
    source: Any
    if flags["baseline"] is not None:
        source = _baseline(file, flags, machine)
    else:
        source = file_or_frontier(file, flags, machine)
    if flags["no_data"]:
        refuse_given("without data nothing is drawn", "seed")
    options = {key: flags[key] for key in EXECUTOR}
    options |= {"trace": True if flags["trace"] else None}
    request = RunRequest(
        **{key: flags[key] for key in SAME},
        topology=machine,
        collective=flags["coll"] if file else None,
        roots=(flags["root"] or ()) if file else (),
        data=not flags["no_data"],
        bound=not flags["no_bound"],
        overheads=flags["overheads"],
        options=options,
    )
    shown = waiting(f"running {file or flags['coll']}, {request.executor} executor")
    try:
        with shown if reports_to_user() else nullcontext():
            try:
                done = running.run_request(source, request)
            except IndivisibleError as odd:
                if reports_to_user():
                    note(f"{odd.rounding}")
                done = running.run_request(source, replace(request, size=odd.nearest))
    except SynthError:
        if reports_to_user():
            raise
    if not reports_to_user():
        return
    if done.choice:
        note(done.choice)
    timeline = api.trace(done) if flags["trace"] else ""
    emit(done.to_json, lambda: print_report(execution(done.to_json())), output, form)
    if flags["trace"]:
        save(flags["trace"], timeline)


def _baseline(file: Path | None, flags: dict[str, Any], machine: Topology | None) -> Schedule:
    from synth.commands import api

    if file is not None:
        raise UsageError(f"{file} and --baseline {flags['baseline']} are two things to run; give one")
    if machine is None or flags["coll"] is None:
        raise UsageError("--baseline needs the machine (--topo NAME) and the collective (--coll NAME)")
    return api.baseline(flags["baseline"], machine, flags["coll"], roots=flags["root"] or ())
