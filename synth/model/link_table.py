"""The links of a very large topology as columns: a sequence like the tuples that smaller ones have.

    LinkTable  src dst sort sorts         link i goes from src[i] to dst[i] and is of sorts[sort[i]]

A million links are made in milliseconds and take 24 bytes each. What wants them one by one gets Links; what works on
all at once asks `ends` and `widths`, which take tuples as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any, NamedTuple, overload

import numpy as np

from synth.model.topology import Limit, Link


class Sort(NamedTuple):
    """A class of alike links: bandwidth in GB/s, latency in µs, kind."""

    bandwidth: Fraction
    latency: Fraction
    kind: str


def _numbered(sorts: Sequence[Sort], numbers: dict[Sort, int]) -> np.ndarray:
    """The number of each sort in `numbers`, to which new ones are added; [0] where there is none."""
    return np.array([numbers.setdefault(sort, len(numbers)) for sort in sorts] or [0], np.int64)


class LinkTable(Sequence[Link]):
    """Links by column: `src`, `dst` and `sort` are int64 arrays of one length, `sort` an index into `sorts`.

    Read-only, and equal to a tuple of the same links.
    """

    def __init__(self, src: np.ndarray, dst: np.ndarray, sort: np.ndarray, sorts: Sequence[Sort]) -> None:
        self.src, self.dst, self.sort, self.sorts = src, dst, sort, tuple(sorts)
        self._made: tuple[Link, ...] | None = None

    @staticmethod
    def of(links: Sequence[Link]) -> LinkTable:
        """Return the same links by column."""
        sorts: dict[Sort, int] = {}
        sort = np.array([sorts.setdefault(Sort(k.bandwidth, k.latency, k.kind), len(sorts)) for k in links], np.int64)
        return LinkTable(*ends(links), sort, list(sorts))

    def __len__(self) -> int:
        return len(self.src)

    @overload
    def __getitem__(self, at: int) -> Link: ...
    @overload
    def __getitem__(self, at: slice) -> LinkTable: ...
    def __getitem__(self, at: int | slice) -> Link | LinkTable:
        if isinstance(at, slice):
            return LinkTable(self.src[at], self.dst[at], self.sort[at], self.sorts)
        if self._made is not None:
            return self._made[at]
        return Link(int(self.src[at]), int(self.dst[at]), *self.sorts[self.sort[at]])

    def __iter__(self) -> Iterator[Link]:
        if self._made is None:  # A caller that iterates once does so again.
            sorts = self.sorts
            rows = zip(self.src.tolist(), self.dst.tolist(), self.sort.tolist(), strict=True)
            self._made = tuple(Link(a, b, *sorts[s]) for a, b, s in rows)
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LinkTable):
            same = len(self) == len(other) and (self.src == other.src).all() and (self.dst == other.dst).all()
            numbers: dict[Sort, int] = {}
            own, its = _numbered(self.sorts, numbers), _numbered(other.sorts, numbers)
            return bool(same and (own[self.sort] == its[other.sort]).all())
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} links>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def columns(self) -> tuple[list[int], list[int], Iterable[Fraction]]:
        """Sources, destinations and bandwidths of all links, in their order."""
        each = [s.bandwidth for s in self.sorts]
        return self.src.tolist(), self.dst.tolist(), map(each.__getitem__, self.sort.tolist())

    def bandwidths(self) -> list[Fraction]:
        """Every bandwidth that a link has."""
        return [self.sorts[s].bandwidth for s in np.flatnonzero(np.bincount(self.sort)).tolist()]


def ends(links: Sequence[Link]) -> tuple[np.ndarray, np.ndarray]:
    """Return the source and the destination of each link, as read-only int64 arrays."""
    if isinstance(links, LinkTable):
        return links.src, links.dst
    src, dst = (np.fromiter(map(attrgetter(name), links), np.int64, len(links)) for name in ("src", "dst"))
    return src, dst


def widths(items: Sequence[Link] | Sequence[Limit]) -> tuple[list[Fraction], np.ndarray]:
    """Return the distinct bandwidths in the order of first appearance, and for each item the index of its bandwidth."""
    if isinstance(items, LinkTable):
        objects, index = [sort.bandwidth for sort in items.sorts], items.sort
    else:  # many items share few objects, and an id is hashed sooner than a Fraction
        shared = {id(item.bandwidth): item.bandwidth for item in items}
        objects, place = list(shared.values()), {key: i for i, key in enumerate(shared)}
        index = np.array([place[id(item.bandwidth)] for item in items], np.int64)

    # Equal bandwidths may be several objects; each gets the number of its first appearance.
    used, first = np.unique(index, return_index=True)
    numbers: dict[Fraction, int] = {}
    number = np.zeros(len(objects), np.int64)
    for i in used[np.argsort(first)].tolist():
        number[i] = numbers.setdefault(objects[i], len(numbers))
    return list(numbers), number[index]


def members(limits: Sequence[Limit]) -> list[np.ndarray]:
    """Return the indices of each limit's links, as int64 arrays."""
    return [np.asarray(limit.links, np.int64) for limit in limits]
