"""The choice of an algorithm for each range of sizes: candidates × sizes → time → least.

At each size candidates are timed by rising lower bound, until the next bound is above the least time. The choice of the
size before is kept while it takes at most the tolerance more than the least time. Between two
sizes the choice changes where the two times cross, each taken to be linear in the size.

A runtime may not take the first choice: it does not pad, or has no LL128, no multicasts, no schedules at all. So the
choice is made for each of these abilities, in the same way, and all of them are the order of a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

from synth.catalog.tuner.candidates import TunerCandidate
from synth.catalog.tuner.clock import Time
from synth.errors import SynthError
from synth.model.number_text import size_text
from synth.model.tuning_plan import OURS, Algorithm, LibraryTimes, Range, Table

TOLERANCE = 0.01  # the loss, as a share of the least time, that is accepted to avoid a switch


class Question(NamedTuple):
    """The query of a table: growing `sizes` in bytes, of elements of `element` bytes.

    `tolerance`: the loss of time that is accepted to avoid a switch, as a share.
    """

    collective: str
    ranks: int
    sizes: tuple[int, ...]
    element: int = 4
    tolerance: float = TOLERANCE
    root: int | None = None


class TunedTable(NamedTuple):
    """Ranges and their algorithms, by numbers of `algorithms`, those that the table uses; and `notes` for the user."""

    table: Table
    algorithms: tuple[Algorithm, ...]
    notes: tuple[str, ...]


def choose_algorithms(question: Question, candidates: Sequence[TunerCandidate]) -> TunedTable:
    """Return the table of ranges for `question`. Raises SynthError if no candidate has a time at any of its sizes."""
    element, tolerance = question.element, question.tolerance
    numbers = range(len(candidates))

    # our schedules, by what a runtime must be able to do for them; other libraries, by their own algorithm
    ours = [k for k in numbers if candidates[k].algorithm.backend == OURS]
    libraries: dict[str, list[int]] = {}
    for k in numbers:
        algorithm = candidates[k].algorithm
        if algorithm.backend != OURS:
            kind = dict(algorithm.options).get("algorithm")
            libraries.setdefault(f"{algorithm.backend}-{kind}" if kind else algorithm.label, []).append(k)
    others = [k for group in libraries.values() for k in group]
    messages = [k for k in ours if not candidates[k].algorithm.through_switches]
    without_ll128 = [k for k in messages if candidates[k].algorithm.protocol != "LL128"]

    # at each size the choice of each kind of runtime; a size at which nothing has a time is left out
    known: list[int] = []
    orders: list[tuple[int, ...]] = []
    rows: list[dict[int, Time]] = []  # times by candidate at each known size
    kept: dict[str, int] = {}  # the choice of the size before, by the group that it was made in
    for size in question.sizes:
        # with other libraries beside our schedules, and our schedules alone
        groups = {"all": [*numbers], "library": others}
        alone: dict[str, list[int]] = {}
        for name, able in (("ours", ours), ("messages", messages), ("without LL128", without_ll128)):
            unpadded = [k for k in able if size % (candidates[k].algorithm.divisor * element) == 0]
            groups |= {name: [*able, *others], f"{name}, unpadded": [*unpadded, *others]}
            alone |= {f"{name} alone": able, f"{name} alone, unpadded": unpadded}
        times: dict[int, Time] = {}
        for group in (*libraries.values(), *groups.values(), *alone.values()):
            _time_fastest(candidates, group, size, element, tolerance, times)
        if not times:
            continue
        chosen: dict[str, int] = {}
        for name, group in (groups | alone).items():
            timed = [k for k in group if k in times]
            if timed:
                chosen[name] = _least(candidates, timed, times, kept.get(name), tolerance)
        kept = chosen
        # Where a library's algorithm is taken, the fastest schedules stand after it, to compare.
        order = [chosen["all"]]
        for kind in (groups, alone):
            first = {chosen[name] for name in kind if name in chosen}
            order += sorted(first, key=lambda k: (times[k].seconds, k))
        known.append(size)
        rows.append(times)
        orders.append(tuple(dict.fromkeys(order)))
    if not known:
        raise SynthError(
            f"nothing says how long {question.collective} on {question.ranks} ranks takes at any of these sizes; "
            "measurements and logs must be of sizes no further than a factor of 2 away"
        )

    # Ranges of equal orders; the order changes where the times of the first choices cross.
    ranges: list[Range] = []
    for i, order in enumerate(orders):
        if i and order == orders[i - 1] and ranges[-1].high is None:
            continue
        low = known[i]
        if i:
            low = _crossing(candidates, orders[i - 1][0], order[0], known[i - 1], known[i], element)
            ranges[-1] = ranges[-1]._replace(high=low - 1)
        ranges.append(Range(low, None, order))
    ranges[-1] = ranges[-1]._replace(high=known[-1])

    # the table numbers the algorithms that it uses, and has the times that it was judged by
    used = sorted({k for order in orders for k in order})
    place = {k: i for i, k in enumerate(used)}
    table_ranges, estimated, ordered, found = [], [], [], []
    for row in ranges:
        table_ranges.append(Range(row.low, row.high, tuple(place[k] for k in row.order)))
    for times, order in zip(rows, orders, strict=True):
        ordered.append(tuple(times[k].seconds for k in order))
        estimated.append(tuple(sorted({time.seconds for time in times.values() if time.estimated})))
    for name, group in libraries.items():
        found.append(LibraryTimes(name, _minima(rows, group)))
    table = Table(
        question.collective,
        question.ranks,
        tuple(table_ranges),
        tuple(known),
        tuple(times[0] for times in ordered),
        _minima(rows, numbers),
        question.root,
        element,
        tuple(place[order[0]] for order in orders),
        _minima(rows, ours),
        _minima(rows, others),
        tuple(ordered),
        tuple(found),
        tuple(estimated) if any(estimated) else (),
    )
    notes = []
    missing = [size_text(size) for size in question.sizes if size not in known]
    if missing:
        notes.append(f"no time is known at {', '.join(missing)}, which the plan was not judged at")
    return TunedTable(table, tuple(candidates[k].algorithm for k in used), tuple(notes))


def _time_fastest(
    candidates: Sequence[TunerCandidate], group: Sequence[int], size: int, element: int, tolerance: float,
    times: dict[int, Time],
) -> None:  # fmt: skip
    # by rising lower bound, until the next one is above the least time and what a switch may lose
    fastest = min((times[k].seconds for k in group if k in times), default=inf)
    for least, k in sorted((candidates[k].least(size, element), k) for k in group):
        if least > fastest * (1 + tolerance):
            break
        time = times.get(k) or candidates[k].time(size, element)
        if time is not None:
            times[k] = time
            fastest = min(fastest, time.seconds)


def _least(
    candidates: Sequence[TunerCandidate],
    timed: Sequence[int],
    times: dict[int, Time],
    before: int | None,
    tolerance: float,
) -> int:
    """Return the fastest candidate; of equals one with the least padding; `before` while it is good enough.

    No schedule is kept where another library's own algorithm is faster.
    """
    best = min(timed, key=lambda k: (times[k].seconds, candidates[k].algorithm.divisor, k))
    ours_kept = before is not None and candidates[before].algorithm.backend == OURS
    if ours_kept and candidates[best].algorithm.backend != OURS:
        return best
    if before in timed and before is not None and times[before].seconds <= times[best].seconds * (1 + tolerance):
        return before
    return best


def _crossing(candidates: Sequence[TunerCandidate], old: int, new: int, low: int, high: int, element: int) -> int:
    # how much longer the new choice takes at both sizes; the line between them is 0 where the times cross
    gaps = []
    for size in (low, high):
        before, after = candidates[old].time(size, element), candidates[new].time(size, element)
        if before is None or after is None:
            return high
        gaps.append(after.seconds - before.seconds)
    if gaps[0] <= gaps[1]:
        return high
    share = min(1.0, max(0.0, gaps[0] / (gaps[0] - gaps[1])))
    return min(high, max(low + 1, ceil(low + share * (high - low))))


def _minima(rows: Sequence[dict[int, Time]], group: Sequence[int]) -> tuple[float | None, ...]:
    least = []
    for times in rows:
        least.append(min((times[k].seconds for k in group if k in times), default=None))
    return tuple(least)
