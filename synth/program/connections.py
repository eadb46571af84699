"""Chunks cut for the physical connections of links: a unit of a DGX A100 is twelve NVLinks, all of which carry some."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from synth.model.schedule import Schedule, Step
from synth.program.plan_limits import PLAN_SENDS


def on_connections(schedule: Schedule, lanes: int | None = None) -> Schedule:
    """Return `schedule` with chunks cut so that none of the connections of a link idles, as far as plans can hold.

    That is as many pieces as a unit has connections, at most `lanes`, fewer where a link has several chunks in a step.
    R / C stays. Timed schedules, whose links have one connection each, and those through switches stay as they are.
    """
    network, loads = schedule.network, Counter[tuple]()
    if network.connections == 1 or schedule.timed or schedule.uses_multicast:
        return schedule
    for t, step in enumerate(schedule.steps):
        loads.update((t, send.src, send.dst, send.via) for send in step.sends if not send.local)
    widest = max(route.units for route in network.routes)
    pieces = network.connections * widest // max(loads.values(), default=1)
    pieces = min(pieces, lanes or pieces, network.connections, PLAN_SENDS // max(1, schedule.sends))
    if pieces < 2:
        return schedule
    steps = []
    for step in schedule.steps:
        sends = [send._replace(chunk=send.chunk * pieces + k) for send in step.sends for k in range(pieces)]
        steps.append(Step(step.rounds * pieces, tuple(sends)))
    return replace(schedule, chunks=schedule.chunks * pieces, steps=tuple(steps))
