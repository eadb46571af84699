"""Layout of a collective's chunks in each rank's input and output buffers, out of place and in place.

Chunk ids are unit-major (``unit * chunks + i``), as in schedules. A rank's input holds the chunks that it has (or
contributes to) at the start, its output the chunks that it must end with, both in the order of their ids. For
allgather, reduce-scatter, allreduce, alltoall, gather and scatter this is the layout of MPI, NCCL and MSCCL.

In place, the smaller buffer is a part of the larger: each chunk of the smaller one shares memory with the same chunk of
the larger one (NCCL: allreduce input = output; allgather input = output + rank * n; reduce-scatter output = input +
rank * n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from synth.errors import SynthError
from synth.model.collective import Collective
from synth.program.program import Program


@dataclass(frozen=True)
class Layout:
    """The chunks in each rank's input and output, in their order, for `collective` with `chunks` chunks a unit."""

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
        buffers = [[] for _ in range(self.collective.ranks)]
        for unit, ranks in enumerate(sets):
            for rank in ranks:
                buffers[rank].extend(range(unit * self.chunks, (unit + 1) * self.chunks))
        return tuple(map(tuple, buffers))

    @cached_property
    def overlaps(self) -> tuple[int | None, ...]:
        """`overlaps[rank]`: the offset of the output's first chunk from the input's first, in chunks, in place.

        It is negative if the input lies inside the output (allgather: ``-rank * n``), and 0 if one buffer is empty. It
        is 0 for alltoall, whose output replaces the input, chunk for other chunk. It is None if the call cannot be in
        place: no offset makes exactly the chunks that both buffers hold share memory.
        """
        return tuple(self._overlap(rank) for rank in range(self.collective.ranks))

    def _overlap(self, rank: int) -> int | None:
        inputs, outputs = self.inputs[rank], self.outputs[rank]
        if not inputs or not outputs or self.replaces_input:
            return 0
        # the smaller buffer must lie in the larger one as a whole, in the same order
        small, large = (inputs, outputs) if len(inputs) <= len(outputs) else (outputs, inputs)
        if small[0] not in large:
            return None
        offset = large.index(small[0])
        if large[offset : offset + len(small)] != small:
            return None
        return -offset if small is inputs else offset

    @property
    def replaces_input(self) -> bool:
        """True if the output takes the input's memory in place although they hold other chunks (MPI's alltoall)."""
        return self.collective.name == "alltoall"

    @property
    def can_be_in_place(self) -> bool:
        """True if the collective can be called in place."""
        return None not in self.overlaps

    @property
    def shares_chunks(self) -> bool:
        """True if input and output share in place the chunks that both hold, as NCCL defines it."""
        return self.can_be_in_place and not self.replaces_input


def layout_of(program: Program) -> Layout:
    """Return the layout of the collective of `program`. Raises SynthError if the program does not name one."""
    if program.collective is None:
        raise SynthError(f"{program.name}: the file does not say which collective this is; name it")
    return Layout(program.collective, program.chunks)
