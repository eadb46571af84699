"""`synth explain`: the optimum beside NCCL-like rings and trees on the same links."""

from __future__ import annotations

from typing import Any

import click

from synth.cli.options import chosen_collective, chosen_machine, collective_options, machine_options, output_options
from synth.cli.output import deliver, ready
from synth.cli.root import CONTEXT


@click.command(context_settings=CONTEXT, short_help="The optimum against rings and trees.")
@machine_options
@collective_options
@output_options
def explain(**given: Any) -> None:
    """Compare the optimal rate of a collective with what rings and double binary trees reach on the same links, and say what limits it.

    \b
    Example:
      synth explain --topo dgx1 --ranks 0,1,2,5 --coll allreduce
    """
    from synth import api
    from synth.rational import show
    from synth.view import rates, report, tables

    ready(given["output"])
    topology = chosen_machine(given)
    task = chosen_collective(given, topology)
    made = api.explain(topology, task)
    network = topology.network()
    content = rates.explanation(report.title(network, task), network.unit, made)

    def document() -> dict:
        ways = [
            {"way": w.name, "units": show(w.units), "gbps": float(w.units * network.unit), "remark": w.remark} for w in made.ways
        ]  # fmt: skip
        return {"topology": network.name, "collective": task.name, "unit_gbps": show(network.unit), "ways": ways, "limit": made.limit}

    deliver(document, lambda: tables.print_report(content), given["output"], given["form"])
