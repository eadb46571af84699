"""Data of a trace: what one rank has, as an immutable value."""

from __future__ import annotations

import operator
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from synth.language.place import error_at
from synth.language.trace import AlgorithmTrace, Segments, fraction, pieces_text


@dataclass(frozen=True, eq=False)
class Data:
    """Pieces of units on a rank. A copy or a sum is a new value; this one never changes.

    A function of the language gets it from `a.input`, `a.held` and from its methods. Fractions are those of this data,
    all pieces one after another: ``data[0 : 1 / 2]`` is its first half.

    Attributes
    ----------
    rank : the rank that has it.
    pieces : ``(unit, lo, hi)`` each.

    Examples
    --------
    >>> from synth.language import algorithm
    >>> @algorithm("allgather")
    ... def one_ring(a):
    ...     for rank in a.ranks:
    ...         data = a.input(rank)
    ...         for k in range(1, a.size):
    ...             data = data.to((rank + k) % a.size)
    >>> one_ring.schedule("ring:4")
    <Schedule of allgather on ring:4: C=1, S=3, R=3, 12 sends>
    """

    rank: int
    segments: Segments = field(repr=False)
    trace: AlgorithmTrace = field(repr=False)

    def __repr__(self) -> str:
        return f"<Data on rank {self.rank}: {pieces_text(self.segments)}>"

    def __bool__(self) -> bool:
        return bool(self.segments)

    @property
    def pieces(self) -> tuple[tuple[int, Fraction, Fraction], ...]:
        """The unit and the bounds of each piece."""
        return tuple(part[:3] for part in self.segments)

    @property
    def contents(self) -> tuple[frozenset[int], ...]:
        """The contributions in each piece of a sum, empty sets where nothing is summed."""
        found = []
        for part in self.segments:
            bits = self.trace.values[part.value].contents
            found.append(frozenset(rank for rank in range(bits.bit_length()) if bits >> rank & 1))
        return tuple(found)

    @property
    def units(self) -> tuple[int, ...]:
        """The units of which it has a piece, ascending."""
        return tuple(sorted({part.unit for part in self.segments}))

    def __getitem__(self, part: slice) -> Data:
        place = self.trace.place()
        if not isinstance(part, slice) or part.step is not None:
            raise error_at(place, "data are cut by fractions, such as data[0 : 1 / 2], or by part(i, n) and unit(u)")
        low = fraction(0 if part.start is None else part.start, place)
        high = fraction(1 if part.stop is None else part.stop, place)
        # Fractions count along all pieces, laid one after another.
        length = self._ends[-1] if self._ends else Fraction(0)
        return self._between(low * length, high * length)

    @cached_property
    def _ends(self) -> list[Fraction]:
        """The end of each piece, where all pieces lie one after another."""
        return list(accumulate(piece.hi - piece.lo for piece in self.segments))

    def _between(self, low: Fraction, high: Fraction) -> Data:
        # Skip the pieces that end before the part, then cut those that it covers.
        ends, found = self._ends, []
        for i in range(bisect_right(ends, low), len(ends)):
            piece = self.segments[i]
            start = ends[i - 1] if i else Fraction(0)
            if start >= high:
                break
            lo, hi = max(low, start), min(high, ends[i])
            if lo < hi:
                found.append(piece._replace(lo=piece.lo + lo - start, hi=piece.lo + hi - start))
        return Data(self.rank, tuple(found), self.trace)

    def part(self, i: int, n: int) -> Data:
        """Return the i-th of n equal parts."""
        place = self.trace.place()
        try:
            number, count = operator.index(i), operator.index(n)
        except TypeError:
            raise error_at(place, f"part({i!r}, {n!r}): both are integers") from None
        if not 0 <= number < count:
            raise error_at(place, f"part({i!r}, {n!r}): parts of n are numbered from 0 to n - 1")
        return self[Fraction(number, count) : Fraction(number + 1, count)]

    def split(self, n: int) -> list[Data]:
        """Return the n equal parts."""
        return [self.part(i, n) for i in range(n)]

    def unit(self, *units: int) -> Data:
        """Return the pieces of these units, in their order here."""
        return Data(self.rank, tuple(part for part in self.segments if part.unit in units), self.trace)

    def join(self, *others: Data) -> Data:
        """Return this and other data of the same rank as one value. The order counts for `part`."""
        segments = list(self.segments)
        for other in others:
            if other.rank != self.rank:
                self.trace.refuse_other_rank(other.segments, other.rank, self.rank)
            segments += other.segments
        return Data(self.rank, tuple(segments), self.trace)

    def to(self, *ranks: int, via: str | None = None) -> Data:
        """Copy to a rank, through others where several are named; return the data there.

        `via`: "shortest" takes a shortest path where there is no link.
        """
        if via not in (None, "shortest"):
            raise error_at(self.trace.place(), f'via={via!r}: only "shortest" is known')
        data = self
        for given in ranks:
            rank = self.trace.rank(given)
            # A path that is looked for has a copy on each rank between.
            hops = [rank] if via is None or rank == data.rank else self.trace.shortest_path(data.rank, rank)
            for hop in hops:
                if hop != data.rank:
                    data = Data(hop, self.trace.copy(data.segments, data.rank, hop), self.trace)
        return data

    def add(self, other: Data) -> Data:
        """Add data of any rank to this, on this rank; return the sum. No contribution may be in both."""
        return Data(self.rank, self.trace.add(self.rank, self.segments, other.rank, other.segments), self.trace)

    def __add__(self, other: object) -> Data:
        raise error_at(self.trace.place(), "`+` is ambiguous: write .add(data) for a sum, .join(data) for both pieces")
