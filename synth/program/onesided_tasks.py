"""What the one-sided blocks have to do: chunks that travel together, where they lie, and the sends of every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from synth.collective import Collective
from synth.program.joins import Key
from synth.program.layout import Layout
from synth.program.program import InPlace, Span
from synth.schedule import Schedule


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
