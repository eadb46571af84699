"""What a search for a large frontier has come to: a bound, points, notes, and what a time limit or Ctrl-C cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from synth.model.scale_frontier import LargePoint
from synth.solvers.processes.deadline import TimeUp, left


class Found:
    """Filled stage by stage: one that is cut short keeps what it found, and those after it are still counted as
    open."""

    def __init__(self, progress: Callable[[str], None], notes: Iterable[str] = ()) -> None:
        self.progress, self.notes = progress, list(notes)
        self.open: list[str] = []
        self.interrupted = False
        self.bound: tuple[Fraction, dict] = Fraction(0), {}
        self._points: list[tuple[int, int, LargePoint]] = []

    def stage(self, name: str, work: Callable[[], None]) -> None:
        """Runs `work` unless the time is over; Ctrl-C and the end of the time end it, and are written down."""
        if self.interrupted or left() == 0:
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
        """Notes that the stage `name` was cut short; of one that comes again the first word stands."""
        if not any(line.startswith(f"{name}: ") for line in self.open):
            self.open.append(f"{name}: {how}")

    def add(self, points: Iterable[LargePoint], order: int = 0) -> None:
        """Points as they come; of equals the one of the least `order` is kept, then the first."""
        for point in points:
            self._points.append((order, len(self._points), point))

    def points(self) -> tuple[LargePoint, ...]:
        """Those that no other is at least as good as, by growing steps."""
        kept: list[LargePoint] = []
        for _, _, point in sorted(
            self._points, key=lambda row: (row[2].steps, row[2].bandwidth, row[2].chunks, row[0], row[1])
        ):
            if not kept or point.bandwidth < kept[-1].bandwidth:
                kept.append(point)
        return tuple(kept)
