"""One place that chooses engines: scale methods alone, or incumbents, exact synthesis and scale methods together.

`synthesize` decides. With engine "auto" and few enough ranks three engines share one time and make one frontier:

    incumbents   a bound by cuts and replayed schedules at once; of many ranks all that scale methods have
    exact        the sweep over numbers of steps, which begins with the incumbents
    scale        the remaining stages of the scale methods, where the sweep left something open

What one of them has is handed to the next: the incumbents' bound and schedules to the sweep, and the search by scale
methods from its quick stages to its last ones. So nothing is computed twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import InfeasibleError, SynthError, UsageError
from synth.model.canonical_json import canonical
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.documents.int_ranges import runs
from synth.model.frontier import Frontier
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network, Topology, columns
from synth.pareto.events import Event, Listener, Options, SweepInterrupted
from synth.pareto.incumbents import (
    Incumbents,
    announce,
    find_incumbents,
    has_boxes,
    scale_search,
    with_written_points,
)
from synth.pareto.log import Log, LogError, default_directory, foreign
from synth.pareto.settings import SETTINGS
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline, current_deadline, time_limited

if TYPE_CHECKING:
    from synth.model.scale_frontier import ScaleFrontier
    from synth.pareto.sweep import Sweep
    from synth.scale.search import ScaleSearch

ENGINES = ("auto", "exact", "flow")
# Said of a frontier for which "auto" meant flow methods on fewer ranks than `exact_ranks`.
FINE_GRAINED = (
    "a round carries so many chunks here that auto took flow methods, with one bound for any number of steps; "
    "exact synthesis (--engine exact) has a bound at each number of steps"
)


@dataclass(frozen=True)
class Query:
    """A query for a frontier of exact synthesis: the problem, the options of its sweep, and the course of one run.

    The options say which schedules are searched for, by which engines and in which time. They are a value of their own
    because the sweep needs no more, and because a log belongs to a problem and its options, whatever else a run does.

    `options`: `options.time_limit` is one for all engines together.
    `engine`: "exact", or "auto" for incumbents and scale methods too.
    `log`: the file from which the same query continues. None: a file in the cache directory.
    `fresh`: records of an earlier run in the log are ignored.
    `cross_check`: z3 answers the deciding queries of the frontier again.
    """

    machine: Topology
    collective: Collective
    options: Options
    engine: str = "auto"
    log: Path | None = None
    fresh: bool = False
    cross_check: bool = False

    @cached_property
    def network(self) -> Network:
        """The machine's routes in whole units."""
        return self.machine.network()

    @property
    def names_no_engine(self) -> bool:
        """True where the options name no sweep, encoding or solver and set no limit that only some of them keep."""
        options = self.options
        return options.sweep == "guided" and options.encoding == options.solver == "auto"

    def open_log(self) -> Log:
        """Open the log, which records that it cannot be written. Raises LogError where `log` names such a file."""
        key = _key(problem_fingerprint(self.network, self.collective), self.options)
        if self.log is not None and foreign(self.log):
            raise LogError(f"{self.log}: is no log of a sweep, and is not overwritten; name another file")
        log = Log(self.log or default_directory() / f"{key[:24]}.jsonl", key, self.fresh)
        if log.trouble and self.log is not None:
            raise LogError(log.trouble)
        return log


def synthesize(query: Query, on_event: Listener | None = None) -> Frontier:
    """Return one frontier from incumbents, exact synthesis and scale methods, over one shared time.

    Raises InfeasibleError where no schedule exists, SweepInterrupted with the frontier so far on Ctrl-C, LogError
    where an explicit log cannot be written or is no log, and VerificationError where a cross-check contradicts the
    frontier.
    """
    machine, task, options = query.machine, query.collective, query.options
    listener, deadline = on_event or (lambda event: None), Deadline.after(options.time_limit)
    incumbents = None
    with query.open_log() as log:
        search = scale_search(machine, task, lambda text: listener(Event("query", text)), options.same_bits)
        try:
            if query.names_no_engine:
                incumbents = first_rows(query, search, deadline.share(SETTINGS.incumbent_share), listener)
            frontier = synthesize_exact(query, log, incumbents, deadline, listener)
        except InfeasibleError as error:
            log.close(finished=True)
            raise with_machine_names(error, machine) from None
        except SweepInterrupted as stop:
            if incumbents is None or not isinstance(stop.frontier, Frontier):
                raise
            from synth.pareto.merge_scale_points import with_incumbents

            raise SweepInterrupted(with_incumbents(stop.frontier, incumbents), stop.log) from None
    try:
        if search is not None and query.engine != "exact" and frontier.open:
            from synth.pareto.merge_scale_points import merge_scale_points

            frontier = merge_scale_points(
                frontier, search, incumbents, options, deadline_after_sweep(deadline, options)
            )
        return _cross_checked(frontier, options, deadline, listener) if query.cross_check else frontier
    except SweepInterrupted:  # it holds the points so far
        raise
    except KeyboardInterrupt:
        raise SweepInterrupted(frontier, None) from None


def _cross_checked(frontier: Frontier, options: Options, deadline: Deadline, listener: Listener) -> Frontier:
    """Return `frontier` with z3's answers to the queries (C, S, R) that its points rest on."""
    from synth.pareto.cross_check import cross_check

    budget = Budget(
        deadline_after_sweep(deadline, options),
        memory=options.memory,
        seed=options.seed,
        jobs=options.jobs,
        deterministic=options.deterministic,
    )
    try:
        return cross_check(frontier, budget, lambda text: listener(Event("query", text)))
    finally:
        pool.stop()


def deadline_after_sweep(deadline: Deadline, options: Options) -> Deadline:
    """Return the deadline of the work after the sweep: `deadline`, or later where the sweep has used the time up.

    That work has a least share of the time limit, and a least number of seconds. Without a time limit it is `deadline`.
    """
    if options.time_limit is None:
        return deadline
    return deadline.at_least(max(options.time_limit * SETTINGS.last_share, SETTINGS.last_seconds))


def first_rows(query: Query, search: ScaleSearch | None, deadline: Deadline, listener: Listener) -> Incumbents:
    """Return the incumbents of a query, and announce them.

    All stages of `search` are run first where `_scale_first` says so.
    Raises InfeasibleError where no schedule exists, and SweepInterrupted with the incumbents on Ctrl-C.
    """
    network, task = query.network, query.collective
    latest: Incumbents | None = None
    try:
        with time_limited(deadline):
            for incumbents in _incumbents(query, search):
                announce(incumbents, listener, latest)
                latest = incumbents
    except KeyboardInterrupt:
        if latest is None:
            raise
        raise SweepInterrupted(latest.frontier(query.machine, network, task), None) from None
    assert latest is not None  # the first one has the bound alone
    return latest


def _incumbents(query: Query, search: ScaleSearch | None) -> Iterator[Incumbents]:
    """Yield the incumbents of a query as they are replayed; those of all of `search` where `_scale_first` says so."""
    network, task = query.network, query.collective
    latest: Incumbents | None = None
    for latest in find_incumbents(network, task, search, query.options.deterministic, query.machine):
        yield latest
    if latest is not None and search is not None and _scale_first(query):
        search.advance(current_deadline().share(SETTINGS.search_share))
        yield from with_written_points(latest, search, network, task, first=False)
    if search is not None and search.state.interrupted:
        raise KeyboardInterrupt


def _scale_first(query: Query) -> bool:
    """Return True where all stages of the scale methods come before exact synthesis.

    They do on many ranks, and under a time limit on several boxes of more than `few_ranks` ranks, where exact synthesis
    seldom gets beyond a few steps.
    """
    ranks = query.network.ranks
    several = has_boxes(query.machine) and query.options.time_limit is not None
    return query.engine != "exact" and ranks > (SETTINGS.few_ranks if several else SETTINGS.quick_ranks)


def engine_of(engine: str, machine: Topology, collective: str | Path | Collective) -> str:
    """Return the engine, "exact" or "flow", that `engine` means for this machine and collective. Raises UsageError."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; exact, flow and auto exist")
    if engine != "auto":
        return engine
    from synth.model.scale_collectives import COLLECTIVES

    try:
        name = collective.name if isinstance(collective, Collective) else named_collective(str(collective), 2).name
    except UsageError:  # a file, uneven sizes, or an unknown name: exact synthesis reports which
        return "exact"
    return "flow" if machine.ranks > exact_ranks(name) and name in COLLECTIVES else "exact"


def engine_of_frontier(machine: Topology, collective: str | Path | Collective, roots: Sequence[int] = ()) -> str:
    """Return the engine, "exact" or "flow", that "auto" means for the frontier of this machine and collective.

    It is "flow" on fewer ranks, too, where schedules of so few sends that they are written out beside exact ones have
    too few rounds to come near the bound.
    """
    engine = engine_of("auto", machine, collective)
    if engine == "flow" or machine.ranks <= SETTINGS.quick_ranks:
        return engine
    try:
        name, _ = flow_collective(machine, collective, roots)
    except UsageError:
        return engine
    return "flow" if name != "alltoall" and _written_rounds(machine) < SETTINGS.least_written_rounds else engine


def _written_rounds(machine: Topology) -> float:
    """Return the rounds of the longest allgather that is written out, at the bound of a cut; infinite where methods at
    scale do not take the machine. Of other collectives there are about as many.
    """
    from synth.model.scale_collectives import sends_per_chunk
    from synth.scale.bounds.throughput_cut import throughput
    from synth.scale.fabric.fabric import fabric

    try:
        rounds_per_chunk = throughput(fabric(machine.live()), "allgather", 0).time
    except SynthError:
        return inf
    return float(SETTINGS.max_written_sends * rounds_per_chunk / sends_per_chunk("allgather", machine.ranks))


def exact_ranks(name: str) -> int:
    """Return the maximum ranks for which "auto" means exact synthesis of a collective that flow methods know."""
    return SETTINGS.exact_paired_ranks if name == "alltoall" else SETTINGS.exact_ranks


def flow_collective(
    machine: Topology, collective: str | Path | Collective, roots: Sequence[int] = (), sizes: Sequence | None = None
) -> tuple[str, int]:
    """Return name and root of a collective for flow methods. Raises UsageError where they do not know it."""
    from synth.model.scale_collectives import COLLECTIVES

    value = collective if isinstance(collective, Collective) else None
    name = value.name if value else named_collective(str(collective), 2, ()).name
    if name not in COLLECTIVES or sizes is not None:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {name} use --engine exact")
    used_roots = list(value.roots if value else roots) or [0]
    if len(used_roots) > 1 or not 0 <= used_roots[0] < machine.ranks:
        raise UsageError(
            f"roots {','.join(map(str, used_roots))}: flow methods take one root of 0..{machine.ranks - 1}"
        )
    return name, used_roots[0]


def synthesize_flow(
    machine: Topology, name: str, root: int = 0, on_event: Listener | None = None, *, time_limit: float | None = None
) -> ScaleFrontier:
    """Return the frontier by flow methods; its `unfinished` lists the searches that `time_limit` (seconds) ended.

    Raises InfeasibleError, UsageError for a collective that they do not know, and SweepInterrupted with the points so
    far on Ctrl-C.
    """
    from synth.pareto.scale_rows import ScaleRows
    from synth.scale.search import ScaleSearch

    listener = on_event or (lambda event: None)
    rows = ScaleRows(machine, name, listener)
    try:
        search = ScaleSearch(
            machine, name, root, lambda text: listener(Event("query", text)), on_candidate=rows.announce
        )
        search.advance(Deadline.after(time_limit))
        search.state.leave_out(rows.refusal)
        scale_frontier = search.frontier()
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None
    if scale_frontier.interrupted:
        raise SweepInterrupted(scale_frontier, None)
    return scale_frontier


def synthesize_exact(
    query: Query,
    log: Log,
    incumbents: Incumbents | None,
    deadline: Deadline,
    listener: Listener = lambda event: None,
) -> Frontier:
    """Return the frontier by exact synthesis, which begins with `incumbents` and the records of `log`.

    `deadline`: the end of the time limit, of which the incumbents have used some. Raises InfeasibleError and
    SweepInterrupted.
    """
    machine, options = query.machine, query.options
    notes = machine.notes + ((f"no log: {log.trouble}",) if log.trouble else ())
    limit = options.time_limit
    began = deadline.now if limit is None else deadline.end - limit
    sweep = _sweep_class(options.sweep)(
        query.network, query.collective, options, log, listener, notes, machine.labels, started=began
    )
    if incumbents is not None:
        sweep.seeds, sweep.first_bound, sweep.reached = incumbents.schedules, incumbents.bound, incumbents.reached
        sweep.notes += incumbents.notes
        sweep.reserve = _reserve(query, incumbents)
    return sweep.run()


def _reserve(query: Query, incumbents: Incumbents) -> float:
    """Return the seconds of the time limit after the searches of the sweep: for entering incumbents and the last part.

    The sweep of other sums than reversals plans the entries itself.
    """
    limit, task = query.options.time_limit, query.collective
    if limit is None:
        return 0.0
    entries = 0.0
    if task.reversible or not task.combining:
        work = sum(schedule.sends + len(query.network.routes) for _, schedule in incumbents.schedules)
        entries = min(limit * SETTINGS.entry_share, SETTINGS.seconds_per_send * work)
    return entries + limit * SETTINGS.last_share


def _sweep_class(sweep: str) -> type[Sweep]:
    if sweep == "blind":
        from synth.pareto.sccl_sweep import ScclSweep

        return ScclSweep
    if sweep != "guided":
        raise UsageError(f"unknown sweep {sweep!r}; guided and blind exist")
    from synth.pareto.sweep import Sweep

    return Sweep


def _key(fingerprint: str, options: Options) -> str:
    """Return the key of a log: a digest of the problem and of every option that changes the queries."""
    choices = [
        options.max_steps, options.max_chunks, options.encoding, options.solver, options.sweep, options.seed,
        options.same_bits, options.deterministic, options.max_extra_rounds,
    ]  # fmt: skip
    return hashlib.sha256(canonical([fingerprint, *choices])).hexdigest()


def with_machine_names(error: InfeasibleError, topology: Topology) -> InfeasibleError:
    """Return the error with boxes that no link leaves or enters, and the machine's own numbers of renumbered ranks.

    Only an error whose certificate names a rank that cannot be reached is changed.
    """
    certificate = error.certificate or {}
    if not certificate.get("pair"):
        return error
    labels, names = topology.labels, _separate_boxes(topology.live(), certificate)
    for rank in dict.fromkeys(map(int, re.findall(r"\brank (\d+)", str(error)))):
        if rank < len(labels) and labels[rank] != rank:
            names.append(f"rank {rank} here is the machine's {labels[rank]}")
    return InfeasibleError("; ".join([str(error), ", ".join(names)]), error.certificate) if names else error


def _separate_boxes(topology: Topology, certificate: dict) -> list[str]:
    """Return clauses that name a box that no path leaves, and one that none enters, of an ``unreachable`` certificate.

    The one has a rank that the data are at, the other the rank that they cannot reach. Of a ``distance`` there are
    none: its ranks are joined, by more steps.
    """
    nodes = topology.nodes
    if len(set(nodes)) < 2 or certificate["kind"] != "unreachable":
        return []
    first, end = certificate["pair"]
    # of exact synthesis the pair is a unit and a rank, and `closed` are the ranks that the unit can reach
    held = certificate["closed"] if "problem" in certificate else [first]
    src, dst, _ = columns(topology.links)
    leaves = {}
    for box in dict.fromkeys(nodes[rank] for rank in held):
        ranks = {rank for rank, of_rank in enumerate(nodes) if of_rank == box}
        if _reached(topology, src, dst, ranks) <= ranks:
            leaves[box] = ranks
            break
    ranks = {rank for rank, of_rank in enumerate(nodes) if of_rank == nodes[end]}
    enters = {nodes[end]: ranks} if _reached(topology, dst, src, ranks) <= ranks else {}
    for box, ranks in (leaves | enters).items():
        if _reached(topology, src, dst, ranks) | _reached(topology, dst, src, ranks) <= ranks:
            return [f"no link joins {_box(box, ranks)} to other boxes"]
    clauses = [f"no link leaves {_box(box, ranks)}" for box, ranks in leaves.items()]
    return clauses + [f"no link enters {_box(box, ranks)}" for box, ranks in enters.items()]


def _box(box: int, ranks: set[int]) -> str:
    listed = ", ".join(f"{first}-{last}" for first, last in runs(sorted(ranks)))
    return f"box {box} (ranks {listed})"


def _reached(topology: Topology, src: Sequence[int], dst: Sequence[int], ranks: set[int]) -> set[int]:
    """Return the ranks that paths over the links lead to from `ranks`."""
    from synth.scale.fabric.graphs import distances

    nodes = topology.ranks + len(topology.switches)
    starts = sorted(ranks)  # a further node has links to all of them
    far = distances(nodes + 1, [*src, *[nodes] * len(starts)], [*dst, *starts], nodes)
    return {rank for rank in range(topology.ranks) if far[rank] >= 0}
