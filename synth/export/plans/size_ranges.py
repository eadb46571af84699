"""Disjoint ranges of sizes for the algorithms of a plan on one runtime, in the plan's order, and the resulting losses.

    Offer       low high step         the sizes that an algorithm may serve on a runtime
    SizeShare   low high choice       the algorithm that serves these sizes; None: none of the plan's
    SizeShares  table shares offers refused

A size that the plan judged is served by the first algorithm in its order that the runtime takes and whose chunks divide
the size. Sizes between judged ones are served by the first algorithm that divides a judged size of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import log
from typing import NamedTuple

from synth.export.folder_notes import span
from synth.model.served_sizes import SizeSpan
from synth.model.tuning_plan import OURS, Plan, Range, Table


class Offer(NamedTuple):
    """`low` <= size <= `high` bytes (None: no end), in multiples of `step` bytes."""

    low: int
    high: int | None
    step: int

    def covers(self, size: int) -> bool:
        """True if `low` <= `size` <= `high`."""
        return self.low <= size and (self.high is None or size <= self.high)

    def admits(self, size: int) -> bool:
        """True if a call of `size` bytes may be served: `size` is in the range and a multiple of `step`."""
        return self.covers(size) and size % self.step == 0


class SizeShare(NamedTuple):
    """The range `low` <= size <= `high` bytes, served by algorithm number `choice` of the plan."""

    low: int
    high: int | None
    choice: int | None


@dataclass(frozen=True)
class SizeShares:
    """The shares of one table, which cover its ranges without a gap.

    `offers`, `refused` and `dropped` are keyed by the number of an algorithm. `offers`: the sizes that the runtime can
    serve with it. `refused`: the reason why it is not offered. `dropped`: the offers of refused algorithms that the
    runtime takes alone but not beside the others (its number of files is limited).
    """

    table: Table
    shares: tuple[SizeShare, ...]
    offers: Mapping[int, Offer]
    refused: Mapping[int, str]
    dropped: Mapping[int, Offer] = field(default_factory=dict)

    def at(self, size: int) -> SizeShare | None:
        """Return the share whose range contains `size` bytes; None if the table has no such range."""
        return next((s for s in self.shares if s.low <= size and (s.high is None or size <= s.high)), None)


def shares(table: Table, offers: Mapping[int, Offer], refused: Mapping[int, str]) -> SizeShares:
    """Return the shares of `table`, given the offers and refusals of a runtime by algorithm number."""
    found: list[SizeShare] = []
    for row in table.ranges:
        for share in _within(row, judged_sizes(table, row), offers):
            if found and found[-1].choice == share.choice:
                found[-1] = SizeShare(found[-1].low, share.high, share.choice)
            else:
                found.append(share)
    return SizeShares(table, tuple(found), offers, refused)


def judged_sizes(table: Table, row: Range | SizeShare) -> list[int]:
    """Return the sizes between the ends of `row` that the plan judged."""
    return [s for s in table.sizes if row.low <= s and (row.high is None or s <= row.high)]


def _useful(row: Range, sizes: list[int], offers: Mapping[int, Offer]) -> list[int]:
    """Return the algorithms that the runtime takes and whose chunks divide a judged size of `row`, in its order."""
    useful = []
    for i in row.order:
        if i in offers and (not sizes or any(size % offers[i].step == 0 for size in sizes)):
            useful.append(i)
    return useful


def _within(row: Range, sizes: list[int], offers: Mapping[int, Offer]) -> list[SizeShare]:
    """Return the shares of one range, from one change of the choice to the next."""
    useful = _useful(row, sizes, offers)
    marks = {row.low, *sizes}
    marks.update(size + 1 for size in sizes)
    marks.update(offers[i].low for i in useful)
    marks |= {high + 1 for i in useful if (high := offers[i].high) is not None}
    starts = sorted(m for m in marks if row.low <= m and (row.high is None or m <= row.high))
    parts = []
    for low, after in zip(starts, [*starts[1:], None], strict=True):
        covering = [i for i in useful if offers[i].covers(low)]
        dividing = [i for i in covering if low not in sizes or offers[i].admits(low)]
        parts.append(SizeShare(low, row.high if after is None else after - 1, next(iter(dividing or covering), None)))
    return parts


class ServedSize(NamedTuple):
    """The algorithm that runs at a judged `size`, with times in seconds (None: not known).

    `choice`: its number, None for no algorithm of the plan. `seconds`: its time. `schedule`: the time of the best
    schedule that the runtime takes. `best`: the time of the best of all candidates.
    """

    size: int
    choice: int | None
    seconds: float | None
    schedule: float | None
    best: float | None


def times_at_judged_sizes(plan: Plan, found: SizeShares) -> list[ServedSize]:
    """Return the algorithm that runs at each judged size, with its times; [] if the plan has no times."""
    table, rows = found.table, []
    for size, times, best in zip(table.sizes, table.times, table.best, strict=False):
        row, share = table.at(size), found.at(size)
        if row is None or share is None:
            continue
        known = dict(zip(row.order, times, strict=True))
        taken = {**found.offers, **found.dropped}
        offered = [i for i in row.order if plan.algorithms[i].backend == OURS and i in taken and taken[i].admits(size)]
        schedule = min((time for i in offered if (time := known[i]) is not None), default=None)
        choice = share.choice if share.choice is not None and found.offers[share.choice].admits(size) else None
        rows.append(ServedSize(size, choice, None if choice is None else known[choice], schedule, best))
    return rows


def served_spans(plan: Plan, found: SizeShares) -> tuple[SizeSpan, ...]:
    """Return the ranges of sizes that schedules of the plan serve, neighbours joined."""
    spans: list[SizeSpan] = []
    for share in found.shares:
        if share.choice is None or plan.algorithms[share.choice].backend != OURS:
            continue
        if spans and spans[-1].high == share.low - 1:
            spans[-1] = SizeSpan(spans[-1].low, share.high)
        else:
            spans.append(SizeSpan(share.low, share.high))
    return tuple(spans)


def drop_to_fit(tables: list[SizeShares], files: Callable[[SizeShare], int], most: int, why: str) -> list[SizeShares]:
    """Return the tables with at most `most` files for all shares; `files(share)`: the number of files of a share.

    Until they fit, the algorithm without which the least time is lost is refused with the reason `why`; of equals, the
    one with the shortest share.
    """
    tables = list(tables)
    while True:
        served = [(place, s) for place, found in enumerate(tables) for s in found.shares if files(s)]
        if sum(files(s) for _, s in served) <= most:
            return tables
        place, share = min(
            served,
            key=lambda item: (
                _cost(_without(tables[item[0]], item[1], why)) - _cost(tables[item[0]]),
                _length(item[1]),
                item[0],
            ),
        )
        tables[place] = _without(tables[place], share, why)


def _without(found: SizeShares, share: SizeShare, why: str) -> SizeShares:
    """Return `found` without the algorithm of `share`."""
    if share.choice is None:
        return found
    left = {i: offer for i, offer in found.offers.items() if i != share.choice}
    changed = shares(found.table, left, {**found.refused, share.choice: why})
    return replace(changed, dropped={**found.dropped, share.choice: found.offers[share.choice]})


def _cost(found: SizeShares) -> float:
    """Return the sum, over the judged sizes, of the logarithm of the time that runs over that of the best candidate.

    It is 0 without times.
    """
    total = 0.0
    for size, times, best in zip(found.table.sizes, found.table.times, found.table.best, strict=False):
        row, share = found.table.at(size), found.at(size)
        if row is None or best is None:
            continue
        known = dict(zip(row.order, times, strict=True))
        time = None if share is None or share.choice is None else known[share.choice]
        total += log((time or max(t for t in times if t)) / best)
    return total


def _length(share: SizeShare) -> Fraction:
    """Return the ratio of the end of a share to its start; a share without an end counts as 1024 times its start."""
    high = share.low * 1024 + 1024 if share.high is None else share.high
    return Fraction(high + 1, share.low + 1)


def unserved_ranges(plan: Plan, found: SizeShares, otherwise: str) -> list[str]:
    """Return one line for each algorithm that does not serve the ranges in which it is preferred, and for the judged
    sizes that are not served.

    `otherwise`: the text for sizes that no algorithm of the plan serves.
    """
    table, said = found.table, []
    name = f"{table.collective} on {table.ranks} ranks"
    gone: dict[int, list[tuple[int, int | None, str]]] = {}
    for row in table.ranges:
        sizes, offers, where = judged_sizes(table, row), found.offers, span(row.low, row.high)
        labels = []
        for s in found.shares:
            if (row.high is None or s.low <= row.high) and (s.high is None or s.high >= row.low):
                labels.append(otherwise if s.choice is None else plan.algorithms[s.choice].label)
        instead = ", ".join(dict.fromkeys(labels))
        useful = _useful(row, sizes, offers)
        for i in row.order:
            if i in useful and covers_range(row, offers[i]):
                break  # algorithms after this one are never the first in this range
            if i in found.refused:
                step = plan.algorithms[i].divisor * table.element
                if not sizes or any(size % step == 0 for size in sizes):
                    gone.setdefault(i, []).append((row.low, row.high, instead))
            elif i in useful:
                ends = span(offers[i].low, offers[i].high)
                said.append(
                    f"{name}, {where}: {plan.algorithms[i].label} is offered for {ends} only, where it is proved right"
                )
        steps = sorted({offers[i].step for i in row.order if i in offers})
        missed = [s for s in sizes if not _admitted(found, s)]
        if missed and steps:
            said.append(
                f"{name}: {_sizes(missed)} (multiples of {' or '.join(map(str, steps))} bytes are): {otherwise}"
            )
    return [*(_refused_line(plan, found, name, i, rows) for i, rows in gone.items()), *said]


def _refused_line(plan: Plan, found: SizeShares, name: str, i: int, rows: list[tuple[int, int | None, str]]) -> str:
    """Return the line of algorithm i, which is refused in `rows`: (low, high, served instead); adjacent are joined."""
    ends: list[tuple[int, int | None]] = []
    for low, high, _ in rows:
        meets = ends and ends[-1][1] == low - 1
        ends[len(ends) - bool(meets) :] = [(ends[-1][0] if meets else low, high)]
    instead = ", ".join(dict.fromkeys(name for _, _, names in rows for name in names.split(", ")))
    where = " and ".join(span(low, high) for low, high in ends)
    return f"{name}, {where}: {plan.algorithms[i].label} is preferred, but {found.refused[i]}; instead {instead}"


def covers_range(row: Range, offer: Offer) -> bool:
    """Return True if the sizes of `offer` begin and end no nearer than those of `row`."""
    return offer.covers(row.low) and (offer.high is None or (row.high is not None and row.high <= offer.high))


def _admitted(found: SizeShares, size: int) -> bool:
    return any(
        s.choice is not None
        and s.low <= size
        and (s.high is None or size <= s.high)
        and found.offers[s.choice].admits(size)
        for s in found.shares
    )


def _sizes(missed: list[int]) -> str:
    shown = ", ".join(map(str, missed[:4])) + (f" and {len(missed) - 4} more" if len(missed) > 4 else "")
    return f"{shown} bytes {'is' if len(missed) == 1 else 'are'} not served"
