"""`synth allocations`: the optimal rates of each set of GPUs that a scheduler may assign."""

from __future__ import annotations

from typing import Any

import click

from synth.commands.framework.completion import names_of
from synth.commands.framework.options import chosen_machine, machine_options, output_options, time_limit_option
from synth.commands.framework.output import check_writable, emit
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Ranks
from synth.commands.root import CONTEXT, UNDECIDED
from synth.errors import UsageError


@click.command(context_settings=CONTEXT, short_help="List the optimal rates of every allocation of a machine.")
@machine_options
@click.option(
    "--coll",
    default="broadcast,allgather,allreduce",
    show_default=True,
    metavar="NAMES",
    shell_complete=names_of("collectives"),
    help="Collectives, with commas.",
)
@click.option(
    "--gpus", type=Ranks("numbers of GPUs"), metavar="3,4,8", help="Sizes of the allocations; by default 3 and more."
)
@time_limit_option("Wall time; results so far are printed when it ends.")
@output_options
def allocations(**flags: Any) -> int:
    """List the classes of allocations of a machine up to isomorphism, with the optimal rate of each collective, of as
    many GPUs the best first.

    \b
    Example:
      synth allocations --topo dgx1-v100 --coll broadcast,allgather,allreduce
    """
    from synth.commands import api
    from synth.commands.api.scale import FewerAllocations
    from synth.model.rational import show
    from synth.view import rate_tables, tables

    check_writable(flags["output"])
    topology = chosen_machine(flags)
    names = tuple(name.strip().lower() for name in flags["coll"].split(",") if name.strip())
    if not names:
        raise UsageError("no collective given; --coll broadcast,allgather,allreduce")
    missing = ()
    try:
        with waiting(f"allocations of {topology.name}", flags["time_limit"]) as tell:
            rows = api.allocations(topology, names, flags["gpus"], time_limit=flags["time_limit"], progress=tell)
    except FewerAllocations as fewer:
        rows, missing = fewer.found, (fewer.open,)
    names = tuple(rows[0][1].best) if rows else names
    rows = sorted(rows, key=lambda row: (len(row[0].ranks), [-row[1].best[name] for name in names], row[0].ranks))
    unit = topology.network().unit
    content = rate_tables.allocations(
        f"allocations of {topology.name}: 1 unit = {show(unit)} GB/s", unit, names, rows, missing
    )

    def document() -> dict:
        classes = []
        for a, r in rows:
            rates = {name: show(r.best[name]) for name in names}
            composed = None if r.composed is None else show(r.composed)
            row = {
                "ranks": list(a.ranks), "alike": a.members,
                "ring_units": r.ring_units, "rings_proved": r.rings_proved_maximum,
                "rates": rates, "attained": sorted(r.attained), "reduce_scatter_allgather": composed,
            }  # fmt: skip
            classes.append(row)
        doc = {"topology": topology.name, "unit_gbps": show(unit), "classes": classes}
        return doc | {"open": list(missing)} if missing else doc

    emit(document, lambda: tables.print_report(content), flags["output"], flags["form"])
    return UNDECIDED if missing else 0
