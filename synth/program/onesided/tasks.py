"""The work of one-sided thread blocks: groups of chunks that travel together, their memory, their moves per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, SwitchSend
from synth.program.buffer_layout import Layout
from synth.program.onesided.block_writer import Key
from synth.program.program import InPlace, Span


class GroupTransfer(NamedTuple):
    """The transfer of one group of chunks over one link; `kind` is "copy" or "reduce".

    `original`: the rank sends its own contribution, not its partial sum.
    """

    src: int
    dst: int
    kind: str
    original: bool = False

    @property
    def local(self) -> bool:
        """True if source and destination are one rank, which adds its own contribution again."""
        return self.src == self.dst


class SwitchTransfer(NamedTuple):
    """One op of `rank` through a switch on the group `members`, which has the rank itself.

    `code` is that of the op: "glres" adds up the values of all members and stores the sum on all, "gstore" stores the
    value of `rank` on all. `final`: the stored value is the members' own from then on. A sum that `rank` alone needs is
    stored on all as well, where it is overwritten.
    """

    rank: int
    members: tuple[int, ...]
    code: str
    final: bool


class ChunkGroup(NamedTuple):
    """`count` consecutive chunks, from chunk `first` on, that always travel together; `moves[step]`: transfers."""

    first: int
    count: int
    moves: tuple[tuple[GroupTransfer, ...], ...]
    switch_moves: tuple[tuple[SwitchTransfer, ...], ...] = ()


def groups(schedule: Schedule, instances: int) -> tuple[ChunkGroup, ...]:
    """Return the groups of all chunks: runs of neighbouring chunks of one unit and instance that have the same sends.

    They are sorted by instance, offset in the unit, and unit; units from one rank to another by the distance of the two
    first, so that in every run of units each rank has few peers. With C chunks a unit in the schedule, chunk c of unit
    u is chunk ``(u * instances + k) * C + c`` in instance k.
    """
    c, steps = schedule.chunks, len(schedule.steps)
    total = schedule.collective.units * c
    through = switch_moves(schedule)
    moves_by_step = [{} for _ in range(total)]
    for t, step in enumerate(schedule.steps):
        for send in step.sends:
            kind, _, suffix = send.kind.partition("-")
            moves_by_step[send.chunk].setdefault(t, set()).add(GroupTransfer(send.src, send.dst, kind, bool(suffix)))
    moves = []
    for by_step in moves_by_step:
        moves.append(tuple(tuple(sorted(by_step.get(t, ()))) for t in range(steps)))

    # The distance in rank numbers, upwards and round, that units with one source and one destination travel.
    distance = []
    for sources, targets in zip(schedule.collective.pre, schedule.collective.post, strict=True):
        alone = len(sources) == len(targets) == 1
        distance.append((min(targets) - min(sources)) % schedule.collective.ranks if alone else 0)
    # Runs of chunks with the same sends, in each instance, with their place in the order.
    keyed = []
    for unit in range(schedule.collective.units):
        base, run = unit * c, 0
        for i in range(c):
            at = base + i
            if i + 1 < c and moves[at + 1] == moves[at] and through[at + 1] == through[at]:
                continue
            for k in range(instances):
                first = (unit * instances + k) * c + run
                keyed.append(((k, run, distance[unit], unit), ChunkGroup(first, i + 1 - run, moves[at], through[at])))
            run = i + 1
    return tuple(group for _, group in sorted(keyed, key=lambda pair: pair[0]))


def switch_moves(schedule: Schedule) -> list[tuple[tuple[SwitchTransfer, ...], ...]]:
    """Return for each chunk, and each step, the ops through switches: () for chunks without switch sends.

    A sum that is fetched, and is next multicast by the same rank to the same group, becomes one op. Raises SynthError
    for switch sends that the ops of a plan do not have.
    """
    moves: list[tuple[tuple[SwitchTransfer, ...], ...]] = [()] * (schedule.collective.units * schedule.chunks)
    if not schedule.uses_multicast:
        return moves
    # the sends of each chunk in the order of their steps, through switches and others
    events = {}
    for t, step in enumerate(schedule.steps):
        for send in (*step.sends, *step.switch_sends):
            events.setdefault(send.chunk, []).append((t, send))
    for chunk, rows in events.items():
        through = [[] for _ in schedule.steps]
        dropped = set()
        for i, (t, send) in enumerate(rows):
            if not isinstance(send, SwitchSend) or i in dropped:
                continue
            if send.kind == "multicast-reduce":
                raise SynthError(
                    "the schedule adds to several ranks through a switch, for which MSCCL++ has no operation"
                )
            if send.kind == "multicast":
                through[t].append(SwitchTransfer(send.rank, send.group, "gstore", True))
                continue
            following = _next_use(rows, i, send)
            # one op adds up and stores on all, if that is what the same rank does next
            fused = following is not None and rows[following][1] == send._replace(kind="multicast")
            if fused and following is not None:
                dropped.add(following)
            through[t].append(SwitchTransfer(send.rank, send.group, "glres", fused))
        moves[chunk] = tuple(map(tuple, through))
    return moves


def _next_use(rows: list[tuple[int, Send | SwitchSend]], i: int, fetch: SwitchSend) -> int | None:
    """Return the index of the first event after event `i`, a fetched sum, at its rank; None where there is none.

    MSCCL++ stores the sum on all ranks of the group. Raises SynthError where one of the others still uses its value.
    """
    others = set(fetch.group) - {fetch.rank}
    first = None
    for k in range(i + 1, len(rows)):
        t, send = rows[k]
        if isinstance(send, SwitchSend):
            sources = {send.rank} if send.kind != "fetch-reduce" else set(send.group)
            received = set(send.group) - sources if send.kind == "multicast" else set[int]()
        else:
            sources = {send.src}
            received = {send.dst} if send.kind == "copy" else set[int]()
            sources |= {send.dst} - received
        if t == rows[i][0] and others & (sources | received):
            raise SynthError("a rank uses a chunk in the step in which its sum is fetched, which MSCCL++ overwrites")
        if others & sources:
            raise SynthError("a rank uses a chunk after its sum was fetched, which MSCCL++ overwrites there")
        if first is None and (fetch.rank in sources | received or others & received):
            first = k
        others -= received
    return first


@dataclass(frozen=True)
class BufferOffsets:
    """The offsets of chunks in each rank's input and output, and the memory that the two buffers share."""

    layout: Layout
    in_place: InPlace

    @property
    def collective(self) -> Collective:
        """The collective whose buffers these are."""
        return self.layout.collective

    @property
    def aliased(self) -> bool:
        """True if input and output may share memory."""
        return self.in_place != "out"

    def spans(self, buffer: str, groups: Sequence[ChunkGroup]) -> list[dict[int, Span]]:
        """Return rank → the span of each group in the rank's input ("i") or output ("o")."""
        found = [{} for _ in groups]
        for rank, chunks in enumerate(self.layout.inputs if buffer == "i" else self.layout.outputs):
            offsets = {chunk: offset for offset, chunk in enumerate(chunks)}
            for group, spans in zip(groups, found, strict=True):
                if group.first in offsets:
                    spans[rank] = Span(buffer, offsets[group.first])
        return found

    def keys(self, rank: int, span: Span, count: int) -> tuple[Key, ...]:
        """Return the memory keys of `count` chunks of a span of `rank`; an output chunk that shares memory with the
        input has the input's key."""
        shift, name = 0, span.buffer
        if name == "o" and self.aliased:
            shift, name = self.layout.overlaps[rank] or 0, "i"
        return tuple((name, span.offset + shift + i) for i in range(count))

    @cached_property
    def allocation_offsets(self) -> tuple[dict[str, int], ...]:
        """The offset of each rank's input ("i") and output ("o") in their allocation, in chunks; in place one of the
        two buffers lies in the other."""
        shifts = self.layout.overlaps if self.in_place == "in" else (0,) * self.collective.ranks
        return tuple({"i": max(0, -(shift or 0)), "o": max(0, shift or 0)} for shift in shifts)

    def remote_span(self, writer: int, owner: int, span: Span) -> Span | None:
        """Return the name that `writer` must use for `span`, memory of `owner`; None if it has no name for it.

        MSCCL++ adds an offset in another rank's input or output to the offset of the writer's own buffer in its
        allocation. An output that lies in the input (reduce-scatter) is therefore named as a part of the input.
        """
        return self._renamed(owner, span, self.allocation_offsets[writer])

    def port_source(self, rank: int, span: Span) -> Span:
        """Return `span`, memory of `rank` itself, as a port channel needs it: MSCCL++ counts from the beginning of the
        allocation."""
        return self._renamed(rank, span, {"i": 0, "o": 0}) or span

    def _renamed(self, owner: int, span: Span, assumed: dict[str, int]) -> Span | None:
        """Return a name of `span` that is right if the runtime takes buffer b to begin at ``assumed[b]``."""
        actual = self.allocation_offsets[owner]
        if span.buffer == "s" or assumed[span.buffer] == actual[span.buffer]:
            return span
        other = "i" if span.buffer == "o" else "o"
        offset = span.offset + actual[span.buffer] - actual[other]
        buffers = self.layout.inputs[owner], self.layout.outputs[owner]
        if not all(buffers) or not 0 <= offset < len(buffers[other == "o"]) or assumed[other] != actual[other]:
            return None
        return span._replace(buffer=other, offset=offset)
