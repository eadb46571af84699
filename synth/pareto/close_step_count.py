"""Close one number of steps of a sweep: with a point that meets the bound, or with a best-known one and an interval.

A bound p/q is met by C = q·m chunks in R = p·m rounds, for m = 1, 2, ... Trees and solvers take turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil

from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Sat, Unknown
from synth.model.rational import counted, show
from synth.model.schedule import Problem
from synth.pareto.found import Found
from synth.pareto.step_search import StepSearch, point
from synth.solvers import pool
from synth.solvers.pool import ProcessJob

# The m that are tried, beyond the least one, and seconds of each processor for each. Some bounds are met only by whole
# rounds of a larger m.
MULTIPLES, SLICES = (0, 1, 2, 3, 5), (4.0, 2.0, 4.0, 2.0, 2.0)
# Seconds for the first m where trees are priced exactly: trees find sooner what a solver does not find at once.
QUICK_SLICE = 0.3
# Most chunks of all units together for this first query, and chunks of one unit from which trees come first where they
# are priced exactly.
QUICK_CHUNKS, QUICK_EACH = 300, 16
# Most chunks of all units together for any query, and where trees are priced exactly, as many chunks hardly take more
# work there, but make long files. A bound that needs more is not aimed at.
MOST_CHUNKS, MOST_ON_TREES = 3000, 30_000
# Relative distance to the bound at which fractions of trees are accepted, where trees are searched heuristically.
CLOSE_ON_TREES = 0.005
# Most chunks of all units together in a schedule near a bound that needs more.
NEAR_CHUNKS = 3000
# Seconds of work on a good schedule where no schedule meets the bound, of one query of that search, and the most
# chunks per unit in it.
SEARCH_SECONDS, SEARCH_SLICE, SEARCH_CHUNKS = 20.0, 9.0, 12
# That search ends within this share of the bound, and tries ratios that improve by this share, at least.
CLOSE, FINER = Fraction(1, 20), Fraction(1, 80)


def close(sweep: StepSearch, steps: int, bound: LowerBound) -> Iterator[Point]:
    """Search for a schedule of `steps` steps that meets `bound`; yield points.

    The last one is optimal, or the best one that the time allows, and then the interval is left open.
    """
    # a point of an earlier run, or of another engine
    found, began, worked = sweep.found, time.monotonic(), sweep.work
    known = next(sweep.resumed(steps), None) or row_at(found, steps)
    if known and known.rounds_per_chunk == bound.value and has_few_chunks(found, known, bound):
        yield replace(known, bound=bound)
        if found.best(steps) == bound.value:
            return
        known = None

    # a schedule that meets the bound
    verdict, why = None, "time"
    if not sweep.out_of_time:
        verdict, why = meet_bound(sweep, steps, bound, worked + sweep.point_seconds())
    if verdict is not None:
        yield point(verdict, bound, began)
        if found.best(steps) == bound.value:
            return
        why = "gave-up"

    # one near it
    if known:
        yield replace(known, bound=bound)
    if not sweep.out_of_time and sweep.tree_search:
        yield from near(sweep, steps, bound, began)
    if not sweep.out_of_time:
        limit = sweep.work + min(SEARCH_SECONDS * sweep.longer, sweep.point_seconds())
        yield from search(sweep, steps, bound, limit, began)
    if found.best(steps) != bound.value:
        reason = "time" if sweep.out_of_time else why
        found.add_open(Open(steps, bound.value, found.best(steps), reason, bound.certificate))
        found.tell("open", f"S={steps}: open, at least {show(bound.value)}", steps, bound.value)


def row_at(found: Found, steps: int) -> Point | None:
    """Return the best row with `steps` steps that the options allow, or None where there is none."""
    rows = [p for p in found.rows if p.steps == steps]
    return min(rows, key=lambda p: (p.rounds_per_chunk, p.chunks), default=None)


def has_few_chunks(found: Found, known: Point, bound: LowerBound) -> bool:
    """Return True where a point that meets the bound has few enough chunks to be taken without a solver.

    Schedules of solvers have the fewest chunks, so those of an earlier run always count as short.
    """
    return not found.is_row(known) or known.chunks <= 2 * bound.value.denominator * least_multiple(known.steps, bound)


def near(sweep: StepSearch, steps: int, bound: LowerBound, began: float) -> Iterator[Point]:
    """Yield a schedule on trees near the bound, where one exists that improves on the best known."""
    from synth.encodings.trees import search as trees

    options, best = sweep.options, sweep.found.best(steps)
    sweep.found.tell("query", f"S={steps}: whole chunks on trees, near the bound", steps, bound.value)
    chunks = min(options.max_chunks or NEAR_CHUNKS, NEAR_CHUNKS // sweep.collective.units)
    away = 0.0 if sweep.exact_pricing else CLOSE_ON_TREES
    if best is not None:
        away = min(away, float(best / bound.value - 1) / 2)  # or it would not improve on the best
    query = partial(trees.near, close=away)
    verdict = sweep.finish_trees(sweep.begin_trees(query, steps, bound, chunks), steps, bound)
    if isinstance(verdict, Sat) and (best is None or verdict.schedule.rounds_per_chunk < best):
        schedule = verdict.schedule
        if options.allows(steps, schedule.rounds, schedule.chunks):
            yield point(verdict, bound, began)


def search(sweep: StepSearch, steps: int, bound: LowerBound, work_limit: float, began: float) -> Iterator[Point]:
    """Yield schedules with ever smaller R/C, by growing C, until one is near the bound or `work` is `work_limit`."""
    ratios: dict[Fraction, tuple[int, int]] = {}
    options, most_chunks = sweep.options, SEARCH_CHUNKS
    for chunks in range(1, min(most_chunks, options.max_chunks or most_chunks) + 1):
        least = max(steps, ceil(bound.value * chunks))
        for rounds in range(least, least + 2 + (chunks <= 2) * steps):
            if rounds <= options.max_rounds(steps):
                ratios.setdefault(Fraction(rounds, chunks), (chunks, rounds))
    enough = bound.value * (1 + CLOSE)
    for ratio, (chunks, rounds) in sorted(ratios.items(), key=lambda item: (item[1], item[0])):
        remaining_seconds, best = sweep.seconds_left(work_limit), sweep.found.best(steps)
        if remaining_seconds <= 0 or (best is not None and best <= enough):
            break
        if ratio > bound.value and (best is None or ratio <= best * (1 - FINER)):
            problem = Problem(sweep.network, sweep.collective, chunks, steps, rounds)
            verdict = sweep.query_portfolio(problem, min(SEARCH_SLICE * sweep.longer, remaining_seconds))
            if isinstance(verdict, Sat):
                yield point(verdict, bound, began)


def meet_bound(sweep: StepSearch, steps: int, bound: LowerBound, work_limit: float) -> tuple[Sat | None, str]:
    """Search for a schedule of `steps` steps that meets `bound`; return (schedule or None, reason why not).

    The search ends when `sweep.work` is `work_limit`, in CPU seconds.
    """
    from synth.encodings.trees import search as trees

    exact_pricing, tree_search, units = sweep.exact_pricing, sweep.tree_search, sweep.collective.units
    max_chunks = MOST_CHUNKS if not exact_pricing else max(MOST_ON_TREES, (sweep.options.max_chunks or 0) * units)
    if bound.value.denominator * units > max_chunks:
        needed = _counted(bound.value.denominator, units)
        return None, f"a schedule at the bound has {needed} or more, above the {max_chunks} in all that are tried"

    # a short query for the fewest chunks, with trees beside it where another processor is free
    first = (QUICK_SLICE,) if exact_pricing else SLICES[:1]
    many = tree_search and bound.value.denominator * units > QUICK_CHUNKS
    if many or (exact_pricing and bound.value.denominator >= QUICK_EACH):
        first = ()
    beside = None
    if tree_search and not exact_pricing and sweep.options.jobs > 1 and not sweep.options.deterministic:
        beside = sweep.begin_trees(trees.meet, steps, bound, _max_chunks_on_trees(sweep, steps, bound))
    verdict, why = _query_multiples(sweep, steps, bound, first, work_limit, beside=beside)

    # then trees, and longer queries for one multiple after the other
    if verdict is not None or (sweep.seconds_left(work_limit) <= 0 and not (beside and beside.result)):
        pool.end([beside] if beside else [])
    elif tree_search:
        sweep.found.tell("query", f"S={steps}: whole chunks on trees", steps, bound.value)
        job = beside or sweep.begin_trees(trees.meet, steps, bound, _max_chunks_on_trees(sweep, steps, bound))
        answer = sweep.finish_trees(job, steps, bound)
        verdict, why = (answer, "") if isinstance(answer, Sat) else (None, answer.reason)
    if verdict is None and sweep.seconds_left(work_limit) > 0:
        verdict, why = _query_multiples(sweep, steps, bound, SLICES[1:], work_limit, MULTIPLES[1:])
    return verdict, why


def _counted(chunks: int, units: int) -> str:
    """Return "12 chunks" for one unit, "12 chunks of each of 56 units" for several."""
    each = f" of each of {units} units" if units > 1 else ""
    return f"{counted(chunks, 'chunk')}{each}"


def least_multiple(steps: int, bound: LowerBound) -> int:
    """Return the least m for which R = p·m rounds, where p/q is `bound`, are one or more for each of `steps` steps."""
    return max(1, ceil(Fraction(steps, bound.value.numerator)))


def _query_multiples(
    sweep: StepSearch, steps: int, bound: LowerBound, slices: Sequence[float], work_limit: float,
    multiples: Sequence[int] = MULTIPLES, beside: ProcessJob | None = None,
) -> tuple[Sat | None, str]:  # fmt: skip
    """Query the portfolio for schedules with R/C equal to the bound; return the first one, and why there is none.

    Each of `multiples` (m beyond the least, with C = q·m and R = p·m) has its slice of seconds. A schedule of the job
    `beside` ends the queries.
    """
    p, q = bound.value.numerator, bound.value.denominator
    start, why = least_multiple(steps, bound), "gave-up"
    for more, seconds in zip(multiples, slices, strict=False):
        m = start + more
        if q * m * sweep.collective.units > MOST_CHUNKS and m > start:
            return None, why
        max_chunks = sweep.options.max_chunks
        if max_chunks is not None and q * m > max_chunks:
            return None, f"chunks are limited to {max_chunks}, {q * m} would be next"
        if p * m > sweep.options.max_rounds(steps):
            return None, f"rounds are limited to {sweep.options.max_rounds(steps)}, {p * m} would be next"
        remaining_seconds = min(seconds * sweep.longer, sweep.seconds_left(work_limit))
        if remaining_seconds <= 0:
            break
        problem = Problem(sweep.network, sweep.collective, q * m, steps, p * m)
        verdict = sweep.query_portfolio(problem, remaining_seconds, beside)
        if isinstance(verdict, Sat):
            return verdict, ""
        if isinstance(verdict, Unknown):
            why = verdict.reason
    return None, why


def _max_chunks_on_trees(sweep: StepSearch, steps: int, bound: LowerBound) -> int:
    """Return the maximum chunks of a unit on trees.

    More chunks would make long files, or would need more rounds than are allowed to meet the bound.
    """
    max_chunks = sweep.options.max_chunks or MOST_ON_TREES // sweep.collective.units
    return int(min(max_chunks, sweep.options.max_rounds(steps) / bound.value))
