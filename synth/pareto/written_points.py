"""Points of scale methods written out send by send: which of them, in which order, and how much before a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from math import inf, log

from synth.errors import SynthError, VerificationError, refused
from synth.model.collective import Collective
from synth.model.frontier import Point, Rate
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto.settings import SETTINGS
from synth.solvers.deadline import Deadline


class PointWriter:
    """Writes out the points that improve on known schedules, the one of the greatest improvement per send first.

    A point is begun only if it is expected to be done before the deadline, at the speed of the one before.

    Attributes:
        too_long: points that improve on all that is written out, but have more sends than allowed.
        too_late: the same of points that would take longer than the time that is left.
        refused: notes on points whose schedules fail their replay.
    """

    def __init__(
        self, network: Network, task: Collective, deadline: Deadline, most_sends: int,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self.network, self.task, self.deadline, self.most_sends = network, task, deadline, most_sends
        self.progress = progress
        self.too_long: list[Point] = []
        self.too_late: list[Point] = []
        self.refused: list[str] = []
        self._slowness = 1.0  # of this machine, where others use it too

    def improvements(
        self, points: Iterable[Point], known: Sequence[Rate], worth: Fraction = Fraction(0), *,
        one_at_least: bool = False,
    ) -> Iterator[tuple[Point, Schedule]]:  # fmt: skip
        """Yield the points that improve on `known`, to which the caller adds those that it takes, and their schedules.

        R/C falls by more than the fraction `worth`. `one_at_least`: the deadline does not count while nothing is known,
        nor for the first point where it has few sends.
        """
        pending, yielded = list(points), False
        while pending:
            point = max(pending, key=lambda point: self._gain(point, known))
            pending.remove(point)
            least = min((rate for steps, rate in known if steps <= point.steps), default=None)
            if least is not None and point.rounds_per_chunk >= least * (1 - worth):
                continue
            sends = least_sends(point, self.task)
            exempt = one_at_least and (not known or (not yielded and sends <= SETTINGS.max_sends))
            if not self._short(point):
                self.too_long.append(point)
            elif not exempt and not self.in_time(sends):
                self.too_late.append(point)
            else:
                try:
                    schedule = self._timed(point)
                except VerificationError as error:
                    self.refused.append(refused(point.construction, error))
                    continue
                if schedule is None:
                    self.too_long.append(point)
                else:
                    yielded = True
                    yield point, schedule

    def in_time(self, sends: int) -> bool:
        """Return True if so many sends are expected to be written out and replayed before the deadline."""
        return self.deadline.remaining() > self._slowness * self._seconds(sends)

    def _seconds(self, sends: int) -> float:
        """Return the seconds that a schedule of so many sends takes on an idle machine."""
        return SETTINGS.seconds_per_send * (sends + len(self.network.routes))

    def _short(self, point: Point) -> bool:
        return least_sends(point, self.task) <= self.most_sends

    def _gain(self, point: Point, known: Sequence[Rate]) -> float:
        """Return the logarithm of the fall of R/C at the point's S for each send; inf where nothing is known.

        Where only more steps are known, R/C falls, or rises, from the least of theirs.
        """
        rates = [rate for steps, rate in known if steps <= point.steps]
        if not rates:
            rates = [rate for _, rate in known]
        if not rates:
            return inf
        return log(min(rates) / point.rounds_per_chunk) / max(1, least_sends(point, self.task))

    def _timed(self, point: Point) -> Schedule | None:
        """Return the schedule of a point, and measure how slow the machine is; None where it is too long.

        Raises VerificationError.
        """
        self.progress(f"writing out {point.construction}")
        began = time.monotonic()
        try:
            schedule = written_out(point, self.network, self.task, self.most_sends)
        except VerificationError:
            raise
        except SynthError:
            return None
        if schedule is not None:
            self._slowness = max(1.0, (time.monotonic() - began) / self._seconds(schedule.sends))
        return schedule


def written_out(point: Point, network: Network, task: Collective, most_sends: int) -> Schedule | None:
    """Return the replayed schedule of a point at scale, or None where it has more sends or is of another problem.

    Raises VerificationError where its replay fails.
    """
    from synth.checker.schedule import column_replay  # it imports NumPy

    if least_sends(point, task) > most_sends:
        return None
    compressed = point.schedule
    if compressed.sends > most_sends:
        return None
    expansion = compressed.written_out()
    if (expansion.collective.pre, expansion.collective.post) != (task.pre, task.post):
        return None
    schedule = Schedule(network, task, expansion.chunks, expansion.steps)
    column_replay.schedule(schedule)
    return schedule


def least_sends(point: Point, task: Collective) -> int:
    """Return the minimum number of sends of a schedule with the point's chunks.

    Each chunk reaches every rank that lacks it, and each sum needs all inputs.
    """
    pairs = zip(task.pre, task.post, strict=True)
    if not task.combining:
        return point.chunks * sum(len(post - pre) for pre, post in pairs)
    return point.chunks * sum(len(pre) - 1 + max(0, len(post) - 1) for pre, post in pairs)
