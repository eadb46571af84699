"""Search for a schedule that meets a bound p/q: C = q·m chunks in R = p·m rounds for m = 1, 2, ...

Trees and solvers take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, lcm

from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.outcome import Sat, Unknown
from synth.model.rational import counted, show
from synth.model.schedule import Problem, problem_fingerprint
from synth.model.topology import Network
from synth.pareto import prefetched_bounds
from synth.pareto.queries import begin_tree_query, call_within_limit, finish_tree_query, query_portfolio
from synth.pareto.sweep_state import SweepState
from synth.solvers.processes.deadline import Deadline
from synth.solvers.processes.fork_server import ProcessJob


@dataclass(frozen=True)
class MeetBoundSettings:
    """Limits of the search for schedules that meet a bound.

    Attributes:
        multiples: The m that are tried, beyond the least one. Some bounds are met only by whole rounds of a
            larger m.
        first_slices: Seconds of each processor for each m, in the first round.
        later_slices: The same in later rounds, when nothing else is left to try.
        quick_slice: Seconds for the first m where trees are priced exactly: trees find sooner what a solver
            does not find at once.
        quick_chunks: Maximum number of chunks of all units together for this first query.
        quick_each: Number of chunks of one unit from which trees come first where they are priced exactly.
        suggested_slice: Seconds for the m that an optimal fractional packing of trees suggests.
        few_chunks: Maximum number of chunks of all units together for the later rounds.
        most_chunks: Maximum number of chunks of all units together for any query. A bound that needs more is
            not aimed at.
        most_on_trees: The same where trees are priced exactly. Many chunks hardly take more work there, but
            make long files.
    """

    multiples: tuple[int, ...] = (0, 1, 2, 3, 5)
    first_slices: tuple[float, ...] = (4.0, 2.0, 4.0, 2.0, 2.0)
    later_slices: tuple[tuple, ...] = ((14.0, 4.0, 6.0, 4.0, 4.0), (30.0, 10.0, 10.0, 10.0, 10.0))
    quick_slice: float = 0.3
    quick_chunks: int = 300
    quick_each: int = 16
    suggested_slice: float = 8.0
    few_chunks: int = 1000
    most_chunks: int = 3000
    most_on_trees: int = 30_000


SETTINGS = MeetBoundSettings()


def meet_bound(
    state: SweepState, steps: int, bound: LowerBound, work_limit: float
) -> tuple[Sat | None, str, LowerBound]:
    """Search for a schedule of `steps` steps that meets `bound`; return (schedule or None, reason why not, bound).

    The returned bound is `bound`, or a higher one where no schedule meets that. The schedule meets the returned bound.
    The search ends when `state.work` is `work_limit`, in CPU seconds.
    """
    from synth.encodings.tree_packing import search as trees

    exact_pricing, tree_search, units, beside = state.exact_pricing, state.tree_search, state.collective.units, None
    max_chunks = (
        SETTINGS.most_chunks
        if not exact_pricing
        else max(SETTINGS.most_on_trees, (state.options.max_chunks or 0) * units)
    )
    if bound.value.denominator * units > max_chunks:
        needed = _counted(bound.value.denominator, units)
        return (
            None,
            f"a schedule at the bound has {needed} or more, above the {max_chunks} in all that are tried",
            bound,
        )
    first = (SETTINGS.quick_slice,) if exact_pricing else SETTINGS.first_slices[:1]
    many = tree_search and bound.value.denominator * units > SETTINGS.quick_chunks
    if many or (exact_pricing and bound.value.denominator >= SETTINGS.quick_each):
        first = ()
    if tree_search and not exact_pricing and state.options.jobs > 1 and not state.options.deterministic:
        beside = begin_tree_query(state, trees.meet, steps, bound, _max_chunks_on_trees(state, steps, bound))
    verdict, why = _query_multiples(state, steps, bound, first, work_limit, beside=beside)
    reached = False
    if verdict is not None or (state.seconds_left(work_limit) <= 0 and not (beside and beside.result)):
        prefetched_bounds.end_job(beside)
    elif tree_search:
        verdict, reached, why = _on_trees(state, steps, bound, beside)
    else:
        reached, multiples = _suggested(
            state, steps, bound, min(SETTINGS.suggested_slice, state.seconds_left(work_limit))
        )
        verdict, why = _query_multiples(state, steps, bound, (SETTINGS.suggested_slice,), work_limit, multiples)
    if verdict is None and state.seconds_left(work_limit) > 0:
        higher = None if reached else _tree_bound(state, steps, bound, work_limit)
        if higher is not None:
            bound = higher
            if state.best is not None and bound.value >= state.best:
                return None, why, bound
            if tree_search and bound.value.denominator * units <= max_chunks:
                verdict, reached, why = _on_trees(state, steps, bound)
        if verdict is None:
            again, start = (0 if higher is not None else 1), least_multiple(steps, bound)
            multiples = [start + more for more in SETTINGS.multiples[again:]]
            verdict, why = _query_multiples(state, steps, bound, SETTINGS.first_slices[again:], work_limit, multiples)
    effort = bound.value.denominator * units <= SETTINGS.few_chunks
    for slices in SETTINGS.later_slices if effort else ():
        if verdict is None and state.seconds_left(work_limit) > 0:
            verdict, why = _query_multiples(state, steps, bound, slices, work_limit)
    return verdict, why, bound


def _counted(chunks: int, units: int) -> str:
    """Return "12 chunks" for one unit, "12 chunks of each of 56 units" for several."""
    each = f" of each of {units} units" if units > 1 else ""
    return f"{counted(chunks, 'chunk')}{each}"


def least_multiple(steps: int, bound: LowerBound) -> int:
    """Return the least m for which R = p·m rounds, where p/q is `bound`, are one or more for each of `steps` steps."""
    return max(1, ceil(Fraction(steps, bound.value.numerator)))


def _query_multiples(
    state: SweepState,
    steps: int,
    bound: LowerBound,
    slices: Sequence[float],
    work_limit: float,
    multiples: Sequence[int] | None = None,
    beside: ProcessJob | None = None,
) -> tuple[Sat | None, str]:
    """Query the portfolio for schedules with R/C equal to the bound; return the first one, and why there is none.

    Each of `multiples` (m with C = q·m and R = p·m) has its slice of seconds. A schedule of the job `beside` ends the
    queries.
    """
    p, q = bound.value.numerator, bound.value.denominator
    start, why = least_multiple(steps, bound), "gave-up"
    if multiples is None:
        multiples = [start + more for more in SETTINGS.multiples]
    for m, seconds in zip(multiples, slices, strict=False):
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


def _on_trees(
    state: SweepState, steps: int, bound: LowerBound, job: ProcessJob | None = None
) -> tuple[Sat | None, bool, str]:
    """Return (schedule on trees that meets the bound or None, True where fractions of trees meet it, reason).

    Where fractions of trees meet the bound, trees prove no higher one. `job`: this query, where it has begun before.
    """
    from synth.encodings.tree_packing import search as trees

    state.tell("query", f"S={steps}: whole chunks on trees", steps, bound.value)
    if job is None:
        job = begin_tree_query(state, trees.meet, steps, bound, _max_chunks_on_trees(state, steps, bound))
    verdict = finish_tree_query(state, job, steps, bound)
    reached = float(verdict.cost.detail.get("lp", float("inf"))) <= float(bound.value) * (1 + 1e-6)
    if isinstance(verdict, Sat):
        return verdict, reached, ""
    return None, reached, verdict.reason


def _max_chunks_on_trees(state: SweepState, steps: int, bound: LowerBound) -> int:
    """Return the maximum chunks of a unit on trees.

    More chunks would make long files, or would need more rounds than are allowed to meet the bound.
    """
    max_chunks = state.options.max_chunks or SETTINGS.most_on_trees // state.collective.units
    return int(min(max_chunks, state.options.max_rounds(steps) / bound.value))


def _suggested(state: SweepState, steps: int, bound: LowerBound, seconds: float) -> tuple[bool, list[int]]:
    """Return (True where a fractional packing of trees meets the bound, the m with whole rounds in every step).

    Where a packing meets the bound, trees prove no higher one.
    """
    packing = call_within_limit(
        state, _fractional_packing, *state.forwards(), steps, bound.value, seconds, state.options.seed
    )
    if packing is None or isinstance(packing, Unknown):
        return False, []
    q = bound.value.denominator
    m = lcm(q, *(Fraction(r).limit_denominator(64 * q).denominator for r in packing)) // q
    return True, [m] if q * m * state.collective.units <= SETTINGS.most_chunks else []


def _fractional_packing(
    network: Network, collective: Collective, steps: int, bound: Fraction, seconds: float, seed: int
) -> list[float] | None:
    """Return the rounds of each step of a fractional packing of trees that meets `bound`, or None.

    `seconds`: CPU seconds of the search.
    """
    from synth.bounds.trees.column_generation import FoldedProblem, generate
    from synth.model import symmetry

    folded = FoldedProblem(network, collective, steps, symmetry.generators(network, collective))
    columns = generate(folded, float(bound), deadline=Deadline.after(seconds, cpu=True), seed=seed)
    if columns is None or columns.value > float(bound) * (1 + 1e-6):
        return None
    return [float(r) for r in columns.rounds]


def _tree_bound(state: SweepState, steps: int, bound: LowerBound, work_limit: float) -> LowerBound | None:
    """Return a bound by trees that is higher than `bound`, or None."""
    from synth.bounds.trees import tree_bound as trees

    network, collective = state.forwards()
    seconds = max(2.0, state.seconds_left(work_limit) / 2)
    state.tell("query", f"S={steps}: tree bound", steps, bound.value)
    higher = call_within_limit(state, trees.tree_bound, network, collective, steps, state.budget(seconds))
    if higher is None or isinstance(higher, Unknown) or higher.value <= bound.value:
        return None
    if state.collective.combining:
        problem = problem_fingerprint(state.network, state.collective)
        higher = replace(higher, certificate=_of_reversed_problem(higher.certificate, problem))
    state.tell("bound", f"S={steps}: at least {show(higher.value)} by trees", steps, higher.value)
    return higher


def _of_reversed_problem(certificate: dict, problem: str) -> dict:
    """Return a certificate about the time reversal of the problem with this fingerprint as one about the problem.

    Links are named as the problem's machine has them.
    """
    prices = []
    for kind, *row in certificate["prices"]:
        if kind == "link":
            src, dst, *rest = row
            via = [rest.pop(0)[::-1]] if rest and isinstance(rest[0], list) else []
            row = [dst, src, *via, *rest]
        prices.append([kind, *row])
    return certificate | {"reversed": True, "problem": problem, "prices": prices}
