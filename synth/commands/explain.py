"""`synth explain`, `synth.api.explain`, `distance` and `blame`: the optimum beside rings; why a schedule is slower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.bound import FewerBounds, bound, multicast_bounds, scale_bound
from synth.commands.framework.declaration import command, option
from synth.commands.framework.documents import write_infeasible_document
from synth.commands.framework.output import emit, note, printable
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    FILE,
    Changes,
    Output,
    StepOption,
    TaskOptions,
    chosen_collective,
    chosen_machine,
    machine_if_named,
    point_option,
    refuse_given,
    time_limit_option,
)
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import integers, named_topology
from synth.commands.root import INTERRUPTED, UNDECIDED
from synth.errors import InfeasibleError, UsageError
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.encodings.bounds.blame import Places
    from synth.model.bounds.blame import Blame
    from synth.model.compressed_schedule import CompressedSchedule
    from synth.model.frontier import LowerBound, StepCount
    from synth.scale.baselines.comparison import Explanation
    from synth.view.frontier_text import Report

EXPLAINED = 1024  # ranks up to which rings are looked for
DISTANCE_SECONDS = 20.0  # wall seconds after which `distance` is content with the bounds that it has


def explain(
    topology: TopologyLike, collective: CollectiveLike, *, time_limit: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Explanation:  # fmt: skip
    """Compare the optimal rate of a collective with rings on the same links.

    The result names the cut or partition that limits all of them. After `time_limit` seconds it holds the rates so far,
    and `Explanation.open` names the missing ones. Raises
    InfeasibleError, with two ranks as its certificate, where the links do not connect the ranks, UsageError for more
    than `EXPLAINED` ranks.
    """
    from synth.encodings import bounds
    from synth.pareto.events import with_machine_names
    from synth.scale.baselines.comparison import MethodRate
    from synth.scale.baselines.comparison import explain as explained
    from synth.scale.search import bound as flow_bound
    from synth.solvers.deadline import Deadline, time_limited

    machine = named_topology(topology)
    if machine.ranks > EXPLAINED:
        raise UsageError(
            f"{machine.name} has {machine.ranks} ranks: rings are looked for on up to {EXPLAINED}; `synth bound` "
            f"says its optimum"
        )
    # The rates of rings and of other methods beside the optimum.
    machine = machine.live()
    task = task_of(collective, machine.ranks)
    root = task.roots[0] if task.roots else 0
    with time_limited(Deadline.after(time_limit)):
        found = explained(machine, task.name, lambda name: flow_bound(machine, name, root), progress)
    # A rate of nothing means that links do not connect the ranks: the certificate says which.
    if found.rates[0].units == 0:
        try:
            bounds.steps(machine.network(), task)
        except InfeasibleError as error:
            raise with_machine_names(error, machine) from None

    # Beside them the rate of switches that multicast and reduce, where the machine has those.
    beside = multicast_bounds(machine, task)
    least = None if beside is None else dict(beside.bounds).get(None)
    if least is None or not least.value:
        return found
    remark = "their upper bound; `synth pareto` has schedules"
    rate = MethodRate("switches multicast and reduce", 1 / (least.value * task.unit_share), remark, multicast=True)
    return replace(found, rates=(*found.rates, rate))


@dataclass(frozen=True)
class Distance:
    """The steps and the rounds per chunk of a schedule beside the lower bounds; None for a bound that is not known.

    Attributes
    ----------
    steps, rounds_per_chunk : of the schedule.
    least_steps : no schedule takes fewer steps.
    at_steps : no schedule of so many steps takes fewer rounds per chunk.
    at_any : nor does one of any number of steps.
    bound : the bound at its steps with its certificate; None where it is not known, or one of bandwidth alone.
    unfinished : True if the time limit came before all bounds.
    """

    steps: int
    rounds_per_chunk: Fraction
    least_steps: int | None
    at_steps: Fraction | None
    at_any: Fraction | None
    bound: LowerBound | None = None
    unfinished: bool = False

    @property
    def factor(self) -> Fraction | None:
        """Rounds per chunk divided by the bound for any number of steps."""
        return self.rounds_per_chunk / self.at_any if self.at_any else None

    def to_json(self) -> dict[str, Any]:
        """Return the distance as a JSON document."""
        at_steps = None if self.at_steps is None else str(self.at_steps)
        at_any = None if self.at_any is None else str(self.at_any)
        return {
            "steps": self.steps, "rounds_per_chunk": str(self.rounds_per_chunk), "least_steps": self.least_steps,
            "bound_at_steps": at_steps, "bound": at_any, "unfinished": self.unfinished,
        }  # fmt: skip


def distance(
    schedule: Schedule | CompressedSchedule, topology: TopologyLike, *, time_limit: float | None = None
) -> Distance:
    """Return how far a schedule is from the certified lower bounds of its machine and collective.

    Parameters
    ----------
    schedule : a schedule of this machine.
    topology : the machine.
    time_limit : wall seconds for the bounds. None: `DISTANCE_SECONDS`.

    Examples
    --------
    >>> import synth
    >>> from synth.language.library import ring
    >>> found = synth.api.distance(ring.allgather.schedule("ring:5"), "ring:5")
    >>> found.steps, found.least_steps, found.rounds_per_chunk, found.at_any
    (4, 2, Fraction(2, 1), Fraction(2, 1))
    """
    return distances([schedule], topology, time_limit=time_limit)[0]


def distances(
    schedules: Sequence[Schedule | CompressedSchedule], topology: TopologyLike, *, time_limit: float | None = None
) -> tuple[Distance, ...]:
    """Return how far schedules of one collective are from its lower bounds, which are computed once; as `distance`."""
    # Large machines have one bound for any number of steps.
    machine = named_topology(topology)
    task = schedules[0].collective
    seconds = DISTANCE_SECONDS if time_limit is None else time_limit
    rates = [(schedule.step_count, schedule.rounds_per_chunk) for schedule in schedules]
    large = scale_bound(machine, task, engine="auto", time_limit=seconds)
    if large is not None:
        over, least = bool(large.unfinished), large.least_steps
        return tuple(Distance(*rate, least, large.bound, large.bound, unfinished=over) for rate in rates)
    unfinished = False
    try:
        found = bound(machine, task, steps={steps for steps, _ in rates}, time_limit=seconds)
    except FewerBounds as fewer:
        found, unfinished = fewer.found, True
    # By steps: 0 has the least number of them, None the bound for any number.
    known = dict(found)
    at_any, fewest = known.get(None), known.get(0)
    least = 0 if fewest is None else int(fewest.value)
    any_value, rows = None if at_any is None else at_any.value, []
    for steps, rate in rates:
        here = known.get(steps, at_any)
        value = None if here is None else here.value
        rows.append(Distance(steps, rate, least, value, any_value, here, unfinished))
    return tuple(rows)


def blame(
    schedule: Schedule, bound: LowerBound, *, topology: TopologyLike | None = None, places: Places | None = None
) -> Blame | None:  # fmt: skip
    """Return where the rounds of a schedule go, by the certificate of a bound: needed, detours, idle links and slack.

    Parameters
    ----------
    schedule : a schedule.
    bound : at its number of steps, as `distance` has it, or for any number.
    topology : the machine of the bound, on which the schedule is replayed: under a sketch its own has fewer links.
        None: its own.
    places : the source line of each send by (step, chunk, source, destination), such as `Compiled.places`.

    Returns
    -------
    Parts that come to the schedule's rounds exactly. None where the certificate has no prices.

    Raises
    ------
    VerificationError where the machine does not carry the schedule, or the bound is not of it.

    Examples
    --------
    >>> import synth
    >>> from synth.language.library import recursive_doubling
    >>> schedule = recursive_doubling.allgather.schedule("hypercube:8")
    >>> found = synth.api.blame(schedule, synth.api.distance(schedule, "hypercube:8").bound)
    >>> found.total.rounds == schedule.rounds
    True
    """
    from synth.checker.schedule import replay
    from synth.encodings.bounds.blame import blame

    # A bound of the whole machine blames links that a sketch left out, too.
    network = schedule.network
    if topology is not None and not schedule.uses_multicast:
        network = named_topology(topology).network()
    if network.document != schedule.network.document:
        schedule = replace(schedule, network=network)
        replay.schedule(schedule)
    return blame(schedule, bound, places)


# The sentence below the table of a schedule.
RIGHT = "right: every rank ends with what it must (replayed)"


def distance_reports(
    name: str, schedule: Schedule | CompressedSchedule, distance: Distance | None, blame: Blame | None
) -> Sequence[Report]:
    """Return the tables of what a schedule takes, beside the bounds where they are known, and why it takes more."""
    from synth.model.rational import counted, factor_text, show
    from synth.view import blame_tables
    from synth.view.frontier_text import Report

    sizes = f"{counted(schedule.step_count, 'step')}, {counted(schedule.rounds, 'round')}"
    title = f"{name}: {' on '.join(_problem(schedule))}: {sizes}, C={schedule.chunks}"
    if distance is None:
        return [Report.of(title, (), (), (RIGHT,))]
    # The schedule beside the bounds, at its number of steps and at any.
    columns = ("", ">here", ">at least", ">factor")
    rate = show(schedule.rounds_per_chunk)
    steps, least = distance.steps, distance.least_steps
    rows = [("steps", str(steps), "" if least is None else str(least), factor_text(steps, least))]
    in_steps, in_any = f"in {counted(steps, 'step')}", "in any number of steps"
    for scope, value in ((in_steps, distance.at_steps), (in_any, distance.at_any)):
        shown = "" if value is None else show(value)
        rows.append((f"rounds/chunk {scope}", rate, shown, factor_text(schedule.rounds_per_chunk, value)))
    tables = [Report.of(title, columns, rows, (RIGHT,))]
    if blame is not None:
        tables += blame_tables.reports(blame)
    return tables


def _problem(schedule: Schedule | CompressedSchedule) -> tuple[str, str]:
    if isinstance(schedule, Schedule):
        return schedule.collective.name, schedule.network.name
    return schedule.collective, schedule.topology.name


def distance_document(
    name: str, schedule: Schedule | CompressedSchedule, distance: Distance | None, blame: Blame | None
) -> dict[str, Any]:  # fmt: skip
    """Return the content of `distance_reports`."""
    collective, topology = _problem(schedule)
    return {
        "algorithm": name, "collective": collective, "topology": topology,
        "steps": schedule.step_count, "rounds": schedule.rounds, "chunks": schedule.chunks, "sends": schedule.sends,
        "distance": None if distance is None else distance.to_json(),
        "blame": None if blame is None else blame.to_json(),
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Explain(Output, Changes, StepOption, TaskOptions):
    """The options of `synth explain`."""

    file: Path | None = option("file", default=None, type=FILE, required=False)
    point: int | StepCount | None = point_option("The N-th point of FILE, where it is a frontier.")
    time_limit: float | None = time_limit_option("Wall time; results so far are printed when it ends.")


@command(Explain)
def explain_command(options: Explain) -> int:
    """Compare the optimal rate of a collective with the rate of rings on the same links, and name the cut or partition
    that limits it.

    With FILE, a schedule, a point of a frontier or what `synth import` reads: how far it is from the certified bounds,
    and where the rounds beyond them go, by step, link and place in the file.

    \b
    Examples:
      synth explain --topo dgx1 --ranks 0,1,2,5 --coll allreduce
      synth explain --topo 'dgx-a100*128' --coll allgather
      synth explain frontier.json --step 3
    """
    from synth.view import rate_tables

    if options.file is not None:
        return _explain_file(options.file, options)
    if options.point is not None:
        raise UsageError("--point and --step choose from a frontier: name its FILE")
    # Without a file the machine itself is explained.
    machine, limit = chosen_machine(options), options.time_limit
    task = chosen_collective(options, machine)
    with (
        write_infeasible_document(options, machine, task),
        waiting(f"{task.name} on {machine.name}", limit) as tell,
    ):
        found = explain(machine, task, time_limit=limit, progress=tell)
    unit = machine.unit_bandwidth()
    report = rate_tables.explanation(rate_tables.title(machine, task), unit, found, machine.notes)
    emit(
        lambda: rate_tables.explained(machine.name, task.name, unit, found),
        lambda: report, options,
    )  # fmt: skip
    # Ctrl-C and the time limit keep what was found.
    if found.interrupted:
        return INTERRUPTED
    return UNDECIDED if found.open else 0


def _explain_file(file: Path, options: Explain) -> int:
    from synth.commands.programs.import_ import import_schedule

    if file.suffix == ".py":
        raise UsageError(f"{file} is a program: `synth compile {file}` runs and explains it")
    refuse_given("the file says how much each rank has", "counts")
    machine, limit = machine_if_named(options), options.time_limit
    with waiting(f"explaining {file}", limit):
        roots = integers(options.roots, "roots")
        found = import_schedule(file, machine, collective=options.collective, roots=roots, point=options.point)
        schedule = found.schedule
        far = distance(schedule, machine or schedule.network.as_topology(), time_limit=limit)
        # Places of a program in this file are lines alone.
        places = {}
        for send, place in () if found.compiled is None else found.compiled.places.items():
            places[send] = str(place).removeprefix(f"{file}: ").removeprefix(f"{file}:")
        why = None if far.bound is None else blame(schedule, far.bound, topology=machine, places=places)
    for line in found.notes:
        note(line)
    emit(
        lambda: distance_document(file.name, schedule, far, why),
        lambda: distance_reports(printable(file.name), schedule, far, why), options,
    )  # fmt: skip
    if far.unfinished:
        note("the time limit came before all bounds; --time-limit allows more")
        return UNDECIDED
    return 0
