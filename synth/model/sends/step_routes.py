"""Routes and rounds of the sends of one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from synth.errors import UsageError
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network


def routes_by_pair(network: Network) -> dict[tuple[int, int], list[int]]:
    """Routes of each pair of ranks."""
    routes: dict[tuple[int, int], list[int]] = {}
    for i, route in enumerate(network.routes):
        routes.setdefault((route.src, route.dst), []).append(i)
    return routes


def step_of_sends(network: Network, routes: Mapping[tuple[int, int], Sequence[int]], sends: Sequence[Send]) -> Step:
    """Return one step, each send on the least loaded of its pair's `routes`; local sends use none.

    It has as many rounds as the fullest route or limit needs. Raises UsageError where a pair has no route.
    """
    load: Counter[int] = Counter()
    routed = []
    for send in sends:
        if send.local:
            routed.append(send)
            continue
        if (send.src, send.dst) not in routes:
            raise UsageError(
                f"{network.name} has no link from rank {send.src} to rank {send.dst}, which this algorithm needs"
            )
        i = min(routes[send.src, send.dst], key=lambda i: ((load[i] + 1) / network.routes[i].units, i))
        load[i] += 1
        routed.append(send._replace(via=network.routes[i].via))
    return Step(rounds_for(network, routed), tuple(sorted(routed)))


def with_fewest_rounds(schedule: Schedule) -> Schedule:
    """Return `schedule`, which has no switch sends, each step with the fewest rounds that carry its sends."""
    steps = tuple(Step(rounds_for(schedule.network, step.sends), step.sends) for step in schedule.steps)
    return Schedule(schedule.network, schedule.collective, schedule.chunks, steps)


def rounds_for(network: Network, sends: Sequence[Send]) -> int:
    """Return the fewest rounds, at least one, in which the network carries `sends`."""
    load: Counter[int] = Counter()
    for send in sends:
        if not send.local:
            load[network.route_index[send.src, send.dst, send.via]] += 1

    # A limit counts a send as often as it lists the send's route.
    against: Counter[int] = Counter()  # by limit
    rounds = 1
    for i, count in load.items():
        rounds = max(rounds, -(-count // network.routes[i].units))
        for k in network.caps_of[i]:
            against[k] += count
    for k, count in against.items():
        rounds = max(rounds, -(-count // network.caps[k].units))
    return rounds
