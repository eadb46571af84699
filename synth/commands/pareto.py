"""`synth pareto`: the main job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from synth.commands.framework.frontier_files import save_schedules
from synth.commands.framework.infeasible_document import write_infeasible_document
from synth.commands.framework.options import (
    FILE,
    chosen_machine,
    collective_options,
    collective_or_name,
    engine_arguments,
    engine_option,
    engine_options,
    machine_options,
    multicast_option,
    output_options,
    overheads_option,
    per_send_option,
    refuse_given,
)
from synth.commands.framework.output import QUIET, check_writable, emit, note, save
from synth.commands.framework.progress import progress
from synth.commands.framework.types import Positive, Size
from synth.commands.root import CONTEXT, INTERRUPTED, UNDECIDED
from synth.errors import MissingDependencyError, UsageError
from synth.model.topology import Topology
from synth.program.message_cost import NO_COST
from synth.solvers.deadline import Deadline, time_limited

if TYPE_CHECKING:
    from synth.model.frontier import Frontier, ParetoFrontier
    from synth.model.time_bound import TimeBound
    from synth.view.algorithm_times import AlgorithmTime

BUDGET = ("time", "memory", "interrupted", "crash")  # reasons to stop that more time or memory would remove

# Fraction of a time limit for the times at a size, as in a tuning plan.
FOR_TIMES = 0.35


@click.command(
    context_settings=CONTEXT, short_help="Find the frontier: least rounds per chunk at each number of steps."
)
@machine_options
@collective_options
@click.option("--max-steps", type=Positive(), metavar="N", help="Look no further than N steps.")
@click.option("--max-chunks", type=Positive(), metavar="N", help="Split each part of the data into N chunks at most.")
@click.option(
    "--max-extra-rounds", type=click.IntRange(0), metavar="K", help="S + K rounds at most in S steps: SCCL's k."
)
@click.option(
    "--size", type=Size(), metavar="1MB", help="Print the one point to use at this size, and why (1KB = 1024 bytes)."
)
@per_send_option
@overheads_option
@click.option("--same-bits", is_flag=True, help="Only schedules that leave the same floating-point sums on all ranks.")
@click.option(
    "--sweep",
    type=click.Choice(["guided", "blind"], case_sensitive=False),
    default="guided",
    show_default=True,
    help="guided: by lower bounds; blind: SCCL's loop over steps, rounds and chunks.",
)
@engine_option("Exact synthesis, or flow methods for any number of ranks; auto: flow above 64.")
@click.option(
    "--schedules",
    type=FILE,
    metavar="DIR",
    help="Write the schedules here, a file each, and frontier.json beside them (flow methods: FILE.schedules, with "
    "-o).",
)
@engine_options
@click.option(
    "--cross-check",
    is_flag=True,
    help="Ask z3 all deciding questions again, not only small ones; exit code 5 if an answer differs.",
)
@click.option("--fresh", is_flag=True, help="Ignore the log of an interrupted run, and the catalog in the package.")
@click.option(
    "--log",
    type=FILE,
    metavar="FILE",
    help="Keep results in FILE; by default a file in the cache directory.",
)
@click.option("--plot", type=FILE, metavar="FILE.svg", help="Draw the frontier (.svg, .png or .pdf).")
@click.option(
    "--sketch",
    type=FILE,
    metavar="FILE.yaml",
    help="Only links that the rules in this file allow: the frontier is that of the machine with these.",
)
@multicast_option
@output_options
def pareto(**flags: Any) -> int:
    """Find the whole frontier: for each number of steps, the least rounds per chunk, and prove it.

    \b
    Examples:
      synth pareto --topo dgx1 --coll allgather
      synth pareto --topo dgx1 --coll allgather --size 1MB
      synth pareto --topo topo.txt --coll alltoall --jobs 2 --time-limit 5m -o frontier.json
      synth pareto --topo 'dgx-a100*2' --coll allgather --sketch rails.yaml
      synth pareto --topo dgx1 --coll allgather --encoding sccl --sweep blind   # SCCL as published
    """
    from synth.commands import api
    from synth.pareto.events import SweepInterrupted

    check_writable(flags["output"], flags["plot"])
    check_writable(flags["schedules"], folder=True)
    if flags["per_send"] is not None and not flags["size"]:
        raise UsageError("--per-send changes times at a size; add --size, such as --size 64KB")
    if not flags["size"]:
        refuse_given("times without a size are of bare links", "overheads")
    topology = chosen_machine(flags)
    collective = collective_or_name(flags, topology)
    engine = flags["method"].lower()
    if flags["sketch"]:
        from synth.topologies import sketches

        topology = sketches.load(flags["sketch"], topology)
    if flags["plot"]:
        from synth.view.plot import image_format

        image_format(flags["plot"].suffix)
    options = {
        key: flags[key]
        for key in ("max_steps", "max_chunks", "max_extra_rounds", "same_bits", "fresh", "log", "cross_check")
    }
    frontier: Any
    code, interrupted = 0, None
    deadline = Deadline.after(flags["time_limit"])
    if flags["size"] and deadline.limited:  # a part of the limit is for the times at the size
        flags["time_limit"] *= 1 - FOR_TIMES
    try:
        with (
            write_infeasible_document(flags, topology, collective),
            progress(f"{flags['coll']} on {topology.name}", flags["verbose"], flags["time_limit"]) as listen,
        ):
            options |= {
                "multicast": flags["multicast"],
                "sweep": flags["sweep"].lower(),
                "on_event": listen,
                "engine": engine,
            }
            frontier = api.frontier(topology, collective, **options, **engine_arguments(flags))
    except SweepInterrupted as stop:
        frontier, interrupted, code = stop.frontier, stop, INTERRUPTED
    saved = save_schedules(frontier, flags["output"], flags["form"], flags["schedules"])
    code = code or saved.code
    if code == 0 and (frontier.unfinished or _stopped(frontier)):
        code = UNDECIDED
    if frontier.points or frontier.unfinished or interrupted is None:
        size = flags["size"]
        times = cache(lambda: _times_at(frontier, flags, topology, collective, deadline))
        choose = size and frontier.engine == "exact"
        emit(
            lambda: _choice_document(frontier, size, times()) if choose else saved.document(),
            lambda: _print(saved.frontier, size, times() if size else _TimesAt()),
            flags["output"], flags["form"],
        )  # fmt: skip
        if flags["plot"]:
            _draw(frontier, flags["plot"])
    if interrupted is None and _shows_rows(flags) and frontier.engine == "exact":
        code = _ask_z3(frontier, flags, deadline) or code
    if interrupted is not None:
        points = f"{len(frontier.points)} point{'' if len(frontier.points) == 1 else 's'}"
        outcome = f" kept in {interrupted.log}, the same command continues" if interrupted.log else " found"
        note(f"interrupted; {points}{outcome}")
    return code


def _shows_rows(flags: dict[str, Any]) -> bool:
    """Return True where rows go to the terminal. Without, as with --quiet, a job is not kept waiting for z3."""
    form = flags["form"] or ("json" if flags["output"] == "-" else "table")
    return not QUIET.get() and (form.lower() == "table" or flags["output"] not in (None, "-"))


def _ask_z3(frontier: Frontier, flags: dict[str, Any], deadline: Deadline) -> int:
    """Put the small ones of the deciding questions to z3, unless its answers are there already, and say how many it
    answers alike. Return an exit code: not 0 after Ctrl-C. Raises VerificationError where z3 contradicts a row."""
    from synth.commands import api

    if flags["cross_check"] or not frontier.points or "z3" in flags["solver"] or flags["encoding"] != "auto":
        return 0
    sys.stdout.flush()  # the rows are there whatever z3 says
    tell = note if flags["verbose"] else None
    try:
        check = api.cross_check(frontier, time_limit=deadline.remaining() if deadline.limited else None, on_line=tell)
    except MissingDependencyError as error:
        note(f"z3 was not asked: {error}")
        return 0
    except KeyboardInterrupt:
        note("interrupted; z3 was asked nothing more")
        return INTERRUPTED
    if check.answers or check.left:
        note(f"{check} ({check.seconds:.1f} s)")
    return 0


def _stopped(frontier: ParetoFrontier) -> bool:
    return any(interval.reason in BUDGET for interval in frontier.open)


class _TimesAt(NamedTuple):
    """Times that `--size` prints: of all candidates, or of points at scale or with switches that multicast."""

    candidates: Sequence[AlgorithmTime] = ()
    bound: TimeBound | None = None


def _times_at(
    frontier: ParetoFrontier, flags: dict[str, Any], topology: Topology, collective: Any, deadline: Deadline
) -> _TimesAt:
    """Return the times at the size asked for, by runs of the reference executor that end before the deadline."""
    from synth.commands import api
    from synth.commands.api.point_times import times_at
    from synth.commands.api.tuning import clock_bound_at
    from synth.model.frontier import Frontier

    if not frontier.points:
        return _TimesAt()
    size, per_send, overheads = flags["size"], flags["per_send"] or NO_COST, flags["overheads"]
    with time_limited(deadline):
        library = isinstance(frontier, Frontier) and not frontier.network.multicast
        points = times_at(frontier, size, per_send, overheads=overheads, machine=topology, library=library)
    if isinstance(frontier, Frontier):
        return _TimesAt(points, clock_bound_at(frontier, size, overheads, topology))
    return _TimesAt(points, api.time_bound(topology, collective, size))


def _choice_document(frontier: Frontier, size: int, times: _TimesAt) -> dict:
    from synth.view import tables

    document = tables.choice_document(frontier, size, times.candidates)
    document["candidates"] = [row._asdict() for row in times.candidates]
    return document


def _print(frontier: Any, size: int | None, times: _TimesAt) -> None:
    from synth.view import tables

    if not size:
        tables.print_frontier(frontier)
        return
    tables.print_choice(frontier, size, times.bound, times.candidates)
    if times.candidates and frontier.engine == "exact":
        from synth.view import algorithm_times

        tables.print_report(algorithm_times.report(times.candidates, size))


def _draw(frontier: Any, path: Path) -> None:
    from synth.view import plot

    save(path, plot.image(frontier.plot(), path.suffix))
