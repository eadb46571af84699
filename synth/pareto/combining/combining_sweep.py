"""The sweep of combining collectives that are no time reversal of a copying one: allreduce, scan, custom ones."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from synth.model.bitwise_equality import same_bits
from synth.model.collective import Collective
from synth.model.frontier import LowerBound, Open, Point
from synth.model.topology import Network
from synth.pareto import notes
from synth.pareto.combining.bounds_over_steps import LIMITED
from synth.pareto.sweep_state import SweepState

# Wall seconds of bounds and searches without a time limit, where there are so many ranks that neither ends by itself.
DEFAULT_SECONDS = 25.0
SPENT = "the default effort ended its search"
# Ranks up to which the search for a collective that no construction serves ends by itself.
FEW_RANKS = 16
SECONDS_PER_SEND = 4e-6  # about, to enter one send of a known point; 1e-6 on an idle machine


def has_no_end(network: Network, collective: Collective) -> bool:
    """Return True for many ranks and sums that are no reversal of a copying collective and differ from rank to rank."""
    everyone = frozenset(range(network.ranks))
    alike = collective.wants is None and all(x == everyone for x in (*collective.pre, *collective.post))
    return collective.combining and not collective.reversible and not alike and network.ranks > FEW_RANKS


def sweep(state: SweepState) -> None:
    """Sweep over the step counts of a combining collective, and enter points, bounds and open intervals into `state`.

    At the end `state.complete` and `state.last` are set.
    """
    from synth.pareto.combining import combining_frontier

    options = state.options
    known = _known(state)
    budget = state.budget(None)
    remaining_seconds = budget.deadline.remaining()
    if budget.deadline.limited:  # known points are replayed within the time limit
        remaining_seconds -= min(remaining_seconds / 2, _replay_seconds(known))
    elif has_no_end(state.network, state.collective) and not budget.deterministic:
        remaining_seconds = DEFAULT_SECONDS
    budget = replace(budget, deadline=budget.deadline.within(remaining_seconds))
    items = combining_frontier.points(
        state.network, state.collective, budget=budget, max_steps=options.max_steps,
        same_bits=options.same_bits, known=known, first_bound=state.quick_bound,
        progress=lambda text: state.tell("query", text),
    )  # fmt: skip
    returned: set[int | None] = set()  # numbers of steps of open intervals so far
    for item in items:
        match item:
            case str():
                limited = state.options.time_limit is not None
                state.notes += (item if limited else item.replace(LIMITED, SPENT),)
                continue
            case Point():
                if not state.add_point(item):
                    best = min((p.rounds_per_chunk for p in state.points if p.steps <= item.steps), default=None)
                    state.add_open(Open(item.steps, item.bound.value, best, "gave-up", item.bound.certificate))
                about: int | None = item.steps
            case Open():
                state.add_open(item)
                about = item.steps
            case (about, bound):
                state.bounds = [(s, b) for s, b in state.bounds if s != about] + [(about, bound)]
        last = state.open[-1:] if isinstance(item, Open) else []
        if about in returned:  # the newest item of an S replaces the others
            state.open = [o for o in state.open if o.steps != about] + last
        if last:
            returned.add(about)
    state.open.sort(key=lambda interval: interval.steps)
    floor = next((b for s, b in state.bounds if s is None), None)
    closed = floor is not None and state.best == floor.value
    state.notes = notes.drop_unproven_bound(state.notes, state.best, None if floor is None else floor.value)
    points = state.frontier().points
    state.complete = not state.open and all(p.status == "optimal" for p in points) and bool(points)
    seen = {s for s, _ in state.bounds if s}
    seen.update(p.steps for p in state.points)
    seen.update(o.steps for o in state.open)
    state.last = None if closed else max(seen, default=options.max_steps)


def _replay_seconds(known: dict[int, Point]) -> float:
    """Return the seconds, about, that it takes to enter known points."""
    return SECONDS_PER_SEND * sum(len(step.sends) for point in known.values() for step in point.schedule.steps)


def _known(state: SweepState) -> dict[int, Point]:
    """Return the best points of an earlier run and of methods without a solver, by S. They have no bounds yet.

    Those that another one dominates are left out; one of the same bits only by another of the same bits.
    """
    unbounded = LowerBound(Fraction(0), {})
    seeds = [Point.of(s, unbounded, "best-known", name, same_bits(s)) for name, s in state.seeds if state.allowed(s)]
    points: dict[int, Point] = {}
    for point in sorted([*seeds, *state.resumed()], key=lambda p: (p.steps, p.rounds_per_chunk, not p.same_bits)):
        if point.steps in points:
            continue
        rivals = [p for p in points.values() if p.same_bits or not point.same_bits]
        if all(point.rounds_per_chunk < rival.rounds_per_chunk for rival in rivals):
            points[point.steps] = point
    return points
