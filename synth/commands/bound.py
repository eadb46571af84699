"""`synth bound`, `synth.bound` and `synth.time_bound`: lower bounds with certificates, and no schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import click

from synth.commands.framework.declaration import command, function, option
from synth.commands.framework.documents import write_infeasible_document
from synth.commands.framework.output import emit, note
from synth.commands.framework.progress import progress
from synth.commands.framework.shared import (
    LISTED,
    Changes,
    Output,
    TaskOptions,
    chosen_collective,
    chosen_machine,
    collective_or_name,
    engine_option,
    multicast_option,
    refuse_given,
    time_limit_option,
)
from synth.commands.framework.types import Positive, Sizes
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import collective_or_value, integers, named_topology, sizes_in_bytes
from synth.commands.root import INTERRUPTED, UNDECIDED
from synth.errors import InfeasibleError, UncheckedError, UndecidedError, UsageError
from synth.model.collective import COLLECTIVES, canonical_name
from synth.model.frontier import LowerBound
from synth.model.rational import counted
from synth.model.topology import MULTICAST_NOTE
from synth.pareto.events import Event, Listener
from synth.program.program import PROTOCOLS

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.model.bounds.time_bound import TimeBound
    from synth.model.collective import Collective
    from synth.model.frontier import Frontier
    from synth.model.topology import Network

BOUND_EFFORT = 20.0  # wall seconds of `bound` for better bounds than the quick one, where nobody limited them
EFFORT_RANKS = 32  # maximum ranks up to which bounds on copies are not limited so; of more ranks they can take minutes
# The note of a bound at scale that holds where the machine's switches multicast and reduce, too.
HOLDS_NOTE = "its switches multicast and reduce (NVLS); the bound on rounds/chunk holds for schedules with that, too"


class FewerBounds(UndecidedError):
    """The time limit, or the default effort, came before all bounds: `found` are those that there are, as `bound`
    returns them."""

    def __init__(self, found: list[tuple[int | None, LowerBound]], over: str = "the time limit is over") -> None:
        super().__init__(f"{over}; {counted(len(found), 'bound')} found")
        self.found = found


class BoundsInterrupted(KeyboardInterrupt):
    """Ctrl-C came before all bounds: `found` are those that there are, as `bound` returns them."""

    def __init__(self, found: list[tuple[int | None, LowerBound]]) -> None:
        super().__init__("interrupted")
        self.found = found


@dataclass(frozen=True, kw_only=True)
class BoundQuestion(TaskOptions):
    """The options of bounds at each number of steps."""

    max_steps: int | None = option(
        "--max-steps", default=None, type=Positive(), metavar="N", help="Bounds for up to N steps.",
        doc="the last number of steps for which there is a bound. None: the first whose bound is that for any number.",
    )  # fmt: skip
    steps: Iterable[int] | None = option(
        default=None, doc="the numbers of steps for which there is a bound. None: all up to `max_steps`."
    )
    time_limit: float | None = time_limit_option(
        "Wall time; bounds so far are printed when it ends. By default 20 s above 32 ranks, for scans above 16.",
        "wall seconds. None: no limit, but `BOUND_EFFORT` seconds on more than 32 ranks, and for bounds on sums that "
        "differ from rank to rank on more than 16.",
    )
    on_event: Listener | None = option(
        default=None,
        doc="called with the quick bound that comes first on more than 8 ranks and under a time limit.",
    )


@function(BoundQuestion)
def bound(question: BoundQuestion) -> list[tuple[int | None, LowerBound]]:
    """Return the lower bounds, each with its certificate, without looking for schedules.

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
    from synth.pareto.events import with_machine_names
    from synth.pareto.first_rows import allreduce_parts_bound, direct_schedule, few_sends
    from synth.pareto.sweep import STEPS_BEYOND
    from synth.solvers.deadline import Deadline, TimeUp, time_limited
    from synth.solvers.pool import MAX_RANKS_IN_PROCESS, run_in_process

    # A search of unknown length is limited by itself where nobody limits it.
    machine = named_topology(question.topology)
    network = machine.network()
    task = task_of(question.collective, network.ranks, question.roots, question.sizes)
    limited = question.time_limit is not None
    long = network.ranks > EFFORT_RANKS or has_no_end(network, task)
    seconds = BOUND_EFFORT if long and not limited else question.time_limit
    at_once = seconds is None and network.ranks <= MAX_RANKS_IN_PROCESS
    # Infeasible problems end here, by the names of the machine.
    try:
        bounds.steps(network, task)
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None
    # Where linear programs take long, a quick bound for any number of steps comes first; direct sends may attain it.
    floor: list[tuple[int | None, LowerBound]] = []
    attained: int | None = None  # steps of a schedule that attains the quick bound: from there on none is higher
    if not at_once:
        quick = single_cut_bound(network, task)
        floor = [(None, quick)]
        many = network.ranks > MAX_RANKS_IN_PROCESS and few_sends(task)
        direct = direct_schedule(network, task) if many else None
        if direct is not None and direct.rounds_per_chunk == quick.value:
            attained = len(direct.steps)
        if question.on_event is not None:
            question.on_event(Event("bound", "bounds at each number of steps", None, quick.value))
    # The bound on the number of steps itself.
    least = too_few_steps.steps(network, task)
    found: list[tuple[int | None, LowerBound]] = [(0, least)]
    if least.value == 0:
        return found
    # The bound at a number of steps (None: at any) is the best of the quick ones and of the linear program.
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

    # Upwards until a bound is no better than that for any number of steps, from where on none is.
    with time_limited(Deadline.after(seconds)):
        try:
            parts = allreduce_parts_bound(machine, network, task)
            floor += [] if parts is None else [(None, parts)]
            floor = [(None, at(None))]
            last = question.max_steps or int(least.value) + STEPS_BEYOND
            counts = range(int(least.value), last + 1) if question.steps is None else sorted(question.steps)
            for count in counts:
                found.append((count, at(count)))
                if found[-1][1].value <= floor[0][1].value:
                    break
        except TimeUp:
            over = "the time limit is over" if limited else "the default effort is spent"
            raise FewerBounds([*found, *floor], over) from None
        except KeyboardInterrupt:
            raise BoundsInterrupted([*found, *floor]) from None
    return [*found, *floor]


def scale_bound(
    topology: TopologyLike,
    collective: CollectiveLike,
    *,
    roots: Sequence[int] = (),
    engine: str = "flow",
    time_limit: float | None = None,
) -> Frontier | None:
    """Return the lower bound of a machine of any size by flow methods, with its certificate.

    None where `engine` is "auto" and the machine is small enough for `bound`. After `time_limit` seconds it is the best
    bound so far, and `Frontier.unfinished` says that there may be a higher one.
    """
    from synth.pareto.events import with_machine_names
    from synth.pareto.synthesize import flow_task
    from synth.scale.bounds.switches import holds_with_multicast
    from synth.scale.search import bound as flow_bound

    # Small machines have exact bounds instead.
    machine = named_topology(topology)
    roots, collective = integers(roots, "roots"), collective_or_value(collective, machine.ranks)
    task = flow_task(engine, machine, collective, roots)
    if task is None:
        return None
    try:
        found = flow_bound(machine, task.name, task.root or 0, time_limit=time_limit)
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None

    # The notes say whether the bound for any number of steps holds with multicast, too.
    bounds = [bound for steps, bound in found.bounds if steps is None]
    if MULTICAST_NOTE not in found.notes or not bounds:
        return found
    groups, ranks = [switch.ranks for switch in found.topology.multicast], found.topology.ranks
    if not all(holds_with_multicast(ranks, groups, bound.certificate) for bound in bounds):
        return found
    notes = list(found.notes)
    notes[notes.index(MULTICAST_NOTE)] = HOLDS_NOTE
    return replace(found, notes=tuple(notes))


class MulticastBounds(NamedTuple):
    """Bounds of `collective` on `network` with multicast: pairs (steps, bound) as `synth.api.bound` returns them."""

    network: Network
    collective: Collective
    bounds: list[tuple[int | None, LowerBound]]


def multicast_bounds(topology: TopologyLike, collective: CollectiveLike) -> MulticastBounds | None:
    """Return bounds on steps and on R/C at any number of steps where the switches of a machine multicast and reduce.

    None where no schedule of the collective passes them, and on more than `synth.pareto.multicast.MOST_RANKS` ranks.
    Raises InfeasibleError.
    """
    from synth.encodings.bounds.distance import steps
    from synth.encodings.bounds.multicast import multicast_bound
    from synth.encodings.engine import FrontierProblem, Options
    from synth.pareto.multicast import applies

    machine = named_topology(topology)
    task = task_of(collective, machine.ranks)
    if not applies(FrontierProblem(machine, task, Options(multicast=True))):
        return None
    # On steps, and on rounds per chunk for any number of them.
    network = machine.multicast_network()
    least = steps(network, task)
    bounds: list[tuple[int | None, LowerBound]] = [(0, least)]
    if least.value:
        bounds.append((None, multicast_bound(network, task)))
    return MulticastBounds(network, task, bounds)


@dataclass(frozen=True)
class TimeQuestion(TaskOptions):
    """The options of bounds in time."""

    size: int | str | Iterable[int | str] = option(
        "--sizes", "--size", required=False, type=Sizes(), metavar="1KB,1MB,1GB",
        help="Bounds on the time for these sizes instead (1KB = 1024 bytes).",
        doc='bytes, or a text such as "1MB", or several of them; nccl-tests\' size, 1 KB = 1024 bytes.',
    )  # fmt: skip
    _: KW_ONLY
    protocol: str | None = option(
        "--protocol", default=None, type=click.Choice(PROTOCOLS, case_sensitive=False),
        help="With the sizes: bounds by the clock of predicted times, after the protocol's launch.",
        doc="by the clock of predicted times in this protocol, launch included. None: on bare links.",
    )  # fmt: skip
    time_limit: float | None = time_limit_option(
        "", "wall seconds of the search for the greatest rate of a large machine. None: no limit."
    )


@function(TimeQuestion)
def time_bound(question: TimeQuestion) -> TimeBound:
    """Return lower bounds in time: no program on the machine, with whatever messages, is faster.

    A bound is the greater of the latency of the farthest pair, and of one latency and the time that the bytes take by
    the certified bound on rounds per chunk. It holds with multicasts and sums in switches, where the machine has those.

    Returns
    -------
    For each size the µs that no program can beat, and the reason in words; the certificate of rounds per chunk.

    Raises
    ------
    InfeasibleError where data cannot reach a rank; UsageError for an unknown name or what is no size.

    Examples
    --------
    >>> import synth
    >>> for row in synth.time_bound("dgx1", "allgather", ["1KB", "1MB"]).rows:
    ...     print(row.size, float(row.microseconds))
    1024 1.4
    1048576 6.816693333333333
    """
    from synth.pareto.events import with_machine_names
    from synth.pareto.synthesize import flow_task
    from synth.program.overheads import NCCL
    from synth.scale.time_bound import time_bound as bound_of
    from synth.solvers.deadline import Deadline, time_limited

    machine = named_topology(question.topology)
    roots, collective = integers(question.roots, "roots"), collective_or_value(question.collective, machine.ranks)
    sizes = sizes_in_bytes(question.size, "size")
    # Large machines take the collective by its name: its units are not written out.
    task: str | Collective
    by_name = isinstance(collective, str) and question.sizes is None and machine.ranks > LISTED
    if by_name and canonical_name(str(collective)) in COLLECTIVES:
        flow = flow_task("flow", machine, collective, roots)
        assert flow is not None
        task, root = flow.name, flow.root or 0
    else:
        task, root = task_of(collective, machine.ranks, roots, question.sizes), 0
    clock = {} if question.protocol is None else {"overheads": NCCL, "protocols": (question.protocol,)}
    try:
        with time_limited(Deadline.after(question.time_limit)):
            return bound_of(machine, task, sizes, root=root, **clock)
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None


@dataclass(frozen=True, kw_only=True)
class Bound(Output, Changes, BoundQuestion, TimeQuestion):
    """The options of `synth bound`."""

    engine: str = engine_option(
        "Bounds for each number of steps, or flow bounds for any number of ranks; auto: flow above 64.", ""
    )
    multicast: bool = multicast_option()


@command(Bound)
def bound_command(options: Bound) -> int:
    """Print every lower bound with its certificate: on steps, on rounds per chunk, and at each number of steps.

    \b
    Examples:
      synth bound --topo dgx1 --coll alltoall
      synth bound --topo 'dgx-h100*128' --coll allgather
      synth bound --topo 'dgx-a100*2' --coll allreduce --sizes 1KB,1MB,1GB
    """
    from synth.commands.framework.documents import frontier_document
    from synth.view import bound_tables

    in_time = options.size is not None
    if options.protocol and not in_time:
        raise UsageError("--protocol changes bounds in time; add --sizes, such as --sizes 1MB")
    if in_time:
        refuse_given("bounds in time are for any number of steps, by every method", "max-steps", "engine")
    machine = chosen_machine(options)
    task = collective_or_name(options, machine)
    asked = replace(options, topology=machine, collective=task, roots=(), sizes=None)

    # Bounds in time, with multicast, or by flow methods: each for any number of steps.
    with write_infeasible_document(options, machine, task, options.max_steps):
        if in_time:
            times = time_bound.of(asked)
            table = bound_tables.time_report(times, machine.ranks, options.protocol or "")
            emit(times.to_json, lambda: table, options)
            return 0
        switches = multicast_bounds(machine, task) if options.multicast else None
        if switches is not None:
            refuse_given("bounds through switches are for any number of steps; --no-multicast has others", "max-steps")
            table = bound_tables.multicast_report(*switches, machine.labels)
            emit(lambda: bound_tables.document(*switches), lambda: table, options)
            return 0
        large = scale_bound(machine, task, engine=options.engine, time_limit=options.time_limit)
    if large is not None:
        refuse_given("bounds of flow methods are for any number of steps", "max-steps")
        emit(lambda: frontier_document(large), lambda: bound_tables.scale_report(large), options)
        return UNDECIDED if large.unfinished else 0

    # Bounds at each number of steps.
    collective = chosen_collective(options, machine)
    code, left = 0, ""
    try:
        with (
            write_infeasible_document(options, machine, collective, options.max_steps),
            progress(f"bounds on {options.collective} on {machine.name}", options.time_limit) as listen,
        ):
            bounds = bound.of(replace(asked, collective=collective, on_event=listen))
    # The bounds so far are printed whatever ended the search.
    except FewerBounds as less:
        limited, bounds = options.time_limit is not None, less.found
        code = UNDECIDED if limited else 0
        left = "the time limit came" if limited else "the default effort is spent, --time-limit allows more: it came"
    except BoundsInterrupted as stop:
        code, left, bounds = INTERRUPTED, "Ctrl-C came", stop.found
    emit(
        lambda: bound_tables.document(machine.network(), collective, bounds),
        lambda: bound_tables.report(machine, collective, bounds), options,
    )  # fmt: skip
    if left:
        note(f"left open: {left} before the bounds at more steps")
    return code
