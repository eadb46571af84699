"""One step of sends between given ranks: the route of each, and the rounds that they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from synth.errors import UsageError
from synth.model.schedule import Send, Step
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
    cap_load: Counter[int] = Counter()
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
    for i, count in load.items():
        for k in network.caps_of[i]:
            cap_load[k] += count
    rounds = [-(-count // network.routes[i].units) for i, count in load.items()]
    rounds += [-(-count // network.caps[k].units) for k, count in cap_load.items()]
    return Step(max(rounds, default=1), tuple(sorted(routed)))
