"""`synth groups`: bounds and one schedule for several process groups that share a machine."""

from __future__ import annotations

import json
from typing import Any

import click

from synth.cli.framework.options import (
    FILE,
    chosen_machine,
    machine_options,
    output_options,
    refuse_given,
    time_limit_option,
)
from synth.cli.framework.output import check_writable, emit, save
from synth.cli.framework.progress import waiting
from synth.cli.framework.types import Positive
from synth.cli.root import CONTEXT, INTERRUPTED, UNDECIDED
from synth.errors import UsageError


@click.command(context_settings=CONTEXT, short_help="Bound and schedule several process groups at once.")
@machine_options
@click.option("--file", "groups_file", type=FILE, metavar="FILE", help="The groups, as YAML or JSON (docs/groups.md).")
@click.option(
    "--chunks", type=Positive(), metavar="N", help="Chunks of each part of the data; more come nearer to the bound."
)
@click.option("--bound-only", is_flag=True, help="Print the bounds and look for no schedule.")
@click.option(
    "--schedule",
    type=FILE,
    metavar="OUT.json",
    help="Write the schedule of all groups, for verify, show and run.",
)
@time_limit_option("Wall time; results so far are printed when it ends.")
@output_options
def groups(**flags: Any) -> int:
    """Bound and schedule several process groups that use the machine at the same time.

    \b
    Example:
      synth groups --topo 'dgx-a100*4' --file groups.yaml
    where groups.yaml says
      groups:
        - {size: 8, collective: allreduce, bytes: 10}      # ranks 0-7, 8-15, ...
        - {stride: 8, collective: allreduce, bytes: 1}     # ranks 0,8,16,24; 1,9,17,25; ...
    """
    from synth import api
    from synth.view import groups as view
    from synth.view.tables import print_report

    check_writable(flags["output"], flags["schedule"])
    if flags["schedule"] is not None and flags["bound_only"]:
        raise UsageError("--bound-only looks for no schedule that --schedule could write; remove one")
    if flags["bound_only"]:
        refuse_given("--bound-only looks for no schedule", "chunks")
    topology = chosen_machine(flags)
    if flags["groups_file"] is None:
        raise UsageError("no groups given; add --file FILE (`synth groups -h` shows the keys)")
    search = {"chunks": flags["chunks"], "search": not flags["bound_only"], "time_limit": flags["time_limit"]}
    with waiting(f"groups on {topology.name}", flags["time_limit"]) as tell:
        result = api.groups(topology, flags["groups_file"], progress=tell, **search)
    if flags["schedule"] is not None and result.schedule is not None:
        save(flags["schedule"], json.dumps(result.schedule.to_json()) + "\n")
    emit(lambda: view.document(result), lambda: print_report(view.report(result)), flags["output"], flags["form"])
    if result.interrupted:
        return INTERRUPTED
    return UNDECIDED if result.open else 0
