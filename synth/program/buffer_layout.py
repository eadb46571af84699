"""Where the chunks of a collective lie in each rank's input and output buffers, and what "in place" means.

Chunk ids are unit-major (``unit * chunks + i``), as in schedules. A rank's input holds the chunks that it has (or
contributes to) before, its output those that it must end with, both in the order of their ids: for allgather,
reduce-scatter, allreduce, alltoall, gather and scatter this is the layout of MPI, NCCL and MSCCL.

In place, the smaller buffer is a part of the larger: chunk by chunk the same data at the same place (NCCL: allreduce
input = output; allgather input = output + rank * n; reduce-scatter output = input + rank * n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from synth.errors import SynthError
from synth.model.collective import Collective
from synth.program.program import Program


@dataclass(frozen=True)
class Layout:
    """The buffers of `collective` with `chunks` chunks a unit."""

    collective: Collective
    chunks: int

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """`inputs[rank][offset]`: the chunk at that place of the rank's input."""
        return self._buffers(self.collective.pre)

    @cached_property
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """`outputs[rank][offset]`: the chunk that must end at that place of the rank's output."""
        return self._buffers(self.collective.post)

    def _buffers(self, sets: tuple[frozenset[int], ...]) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in range(self.collective.ranks)]
        for unit, ranks in enumerate(sets):
            for rank in ranks:
                found[rank].extend(range(unit * self.chunks, (unit + 1) * self.chunks))
        return tuple(map(tuple, found))

    @cached_property
    def overlaps(self) -> tuple[int | None, ...]:
        """`overlaps[rank]`: the place of the output's first chunk, counted from the input's first, when called in
        place.

        Negative where the input lies inside the output (allgather: ``-rank * n``), 0 where one buffer is empty. None
        where the call cannot be in place: no place makes every chunk that both buffers hold the same memory, and
        only those (alltoall, for example).
        """
        return tuple(self._overlap(rank) for rank in range(self.collective.ranks))

    def _overlap(self, rank: int) -> int | None:
        held, wanted = self.inputs[rank], self.outputs[rank]
        if not held or not wanted:
            return 0
        small, large = (held, wanted) if len(held) <= len(wanted) else (wanted, held)
        if small[0] not in large:
            return None
        at = large.index(small[0])
        if large[at : at + len(small)] != small:
            return None
        return -at if small is held else at

    @property
    def placeable(self) -> bool:
        """Whether the collective can be called in place at all."""
        return None not in self.overlaps


def layout_of(program: Program) -> Layout:
    """Where the chunks of what `program` computes lie. Raises SynthError where it does not say what that is."""
    if program.collective is None:
        raise SynthError(f"{program.name}: the file does not say which collective this is; name it")
    return Layout(program.collective, program.chunks)
