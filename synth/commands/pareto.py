"""`synth pareto` and `synth.frontier`: the main job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.declaration import command, flags_not_default, function, option, part
from synth.commands.framework.documents import save_schedules, write_infeasible_document
from synth.commands.framework.output import QUIET, emit, note
from synth.commands.framework.progress import progress
from synth.commands.framework.shared import (
    FILE,
    Changes,
    EngineOptions,
    Output,
    TaskOptions,
    chosen_machine,
    collective_or_name,
    engine_option,
    multicast_option,
)
from synth.commands.framework.types import Positive, Size
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import collective_or_value, integers, named_topology, workers
from synth.commands.root import INTERRUPTED, UNDECIDED
from synth.encodings.engine import FrontierProblem, Options
from synth.errors import MissingDependencyError, UsageError
from synth.model.frontier import Frontier
from synth.model.rational import counted
from synth.pareto.events import Listener, SweepInterrupted
from synth.solvers.deadline import Deadline, time_limited

if TYPE_CHECKING:
    from synth.model.bounds.time_bound import TimeBound
    from synth.model.collective import Collective
    from synth.model.scale_collectives import ScaleCollective
    from synth.model.topology import Topology
    from synth.pareto.cross_check import CrossCheck
    from synth.view.frontier_text import AlgorithmTime

BUDGET = ("time", "memory", "interrupted", "crash")  # reasons to stop that more time or memory would remove
FOR_TIMES = 0.35  # share of a time limit for the times at a size, as in a tuning plan


@dataclass(frozen=True, kw_only=True)
class Search(EngineOptions, TaskOptions):
    """The options of a search for a frontier."""

    max_steps: int | None = option(
        "--max-steps", default=None, type=Positive(), metavar="N", help="Look no further than N steps.",
        doc="no schedule of more steps is sought.",
    )  # fmt: skip
    max_chunks: int | None = option(
        "--max-chunks", default=None, type=Positive(), metavar="N",
        help="Split each part of the data into N chunks at most.",
    )  # fmt: skip
    max_extra_rounds: int | None = option(
        default=None, type=click.IntRange(0),
        doc="SCCL's k: schedules of S steps take at most S + k rounds; for collectives that copy and their reversals.",
    )  # fmt: skip
    same_bits: bool = option(
        "--same-bits", default=False, help="Only schedules that leave the same floating-point sums on all ranks."
    )
    sweep: str = option(
        "--sweep", default="guided", type=click.Choice(["guided", "blind"], case_sensitive=False), show_default=True,
        help="guided: by lower bounds; blind: SCCL's loop over steps, rounds and chunks.",
    )  # fmt: skip
    engine: str = engine_option(
        "Exact synthesis, or flow methods for any number of ranks; auto: flow above 64, of several boxes above 32.",
        '"exact" synthesis; "flow" methods, for any size; or "auto": flow above 64 ranks (of several boxes 32, '
        "alltoall 40), and above 16 where long schedules cannot be written out; else exact synthesis with the "
        "points of flow methods where these improve on it.",
    )
    cross_check: bool = option(
        "--cross-check", default=False, doc="ask z3 the deciding questions again.",
        help="Ask z3 all deciding questions again, not only small ones; exit code 5 if an answer differs.",
    )  # fmt: skip
    fresh: bool = option(
        "--fresh", default=False, help="Ignore the log of an interrupted run, and the catalog in the package."
    )
    log: str | Path | None = option(
        default=None, doc="the file that the same call continues from. None: a file in the cache directory."
    )
    multicast: bool = multicast_option(
        "bounds and points are those of schedules in which the machine's switches may multicast and reduce, for an "
        "allreduce, and for a broadcast or a reduce through one switch of all ranks. False: of links alone."
    )
    on_event: Listener | None = option(default=None, doc="called with each event of the search.")


@function(Search)
def frontier(search: Search) -> Frontier:
    """Return the Pareto frontier between steps and rounds per chunk, each point with its proof.

    Returns
    -------
    A `Frontier`. Intervals that the limits left undecided are in `open`, or of flow methods in `unfinished`; `answers`
    says which solver answered what.

    Raises
    ------
    InfeasibleError where no schedule exists; SweepInterrupted, with the partial `frontier`, on Ctrl-C; UsageError for
    an unknown name or options that do not go together.

    Examples
    --------
    >>> import synth
    >>> found = synth.frontier("ring:4", "allgather")
    >>> found
    <Frontier of allgather on ring:4: 2: 3/2; complete>
    >>> found.best("1MB").schedule
    <Schedule of allgather on ring:4: C=2, S=2, R=3, 24 sends>
    """
    from synth.catalog import shipped
    from synth.pareto.synthesize import flow_task, synthesize, through_switches

    # Flow methods alone, which have no options that choose an engine or its queries; or exact synthesis.
    machine = named_topology(search.topology)
    roots, collective = integers(search.roots, "roots"), collective_or_value(search.collective, machine.ranks)
    named = flags_not_default(search, "encoding", "solver", "sweep", "max_extra_rounds", "cross_check", "log", "seed")
    task: Collective | ScaleCollective | None = flow_task(
        search.engine, machine, collective, roots, search.sizes, by_ranks=bool(named)
    )
    if task is None:
        task = task_of(collective, machine.ranks, roots, search.sizes)
        _check_exact(search, task, machine)
    elif named:
        from synth.pareto.synthesize import exact_ranks

        known = "" if search.engine == "flow" else f", which are taken above {exact_ranks(task.name)} ranks,"
        wrong = " and no ".join(named)
        raise UsageError(f"flow methods{known} have no {wrong}; add --engine exact, or leave that out")
    options = part(Options, search, jobs=workers(search.jobs))
    problem = FrontierProblem(machine, task, options, search.engine)
    log = None if search.log is None else Path(search.log)
    found = synthesize(problem, search.on_event, log=log, fresh=search.fresh, cross_check=search.cross_check)

    # Where exact synthesis leaves intervals open, better points of the catalog in the package join it.
    if found.engine == "exact" and not found.complete and search.engine == "auto" and not named and not search.fresh:
        entry = shipped.entry_of(found.network, found.collective, machine.labels)
        found = found if entry is None else shipped.joined(found, entry, options)
    return through_switches(found, problem)


def _check_exact(search: Search, task: Collective, machine: Topology) -> None:
    """Raise UsageError for an option that exact synthesis of the collective does not know."""
    from synth.pareto.portfolio.members import check_names

    encoding, _, _ = check_names(search.encoding, search.solver)
    # SCCL's sweep asks for an allreduce by its parts.
    as_sccl = task.name == "allreduce" and search.sweep == "blind" and encoding == "sccl"
    if not task.combining or task.reversible or as_sccl:
        return
    unknown = ["encoding", "sweep", "max_extra_rounds"]
    if search.solver != "cadical":
        unknown.append("solver")
    if not (search.multicast and machine.multicast):  # whose multicasts it limits
        unknown.append("max_chunks")
    refused = flags_not_default(search, *unknown)
    if refused:
        named = " and no ".join(refused)
        instead = "; SCCL's sweep, --encoding sccl --sweep blind, knows it" if task.name == "allreduce" else ""
        raise UsageError(
            f"{task.name} has engines of its own, with cadical, which know no {named}; leave that out{instead}"
        )


def cross_check(
    found: Frontier, *, time_limit: float | None = None, on_line: Callable[[str], None] | None = None
) -> CrossCheck:
    """Ask z3 again the small ones of the questions (C, S, R) that decide a frontier, about 2 seconds of them.

    Each point must have a schedule, and an optimal one none with a round less. `synth.frontier(..., cross_check=True)`
    asks all.

    Parameters
    ----------
    found : a frontier of exact synthesis.
    time_limit : wall seconds, after which no question is asked.
    on_line : called with a line for each answer.

    Returns
    -------
    A `CrossCheck`: the `answers`, all as the frontier has them, the questions `left`, and z3's CPU `seconds`.

    Raises
    ------
    VerificationError where z3 contradicts the frontier; MissingDependencyError without z3.

    Examples
    --------
    >>> import synth
    >>> print(synth.cross_check(synth.frontier("ring:4", "allgather")))
    z3 agrees on 2 of 2 questions
    """
    from synth.pareto.cross_check import ask_small

    return ask_small(found, Deadline.after(time_limit), on_line or (lambda text: None))


def known_frontier(machine: Topology, task: Collective) -> Frontier | None:
    """Return the complete frontier of a well-known machine that comes with the package, replayed and re-checked.

    None where there is none. Its points and notes say how it was found.
    """
    from synth.catalog import shipped

    entry = shipped.entry_of(machine.network(), task, machine.labels)
    return None if entry is None or not entry.frontier.complete else shipped.marked(entry)


@dataclass(frozen=True, kw_only=True)
class Pareto(Output, Changes, Search):
    """The options of `synth pareto`."""

    size: int | None = option(
        "--size", default=None, type=Size(), metavar="1MB",
        help="Print the one point to use at this size, and why (1KB = 1024 bytes).",
    )  # fmt: skip
    sketch: Path | None = option(
        "--sketch", default=None, type=FILE, metavar="FILE.yaml",
        help="Only links that the rules in this file allow: the frontier is that of the machine with these.",
    )  # fmt: skip


@command(Pareto)
def pareto_command(options: Pareto) -> int:
    """Find the whole frontier: for each number of steps, the least rounds per chunk, and prove it.

    \b
    Examples:
      synth pareto --topo dgx1 --coll allgather
      synth pareto --topo dgx1 --coll allgather --size 1MB
      synth pareto --topo topo.txt --coll alltoall --jobs 2 --time-limit 5m -o frontier.json
      synth pareto --topo 'dgx-a100*2' --coll allgather --sketch rails.yaml
      synth pareto --topo dgx1 --coll allgather --encoding sccl --sweep blind   # SCCL as published
    """
    machine = chosen_machine(options)
    task = collective_or_name(options, machine)
    if options.sketch:
        from synth.topologies import sketches

        machine = sketches.load(options.sketch, machine)

    # The search, in a part of the time limit where the times at a size come after it.
    limit, size = options.time_limit, options.size
    deadline = Deadline.after(limit)
    search = limit * (1 - FOR_TIMES) if size and limit is not None else limit
    code, interrupted = 0, None
    found: Any
    try:
        with (
            write_infeasible_document(options, machine, task, options.max_steps),
            progress(f"{options.collective} on {machine.name}", search) as listen,
        ):
            found = frontier.of(replace(
                options, topology=machine, collective=task, roots=(), sizes=None, time_limit=search, on_event=listen
            ))  # fmt: skip
    except SweepInterrupted as stop:
        found, interrupted, code = stop.frontier, stop, INTERRUPTED

    # The files, the table, and the reason for an early end.
    saved = save_schedules(found, options.output, options.form)
    code = code or saved.code
    stopped = any(interval.reason in BUDGET for interval in found.open)
    if code == 0 and (found.unfinished or stopped):
        code = UNDECIDED
    # Nothing is printed where Ctrl-C came before anything was found.
    if found.points or found.unfinished or interrupted is None:
        if size:
            _print_choice(saved, options, machine, task, deadline)
        else:
            from synth.view.frontier_text import report

            emit(saved.document, lambda: report(saved.frontier), options)
    # z3 is asked where rows go to the terminal: with --quiet or JSON on stdout a job is not kept waiting for it.
    form = options.form or ("json" if options.output == "-" else "table")
    rows = not QUIET.get() and (form.lower() == "table" or options.output not in (None, "-"))
    if interrupted is None and rows and found.engine == "exact":
        code = _ask_z3(found, options, deadline) or code
    if interrupted is not None:
        kept = f"kept in {interrupted.log}, the same command continues" if interrupted.log else "found"
        note(f"interrupted; {counted(len(found.points), 'point')} {kept}")
    return code


def _ask_z3(found: Frontier, options: Pareto, deadline: Deadline) -> int:
    """Put the small ones of the deciding questions to z3, unless its answers are there already, and say how many it
    answers alike. Return an exit code: not 0 after Ctrl-C. Raises VerificationError where z3 contradicts a row."""
    if options.cross_check or not found.points or "z3" in options.solver or options.encoding != "auto":
        return 0
    sys.stdout.flush()  # the rows are there whatever z3 says
    try:
        check = cross_check(found, time_limit=deadline.remaining() if deadline.limited else None)
    except MissingDependencyError as error:
        note(f"z3 was not asked: {error}")
        return 0
    except KeyboardInterrupt:
        note("interrupted; z3 was asked nothing more")
        return INTERRUPTED
    if check.answers or check.left:
        note(f"in {check.seconds:.1f} s {check}")
    return 0


def _print_choice(saved: Any, options: Pareto, machine: Topology, task: Any, deadline: Deadline) -> None:
    """Print the point to use at a size, with times by runs of the reference executor that end before the deadline."""
    from synth.commands.bound import time_bound
    from synth.commands.tuning.point_times import clock_bound_at, times_at
    from synth.view.frontier_text import Report, algorithm_report, choice, choice_document

    found, size = saved.frontier, options.size
    assert size is not None
    # Times of programs by the clock, and the bound that no program beats.
    exact = found.engine == "exact"
    times: Sequence[AlgorithmTime] = ()
    least: TimeBound | None = None
    if found.points:
        with time_limited(deadline):
            times = times_at(found, size, machine=machine, library=exact and not found.network.multicast)
        least = clock_bound_at(found, size, machine) if exact else time_bound(machine, task, size)

    def document() -> dict:
        return choice_document(found, size, times) | {"candidates": [row._asdict() for row in times]}

    def table() -> list[Report]:
        others = [algorithm_report(times, size)] if times and exact else []
        return [choice(found, size, least, times), *others]

    emit(document if exact else saved.document, table, options)
