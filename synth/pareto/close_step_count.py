"""Close one number of steps of a sweep: with a point that meets the bound, or with a best-known one and an interval."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil

from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Sat
from synth.model.rational import show
from synth.model.schedule import Problem
from synth.pareto.found import Found
from synth.pareto.meet_bound import least_multiple, meet_bound
from synth.pareto.queries import begin_tree_query, finish_tree_query, point, query_portfolio
from synth.pareto.step_search import StepSearch


@dataclass(frozen=True)
class CloseStepCountSettings:
    """Limits of the search at one S beside and after `meet_bound`.

    Attributes:
        close_on_trees: Relative distance to the bound at which fractions of trees are accepted, where trees are
            searched heuristically.
        near_chunks: Maximum number of chunks of all units together in a schedule near a bound that needs more.
        search_seconds: Seconds of work on a good schedule where no schedule meets the bound.
        search_slice: Seconds of one query of that search.
        close: That search ends within this share of the bound.
        worth: That search tries ratios that improve by this share, at least.
        search_chunks: Maximum number of chunks per unit in that search.
    """

    close_on_trees: float = 0.005
    near_chunks: int = 3000
    search_seconds: float = 20.0
    search_slice: float = 9.0
    close: Fraction = Fraction(1, 20)
    worth: Fraction = Fraction(1, 80)
    search_chunks: int = 12


SETTINGS = CloseStepCountSettings()


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
        limit = sweep.work + min(SETTINGS.search_seconds * sweep.longer, sweep.point_seconds())
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
    from synth.encodings.tree_packing import search as trees

    options, best = sweep.options, sweep.found.best(steps)
    sweep.found.tell("query", f"S={steps}: whole chunks on trees, near the bound", steps, bound.value)
    chunks = min(options.max_chunks or SETTINGS.near_chunks, SETTINGS.near_chunks // sweep.collective.units)
    away = 0.0 if sweep.exact_pricing else SETTINGS.close_on_trees
    if best is not None:
        away = min(away, float(best / bound.value - 1) / 2)  # or it would not improve on the best
    query = partial(trees.near, close=away)
    verdict = finish_tree_query(sweep, begin_tree_query(sweep, query, steps, bound, chunks), steps, bound)
    if isinstance(verdict, Sat) and (best is None or verdict.schedule.rounds_per_chunk < best):
        schedule = verdict.schedule
        if options.allows(steps, schedule.rounds, schedule.chunks):
            yield point(verdict, bound, began)


def search(sweep: StepSearch, steps: int, bound: LowerBound, work_limit: float, began: float) -> Iterator[Point]:
    """Yield schedules with ever smaller R/C, by growing C, until one is near the bound or `work` is `work_limit`."""
    ratios: dict[Fraction, tuple[int, int]] = {}
    options, most_chunks = sweep.options, SETTINGS.search_chunks
    for chunks in range(1, min(most_chunks, options.max_chunks or most_chunks) + 1):
        least = max(steps, ceil(bound.value * chunks))
        for rounds in range(least, least + 2 + (chunks <= 2) * steps):
            if rounds <= options.max_rounds(steps):
                ratios.setdefault(Fraction(rounds, chunks), (chunks, rounds))
    enough = bound.value * (1 + SETTINGS.close)
    for ratio, (chunks, rounds) in sorted(ratios.items(), key=lambda item: (item[1], item[0])):
        remaining_seconds, best = sweep.seconds_left(work_limit), sweep.found.best(steps)
        if remaining_seconds <= 0 or (best is not None and best <= enough):
            break
        if ratio > bound.value and (best is None or ratio <= best * (1 - SETTINGS.worth)):
            problem = Problem(sweep.network, sweep.collective, chunks, steps, rounds)
            verdict = query_portfolio(sweep, problem, min(SETTINGS.search_slice * sweep.longer, remaining_seconds))
            if isinstance(verdict, Sat):
                yield point(verdict, bound, began)
