"""`synth pareto`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.cli.options import (
    FILE,
    chosen_collective,
    chosen_machine,
    collective_options,
    engine,
    engine_options,
    machine_options,
    output_options,
)
from synth.cli.output import deliver, ready, remark, write
from synth.cli.progress import progress
from synth.cli.root import CONTEXT, INTERRUPTED, UNDECIDED
from synth.cli.types import Positive, Size

BUDGET = ("time", "memory", "interrupted", "crash")  # reasons to stop that more time or memory would remove


@click.command(context_settings=CONTEXT, short_help="The frontier: least rounds per chunk at each number of steps.")
@machine_options
@collective_options
@click.option("--max-steps", type=Positive(), metavar="N", help="Look no further than N steps.")
@click.option("--max-chunks", type=Positive(), metavar="N", help="Split a unit of data into N chunks at most.")
@click.option("--size", type=Size(), metavar="1MB", help="Print the one point to use at this size, and why (1KB = 1024 bytes).")
@click.option("--same-bits", is_flag=True, help="Only schedules that leave the same floating-point sums on all ranks.")
@click.option("--sweep", type=click.Choice(["guided", "blind"], case_sensitive=False), default="guided", show_default=True,
              help="By the bounds, or SCCL's loop over steps, rounds and chunks.")  # fmt: skip
@engine_options
@click.option("--fresh", is_flag=True, help="Begin anew, whatever an interrupted run left.")
@click.option("--log", type=FILE, metavar="FILE", help="Keep results here as they come; a file in the cache directory unless given.")
@click.option("--plot", type=FILE, metavar="FILE.svg", help="Draw the frontier (.svg, .png or .pdf).")
@output_options
def pareto(**given: Any) -> int:
    """Find the whole frontier: for each number of steps, the least rounds per chunk, and prove it.

    \b
    Examples:
      synth pareto --topo dgx1 --coll allgather
      synth pareto --topo dgx1 --coll allgather --size 1MB
      synth pareto --topo-file topo.txt --coll alltoall --jobs 2 --time-limit 5m -o frontier.json
      synth pareto --topo dgx1 --coll allgather --encoding path --solver z3 --sweep blind   # SCCL as published
    """
    from synth import api
    from synth.pareto.events import SweepInterrupted
    from synth.view import tables

    ready(given["output"], given["plot"])
    topology = chosen_machine(given)
    collective = chosen_collective(given, topology)
    asked = {key: given[key] for key in ("max_steps", "max_chunks", "same_bits", "fresh", "log")}
    code, interrupted = 0, None
    try:
        with progress(f"{collective.name} on {topology.name}") as listen:
            frontier = api.pareto(topology, collective, sweep=given["sweep"].lower(), on_event=listen, **asked, **engine(given))
    except SweepInterrupted as stop:
        frontier, interrupted, code = stop.frontier, stop, INTERRUPTED
    if interrupted is None and any(interval.reason in BUDGET for interval in frontier.open):
        code = UNDECIDED
    size = given["size"]
    if frontier.points or interrupted is None:
        deliver(
            lambda: tables.choice_document(frontier, size) if size else frontier.to_json(),
            lambda: tables.print_choice(frontier, size) if size else tables.print_frontier(frontier),
            given["output"], given["form"],
        )  # fmt: skip
        if given["plot"]:
            _draw(frontier, given["plot"])
    if interrupted is not None:
        points = f"{len(frontier.points)} point{'' if len(frontier.points) == 1 else 's'}"
        kept = f" kept in {interrupted.log}, the same command continues" if interrupted.log else " found"
        remark(f"interrupted; {points}{kept}")
    return code


def _draw(frontier: Any, path: Path) -> None:
    from synth.view import plot

    write(path, plot.image(plot.frontier_figure(frontier), path.suffix))
    remark(f"drew {path}")
