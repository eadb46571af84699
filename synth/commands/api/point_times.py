"""Predicted times of a frontier's points at one size, by the clock of `synth tune` and `synth run`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from synth.commands.api.programs import placed
from synth.model.frontier import Frontier, ParetoFrontier, Point
from synth.model.topology import Topology
from synth.model.tuning_plan import OURS
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import label as label_of
from synth.program.overheads import selected
from synth.runtime.dtypes import dtype
from synth.solvers.deadline import Deadline, current_deadline, time_limited

if TYPE_CHECKING:
    from synth.view.algorithm_times import AlgorithmTime

SWITCH_PROTOCOLS = ("Simple",)  # packets do not pass switches that multicast
FAR = 4.0  # multiple of the least time from which, by its lower bound, a program is not run


def times_at(
    frontier: ParetoFrontier,
    size: int,
    per_send: MessageCost = NO_COST,
    seconds: float = 10.0,
    overheads: bool = True,
    machine: Topology | None = None,
    library: bool = False,
) -> list[AlgorithmTime]:
    """Return the predicted time at `size` bytes of every point in each protocol, by rising time.

    It is that of a run of the reference executor; `per_send` is the cost of a message at either end, `overheads`
    includes a launch and the protocols' costs. After `seconds` of CPU time no further program is run. What was not run,
    or is far behind by its lower bound, is left out, and so are points at scale of too many sends for a run. A point
    whose switches multicast or reduce is timed as its MSCCL++ plan. `machine`: the one
    that says the kinds of the links. None: the known one of the network's name, if its links are the same. `library`:
    algorithms of the library and list schedules are timed, too, as `synth tune` has them.
    """
    from synth.catalog.tuner.candidates import NamedSchedule, timed_candidates
    from synth.catalog.tuner.clock import MAXIMUM_SENDS, Clock
    from synth.catalog.tuner.request import TuningRequest
    from synth.commands.api.tuning_inputs import CollectiveInputs
    from synth.commands.api.tuning_schedules import candidate_schedules, library_schedules, list_schedules
    from synth.view.algorithm_times import AlgorithmTime

    schedules = []
    for point in frontier.points:
        if frontier.engine == "exact" or frontier.least_sends(point) <= MAXIMUM_SENDS >= point.schedule.sends:
            schedule = point.schedule.written_out()
            protocols = SWITCH_PROTOCOLS if schedule.uses_multicast else ()
            schedules.append(NamedSchedule(_name(point), schedule, protocols))
    if not schedules:
        return []
    network, kind = schedules[0].schedule.network, dtype("float32")
    clock = Clock(network, per_send, selected(overheads), (size,))
    facts = placed(replace(network, multicast=()), (), machine, range(network.ranks))[1]
    with time_limited(Deadline.after(seconds, cpu=True)):
        if library and isinstance(frontier, Frontier):
            root = frontier.collective.roots[0] if len(frontier.collective.roots) == 1 else None
            inputs = CollectiveInputs(frontier.collective.name, network.ranks, root, network, (frontier,), ())
            request = TuningRequest(machine, sizes=(size,), per_send=per_send, overheads=overheads)
            with time_limited(current_deadline().share(1 / 2)):
                schedules = candidate_schedules(inputs, request) + library_schedules(inputs, machine)
                schedules += list_schedules(inputs, request, clock, schedules, facts)[0]
        rows: list[AlgorithmTime] = []
        candidates = timed_candidates(schedules, (), clock, None, facts).candidates
        for least, place in sorted((one.least(size, kind.size), k) for k, one in enumerate(candidates)):
            if rows and least > FAR * min(row.seconds for row in rows):
                break
            algorithm, time = candidates[place].algorithm, candidates[place].time(size, kind.size)
            if algorithm.backend == OURS and time is not None and not time.estimated:
                label = algorithm.label.removesuffix(f"-{algorithm.protocol}")
                model = label_of(clock.overheads, algorithm.protocol, True, per_send)
                rows.append(AlgorithmTime(label, algorithm.protocol, algorithm.instances, time.seconds, model))
    return sorted(rows, key=lambda row: row.seconds)


def _name(point: Point) -> str:
    return f"S{point.steps}-R{point.rounds}-C{point.chunks}"
