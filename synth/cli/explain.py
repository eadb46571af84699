"""`synth explain`: the optimum beside NCCL-like rings and trees on the same links."""

from __future__ import annotations

from typing import Any

import click

from synth.cli.framework.infeasible_document import write_infeasible_document
from synth.cli.framework.options import (
    chosen_collective,
    chosen_machine,
    collective_options,
    machine_options,
    output_options,
    time_limit_option,
)
from synth.cli.framework.output import check_writable, emit
from synth.cli.framework.progress import waiting
from synth.cli.root import CONTEXT, INTERRUPTED, UNDECIDED


@click.command(context_settings=CONTEXT, short_help="Compare the optimal rate with rings and trees.")
@machine_options
@collective_options
@time_limit_option("Wall time; results so far are printed when it ends.")
@output_options
def explain(**flags: Any) -> int:
    """Compare the optimal rate of a collective with the rates of rings and double binary trees on the same links, and
    name the cut or partition that limits it.

    \b
    Examples:
      synth explain --topo dgx1 --ranks 0,1,2,5 --coll allreduce
      synth explain --topo dgx-a100*128 --coll allgather
    """
    from synth import api
    from synth.view import rate_tables, tables

    check_writable(flags["output"])
    topology = chosen_machine(flags)
    task = chosen_collective(flags, topology)
    with (
        write_infeasible_document(flags, topology, task),
        waiting(f"{task.name} on {topology.name}", flags["time_limit"]) as tell,
    ):
        comparison = api.explain(topology, task, time_limit=flags["time_limit"], progress=tell)
    unit = topology.unit_bandwidth()

    def table() -> None:
        tables.print_report(
            rate_tables.explanation(rate_tables.title(topology, task), unit, comparison, topology.notes)
        )

    emit(
        lambda: rate_tables.explained(topology.name, task.name, unit, comparison), table, flags["output"], flags["form"]
    )
    if comparison.interrupted:
        return INTERRUPTED
    return UNDECIDED if comparison.open else 0
