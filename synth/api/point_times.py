"""Predicted times of a frontier's points at one size, by the clock of `synth tune` and `synth run`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from synth.api.programs import placed
from synth.api.tuning_inputs import SearchOptions
from synth.model.frontier import ParetoFrontier, Point
from synth.model.number_text import number as number_text
from synth.model.number_text import size_text
from synth.model.topology import Topology
from synth.model.tuning_plan import OURS, Algorithm
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import label as label_of
from synth.program.overheads import selected
from synth.runtime.dtypes import dtype

if TYPE_CHECKING:
    from synth.catalog.tuner.predicted_times import PredictedTimes
    from synth.catalog.tuner.tune import TunerCandidate
    from synth.view.algorithm_times import AlgorithmTime

SWITCH_PROTOCOLS = ("Simple",)  # packets do not pass switches that multicast


def point_times_at(
    frontier: ParetoFrontier,
    size: int,
    per_send: MessageCost = NO_COST,
    seconds: float = 10.0,
    overheads: bool = True,
    points: Sequence[Point] = (),
    machine: Topology | None = None,
) -> list[AlgorithmTime]:
    """Return the predicted time at `size` bytes of every point in each protocol, by rising time.

    It is that of a run of the reference executor; `per_send` is the cost of a message at either end, `overheads`
    includes a launch and the protocols' costs. After `seconds` of CPU time no further program is run; a row of what
    was not run, or is far behind, is `late`: its time is of synchronous steps. A point whose switches multicast or
    reduce is timed as its MSCCL++ plan. Without a plan, because the runtime's limits forbid it, its row is `late`.
    Points at scale of too many sends for a run are left out. `points`: the only ones to time. `machine`: the one that
    says the kinds of the links. None: the known one of the network's name, if its links are the same.
    """
    from synth.catalog.tuner.candidates import NamedSchedule, candidates
    from synth.catalog.tuner.predicted_times import SETTINGS as RUNS
    from synth.catalog.tuner.predicted_times import PredictedTimes

    schedules = []
    for point in points or frontier.points:
        if frontier.engine == "exact" or frontier.least_sends(point) <= RUNS.maximum_sends >= point.schedule.sends:
            schedule = point.schedule.written_out()
            protocols = SWITCH_PROTOCOLS if schedule.uses_multicast else ()
            schedules.append(NamedSchedule(_name(point), schedule, True, protocols=protocols))
    if not schedules:
        return []
    search, network = cpu_seconds(seconds), schedules[0].schedule.network
    times = PredictedTimes(network, per_send, lambda: search.left == 0, selected(overheads), (size,))
    facts = placed(replace(network, multicast=()), (), machine, range(network.ranks))[1]
    return rows_of(candidates(schedules, (), None, "", facts, times).candidates, times, size)


def cpu_seconds(seconds: float) -> SearchOptions:
    """Return options that end after so much CPU time of this process: a busy machine prints the same."""
    return SearchOptions(time.process_time() + seconds, clock=time.process_time)


def rows_of(candidates: Sequence[TunerCandidate], times: PredictedTimes, size: int) -> list[AlgorithmTime]:
    """Return the predicted times at `size` bytes of the candidates that are schedules, by rising time."""
    from synth.catalog.tuner.predicted_times import Prediction
    from synth.view.algorithm_times import AlgorithmTime

    predictions: list[tuple[Algorithm, Prediction, int]] = []
    for one in candidates:
        if isinstance(one.predicted, Prediction) and one.algorithm.backend == OURS:
            predictions.append((one.algorithm, one.predicted, one.algorithm.padded(size, dtype("float32").size)))
    times.run_fastest([(prediction, padded) for _, prediction, padded in predictions])
    rows = []
    for algorithm, prediction, padded in predictions:
        predicted = prediction(padded)
        if predicted is None:
            continue
        ran = times.ran(prediction.variant, padded)
        label = algorithm.label.removesuffix(f"-{algorithm.protocol}")
        model = label_of(times.overheads, algorithm.protocol, ran, times.per_send)
        rows.append(AlgorithmTime(label, algorithm.protocol, algorithm.instances, predicted, not ran, model))
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
    `point_times_at`. Where a point is too large for a run, the fastest of synchronous steps is taken; None where it is
    that one.
    """
    from synth.topologies import rank_placement

    points: dict[str, int] = {}
    for one in range(1, len(frontier.points) + 1) if number is None else (number,):
        points[_name(frontier.points[one - 1])] = one
    only = [frontier.points[one - 1] for one in points.values()]
    rows = point_times_at(frontier, size, per_send, overheads=overheads, points=only, machine=machine)
    if len({row.label for row in rows}) < len(points):  # some are too large for a run, and may be faster
        chosen = _name(frontier.best(size))
        rows = [row for row in rows if row.label == chosen]
    rows = [row for row in rows if protocol in (None, row.protocol)]
    if not rows:
        return None
    best = rows[0]
    others = {row.protocol: row for row in reversed(rows) if row.label == best.label and row is not best}
    times = [f"{row.protocol} {_text(row)}" for row in others.values()]
    beside = f" ({', '.join(times)})" if times else ""
    chosen = f"point {points[best.label]} in {best.protocol} is predicted to be the fastest"
    options = "--point and --protocol choose"
    if number is not None:
        chosen = f"{best.protocol} is predicted to be the fastest protocol for point {number}"
        options = "--protocol chooses"
    says = f"{chosen} at {size_text(size)}: {_text(best)} µs{beside}; {options}"
    if machine is None and protocol is None and rank_placement.known(replace(frontier.network, multicast=())) is None:
        says += "; LL128 is not offered, for the kinds of links are not known: name the machine (--topo)"
    return Fastest(points[best.label], best.protocol, says)


def _text(row: AlgorithmTime) -> str:
    return ("~" if row.late else "") + number_text(row.seconds * 1e6)


def _name(point: Point) -> str:
    return f"S{point.steps}-R{point.rounds}-C{point.chunks}"
