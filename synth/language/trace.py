"""The record of one call of an algorithm: the values that it makes, in order.

    TracedValue    kind rank unit lo hi source base contents place step
             kind: input; copy of `source` to the rank; sum: `source` added to `base`, the value that the rank had
    Segment  unit lo hi value                          a part [lo, hi) of a value

Bounds are exact fractions of a unit. Values are numbered in the order in which they are made.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, NamedTuple

from synth.language.place import SourceLine, SourceLines, error_at
from synth.model.collective import Collective
from synth.model.topology import Network, Topology
from synth.program.send_hints import NO_HINT, SendHint

if TYPE_CHECKING:
    from synth.language.data import Data

# Numerators and denominators of a part of a unit are at most this. A schedule has at least as many chunks.
MAX_CHUNKS = 4096


class Segment(NamedTuple):
    """The part [lo, hi) of a unit, as `value` of a trace has it."""

    unit: int
    lo: Fraction
    hi: Fraction
    value: int

    def __str__(self) -> str:
        part = "" if (self.lo, self.hi) == (0, 1) else f" [{self.lo}:{self.hi}]"
        return f"unit {self.unit}{part}"


Segments = tuple[Segment, ...]


class TracedValue(NamedTuple):
    """Data that a rank gets at `place`; -1 stands for no source, no base and no step of the program's own.

    `contents`: the contributions of a sum, as bits by rank; 0 where nothing is summed. `hint`: how the lowering is to
    send it, if the program says so.
    """

    kind: str
    rank: int
    unit: int
    lo: Fraction
    hi: Fraction
    source: int
    base: int
    contents: int
    place: SourceLine | None
    step: int
    hint: SendHint | None = None


def rank_names(bits: int) -> str:
    """Return the ranks of a bit set as text: ``{0, 2}``."""
    return "{" + ", ".join(str(rank) for rank in range(bits.bit_length()) if bits >> rank & 1) + "}"


class AlgorithmTrace:
    """The values of one call of an algorithm.

    Attributes
    ----------
    ranks, topology : of the call. Without a topology every rank may send to every other. A network that is given
        as the machine is the one of the schedule.
    input_data : of each rank the data that its handle returned, which are made once.
    values : all values, the inputs first.
    merged : numbers of copies that are added where they arrive; the sum takes the value from its source instead.
    steps : for each `with a.step()` block the ranks of its handle; blocks of one handle follow each other.
    """

    def __init__(self, collective: Collective, machine: Topology | Network | None, root: CodeType) -> None:
        self._machine = machine
        self.topology = machine.as_topology() if isinstance(machine, Network) else machine
        self.collective, self.ranks = collective, collective.ranks
        self.values: list[TracedValue] = []
        self.merged: set[int] = set()
        self.steps: list[tuple[int, ...]] = []
        self._places = SourceLines(root)
        self._step = -1
        self._hint: SendHint | None = None
        self._arrived: dict[int, list[Segment]] = {}
        self._sent: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._counted = 0
        self._inputs: dict[int, list[Segment]] = {}
        self._begun = False
        self.input_data: dict[int, Data] = {}

    @cached_property
    def network(self) -> Network | None:
        """The machine's routes. None without a machine."""
        if self._machine is None:
            return None
        return self._machine if isinstance(self._machine, Network) else self._machine.network()

    @cached_property
    def _linked(self) -> Counter[tuple[int, int]]:
        """The units of bandwidth between the pairs of ranks that have links."""
        units = Counter[tuple[int, int]]()
        for route in () if self.network is None else self.network.routes:
            units[route.src, route.dst] += route.units
        return units

    def begin(self) -> None:
        """Record the inputs, once: before the first other value."""
        if self._begun:
            return
        self._begun = True
        # Of a sum each rank has contributed its own input so far.
        for unit, ranks in enumerate(self.collective.pre):
            for rank in sorted(ranks):
                bits = 1 << rank if self.collective.combining else 0
                whole = Fraction(0), Fraction(1)
                segment = self._append(TracedValue("input", rank, unit, *whole, -1, -1, bits, None, -1))
                self._inputs.setdefault(rank, []).append(segment)

    def place(self) -> SourceLine:
        """Return the place of the call that is being traced."""
        return self._places.current()

    def input(self, rank: int) -> Segments:
        """Return what the rank holds before the collective."""
        self.begin()
        return tuple(self._inputs.get(self.rank(rank), ()))

    def newest(self, rank: int) -> Segments:
        """Return the newest data on a rank, unit by unit."""
        self.begin()
        rank = self.rank(rank)
        # What arrived later covers what was there.
        newest: list[Segment] = []
        for segment in self._arrived.get(rank, ()):
            older, newest = newest, [segment]
            for old in older:
                newest += _outside(old, segment)
        return tuple(sorted(newest))

    def rank(self, rank: object) -> int:
        """Return a rank as Python's integer. Raises UsageError unless it is a rank of the collective."""
        try:
            number = operator.index(rank)  # type: ignore
        except TypeError:
            number = -1
        if not 0 <= number < self.ranks:
            raise error_at(self.place(), f"{rank!r} is no rank; there are 0 to {self.ranks - 1}")
        return number

    def copy(self, segments: Segments, src: int, dst: int) -> Segments:
        """Record copies of the segments of rank `src` to rank `dst`."""
        place = self.place()
        self._check_link(src, dst, place)
        copies = []
        for part in segments:
            bits = self.values[part.value].contents
            value = TracedValue("copy", dst, *part[:3], part.value, -1, bits, place, self._step, self._hint)
            copies.append(self._append(value))
        return tuple(copies)

    def _check_link(self, src: int, dst: int, place: SourceLine) -> None:
        """Raise UsageError with a way over two hops where there is no link."""
        if self.topology is None or (src, dst) in self._linked:
            return
        message = f"{self.topology.name} has no link {src} -> {dst}"
        between = [rank for rank in range(self.ranks) if {(src, rank), (rank, dst)} <= self._linked.keys()]
        if between and place.users:
            message += f'; two hops: {src}-{between[0]}-{dst}: write .to({between[0]}, {dst}) or via="shortest"'
        raise error_at(place, message)

    def add(self, rank: int, held: Segments, src: int, added: Segments) -> Segments:
        """Record sums on `rank` of the segments that it holds and those of rank `src`, which cover the same pieces."""
        place = self.place()
        if not self.collective.combining:
            raise error_at(place, f"{self.collective.name} sums nothing; data are copied with .to(rank)")
        if src != rank:
            self._check_link(src, rank, place)
        sums = []
        for base, source in _refined(held, added, place):
            sums.append(self._sum(rank, base, source, src, place))
        return tuple(sums)

    def _sum(self, rank: int, base: Segment, source: Segment, src: int, place: SourceLine) -> Segment:
        one, other = self.values[base.value], self.values[source.value]
        hint: SendHint | None = None
        # A contribution that both have would be counted twice, and cannot be taken out again.
        twice = one.contents & other.contents
        if twice:
            first = (twice & -twice).bit_length() - 1
            made = f" ({one.place})" if one.place else ""
            theirs = f" ({other.place})" if other.place else ""
            raise error_at(
                place,
                f"rank {rank} would count rank {first} twice in {base}: it holds {rank_names(one.contents)}{made}, "
                f"what comes from rank {src} is {rank_names(other.contents)}{theirs}",
            )
        # A schedule adds only what arrives: of two values here one is the input, or a copy that is added on arrival.
        if src == rank and other.kind != "input":
            if one.kind == "input":
                base, source = source, base  # its input is added to the other one, which stays where it is
            elif "copy" in (one.kind, other.kind):
                if other.kind != "copy":
                    base, source = source, base
                self.merged.add(source.value)  # the rank adds it as it comes, and needs no copy
                hint = self.values[source.value].hint
                source = source._replace(value=self.values[source.value].source)
            else:
                raise error_at(
                    place,
                    f"rank {rank} adds two sums of its own, of {one.place} and {other.place}; a rank holds one sum of "
                    "a chunk: add what comes from others as it comes",
                )
        bits, hint = one.contents | other.contents, self._hint or hint
        value = TracedValue("sum", rank, *base[:3], source.value, base.value, bits, place, self._step, hint)
        return self._append(value)

    def _append(self, value: TracedValue) -> Segment:
        segment = Segment(value.unit, value.lo, value.hi, len(self.values))
        self.values.append(value)
        self._arrived.setdefault(value.rank, []).append(segment)
        return segment

    def shortest_path(self, src: int, dst: int) -> list[int]:
        """Return the ranks after `src` on a shortest path to `dst`: of several over the least loaded links.

        Raises UsageError where there is none.
        """
        if self.network is None or (src, dst) in self._linked:
            return [dst]
        distance = self.network.reversed().distances_from([dst])
        if distance[src] is None:
            raise error_at(self.place(), f"{self.network.name} has no path from rank {src} to rank {dst}")

        # What each link has sent so far, by its bandwidth.
        for value in self.values[self._counted :]:
            if value.source >= 0:
                self._sent[self.values[value.source].rank, value.rank] += float(value.hi - value.lo)
        self._counted = len(self.values)
        path, at = [], src
        while at != dst:
            remaining = (distance[at] or 0) - 1
            nearer = [rank for last, rank in self._linked if last == at and distance[rank] == remaining]
            at = min(nearer, key=lambda rank, last=at: (self._sent[last, rank] / self._linked[last, rank], rank))
            path.append(at)
        return path

    def refuse_other_rank(self, segments: Segments, rank: int, used_as: int) -> None:
        """Raise UsageError: data of `rank` are used as those of another rank. Names the line of a copy to that one."""
        known = {part.value for part in segments}
        for value in self.values:
            if value.source in known and value.rank == used_as:
                hint = f"it came there at {value.place}; copies return the new data: data = data.to({used_as})"
                break
        else:
            hint = f"it never came there; write data = data.to({used_as})"
        raise error_at(self.place(), f"data of rank {rank} used as rank {used_as}'s: {hint}")

    @contextmanager
    def hints(self, hint: SendHint) -> Iterator[None]:
        """Let operations inside carry a hint, whose fields count before those of a hint around it."""
        outer = self._hint
        # The inner hint counts first, field by field.
        fields = {name: value for name, value in hint._asdict().items() if value is not None}
        self._hint = (outer or NO_HINT)._replace(**fields)
        try:
            yield
        finally:
            self._hint = outer

    @contextmanager
    def step(self, ranks: tuple[int, ...]) -> Iterator[None]:
        """Record that the operations inside are one synchronous step of a handle of `ranks`."""
        if self._step >= 0:
            raise error_at(self.place(), "a step inside a step; end the outer one first")
        self._step = len(self.steps)
        self.steps.append(ranks)
        try:
            yield
        finally:
            self._step = -1


def _outside(old: Segment, new: Segment) -> list[Segment]:
    """Return the parts of `old` that `new` does not cover."""
    if old.unit != new.unit or old.hi <= new.lo or new.hi <= old.lo:
        return [old]
    parts = [old._replace(hi=new.lo), old._replace(lo=new.hi)]
    return [part for part in parts if part.lo < part.hi]


def _refined(held: Segments, added: Segments, place: SourceLine) -> Iterator[tuple[Segment, Segment]]:
    """Yield the segments of both sides by common pieces. Raises UsageError where they cover different ones."""
    # Walk along both sides at once, and cut at every end of either.
    mine, theirs = sorted(held), sorted(added)
    i = j = 0
    while i < len(mine) and j < len(theirs):
        one, other = mine[i], theirs[j]
        if (one.unit, one.lo) != (other.unit, other.lo):
            break
        end = min(one.hi, other.hi)
        yield one._replace(hi=end), other._replace(hi=end)
        if one.hi == end:
            i += 1
        else:
            mine[i] = one._replace(lo=end)
        if other.hi == end:
            j += 1
        else:
            theirs[j] = other._replace(lo=end)
    if i < len(mine) or j < len(theirs):
        raise error_at(place, f"add of {pieces_text(added)} to {pieces_text(held)}: the same pieces are needed")


def pieces_text(segments: Segments) -> str:
    """Return the pieces of data as text, neighbours joined: ``[0:1/3] of unit 0``."""
    # Neighbours in one unit read as one piece.
    joined: list[tuple[int, Fraction, Fraction]] = []
    for unit, lo, hi, _ in sorted(segments):
        if joined and joined[-1][0] == unit and joined[-1][2] == lo:
            joined[-1] = (unit, joined[-1][1], hi)
        else:
            joined.append((unit, lo, hi))
    parts = [f"[{lo}:{hi}] of unit {unit}" for unit, lo, hi in joined[:4]]
    return ", ".join(parts) + (f" and {len(joined) - 4} more" if len(joined) > 4 else "") or "nothing"


def fraction(number: object, place: SourceLine) -> Fraction:
    """Return a number between 0 and 1 as an exact fraction of data. Raises UsageError."""
    try:
        exact = Fraction(number)  # type: ignore
    except (TypeError, ValueError, OverflowError):
        raise error_at(place, f"{number!r} is no fraction of data") from None
    if exact.denominator > MAX_CHUNKS:
        hint = "write Fraction(1, 3) for a third, or part(i, 3)" if isinstance(number, float) else "use greater parts"
        raise error_at(place, f"{number!r} would cut a unit into more than {MAX_CHUNKS} chunks; {hint}")
    if not 0 <= exact <= 1:
        raise error_at(place, f"{number!r} is no fraction of data: those are between 0 and 1")
    return exact
