"""`synth bound`: lower bounds and their certificates, without looking for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.infeasible_document import write_infeasible_document
from synth.commands.framework.options import (
    chosen_collective,
    chosen_machine,
    collective_options,
    collective_or_name,
    engine_option,
    machine_options,
    multicast_option,
    output_options,
    refuse_given,
    time_limit_option,
)
from synth.commands.framework.output import check_writable, emit, note
from synth.commands.framework.progress import progress
from synth.commands.framework.sizes import Sizes
from synth.commands.framework.types import Positive
from synth.commands.root import CONTEXT, INTERRUPTED, UNDECIDED
from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.topology import Topology
from synth.program.program import PROTOCOLS

if TYPE_CHECKING:
    pass


@click.command(context_settings=CONTEXT, short_help="Print lower bounds and their certificates.")
@machine_options
@collective_options
@engine_option("Bounds for each number of steps, or flow bounds for any number of ranks; auto: flow above 64.")
@click.option("--max-steps", type=Positive(), metavar="N", help="Bounds for up to N steps.")
@click.option("--sizes", "--size", "sizes", type=Sizes(), metavar="1KB,1MB,1GB",
              help="Bounds on the time for these sizes instead (1KB = 1024 bytes).")  # fmt: skip
@click.option("--protocol", type=click.Choice(PROTOCOLS, case_sensitive=False),
              help="With the sizes: bounds by the clock of predicted times, after the protocol's launch.")  # fmt: skip
@time_limit_option(
    "Wall time; bounds so far are printed when it ends. By default 20 s above 32 ranks, for scans above 16."
)
@multicast_option
@output_options
def bound(**flags: Any) -> int:
    """Print every lower bound with its certificate: on steps, on rounds per chunk, and at each number of steps.

    \b
    Examples:
      synth bound --topo dgx1 --coll alltoall
      synth bound --topo 'dgx-h100*128' --coll allgather
      synth bound --topo 'dgx-a100*2' --coll allreduce --sizes 1KB,1MB,1GB
    """
    from synth.commands import api
    from synth.commands.api.synthesis import BoundsInterrupted, FewerBounds
    from synth.view import tables

    check_writable(flags["output"])
    if flags["protocol"] and flags["sizes"] is None:
        raise UsageError("--protocol changes bounds in time; add --sizes, such as --sizes 1MB")
    if flags["sizes"] is not None:
        refuse_given("bounds in time are for any number of steps, by every method", "max_steps", "method")
    topology = chosen_machine(flags)
    requested = collective_or_name(flags, topology)
    if flags["sizes"] is not None:
        return _in_time(flags, topology, requested)
    with write_infeasible_document(flags, topology, requested):
        multicast = api.multicast_bounds(topology, requested) if flags["multicast"] else None
    if multicast is not None:
        refuse_given("bounds through switches are for any number of steps; --no-multicast has others", "max_steps")
        emit(
            lambda: tables.bounds_document(*multicast),
            lambda: tables.print_multicast_bounds(*multicast, topology.labels),
            flags["output"], flags["form"],
        )  # fmt: skip
        return 0
    with write_infeasible_document(flags, topology, requested):
        large = api.scale_bound(topology, requested, engine=flags["method"].lower(), time_limit=flags["time_limit"])
    if large is not None:
        refuse_given("bounds of flow methods are for any number of steps", "max_steps")
        from synth.view import scale_table as view

        emit(
            lambda: api.frontier_document(large),
            lambda: tables.print_report(view.bound(large)),
            flags["output"], flags["form"],
        )  # fmt: skip
        return UNDECIDED if large.unfinished else 0
    collective = chosen_collective(flags, topology)
    code, left = 0, ""
    try:
        limits = {"max_steps": flags["max_steps"], "time_limit": flags["time_limit"]}
        with (
            write_infeasible_document(flags, topology, collective),
            progress(f"bounds on {flags['coll']} on {topology.name}", limit=flags["time_limit"]) as listen,
        ):
            bounds = api.bound(topology, collective, **limits, on_event=listen)
    except FewerBounds as less:
        limited, bounds = flags["time_limit"] is not None, less.found
        code = UNDECIDED if limited else 0
        left = "the time limit came" if limited else "the default effort is spent, --time-limit allows more: it came"
    except BoundsInterrupted as stop:
        code, left, bounds = INTERRUPTED, "Ctrl-C came", stop.found
    emit(
        lambda: tables.bounds_document(topology.network(), collective, bounds),
        lambda: tables.print_bounds(topology, collective, bounds),
        flags["output"], flags["form"],
    )  # fmt: skip
    if left:
        note(f"left open: {left} before the bounds at more steps")
    return code


def _in_time(flags: dict[str, Any], topology: Topology, collective: Collective | str) -> int:
    from synth.commands import api
    from synth.view import tables, time_bounds

    if flags["max_steps"] is not None:
        raise UsageError("a bound in time holds for any number of steps; leave --max-steps or --sizes out")
    with write_infeasible_document(flags, topology, collective):
        bounds = api.time_bound(
            topology, collective, flags["sizes"], protocol=flags["protocol"], time_limit=flags["time_limit"]
        )
    report = time_bounds.report(bounds, topology.ranks, flags["protocol"] or "")
    emit(bounds.to_json, lambda: tables.print_report(report), flags["output"], flags["form"])
    return 0
