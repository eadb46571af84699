"""One number of steps of a sweep: a point that meets its bound, or the best schedule that the time allows and an
interval."""

from __future__ import annotations

import time
from fractions import Fraction
from functools import partial
from math import ceil

from synth.model.bitwise_equality import same_bits
from synth.model.frontier import LowerBound, Open, Point
from synth.model.outcome import Sat
from synth.model.rational import show
from synth.model.schedule import Problem
from synth.pareto.meet_bound import aim, least_multiple
from synth.pareto.queries import answer, ask, begin, point
from synth.pareto.sweep_state import Ledger

CLOSE_ON_TREES = 0.005  # how near to the bound the fractions of trees are that it settles for, where trees are searched
NEAR_CHUNKS = 3000  # of all units together, for a schedule near a bound that needs more
SEARCH_SECONDS = 20.0  # seconds of work spent on a good schedule where none that meets the bound is in sight
SEARCH_SLICE = 9.0  # of one query of that search
CLOSE, WORTH = Fraction(1, 20), Fraction(1, 80)  # how near to the bound it ends, how much better the next must be
SEARCH_CHUNKS = 12


def close(ledger: Ledger, steps: int, bound: LowerBound) -> None:
    """Find a schedule that meets the bound at `steps`, or the best one that the time allows; keep it, or leave an
    interval."""
    began, worked = time.monotonic(), ledger.work
    resumed = next((p for p in ledger.resumed() if p.steps == steps), None) or seed(ledger, steps, bound)
    if resumed and short(ledger, resumed, bound) and resumed.bandwidth == bound.value:
        ledger.keep(Point(resumed.schedule, bound, "optimal", resumed.construction, resumed.same_bits, resumed.seconds))
        return
    found, why, bound = aim(ledger, steps, bound, worked + ledger.point_seconds())
    if found is None and ledger.best is not None and bound.value >= ledger.best:
        ledger.bounds.append((steps, bound))
        return
    if found is not None:
        ledger.keep(point(found, bound, "optimal", began))
        return
    if resumed:
        ledger.keep(resumed)
    if not ledger.out_of_time and ledger.some:
        _near(ledger, steps, bound, began)
    if not ledger.out_of_time:
        _search(ledger, steps, bound, ledger.work + min(SEARCH_SECONDS * ledger.longer, ledger.point_seconds()), began)
    reached = [p.bandwidth for p in ledger.points if p.steps <= steps]
    if not any(p.steps == steps and p.status == "optimal" for p in ledger.points):
        reason = "time" if ledger.out_of_time else why
        ledger.leave(Open(steps, bound.value, min(reached, default=None), reason, bound.certificate))
        ledger.tell("open", f"S={steps}: open, at least {show(bound.value)}", steps, bound.value)


def seed(ledger: Ledger, steps: int, bound: LowerBound) -> Point | None:
    """The best of the seeds with so many steps."""
    able = [(s.bandwidth, s.chunks, name, s) for name, s in ledger.seeds if len(s.steps) == steps and ledger.allowed(s)]
    if not able:
        return None
    bandwidth, _, name, schedule = min(able, key=lambda item: item[:2])
    return Point(schedule, bound, "optimal" if bandwidth == bound.value else "best-known", name, same_bits(schedule))


def short(ledger: Ledger, found: Point, bound: LowerBound) -> bool:
    """Whether a point that meets the bound has few enough chunks to be taken at once: a solver's have the fewest."""
    seeded = any(found.schedule is schedule for _, schedule in ledger.seeds)
    return not seeded or found.chunks <= 2 * bound.value.denominator * least_multiple(found.steps, bound)


def _near(ledger: Ledger, steps: int, bound: LowerBound, began: float) -> None:
    """A schedule on trees that is near the bound, where there is one and it improves on what is known."""
    from synth.encodings.tree_packing import search

    ledger.tell("query", f"S={steps}: whole chunks on trees, near the bound", steps, bound.value)
    most = min(ledger.options.max_chunks or NEAR_CHUNKS, NEAR_CHUNKS // ledger.collective.units)
    away = 0.0 if ledger.few else CLOSE_ON_TREES
    if ledger.best is not None:
        away = min(away, float(ledger.best / bound.value - 1) / 2)  # or it would not improve on that
    question = partial(search.near, close=away)
    verdict = answer(ledger, begin(ledger, question, steps, bound, most), steps, bound)
    if (
        isinstance(verdict, Sat)
        and ledger.allowed(verdict.schedule)
        and (ledger.best is None or verdict.schedule.bandwidth < ledger.best)
    ):
        ledger.keep(point(verdict, bound, "best-known", began))


def _search(ledger: Ledger, steps: int, bound: LowerBound, until: float, began: float) -> None:
    """Good schedules where none meets the bound: ever better ratios R/C, by growing C, until one is close."""
    ratios: dict[Fraction, tuple[int, int]] = {}
    for chunks in range(1, min(SEARCH_CHUNKS, ledger.options.max_chunks or SEARCH_CHUNKS) + 1):
        least = max(steps, ceil(bound.value * chunks))
        for rounds in range(least, least + 2 + (chunks <= 2) * steps):
            if rounds <= ledger.options.most_rounds(steps):
                ratios.setdefault(Fraction(rounds, chunks), (chunks, rounds))
    enough = bound.value * (1 + CLOSE)
    for ratio, (chunks, rounds) in sorted(ratios.items(), key=lambda item: (item[1], item[0])):
        left = ledger.left(until)
        if left <= 0 or (ledger.best is not None and ledger.best <= enough):
            break
        if ratio > bound.value and (ledger.best is None or ratio <= ledger.best * (1 - WORTH)):
            problem = Problem(ledger.network, ledger.collective, chunks, steps, rounds)
            verdict = ask(ledger, problem, min(SEARCH_SLICE * ledger.longer, left))
            if isinstance(verdict, Sat):
                ledger.keep(point(verdict, bound, "best-known", began))
