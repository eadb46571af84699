"""Dead-send elimination: drop the sends whose effect is never read, and those that change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.step_routes import with_fewest_rounds

ALIKE = 2  # A sum of up to two contributions has the same bits in whichever order they were added.


def prune(schedule: Schedule) -> Schedule:
    """Return `schedule` without dead sends, each step with the fewest rounds that carry the others.

    A combined value is needed whole: if an address is read, everything that was added into it since it was last
    replaced is needed. A copy of a value onto the same value, bit for bit, is dead too (a rank's own input over that
    input, say). Steps stay even when they are empty, with one round, so S does not change. A schedule with switch sends
    is returned as it is.
    """
    if schedule.uses_multicast:
        return schedule
    steps = _needed(schedule, [step.sends for step in schedule.steps])
    while schedule.collective.combining and (fewer := _changing(schedule, steps)) != steps:
        steps = _needed(schedule, fewer)
    pruned = tuple(Step(1, sends) for sends in steps)
    return with_fewest_rounds(Schedule(schedule.network, schedule.collective, schedule.chunks, pruned))


def _needed(schedule: Schedule, steps: Sequence[tuple[Send, ...]]) -> list[tuple[Send, ...]]:
    """The sends of each step whose effect is read; found from the last step to the first."""
    chunks, post = schedule.chunks, schedule.collective.post
    needed = {(u * chunks + i, rank) for u, ranks in enumerate(post) for i in range(chunks) for rank in ranks}
    remaining = []
    for sends in reversed(steps):
        live = tuple(send for send in sends if (send.chunk, send.dst) in needed)
        if schedule.collective.combining:
            needed -= {(send.chunk, send.dst) for send in live if send.kind.startswith("copy")}
        needed |= {(send.chunk, send.src) for send in live if not send.kind.endswith("-input")}
        remaining.append(live)
    return remaining[::-1]


def _changing(schedule: Schedule, steps: Sequence[tuple[Send, ...]]) -> list[tuple[Send, ...]]:
    """The sends of each step that change the value of an address; found from the first step to the last.

    The contributions of a value are the bits of a number.
    """
    if not any(send.kind.startswith("copy") for sends in steps for send in sends):
        return list(steps)
    chunks = schedule.chunks
    values: dict[tuple[int, int], int] = {}
    for unit, ranks in enumerate(schedule.collective.pre):
        for chunk in range(unit * chunks, (unit + 1) * chunks):
            values.update({(chunk, rank): 1 << rank for rank in ranks})

    # What arrives in a step, and which address is replaced by a copy.
    remaining = []
    for sends in steps:
        arriving: dict[tuple[int, int], int] = {}
        copied: dict[tuple[int, int], int] = {}
        for send in sends:
            at = (send.chunk, send.dst)
            value = 1 << send.src if send.kind.endswith("-input") else values.get((send.chunk, send.src), 0)
            if send.kind.startswith("copy"):
                copied[at] = value
            arriving[at] = arriving.get(at, 0) | value

        # Copies of the value that is there, and copies whose sum with all that arrives is.
        same = {at for at, value in copied.items() if _alike(value, values.get(at))}
        idle = {at for at in copied if at not in same and _alike(arriving[at], values.get(at))}
        changing = []
        for send in sends:
            at = (send.chunk, send.dst)
            if at not in idle and (at not in same or not send.kind.startswith("copy")):
                changing.append(send)
        remaining.append(tuple(changing))
        for at, value in arriving.items():
            values[at] = value if at in copied else values.get(at, 0) | value
    return remaining


def _alike(value: int, other: int | None) -> bool:
    """True if both are sums of the same contributions, with the same bits."""
    return value == other and value.bit_count() <= ALIKE
