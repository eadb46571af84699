"""`synth tune`: which algorithm for which message sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.commands.framework.options import (
    FILE,
    collectives_option,
    dtype_option,
    instances_option,
    jobs_option,
    machine_if_named,
    machine_options,
    output_options,
    overheads_option,
    per_send_option,
    protocol_option,
    refuse_given,
    sizes_option,
    time_limit_option,
)
from synth.commands.framework.output import check_writable, emit
from synth.commands.framework.progress import progress
from synth.commands.root import CONTEXT
from synth.errors import UsageError

CONFLICTS = {
    "topo": "topo",
    "from_files": "from",
    "measured": "measured",
    "logs": "log",
}


# options that TuningRequest calls the same
SAME = (
    "sizes", "measured", "logs", "root", "protocols", "instances", "dtype", "in_place", "time_limit",
    "jobs", "per_send", "overheads",
)  # fmt: skip


class LogFile(click.ParamType):
    """``nccl=FILE``, ``nccl/ring/LL=FILE``."""

    name = "log"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        """As (backend, file)."""
        if isinstance(value, tuple):
            return value
        backend, separator, file = str(value).partition("=")
        if not separator or not backend or not file:
            self.fail(f"{value!r} is not BACKEND=FILE, such as nccl=nccl.txt or rccl=rccl.txt", param, ctx)
        return backend, Path(file)


@click.command(context_settings=CONTEXT, short_help="Choose an algorithm for each message size: a plan.")
@machine_options
@collectives_option("A collective (repeatable, or with commas): one plan for all.")
@click.option("--root", type=int, metavar="0", help="The root of a rooted collective; by default rank 0.")
@sizes_option("Judged sizes: LOW, LOW times F, ... up to HIGH, as nccl-tests counts; or 1KB,6MB.", factor=2)
@click.option(
    "--from", "from_files", type=FILE, multiple=True, metavar="FILE", help="A frontier, instead of --topo (repeatable)."
)
@click.option(
    "--measured", type=FILE, multiple=True, metavar="FILE", help="Times that `synth bench -o` wrote (repeatable)."
)
@click.option("--log", "logs", type=LogFile(), multiple=True, metavar="BACKEND=FILE",
              help="nccl-tests' output or JSON: nccl=FILE, rccl=FILE, nccl/ring/LL=FILE (repeatable).")  # fmt: skip
@protocol_option("Only Simple, LL or LL128 (repeatable).", "protocols", multiple=True)
@instances_option("Copies of a program to try (repeatable).", multiple=True)
@per_send_option
@overheads_option
@dtype_option("Type of the elements, which chunks must divide.")
@click.option("--in-place", is_flag=True, help="Use the times of calls in place.")
@time_limit_option("Wall time for all syntheses.")
@jobs_option("Processes of a synthesis; by default the number of cores.")
@click.option(
    "--import",
    "table",
    type=FILE,
    metavar="FILE.csv",
    help="Read a tuning table in MCR-DL's form as the plan.",
)
@output_options
def tune(output: str | None, form: str | None, **flags: Any) -> None:
    """Choose, for each range of message sizes, the best of frontier × protocol × instances and of other backends: by
    measured times where there are any, else by the clock of predicted times. Prints where to switch, and the loss at
    every size.

    \b
    Examples:
      synth tune --topo dgx1 --coll allgather
      synth tune --topo dgx1 --coll allgather --sizes 1KiB:1GiB -o plan.json
      synth bench frontier.json -o m.json && synth tune --from frontier.json --measured m.json
      synth tune --topo dgx1 --coll allgather --log nccl=nccl.txt --measured m.json
      synth tune --import mcrdl_allgather_16gpu.csv -o plan.json
    """
    from synth.commands import api
    from synth.view import plans
    from synth.view.tables import print_reports

    check_writable(output)
    if flags["table"]:
        extra = [option for name, option in CONFLICTS.items() if flags[name]]
        if extra or len(flags["coll"]) > 1:
            raise UsageError(
                f"--import takes one table over as it is; remove {'--' + extra[0] if extra else 'all --coll but one'}"
            )
        plan = api.import_plan(flags["table"], next(iter(flags["coll"]), None))
    else:
        plan = _tuned(flags)
    emit(plan.to_json, lambda: print_reports(plans.reports(plan, api.plan_bounds(plan))), output, form)


def _tuned(flags: dict[str, Any]) -> Any:
    from synth.catalog.tuner.request import TuningRequest
    from synth.commands.api import tuning

    if not flags["logs"] and not flags["measured"]:
        refuse_given("predicted times are of calls in place and out of place alike", "in_place")
    machine = machine_if_named(flags)
    if machine is None:
        refuse_given("without a machine nothing is searched for", "jobs")
    names = flags["coll"]
    request = TuningRequest(
        topology=machine,
        collective=names,
        frontiers=flags["from_files"],
        **{key: flags[key] for key in SAME if flags[key] is not None},
    )
    with progress(f"{', '.join(names)} on {machine.name}" if machine else ", ".join(names)) as listen:
        return tuning.tune_request(request, listen)
