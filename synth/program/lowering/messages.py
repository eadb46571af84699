"""First pass of lowering: a schedule as messages between values.

A *value* is the content of one chunk on one rank between two writes: the rank's own contribution, then one more value
for every arrival. A *message* is the load of one send instruction: consecutive chunks, of one step, on one lane of a
route. A route of b units has up to b lanes, each a connection of its own; the sends of a step are split into as many
runs. A rank that adds its own input again makes a *local* message, which no connection carries.

Messages have one total order, `(step, order)`: copies before reductions, early values before late ones, local ones
last. All lanes send in this order, and all reductions into one address happen in it. So no op ever waits for a later
message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from synth.errors import VerificationError
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.dead_sends import prune
from synth.program.send_hints import NO_HINT, SendHint, SendHints

# One connection: src, dst, via, number, piece. A connection whose block would exceed the runtime's instructions is cut
# into pieces, each with a block of its own; they carry its messages one after the other.
Lane = tuple[int, int, tuple[str, ...], int, int]
# The hint of each connection that the user named by a block or a channel, by its lane without the piece.
NamedLanes = Mapping[tuple, SendHint]
INPUT = -1  # the step at which the values of the input were written


class Value:
    """The content of `chunk` on `rank` that was written in step `born` (`INPUT`: before the first step).

    `old`: the value that the arrival was added to; None if it replaced the content. `last`: the step of its last send,
    `INPUT` if it is never sent. `readers`: the messages that send it, after placement. `final`: it is a part of the
    result. `place`: its buffer and offset, set by the second pass (`value_placement.Place`).
    """

    __slots__ = ("born", "chunk", "final", "last", "old", "place", "rank", "readers")

    def __init__(self, rank: int, chunk: int, born: int, old: Value | None = None) -> None:
        self.rank, self.chunk, self.born, self.old = rank, chunk, born, old
        self.last = INPUT
        self.final = False
        self.readers = []
        self.place: tuple[str | int, int] = ("", 0)


@dataclass(slots=True, eq=False)
class Message:
    """Consecutive chunks, from `chunk` on, that travel as one over `lane` in step `step`.

    `reads[k]`: the value of chunk k on the source. `writes[k]`: its new value on the destination, which adds the old
    there if `reduce`. `order`: the position among all messages.
    """

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
        """True if source and destination are one rank."""
        return self.lane[0] == self.lane[1]

    @property
    def dst(self) -> int:
        """The receiving rank."""
        return self.lane[1]

    @property
    def count(self) -> int:
        """The number of chunks."""
        return len(self.reads)


@dataclass(frozen=True, slots=True)
class ScheduleMessages:
    """A schedule as messages between values.

    `messages`: all messages in their order. `chains[rank, chunk]`: the values of the chunk on that rank, first to last.
    `named`: the connections that hints name.
    """

    messages: list[Message]
    chains: dict[tuple[int, int], list[Value]]
    named: NamedLanes = field(default_factory=dict)


def schedule_messages(
    schedule: Schedule, *, lanes: int | None, aggregate: bool, whole_units: bool, hints: SendHints | None = None
) -> ScheduleMessages:
    """Return the messages and values of `schedule`, without unneeded sends.

    `lanes`: the most lanes of a route; None: its connections. `aggregate`: neighbouring chunks that were written in the
    same step travel as one message; with `whole_units` no message spans two units. `hints`: sends of one connection of
    their own, or cut into more messages. Raises VerificationError if the schedule sends a chunk that the source does
    not have, uses a link that does not exist, or ends without a demanded chunk.
    """
    collective, per_unit = schedule.collective, schedule.chunks
    connections, units = schedule.network.connections, {}
    for r in schedule.network.routes:
        units[r.src, r.dst, r.via] = min(r.units * connections, lanes or r.units * connections)
    now = {(rank, chunk): Value(rank, chunk, INPUT) for chunk, rank in _held(collective.pre, per_unit)}
    inputs, chains = dict(now), {key: [value] for key, value in now.items()}
    arrival_lane = {}
    messages = []
    named = {}
    numbers = {}  # of the connections that hints name, behind all others of a route
    first_number = max(units.values(), default=0)
    run = per_unit if whole_units else None
    for t, step in enumerate(without_unneeded_sends(schedule).steps):
        step_messages = []
        # the sends by route and hint, which local ones do not have, each with the value that it reads
        by_route = defaultdict(list)
        for send in step.sends:
            route = send.src, send.dst, send.via
            hint = NO_HINT if send.local else (hints or {}).get((t + 1, send.chunk, send.src, send.dst), NO_HINT)
            if not send.local and route not in units:
                raise _wrong(t, f"there is no link {send.src} -> {send.dst}")
            value = (inputs if send.kind.endswith("-input") else now).get((send.src, send.chunk))
            if value is None or value.born >= t:
                raise _wrong(t, f"rank {send.src} sends chunk {send.chunk} to {send.dst} before it holds it")
            by_route[route, hint].append((value, send))
        for (route, hint), loads in by_route.items():
            local = route[0] == route[1]
            # runs of neighbouring chunks that arrived together stay on one lane, so each lane has few messages
            loads.sort(key=lambda load: (load[0].born, arrival_lane.get(load[0], ()), load[1].chunk, load[1].kind))
            width, first = 1 if local else min(units[route], hint.lanes or len(loads), len(loads)), 0
            if hint.connects:
                width, connection = 1, hint._replace(lanes=None, pieces=None)
                first = numbers.setdefault(connection, first_number + len(numbers))
                named[(*route, first)] = connection
            for lane in range(width):
                part = loads[len(loads) * lane // width : len(loads) * (lane + 1) // width]
                runs = _runs(t, (*route, first + lane, 0), part, aggregate, run)
                for message in runs:
                    # as many messages as the hint wants, of nearly equal numbers of chunks
                    count = min(hint.pieces or 1, message.count)
                    for k in range(count):
                        begin, end = message.count * k // count, message.count * (k + 1) // count
                        cut = replace(message, chunk=message.chunk + begin, reads=message.reads[begin:end], writes=[])
                        step_messages.append(cut)
        step_messages.sort(key=lambda m: (m.reduce, m.local, m.reads[0].born, m.chunk, m.lane))
        for message in step_messages:
            message.order = len(messages)
            messages.append(message)
            for value in message.reads:
                value.last = t
        for message in step_messages:
            for k in range(message.count):
                key = (message.dst, message.chunk + k)
                value = Value(*key, t, now.get(key) if message.reduce else None)
                message.writes.append(value)
                now[key] = value
                chains.setdefault(key, []).append(value)
                arrival_lane[value] = message.lane
    for chunk, rank in _held(collective.post, per_unit):
        if (rank, chunk) not in now:
            raise VerificationError(f"the schedule leaves rank {rank} without chunk {chunk}; `synth verify` says more")
        now[rank, chunk].final = True
    return ScheduleMessages(messages, chains, named)


def without_unneeded_sends(schedule: Schedule) -> Schedule:
    """Return `schedule` without sends of chunks that the receiver has already or that no rank reads."""
    if schedule.collective.combining:
        return prune(schedule)
    present = set(_held(schedule.collective.pre, schedule.chunks))
    steps = []
    for step in schedule.steps:
        sends = []
        for send in step.sends:
            if (send.chunk, send.dst) not in present:
                present.add((send.chunk, send.dst))
                sends.append(send)
        steps.append(Step(step.rounds, tuple(sends)))
    return prune(Schedule(schedule.network, schedule.collective, schedule.chunks, tuple(steps)))


def _held(units: Iterable[frozenset[int]], per_unit: int) -> Iterator[tuple[int, int]]:
    """Yield (chunk, rank) of all chunks of units that ranks hold."""
    for unit, ranks in enumerate(units):
        for rank in sorted(ranks):
            for chunk in range(unit * per_unit, (unit + 1) * per_unit):
                yield chunk, rank


def _wrong(step: int, fault: str) -> VerificationError:
    return VerificationError(f"the schedule is wrong in step {step}: {fault}; `synth verify` says more")


def _runs(step: int, lane: Lane, loads: list[tuple[Value, Send]], aggregate: bool, unit: int | None) -> list[Message]:
    """Return `loads` as messages: runs of consecutive chunks of one kind that became ready in the same step."""
    rows = sorted((send.kind.startswith("reduce"), value.born, send.chunk, k) for k, (value, send) in enumerate(loads))
    messages = []
    for reduce, born, chunk, k in rows:
        last = messages[-1] if messages else None
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
            messages.append(Message(step, lane, chunk, reduce, [loads[k][0]]))
    return messages
