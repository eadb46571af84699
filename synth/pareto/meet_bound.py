"""Search for a schedule that meets a bound p/q: C = q·m chunks in R = p·m rounds for m = 1, 2, ...

Trees and solvers take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from synth.model.frontier import LowerBound
from synth.model.outcome import Sat, Unknown
from synth.model.rational import counted
from synth.model.schedule import Problem
from synth.pareto import prefetched_bounds
from synth.pareto.queries import begin_tree_query, finish_tree_query, query_portfolio
from synth.pareto.sweep_state import SweepState
from synth.solvers.pool import ProcessJob


@dataclass(frozen=True)
class MeetBoundSettings:
    """Limits of the search for schedules that meet a bound.

    Attributes:
        multiples: The m that are tried, beyond the least one. Some bounds are met only by whole rounds of a
            larger m.
        slices: Seconds of each processor for each m.
        quick_slice: Seconds for the first m where trees are priced exactly: trees find sooner what a solver
            does not find at once.
        quick_chunks: Maximum number of chunks of all units together for this first query.
        quick_each: Number of chunks of one unit from which trees come first where they are priced exactly.
        most_chunks: Maximum number of chunks of all units together for any query. A bound that needs more is
            not aimed at.
        most_on_trees: The same where trees are priced exactly. Many chunks hardly take more work there, but
            make long files.
    """

    multiples: tuple[int, ...] = (0, 1, 2, 3, 5)
    slices: tuple[float, ...] = (4.0, 2.0, 4.0, 2.0, 2.0)
    quick_slice: float = 0.3
    quick_chunks: int = 300
    quick_each: int = 16
    most_chunks: int = 3000
    most_on_trees: int = 30_000


SETTINGS = MeetBoundSettings()


def meet_bound(state: SweepState, steps: int, bound: LowerBound, work_limit: float) -> tuple[Sat | None, str]:
    """Search for a schedule of `steps` steps that meets `bound`; return (schedule or None, reason why not).

    The search ends when `state.work` is `work_limit`, in CPU seconds.
    """
    from synth.encodings.tree_packing import search as trees

    exact_pricing, tree_search, units = state.exact_pricing, state.tree_search, state.collective.units
    max_chunks = (
        SETTINGS.most_chunks
        if not exact_pricing
        else max(SETTINGS.most_on_trees, (state.options.max_chunks or 0) * units)
    )
    if bound.value.denominator * units > max_chunks:
        needed = _counted(bound.value.denominator, units)
        return None, f"a schedule at the bound has {needed} or more, above the {max_chunks} in all that are tried"

    # a short query for the fewest chunks, with trees beside it where another processor is free
    first = (SETTINGS.quick_slice,) if exact_pricing else SETTINGS.slices[:1]
    many = tree_search and bound.value.denominator * units > SETTINGS.quick_chunks
    if many or (exact_pricing and bound.value.denominator >= SETTINGS.quick_each):
        first = ()
    beside = None
    if tree_search and not exact_pricing and state.options.jobs > 1 and not state.options.deterministic:
        beside = begin_tree_query(state, trees.meet, steps, bound, _max_chunks_on_trees(state, steps, bound))
    verdict, why = _query_multiples(state, steps, bound, first, work_limit, beside=beside)

    # then trees, and longer queries for one multiple after the other
    if verdict is not None or (state.seconds_left(work_limit) <= 0 and not (beside and beside.result)):
        prefetched_bounds.end_job(beside)
    elif tree_search:
        state.tell("query", f"S={steps}: whole chunks on trees", steps, bound.value)
        job = beside or begin_tree_query(state, trees.meet, steps, bound, _max_chunks_on_trees(state, steps, bound))
        answer = finish_tree_query(state, job, steps, bound)
        verdict, why = (answer, "") if isinstance(answer, Sat) else (None, answer.reason)
    if verdict is None and state.seconds_left(work_limit) > 0:
        verdict, why = _query_multiples(state, steps, bound, SETTINGS.slices[1:], work_limit, SETTINGS.multiples[1:])
    return verdict, why


def _counted(chunks: int, units: int) -> str:
    """Return "12 chunks" for one unit, "12 chunks of each of 56 units" for several."""
    each = f" of each of {units} units" if units > 1 else ""
    return f"{counted(chunks, 'chunk')}{each}"


def least_multiple(steps: int, bound: LowerBound) -> int:
    """Return the least m for which R = p·m rounds, where p/q is `bound`, are one or more for each of `steps` steps."""
    return max(1, ceil(Fraction(steps, bound.value.numerator)))


def _query_multiples(
    state: SweepState, steps: int, bound: LowerBound, slices: Sequence[float], work_limit: float,
    multiples: Sequence[int] = SETTINGS.multiples, beside: ProcessJob | None = None,
) -> tuple[Sat | None, str]:  # fmt: skip
    """Query the portfolio for schedules with R/C equal to the bound; return the first one, and why there is none.

    Each of `multiples` (m beyond the least, with C = q·m and R = p·m) has its slice of seconds. A schedule of the job
    `beside` ends the queries.
    """
    p, q = bound.value.numerator, bound.value.denominator
    start, why = least_multiple(steps, bound), "gave-up"
    for more, seconds in zip(multiples, slices, strict=False):
        m = start + more
        if q * m * state.collective.units > SETTINGS.most_chunks and m > start:
            return None, why
        max_chunks = state.options.max_chunks
        if max_chunks is not None and q * m > max_chunks:
            return None, f"chunks are limited to {max_chunks}, {q * m} would be next"
        if p * m > state.options.max_rounds(steps):
            return None, f"rounds are limited to {state.options.max_rounds(steps)}, {p * m} would be next"
        remaining_seconds = min(seconds * state.longer, state.seconds_left(work_limit))
        if remaining_seconds <= 0:
            break
        problem = Problem(state.network, state.collective, q * m, steps, p * m)
        verdict = query_portfolio(state, problem, remaining_seconds, beside)
        if isinstance(verdict, Sat):
            return verdict, ""
        if isinstance(verdict, Unknown):
            why = verdict.reason
    return None, why


def _max_chunks_on_trees(state: SweepState, steps: int, bound: LowerBound) -> int:
    """Return the maximum chunks of a unit on trees.

    More chunks would make long files, or would need more rounds than are allowed to meet the bound.
    """
    max_chunks = state.options.max_chunks or SETTINGS.most_on_trees // state.collective.units
    return int(min(max_chunks, state.options.max_rounds(steps) / bound.value))
