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
from synth.cli.framework.output import QUIET, note, wrote
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
@click.option("--fresh", is_flag=True, help="Search anew, whatever the folder and earlier builds hold.")
@quiet_option
def plans(machine: str | None, **flags: Any) -> int:
    """Write MSCCL++ plans for a machine in several sizes: for each collective and range of message sizes one for calls
    in place and one for others, linted and run, with an index and the code that registers them.

    A further command in the folder adds to it: plans of other collectives and sizes of the machine stay. What is there
    with the same --sizes, --dtype and --root is kept, and searched further only with a longer --time-limit; with
    others it is replaced. One folder is for one machine and one version of MSCCL++.

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
    taken = ("gpus", "sizes", "root", "dtype", "plan_version", "time_limit", "jobs", "fresh")
    options = {key: flags[key] for key in taken}
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
    format_of = f"of the format of MSCCL++ {result.version}"
    kept = tuple(f"{name}/" for name in result.kept)
    new = [plan for plan in result.plans if not plan.name.startswith(kept)]
    if kept and not QUIET.get():
        names = ", ".join(result.kept[:4]) + (" and others" if len(kept) > 4 else "")
        note(f"kept {names} of earlier commands; --fresh searches anew what this one names")
    if new:
        wrote(f"{counted(len(new), 'plan')} {format_of}, all linted and run, to {folder}: see {folder}/index.json")
    elif len(result.kept) < len(result.builds):
        wrote(f"{folder}/index.json", "no new plan; the lines above say why")
    return 0
