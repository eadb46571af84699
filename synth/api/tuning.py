"""The tuner: from frontiers, measurements and logs to a plan of what to run at which size."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from synth.api.arguments import keywords_checked
from synth.api.baselines import baseline, baseline_summaries
from synth.api.inputs import TopologyLike, named_topology, sizes_in_bytes
from synth.api.point_times import SWITCH_PROTOCOLS, cpu_seconds, rows_of
from synth.api.programs import placed
from synth.api.tuning_inputs import (
    SETTINGS,
    CollectiveInputs,
    SearchOptions,
    check_logs,
    check_times,
    collective_inputs,
    frontier,
    logged,
    measurements,
)
from synth.api.tuning_inputs import dividing as dividing_schedules
from synth.catalog.tuner.request import TuningRequest
from synth.encodings.multicast_pipelining import MulticastPipelining, whole_switch
from synth.errors import SynthError, UsageError, VerificationError
from synth.model.frontier import Frontier, ParetoFrontier
from synth.model.number_text import size_text
from synth.model.schedule import Schedule
from synth.model.topology import MULTICAST_NOTE, Network, Topology
from synth.model.tuning_plan import OURS, Plan, Table
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import selected
from synth.program.plan_limits import ALIGNMENT, BLOCK_CHANNELS, holds_all_pairs
from synth.solvers.processes.deadline import Deadline, TimeUp, no_time_limit, time_limited

if TYPE_CHECKING:
    from synth.catalog.tuner.candidates import NamedSchedule
    from synth.catalog.tuner.cost_model import TimeModel
    from synth.catalog.tuner.measurements import Measurement
    from synth.catalog.tuner.predicted_times import PredictedTimes, Variant
    from synth.catalog.tuner.tune import TunedTable, TunerCandidate
    from synth.export.request import Machine
    from synth.model.time_bound import TimeBound
    from synth.pareto.events import Listener
    from synth.view.algorithm_times import AlgorithmTime

# Baselines that are always chosen from, where they apply.
ALWAYS = (
    "ring", "tree", "direct", "hierarchical", "two-step", "few-messages", "halving-doubling", "binomial", "bruck",
)  # fmt: skip
LIBRARY = ("ring", "tree")  # those that NCCL has itself
CHANNELS = 32  # of a communicator of NCCL 2.12 (MAXCHANNELS in src/include/devcomm.h), each with a chunk of its own
NOT_COMPLETE = "the frontier is not complete: its open intervals may hold better points"
SYNCHRONOUS = "predicted by synchronous steps"
LEAST = "times are lower bounds, from the longest chain of messages and the busiest link"
REFERENCE_PROTOCOLS = (
    "the reference executor's times of protocols follow from NCCL's constants: a choice between protocols by them is "
    "no evidence for a GPU"
)


@keywords_checked
def tune(
    topology: TopologyLike | None = TuningRequest.topology,
    collective: str | Sequence[str] = TuningRequest.collective,
    sizes: int | str | Iterable[int | str] = TuningRequest.sizes,
    *,
    frontiers: Sequence[ParetoFrontier | str | Path] = TuningRequest.frontiers,
    measured: Sequence[str | Path | dict] = TuningRequest.measured,
    catalog: str | Path | None = TuningRequest.catalog,
    logs: Sequence[tuple[str, str | Path]] = TuningRequest.logs,
    baselines: Sequence[str] = TuningRequest.baselines,
    root: int | None = TuningRequest.root,
    protocols: Sequence[str] = TuningRequest.protocols,
    instances: Sequence[int] = TuningRequest.instances,
    per_send: MessageCost | str = TuningRequest.per_send,
    overheads: bool = TuningRequest.overheads,
    tolerance: float | None = TuningRequest.tolerance,
    dtype: str = TuningRequest.dtype,
    in_place: bool = TuningRequest.in_place,
    ranks: int | None = TuningRequest.ranks,
    dividing: bool | None = TuningRequest.dividing,
    multicast: bool = TuningRequest.multicast,
    time_limit: float | None = TuningRequest.time_limit,
    jobs: int | None = TuningRequest.jobs,
    on_event: Listener | None = None,
) -> Plan:
    """Choose the algorithm for each message size.

    Candidates are every point of the frontiers in every protocol and number of instances; ring, tree, direct and other
    `baselines`; on up to 16 ranks algorithms of the library that no other schedule betters in steps, in R/C and, with
    `per_send`, in messages; the algorithms in other backends' logs; and, where nothing is measured, NCCL's own ring and
    tree by the same model.

    Parameters
    ----------
    topology : the machine, as `synth.topology` takes it. None: that of the frontiers, or of the measurements.
    collective : the name of one collective, or of several. (): those of the frontiers and the measurements.
    sizes : bytes, or texts such as "1MB", one or several, at which candidates are compared, as nccl-tests counts.
    frontiers : values or files. (): those that `catalog` keeps for the machine, else synthesized ones.
    measured : documents that `synth bench` wrote, or files of them. Without these and logs the cost model decides.
    catalog : a database whose frontiers and measurements of this machine count too.
    logs : (backend, file) of nccl-tests' output.
    baselines : names of known algorithms to choose from beside ring, tree and direct.
    root : of rooted collectives. None: rank 0, or that of the frontiers.
    protocols, instances : with which schedules are tried. (): those that were measured, or that the model knows.
    per_send : the cost of a message at either end, in predicted times: text such as "0.3us".
    overheads : predicted times include a launch and each protocol's costs. False: the α and β of bare links alone.
    tolerance : the loss, as a share of the best time, that is accepted to save a switch. None: 1% of measured times;
        of predicted ones 0.1% at `sizes`, 0.5% between them.
    dtype : the type of the elements.
    in_place : judge by the times of calls in place.
    ranks : of logs that do not say it, where there is no machine.
    dividing : synthesize schedules, too, whose chunks divide every size. None: where there is a `topology`.
    multicast : one schedule through the switch is a candidate where all ranks share one that multicasts and reduces
        (NVLS). MSCCL++ plans run it, and it is timed as one.
    time_limit : wall seconds for everything. None: the default effort.
    jobs : processes of a synthesis. None: one for each core.
    on_event : called with each event of the search.

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
    machine = None if topology is None else named_topology(topology)
    judged = sizes_in_bytes(sizes)
    request = TuningRequest(
        machine, collective, judged, frontiers, measured, catalog, logs, baselines, root, protocols, instances,
        MessageCost.of(per_send), overheads, tolerance, dtype, in_place, ranks, dividing, multicast, time_limit, jobs,
    )  # fmt: skip
    return tune_request(request, on_event)


def tune_request(request: TuningRequest, on_event: Listener | None = None) -> Plan:
    """Tune as `tune` does, with all options as one value."""
    machine = None if request.topology is None else named_topology(request.topology)
    request = replace(request, topology=machine)
    check_logs(request.logs)  # before anything is searched for
    divide = machine is not None and request.dividing is not False
    began, limit = time.monotonic(), request.time_limit
    end = None if limit is None else began + limit * (1 - SETTINGS.for_times)
    search = SearchOptions(end, request.jobs, on_event, SETTINGS.for_frontiers if divide else 1.0)
    opened = [frontier(given) for given in request.frontiers]
    name = machine.name if machine else None
    if machine is None and opened:
        name = opened[0].machine.name
    given = measurements(request.measured, None, name, request.in_place)
    held = [*given, *measurements((), request.catalog, name, request.in_place)]
    all_inputs = collective_inputs(request, machine, opened, held, search)
    used = {one.file for inputs in all_inputs for one in inputs.measured}
    for one in given:
        if one.file not in used:
            asked = ", ".join(f"{inputs.name} on {inputs.ranks or 'any'} ranks" for inputs in all_inputs)
            raise UsageError(f"{one.file} has times of {one.collective} on {one.ranks} ranks; asked for: {asked}")
    if machine is not None and divide:
        looking = search
        if end is None:
            looking = replace(search, end=time.monotonic() + SETTINGS.dividing_seconds, limit="the default effort")
        all_inputs = [
            _with_dividing(inputs, machine, request, looking, len(all_inputs) - place)
            for place, inputs in enumerate(all_inputs)
        ]
    for place, inputs in enumerate(all_inputs):
        times = logged(request.logs, inputs, request.in_place)
        all_inputs[place] = inputs._replace(measured=(*inputs.measured, *times))
        check_times(all_inputs[place], machine)
    if machine is not None and request.multicast:
        all_inputs = [_with_switches(inputs, machine, request) for inputs in all_inputs]
    facts = [_facts(inputs, machine) for inputs in all_inputs]
    timing = replace(search, end=None if limit is None else began + limit)
    several = len(all_inputs) > 1
    answers = []
    for place, (inputs, known) in enumerate(zip(all_inputs, facts, strict=True)):
        share = timing.share(len(all_inputs) - place)
        with time_limited(Deadline.after(share.left)):
            answers.append(_answer(inputs, known, several, request, share))
    plan = _plan(all_inputs, answers, next((known for known in facts if known), None))
    notes = () if machine is None else machine.notes
    if any(inputs.through_switches for inputs in all_inputs):
        notes = tuple(note for note in notes if note != MULTICAST_NOTE)
    return replace(plan, topology=_with_ports(plan.topology, machine), notes=(*notes, *plan.notes))


def times_at(
    frontier: Frontier,
    size: int,
    per_send: MessageCost = NO_COST,
    seconds: float = 10.0,
    overheads: bool = True,
    machine: Topology | None = None,
) -> list[AlgorithmTime]:
    """Return the predicted time at `size` bytes of every point and baseline in each protocol, by rising time.

    They are the candidates of `synth tune`, by runs of the reference executor; `per_send` is the cost of a message at
    either end, `overheads` includes a launch and the protocols' costs. After `seconds` of CPU time no further program
    is run; what was not run is left to the nominal model, and its row is `late`. `machine`: the one that says the kinds
    of the links. None: the known one of the network's name, if its links are the same.
    """
    collective, network = frontier.collective, frontier.network
    root = collective.roots[0] if len(collective.roots) == 1 else None
    inputs = CollectiveInputs(collective.name, network.ranks, root, network, (frontier,), ())
    request = TuningRequest(machine, sizes=(size,), per_send=per_send, overheads=overheads)
    offers = _offers(inputs, request, "", _facts(inputs, machine), cpu_seconds(seconds))
    return rows_of(offers.candidates, offers.times, size) if offers.times else []


def clock_bound_at(frontier: Frontier, size: int, overheads: bool = True, machine: Topology | None = None) -> TimeBound:
    """Return a lower bound on the times that `times_at` predicts at `size` bytes, whatever the protocol.

    `machine`: the one with the switches that multicast. It then holds for programs that use them, too.
    """
    from synth.scale.time_bound import time_bound

    links = machine if machine is not None and machine.multicast else frontier.network
    return time_bound(links, frontier.collective, [size], overheads=selected(overheads))


def _facts(inputs: CollectiveInputs, machine: Topology | None) -> Machine | None:
    """Kinds of links and boxes of the machine that `inputs` is for; None where they are not known."""
    return None if inputs.network is None else placed(inputs.network, (), machine, range(inputs.network.ranks))[1]


def import_plan(path: str | Path, collective: str | None = None, ranks: int | None = None) -> Plan:
    """The plan in a tuning table of MCR-DL's form; operation and ranks where the file does not say them. Raises
    FormatError."""
    from synth.catalog.tuner.mcrdl import load

    return load(Path(path), collective, ranks)


def _with_dividing(
    inputs: CollectiveInputs, machine: Topology, request: TuningRequest, search: SearchOptions, to_come: int
) -> CollectiveInputs:
    """`inputs` with schedules whose chunks divide every size, and a note where the time was over before all were looked
    for."""
    if inputs.flows:
        note = "schedules that divide every size are not looked for: the machine is too large for exact synthesis"
        return inputs._replace(notes=(*inputs.notes, note))
    made: list[Schedule] = []
    late: list[int] = []
    for place, one in enumerate(inputs.frontiers):
        schedules, missing = dividing_schedules(
            one, machine, request.sizes, request.element, search, to_come + len(inputs.frontiers) - place - 1
        )
        made += schedules
        late += missing
    if not late:
        return inputs._replace(dividing=tuple(made))
    note = f"{search.limit} ended the search for schedules that divide every size, at {', '.join(map(str, late))} steps"
    return inputs._replace(dividing=tuple(made), notes=(*inputs.notes, note))


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


def _with_switches(inputs: CollectiveInputs, machine: Topology, request: TuningRequest) -> CollectiveInputs:
    """Return `inputs` with the plain allreduce through the switch of all ranks, where they share one that multicasts.

    It is left out where no MSCCL++ plan can be made of it (72 ranks). It is also left out with a cost of messages:
    nothing is known of that in programs of switches.
    """
    from synth.program.checked_lowering import onesided

    if not machine.multicast or not inputs.frontiers or inputs.name != "allreduce" or request.per_send:
        return inputs
    network = machine.multicast_network()
    if whole_switch(network) is None:
        return inputs
    schedule = MulticastPipelining(network, inputs.frontiers[0].collective).plain(request.sizes, ALIGNMENT)
    try:
        onesided(schedule)
    except VerificationError:
        raise
    except SynthError:
        return inputs
    return inputs._replace(through_switches=(schedule,))


class _Offers(NamedTuple):
    """Choices of a plan: candidates, notes, the model that predicts times, and measurements of the candidates.

    `times`: the predicted times, where nothing is measured.
    """

    candidates: list[TunerCandidate]
    notes: tuple[str, ...]
    model: TimeModel | None
    measured: tuple[Measurement, ...]
    times: PredictedTimes | None


def _offers(
    inputs: CollectiveInputs, request: TuningRequest, prefix: str, facts: Machine | None, search: SearchOptions
) -> _Offers:
    """Return the candidates of `inputs`; labels begin with `prefix`. Raises UsageError where there are none."""
    from synth.catalog.tuner import candidates, tune
    from synth.catalog.tuner import measurements as tune_measured
    from synth.catalog.tuner.predicted_times import PredictedTimes

    measured = tuple(tune_measured.merge_measurements(inputs.measured))
    if not measured and not inputs.frontiers:
        raise UsageError(f"nothing to choose from for {inputs.name}: give a topology, frontiers, measurements or logs")
    # Rings are searched for in a part of the time, so that there are some however late it is.
    seconds = None if search.left is None else max(SETTINGS.least_for_rings, search.left * SETTINGS.for_list_schedules)
    for_rings = Deadline.after(seconds)
    with no_time_limit(), time_limited(for_rings):
        schedules = _schedules(inputs, request, search)
    late_rings = []
    if for_rings.over and inputs.network is not None and not any(one.name == "ring" for one in schedules):
        late_rings.append("no ring was found within the time limit, so NCCL's was not compared: allow more time")
    if measured or inputs.network is None:
        found = candidates.candidates(schedules, measured, request.variants, prefix, facts)
        says = "; ".join(dict.fromkeys(m.says for m in measured))
        return _Offers([*found.candidates], found.notes, tune.fit_model(found.candidates, says), measured, None)
    nodes = None
    if request.plans:
        nodes = facts.nodes if facts is not None else (0,) * inputs.network.ranks
    times = PredictedTimes(
        inputs.network, request.per_send, lambda: search.left == 0, selected(request.overheads), request.sizes, nodes
    )
    listed, late = _list_schedules(inputs, request, times, schedules, facts, search)
    schedules += listed
    library = [one for one in schedules if one.name in LIBRARY]
    refused: list[str] = []
    if request.plans:
        schedules, refused = _held_by_plans(schedules, facts)
    for schedule in inputs.through_switches:
        label = f"switch-S{len(schedule.steps)}-R{schedule.rounds}-C{schedule.chunks}"
        schedules.append(candidates.NamedSchedule(label, schedule, True, protocols=SWITCH_PROTOCOLS))
    found = candidates.candidates(schedules, (), request.variants, prefix, facts, times)
    offered = [*found.candidates]
    for one in library:
        offered += candidates.nccl_candidates(one, facts, times, prefix)
    return _Offers(offered, (*late_rings, *found.notes, *late, *refused), times.model, (), times)


def _held_by_plans(schedules: Sequence[NamedSchedule], facts: Machine | None) -> tuple[list[NamedSchedule], list[str]]:
    """Return the schedules that MSCCL++ plans may hold, and a note on the others."""
    from synth.program.checked_lowering import reason_against_plan

    held, refused = [], []
    for one in schedules:
        boxes = facts.nodes if facts is not None else (0,) * one.schedule.network.ranks
        reason = reason_against_plan(one.schedule, boxes)
        if reason is None:
            held.append(one)
        else:
            refused.append(f"{one.name} ({reason})")
    if not refused:
        return held, []
    more = f" and {len(refused) - 2} more" if len(refused) > 2 else ""
    return held, [f"no MSCCL++ plan can hold {', '.join(refused[:2])}{more}"]


def _answer(
    inputs: CollectiveInputs, facts: Machine | None, several: bool, request: TuningRequest, search: SearchOptions
) -> tuple[TunedTable, TimeModel | None, tuple[Measurement, ...]]:  # fmt: skip
    from synth.catalog.tuner import tune

    offers = _offers(inputs, request, f"{inputs.name}-" if several else "", facts, search)
    if offers.times:  # a time limit may leave no time for all
        _run_what_decides(offers.times, offers.candidates, request)
    ranks = inputs.ranks or offers.measured[0].ranks
    question = tune.Question(inputs.name, ranks, request.sizes, request.element, request.tolerance, inputs.root)
    answer = tune.choose_algorithms(question, offers.candidates, offers.model, lambda: search.left == 0)
    notes = (*inputs.notes, *offers.notes, *answer.notes)
    if offers.times:
        chosen: dict[str, list[int]] = {}  # the sizes at which an algorithm is chosen
        for size, place in zip(answer.table.sizes, answer.table.chosen, strict=True):
            if place is not None:
                algorithm = answer.algorithms[place]
                chosen.setdefault(algorithm.label, []).append(algorithm.padded(size, request.element))
        answer = answer._replace(table=_with_estimates(answer.table, offers.candidates, offers.times))
        notes += _not_run_notes(offers.candidates, offers.times, chosen)
    notes = (*notes, *tune.left_to_library(answer.table, answer.algorithms))
    return answer._replace(notes=notes), offers.model, offers.measured


def _with_estimates(table: Table, candidates: Sequence[TunerCandidate], times: PredictedTimes) -> Table:
    """Return `table` with those of its times marked that are not of a run of a candidate's program."""
    from synth.catalog.tuner.predicted_times import Prediction

    estimated = []
    for place, size in enumerate(table.sizes):
        shown = {table.seconds[place], table.best[place], table.ours[place], table.library[place], *table.times[place]}
        shown.update(library.seconds[place] for library in table.libraries)
        for one in candidates:
            if isinstance(one.predicted, Prediction):
                own = one.algorithm.backend == OURS
                padded = one.algorithm.padded(size, table.element) if own else size
                if times.ran(one.predicted.variant, padded):
                    shown.discard(one.predicted(padded))
        estimated.append(tuple(sorted(time for time in shown if time is not None)))
    return replace(table, estimated=tuple(estimated) if any(estimated) else ())


def _run_what_decides(times: PredictedTimes, candidates: Sequence[TunerCandidate], request: TuningRequest) -> None:
    """Run at each size, while there is time, the programs that may be the fastest: other libraries' first, then ours.

    Then, at each size again, the schedules of ours that by their least possible time may still be the fastest.
    """
    from synth.catalog.tuner.predicted_times import Prediction

    schedules = []  # at each size
    for size in request.sizes:  # the least sizes need the fewest seconds
        own, library = [], []
        for one in candidates:
            if isinstance(one.predicted, Prediction):
                if one.algorithm.backend == OURS:
                    own.append((one.predicted, one.algorithm.padded(size, request.element)))
                else:
                    library.append((one.predicted, size))
        times.run_fastest(library)
        times.run_fastest(own)
        schedules.append(own)
    for own in schedules:
        times.run_fastest(own, surely=True)


def _not_run_notes(
    candidates: Sequence[TunerCandidate], times: PredictedTimes, chosen: Mapping[str, Sequence[int]]
) -> tuple[str, ...]:
    """Return notes on the candidates whose programs were not run, and what their times are.

    Those that are `chosen`, by label, at a size at which they were not run come first, marked, then other libraries'.
    There is a note for each kind of time and reason.
    """
    from synth.catalog.tuner.predicted_times import Prediction

    not_run: dict[str, dict[str, list[str]]] = {LEAST: {}, SYNCHRONOUS: {}}
    listed: list[tuple[bool, bool, str, Variant]] = []
    for one in candidates:
        if isinstance(one.predicted, Prediction) and times.not_run(one.predicted.variant):
            variant, label = one.predicted.variant, one.algorithm.label
            run = all(times.ran(variant, size) for size in chosen.get(label, ()))
            listed.append((run, one.algorithm.backend == OURS, label if run else f"{label} (chosen)", variant))
    for *_, label, variant in sorted(listed, key=lambda row: row[:2]):
        what = LEAST if times.is_least(variant) else SYNCHRONOUS
        not_run[what].setdefault(times.reason_not_run(variant), []).append(label)
    notes = []
    for what, by_reason in not_run.items():
        for reason, labels in by_reason.items():
            more = f" and {len(labels) - 4} more" if len(labels) > 4 else ""
            notes.append(f"{what} ({reason}): {', '.join(labels[:4])}{more}")
    return tuple(notes)


def _list_schedules(
    inputs: CollectiveInputs, request: TuningRequest, times: PredictedTimes, known: Sequence[NamedSchedule],
    facts: Machine | None, search: SearchOptions,
) -> tuple[list[NamedSchedule], list[str]]:  # fmt: skip
    """Return schedules for the least, the greatest and the middle sizes, each for the protocol that is fastest there.

    It is that of the least nominal time of the schedules that are `known`. They
    may take `SETTINGS.for_list_schedules` of a time limit; beside them is a note on the sizes for which that was too
    little.
    """
    from synth.catalog.tuner.candidates import NamedSchedule, nvlink
    from synth.catalog.tuner.cost_terms import shape
    from synth.program.runtimes import FIFO_DEPTH
    from synth.scale.list_schedules import design_sizes, schedule_for_size

    task = inputs.frontiers[0].collective
    protocols = list(dict.fromkeys(protocol for protocol, _ in request.variants or ()))
    if not protocols:
        all_nvlink = all(nvlink(one.schedule, facts) for one in known)
        protocols = [name for name in FIFO_DEPTH if name != "LL128" or all_nvlink]
    shapes = [one.shape or shape(one.schedule) for one in known]
    made: dict[tuple, tuple[Schedule, list[str]]] = {}
    deadline, late = Deadline(), []
    if request.time_limit is not None and search.left is not None:
        deadline = Deadline.after(search.left * SETTINGS.for_list_schedules)
    for size in design_sizes(times.network, task, request.sizes):
        if search.left == 0:
            late.append(size)
            continue
        nominal = []
        for one, name in product(shapes, protocols):
            nominal.append((times.model.seconds(one, name, 1, size) or inf, name))
        protocol = min(nominal)[1]
        try:
            with time_limited(deadline):
                schedule = schedule_for_size(times.slower(protocol), task, size, FIFO_DEPTH[protocol])
        except UsageError:  # sums that no reversal makes, or too many sends
            return [], []
        except TimeUp:
            late.append(size)
            continue
        schedule = replace(schedule, network=times.network)
        _, its_protocols = made.setdefault((schedule.chunks, schedule.steps), (schedule, []))
        its_protocols.append(protocol)
    named = []
    for schedule, its_protocols in made.values():
        label = f"list-S{len(schedule.steps)}-C{schedule.chunks}"
        named.append(NamedSchedule(label, schedule, protocols=tuple(its_protocols)))
    if not late:
        return named, []
    return named, [f"{search.limit} left no time for list schedules for {', '.join(map(size_text, late))}"]


def _schedules(inputs: CollectiveInputs, request: TuningRequest, search: SearchOptions) -> list[NamedSchedule]:
    """Return every point, the baselines asked for or named by measurements, `ALWAYS`, and others of the library.

    Those that nobody asked for are left out where the links do not carry them.
    """
    from synth.api.algorithms import library
    from synth.catalog.tuner.candidates import NamedSchedule
    from synth.catalog.tuner.cost_terms import shape

    points = [*(p.schedule for f in inputs.frontiers for p in f.points), *inputs.dividing]
    # Under a time limit the times of the points are predicted first, as long as there is time.
    timed = not inputs.measured and search.end is not None
    few = inputs.network is not None and inputs.network.ranks <= SETTINGS.few_ranks
    made = []
    for schedule in points:
        predicted = shape(schedule) if timed and (search.left or few) else None
        label = f"S{len(schedule.steps)}-R{schedule.rounds}-C{schedule.chunks}"
        made.append(NamedSchedule(label, schedule, shape=predicted))
    if inputs.network is None or not inputs.frontiers:
        if request.baselines:
            raise UsageError("baselines run on the links of a machine: name it, or give its frontier")
        return made
    task = inputs.frontiers[0].collective
    machine = request.topology or inputs.network

    def fitting(name: str) -> Schedule | None:
        """Return a baseline on the machine; None where it is not asked for and the links do not carry it."""
        try:
            return baseline(name, machine, task, channels=None if inputs.measured else CHANNELS)
        except SynthError:
            if name in request.baselines:
                raise
        return None

    known = baseline_summaries()
    seen = [m.label for m in inputs.measured if m.backend == OURS and m.label in known]
    kept = [*request.baselines, *seen, *LIBRARY]
    ranks = inputs.network.ranks
    if request.plans and holds_all_pairs(ranks):
        # each chunk of it meets few ranks, so that a plan can hold it
        kept.append("direct" if task.name == "alltoall" else "hierarchical")
        if ranks > BLOCK_CHANNELS:  # no thread block has a channel to all others
            kept.append("grid")
    for name in dict.fromkeys((*kept, *ALWAYS)):
        if search.left == 0 and name not in kept and not few:
            continue
        schedule = fitting(name)
        if schedule is not None:
            predicted = None if inputs.measured else shape(schedule)
            made.append(NamedSchedule(name.lower(), schedule, True, predicted))
    if inputs.network.ranks <= SETTINGS.few_ranks and not all(f.complete for f in inputs.frontiers):
        others = []
        for one in library(task.name):
            known = one.name in ALWAYS or any(one.name == other.name for other in made)
            schedule = None if known or search.left == 0 else fitting(one.name)
            if schedule is not None:
                others.append(NamedSchedule(one.name, schedule))
        made += _better(others, made, bool(request.per_send))
    return made


def _better(others: Sequence[NamedSchedule], made: Sequence[NamedSchedule], costly: bool) -> list[NamedSchedule]:
    """Return those of `others` that are better than each schedule of `made`, and of the result, in steps or in R/C.

    A complete frontier leaves none. `costly`: messages cost something, so few of them are a merit, too.
    """
    from synth.catalog.tuner.cost_terms import shape

    def merits(schedule: Schedule) -> tuple[int, Fraction, int]:
        messages = schedule.step_count + shape(schedule).messages if costly else 0
        return schedule.step_count, schedule.rounds_per_chunk, messages

    def covers(theirs: tuple, mine: tuple) -> bool:
        return all(a <= b for a, b in zip(theirs, mine, strict=True))

    best = [merits(one.schedule) for one in made]
    found = []
    for mine, one in sorted(((merits(one.schedule), one) for one in others), key=lambda row: (row[0], row[1].name)):
        if not any(covers(theirs, mine) for theirs in best):
            found.append(one)
            best.append(mine)
    return found


def _plan(
    all_inputs: Sequence[CollectiveInputs],
    answers: Sequence[tuple[TunedTable, TimeModel | None, tuple[Measurement, ...]]],
    facts: Machine | None,
) -> Plan:
    from synth.catalog.tuner import cost_model

    algorithms: list = []
    tables, models, says, notes = [], {}, [], []
    networks = [inputs.network for inputs in all_inputs if inputs.network]
    for inputs, (answer, model, measured) in zip(all_inputs, answers, strict=True):
        shift = len(algorithms)
        algorithms += answer.algorithms
        ranges = []
        for row in answer.table.ranges:
            ranges.append(row._replace(order=tuple(k + shift for k in row.order)))
        chosen: list[int | None] = []
        for k in answer.table.chosen:
            chosen.append(None if k is None else k + shift)
        tables.append(replace(answer.table, ranges=tuple(ranges), chosen=tuple(chosen)))
        if model is not None:
            unit = float(inputs.network.unit) if inputs.network else None
            models[inputs.name] = model.to_json() | {"words": cost_model.lines(model.to_json(), unit)}
        if measured:
            says += [m.says for m in measured]
        else:
            says.append(model.says if model else "")
        before = f"{inputs.name}: " if len(all_inputs) > 1 else ""
        notes += [before + note for note in answer.notes]
        if not all(f.complete for f in inputs.frontiers):
            notes.append(before + NOT_COMPLETE)
        if len({m.modelled for m in measured}) > 1:
            notes.append(before + "modelled and measured times are compared here, which says little about a machine")
        if len({m.protocol for m in measured if m.modelled}) > 1:
            notes.append(before + REFERENCE_PROTOCOLS)
    labels = next((f.labels for inputs in all_inputs for f in inputs.frontiers if f.labels), ())
    real = any(not m.modelled for _, _, measured in answers for m in measured)
    said = "; ".join(dict.fromkeys(text for text in says if text))
    kinds: list[tuple[str, ...]] = []
    if facts is not None:
        for route in networks[0].routes:
            kinds.append(tuple(sorted(facts.kinds[route.src, route.dst])))
    return Plan(
        tuple(algorithms),
        tuple(tables),
        "measured" if real else "model",
        said,
        networks[0] if networks else None,
        labels,
        models,
        tuple(dict.fromkeys(notes)),
        tuple(kinds),
        () if facts is None else facts.nodes,
    )
