"""What the one-sided blocks have to do: chunks that travel together, where they lie, and the sends of every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.program.buffer_layout import Layout
from synth.program.program import InPlace, Span
from synth.program.thread_joins import Key


class Move(NamedTuple):
    """One group of chunks over one link. `original`: the rank's own contribution is sent, not what it has summed up."""

    src: int
    dst: int
    kind: str
    original: bool = False

    @property
    def local(self) -> bool:
        """Whether it stays on its rank: the rank's own contribution, added again."""
        return self.src == self.dst


class Group(NamedTuple):
    """`count` chunks from `first` that always travel together; `moves[step]`."""

    first: int
    count: int
    moves: tuple[tuple[Move, ...], ...]


def groups(schedule: Schedule, instances: int) -> tuple[Group, ...]:
    """All chunks, in runs of one unit and instance that have the same sends; by instance, place in the unit and unit.

    Instance k of chunk c of unit u is chunk ``(u * instances + k) * C + c``.
    """
    c, steps = schedule.chunks, len(schedule.steps)
    total = schedule.collective.units * c
    sends: list[dict[int, set[Move]]] = [{} for _ in range(total)]
    for t, step in enumerate(schedule.steps):
        for send in step.sends:
            kind, _, own = send.kind.partition("-")
            sends[send.chunk].setdefault(t, set()).add(Move(send.src, send.dst, kind, bool(own)))
    moves = [tuple(tuple(sorted(of.get(t, ()))) for t in range(steps)) for of in sends]
    found = []
    for unit in range(schedule.collective.units):
        base, run = unit * c, 0
        for i in range(c):
            if i + 1 < c and moves[base + i + 1] == moves[base + i]:
                continue
            for k in range(instances):
                found.append(((k, run, unit), Group((unit * instances + k) * c + run, i + 1 - run, moves[base + i])))
            run = i + 1
    return tuple(group for _, group in sorted(found, key=lambda pair: pair[0]))


@dataclass(frozen=True)
class Memory:
    """Where chunks lie in a rank's input and output, and which chunks of the two are one memory."""

    layout: Layout
    in_place: InPlace

    @property
    def collective(self) -> Collective:
        """The collective laid out."""
        return self.layout.collective

    @property
    def aliased(self) -> bool:
        """Whether input and output may be one memory."""
        return self.in_place != "out"

    def places(self) -> tuple[tuple[dict[int, int], ...], tuple[dict[int, int], ...]]:
        """Chunk → offset in each rank's input, and in its output."""

        def index(buffers: Sequence[tuple[int, ...]]) -> tuple[dict[int, int], ...]:
            return tuple({chunk: i for i, chunk in enumerate(held)} for held in buffers)

        return index(self.layout.inputs), index(self.layout.outputs)

    def keys(self, rank: int, span: Span, count: int) -> tuple[Key, ...]:
        """The chunks of memory of a span of `rank`: a chunk of the output has the input's key where they are one."""
        shift, name = 0, span.buffer
        if name == "o" and self.aliased:
            shift, name = self.layout.overlaps[rank] or 0, "i"
        return tuple((name, span.offset + shift + i) for i in range(count))

    @cached_property
    def begins(self) -> tuple[dict[str, int], ...]:
        """Where each rank's input and output begin in their allocation: in place one of them lies in the other."""
        shifts = self.layout.overlaps if self.in_place == "in" else (0,) * self.collective.ranks
        return tuple({"i": max(0, -(shift or 0)), "o": max(0, shift or 0)} for shift in shifts)

    def found_by(self, writer: int, owner: int, span: Span) -> Span | None:
        """`span`, memory of `owner`, as `writer` has to name it; None where it cannot.

        MSCCL++ counts a place in another rank's input or output from where the writer's own begins in its allocation:
        an output that lies in the input (reduce-scatter) is reached as a part of the input.
        """
        return self._counted(owner, span, self.begins[writer])

    def from_start(self, rank: int, span: Span) -> Span:
        """`span`, memory of `rank` itself, as a port channel has to be told: MSCCL++ counts it from the allocation's
        beginning."""
        return self._counted(rank, span, {"i": 0, "o": 0}) or span

    def _counted(self, owner: int, span: Span, counted: dict[str, int]) -> Span | None:
        if span.buffer == "s" or counted[span.buffer] == self.begins[owner][span.buffer]:
            return span
        other = "i" if span.buffer == "o" else "o"
        place = span.offset + self.begins[owner][span.buffer] - self.begins[owner][other]
        held = self.layout.inputs[owner], self.layout.outputs[owner]
        if not all(held) or not 0 <= place < len(held[other == "o"]) or counted[other] != self.begins[owner][other]:
            return None
        return span._replace(buffer=other, offset=place)
