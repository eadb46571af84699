"""Which algorithm of a plan a runtime gets for which sizes: disjoint, as the plan orders them, and what of it is lost.

    Offer    low high step            the sizes that an algorithm may serve on a runtime
    Share    low high choice          what serves these sizes there; None: nothing of the plan's
    Shares   table shares offers refused

At a size that the plan judged, the first algorithm in its order that the runtime takes and whose chunks divide the
size. Between judged sizes, the first that divides one of those judged in the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from synth.export.notes import span
from synth.plan import Plan, Range, Table


class Offer(NamedTuple):
    """`low` <= size <= `high` bytes (None: no end), in multiples of `step` bytes."""

    low: int
    high: int | None
    step: int

    def covers(self, size: int) -> bool:
        """Is `size` within the ends?"""
        return self.low <= size and (self.high is None or size <= self.high)

    def admits(self, size: int) -> bool:
        """May a call of `size` bytes be served?"""
        return self.covers(size) and size % self.step == 0


class Share(NamedTuple):
    """`low` <= size <= `high` bytes are served by algorithm number `choice` of the plan."""

    low: int
    high: int | None
    choice: int | None


@dataclass(frozen=True)
class Shares:
    """The shares of one table: they meet where its ranges do, without a gap. `refused`: why algorithms are not offered."""

    table: Table
    shares: tuple[Share, ...]
    offers: Mapping[int, Offer]
    refused: Mapping[int, str]


def shares(table: Table, offers: Mapping[int, Offer], refused: Mapping[int, str]) -> Shares:
    """Who serves what of `table`, from what its runtime takes."""
    found: list[Share] = []
    for row in table.ranges:
        for share in _within(row, judged(table, row), offers):
            if found and found[-1].choice == share.choice:
                found[-1] = Share(found[-1].low, share.high, share.choice)
            else:
                found.append(share)
    return Shares(table, tuple(found), offers, refused)


def judged(table: Table, row: Range | Share) -> list[int]:
    """The sizes between the ends of `row` that the plan judged."""
    return [s for s in table.sizes if row.low <= s and (row.high is None or s <= row.high)]


def _useful(row: Range, sizes: list[int], offers: Mapping[int, Offer]) -> list[int]:
    """Those that the runtime takes and whose chunks divide some judged size of `row`, as the plan orders them."""
    return [i for i in row.order if i in offers and (not sizes or any(s % offers[i].step == 0 for s in sizes))]


def _within(row: Range, sizes: list[int], offers: Mapping[int, Offer]) -> list[Share]:
    able = _useful(row, sizes, offers)
    marks = {row.low, *sizes, *(s + 1 for s in sizes), *(offers[i].low for i in able)}
    marks |= {high + 1 for i in able if (high := offers[i].high) is not None}
    starts = sorted(m for m in marks if row.low <= m and (row.high is None or m <= row.high))
    found = []
    for low, after in zip(starts, [*starts[1:], None], strict=True):
        covering = [i for i in able if offers[i].covers(low)]
        dividing = [i for i in covering if low not in sizes or offers[i].admits(low)]
        found.append(Share(low, row.high if after is None else after - 1, next(iter(dividing or covering), None)))
    return found


def fewest(tables: list[Shares], files: Callable[[Share], int], most: int, why: str) -> list[Shares]:
    """At most `most` `files` for the shares of all tables: the algorithm with the shortest share goes (`why`), until they fit."""
    tables = list(tables)
    while True:
        served = [(place, s) for place, found in enumerate(tables) for s in found.shares if files(s)]
        if sum(files(s) for _, s in served) <= most:
            return tables
        place, share = min(served, key=lambda item: (_length(item[1]), item[0]))
        old, gone = tables[place], share.choice
        if gone is not None:
            left = {i: offer for i, offer in old.offers.items() if i != gone}
            tables[place] = shares(old.table, left, {**old.refused, gone: why})


def _length(share: Share) -> Fraction:
    """How many times greater the end is than the start; without an end, as if it were 1024 times."""
    high = share.low * 1024 + 1024 if share.high is None else share.high
    return Fraction(high + 1, share.low + 1)


def lost(plan: Plan, found: Shares, otherwise: str) -> list[str]:
    """One line for each range that does not get what the plan orders first, and for each judged size that is not served.

    `otherwise`: what runs where nothing of the plan does.
    """
    table, said = found.table, []
    name = f"{table.collective} on {table.ranks} ranks"
    for row in table.ranges:
        sizes, offers, where = judged(table, row), found.offers, span(row.low, row.high)
        here = [s for s in found.shares if (row.high is None or s.low <= row.high) and (s.high is None or s.high >= row.low)]
        instead = ", ".join(dict.fromkeys(otherwise if s.choice is None else plan.algorithms[s.choice].label for s in here))
        useful = _useful(row, sizes, offers)
        for i in row.order:
            if i in useful and _whole(row, offers[i]):
                break  # what comes after it is first nowhere in this range
            if i in found.refused:
                said.append(f"{name}, {where}: {plan.algorithms[i].label} is preferred, but {found.refused[i]}; instead {instead}")
            elif i in useful:
                ends = span(offers[i].low, offers[i].high)
                said.append(f"{name}, {where}: {plan.algorithms[i].label} is offered for {ends} only, where it is proved right")
        steps = sorted({offers[i].step for i in row.order if i in offers})
        missed = [s for s in sizes if not _admitted(found, s)]
        if missed and steps:
            said.append(f"{name}: {_sizes(missed)} (multiples of {' or '.join(map(str, steps))} bytes are): {otherwise}")
    return said


def _whole(row: Range, offer: Offer) -> bool:
    return offer.covers(row.low) and (offer.high is None or (row.high is not None and row.high <= offer.high))


def _admitted(found: Shares, size: int) -> bool:
    return any(s.choice is not None and s.low <= size and (s.high is None or size <= s.high) and found.offers[s.choice].admits(size)
               for s in found.shares)  # fmt: skip


def _sizes(missed: list[int]) -> str:
    shown = ", ".join(map(str, missed[:4])) + (f" and {len(missed) - 4} more" if len(missed) > 4 else "")
    return f"{shown} bytes {'is' if len(missed) == 1 else 'are'} not served"
