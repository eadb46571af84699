"""`synth emulate`: predicted times of the synchronous model beside emulated times on the same links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.cli.framework.frontier_source import file_or_frontier
from synth.cli.framework.options import (
    FILE,
    baselines_option,
    executor_option,
    instances_option,
    multicast_points_option,
    output_options,
    overheads_option,
    per_send_option,
    point_option,
    protocol_option,
    sizes_option,
    threads_option,
    timeout_option,
)
from synth.cli.framework.output import check_writable, emit, note
from synth.cli.framework.progress import waiting
from synth.cli.framework.types import Stretches
from synth.cli.root import CONTEXT
from synth.errors import VerificationError


@click.command(context_settings=CONTEXT, short_help="Compare predicted and emulated times of a frontier's points.")
@click.argument("file", type=FILE)
@executor_option("reference, host or cuda.")
@sizes_option("LOW, LOW times F, ... up to HIGH, as nccl-tests counts; or 1KB,6MB.", "64KiB:256MiB:x4")
@baselines_option("Emulate this too; by default ring, or direct where there is no ring.")
@point_option("Only the N-th point of the frontier; by default all points.")
@protocol_option("Simple, LL or LL128.", default="Simple", show_default=True)
@instances_option("Copies of each program side by side.", default=1)
@multicast_points_option
@per_send_option
@overheads_option
@click.option(
    "--paced",
    "stretches",
    type=Stretches(),
    metavar="4,8,16,32",
    help="For host and cuda: also run with real time slowed to so many times the model's.",
)
@threads_option("Threads of each thread block, for host and cuda.")
@timeout_option
@output_options
def emulate(file: Path, output: str | None, form: str | None, **flags: Any) -> None:
    """Compare two times of each point of a frontier at each size: the prediction S·α + (R/C)·bytes/β, and the emulated
    time of its program over FIFOs and links with the same α and β. Print the regret of choosing by prediction.

    As a control the programs run again with one link at half its bandwidth, and with ten times every latency. The
    emulated times must grow; exit code 5 if they do not.

    With host and cuda the kernel computes the emulated time while it moves the data. With --paced the best program of
    each size also runs with real time slowed to a multiple of it. The times are an execution-driven model, not a
    measurement of any machine.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json
      synth emulate frontier.json --sizes 64KiB:256MiB:x4
    """
    from synth import api
    from synth.view.bench_tables import emulated
    from synth.view.tables import print_reports

    check_writable(output)
    source = file_or_frontier(file, {"multicast": flags.pop("multicast")})
    with waiting(f"emulating {file}, {flags['executor']} executor"):
        result = api.emulate(source, **{name: value for name, value in flags.items() if value is not None})
    done = result.to_json()
    for line in result.left_out:
        note(line)
    emit(lambda: done, lambda: print_reports(emulated(done)), output, form)
    deaf = [control["change"] for control in done["controls"] if not control["heard"]]
    if deaf:
        raise VerificationError(
            f"the {done['executor']} executor does not hear a change of the links: {', '.join(deaf)}"
        )
