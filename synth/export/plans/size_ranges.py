"""Disjoint ranges of sizes for the algorithms of a plan on one runtime, in the plan's order.

    Offer       low high step         the sizes that an algorithm may serve on a runtime
    SizeShare   low high choice       the algorithm that serves these sizes; None: none of the plan's
    SizeShares  table shares offers refused

A size that the plan judged is served by the first algorithm in its order that the runtime takes and whose chunks divide
the size. Sizes between judged ones are served by the first algorithm that divides a judged size of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from synth.model.tuning_plan import Plan, Range, Table


def within(size: int, row: Offer | SizeShare | Range) -> bool:
    """Return True if `row.low` <= `size` <= `row.high`."""
    return row.low <= size and (row.high is None or size <= row.high)


class Offer(NamedTuple):
    """The sizes of calls that a runtime can serve with an algorithm: from `low` to `high` bytes (None: no end), in
    multiples of `step` bytes."""

    low: int
    high: int | None
    step: int

    def admits(self, size: int) -> bool:
        """True if a call of `size` bytes may be served: `size` is in the range and a multiple of `step`."""
        return within(size, self) and size % self.step == 0


class SizeShare(NamedTuple):
    """The range `low` <= size <= `high` bytes, served by algorithm number `choice` of the plan."""

    low: int
    high: int | None
    choice: int | None


@dataclass(frozen=True)
class SizeShares:
    """The shares of one table, which cover its ranges without a gap.

    `offers` and `refused` are keyed by the number of an algorithm. `offers`: the sizes that the runtime can serve with
    it. `refused`: the reason why it is not offered.
    """

    table: Table
    shares: tuple[SizeShare, ...]
    offers: Mapping[int, Offer]
    refused: Mapping[int, str]

    def at(self, size: int) -> SizeShare | None:
        """Return the share whose range contains `size` bytes; None if the table has no such range."""
        return next((share for share in self.shares if within(size, share)), None)

    def runs(self, size: int) -> int | None:
        """Return the number of the algorithm that serves a call of `size` bytes; None: none of the plan's."""
        share = self.at(size)
        if share is None or share.choice is None or not self.offers[share.choice].admits(size):
            return None
        return share.choice


def shares(table: Table, offers: Mapping[int, Offer], refused: Mapping[int, str]) -> SizeShares:
    """Return the shares of `table`, given the offers and refusals of a runtime by algorithm number."""
    found = []
    for row in table.ranges:
        sizes = judged_sizes(table, row)
        useful = []
        for i in row.order:
            if i in offers and (not sizes or any(size % offers[i].step == 0 for size in sizes)):
                useful.append(i)

        # The choice can change at a judged size, after it, and at the ends of what an algorithm may serve.
        marks = {row.low, *sizes}
        marks.update(size + 1 for size in sizes)
        marks.update(offers[i].low for i in useful)
        marks |= {high + 1 for i in useful if (high := offers[i].high) is not None}
        starts = sorted(mark for mark in marks if within(mark, row))
        for low, after in zip(starts, [*starts[1:], None], strict=True):
            # At a judged size the chunks must divide it; between such sizes nothing is known.
            covering = [i for i in useful if within(low, offers[i])]
            dividing = [i for i in covering if low not in sizes or offers[i].admits(low)]
            share = SizeShare(low, row.high if after is None else after - 1, next(iter(dividing or covering), None))
            if found and found[-1].choice == share.choice:
                share = share._replace(low=found.pop().low)
            found.append(share)
    return SizeShares(table, tuple(found), offers, refused)


def judged_sizes(table: Table, row: Range | SizeShare) -> list[int]:
    """Return the sizes between the ends of `row` that the plan judged."""
    return [size for size in table.sizes if within(size, row)]


def drop_to_fit(tables: list[SizeShares], files: Callable[[SizeShare], int], most: int, why: str) -> list[SizeShares]:
    """Return the tables with at most `most` files for all shares; `files(share)`: the number of files of a share.

    Until they fit, the algorithm without which the least time is lost is refused with the reason `why`; of equals, the
    one of the largest sizes.
    """
    tables = list(tables)

    def without(place: int, share: SizeShare) -> SizeShares:
        """Return the table at `place` without the algorithm of `share`."""
        found, choice = tables[place], share.choice
        assert choice is not None  # it has files
        left = {i: offer for i, offer in found.offers.items() if i != choice}
        return shares(found.table, left, {**found.refused, choice: why})

    while True:
        # Drop what costs the least time, until the files are few enough.
        served = [(place, s) for place, found in enumerate(tables) for s in found.shares if files(s)]
        if sum(files(s) for _, s in served) <= most:
            return tables
        place, share = min(served, key=lambda item: (_loss(without(*item)) - _loss(tables[item[0]]), -item[1].low))
        tables[place] = without(place, share)


def _loss(found: SizeShares) -> float:
    """Return the sum, over the judged sizes, of the logarithm of the time that runs over that of the best candidate."""
    total = 0.0
    for size, times, best in zip(found.table.sizes, found.table.times, found.table.best, strict=False):
        row, share = found.table.at(size), found.at(size)
        if row is not None and share is not None and best is not None:
            known = dict(zip(row.order, times, strict=True))
            time = None if share.choice is None else known[share.choice]
            total += log((time or max(filter(None, times))) / best)
    return total


def unserved(plan: Plan, found: SizeShares, otherwise: str) -> list[str]:
    """Return a line on each algorithm that the runtime does not take, and one on the judged sizes that none serves.

    `otherwise`: what runs at sizes that no algorithm of the plan serves.
    """
    table = found.table
    name = f"{table.collective} on {table.ranks} ranks"
    said = [f"{name}: {plan.algorithms[i].label}: {reason}" for i, reason in found.refused.items()]
    missed = [size for size in table.sizes if found.runs(size) is None]
    if missed:
        shown = ", ".join(map(str, missed[:4])) + (f" and {len(missed) - 4} more" if len(missed) > 4 else "")
        steps = sorted({offer.step for offer in found.offers.values()})
        multiples = f" (multiples of {' or '.join(map(str, steps[:3]))} bytes are)" if steps else ""
        said.append(f"{name}: {shown} bytes {'is' if len(missed) == 1 else 'are'} not served{multiples}: {otherwise}")
    return said


def covers_range(row: Range, offer: Offer) -> bool:
    """Return True if the sizes of `offer` begin and end no nearer than those of `row`."""
    return within(row.low, offer) and (offer.high is None or (row.high is not None and row.high <= offer.high))
