"""`synth solve`: one question (C, S, R), one answer."""

from __future__ import annotations

from typing import Any

import click

from synth.commands.framework.options import (
    chosen_collective,
    chosen_machine,
    collective_options,
    engine_arguments,
    engine_options,
    machine_options,
    output_options,
)
from synth.commands.framework.output import check_writable, emit
from synth.commands.framework.progress import progress
from synth.commands.framework.types import Positive
from synth.commands.root import CONTEXT
from synth.errors import InfeasibleError, UndecidedError
from synth.model.outcome import Sat, Unknown, Unsat


@click.command(context_settings=CONTEXT, short_help="Decide whether C chunks, S steps and R rounds have a schedule.")
@machine_options
@collective_options
@click.option("--chunks", type=Positive(), required=True, metavar="C", help="Chunks of each part of the data.")
@click.option("--steps", type=Positive(), required=True, metavar="S", help="Synchronous steps.")
@click.option("--rounds", type=Positive(), required=True, metavar="R", help="Rounds in all the steps together.")
@engine_options
@output_options
def solve(**flags: Any) -> None:
    """Find a schedule of S steps and R rounds with C chunks, or prove that there is none.

    \b
    Example:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json
    """
    from synth.commands import api
    from synth.view import tables

    check_writable(flags["output"])
    topology = chosen_machine(flags)
    collective = chosen_collective(flags, topology)
    problem = f"{collective.name} on {topology.name} with C={flags['chunks']}, S={flags['steps']}, R={flags['rounds']}"
    with progress(problem, flags["verbose"], flags["time_limit"]) as listen:
        query = flags["chunks"], flags["steps"], flags["rounds"]
        verdict = api.solve(topology, collective, *query, on_event=listen, **engine_arguments(flags))
    match verdict:
        case Sat(schedule=schedule):
            emit(
                schedule.to_json,
                lambda: tables.print_schedule(schedule, verdict.cost, topology.labels),
                flags["output"],
                flags["form"],
            )
        case Unsat():
            raise InfeasibleError(f"{problem}: {verdict.reason}")
        case Unknown():
            detail = f" ({verdict.detail})" if verdict.detail else ""
            raise UndecidedError(
                f"{problem}: undecided, {tables.WHY.get(verdict.reason, verdict.reason)}{detail}; raise --time-limit"
            )
