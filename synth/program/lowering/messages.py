"""First pass of lowering: a schedule as messages between values.

A *value* is what one rank holds of one chunk between two writes: its own contribution, then one more value for every
arrival. A *message* is what one send instruction carries: consecutive chunks, of one step, on one lane of a route. A
route of b units has up to b lanes, each a connection of its own; the sends of a step are cut into as many runs. A
rank's input that is added again where it is makes a *local* message, which no connection carries.

Messages have one total order, `(step, order)`: copies before reductions, early values before late ones, local ones
last. All lanes send in it and all reductions into one address happen in it, so nothing ever waits for a later message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from synth.errors import VerificationError
from synth.model.collective import Collective
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule, Send, Step

Lane = tuple[int, int, tuple[str, ...], int, int]  # src, dst, via, number, piece: one connection
INPUT = -1  # the step at which the values of the input were written


class Value:
    """What `rank` holds of `chunk` from step `born` on. `old`: the value that it was added to. `last`: the last send's
    step."""

    __slots__ = ("born", "chunk", "final", "last", "old", "place", "rank", "readers")

    def __init__(self, rank: int, chunk: int, born: int, old: Value | None = None) -> None:
        self.rank, self.chunk, self.born, self.old = rank, chunk, born, old
        self.last = INPUT
        self.final = False
        self.readers: list[Message] = []
        self.place: tuple[str | int, int] = ("", 0)


@dataclass(slots=True, eq=False)
class Message:
    """Consecutive chunks that travel as one: `reads[k]` on `lane`'s source becomes, or is added into, `writes[k]`."""

    step: int
    lane: Lane
    chunk: int
    reduce: bool
    reads: list[Value]
    writes: list[Value] = field(default_factory=list)
    order: int = 0

    @property
    def src(self) -> int:
        """The sending rank."""
        return self.lane[0]

    @property
    def local(self) -> bool:
        """Whether it stays on its rank."""
        return self.lane[0] == self.lane[1]

    @property
    def dst(self) -> int:
        """The receiving rank."""
        return self.lane[1]

    @property
    def count(self) -> int:
        """How many chunks."""
        return len(self.reads)


@dataclass(frozen=True, slots=True)
class Flow:
    """All messages in their order; `chains[rank, chunk]`: the values there, first to last."""

    messages: list[Message]
    chains: dict[tuple[int, int], list[Value]]


def trace(schedule: Schedule, *, lanes: int | None, aggregate: bool, whole_units: bool) -> Flow:
    """The messages of `schedule`, without the sends that nothing needs.

    `lanes`: the most lanes of a route. `aggregate`: neighbouring chunks that became ready together travel as one
    message; with `whole_units` none spans two units. Raises VerificationError where the schedule is wrong.
    """
    task, per_unit = schedule.collective, schedule.chunks
    units = {(r.src, r.dst, r.via): min(r.units, lanes or r.units) for r in schedule.network.routes}
    now: dict[tuple[int, int], Value] = {
        (rank, chunk): Value(rank, chunk, INPUT)
        for unit, ranks in enumerate(task.pre)
        for rank in sorted(ranks)
        for chunk in range(unit * per_unit, (unit + 1) * per_unit)
    }
    inputs, chains = dict(now), {key: [value] for key, value in now.items()}
    came: dict[Value, tuple] = {}
    messages: list[Message] = []
    run = per_unit if whole_units else None
    for t, step in enumerate(needed(schedule).steps):
        found: list[Message] = []
        for route, sends in _by_route(step.sends).items():
            local = route[0] == route[1]
            if not local and route not in units:
                raise _wrong(t, f"there is no link {route[0]} -> {route[1]}")
            loads = [(_read(send, now, inputs, t), send) for send in sends]
            loads.sort(key=lambda load: (load[0].born, came.get(load[0], ()), load[1].chunk, load[1].kind))
            width = 1 if local else min(units[route], len(loads))
            for lane in range(width):
                part = loads[len(loads) * lane // width : len(loads) * (lane + 1) // width]
                found += _runs(t, (*route, lane, 0), part, aggregate, run)
        found.sort(key=lambda m: (m.reduce, m.local, m.reads[0].born, m.chunk, m.lane))
        for message in found:
            message.order = len(messages)
            messages.append(message)
            for value in message.reads:
                value.last = t
        for message in found:
            for k in range(message.count):
                key = (message.dst, message.chunk + k)
                value = Value(*key, t, now.get(key) if message.reduce else None)
                message.writes.append(value)
                now[key] = value
                chains.setdefault(key, []).append(value)
                came[value] = message.lane
    for unit, ranks in enumerate(task.post):
        for rank in ranks:
            for chunk in range(unit * per_unit, (unit + 1) * per_unit):
                if (rank, chunk) not in now:
                    raise VerificationError(
                        f"the schedule leaves rank {rank} without chunk {chunk}; `synth verify` says more"
                    )
                now[rank, chunk].final = True
    return Flow(messages, chains)


def needed(schedule: Schedule) -> Schedule:
    """`schedule` without sends of what the receiver has already or nobody reads."""
    if schedule.collective.combining:
        return prune(schedule)
    held = _held(schedule.collective, schedule.chunks)
    steps = []
    for step in schedule.steps:
        sends = []
        for send in step.sends:
            if (send.chunk, send.dst) not in held:
                held.add((send.chunk, send.dst))
                sends.append(send)
        steps.append(Step(step.rounds, tuple(sends)))
    return prune(Schedule(schedule.network, schedule.collective, schedule.chunks, tuple(steps)))


def _held(task: Collective, per_unit: int) -> set[tuple[int, int]]:
    return {
        (unit * per_unit + i, rank) for unit, ranks in enumerate(task.pre) for rank in ranks for i in range(per_unit)
    }


def _by_route(sends: Iterable[Send]) -> dict[tuple[int, int, tuple[str, ...]], list[Send]]:
    found: dict[tuple[int, int, tuple[str, ...]], list[Send]] = {}
    for send in sends:
        found.setdefault((send.src, send.dst, send.via), []).append(send)
    return found


def _read(send: Send, now: dict, inputs: dict, step: int) -> Value:
    value = (inputs if send.kind.endswith("-input") else now).get((send.src, send.chunk))
    if value is None or value.born >= step:
        raise _wrong(step, f"rank {send.src} sends chunk {send.chunk} to {send.dst} before it holds it")
    return value


def _wrong(step: int, what: str) -> VerificationError:
    return VerificationError(f"the schedule is wrong in step {step}: {what}; `synth verify` says more")


def _runs(step: int, lane: Lane, loads: list[tuple[Value, Send]], aggregate: bool, unit: int | None) -> list[Message]:
    """`loads` as messages: runs of consecutive chunks of one kind that became ready in the same step."""
    rows = sorted((send.kind.startswith("reduce"), value.born, send.chunk, k) for k, (value, send) in enumerate(loads))
    found: list[Message] = []
    for reduce, born, chunk, k in rows:
        last = found[-1] if found else None
        if (
            aggregate
            and last is not None
            and last.reduce == reduce
            and last.reads[0].born == born
            and chunk == last.chunk + last.count
            and (unit is None or chunk % unit)
        ):
            last.reads.append(loads[k][0])
        else:
            found.append(Message(step, lane, chunk, reduce, [loads[k][0]]))
    return found
