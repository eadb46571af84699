"""The ranges of sizes of each algorithm: as few switches as a tolerance and the noise allow, and their exact sizes.

At a judged size an algorithm is *good enough* when its time is within the tolerance of the best, or no further from it
than repeats of either lie apart. Among the sequences of good-enough algorithms over the judged sizes the one with the
fewest switches is taken, then the one whose algorithms admit the most sizes, then the fastest: a switch that wins no
more than noise does not happen, nor does an isolated one inside the tolerance. A switch lies where the two times cross,
between the judged sizes on both sides of it.

What is chosen first may not be what a runtime takes, so each range goes on in the same way among those that may stand
in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import NamedTuple

from synth.model.tuning_plan import Range

Times = Callable[[int], float | None]


class Option(NamedTuple):
    """One algorithm: seconds and spread (a share of the time) by size; the `divisor` of what it admits without padding,
    in bytes.
    `needs`: what else a runtime must be able to do (load schedules, LL128); nothing for its library's own."""

    seconds: Times
    spread: Callable[[int], float]
    divisor: int
    needs: frozenset[str] = frozenset()

    def stands_in(self, other: Option) -> bool:
        """Return True if a runtime may run this option at a size at which it cannot run `other`."""
        return self.divisor % other.divisor > 0 or not other.needs <= self.needs


def ranges(options: Sequence[Option], sizes: Sequence[int], tolerance: float) -> list[Range]:
    """Disjoint ranges from the first to the last of the growing `sizes`, without a gap where any option has a time.

    `Range.order` are places in `options`. Sizes at which no option has a time belong to no range.
    """
    found: list[Range] = []
    for low, high, order in _split(options, tuple(range(len(options))), list(sizes), sizes[0], sizes[-1], tolerance):
        if found and found[-1].order == order and found[-1].high == low - 1:
            found[-1] = Range(found[-1].low, high, order)
        else:
            found.append(Range(low, high, order))
    return found


def _split(
    options: Sequence[Option], among: tuple[int, ...], sizes: list[int], low: int, high: int, tolerance: float
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (low, high, order) of the pieces of low..high; `sizes` are the judged sizes in it."""
    pieces: list[tuple[int, int, tuple[int, ...]]] = []
    for first, last, inside, k in _chosen(options, among, sizes, low, high, tolerance):
        left = tuple(i for i in among if options[i].stands_in(options[k]))
        below = _split(options, left, inside, first, last, tolerance) if left and inside else []
        at = first
        for start, end, order in below:
            if start > at:
                pieces.append((at, start - 1, (k,)))
            pieces.append((start, end, (k, *order)))
            at = end + 1
        if at <= last:
            pieces.append((at, last, (k,)))
    return pieces


def _chosen(
    options: Sequence[Option], among: tuple[int, ...], sizes: list[int], low: int, high: int, tolerance: float
) -> list[tuple[int, int, list[int], int]]:
    """(low, high, judged sizes, option): the pieces of low..high by the first choice; those without any are left
    out."""
    rows: list[tuple[int, dict[int, float]]] = []
    found: list[tuple[int, int, list[int], int]] = []
    for size in sizes:
        able = {k: time for k in among if (time := options[k].seconds(size)) is not None}
        if able:
            rows.append((size, able))
        else:
            found += _pieces(options, rows, sizes, low, high, tolerance)
            rows = []
    return found + _pieces(options, rows, sizes, low, high, tolerance)


def _pieces(
    options: Sequence[Option],
    rows: list[tuple[int, dict[int, float]]],
    sizes: list[int],
    low: int,
    high: int,
    tolerance: float,
) -> list[tuple[int, int, list[int], int]]:
    if not rows:
        return []
    path = _path(options, rows, tolerance)
    first = low if rows[0][0] == sizes[0] else rows[0][0]
    found: list[tuple[int, int, list[int], int]] = []
    inside = [rows[0][0]]
    for i in range(1, len(rows)):
        size = rows[i][0]
        if path[i] != path[i - 1]:
            start = crossing(options[path[i - 1]].seconds, options[path[i]].seconds, rows[i - 1][0], size)
            found.append((first, start - 1, inside, path[i - 1]))
            first, inside = start, []
        inside.append(size)
    found.append((first, high if rows[-1][0] == sizes[-1] else rows[-1][0], inside, path[-1]))
    return found


def _path(options: Sequence[Option], rows: list[tuple[int, dict[int, float]]], tolerance: float) -> list[int]:
    """Return the option at each size, by dynamic programming: fewest switches, then least divisors, then least time."""
    costs: dict[int, tuple[int, float, float]] = {}
    back: list[dict[int, int]] = []
    for size, able in rows:
        best = min(able.values())
        good = _good_enough(options, size, able, tolerance)
        now: dict[int, tuple[int, float, float]] = {}
        links: dict[int, int] = {}
        cheapest = min(costs, key=lambda k: (costs[k], k)) if costs else None
        for k in good:
            own = (log(options[k].divisor), log(able[k] / best))
            before: tuple[int, float, float] = (0, 0.0, 0.0)
            if cheapest is not None:
                a, b, c = costs[cheapest]
                moved = (a + 1, b, c)
                before, links[k] = min((moved, cheapest), (costs.get(k, moved), k if k in costs else cheapest))
            now[k] = (before[0], before[1] + own[0], before[2] + own[1])
        costs = now
        back.append(links)
    k = min(costs, key=lambda k: (costs[k], k))
    path = [k]
    for links in reversed(back[1:]):
        k = links[k]
        path.append(k)
    return path[::-1]


def _good_enough(options: Sequence[Option], size: int, able: dict[int, float], tolerance: float) -> list[int]:
    """Return the options that are good enough at `size`."""
    winner = min(able, key=lambda k: (able[k], k))
    best = able[winner]
    noise = options[winner].spread(size) * best
    return [
        k for k, time in able.items() if time - best <= max(tolerance * best, noise, options[k].spread(size) * time)
    ]


def crossing(old: Times, new: Times, low: int, high: int) -> int:
    """The least size in low+1..high from which on `new` is no slower than `old`, by bisection; `high` where that is not
    clear."""

    def ahead(size: int) -> bool:
        a, b = old(size), new(size)
        return a is None or (b is not None and b <= a)

    if ahead(low) or not ahead(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ahead(middle) else (middle, high)
    return high
