"""`synth tune` and `synth.tune`: from frontiers, measurements and logs to a plan of what to run at which size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from synth.catalog.tuner.request import SIZES, TuningRequest
from synth.commands.framework.declaration import command, function, option, part
from synth.commands.framework.output import emit
from synth.commands.framework.progress import progress
from synth.commands.framework.shared import (
    FILE,
    Changes,
    Output,
    dtype_option,
    instances_option,
    jobs_option,
    machine_if_named,
    names_option,
    overheads_option,
    per_send_option,
    protocol_option,
    refuse_given,
    sizes_option,
    time_limit_option,
    topology_option,
)
from synth.commands.framework.types import LogFile
from synth.commands.inputs import named_topology, sizes_in_bytes
from synth.commands.programs.sources import placed
from synth.commands.tuning.inputs import (
    CollectiveInputs,
    check_times,
    collective_inputs,
    frontier,
    logged,
    measurements,
)
from synth.commands.tuning.point_times import SWITCH_PROTOCOLS
from synth.commands.tuning.schedules import candidate_schedules, library_schedules, without_plans
from synth.encodings.multicast_pipelining import MulticastPipelining, whole_switch
from synth.errors import SynthError, UsageError, VerificationError
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule
from synth.model.topology import MULTICAST_NOTE, Network, Topology
from synth.model.tuning_plan import OURS, Plan, joined
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import describe, selected
from synth.program.plan_limits import ALIGNMENT
from synth.solvers.deadline import Deadline, current_deadline, time_limited

if TYPE_CHECKING:
    from synth.catalog.tuner.candidates import CandidateSet, TunerCandidate
    from synth.commands.inputs import TopologyLike
    from synth.export.request import Machine
    from synth.pareto.events import Listener

# Share of a collective's time for its frontier, and share of the rest for rings.
FOR_FRONTIER, FOR_SCHEDULES = 0.65, 0.3
NOT_COMPLETE = "the frontier is not complete: its open intervals may hold better points"
LEAST = "times are lower bounds, from the longest chain of messages and the busiest link"
NOT_TIMED = "not run within the time limit, so not compared at some sizes"
NOT_OF_TABLES = ("topo", "from", "measured", "log")  # options that a tuning table leaves nothing to do for


@dataclass(frozen=True)
class Tuning:
    """The options of a plan."""

    topology: TopologyLike | None = topology_option(
        "the machine, as `synth.topology` takes it. None: that of the frontiers, or of the measurements.", default=None,
    )  # fmt: skip
    collective: str | Sequence[str] = names_option(
        "A collective (repeatable, or with commas): one plan for all.",
        "the name of one collective, or of several. (): those of the frontiers and the measurements.", default=(),
    )  # fmt: skip
    sizes: int | str | Iterable[int | str] = sizes_option(
        "Judged sizes: LOW, LOW times F, ... up to HIGH, as nccl-tests counts; or 1KB,6MB.",
        'bytes, or texts such as "1MB", one or several, at which candidates are compared, as nccl-tests counts.',
        SIZES, 2, "1KiB:1GiB",
    )  # fmt: skip
    _: KW_ONLY
    frontiers: Sequence[Frontier | str | Path] = option(
        "--from", default=(), type=FILE, multiple=True, metavar="FILE",
        help="A frontier, instead of --topo (repeatable).",
        doc="values or files. (): those that come with the package, else synthesized ones.",
    )  # fmt: skip
    measured: Sequence[str | Path | dict] = option(
        "--measured", default=(), type=FILE, multiple=True, metavar="FILE",
        help="Times that `synth bench -o` wrote (repeatable).",
        doc="documents that `synth bench` wrote, or files of them.",
    )  # fmt: skip
    logs: Sequence[tuple[str, str | Path]] = option(
        "--log", default=(), type=LogFile(), multiple=True, metavar="BACKEND=FILE",
        help="nccl-tests' output or JSON: nccl=FILE, rccl=FILE, nccl/ring/LL=FILE (repeatable).",
        doc="(backend, file) of nccl-tests' output.",
    )  # fmt: skip
    root: int | None = option(
        "--root", default=None, type=int, metavar="0", help="The root of a rooted collective; by default rank 0.",
        doc="of rooted collectives. None: rank 0, or that of the frontiers.",
    )  # fmt: skip
    protocols: Sequence[str] = protocol_option(
        "Only Simple, LL or LL128 (repeatable).", (),  # type: ignore[arg-type]
        "with which schedules are tried. (): those that were measured, or that the links allow.", multiple=True,
    )  # fmt: skip
    instances: Sequence[int] = instances_option(
        "Copies of a program to try (repeatable).", (),  # type: ignore[arg-type]
        "with which schedules are tried. (): those that were measured, or one.", multiple=True,
    )  # fmt: skip
    per_send: MessageCost | str = per_send_option(NO_COST)
    overheads: bool = overheads_option()
    dtype: str = dtype_option("Type of the elements, which chunks must divide.")
    in_place: bool = option("--in-place", default=False, help="Use the times of calls in place.")
    time_limit: float | None = time_limit_option(
        "Wall time for all syntheses.", "wall seconds for everything. None: the default effort."
    )
    jobs: int | None = jobs_option(
        "Processes of a synthesis; by default the number of cores.",
        "processes of a synthesis. None: one for each core.",
    )
    on_event: Listener | None = option(default=None, doc="called with each event of the search.")


@function(Tuning)
def tune(asked: Tuning) -> Plan:
    """Choose the algorithm for each message size.

    With measurements or logs, candidates are what was measured. Without, they are every point of the frontiers, list
    schedules, and the algorithms of the library that fit the machine, in every protocol and number of instances, and
    NCCL's own ring and tree; they are timed by runs of the reference executor.

    Returns
    -------
    The `Plan`: an algorithm for each range of sizes, with predicted or measured times and losses.

    Raises
    ------
    UsageError for an unknown name; FormatError with file and place; SynthError where nothing says how long anything
    takes.

    Examples
    --------
    >>> import synth
    >>> found = synth.frontier("ring:4", "allgather")
    >>> plan = synth.tune(frontiers=[found], sizes=["1KB", "1MB"])
    >>> [table.collective for table in plan.tables]
    ['allgather']
    """
    sizes, per_send = sizes_in_bytes(asked.sizes), MessageCost.of(asked.per_send)
    return tune_request(part(TuningRequest, asked, sizes=sizes, per_send=per_send), asked.on_event)


def tune_request(request: TuningRequest, on_event: Listener | None = None) -> Plan:
    """Tune as `tune` does, with all options as one value."""
    from synth.catalog.tuner import nccl_tests

    machine = None if request.topology is None else named_topology(request.topology)
    request = replace(request, topology=machine)
    # The names of collectives: those asked for, or those of the frontiers and the measurements.
    for _, file in request.logs:
        nccl_tests.log_text(Path(file))  # before anything is searched for
    opened = [frontier(given) for given in request.frontiers]
    name = machine.name if machine else None
    if machine is None and opened:
        name = opened[0].machine.name
    held = measurements(request.measured, request.in_place)
    names = [request.collective] if isinstance(request.collective, str) else list(request.collective)
    if not names:
        names = [found.collective_name for found in opened]
        names += [one.collective for one in held]
    names = list(dict.fromkeys(names))
    if not names:
        raise UsageError("which collective? name one (--coll), or give frontiers or measurements that say")

    # One plan for each collective, in equal parts of the time.
    plans, used = [], set[str]()
    with time_limited(Deadline.after(request.time_limit)):
        for place, name in enumerate(names):
            with time_limited(current_deadline().share(1 / (len(names) - place))):
                with time_limited(current_deadline().share(FOR_FRONTIER)):
                    inputs = collective_inputs(name, request, machine, opened, held, on_event)
                used |= {one.file for one in inputs.measured}
                inputs = inputs._replace(measured=(*inputs.measured, *logged(request.logs, inputs, request.in_place)))
                check_times(inputs, machine)
                plans.append(_planned(inputs, request, machine))
    # A measurement that served nothing was of something else.
    for one in held:
        if one.file not in used:
            asked = ", ".join(f"{table.collective} on {table.ranks} ranks" for plan in plans for table in plan.tables)
            raise UsageError(f"{one.file} has times of {one.collective} on {one.ranks} ranks; asked for: {asked}")
    # A plan with multicasts needs no note that they were left out.
    notes = () if machine is None else machine.notes
    if any(algorithm.through_switches for plan in plans for algorithm in plan.algorithms):
        notes = tuple(note for note in notes if note != MULTICAST_NOTE)
    plan = joined(plans)
    return replace(plan, notes=tuple(dict.fromkeys((*notes, *plan.notes))))


def _planned(inputs: CollectiveInputs, request: TuningRequest, machine: Topology | None) -> Plan:
    """Return the plan of one collective from its frontiers, measurements and logs."""
    from synth.catalog.tuner.candidates import measured_candidates
    from synth.catalog.tuner.choice import Question, choose_algorithms
    from synth.catalog.tuner.cost_model import MeasuredTime, fit
    from synth.catalog.tuner.measurements import merge_measurements

    # Measured times are all that counts where there are any; else programs are run.
    measured = merge_measurements(inputs.measured)
    if not measured and not inputs.frontiers:
        raise UsageError(f"nothing to choose from for {inputs.name}: give a topology, frontiers, measurements or logs")
    facts = None
    if inputs.network is not None:
        facts = placed(inputs.network, (), machine, range(inputs.network.ranks))[1]
    model: dict = {}
    if measured or inputs.network is None:
        ours = [one.label for one in measured if one.backend == OURS]
        found = measured_candidates(candidate_schedules(inputs, request, ours), measured, request.variants)
        says = "; ".join(dict.fromkeys(one.says for one in measured))
        rows = []
        for one in found.candidates:
            algorithm = one.algorithm
            if algorithm.schedule is not None and algorithm.instances == 1:
                for sample in one.samples:
                    rows.append(MeasuredTime(algorithm.schedule, algorithm.protocol, sample.size, sample.seconds))
        if rows:
            model = fit(rows)
    else:
        found = _predicted_candidates(inputs, request, machine, facts)
        overheads = selected(request.overheads)
        messages = f", {request.per_send.words}" if request.per_send else ""
        says = f"predicted, not measured: event-driven runs of the programs on {inputs.network.name}{messages}; "
        says += describe(overheads)
        model = {"kind": "nominal", "overheads": request.overheads}

    # The choice by size, and what a user must know of it.
    ranks = inputs.ranks or measured[0].ranks
    question = Question(inputs.name, ranks, request.sizes, request.element, root=inputs.root)
    answer = choose_algorithms(question, found.candidates)
    notes = [*inputs.notes, *found.notes, *_not_run(found.candidates), *answer.notes]
    if not all(one.complete for one in inputs.frontiers):
        notes.append(NOT_COMPLETE)
    if len({one.modelled for one in measured}) > 1:
        notes.append("modelled and measured times are compared here, which says little about a machine")
    if len({one.protocol for one in measured if one.modelled}) > 1:
        notes.append(
            "the reference executor's times of protocols follow from NCCL's constants: a choice between protocols by "
            "them is no evidence for a GPU"
        )
    real = [one for one in measured if not one.modelled]
    kinds: list[tuple[str, ...]] = []
    if facts is not None and inputs.network is not None:
        for route in inputs.network.routes:
            kinds.append(tuple(sorted(facts.kinds[route.src, route.dst])))
    return Plan(
        answer.algorithms,
        (answer.table,),
        "measured" if real else "model",
        says,
        _with_ports(inputs.network, machine),
        next((one.labels for one in inputs.frontiers if one.labels), ()),
        {inputs.name: model} if model else {},
        tuple(dict.fromkeys(notes)),
        tuple(kinds),
        () if facts is None else facts.nodes,
    )


def _predicted_candidates(
    inputs: CollectiveInputs, request: TuningRequest, machine: Topology | None, facts: Machine | None
) -> CandidateSet:
    """Return the candidates that are run: points, algorithms of the library, and NCCL's own."""
    from synth.catalog.tuner.candidates import NamedSchedule, timed_candidates
    from synth.catalog.tuner.clock import Clock

    network = inputs.network
    assert network is not None
    nodes = None
    if request.plans:
        nodes = facts.nodes if facts is not None else (0,) * network.ranks
    clock = Clock(network, request.per_send, selected(request.overheads), request.sizes, nodes)
    # Rings and other known algorithms, then list schedules for the sizes, each in its share of the time.
    with time_limited(current_deadline().share(FOR_SCHEDULES)):
        library = library_schedules(inputs, machine)
        schedules = candidate_schedules(inputs, request)
    schedules += library
    notes: list[str] = []
    if not any(one.name == "ring" for one in library) and current_deadline().limited and inputs.name == "allreduce":
        notes.append("no ring was found within the time limit, so NCCL's was not compared: allow more time")
    # for MSCCL++ only what its plans can hold, and the switch where all ranks share one
    if request.plans:
        schedules, refused = without_plans(schedules, facts)
        notes += refused
    through_switch = _through_switch(inputs, machine, request)
    if through_switch is not None:
        label = f"switch-S{len(through_switch.steps)}-R{through_switch.rounds}-C{through_switch.chunks}"
        schedules.append(NamedSchedule(label, through_switch, SWITCH_PROTOCOLS))
    found = timed_candidates(schedules, library, clock, request.variants, facts)
    return found._replace(notes=(*notes, *found.notes))


def _not_run(candidates: Sequence[TunerCandidate]) -> list[str]:
    labels: dict[str, list[str]] = {}
    for one in candidates:
        if one.clock is not None and one.variant is not None and (reason := one.clock.not_run(one.variant)):
            what = f"{LEAST} ({reason})" if one.variant.library else f"{NOT_TIMED} ({reason})"
            labels.setdefault(what, []).append(one.algorithm.label)
    notes = []
    for what, names in labels.items():
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        notes.append(f"{what}: {', '.join(names[:4])}{more}")
    return notes


def _with_ports(network: Network | None, machine: Topology | None) -> Network | None:
    """Return the network of a plan with the switches of its machine that multicast, which bounds in time count.

    `machine` None: the known one that has these links.
    """
    from synth.topologies.rank_placement import known

    machine = known(network) if machine is None and network is not None else machine
    if network is None or machine is None or not machine.multicast:
        return network
    links = machine.network()
    if (links.routes, links.caps) != (network.routes, network.caps):
        return network
    ports = machine.multicast_network()
    return replace(network, caps=ports.caps, multicast=ports.multicast)


def _through_switch(inputs: CollectiveInputs, machine: Topology | None, request: TuningRequest) -> Schedule | None:
    """Return the plain allreduce through the switch of all ranks, where they share one that multicasts; else None.

    It is left out where no MSCCL++ plan can be made of it (72 ranks). It is also left out with a cost of messages:
    nothing is known of that in programs of switches.
    """
    from synth.program.checked_lowering import onesided

    if machine is None or not request.multicast or not machine.multicast or not inputs.frontiers:
        return None
    network = machine.multicast_network()
    if inputs.name != "allreduce" or request.per_send or whole_switch(network) is None:
        return None
    schedule = MulticastPipelining(network, inputs.frontiers[0].collective).plain(request.sizes, ALIGNMENT)
    try:
        onesided(schedule)
    except VerificationError:
        raise
    except SynthError:
        return None
    return schedule


def import_plan(path: str | Path, collective: str | None = None, ranks: int | None = None) -> Plan:
    """The plan in a tuning table of MCR-DL's form; operation and ranks where the file does not say them. Raises
    FormatError."""
    from synth.catalog.tuner.mcrdl import load

    return load(Path(path), collective, ranks)


@dataclass(frozen=True, kw_only=True)
class Tune(Output, Changes, Tuning):
    """The options of `synth tune`."""

    table: Path | None = option(
        "--import", default=None, type=FILE, metavar="FILE.csv",
        help="Read a tuning table in MCR-DL's form as the plan.",
    )  # fmt: skip


@command(Tune)
def tune_command(options: Tune) -> None:
    """Choose, for each range of message sizes, the best of frontier × protocol × instances and of other backends: by
    measured times where there are any, else by the clock of predicted times. Prints where to switch, and the loss at
    every size.

    \b
    Examples:
      synth tune --topo dgx1 --coll allgather
      synth tune --topo dgx1 --coll allgather --sizes 1KiB:1GiB -o plan.json
      synth bench frontier.json -o m.json && synth tune --from frontier.json --measured m.json
      synth tune --topo dgx1 --coll allgather --log nccl=nccl.txt --measured m.json
      synth tune --import mcrdl_allgather_16gpu.csv -o plan.json
    """
    from synth.catalog.tuner.plan_bounds import plan_bounds
    from synth.view import plans

    names = options.collective
    if options.table:
        refuse_given("--import takes one table over as it is", *NOT_OF_TABLES)
        if len(names) > 1:
            raise UsageError("--import takes one table over as it is; remove all --coll but one")
        plan = import_plan(options.table, next(iter(names), None))
    else:
        if not options.logs and not options.measured:
            refuse_given("predicted times are of calls in place and out of place alike", "in-place")
        machine = machine_if_named(options)
        if machine is None:
            refuse_given("without a machine nothing is searched for", "jobs")
        title = ", ".join(names)
        with progress(f"{title} on {machine.name}" if machine else title) as listen:
            plan = tune.of(replace(options, topology=machine, on_event=listen))
    emit(plan.to_json, lambda: plans.reports(plan, plan_bounds(plan)), options)
