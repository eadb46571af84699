"""Flow methods as an engine: forests, flows and compositions, whose schedules are written out send by send.

Exact synthesis proves the latency end. Forests and flows reach towards the bandwidth end in seconds. Their schedules
are replayed like any other, and take the bounds that exact synthesis computed. So each point says how far it may be
from the best, and an interval whose bound a flow point meets is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.encodings.engine import FrontierProblem
from synth.errors import InfeasibleError, SynthError, UndecidedError
from synth.model.collective import collective
from synth.model.frontier import LowerBound, Point
from synth.model.rational import show
from synth.model.scale_collectives import COLLECTIVES
from synth.pareto.found import Found
from synth.pareto.written_points import FEW_SENDS, MOST_SENDS, PointWriter
from synth.solvers.deadline import Deadline, time_limited

if TYPE_CHECKING:
    from synth.scale.search import ScaleSearch

LABEL = "flow: "
UNWRITTEN = "flow methods have"  # begins notes on points that are not written out
BESIDE = "points of the flow methods stand beside those of exact synthesis, where that left something open"

# Up to this many ranks in one box solvers answer sooner than the quick stages are loaded.
FEW_RANKS = 8
# Up to this many ranks exact synthesis often closes the frontier within the seconds that the slower stages take.
QUICK_RANKS = 16
# Least fraction by which a first row has fewer rounds per chunk than those before.
IMPROVES = Fraction(1, 20)
# Share of the time for one quick stage of the search, or for all others; the rest is for writing out their points.
SEARCH_SHARE = 0.5


@dataclass(frozen=True)
class QuickFlow:
    """The quick stages of the search by flow methods, with their bounds, one after the other."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True where solvers do not answer sooner than the stages are loaded."""
        return _known(problem) and (problem.machine.ranks > FEW_RANKS or problem.several_boxes)

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point | LowerBound]:
        """Yield bounds and points. Raises InfeasibleError where data cannot reach a rank."""
        from synth.encodings.bounds.single_cut import single_cut_bound
        from synth.pareto.first_rows import bound_of_parts

        network, task, first, search = problem.network, problem.collective, True, _search(problem, found)
        while not search.state.interrupted:
            try:
                with time_limited(deadline.share(SEARCH_SHARE)):
                    if not search.advance_quickly():
                        break
            except (InfeasibleError, UndecidedError):
                raise
            except SynthError:  # its capacities do not fit 64 bits, and no other part of the search goes further
                break
            if first:
                side, (_, certificate) = search.state.side, search.state.bound
                if side:
                    yield single_cut_bound(network, task, (side, frozenset(range(network.ranks)) - side))
                if "regions" in certificate and not network.multicast:
                    yield bound_of_parts(network, task, certificate)
                first = False
            yield from _rows(search, found, PointWriter(network, task, deadline, FEW_SENDS, IMPROVES))
        if search.state.interrupted:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class AllFlow:
    """All stages before exact synthesis, where that seldom gets beyond a few steps."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True on many ranks; with a time limit on fewer of several boxes."""
        limited = problem.several_boxes and problem.options.time_limit is not None
        least = FEW_RANKS if limited else QUICK_RANKS
        return _known(problem) and _asked(problem) and problem.machine.ranks > least

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point]:
        """Yield points, if the quick stages have a bound."""
        search = _search(problem, found)
        if search.bounded:
            search.advance(deadline.share(SEARCH_SHARE))
            yield from _rows(search, found, PointWriter(problem.network, problem.collective, deadline, MOST_SENDS))
        if search.state.interrupted:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class RestOfFlow:
    """The remaining stages, where exact synthesis left something open."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True where flow methods take the collective, and the options leave them in."""
        return _known(problem) and _asked(problem)

    def improve(self, problem: FrontierProblem, found: Found, deadline: Deadline) -> Iterator[Point]:
        """Run the remaining stages, and yield the points that improve; after the deadline only where there is none."""
        if not found.open:
            return
        search = _search(problem, found)
        try:
            search.advance(deadline.share(SEARCH_SHARE))
        except SynthError:
            return  # exact synthesis has already reported what cannot exist
        candidates = [p for p in search.state.points() if problem.options.allows(p.steps, p.rounds, p.chunks)]
        writer = PointWriter(problem.network, problem.collective, deadline, MOST_SENDS, one_at_least=True)
        before, interrupted = found.points, False

        # rows that are written out already
        for row in found.rows:
            same = [p for p in candidates if (p.steps, p.rounds_per_chunk) == (row.steps, row.rounds_per_chunk)]
            known = [rate for steps, rate in found.rates if steps <= row.steps]
            if same and (not known or row.rounds_per_chunk < min(known)):
                yield Point.of(row.schedule, found.floor, LABEL + same[0].construction)
        try:
            for point, schedule in writer.improvements(candidates, found):
                yield Point.of(schedule, found.floor, LABEL + point.construction)
        except KeyboardInterrupt:
            interrupted = True

        # notes on what improves but was not written out, and how to get it
        best = found.best()
        for unwritten, why in (
            (writer.too_long, "too long to be written out beside these"),
            (writer.too_late, "the time limit came before they were written out"),
        ):
            better = [p for p in unwritten if best is None or p.rounds_per_chunk < best]
            if better:
                least = min(better, key=lambda p: p.rounds_per_chunk)
                many = f"{len(better)} more point{'s' * (len(better) > 1)}"
                down = f"down to {show(least.rounds_per_chunk)} rounds per chunk in {least.steps} steps"
                found.note(f"{UNWRITTEN} {many}, {down}: {why}; add --engine flow")
        if found.points is not before:
            found.note(BESIDE)
        if interrupted or search.state.interrupted:
            raise KeyboardInterrupt


def _known(problem: FrontierProblem) -> bool:
    """Return True for the named collectives of equal sizes that flow methods take."""
    task = problem.collective
    if task.name not in COLLECTIVES or len(task.roots) > 1:
        return False
    return task == collective(task.name, problem.machine.ranks, task.roots)


def _asked(problem: FrontierProblem) -> bool:
    """Return True where neither the engine nor the options leave long searches by flow methods out."""
    return problem.engine != "exact" and not problem.options.alone


def _search(problem: FrontierProblem, found: Found) -> ScaleSearch:
    """Return the search of this problem, which one engine begins and the next ones continue."""
    if found.flow_search is None:
        from synth.scale.search import ScaleSearch

        task = problem.collective
        found.flow_search = ScaleSearch(
            problem.machine, task.name, task.roots[0] if task.roots else 0, lambda text: found.tell("query", text),
            most_sends=MOST_SENDS, same_bits=problem.options.same_bits,
        )  # fmt: skip
    return found.flow_search


def _rows(search: ScaleSearch, found: Found, writer: PointWriter) -> Iterator[Point]:
    """Yield the points that improve on what is found. `found.reached` counts those that are too long, too."""
    points = search.state.points()
    found.reached = min((rate for _, rate in found.rates), default=found.reached)
    for point in points:
        if found.reached is None or point.rounds_per_chunk < found.reached:
            found.reached = point.rounds_per_chunk
    for point, schedule in writer.improvements(points, found):
        yield Point.of(schedule, found.floor, point.construction)
