"""The sweep of collectives that combine and are no time reversal: allreduce, scan, custom ones (engines in
`allreduce`)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from synth.model.bitwise_equality import same_bits
from synth.model.frontier import LowerBound, Open, Point
from synth.pareto import bound_notes
from synth.pareto.combining.bounds_over_steps import LIMITED
from synth.pareto.sweep_state import Ledger

REPLAYED = 4e-5  # seconds for a send, or a route of the network that a document lists, about
EFFORT = (
    25.0  # wall seconds of bounds and searches where nobody limited them and there are so many ranks that neither ends
)
SPENT = "the default effort ended its search"


def sweep(ledger: Ledger) -> None:
    """Enters points, bounds and intervals as they come, and at the end whether the frontier is complete and how far it
    goes."""
    from synth.encodings.prefix_planning import chunk_assembly
    from synth.pareto.combining import combining_frontier

    options = ledger.options
    known = _known(ledger)
    budget = ledger.budget(None)
    if (
        budget.seconds is None
        and chunk_assembly.applies(ledger.network, ledger.collective)
        and not budget.deterministic
    ):
        budget = replace(budget, seconds=EFFORT)
    elif budget.seconds is not None:  # what is known is replayed in time
        budget = replace(budget, seconds=budget.seconds - min(budget.seconds / 2, _replaying(ledger, known)))
    found = combining_frontier.points(
        ledger.network, ledger.collective, budget=budget, max_steps=options.max_steps,
        same_bits=options.same_bits, known=known, progress=lambda text: ledger.tell("query", text),
    )  # fmt: skip
    for item in found:
        match item:
            case str():
                ledger.notes += (item if ledger.options.time_limit is not None else item.replace(LIMITED, SPENT),)
                continue
            case Point():
                ledger.keep(item)
                about: int | None = item.steps
            case Open():
                ledger.leave(item)
                about = item.steps
            case (about, bound):
                ledger.bounds = [(s, b) for s, b in ledger.bounds if s != about] + [(about, bound)]
                if about is None:
                    ledger.log.append({"kind": "floor", "bound": bound.to_json()})
        last = ledger.open[-1:] if isinstance(item, Open) else []
        ledger.open = [
            o for o in ledger.open if o.steps != about
        ] + last  # what is said of an S replaces what was said before
    ledger.open.sort(key=lambda interval: interval.steps)
    floor = next((b for s, b in ledger.bounds if s is None), None)
    closed = floor is not None and ledger.best == floor.value
    ledger.notes = bound_notes.settled(ledger.notes, ledger.best, None if floor is None else floor.value)
    points = ledger.frontier().points
    ledger.complete = not ledger.open and all(p.status == "optimal" for p in points) and bool(points)
    seen = [*(s for s, _ in ledger.bounds if s), *(p.steps for p in ledger.points), *(o.steps for o in ledger.open)]
    ledger.last = None if closed else max(seen, default=options.max_steps)


def _replaying(ledger: Ledger, known: dict[int, Point]) -> float:
    """About the seconds that it takes to enter known points."""
    sends = sum(len(step.sends) for point in known.values() for step in point.schedule.steps)
    return REPLAYED * (sends + len(known) * len(ledger.network.routes))


def _known(ledger: Ledger) -> dict[int, Point]:
    """The best points of an earlier run and of methods that take no solver, by S; their bounds are still to come."""
    none = LowerBound(Fraction(0), {})
    seeds = [Point(s, none, "best-known", name, same_bits(s)) for name, s in ledger.seeds if ledger.allowed(s)]
    found: dict[int, Point] = {}
    for point in [*seeds, *ledger.resumed()]:
        if point.steps not in found or point.bandwidth < found[point.steps].bandwidth:
            found[point.steps] = point
    return found
