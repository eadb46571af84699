"""`synth emulate`: what the synchronous model predicts beside what an executor makes of the same links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.cli.framework.options import (
    FILE,
    executor_option,
    instances_option,
    output_options,
    threads_option,
    timeout_option,
)
from synth.cli.framework.output import check_writable, emit
from synth.cli.framework.sizes import Sizes
from synth.cli.framework.types import Stretches
from synth.cli.root import CONTEXT
from synth.errors import VerificationError


@click.command(context_settings=CONTEXT, short_help="Predicted and emulated time of a frontier's points, side by side.")
@click.argument("file", type=FILE)
@executor_option("reference, host or cuda.")
@click.option("--sizes", type=Sizes(), default="64KiB:256MiB:x4", show_default=True, metavar="LOW:HIGH:xF",
              help="LOW, LOW times F, ... up to HIGH, as nccl-tests counts; or 1KB,6MB.")  # fmt: skip
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    metavar="NAME",
    help="Beside the points; ring, or else direct, unless given.",
)
@click.option("--protocol", default="Simple", show_default=True, metavar="NAME", help="Simple, LL or LL128.")
@instances_option("Of each program: copies side by side.", default=1)
@click.option(
    "--paced",
    "stretches",
    type=Stretches(),
    metavar="4,8,16,32",
    help="Of host and cuda: hold real time to so many times that.",
)
@threads_option("Of the same: threads of each thread block.")
@timeout_option
@output_options
def emulate(file: Path, output: str | None, form: str | None, **given: Any) -> None:
    """For each size: the time that S·α + (R/C)·bytes/β predicts for every point of a frontier, the time that its
    program takes over FIFOs and links of the same α and β, and the regret of choosing by prediction. Then the same with
    one link at half its bandwidth and with ten times the latency, which must be heard (exit code 5 where it is not).

    By host and cuda the kernel itself keeps that time while it moves the data. With --paced the best of each size also
    runs at real time so many times longer. It is an execution-driven model, not a measurement of any machine.

    \b
    Example:
      synth pareto --topo dgx1 --coll allgather -o frontier.json
      synth emulate frontier.json --sizes 64KiB:256MiB:x4
    """
    from synth import api
    from synth.view.bench_tables import emulated
    from synth.view.tables import print_reports

    check_writable(output)
    done = api.emulate(file, **{name: value for name, value in given.items() if value is not None}).to_json()
    emit(lambda: done, lambda: print_reports(emulated(done)), output, form)
    deaf = [control["change"] for control in done["controls"] if not control["heard"]]
    if deaf:
        raise VerificationError(
            f"the {done['executor']} executor does not hear a change of the links: {', '.join(deaf)}"
        )
