"""THE loop: engines in the order of a table improve one frontier, the cheap before the dear.

Each engine gets what those before it have found, in a share of one time limit, and yields points and bounds. The loop
replays and keeps the points, checks the bounds, writes the log, tells the listener and holds the deadline; so an engine
is a way to schedules and nothing else. Whoever has a better idea adds a file and a row (docs/contributing.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from synth.encodings.engine import FrontierEngine, FrontierProblem, Options
from synth.errors import InfeasibleError, UndecidedError, VerificationError, refused
from synth.model.documents.canonical_json import canonical
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.schedule import problem_fingerprint
from synth.pareto.events import Event, Listener, SweepInterrupted, with_machine_names
from synth.pareto.first_rows import AllreducePartition, ComposedMessages, DirectSends, LibraryPrograms, SingleCut
from synth.pareto.flow import AllFlow, QuickFlow, RestOfFlow
from synth.pareto.found import NO_BOUND, Found
from synth.pareto.log import Log, LogError, default_directory, foreign
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline, TimeUp, time_limited

# Share of a time limit for all engines before the sweep. They reach to both ends of the frontier; the sweep improves on
# the end of few steps.
FIRST = 0.4
# Least share of a time limit for `--cross-check`, which comes last.
CROSS_CHECK = 0.1
# Least wall seconds for what follows the sweep, even where that used up the time.
LAST_SECONDS = 1.0


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

    engine: FrontierEngine[Found]
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


def synthesize(
    problem: FrontierProblem, on_event: Listener | None = None, *, log: Path | None = None, fresh: bool = False,
    cross_check: bool = False,
) -> Frontier:  # fmt: skip
    """Return the frontier of `problem` from all engines that apply, over one shared time.

    `log`: the file from which the same call continues. None: a file in the cache directory. `fresh`: records of an
    earlier run in the log are ignored. `cross_check`: z3 answers the deciding queries of the frontier again.

    Raises InfeasibleError where no schedule exists, SweepInterrupted with the frontier so far on Ctrl-C, LogError
    where an explicit log cannot be written or is no log, and VerificationError where a certificate does not prove its
    bound, or a cross-check contradicts the frontier.
    """
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


def through_switches(found: Frontier, problem: FrontierProblem, on_event: Listener | None = None) -> Frontier:
    """Return the frontier with the points of `found` and of schedules through the machine's switches that multicast.

    It is `found` itself where no schedule passes such a switch. Its bounds hold for schedules with and without such
    sends. Of the time limit of `problem` it takes what `found` left. Raises SweepInterrupted, with the points so far,
    on Ctrl-C.
    """
    if not problem.machine.multicast:
        return found
    from synth.pareto import multicast

    engine, options = multicast.SwitchMulticast(found), problem.options
    if not engine.applies(problem):
        return found
    wider = multicast.widened(found, problem)
    if on_event is not None:
        wider.listen = on_event
    limit = options.time_limit
    deadline = Deadline()
    if limit is not None:
        deadline = deadline.within(limit - found.seconds).at_least(multicast.LEAST_SECONDS)
    try:
        for item in engine.improve(problem, wider, deadline):
            wider.take(item)
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
