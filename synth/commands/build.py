"""`synth build`: from a machine to a folder of checked algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.commands.framework.completion import names_of
from synth.commands.framework.options import (
    change_options,
    changes,
    jobs_option,
    machine_job_options,
    quiet_option,
    time_limit_option,
)
from synth.commands.framework.output import note, wrote
from synth.commands.framework.progress import progress
from synth.commands.framework.types import Ranks
from synth.commands.root import CONTEXT, INTERRUPTED
from synth.errors import UsageError
from synth.model.rational import counted

RUNTIMES = ["msccl-executor", "msccl", "rccl", "mscclpp", "nccl-tuner"]


@click.command(context_settings=CONTEXT, short_help="Build a folder of algorithms for a machine, in one command.")
@click.argument("topology", required=False, metavar="[NAME|FILE]", shell_complete=names_of("topologies"))
@click.option(
    "--boxes", type=Ranks("numbers"), metavar="2,4,8", help="Build for so many boxes of NAME, each in a folder."
)
@click.option("-o", "--output", default="algorithms", show_default=True, metavar="DIR", help="The folder to write.")
@click.option("--for", "runtime", type=click.Choice(RUNTIMES, case_sensitive=False),
              help="Runtime that loads the files; by default rccl with xGMI links, else msccl-executor.")  # fmt: skip
@machine_job_options
@time_limit_option("Wall time of all searches; by default 30 s.")
@jobs_option("Processes of a search; by default the number of cores.")
@click.option(
    "--fresh", is_flag=True, help="Search anew, whatever earlier builds, or the catalog in the package, have."
)
@change_options
@quiet_option
def build(topology: str | None, **flags: Any) -> int:
    """Synthesize algorithms for a machine (a name, a dump, by default this machine), choose one for each size, write
    and check the files of a runtime, and print the predicted times beside NCCL's ring and tree.

    The same machine gets the same files, in any folder: a finished search is not repeated. The same command continues
    an interrupted one.

    \b
    Examples:
      synth build topo.txt --coll allreduce,allgather -o algorithms
      synth build dgx1 --for mscclpp
      synth build dgx-a100 --boxes 2,4,8 --for mscclpp -o plans
    """
    from synth.commands import api
    from synth.view import build as view
    from synth.view.tables import print_reports

    machine: Any = topology
    given = {name: value for name, value in changes(flags).items() if value}
    if flags["boxes"] and (topology is None or given):
        raise UsageError("--boxes takes the NAME of one box, such as dgx-a100, and no changes of it")
    if given:
        from synth.topologies.importers import this_machine

        machine = api.topology(this_machine() if topology is None else topology, **given)
    options = {key: flags[key] for key in ("runtime", "sizes", "root", "dtype", "jobs", "fresh", "output")}
    if flags["coll"]:
        options["collective"] = flags["coll"]
    if flags["time_limit"] is not None:
        options["time_limit"] = flags["time_limit"]
    try:
        with progress(f"building for {topology or 'this machine'}") as listen:
            if flags["boxes"]:
                results = api.build_boxes(machine, flags["boxes"], on_event=listen, **options)
            else:
                results = (api.build(machine, on_event=listen, **options),)
    except KeyboardInterrupt:
        note("interrupted; the same command continues from here")
        return INTERRUPTED
    for result in results:
        print_reports(view.reports(result))
        folder = Path(result.folder)
        if result.files:
            checked = "" if result.runtime.endswith("-tuner") else ", all linted and run,"
            files = counted(len(result.files), "file")
            wrote(f"{files} of {result.runtime}{checked} to {folder}: see {folder}/README.txt")
        else:
            wrote(f"{folder}/README.txt", f"no file for {result.runtime}, all sizes are left to the library")
    return 0
