"""Backwards liveness: drop the sends that nothing needs."""

from __future__ import annotations

from synth.schedule import Schedule, Step


def prune(schedule: Schedule) -> Schedule:
    """`schedule` without the sends whose effect is never read, each step with the fewest rounds that carry the rest.

    A combined value is needed whole: if an address is read, everything that was added into it since it was last
    replaced is needed. Steps are kept even when they end empty, so S does not change; every step keeps a round.
    """
    chunks, post = schedule.chunks, schedule.collective.post
    needed = {(u * chunks + i, rank) for u, ranks in enumerate(post) for i in range(chunks) for rank in ranks}
    steps = []
    for step in reversed(schedule.steps):
        live = tuple(send for send in step.sends if (send.chunk, send.dst) in needed)
        if schedule.collective.combining:
            needed -= {(send.chunk, send.dst) for send in live if send.kind.startswith("copy")}
        needed |= {(send.chunk, send.src) for send in live if not send.kind.endswith("-input")}
        steps.append(Step(rounds_for(schedule, live), live))
    return Schedule(schedule.network, schedule.collective, chunks, tuple(reversed(steps)))


def rounds_for(schedule: Schedule, sends: tuple) -> int:
    """The fewest rounds, at least one, in which the network carries `sends`."""
    network = schedule.network
    index = {(route.src, route.dst, route.via): i for i, route in enumerate(network.routes)}
    load = [0] * len(network.routes)
    for send in sends:
        if send.local:
            continue
        load[index[send.src, send.dst, send.via]] += 1
    rounds = max((-(-load[i] // route.units) for i, route in enumerate(network.routes)), default=0)
    for cap in network.caps:
        rounds = max(rounds, -(-sum(load[i] for i in cap.routes) // cap.units))
    return max(rounds, 1)
