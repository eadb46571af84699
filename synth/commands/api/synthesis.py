"""Exact synthesis: frontiers, single questions and bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from synth.commands.api.inputs import (
    CollectiveLike,
    TopologyLike,
    collective_or_name,
    integers,
    named_topology,
    path_or_none,
    workers,
)
from synth.commands.api.inputs import collective as task_of
from synth.errors import InfeasibleError, UncheckedError, UndecidedError, UsageError
from synth.model.frontier import Frontier, LowerBound
from synth.model.outcome import Unsat, Verdict
from synth.model.rational import counted
from synth.model.schedule import Problem
from synth.model.topology import Topology
from synth.pareto.events import Listener, Options, SweepInterrupted
from synth.solvers.deadline import Budget, Deadline

if TYPE_CHECKING:
    from synth.model.collective import Collective
    from synth.model.scale_frontier import ScaleFrontier
    from synth.pareto.cross_check import CrossCheck


MOST_STEPS, MOST_ASKED = 10_000, 100_000  # of one question; more chunks or rounds than that no engine decides


LEAST_SECONDS = 0.1  # wall seconds of a search after the bounds, at least
BOUND_EFFORT = 20.0  # wall seconds of `bound` for better bounds than the quick one, where nobody limited them
EFFORT_RANKS = 32  # maximum ranks up to which bounds on copies are not limited so; of more ranks they can take minutes


class FewerBounds(UndecidedError):
    """The time limit, or the default effort, came before all bounds: `found` are those that there are, as `bound`
    returns them."""

    def __init__(self, found: list[tuple[int | None, LowerBound]], over: str = "the time limit is over") -> None:
        super().__init__(f"{over}; {len(found)} bound{'' if len(found) == 1 else 's'} found")
        self.found = found


class BoundsInterrupted(KeyboardInterrupt):
    """Ctrl-C came before all bounds: `found` are those that there are, as `bound` returns them."""

    def __init__(self, found: list[tuple[int | None, LowerBound]]) -> None:
        super().__init__("interrupted")
        self.found = found


def frontier(
    topology: TopologyLike,
    collective: CollectiveLike,
    *,
    roots: int | Iterable[int] = (),
    sizes: Sequence | None = None,
    max_steps: int | None = Options.max_steps,
    max_chunks: int | None = Options.max_chunks,
    max_extra_rounds: int | None = Options.max_extra_rounds,
    encoding: str = Options.encoding,
    solver: str = Options.solver,
    sweep: str = Options.sweep,
    time_limit: float | None = Options.time_limit,
    jobs: int | None = None,
    seed: int = Options.seed,
    deterministic: bool = Options.deterministic,
    same_bits: bool = Options.same_bits,
    fresh: bool = False,
    log: str | Path | None = None,
    cross_check: bool = False,
    on_event: Listener | None = None,
    engine: str = "auto",
    multicast: bool = True,
) -> Frontier | ScaleFrontier:
    """Return the Pareto frontier between steps and rounds per chunk, each point with its proof.

    Parameters
    ----------
    topology : the machine: a name, a path, a `Topology`, a graph of networkx or a mapping, as `synth.topology` takes.
    collective : a name, a path, a `Collective` or a mapping, as `synth.collective` takes.
    roots, sizes : of the collective, as in `synth.collective`.
    max_steps, max_chunks : no schedule of more steps, or of more chunks, is sought.
    max_extra_rounds : SCCL's k: schedules of S steps take at most S + k rounds; for collectives that copy and their
        reversals.
    encoding, solver : names (`synth list encodings`), or "auto".
    sweep : "guided" by bounds, or "blind".
    time_limit : wall seconds for everything. None: the default effort. A limit that is reached is no error.
    jobs : processes of a search. None: one for each core, at most 8.
    seed, deterministic : of the searches; with `deterministic` the result does not depend on their speed.
    same_bits : sums end with the same bits on all ranks.
    fresh : begin anew, whatever `log` and the catalog in the package hold.
    log : the file that the same call continues from. None: a file in the cache directory.
    cross_check : ask z3 the deciding questions again.
    on_event : called with each event of the search.
    engine : "exact" synthesis; "flow" methods, for any size; or "auto": flow above 64 ranks (alltoall: 40), and above
        16 where a round carries so many chunks that long schedules cannot be written out; else exact synthesis with the
        points of flow methods where these improve on it.
    multicast : bounds and points are those of schedules in which the machine's switches may multicast and reduce, for
        an allreduce, and for a broadcast or a reduce through one switch of all ranks. False: of links alone.

    Returns
    -------
    A `Frontier`, or of flow methods a `ScaleFrontier`, every point with its certified gap. Intervals that the limits
    left undecided are in `open` or `unfinished`. `Frontier.answers` says which solver answered what.

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
    from synth.pareto import engine_choice
    from synth.pareto.multicast import with_multicast
    from synth.pareto.portfolio.selection import check_names

    if sweep not in ("guided", "blind"):
        raise UsageError(f"unknown sweep {sweep!r}; guided and blind exist")
    machine = named_topology(topology)
    roots, collective = integers(roots, "roots"), collective_or_name(collective, machine.ranks)
    log = path_or_none(log)
    own = {
        "encoding": encoding != "auto",
        "solver": solver != "auto",
        "sweep": sweep != "guided",
        "max-extra-rounds": max_extra_rounds is not None,
        "cross-check": cross_check,
        "log": log is not None,
        "seed": seed != Options.seed,
    }
    searched = ("log", "seed")  # of every search but that of flow methods
    wrong = [f"--{name}" for name, given in own.items() if given]
    chosen = by_ranks = engine_choice.engine_of(engine, machine, collective)
    if engine == "auto" and not wrong and log is None and sizes is None:
        chosen = engine_choice.engine_of_frontier(machine, collective, roots)
    if chosen == "flow":
        if wrong:
            name = engine_choice.flow_collective(machine, collective, roots, sizes)[0]
            known = "" if engine == "flow" else f", which are taken above {engine_choice.exact_ranks(name)} ranks,"
            raise UsageError(
                f"flow methods{known} have no {' and no '.join(wrong)}; add --engine exact, or leave that out"
            )
        name, root = engine_choice.flow_collective(machine, collective, roots, sizes)
        first = _before_multicast(machine, multicast, time_limit)
        large = _flow(machine, (name, root), on_event, first, max_steps, max_chunks)
        if chosen != by_ranks:
            large = replace(large, notes=(*large.notes, engine_choice.FINE_GRAINED))
        limits = Options(max_steps, max_chunks, time_limit=time_limit, same_bits=same_bits)
        if not multicast:
            return large
        return with_multicast(large, machine, task_of(name, machine.ranks, large.roots), limits)
    task = task_of(collective, machine.ranks, roots, sizes)
    named_encoding, _, _ = check_names(encoding, solver)
    # SCCL's sweep asks for an allreduce by its parts
    as_sccl = task.name == "allreduce" and sweep == "blind" and named_encoding == "sccl"
    if task.combining and not task.reversible and not as_sccl:
        own |= {"solver": solver not in ("auto", "cadical"), "cross-check": False} | dict.fromkeys(searched, False)
        own["max-chunks"] = max_chunks is not None and not (multicast and machine.multicast)  # it limits multicasts
        known = [f"--{name}" for name, given in own.items() if given]
        if known:
            named = " and no ".join(known)
            instead = "; SCCL's sweep, --encoding sccl --sweep blind, knows it" if task.name == "allreduce" else ""
            raise UsageError(
                f"{task.name} has engines of its own, with cadical, which know no {named}; leave that out{instead}"
            )
    options = Options(
        max_steps, max_chunks, max_extra_rounds, encoding, solver, sweep, time_limit, jobs=workers(jobs),
        seed=seed, deterministic=deterministic, same_bits=same_bits,
    )  # fmt: skip
    first = replace(options, time_limit=_before_multicast(machine, multicast, time_limit))
    query = engine_choice.Query(machine, task, first, engine, log, fresh, cross_check=cross_check)
    found = engine_choice.synthesize(query, on_event)
    if isinstance(found, Frontier) and not found.complete and engine == "auto" and not wrong and not fresh:
        from synth.catalog import shipped

        entry = shipped.entry_of(found.network, task, machine.labels)
        found = found if entry is None else shipped.joined(found, entry, options)
    return with_multicast(found, machine, task, options) if multicast and not options.alone else found


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

    network = machine.network()
    entry = shipped.entry_of(network, task, machine.labels)
    if entry is None or not entry.frontier.complete:
        return None
    return shipped.marked(entry)


def _before_multicast(machine: Topology, multicast: bool, time_limit: float | None) -> float | None:
    from synth.pareto.multicast import MOST_RANKS, SHARE

    if time_limit is None or not multicast or not machine.multicast or machine.ranks > MOST_RANKS:
        return time_limit
    return time_limit * (1 - SHARE)


def _flow(
    machine: Topology,
    task: tuple[str, int],
    on_event: Listener | None,
    time_limit: float | None,
    most: int | None,
    chunks: int | None,
) -> ScaleFrontier:
    """Return the frontier of flow methods, limited to so many steps and chunks.

    Their sums end with the same bits on all ranks in any case.
    """
    from synth.pareto import engine_choice

    try:
        found = engine_choice.synthesize_flow(machine, *task, on_event, time_limit=time_limit)
    except SweepInterrupted as stop:
        raise SweepInterrupted(stop.frontier.within(most, chunks), stop.log) from None
    if most is not None and most < found.least_steps:
        was = f"at most {most} {'was' if most == 1 else 'were'} allowed"
        raise InfeasibleError(f"{task[0]} on {machine.name} needs at least {counted(found.least_steps, 'step')}, {was}")
    return found.within(most, chunks)


def solve(
    topology: TopologyLike,
    collective: CollectiveLike,
    chunks: int,
    steps: int,
    rounds: int,
    *,
    roots: int | Iterable[int] = (),
    sizes: Sequence | None = None,
    encoding: str = "auto",
    solver: str = "auto",
    time_limit: float | None = None,
    jobs: int | None = None,
    seed: int = 0,
    deterministic: bool = False,
    on_event: Listener | None = None,
) -> Verdict:
    """Decide if a schedule with so many chunks, steps and rounds exists.

    Parameters
    ----------
    topology, collective, roots, sizes : as in `synth.frontier`.
    chunks : C, the chunks of each unit of data.
    steps : S.
    rounds : R, of all steps together.
    encoding : a name (`synth list encodings`). With "auto" lower bounds come first. Allreduce, scan and other combining
        collectives that are no time reversal of one that copies have engines of their own, and take "auto" only.
    solver : a name (`synth list solvers`), or "auto".
    time_limit : wall seconds. None: no limit.
    jobs, seed, deterministic, on_event : as in `synth.frontier`.

    Returns
    -------
    `Sat` with a replayed schedule, `Unsat` (proved) with the reason, or `Unknown` with the reason.

    Raises
    ------
    UsageError for an unknown name, numbers below 1, or options that do not go together.

    Examples
    --------
    >>> import synth
    >>> synth.solve("ring:4", "allgather", chunks=2, steps=2, rounds=3).schedule
    <Schedule of allgather on ring:4: C=2, S=2, R=3, 24 sends>
    >>> synth.solve("ring:4", "allgather", chunks=2, steps=2, rounds=2).reason
    'C=2 in 2 steps needs at least 3 rounds, by a cut certificate'
    """
    from synth.checker.schedule import replay as verify
    from synth.model.outcome import Sat, Unknown
    from synth.pareto import problem_bounds
    from synth.pareto.events import Event
    from synth.pareto.portfolio import portfolio
    from synth.solvers.pool import stop

    chunks, steps, rounds = integers((chunks, steps, rounds), "chunks, steps and rounds")
    if min(chunks, steps, rounds) < 1 or rounds < steps:
        raise UsageError(
            f"C={chunks} S={steps} R={rounds}: all at least 1, and each step has at least one round, so R >= S"
        )
    if steps > MOST_STEPS or max(chunks, rounds) > MOST_ASKED:
        raise UsageError(
            f"C={chunks} S={steps} R={rounds}: at most {MOST_STEPS} steps and {MOST_ASKED} chunks and rounds can be "
            f"asked for"
        )
    network = named_topology(topology).network()
    task = task_of(collective, network.ranks, roots, sizes)
    problem = Problem(network, task, chunks, steps, rounds)
    direct = task.combining and not task.reversible
    if direct and (encoding != "auto" or solver not in ("auto", "cadical")):
        raise UsageError(f"{task.name} has engines of its own, with cadical; remove --encoding and --solver")
    deadline, said = Deadline.after(time_limit), None
    budget = Budget(deadline, seed=seed, jobs=workers(jobs), deterministic=deterministic)
    try:
        if encoding == "auto":
            said = problem_bounds.query_bounds(problem, budget)
            if said is not None and said.certificate is not None:
                return Unsat(said.reason)
        budget = replace(budget, deadline=deadline.at_least(LEAST_SECONDS))
        if direct:
            from synth.pareto.combining import point_query

            verdict = point_query.solve(problem, budget)
        else:
            tell = (lambda text: on_event(Event("query", text, steps))) if on_event else None
            verdict = portfolio.solve(problem, budget=budget, encoding=encoding, solver=solver, on_event=tell)
    finally:
        stop()
    if direct and isinstance(verdict, Unknown) and said is not None:
        verdict = replace(verdict, detail=f"no schedule found; the bounds say at least {said.least} rounds")
    if isinstance(verdict, Sat):
        verify.schedule(verdict.schedule)
    return verdict


def bound(
    topology: TopologyLike,
    collective: CollectiveLike,
    *,
    roots: int | Iterable[int] = (),
    sizes: Sequence | None = None,
    max_steps: int | None = None,
    steps: Iterable[int] | None = None,
    time_limit: float | None = None,
    on_event: Listener | None = None,
) -> list[tuple[int | None, LowerBound]]:
    """Return the lower bounds, each with its certificate, without looking for schedules.

    Parameters
    ----------
    topology, collective, roots, sizes : as in `synth.frontier`.
    max_steps : the last number of steps for which there is a bound. None: the first whose bound is that for any number.
    steps : the numbers of steps for which there is a bound. None: all up to `max_steps`.
    time_limit : wall seconds. None: no limit, but `BOUND_EFFORT` seconds on more than 32 ranks, and for bounds on sums
        that differ from rank to rank on more than 16.
    on_event : called with the quick bound that comes first on more than 8 ranks and under a time limit.

    Returns
    -------
    Pairs (S, bound): S is 0 for the bound on the number of steps, a number of steps for the bound on R/C there, and
    None for the bound on R/C at any number of steps.

    Raises
    ------
    InfeasibleError where no schedule exists; FewerBounds, with the bounds so far in `found`, after `time_limit`
    seconds; BoundsInterrupted, with the same, on Ctrl-C.

    Examples
    --------
    >>> import synth
    >>> for steps, least in synth.bound("ring:4", "allgather"):
    ...     print(steps, least.value, least.certificate["kind"])
    0 2 distance
    2 3/2 deadline-cuts
    None 3/2 static-cuts
    """
    from synth.encodings import bounds
    from synth.encodings.bounds import too_few_steps
    from synth.encodings.bounds.single_cut import single_cut_bound
    from synth.pareto.combining.close_combining import has_no_end
    from synth.pareto.engine_choice import with_machine_names
    from synth.pareto.events import Event
    from synth.pareto.incumbents import allreduce_parts_bound, few_direct_sends
    from synth.pareto.sweep import SETTINGS
    from synth.solvers.deadline import TimeUp, time_limited
    from synth.solvers.pool import MAX_RANKS_IN_PROCESS, run_in_process

    machine = named_topology(topology)
    network = machine.network()
    task = task_of(collective, network.ranks, roots, sizes)
    long = network.ranks > EFFORT_RANKS or has_no_end(network, task)
    seconds = BOUND_EFFORT if time_limit is None and long else time_limit
    at_once = seconds is None and network.ranks <= MAX_RANKS_IN_PROCESS
    try:
        bounds.steps(network, task)
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None
    floor: list[tuple[int | None, LowerBound]] = []
    attained: int | None = None  # steps of a schedule that attains the quick bound: from there on none is higher
    if not at_once:
        quick = single_cut_bound(network, task)
        floor = [(None, quick)]
        direct = few_direct_sends(network, task) if network.ranks > MAX_RANKS_IN_PROCESS else None
        if direct is not None and direct.rounds_per_chunk == quick.value:
            attained = len(direct.steps)
        if on_event is not None:
            on_event(Event("bound", "bounds at each number of steps", None, quick.value))
    least = too_few_steps.steps(network, task)
    found: list[tuple[int | None, LowerBound]] = [(0, least)]
    if least.value == 0:
        return found
    kind = bounds.flow

    def at(count: int | None) -> LowerBound:
        if attained is not None and (count is None or count >= attained):
            return floor[0][1]
        try:
            made = [kind(network, task, count) if at_once else run_in_process(kind, network, task, count)]
        except UncheckedError:  # its certificate is too large
            if not floor:
                raise
            made = []
        return max([*made, *(bound for _, bound in floor)], key=lambda b: b.value)

    with time_limited(Deadline.after(seconds)):
        try:
            parts = allreduce_parts_bound(machine, network, task)
            floor += [] if parts is None else [(None, parts)]
            floor = [(None, at(None))]
            last = max_steps or int(least.value) + SETTINGS.steps_beyond
            for count in range(int(least.value), last + 1) if steps is None else sorted(steps):
                found.append((count, at(count)))
                if found[-1][1].value <= floor[0][1].value:
                    break
        except TimeUp:
            over = "the time limit is over" if time_limit is not None else "the default effort is spent"
            raise FewerBounds([*found, *floor], over) from None
        except KeyboardInterrupt:
            raise BoundsInterrupted([*found, *floor]) from None
    return [*found, *floor]
