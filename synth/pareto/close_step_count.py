"""Close one number of steps of a sweep: with a point that meets the bound, or with a best-known one and an interval."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

from synth.model.bitwise_equality import same_bits
from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Sat
from synth.model.rational import show
from synth.model.schedule import Problem
from synth.pareto.meet_bound import least_multiple, meet_bound
from synth.pareto.queries import begin_tree_query, finish_tree_query, point, query_portfolio
from synth.pareto.sweep_state import SweepState


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


def close(state: SweepState, steps: int, bound: LowerBound) -> None:
    """Search for a schedule of `steps` steps that meets `bound`, and enter the result into `state`.

    The result is an optimal point, or the best one that the time allows with an open interval.
    """
    began, worked = time.monotonic(), state.work
    resumed = next(state.resumed(steps), None) or seed(state, steps, bound)
    if resumed and has_few_chunks(state, resumed, bound) and resumed.rounds_per_chunk == bound.value:
        met = Point.of(resumed.schedule, bound, "optimal", resumed.construction, resumed.same_bits, resumed.seconds)
        if state.add_point(met):
            return
        resumed = None
    verdict, why = None, "time"
    if not state.out_of_time:
        verdict, why = meet_bound(state, steps, bound, worked + state.point_seconds())
    if verdict is not None:
        if state.add_point(point(verdict, bound, "optimal", began)):
            return
        why = "gave-up"
    if resumed:
        state.add_point(resumed)
    if not state.out_of_time and state.tree_search:
        _near(state, steps, bound, began)
    if not state.out_of_time:
        limit = state.work + min(SETTINGS.search_seconds * state.longer, state.point_seconds())
        _search(state, steps, bound, limit, began, SETTINGS.search_chunks)
    reached = [p.rounds_per_chunk for p in state.points if p.steps <= steps]
    if not any(p.steps == steps and p.status == "optimal" for p in state.points):
        reason = "time" if state.out_of_time else why
        state.add_open(Open(steps, bound.value, min(reached, default=None), reason, bound.certificate))
        state.tell("open", f"S={steps}: open, at least {show(bound.value)}", steps, bound.value)


def seed(state: SweepState, steps: int, bound: LowerBound) -> Point | None:
    """Return the point of the best schedule with `steps` steps among `state.seeds`, or None where there is none."""
    allowed = [
        (s.rounds_per_chunk, s.chunks, name, s) for name, s in state.seeds if len(s.steps) == steps and state.allowed(s)
    ]
    if not allowed:
        return None
    rounds_per_chunk, _, name, schedule = min(allowed, key=lambda item: item[:2])
    return Point.of(
        schedule, bound, "optimal" if rounds_per_chunk == bound.value else "best-known", name, same_bits(schedule)
    )


def has_few_chunks(state: SweepState, found: Point, bound: LowerBound) -> bool:
    """Return True where a point that meets the bound has few enough chunks to be taken without a solver.

    Schedules of solvers have the fewest chunks, so those of an earlier run always count as short.
    """
    return not state.is_seed(found) or found.chunks <= 2 * bound.value.denominator * least_multiple(found.steps, bound)


def _near(state: SweepState, steps: int, bound: LowerBound, began: float) -> None:
    """Enter a schedule on trees near the bound, where one exists that improves on the best known."""
    from synth.encodings.tree_packing import search

    state.tell("query", f"S={steps}: whole chunks on trees, near the bound", steps, bound.value)
    chunks = min(state.options.max_chunks or SETTINGS.near_chunks, SETTINGS.near_chunks // state.collective.units)
    away = 0.0 if state.exact_pricing else SETTINGS.close_on_trees
    if state.best is not None:
        away = min(away, float(state.best / bound.value - 1) / 2)  # or it would not improve on the best
    query = partial(search.near, close=away)
    verdict = finish_tree_query(state, begin_tree_query(state, query, steps, bound, chunks), steps, bound)
    if (
        isinstance(verdict, Sat)
        and state.allowed(verdict.schedule)
        and (state.best is None or verdict.schedule.rounds_per_chunk < state.best)
    ):
        state.add_point(point(verdict, bound, "best-known", began))


def _search(
    state: SweepState, steps: int, bound: LowerBound, work_limit: float, began: float, most_chunks: int
) -> None:
    """Enter schedules with ever smaller R/C, by growing C, until one is near the bound or `work` is `work_limit`."""
    ratios: dict[Fraction, tuple[int, int]] = {}
    for chunks in range(1, min(most_chunks, state.options.max_chunks or most_chunks) + 1):
        least = max(steps, ceil(bound.value * chunks))
        for rounds in range(least, least + 2 + (chunks <= 2) * steps):
            if rounds <= state.options.max_rounds(steps):
                ratios.setdefault(Fraction(rounds, chunks), (chunks, rounds))
    enough = bound.value * (1 + SETTINGS.close)
    for ratio, (chunks, rounds) in sorted(ratios.items(), key=lambda item: (item[1], item[0])):
        remaining_seconds = state.seconds_left(work_limit)
        if remaining_seconds <= 0 or (state.best is not None and state.best <= enough):
            break
        if ratio > bound.value and (state.best is None or ratio <= state.best * (1 - SETTINGS.worth)):
            problem = Problem(state.network, state.collective, chunks, steps, rounds)
            verdict = query_portfolio(state, problem, min(SETTINGS.search_slice * state.longer, remaining_seconds))
            if isinstance(verdict, Sat):
                state.add_point(point(verdict, bound, "best-known", began))
