"""The ranges of sizes of each algorithm: as few switches as a tolerance and the noise allow, and their exact sizes.

At a judged size an algorithm is *good enough* when its time is within the tolerance there of the best, or no further
from it than repeats of either lie apart. Among the sequences of good-enough algorithms over the judged sizes the one
with the fewest switches is taken, then the one whose algorithms admit the most sizes, then the fastest: a switch that
wins no more than noise does not happen, nor does an isolated one inside the tolerance. A switch lies where the two
times cross, between the judged sizes on both sides of it.

A runtime may not support the first choice. So each range is divided again, in the same way, among the options that may
stand in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import NamedTuple

from synth.model.tuning_plan import Range

Times = Callable[[int], float | None]
# The loss that is accepted at a size to avoid a switch, as a share of the least time.
Tolerance = Callable[[int], float]


class Option(NamedTuple):
    """One algorithm.

    Attributes:
        seconds: its time at a size, None where it has none.
        spread: the spread of repeats at a size, as a share of the time.
        divisor: bytes whose multiples it serves without padding.
        needs: abilities of a runtime that runs it ("schedules", LL128, "multicast"). A library's own has none.
    """

    seconds: Times
    spread: Callable[[int], float]
    divisor: int
    needs: frozenset[str] = frozenset()

    def stands_in(self, other: Option) -> bool:
        """Return True if a runtime may run this option where it cannot run `other`.

        It does not pad, and this option divides sizes that the other does not; or it lacks what only the other needs.
        """
        return self.divisor % other.divisor > 0 or not other.needs <= self.needs


def ranges(options: Sequence[Option], sizes: Sequence[int], tolerance: Tolerance) -> list[Range]:
    """Return disjoint ranges from the first to the last of the increasing `sizes`.

    `Range.order` are indices in `options`. Sizes at which no option has a time belong to no range.
    """
    pieces: list[Range] = []
    for low, high, order in _split(options, tuple(range(len(options))), list(sizes), sizes[0], sizes[-1], tolerance):
        if pieces and pieces[-1].order == order and pieces[-1].high == low - 1:
            pieces[-1] = Range(pieces[-1].low, high, order)
        else:
            pieces.append(Range(low, high, order))
    return pieces


def _split(
    options: Sequence[Option], candidates: tuple[int, ...], sizes: list[int], low: int, high: int, tolerance: Tolerance
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (low, high, order) of the pieces of low..high; `sizes` are the judged sizes in it."""
    pieces: list[tuple[int, int, tuple[int, ...]]] = []
    for first, last, inside, k in _chosen(options, candidates, sizes, low, high, tolerance):
        substitutes = tuple(i for i in candidates if options[i].stands_in(options[k]))
        inner = _split(options, substitutes, inside, first, last, tolerance) if substitutes and inside else []
        at = first
        for start, end, order in inner:
            if start > at:
                pieces.append((at, start - 1, (k,)))
            pieces.append((start, end, (k, *order)))
            at = end + 1
        if at <= last:
            pieces.append((at, last, (k,)))
    return pieces


def _chosen(
    options: Sequence[Option], candidates: tuple[int, ...], sizes: list[int], low: int, high: int, tolerance: Tolerance
) -> list[tuple[int, int, list[int], int]]:
    """Return the pieces of low..high by the first choice, as (low, high, judged sizes, option).

    Sizes at which no option has a time are in no piece.
    """
    rows: list[tuple[int, dict[int, float]]] = []
    pieces: list[tuple[int, int, list[int], int]] = []
    for size in sizes:
        times = {k: time for k in candidates if (time := options[k].seconds(size)) is not None}
        if times:
            rows.append((size, times))
        else:
            pieces += _pieces(options, rows, sizes, low, high, tolerance)
            rows = []
    return pieces + _pieces(options, rows, sizes, low, high, tolerance)


def _pieces(
    options: Sequence[Option],
    rows: list[tuple[int, dict[int, float]]],
    sizes: list[int],
    low: int,
    high: int,
    tolerance: Tolerance,
) -> list[tuple[int, int, list[int], int]]:
    if not rows:
        return []
    path = _path(options, rows, tolerance)
    first = low if rows[0][0] == sizes[0] else rows[0][0]
    pieces: list[tuple[int, int, list[int], int]] = []
    inside = [rows[0][0]]
    for i in range(1, len(rows)):
        size = rows[i][0]
        if path[i] != path[i - 1]:
            start = crossing(options[path[i - 1]].seconds, options[path[i]].seconds, rows[i - 1][0], size)
            pieces.append((first, start - 1, inside, path[i - 1]))
            first, inside = start, []
        inside.append(size)
    pieces.append((first, high if rows[-1][0] == sizes[-1] else rows[-1][0], inside, path[-1]))
    return pieces


def _path(options: Sequence[Option], rows: list[tuple[int, dict[int, float]]], tolerance: Tolerance) -> list[int]:
    """Return the option at each size, by dynamic programming: fewest switches, then least divisors, then least time."""
    costs: dict[int, tuple[int, float, float]] = {}
    predecessors_of: list[dict[int, int]] = []
    for size, times in rows:
        best = min(times.values())
        options_at = _good_enough(options, size, times, tolerance(size))
        next_costs: dict[int, tuple[int, float, float]] = {}
        predecessors: dict[int, int] = {}
        cheapest = min(costs, key=lambda k: (costs[k], k)) if costs else None
        for k in options_at:
            step_cost = (log(options[k].divisor), log(times[k] / best))
            before: tuple[int, float, float] = (0, 0.0, 0.0)
            if cheapest is not None:
                a, b, c = costs[cheapest]
                switched = (a + 1, b, c)
                before, predecessors[k] = min(
                    (switched, cheapest), (costs.get(k, switched), k if k in costs else cheapest)
                )
            next_costs[k] = (before[0], before[1] + step_cost[0], before[2] + step_cost[1])
        costs = next_costs
        predecessors_of.append(predecessors)
    k = min(costs, key=lambda k: (costs[k], k))
    path = [k]
    for predecessors in reversed(predecessors_of[1:]):
        k = predecessors[k]
        path.append(k)
    return path[::-1]


def _good_enough(options: Sequence[Option], size: int, times: dict[int, float], tolerance: float) -> list[int]:
    """Return the options whose time at `size` exceeds the least by no more than the tolerance or the noise of repeats.

    `times`: seconds at `size` by option. `tolerance`: as a share of the least time.
    """
    winner = min(times, key=lambda k: (times[k], k))
    best = times[winner]
    noise = options[winner].spread(size) * best
    return [
        k for k, time in times.items() if time - best <= max(tolerance * best, noise, options[k].spread(size) * time)
    ]


def crossing(old: Times, new: Times, low: int, high: int) -> int:
    """Return the least size in low+1..high from which on `new` is no slower than `old`, by bisection.

    It is `low` + 1 where `new` is already no slower at `low`, and `high` where it is still slower at `high`.
    """

    def ahead(size: int) -> bool:
        a, b = old(size), new(size)
        return a is None or (b is not None and b <= a)

    if ahead(low):
        return low + 1
    if not ahead(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ahead(middle) else (middle, high)
    return high
