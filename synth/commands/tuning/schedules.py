"""Schedules that compete in a tuning plan: points of frontiers, and the library's algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from synth.catalog.tuner.request import TuningRequest
from synth.commands.programs.baselines import baseline, baseline_summaries
from synth.commands.tuning.inputs import CollectiveInputs
from synth.errors import SynthError
from synth.model.schedule import Schedule
from synth.program.plan_limits import BLOCK_CHANNELS, holds_all_pairs

if TYPE_CHECKING:
    from synth.catalog.tuner.candidates import NamedSchedule
    from synth.commands.inputs import TopologyLike
    from synth.export.request import Machine

# Algorithms of the library that are candidates wherever they fit the machine; on few ranks all others are, too.
ALWAYS = (
    "ring", "tree", "direct", "hierarchical", "two-step", "halving-doubling", "binomial", "bruck",
)  # fmt: skip
NCCL_HAS = ("ring", "tree")
CHANNELS = 32  # of a communicator of NCCL 2.12 (MAXCHANNELS in src/include/devcomm.h), each with a chunk of its own
FEW_RANKS = 16
# Chunks of points of fewer that are made to divide the sizes: 16 come within 2% of the rate of 3 or 6.
DIVIDING_CHUNKS = 16


def library_schedules(inputs: CollectiveInputs, machine: TopologyLike | None) -> list[NamedSchedule]:
    """Return the algorithms that NCCL has itself, as schedules on the links of the machine."""
    return _fitting(inputs, machine, NCCL_HAS, CHANNELS)


def candidate_schedules(
    inputs: CollectiveInputs, request: TuningRequest, measured: Sequence[str] | None = None
) -> list[NamedSchedule]:
    """Return every point of the frontiers, and the algorithms of the library that fit the machine.

    `measured`: the names of measured programs; of the library only these are returned then.
    """
    from synth.catalog.tuner.candidates import NamedSchedule
    from synth.commands.programs.algorithms import library

    points = []
    for found in inputs.frontiers:
        for schedule in (point.schedule for point in found.points):
            for one in (schedule, *_dividing(schedule, request)):
                label = f"S{len(one.steps)}-R{one.rounds}-C{one.chunks}"
                points.append(NamedSchedule(label, one))
    if inputs.network is None or not inputs.frontiers:
        return points
    if measured is not None:
        known = baseline_summaries()
        names = [name for name in dict.fromkeys(measured) if name in known]
        return points + _fitting(inputs, request.topology, names, None)
    names = [name for name in ALWAYS if name not in NCCL_HAS]
    if inputs.network.ranks <= FEW_RANKS:
        names += [one.name for one in library(inputs.name) if one.name not in NCCL_HAS]
    elif request.plans and holds_all_pairs(inputs.network.ranks) and inputs.network.ranks > BLOCK_CHANNELS:
        names.append("grid")  # no thread block has a channel to all others
    return points + _fitting(inputs, request.topology, dict.fromkeys(names), CHANNELS)


def _dividing(schedule: Schedule, request: TuningRequest) -> list[Schedule]:
    from synth.catalog.tuner.fewer_chunks import of_chunks
    from synth.program.connections import on_connections

    # Measured programs are as they are, and large machines have too many schedules already.
    schedule = on_connections(schedule)
    whole, rest = divmod(max(request.sizes), request.element * schedule.collective.buffer_units)
    fits = rest or whole % schedule.chunks == 0
    if fits or schedule.uses_multicast or request.measured or schedule.network.ranks > FEW_RANKS:
        return []
    counts = [count for count in range(1, max(schedule.chunks, DIVIDING_CHUNKS) + 1) if whole % count == 0]
    return [of_chunks(schedule, counts[-1])]


def _fitting(
    inputs: CollectiveInputs, machine: TopologyLike | None, names: Sequence[str] | dict[str, None], channels: int | None
) -> list[NamedSchedule]:
    """Return those of the named algorithms that the links carry."""
    from synth.catalog.tuner.candidates import NamedSchedule

    found: list[NamedSchedule] = []
    if inputs.network is None or not inputs.frontiers:
        return found
    for name in names:
        try:
            schedule = baseline(name, machine or inputs.network, inputs.frontiers[0].collective, channels=channels)
        except SynthError:  # the links do not carry it, or the time is over
            continue
        found.append(NamedSchedule(name, schedule))
    return found


def without_plans(schedules: Sequence[NamedSchedule], facts: Machine | None) -> tuple[list[NamedSchedule], list[str]]:
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
