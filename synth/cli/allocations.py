"""`synth allocations`: the optimal rates of each set of GPUs that a scheduler may assign."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import click

from synth.cli.framework.completion import names_of
from synth.cli.framework.options import chosen_machine, machine_options, output_options, time_limit_option
from synth.cli.framework.output import check_writable, emit
from synth.cli.framework.progress import waiting
from synth.cli.framework.types import Ranks, Size
from synth.cli.root import CONTEXT, UNDECIDED
from synth.errors import UsageError
from synth.model.rational import rational


class _Number(click.ParamType):
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        try:
            number = rational(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if number < 0:
            self.fail(f"{value} is below 0", param, ctx)
        return number


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
@click.option(
    "--pcie",
    type=_Number(),
    metavar="GBPS",
    help="Add PCIe links of that many GB/s, also between GPUs without a fast link.",
)
@click.option(
    "--switching",
    type=_Number(),
    default="0",
    metavar="US",
    help="µs for using PCIe beside the fast links (Blink's T_dpa).",
)
@click.option("--size", type=Size(), default="1GB", show_default=True, metavar="SIZE", help="Message size for --pcie.")
@time_limit_option("Wall time; results so far are printed when it ends.")
@output_options
def allocations(**flags: Any) -> int:
    """List the classes of allocations of a machine up to isomorphism, with the optimal rate of each collective, of as
    many GPUs the best first.

    \b
    Example:
      synth allocations --topo dgx1-v100 --coll broadcast,allgather,allreduce
    """
    from synth import api
    from synth.api.scale import FewerAllocations
    from synth.model.rational import show
    from synth.scale.baselines.nvlink_pcie_hybrid import rates_with_pcie
    from synth.view import rate_tables, tables

    check_writable(flags["output"])
    topology = chosen_machine(flags)
    names = tuple(name.strip().lower() for name in flags["coll"].split(",") if name.strip())
    if not names:
        raise UsageError("no collective given; --coll broadcast,allgather,allreduce")
    search = {"every": flags["pcie"] is not None, "time_limit": flags["time_limit"]}
    missing = ()
    try:
        with waiting(f"allocations of {topology.name}", flags["time_limit"]) as tell:
            rows = api.allocations(topology, names, flags["gpus"], progress=tell, **search)
    except FewerAllocations as fewer:
        rows, missing = fewer.found, (fewer.open,)
    names = tuple(rows[0][1].best) if rows else names
    rows = sorted(rows, key=lambda row: (len(row[0].ranks), [-row[1].best[name] for name in names], row[0].ranks))
    unit = topology.network().unit
    slow = None
    if flags["pcie"] is not None:
        slow = {}
        for a, r in rows:
            slow[a.ranks] = rates_with_pcie(
                a.network, r.best, a.connected, flags["pcie"], flags["switching"], flags["size"]
            )
    content = rate_tables.allocations(
        f"allocations of {topology.name}: 1 unit = {show(unit)} GB/s", unit, names, rows, slow, missing
    )

    def document() -> dict:
        classes = []
        for a, r in rows:
            rates = {name: show(r.best[name]) for name in names}
            composed = None if r.composed is None else show(r.composed)
            row = {
                "ranks": list(a.ranks), "alike": a.members, "connected": a.connected,
                "ring_units": r.ring_units, "rings_proved": r.rings_proved_maximum,
                "rates": rates, "attained": sorted(r.attained), "reduce_scatter_allgather": composed,
            }  # fmt: skip
            if slow is not None:
                row["with_pcie_gbps"] = {name: float(rate) for name, rate in slow[a.ranks].items()}
            classes.append(row)
        doc = {"topology": topology.name, "unit_gbps": show(unit), "classes": classes}
        return doc | {"open": list(missing)} if missing else doc

    emit(document, lambda: tables.print_report(content), flags["output"], flags["form"])
    return UNDECIDED if missing else 0
