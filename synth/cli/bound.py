"""`synth bound`: lower bounds and their certificates, without looking for schedules."""

from __future__ import annotations

from typing import Any

import click

from synth.cli.framework.infeasible_document import write_infeasible_document
from synth.cli.framework.options import (
    chosen_collective,
    chosen_machine,
    collective_options,
    collective_or_name,
    engine_option,
    machine_options,
    output_options,
    time_limit_option,
)
from synth.cli.framework.output import check_writable, emit, note
from synth.cli.framework.types import Positive
from synth.cli.root import CONTEXT, INTERRUPTED, UNDECIDED


@click.command(context_settings=CONTEXT, short_help="Lower bounds and their certificates.")
@machine_options
@collective_options
@engine_option("Bounds for each number of steps, or flow bounds for any number of ranks; auto: flow above 64.")
@click.option("--max-steps", type=Positive(), metavar="N", help="Bounds for up to N steps.")
@time_limit_option("Wall time to spend; the bounds found by then are printed.")
@output_options
def bound(**given: Any) -> int:
    """Print every lower bound with its certificate: on steps, on rounds per chunk, and at each number of steps.

    \b
    Examples:
      synth bound --topo dgx1 --coll alltoall
      synth bound --topo dgx-h100*128 --coll allgather
    """
    from synth import api
    from synth.api.synthesis import BoundsInterrupted, FewerBounds
    from synth.view import tables

    check_writable(given["output"])
    topology = chosen_machine(given)
    requested = collective_or_name(given, topology)
    with write_infeasible_document(given, topology, requested):
        large = api.large_bound(topology, requested, engine=given["method"].lower(), time_limit=given["time_limit"])
    if large is not None:
        from synth.view import scale_table as view

        emit(
            lambda: api.large_document(large),
            lambda: tables.print_report(view.bound(large)),
            given["output"],
            given["form"],
        )
        return UNDECIDED if large.open else 0
    collective = chosen_collective(given, topology)
    code, left = 0, ""
    try:
        with write_infeasible_document(given, topology, collective):
            found = api.bound(topology, collective, max_steps=given["max_steps"], time_limit=given["time_limit"])
    except FewerBounds as less:
        limited, found = given["time_limit"] is not None, less.found
        code = UNDECIDED if limited else 0
        left = "the time limit came" if limited else "the default effort is spent, --time-limit allows more: it came"
    except BoundsInterrupted as stop:
        code, left, found = INTERRUPTED, "Ctrl-C came", stop.found
    emit(
        lambda: tables.bounds_document(topology, collective, found),
        lambda: tables.print_bounds(topology, collective, found),
        given["output"],
        given["form"],
    )
    if left:
        note(f"left open: {left} before the bounds at more steps")
    return code
