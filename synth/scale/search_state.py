"""State of a search for a frontier at scale: bound, points, notes, and the stages that were cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from synth.model.compressed_schedule import CompressedSchedule
from synth.model.frontier import LowerBound, Point
from synth.scale.candidate import Candidate
from synth.solvers.deadline import OutOfMemory, TimeUp, current_deadline

# Called with the bound so far, its value 0 before there is one, and a candidate. Returns a note on a candidate that is
# to be left out, else None.
OnCandidate = Callable[[LowerBound, Candidate], str | None]
# A candidate with its order and index.
_Row = tuple[int, int, Candidate]
# Fraction of R/C for which a candidate of the same S may not have more chunks, which take time and memory.
SLIGHT = Fraction(1, 1000)


@dataclass(frozen=True)
class Stage:
    """A part of a search. One without a name is run even where the time is over. `quick`: it takes little time."""

    name: str | None
    work: Callable[[], None]
    quick: bool = False


class SearchState:
    """State of a search at scale: its bound, its points, and the stages that did not end.

    Attributes:
        bound: the lower bound on R/C so far, and its certificate.
        side: the ranks on one side of the cut that proves it, where it is a single cut.
        pending: the stages to come.
        open: the name and the reason of each stage that a time limit or Ctrl-C ended or left untried. Points that
            such a stage found are kept.
        interrupted: True after Ctrl-C.
        most_sends: maximum number of sends of a schedule composed of phases.
        same_bits: True where all ranks shall end with the same floating-point sums.
        on_candidate: called with the bound so far and each candidate as it is added, which it can refuse with a note.
    """

    def __init__(
        self, progress: Callable[[str], None], notes: Iterable[str] = (), most_sends: int = 0, same_bits: bool = True,
        on_candidate: OnCandidate = lambda bound, candidate: None,
    ) -> None:  # fmt: skip
        self.progress, self.notes, self.on_candidate = progress, list(notes), on_candidate
        self.most_sends, self.same_bits = most_sends, same_bits
        self.open: list[str] = []
        self.interrupted = False
        self.bound: tuple[Fraction, dict] = Fraction(0), {}
        self.side: frozenset[int] = frozenset()
        self.pending: list[Stage] = []
        self._late: list[Stage] = []
        self._candidates: list[tuple[int, int, Candidate]] = []

    def plan(self, name: str | None, work: Callable[[], None], quick: bool = False) -> None:
        """Add a stage to those to come."""
        self.pending.append(Stage(name, work, quick))

    def advance(self) -> None:
        """Run the next stage. If the time is over before its end, `resume` plans it again."""
        stage = self.pending.pop(0)
        if stage.name is None:
            stage.work()
        elif not self.stage(stage.name, stage.work):
            self._late.append(stage)

    def resume(self) -> None:
        """Plan the stages that a time limit ended, or left untried, before the others: there may be more time now."""
        for stage in self._late:
            self.open = [line for line in self.open if not line.startswith(f"{stage.name}: ")]
        self.pending, self._late = self._late + self.pending, []

    def stage(self, name: str, work: Callable[[], None]) -> bool:
        """Run `work` unless the time is over. Return False, and add the stage to `open`, if it does not end.

        A stage that Ctrl-C or a lack of memory ended counts as done: it is in `open`, and the result is True.
        """
        if self.interrupted or current_deadline().over:
            self.mark_open(name, "not tried")
            return False
        try:
            self.progress(name)
            work()
        except TimeUp as error:
            self.mark_open(name, error.ended)
            return isinstance(error, OutOfMemory)
        except KeyboardInterrupt:
            self.interrupted = True
            self.mark_open(name, "interrupted")
        return True

    def mark_open(self, name: str, how: str) -> None:
        """Add the stage `name` to `open` with the reason `how`; the first reason given for a stage stands."""
        if not any(line.startswith(f"{name}: ") for line in self.open):
            self.open.append(f"{name}: {how}")

    def add_points(self, candidates: Iterable[Candidate], order: int = 0) -> None:
        """Add candidates as they are computed, so that an interrupted stage keeps those so far.

        Of candidates with equal S and nearly equal R/C `points` keeps that of fewest chunks, then that of least R/C,
        then the one with the least `order`, then the earliest.
        """
        for candidate in candidates:
            self._candidates.append((order, len(self._candidates), candidate))
            note = self.on_candidate(LowerBound(*self.bound), candidate)
            if note is not None:
                self._candidates.pop()
                self.notes.append(note)

    def leave_out(self, check: Callable[[Point[CompressedSchedule]], str | None]) -> None:
        """Leave out the points on which `check` returns a note, which is kept, until there is none."""
        while notes := {point.source: note for point in self.points() if (note := check(point)) is not None}:
            self.notes += notes.values()
            self._candidates = [row for row in self._candidates if row[2].make not in notes]

    def points(self) -> tuple[Point[CompressedSchedule], ...]:
        """Return the Pareto-optimal candidates by growing number of steps, as points with the bound."""
        bound = LowerBound(*self.bound)
        points: list[Point[CompressedSchedule]] = []
        for _, rows in groupby(sorted(self._candidates, key=_preference), key=lambda row: row[2].steps):
            candidate = _shortest_of_best(list(rows), bound.value)
            if not points or candidate.rounds_per_chunk < points[-1].rounds_per_chunk:
                points.append(candidate.point(bound))
        return tuple(points)


def _preference(row: _Row) -> tuple[int, Fraction, int, int, int]:
    order, index, candidate = row
    return candidate.steps, candidate.rounds_per_chunk, candidate.chunks, order, index


def _shortest_of_best(rows: Sequence[_Row], bound: Fraction) -> Candidate:
    """Return the candidate of fewest chunks among those of nearly the least R/C; exactly the least where it is `bound`.

    `rows`: those of one S in the order of `_preference`.
    """
    least = rows[0][2].rounds_per_chunk
    most = least if least == bound else least * (1 + SLIGHT)
    near = [row for row in rows if row[2].rounds_per_chunk <= most]
    return min(near, key=lambda row: (row[2].chunks, _preference(row)))[2]
