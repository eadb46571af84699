"""Liveness: drop the sends that nothing needs, and those that change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from synth.model.schedule import Schedule, Send, Step

ALIKE = 2  # contributions up to which a sum has the same bits whichever order they were added in


def prune(schedule: Schedule) -> Schedule:
    """`schedule` without the sends whose effect is never read, each step with the fewest rounds that carry the rest.

    A combined value is needed whole: if an address is read, everything that was added into it since it was last
    replaced is needed. Where a copy puts there what is there already, bit for bit (a rank's own input over that input,
    say), it goes too. Steps are kept even when they end empty, so S does not change; every step keeps a round.
    """
    steps = _needed(schedule, [step.sends for step in schedule.steps])
    while schedule.collective.combining and (fewer := _telling(schedule, steps)) != steps:
        steps = _needed(schedule, fewer)
    made = tuple(Step(rounds_for(schedule, sends), sends) for sends in steps)
    return Schedule(schedule.network, schedule.collective, schedule.chunks, made)


def _needed(schedule: Schedule, steps: Sequence[tuple[Send, ...]]) -> list[tuple[Send, ...]]:
    """Of each step the sends whose effect is read, from the last step to the first."""
    chunks, post = schedule.chunks, schedule.collective.post
    needed = {(u * chunks + i, rank) for u, ranks in enumerate(post) for i in range(chunks) for rank in ranks}
    kept = []
    for sends in reversed(steps):
        live = tuple(send for send in sends if (send.chunk, send.dst) in needed)
        if schedule.collective.combining:
            needed -= {(send.chunk, send.dst) for send in live if send.kind.startswith("copy")}
        needed |= {(send.chunk, send.src) for send in live if not send.kind.endswith("-input")}
        kept.append(live)
    return kept[::-1]


def _telling(schedule: Schedule, steps: Sequence[tuple[Send, ...]]) -> list[tuple[Send, ...]]:
    """Of each step the sends that change something, from the first step to the last; contributions are bits of a
    number."""
    if not any(send.kind.startswith("copy") for sends in steps for send in sends):
        return list(steps)
    chunks = schedule.chunks
    held = {
        (u * chunks + i, rank): 1 << rank
        for u, ranks in enumerate(schedule.collective.pre)
        for i in range(chunks)
        for rank in ranks
    }
    kept = []
    for sends in steps:
        arriving: dict[tuple[int, int], int] = {}
        copied: dict[tuple[int, int], int] = {}
        for send in sends:
            at, value = (
                (send.chunk, send.dst),
                1 << send.src if send.kind.endswith("-input") else held.get((send.chunk, send.src), 0),
            )
            if send.kind.startswith("copy"):
                copied[at] = value
            arriving[at] = arriving.get(at, 0) | value
        same = {at for at, value in copied.items() if _alike(value, held.get(at))}
        idle = {at for at in copied if at not in same and _alike(arriving[at], held.get(at))}
        kept.append(
            tuple(
                s
                for s in sends
                if (at := (s.chunk, s.dst)) not in idle and (at not in same or not s.kind.startswith("copy"))
            )
        )
        for at, value in arriving.items():
            held[at] = value if at in copied else held.get(at, 0) | value
    return kept


def _alike(value: int, held: int | None) -> bool:
    """Whether both are sums of the same contributions, with the same bits."""
    return value == held and value.bit_count() <= ALIKE


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
