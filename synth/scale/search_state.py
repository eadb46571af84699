"""State of a search for a frontier at scale: bound, points, notes, and the stages that were cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from synth.model.scale_frontier import LargePoint
from synth.solvers.processes.deadline import TimeUp, current_deadline


class SearchState:
    """Result of the stages so far. `open` names each stage that a time limit or Ctrl-C cut short or left untried.

    A stage that is cut short keeps its points. `bound` is (lower bound on R / C, certificate). `most_sends` limits
    schedules composed of phases.
    """

    def __init__(self, progress: Callable[[str], None], notes: Iterable[str] = (), most_sends: int = 0) -> None:
        self.progress, self.notes, self.most_sends = progress, list(notes), most_sends
        self.open: list[str] = []
        self.interrupted = False
        self.bound: tuple[Fraction, dict] = Fraction(0), {}
        self._points: list[tuple[int, int, LargePoint]] = []

    def stage(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` unless the time is over. If a time limit or Ctrl-C ends it, the stage is added to `open`."""
        if self.interrupted or current_deadline().over:
            self.cut(name, "not tried")
            return
        try:
            self.progress(name)
            work()
        except TimeUp as error:
            self.cut(name, error.ended)
        except KeyboardInterrupt:
            self.interrupted = True
            self.cut(name, "interrupted")

    def cut(self, name: str, how: str) -> None:
        """Add the stage `name` to `open` with the reason `how`; the first reason given for a stage stands."""
        if not any(line.startswith(f"{name}: ") for line in self.open):
            self.open.append(f"{name}: {how}")

    def add(self, points: Iterable[LargePoint], order: int = 0) -> None:
        """Add points one by one. Of equal points that of the least `order` is kept, then the first one."""
        for point in points:
            self._points.append((order, len(self._points), point))

    def points(self) -> tuple[LargePoint, ...]:
        """Return the Pareto-optimal points by growing number of steps."""
        frontier: list[LargePoint] = []
        for _, _, point in sorted(self._points, key=_preference):
            if not frontier or point.rounds_per_chunk < frontier[-1].rounds_per_chunk:
                frontier.append(point)
        return tuple(frontier)


def _preference(row: tuple[int, int, LargePoint]) -> tuple[int, Fraction, int, int, int]:
    order, index, point = row
    return point.steps, point.rounds_per_chunk, point.chunks, order, index
