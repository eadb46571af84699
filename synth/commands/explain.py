"""`synth explain`: the optimum beside NCCL-like rings on the same links; or why a schedule is slower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.commands.framework.distance_report import distance_document, print_distance
from synth.commands.framework.infeasible_document import write_infeasible_document
from synth.commands.framework.options import (
    FILE,
    chosen_collective,
    chosen_machine,
    collective_options,
    machine_if_named,
    machine_options,
    output_options,
    point_option,
    refuse_given,
    time_limit_option,
)
from synth.commands.framework.output import check_writable, emit, note, printable
from synth.commands.framework.progress import waiting
from synth.commands.root import CONTEXT, INTERRUPTED, UNDECIDED
from synth.errors import UsageError


@click.command(context_settings=CONTEXT, short_help="Explain the optimal rate, or why a schedule is slower.")
@click.argument("file", type=FILE, required=False)
@machine_options
@collective_options
@point_option("The N-th point of FILE, where it is a frontier.")
@time_limit_option("Wall time; results so far are printed when it ends.")
@output_options
def explain(file: Path | None, **flags: Any) -> int:
    """Compare the optimal rate of a collective with the rate of rings on the same links, and name the cut or partition
    that limits it.

    With FILE, a schedule, a point of a frontier or what `synth import` reads: how far it is from the certified bounds,
    and where the rounds beyond them go, by step, link and place in the file.

    \b
    Examples:
      synth explain --topo dgx1 --ranks 0,1,2,5 --coll allreduce
      synth explain --topo 'dgx-a100*128' --coll allgather
      synth explain frontier.json --step 3
    """
    from synth.commands import api
    from synth.view import rate_tables, tables

    check_writable(flags["output"])
    if file is not None:
        return _explain_file(file, flags)
    if flags["point"] is not None:
        raise UsageError("--point and --step choose from a frontier: name its FILE")
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


def _explain_file(file: Path, flags: dict[str, Any]) -> int:
    from synth.commands import api

    if file.suffix == ".py":
        raise UsageError(f"{file} is a program: `synth compile {file}` runs and explains it")
    refuse_given("the file says how much each rank has", "counts")
    machine = machine_if_named(flags)
    with waiting(f"explaining {file}", flags["time_limit"]):
        found = api.import_schedule(
            file, machine, collective=flags["coll"], roots=flags["root"] or (), point=flags["point"]
        )
        schedule = found.schedule
        distance = api.distance(schedule, machine or schedule.network.as_topology(), time_limit=flags["time_limit"])
        places = {}
        for send, place in () if found.compiled is None else found.compiled.places.items():
            places[send] = str(place).removeprefix(f"{file}: ").removeprefix(f"{file}:")
        blame = None if distance.bound is None else api.blame(schedule, distance.bound, topology=machine, places=places)
    for line in found.notes:
        note(line)
    emit(
        lambda: distance_document(file.name, schedule, distance, blame),
        lambda: print_distance(printable(file.name), schedule, distance, blame),
        flags["output"],
        flags["form"],
    )
    if distance.unfinished:
        note("the time limit came before all bounds; --time-limit allows more")
        return UNDECIDED
    return 0
