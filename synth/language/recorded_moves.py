"""Copies and sums of chunks that a file describes, and the schedule that they make.

Other programs time their messages in epochs, thread blocks or trees. Here the data alone decide: a chunk is sent in the
earliest step or a later one with as few rounds, as the compiler of the chunk language chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from synth.errors import FormatError, UsageError, VerificationError
from synth.language.algorithm import Compiled, compiled
from synth.language.place import SourceLine
from synth.language.trace import AlgorithmTrace, TracedValue, rank_names
from synth.model.collective import Collective
from synth.model.topology import Link, Topology

# The most copies and sums of a file that are made into a schedule.
MAX_MOVES = 1 << 18
# The most ranks of a file.
MAX_RANKS = 1024


class ChunkValue(NamedTuple):
    """A chunk somewhere: the number of the value that holds it, and the chunk."""

    value: int
    chunk: int


@dataclass(frozen=True)
class NamedPlace(SourceLine):
    """A place in a file that has a name instead of a line."""

    name: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


class RecordedMoves:
    """Copies and sums of chunks, recorded in an order in which they can happen.

    Attributes
    ----------
    task, chunks : the collective and C.
    machine : the links that moves may use. None: every pair of ranks that is used becomes a link of 1 GB/s.
    file : its name in errors.
    """

    def __init__(self, task: Collective, chunks: int, machine: Topology | None, file: str) -> None:
        if machine is not None and machine.ranks != task.ranks:
            raise UsageError(f"{file} is for {task.ranks} ranks; {machine.name} has {machine.ranks}")
        self.task, self.chunks, self.machine, self.file = task, chunks, machine, file
        self._trace = AlgorithmTrace(task, None, RecordedMoves.__init__.__code__)
        self._trace.begin()
        inputs = enumerate(self._trace.values)
        self._inputs = {(value.unit, value.rank): number for number, value in inputs}
        self._moves = 0
        self._links: dict[tuple[int, int], None] = {}
        self._linked = set()
        if machine is not None:
            self._linked = {(route.src, route.dst) for route in machine.network().routes}

    def input(self, chunk: int, rank: int) -> ChunkValue:
        """Return a chunk that `rank` has before the collective."""
        return ChunkValue(self._inputs[chunk // self.chunks, rank], chunk)

    def rank_of(self, cell: ChunkValue) -> int:
        """Return the rank that has the chunk."""
        return self._trace.values[cell.value].rank

    def contents(self, cell: ChunkValue) -> int:
        """Return the contributions of a sum, as bits by rank; 0 where nothing is summed."""
        return self._trace.values[cell.value].contents

    def copy(self, cell: ChunkValue, dst: int, place: SourceLine) -> ChunkValue:
        """Record a copy to `dst`. Raises UsageError where the machine has no link."""
        return self._append("copy", dst, cell, -1, self.contents(cell), place)

    def add(self, held: ChunkValue, added: ChunkValue, place: SourceLine) -> ChunkValue:
        """Record the sum of two values of one chunk on the rank of `held`.

        `added` may be of another rank: the move is then a send that adds. A sum on this rank is added part by part, and
        a part that came from another rank becomes such a send, because a schedule adds when it sends. Raises
        VerificationError where a contribution is in both, or the chunks differ.
        """
        rank = self.rank_of(held)
        if held.chunk != added.chunk or not self.task.combining:
            raise VerificationError(f"rank {rank} adds chunk {added.chunk} to chunk {held.chunk}", str(place))
        twice = self.contents(held) & self.contents(added)
        if twice:
            raise VerificationError(f"rank {rank} counts {rank_names(twice)} twice in chunk {held.chunk}", str(place))
        if self.rank_of(added) != rank:
            return self._sum(held, added, place)

        # Both are here. The one that is a sum stays; the other's parts are added, those of other ranks as they come.
        values = self._trace.values
        if values[added.value].kind == "sum" and values[held.value].kind != "sum":
            held, added = added, held
        parts = []
        value = added.value
        while values[value].kind == "sum":
            parts.append(values[value].source)
            value = values[value].base
        parts.append(values[value].source if values[value].kind == "copy" else value)
        for part in reversed(parts):
            held = self._sum(held, ChunkValue(part, added.chunk), place)
        return held

    def compiled(self) -> Compiled:
        """Return the schedule of the recorded moves, which was replayed, with their places.

        Raises VerificationError where outputs are missing, UsageError where a rank would need two sums at once.
        """
        machine = self.machine
        if machine is None:
            # The links that the moves used are the machine, all alike.
            links = [Link(src, dst, 1) for src, dst in sorted(self._links)]
            machine = Topology("links of the file", self.task.ranks, links)
        self._trace.topology, self._trace.network = machine, machine.network()
        return compiled(self._trace, "asap", self.chunks, self.file)

    def _sum(self, held: ChunkValue, added: ChunkValue, place: SourceLine) -> ChunkValue:
        bits = self.contents(held) | self.contents(added)
        return self._append("sum", self.rank_of(held), added, held.value, bits, place)

    def _append(self, kind: str, rank: int, source: ChunkValue, base: int, bits: int, place: SourceLine) -> ChunkValue:
        """Record a move to `rank`, whose link must be there where the machine is known."""
        pair = self.rank_of(source), rank
        if pair[0] != rank:
            if self.machine is not None and pair not in self._linked:
                raise UsageError(f"{place}: {self.machine.name} has no link {pair[0]} -> {rank}")
            self._links[pair] = None
        self._moves += 1
        if self._moves > MAX_MOVES:
            raise FormatError(f"moves more than {MAX_MOVES} chunks", self.file)
        # A chunk is a part of a unit in the trace.
        unit, part = divmod(source.chunk, self.chunks)
        low, high = Fraction(part, self.chunks), Fraction(part + 1, self.chunks)
        values = self._trace.values
        values.append(TracedValue(kind, rank, unit, low, high, source.value, base, bits, place, -1))
        return ChunkValue(len(values) - 1, source.chunk)
