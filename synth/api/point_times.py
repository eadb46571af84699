"""Predicted times of a frontier's points at one size, by the clock of `synth tune` and `synth run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from synth.api.programs import placed
from synth.model.frontier import Frontier, ParetoFrontier, Point
from synth.model.number_text import number as number_text
from synth.model.number_text import size_text
from synth.model.topology import Topology
from synth.model.tuning_plan import OURS
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import label as label_of
from synth.program.overheads import selected
from synth.runtime.dtypes import dtype
from synth.solvers.processes.deadline import Deadline, current_deadline, time_limited

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
    points: Sequence[Point] = (),
    machine: Topology | None = None,
    library: bool = False,
) -> list[AlgorithmTime]:
    """Return the predicted time at `size` bytes of every point in each protocol, by rising time.

    It is that of a run of the reference executor; `per_send` is the cost of a message at either end, `overheads`
    includes a launch and the protocols' costs. After `seconds` of CPU time no further program is run. What was not run,
    or is far behind by its lower bound, is left out, and so are points at scale of too many sends for a run. A point
    whose switches multicast or reduce is timed as its MSCCL++ plan. `points`: the only ones to time. `machine`: the one
    that says the kinds of the links. None: the known one of the network's name, if its links are the same. `library`:
    algorithms of the library and list schedules are timed, too, as `synth tune` has them.
    """
    from synth.api.tuning_inputs import CollectiveInputs
    from synth.api.tuning_schedules import candidate_schedules, library_schedules, list_schedules
    from synth.catalog.tuner.candidates import NamedSchedule, timed_candidates
    from synth.catalog.tuner.clock import MAXIMUM_SENDS, Clock
    from synth.catalog.tuner.request import TuningRequest
    from synth.view.algorithm_times import AlgorithmTime

    schedules = []
    for point in points or frontier.points:
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


class Fastest(NamedTuple):
    """A point's number in its frontier, from 1, the `protocol` in which it is fastest, and in words what was chosen."""

    number: int
    protocol: str
    says: str


def fastest(
    frontier: ParetoFrontier, size: int, number: int | None, protocol: str | None, overheads: bool,
    per_send: MessageCost, machine: Topology | None = None,
) -> Fastest | None:  # fmt: skip
    """Return the point and the protocol whose program takes the least predicted time at `size` bytes.

    `number`, `protocol`: those that are asked for. `per_send`: the cost of a message at either end. `machine`: as in
    `times_at`. None where no program of a point can be run, or not that of the fastest in
    synchronous steps.
    """
    from synth.topologies import rank_placement

    points: dict[str, int] = {}
    for one in range(1, len(frontier.points) + 1) if number is None else (number,):
        points[_name(frontier.points[one - 1])] = one
    only = [frontier.points[one - 1] for one in points.values()]
    rows = times_at(frontier, size, per_send, overheads=overheads, points=only, machine=machine)
    if number is None and _name(frontier.best(size)) not in {row.label for row in rows}:
        return None
    rows = [row for row in rows if protocol in (None, row.protocol)]
    if not rows:
        return None
    best = rows[0]
    others = {row.protocol: row for row in reversed(rows) if row.label == best.label and row is not best}
    times = [f"{row.protocol} {number_text(row.seconds * 1e6)}" for row in others.values()]
    beside = f" ({', '.join(times)})" if times else ""
    chosen = f"point {points[best.label]} in {best.protocol} is predicted to be the fastest"
    options = "--point and --protocol choose"
    if number is not None:
        chosen = f"{best.protocol} is predicted to be the fastest protocol for point {number}"
        options = "--protocol chooses"
    says = f"{chosen} at {size_text(size)}: {number_text(best.seconds * 1e6)} µs{beside}; {options}"
    if machine is None and protocol is None and rank_placement.known(replace(frontier.network, multicast=())) is None:
        says += "; LL128 is not offered, for the kinds of links are not known: name the machine (--topo)"
    return Fastest(points[best.label], best.protocol, says)


def _name(point: Point) -> str:
    return f"S{point.steps}-R{point.rounds}-C{point.chunks}"
