"""`synth bench`: times of programs over sizes, with nccl-tests' columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.commands.framework.frontier_source import file_or_frontier, search_limit_option
from synth.commands.framework.options import (
    FILE,
    baselines_option,
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
    sizes_option,
    threads_option,
    timeout_option,
)
from synth.commands.framework.output import check_writable, emit, note
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Positive
from synth.commands.root import CONTEXT


@click.command(context_settings=CONTEXT, short_help="Time programs over sizes, with nccl-tests' columns.")
@click.argument("file", type=FILE, required=False)
@executor_option("The executor that is timed (`synth list executors`).")
@sizes_option("LOW, LOW times F, ... up to HIGH, as nccl-tests counts; or 1KB,6MB.", "1KiB:256MiB:x4")
@baselines_option("Time this too: ring, tree, .. on the same links; copy on GPUs.")
@point_option("Only the N-th point of a frontier; by default all points.")
@search_limit_option
@protocol_option("Simple, LL or LL128, for frontiers and schedules.", default="Simple", show_default=True)
@instances_option("Copies side by side, for frontiers and schedules.", default=1)
@dtype_option()
@op_option
@coll_option("The collective, if there is no FILE or it does not name it.")
@data_root_option
@machine_options
@click.option(
    "--repeats",
    type=Positive(),
    default=5,
    show_default=True,
    metavar="N",
    help="Timed launches, for executors that measure.",
)
@click.option(
    "--warmup", type=Positive(), default=1, show_default=True, metavar="N", help="Launches before the timed ones."
)
@click.option("--check/--no-check", default=None, help="Compare every element; by default for executors that measure.")
@per_send_option
@overheads_option
@ranks_on_option
@threads_option("Threads of each thread block, for host and cuda.")
@timeout_option
@click.option("--no-graphs", is_flag=True, help="For cuda: time single launches, not replays of CUDA graphs.")
@output_options
def bench(file: Path | None, output: str | None, form: str | None, **flags: Any) -> None:
    """Time every point of a frontier, or one schedule or program, over sizes: algorithmic bandwidth is size/time, bus
    bandwidth nccl-tests'. The reference executor's times are modelled, the host's those of CPU threads; the table says
    so. Without FILE the frontier of --coll on --topo is searched for first.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json
      synth bench frontier.json --sizes 1KiB:1GiB:x4 --baseline ring -o measured.json
    """
    from synth.commands import api
    from synth.view.run_table import measured
    from synth.view.tables import print_report

    check_writable(output)
    machine = machine_if_named(flags)
    same = (
        "executor", "sizes", "baselines", "point", "protocol", "instances", "dtype", "op", "repeats", "warmup", "check",
        "ranks_on", "threads", "timeout", "per_send", "overheads",
    )  # fmt: skip
    source = file_or_frontier(file, flags, machine)
    with waiting(f"timing {file or flags['coll']}, {flags['executor']} executor"):
        result = api.bench(
            source,
            topology=machine,
            collective=flags["coll"] if file else None,
            roots=(flags["root"] or ()) if file else (),
            **{key: flags[key] for key in same},
            graphs=False if flags["no_graphs"] else None,
        )
    done = result.to_json()
    for line in result.left_out:
        note(line)
    emit(lambda: done, lambda: print_report(measured(done)), output, form)
