"""THE loop: engines in the order of a table improve one frontier, the cheap before the dear.

Each engine gets what those before it have found, in a share of one time limit, and yields points and bounds. The loop
replays and keeps the points, checks the bounds, writes the log, tells the listener and holds the deadline; so an engine
is a way to schedules and nothing else. Whoever has a better idea adds a file and a row (docs/contributing.md):

    @dataclass(frozen=True)
    class Mine:
        def applies(self, problem): ...                    # cheap: nothing is built to find out
        def improve(self, problem, found, deadline): ...   # yields points and bounds, each as soon as there is one
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol

from synth.encodings.engine import FrontierProblem, Options
from synth.errors import InfeasibleError, SynthError, UndecidedError, UsageError, VerificationError, refused
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.documents.canonical_json import canonical
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.scale_collectives import COLLECTIVES, ROOTED, ScaleCollective
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Topology
from synth.pareto.events import Event, Listener, SweepInterrupted, with_machine_names
from synth.pareto.first_rows import AllreducePartition, ComposedMessages, DirectSends, LibraryPrograms, SingleCut
from synth.pareto.flow import QUICK_RANKS, AllFlow, QuickFlow, RestOfFlow
from synth.pareto.found import NO_BOUND, Found
from synth.pareto.log import Log, LogError, default_directory, foreign
from synth.pareto.written_points import MOST_SENDS
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline, TimeUp, time_limited

# Share of a time limit for all engines before the sweep. They reach to both ends of the frontier; the sweep improves on
# the end of few steps.
FIRST = 0.4
# Least share of a time limit for `--cross-check`, which comes last.
CROSS_CHECK = 0.1
# Least wall seconds for what follows the sweep, even where that used up the time.
LAST_SECONDS = 1.0

# "auto" means flow methods alone above so many ranks: exact synthesis would spend its budget without an end. The same
# for an alltoall, whose units are pairs of ranks: flow methods have bounds and points that are no worse, in seconds.
EXACT_RANKS, EXACT_PAIRED_RANKS = 64, 40
# The same above so many ranks of several boxes: dgx-a100*8 allreduce ends 0.1% above the bound in 12 s by flow methods,
# and 4% in 150 s where each schedule is written out beside those of exact synthesis.
EXACT_RANKS_OF_BOXES = 32
# Where schedules that are written out have fewer rounds than this, "auto" means flow methods on fewer ranks, too: the
# first and last steps alone would cost more than a tenth of them.
LEAST_WRITTEN_ROUNDS = 64
# Said of a frontier for which "auto" meant flow methods on fewer ranks than `EXACT_RANKS`.
FINE_GRAINED = (
    "schedules that come near the bound are too long here to be listed send by send, so auto took flow methods, with "
    "one bound for any number of steps; exact synthesis (--engine exact) has a bound at each number of steps"
)


class FrontierEngine(Protocol):
    """A way to points or bounds. It is a frozen dataclass with a row in `ENGINES`."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True where the engine may have something to add. Nothing is built to find out."""
        ...

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point | LowerBound]:
        """Yield points, and lower bounds on R/C for any number of steps, until the deadline.

        A point's bound is `found.floor`, or one with a certificate of its own; the loop gives it the greatest that is
        known at its steps. It replays each point before the engine goes on, so that `found` has it then, or a note on
        why it was refused; and it checks the certificate of each bound.
        """
        ...


@dataclass(frozen=True)
class ExactSweep:
    """The sweep over numbers of steps, guided by bounds, or with the option `sweep` "blind" SCCL's."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True: exact synthesis takes every collective."""
        return True

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point | LowerBound]:
        """Yield points and bounds. Raises InfeasibleError where no schedule exists."""
        if found.options.sweep == "blind":
            from synth.pareto.sccl_sweep import ScclSweep as Sweep
        else:
            from synth.pareto.sweep import Sweep
        yield from Sweep(found, deadline).run()


class Row(NamedTuple):
    """An engine with its place in the order.

    `ranks`: from and to how many it runs. `plans`: it plans its time up to the end of the limit, and what it raises is
    an error; the turn of another engine ends at the share `FIRST`, or with a note, whatever it does. `least`: the share
    that it has however late it is. `named`: it runs, too, where the options name an encoding, a solver or a sweep.
    """

    engine: FrontierEngine
    ranks: tuple[int, float] = (1, inf)
    plans: bool = False
    least: float = 0.0
    named: bool = False

    def fits(self, problem: FrontierProblem) -> bool:
        """Return True where the engine has a turn."""
        least, most = self.ranks
        asked = self.named or problem.names_no_engine
        return asked and least <= problem.machine.ranks <= most and self.engine.applies(problem)


ENGINES: tuple[Row, ...] = (
    Row(SingleCut()),
    Row(DirectSends()),
    Row(ComposedMessages()),
    Row(LibraryPrograms()),
    Row(AllreducePartition(), ranks=(2, 8)),
    Row(QuickFlow()),
    Row(AllFlow()),
    Row(ExactSweep(), plans=True, named=True),
    Row(RestOfFlow(), plans=True, least=0.1, named=True),
)


def exact_ranks(name: str) -> int:
    """Return the maximum ranks for which "auto" means exact synthesis of a collective that flow methods know."""
    return EXACT_PAIRED_RANKS if name == "alltoall" else EXACT_RANKS


def engine_by_ranks(engine: str, machine: Topology, collective: str | Path | Collective) -> str:
    """Return the engine, "exact" or "flow", that `engine` means for so many ranks. Raises UsageError."""
    if engine not in ("auto", "exact", "flow"):
        raise UsageError(f"unknown engine {engine!r}; exact, flow and auto exist")
    if engine != "auto":
        return engine
    try:
        name = collective.name if isinstance(collective, Collective) else named_collective(str(collective), 2).name
    except UsageError:  # a file, uneven sizes, or an unknown name: exact synthesis reports which
        return "exact"
    return "flow" if machine.ranks > exact_ranks(name) and name in COLLECTIVES else "exact"


def flow_task(
    engine: str, machine: Topology, collective: str | Path | Collective, roots: Sequence[int] = (),
    sizes: Sequence | None = None, *, by_ranks: bool = True,
) -> ScaleCollective | None:  # fmt: skip
    """Return the collective for flow methods alone, or None where `engine` means exact synthesis, too.

    That is what "auto" means by the ranks. Without `by_ranks` it means flow methods on fewer ranks of several boxes as
    well, and where schedules that are written out have too few rounds to come near the bound. Raises UsageError where
    flow methods, but not exact synthesis, are meant for a collective that they do not know.
    """
    chosen = engine_by_ranks(engine, machine, collective)
    if chosen == "exact" and (engine == "exact" or by_ranks or machine.ranks <= QUICK_RANKS):
        return None
    value = collective if isinstance(collective, Collective) else None
    roots = list(value.roots if value else roots) or [0]
    try:
        name = value.name if value else named_collective(str(collective), 2, ()).name
        if name not in COLLECTIVES or sizes is not None:
            raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {name} use --engine exact")
        if len(roots) > 1 or not 0 <= roots[0] < machine.ranks:
            named = ",".join(map(str, roots))
            raise UsageError(f"roots {named}: flow methods take one root of 0..{machine.ranks - 1}")
    except UsageError:
        if chosen == "flow":
            raise
        return None
    if chosen == "exact" and (name == "alltoall" or not _fine_grained(machine)):
        return None
    return ScaleCollective(name, machine.ranks, roots[0] if name in ROOTED else None)


def _fine_grained(machine: Topology) -> bool:
    """Return True where flow methods come nearer to the bound than what is written out beside exact synthesis."""
    from synth.scale.bounds.throughput_cut import throughput
    from synth.scale.fabric.fabric import fabric

    several_boxes = 1 < len(set(machine.nodes)) < machine.ranks
    if several_boxes and machine.ranks > EXACT_RANKS_OF_BOXES:
        return True
    # The rounds of the longest allgather that is written out, at the bound of a cut. Others have about as many.
    try:
        rounds_per_chunk = throughput(fabric(machine.live()), "allgather", 0).time
    except SynthError:  # flow methods do not take the machine
        return False
    sends_per_chunk = ScaleCollective("allgather", machine.ranks).sends_per_chunk
    return MOST_SENDS * rounds_per_chunk / sends_per_chunk < LEAST_WRITTEN_ROUNDS


def synthesize(
    problem: FrontierProblem, on_event: Listener | None = None, *, log: Path | None = None, fresh: bool = False,
    cross_check: bool = False,
) -> Frontier:  # fmt: skip
    """Return the frontier of `problem` from all engines that apply, over one shared time; of a collective by its name
    that of flow methods alone. Points through switches that multicast come later (`through_switches`).

    `log`: the file from which the same call continues. None: a file in the cache directory. `fresh`: records of an
    earlier run in the log are ignored. `cross_check`: z3 answers the deciding queries of the frontier again.

    Raises InfeasibleError where no schedule exists, SweepInterrupted with the frontier so far on Ctrl-C, LogError
    where an explicit log cannot be written or is no log, and VerificationError where a certificate does not prove its
    bound, or a cross-check contradicts the frontier.
    """
    if problem.machine.multicast:
        from synth.pareto import multicast

        problem = multicast.before(problem)
    if isinstance(problem.task, ScaleCollective):
        from synth.pareto.flow_frontier import within_limits

        alone = within_limits(problem, on_event)
        by_ranks = problem.engine == "flow" or problem.machine.ranks > exact_ranks(problem.task.name)
        return alone if by_ranks else replace(alone, notes=(*alone.notes, FINE_GRAINED))
    machine, options, listener = problem.machine, problem.options, on_event or (lambda event: None)
    found = Found(problem.network, problem.collective, options, _open_log(problem, log, fresh), listener)
    found.notes, found.labels = machine.notes, machine.labels
    if found.log.trouble:
        found.note(f"no log: {found.log.trouble}")
    try:
        for row in ENGINES:
            if row.fits(problem):
                run(row, problem, found)
        frontier = found.frontier()
    except InfeasibleError as error:
        found.log.close(finished=True)
        raise with_machine_names(error, machine) from None
    except KeyboardInterrupt:
        if found.floor is NO_BOUND and found.sweeping is None:
            raise
        path = found.log.path if found.sweeping else None
        raise SweepInterrupted(found.frontier(interrupted=found.sweeping is not False), path) from None
    finally:
        found.log.close(finished=False)
    if not cross_check:
        return frontier
    try:
        return _cross_checked(frontier, options, end_of_turn(found, 1.0, CROSS_CHECK), listener)
    except KeyboardInterrupt:
        raise SweepInterrupted(frontier, None) from None


def run(row: Row, problem: FrontierProblem, found: Found) -> None:
    """Give an engine its turn, and keep what it yields."""
    deadline = end_of_turn(found, 1.0 if row.plans else FIRST, row.least)
    if not row.plans and deadline.over and found.points:
        return
    items = row.engine.improve(problem, found, deadline)
    try:
        while True:
            try:
                with nullcontext() if row.plans else time_limited(deadline):
                    item = next(items, None)
            except UndecidedError as error:  # the points before it stay
                if type(error) is not TimeUp:  # memory, or a process that died
                    found.note(f"{type(row.engine).__name__} ended early: {error}")
                return
            except VerificationError as error:
                if row.plans:
                    raise
                found.note(refused(f"what {type(row.engine).__name__} has next", error))
                return
            if item is None:
                return
            found.take(item)
            if not row.plans and deadline.over:
                return
    finally:
        items.close()  # type: ignore[attr-defined]
        if found.sweeping is False:
            found.update_open()


def end_of_turn(found: Found, until: float, least: float) -> Deadline:
    """Return the end of a turn: at the share `until` of the time limit, and no earlier than the share `least` of it,
    if that is not 0, from now."""
    limit = found.options.time_limit
    if limit is None:
        return Deadline()
    deadline = Deadline(found.started + limit * until)
    return deadline.at_least(max(limit * least, LAST_SECONDS)) if least else deadline


def through_switches(found: Frontier, problem: FrontierProblem) -> Frontier:
    """Return the frontier with the points of `found` and of schedules through the machine's switches that multicast.

    It is `found` itself where no schedule passes such a switch. Its bounds hold for schedules with and without such
    sends. Of the time limit of `problem` it takes what `found` left. Raises SweepInterrupted, with the points so far,
    on Ctrl-C.
    """
    from synth.pareto import multicast

    row = Row(multicast.SwitchMulticast(found), plans=True, named=True)
    if not row.fits(problem):
        return found
    wider = multicast.widened(found, problem)
    try:
        run(row, problem, wider)
    except KeyboardInterrupt:
        raise SweepInterrupted(multicast.finished(found, wider), None) from None
    return multicast.finished(found, wider)


def _cross_checked(frontier: Frontier, options: Options, deadline: Deadline, listener: Listener) -> Frontier:
    """Return `frontier` with z3's answers to all questions (C, S, R) that its points rest on."""
    from synth.pareto.cross_check import ask_all

    budget = Budget(
        deadline, memory=options.memory, seed=options.seed, jobs=options.jobs, deterministic=options.deterministic
    )
    try:
        check = ask_all(frontier, budget, lambda text: listener(Event("query", text)))
    finally:
        pool.stop()
    return replace(frontier, answers=(*frontier.answers, *check.answers), notes=(*frontier.notes, str(check)))


def _open_log(problem: FrontierProblem, path: Path | None, fresh: bool) -> Log:
    """Open the log, which records that it cannot be written. Raises LogError where `path` names such a file.

    Its key is a digest of the problem and of every option that changes the queries.
    """
    options = problem.options
    choices = [
        options.max_steps, options.max_chunks, options.encoding, options.solver, options.sweep, options.seed,
        options.same_bits, options.deterministic, options.max_extra_rounds,
    ]  # fmt: skip
    fingerprint = problem_fingerprint(problem.network, problem.collective)
    key = hashlib.sha256(canonical([fingerprint, *choices])).hexdigest()
    if path is not None and foreign(path):
        raise LogError(f"{path}: is no log of a sweep, and is not overwritten; name another file")
    log = Log(path or default_directory() / f"{key[:24]}.jsonl", key, fresh)
    if log.trouble and path is not None:
        raise LogError(log.trouble)
    return log
