"""Frontiers of flow methods alone: their candidates are replayed and announced as they are found."""

from __future__ import annotations

from fractions import Fraction

from synth.checker.documents.scale_frontier import bound as checked_bound
from synth.checker.schedule.compressed_replay import replay
from synth.encodings.engine import FrontierProblem
from synth.errors import InfeasibleError, UsageError, VerificationError, refused
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.rational import counted, show
from synth.model.scale_collectives import ScaleCollective
from synth.model.topology import Topology
from synth.pareto.events import Event, Listener, SweepInterrupted, with_machine_names
from synth.pareto.flow import IMPROVES
from synth.scale.candidate import Candidate
from synth.scale.search import ScaleSearch
from synth.solvers.deadline import Deadline

# Most ranks of machines whose rows are announced before the end. Larger ones would take long to replay.
ANNOUNCED_RANKS = 512
# Most chunks times ranks of such a row, of which each rank receives a chunk at least once, and most sends of one of
# more chunks: about a quarter of a second, where all are listed.
MOST_RECEIVED, MOST_REPLAYED = 100_000, 1_000_000


def synthesize_flow(
    machine: Topology, name: str, root: int = 0, on_event: Listener | None = None, *, time_limit: float | None = None
) -> Frontier:
    """Return the frontier by flow methods; its `unfinished` lists the searches that `time_limit` (seconds) ended.

    Raises InfeasibleError, UsageError for a collective that they do not know, and SweepInterrupted with the points so
    far on Ctrl-C.
    """
    listener = on_event or (lambda event: None)
    rows = ScaleRows(machine, name, listener)
    try:
        search = ScaleSearch(
            machine, name, root, lambda text: listener(Event("query", text)), on_candidate=rows.announce
        )
        search.advance(Deadline.after(time_limit))
        search.state.leave_out(rows.refusal)
        frontier = search.frontier()
    except InfeasibleError as error:
        raise with_machine_names(error, machine) from None
    if frontier.interrupted:
        raise SweepInterrupted(frontier, None)
    return frontier


def within_limits(problem: FrontierProblem, on_event: Listener | None = None) -> Frontier:
    """Return the frontier of `synthesize_flow` with the points that the options' limits on steps and chunks allow.

    Raises InfeasibleError where fewer steps are allowed than any schedule takes.
    """
    machine, task, options = problem.machine, problem.task, problem.options
    most, chunks = options.max_steps, options.max_chunks
    root = task.roots[0] if task.roots else 0
    try:
        found = synthesize_flow(machine, task.name, root, on_event, time_limit=options.time_limit)
    except SweepInterrupted as stop:
        raise SweepInterrupted(stop.frontier.within(most, chunks), stop.log) from None
    if most is not None and most < found.least_steps:
        was = f"at most {most} {'was' if most == 1 else 'were'} allowed"
        raise InfeasibleError(
            f"{task.name} on {machine.name} needs at least {counted(found.least_steps, 'step')}, {was}"
        )
    return found.within(most, chunks)


class ScaleRows:
    """The rows announced so far: the greatest checked bound, and replayed schedules."""

    def __init__(self, machine: Topology, collective: str, listener: Listener) -> None:
        self.machine, self.collective, self.listener = machine.live(), collective, listener
        self.bound = Fraction(0)
        self.rates: dict[int, Fraction] = {}  # R/C by number of steps
        self._replayed: dict[object, str | None] = {}  # notes on wrong schedules by the function that makes them

    def announce(self, bound: LowerBound, candidate: Candidate) -> str | None:
        """Send the bound and the candidate's point to the listener where they improve.

        Return a note where the replay of its schedule fails. Raises VerificationError for a bound that is not proved.
        """
        if self.machine.ranks > ANNOUNCED_RANKS:
            return None
        if bound.value > self.bound:
            self.bound = checked_bound(bound.certificate, self.machine)
            text = f"no schedule takes fewer than {show(self.bound)} rounds per chunk"
            self.listener(Event("bound", text, None, self.bound))
        known = [rate for steps, rate in self.rates.items() if steps <= candidate.steps]
        if known and candidate.rounds_per_chunk > min(known) * (1 - IMPROVES):
            return None
        point = candidate.point(bound)
        if self.rates and not self._quickly_replayed(point):
            return None
        note = self._refusal(point)
        if note is not None:
            return note
        self.rates[point.steps] = point.rounds_per_chunk
        text = f"S={point.steps}: {show(point.rounds_per_chunk)} rounds per chunk, by {point.construction}"
        self.listener(Event("point", text, point.steps, self.bound, point))
        return None

    def refusal(self, point: Point) -> str | None:
        """Return a note where the replay of a point fails. Points that take long are left to `synth verify`."""
        quick = self.machine.ranks <= ANNOUNCED_RANKS and self._quickly_replayed(point)
        return self._refusal(point) if quick else None

    def _refusal(self, point: Point) -> str | None:
        if point.source not in self._replayed:
            try:
                replay(point.schedule)
                self._replayed[point.source] = None
            except VerificationError as error:
                self._replayed[point.source] = refused(point.construction, error)
            except UsageError:  # it has too many sends to be written out, which the frontier says
                self._replayed[point.source] = None
        return self._replayed[point.source]

    def _quickly_replayed(self, point: Point) -> bool:
        """Return True for a schedule of few sends, or of few chunks: with symmetries few of its sends are listed."""
        sends = point.chunks * ScaleCollective(self.collective, self.machine.ranks).sends_per_chunk
        return sends <= MOST_REPLAYED or point.chunks * self.machine.ranks <= MOST_RECEIVED
