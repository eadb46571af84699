"""Emulation of switches that multicast by sends from rank to rank."""

from __future__ import annotations

from dataclasses import replace

from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.step_routes import rounds_for
from synth.model.topology import Network


def unicast(schedule: Schedule) -> Schedule:
    """Replace the switch sends of a schedule by sends between two ranks; its network then has no multicast.

    After each step every rank holds the same data as in the given schedule. A switch send becomes sends over the
    first route of each pair of ranks through that switch, or without one where the switch is described by links. Each
    step has the fewest rounds that carry its sends.
    """
    network = replace(schedule.network, multicast=())
    routes = switch_routes(network)

    def routed(send: Send, switch: str) -> Send:
        via = routes.get((send.src, send.dst, switch), ())
        return send._replace(via=via)

    # Sends in place of a switch send take the same path, where the network describes it.
    steps = []
    for step in schedule.steps:
        sends = list(step.sends)
        for switch_send in step.switch_sends:
            for send in switch_send.expanded():
                sends.append(routed(send, switch_send.switch))
        row = tuple(sorted(sends))
        steps.append(Step(rounds_for(network, row), row))
    return Schedule(network, schedule.collective, schedule.chunks, tuple(steps))


def switch_routes(network: Network) -> dict[tuple[int, int, str], tuple[str, ...]]:
    """Return the path of the first route by its ends and each switch on it, "" where it passes none."""
    routes: dict[tuple[int, int, str], tuple[str, ...]] = {}
    for route in network.routes:
        for switch in route.via or ("",):
            routes.setdefault((route.src, route.dst, switch), route.via)
    return routes
