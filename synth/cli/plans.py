"""`synth plans`: MSCCL++ plans for a machine in several sizes, with the code that registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.cli.framework.completion import names_of
from synth.cli.framework.options import (
    jobs_option,
    machine_job_options,
    plan_version_option,
    quiet_option,
    time_limit_option,
)
from synth.cli.framework.output import note, wrote
from synth.cli.framework.progress import progress
from synth.cli.root import CONTEXT, INTERRUPTED
from synth.errors import UsageError
from synth.model.rational import counted


class Numbers(click.ParamType):
    """``1,2,4``."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """As whole numbers >= 1."""
        if isinstance(value, tuple):
            return value
        found = []
        for text in str(value).split(","):
            if not text.strip().isdecimal() or int(text) < 1:
                self.fail(f"{text!r} is not a whole number >= 1", param, ctx)
            found.append(int(text))
        return tuple(found)


@click.command(context_settings=CONTEXT, short_help="Write MSCCL++ plans for a machine in several sizes.")
@click.option("--machine", metavar="NAME", shell_complete=names_of("topologies"), help="One box, such as dgx-a100.")
@click.option("--boxes", type=Numbers(), metavar="1,2,4", help="Numbers of boxes; by default 1, with --gpus none.")
@click.option("--gpus", type=Numbers(), default=(), metavar="6,12",
              help="Numbers of GPUs, too: the first of each box, in the fewest equal boxes.")  # fmt: skip
@click.option("-o", "--output", default="plans", show_default=True, metavar="DIR", help="The folder to write.")
@machine_job_options
@plan_version_option
@time_limit_option("Wall time of all searches; by default 30 s for each number of ranks.")
@jobs_option("Processes of a search; by default the number of cores.")
@quiet_option
def plans(machine: str | None, **flags: Any) -> int:
    """Write MSCCL++ plans for a machine in several sizes: for each collective and range of message sizes one for calls
    in place and one for others, linted and run, with an index and the code that registers them.

    The same command continues an earlier one in the same folder.

    \b
    Examples:
      synth plans --machine dgx-a100 --boxes 2,4,8 --coll allreduce -o plans
      synth plans --machine gb200-nvl72 --gpus 6,12 --coll allgather,alltoall
    """
    from synth import api
    from synth.view import plan_set as view
    from synth.view.tables import print_report

    if machine is None:
        raise UsageError("name one box with --machine, such as --machine dgx-a100")
    options = {key: flags[key] for key in ("gpus", "sizes", "root", "dtype", "plan_version", "time_limit", "jobs")}
    options["boxes"] = flags["boxes"] or (() if flags["gpus"] else (1,))
    if flags["coll"]:
        options["collective"] = flags["coll"]
    try:
        with progress(f"plans for {machine}") as listen:
            result = api.plans(machine, output=flags["output"], on_event=listen, **options)
    except KeyboardInterrupt:
        note(f"interrupted; the same command continues from {flags['output']}")
        return INTERRUPTED
    print_report(view.report(result))
    folder = Path(result.folder)
    count = counted(len(result.plans), "plan")
    format_of = f"of the format of MSCCL++ {result.version}"
    wrote(f"{count} {format_of}, all linted and run, to {folder}: see {folder}/index.json")
    return 0
