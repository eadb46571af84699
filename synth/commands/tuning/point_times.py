"""Predicted times of a frontier's points at one size, by the clock of `synth tune` and `synth run`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from synth.commands.programs.sources import placed
from synth.model.frontier import Frontier, Point
from synth.model.topology import Topology
from synth.model.tuning_plan import OURS
from synth.program.message_cost import NO_COST
from synth.program.overheads import NCCL
from synth.program.overheads import label as label_of
from synth.solvers.deadline import Deadline, current_deadline, time_limited

if TYPE_CHECKING:
    from synth.model.bounds.time_bound import TimeBound
    from synth.view.frontier_text import AlgorithmTime

SWITCH_PROTOCOLS = ("Simple",)  # packets do not pass switches that multicast
FAR = 4.0  # multiple of the least time from which, by its lower bound, a program is not run


def times_at(
    frontier: Frontier,
    size: int,
    seconds: float = 10.0,
    machine: Topology | None = None,
    library: bool = False,
) -> list[AlgorithmTime]:
    """Return the predicted time at `size` bytes of every point in each protocol, by rising time.

    It is that of a run of the reference executor, with a launch and the protocols' costs. After `seconds` of CPU time
    no further program is run. What was not run, or is far behind by its lower bound, is left out, and so are points at
    scale of too many sends for a run. A point whose switches multicast or reduce is timed as its MSCCL++ plan.
    `machine`: the one that says the kinds of the links. None: the known one of the network's name, if its links are the
    same. `library`:
    algorithms of the library are timed, too, as `synth tune` has them.
    """
    from synth.catalog.tuner.candidates import NamedSchedule, timed_candidates
    from synth.catalog.tuner.clock import MAXIMUM_SENDS, Clock
    from synth.catalog.tuner.request import TuningRequest
    from synth.commands.tuning.inputs import CollectiveInputs
    from synth.commands.tuning.schedules import candidate_schedules, library_schedules
    from synth.runtime.dtypes import dtype
    from synth.view.frontier_text import AlgorithmTime

    # The points that can be run at all.
    schedules = []
    for point in frontier.points:
        if not point.compressed or frontier.least_sends(point) <= MAXIMUM_SENDS >= point.schedule.sends:
            schedule = point.schedule.written_out()
            protocols = SWITCH_PROTOCOLS if schedule.uses_multicast else ()
            schedules.append(NamedSchedule(_name(point), schedule, protocols))
    if not schedules:
        return []
    # The clock knows links; which of them are NVLink the machine says.
    network, kind = schedules[0].schedule.network, dtype("float32")
    clock = Clock(network, NO_COST, NCCL, (size,))
    facts = placed(replace(network, multicast=()), (), machine, range(network.ranks))[1]
    with time_limited(Deadline.after(seconds, cpu=True)):
        if library and frontier.engine == "exact":
            root = frontier.collective.roots[0] if len(frontier.collective.roots) == 1 else None
            inputs = CollectiveInputs(frontier.collective.name, network.ranks, root, network, (frontier,), ())
            request = TuningRequest(machine, sizes=(size,))
            with time_limited(current_deadline().share(1 / 2)):
                schedules = candidate_schedules(inputs, request) + library_schedules(inputs, machine)
        # by rising lower bound, until the rest is far behind the fastest
        rows: list[AlgorithmTime] = []
        candidates = timed_candidates(schedules, (), clock, None, facts).candidates
        for least, place in sorted((one.least(size, kind.size), k) for k, one in enumerate(candidates)):
            if rows and least > FAR * min(row.seconds for row in rows):
                break
            algorithm, time = candidates[place].algorithm, candidates[place].time(size, kind.size)
            if algorithm.backend == OURS and time is not None and not time.estimated:
                label = algorithm.label.removesuffix(f"-{algorithm.protocol}")
                model = label_of(clock.overheads, algorithm.protocol, True, NO_COST)
                rows.append(AlgorithmTime(label, algorithm.protocol, algorithm.instances, time.seconds, model))
    return sorted(rows, key=lambda row: row.seconds)


def _name(point: Point) -> str:
    return f"S{point.steps}-R{point.rounds}-C{point.chunks}"


def clock_bound_at(frontier: Frontier, size: int, machine: Topology | None = None) -> TimeBound:
    """Return a lower bound on the times that `times_at` predicts at `size` bytes, whatever the protocol.

    `machine`: the one with the switches that multicast. It then holds for programs that use them, too.
    """
    from synth.scale.time_bound import time_bound

    links = machine if machine is not None and machine.multicast else frontier.network
    return time_bound(links, frontier.collective, [size], overheads=NCCL)
