"""A schedule that meets a bound p/q: C = q·m chunks and R = p·m rounds for m = 1, 2, ..., on trees and by solvers in
turn."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, lcm

from synth.model.frontier import LowerBound
from synth.model.outcome import Sat, Unknown
from synth.model.rational import counted, show
from synth.model.schedule import Problem
from synth.pareto import prefetched_bounds
from synth.pareto.queries import answer, ask, begin
from synth.pareto.sweep_state import Ledger
from synth.solvers.processes.fork_server import Job

MULTIPLES = (
    0,
    1,
    2,
    3,
    5,
)  # beyond the least m: C = q·m, R = p·m; some bounds are met only by whole rounds of a larger m
FIRST_SLICES = (4.0, 2.0, 4.0, 2.0, 2.0)  # seconds of each processor for each of them, at first
LATER_SLICES = ((14.0, 4.0, 6.0, 4.0, 4.0), (30.0, 10.0, 10.0, 10.0, 10.0))  # and when nothing else is left to try
QUICK_SLICE = 0.3  # for the first where trees are priced exactly: what a solver does not find at once trees find sooner
QUICK_CHUNKS = 300  # of all units together: and only up to here
QUICK_EACH = 16  # of one unit: and only below, where trees are priced exactly
SUGGESTED_SLICE = 8.0  # for the one that an optimal packing of trees suggests
FEW_CHUNKS = 1000  # of all units together: above, a bound is aimed at but not insisted on
MOST_CHUNKS = 3000  # of all units together: a bound that needs more is not aimed at
MOST_ON_TREES = 30_000  # where trees are priced exactly: many chunks take hardly more work, but long files


def aim(ledger: Ledger, steps: int, bound: LowerBound, until: float) -> tuple[Sat | None, str, LowerBound]:
    """A schedule that meets the bound, or else a higher bound and a schedule that meets that; why there is none.

    Ends when the ledger's `work` is `until`.
    """
    from synth.encodings.tree_packing import search as trees

    few, some, units, beside = ledger.few, ledger.some, ledger.collective.units, None
    most = MOST_CHUNKS if not few else max(MOST_ON_TREES, (ledger.options.max_chunks or 0) * units)
    if bound.value.denominator * units > most:
        return None, f"{_needed(bound.value.denominator, units)} would meet the bound, more than are tried", bound
    first = (QUICK_SLICE,) if few else FIRST_SLICES[:1]
    many = some and bound.value.denominator * units > QUICK_CHUNKS
    if many or (few and bound.value.denominator >= QUICK_EACH):
        first = ()
    if some and not few and ledger.options.jobs > 1 and not ledger.options.deterministic:
        beside = begin(ledger, trees.meet, steps, bound, _most_on_trees(ledger, steps, bound))
    found, why = _meet(ledger, steps, bound, first, until, beside=beside)
    reached = False
    if found is not None or (ledger.left(until) <= 0 and not (beside and beside.result)):
        prefetched_bounds.drop(beside)
    elif some:
        found, reached, why = _on_trees(ledger, steps, bound, beside)
    else:
        reached, multiples = _suggested(ledger, steps, bound, min(SUGGESTED_SLICE, ledger.left(until)))
        found, why = _meet(ledger, steps, bound, (SUGGESTED_SLICE,), until, multiples)
    if found is None and ledger.left(until) > 0:
        higher = None if reached else _tree_bound(ledger, steps, bound, until)
        if higher is not None:
            bound = higher
            if ledger.best is not None and bound.value >= ledger.best:
                return None, why, bound
            if some and bound.value.denominator * units <= most:
                found, reached, why = _on_trees(ledger, steps, bound)
        if found is None:
            again, start = (0 if higher is not None else 1), least_multiple(steps, bound)
            found, why = _meet(
                ledger, steps, bound, FIRST_SLICES[again:], until, [start + more for more in MULTIPLES[again:]]
            )
    effort = bound.value.denominator * units <= FEW_CHUNKS
    for slices in LATER_SLICES if effort else ():
        if found is None and ledger.left(until) > 0:
            found, why = _meet(ledger, steps, bound, slices, until)
    return found, why, bound


def _needed(chunks: int, units: int) -> str:
    """ "12 chunks at the least", of one unit; of several "12 chunks of each of 56 units at the least"."""
    return f"{counted(chunks, 'chunk')}{f' of each of {units} units' if units > 1 else ''} at the least"


def least_multiple(steps: int, bound: LowerBound) -> int:
    """The least m with at least a round for every step."""
    return max(1, ceil(Fraction(steps, bound.value.numerator)))


def _meet(
    ledger: Ledger,
    steps: int,
    bound: LowerBound,
    slices: Sequence[float],
    until: float,
    multiples: Sequence[int] | None = None,
    beside: Job | None = None,
) -> tuple[Sat | None, str]:
    """A schedule with R/C equal to the bound: several chunk counts that allow it, each for its slice of seconds.

    Until the job `beside` has one.
    """
    p, q = bound.value.numerator, bound.value.denominator
    start, why = least_multiple(steps, bound), "gave-up"
    for m, seconds in zip(
        multiples if multiples is not None else [start + more for more in MULTIPLES], slices, strict=False
    ):
        if q * m * ledger.collective.units > MOST_CHUNKS and m > start:
            return None, why
        most = ledger.options.max_chunks
        if most is not None and q * m > most:
            return None, f"chunks are limited to {most}, {q * m} would be next"
        if p * m > ledger.options.most_rounds(steps):
            return None, f"rounds are limited to {ledger.options.most_rounds(steps)}, {p * m} would be next"
        left = min(seconds * ledger.longer, ledger.left(until))
        if left <= 0:
            break
        verdict = ask(ledger, Problem(ledger.network, ledger.collective, q * m, steps, p * m), left, beside)
        if isinstance(verdict, Sat):
            return verdict, ""
        if isinstance(verdict, Unknown):
            why = verdict.reason
    return None, why


def _on_trees(ledger: Ledger, steps: int, bound: LowerBound, job: Job | None = None) -> tuple[Sat | None, bool, str]:
    """A schedule on trees that meets the bound, and whether fractions of trees do: then trees prove no more than it.

    `job` is that question where it has been asked before.
    """
    from synth.encodings.tree_packing import search as trees

    ledger.tell("query", f"S={steps}: whole chunks on trees", steps, bound.value)
    verdict = answer(
        ledger, job or begin(ledger, trees.meet, steps, bound, _most_on_trees(ledger, steps, bound)), steps, bound
    )
    reached = float(verdict.cost.detail.get("lp", float("inf"))) <= float(bound.value) * (1 + 1e-6)
    return (verdict, reached, "") if isinstance(verdict, Sat) else (None, reached, verdict.reason)


def _most_on_trees(ledger: Ledger, steps: int, bound: LowerBound) -> int:
    """The most chunks of a unit: more would make long files, or take more rounds than are allowed to meet the bound."""
    most = ledger.options.max_chunks or MOST_ON_TREES // ledger.collective.units
    return int(min(most, ledger.options.most_rounds(steps) / bound.value))


def _suggested(ledger: Ledger, steps: int, bound: LowerBound, seconds: float) -> tuple[bool, list[int]]:
    """Whether a fractional packing of trees meets the bound, and the m at which it has whole rounds in every step.

    Where one does, trees prove no more than the bound.
    """
    from synth.bounds.trees.column_generation import generate
    from synth.model import symmetry

    network, collective = ledger.forwards()
    group = symmetry.generators(network, collective)
    columns = generate(
        network, collective, steps, group, target=float(bound.value), seconds=seconds, seed=ledger.options.seed
    )
    if columns is None or columns.value > float(bound.value) * (1 + 1e-6):
        return False, []
    q = bound.value.denominator
    m = lcm(q, *(Fraction(r).limit_denominator(64 * q).denominator for r in columns.rounds)) // q
    return True, [m] if q * m * ledger.collective.units <= MOST_CHUNKS else []


def _tree_bound(ledger: Ledger, steps: int, bound: LowerBound, until: float) -> LowerBound | None:
    """A bound by trees that is higher than `bound`, where there is one."""
    from synth.bounds.trees import tree_bound as trees

    network, collective = ledger.forwards()
    left = max(2.0, ledger.left(until) / 2)
    ledger.tell("query", f"S={steps}: tree bound", steps, bound.value)
    found = trees.tree_bound(network, collective, steps, ledger.budget(left))
    if found is None or found.value <= bound.value:
        return None
    if ledger.collective.combining:
        found = LowerBound(found.value, found.certificate | {"reversed": True}, found.scope)
    ledger.tell("bound", f"S={steps}: at least {show(found.value)} by trees", steps, found.value)
    return found
