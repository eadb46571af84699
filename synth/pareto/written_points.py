"""Points of scale methods written out send by send: which of them, in which order, and how much before a deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, log

from synth.errors import SynthError, VerificationError, refused
from synth.model.collective import Collective
from synth.model.frontier import Point, Rate
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.pareto.found import Found
from synth.solvers.deadline import NEVER, Deadline

# Seconds, about, to write out and replay one send on an idle machine, and to read one route.
SECONDS_PER_SEND = 1.5e-5
# Most sends of a schedule that is written out and replayed within a second, and of any.
FEW_SENDS, MOST_SENDS = 60_000, 200_000


@dataclass
class PointWriter:
    """Writes out the points that improve on what is found, the one of the greatest improvement per send first.

    A point is begun only if it is expected to be done before the deadline, at the speed of the one before. `worth`:
    R/C falls by more than this fraction. `one_at_least`: the deadline does not count while nothing is found, nor for
    the first point where it has few sends. `too_long`, `too_late`: points that would improve, but have more than
    `most_sends` sends, or would take longer than the time that is left.
    """

    network: Network
    task: Collective
    deadline: Deadline = NEVER
    most_sends: int = MOST_SENDS
    worth: Fraction = Fraction(0)
    one_at_least: bool = False
    too_long: list[Point] = field(default_factory=list)
    too_late: list[Point] = field(default_factory=list)

    def improvements(self, points: Iterable[Point], found: Found) -> Iterator[tuple[Point, Schedule]]:
        """Yield the points that improve on `found`, which takes them meanwhile, and their schedules."""
        pending, first, slowness = list(points), True, 1.0
        while pending:
            known = found.rates
            point = max(pending, key=lambda point: self._gain(point, known))
            pending.remove(point)
            least = min((rate for steps, rate in known if steps <= point.steps), default=None)
            if least is not None and point.rounds_per_chunk >= least * (1 - self.worth):
                continue
            sends = least_sends(point, self.task)
            if sends > self.most_sends:
                self.too_long.append(point)
                continue
            exempt = self.one_at_least and (not known or (first and sends <= FEW_SENDS))
            if not exempt and self.deadline.remaining() <= slowness * self.seconds(sends):
                self.too_late.append(point)
                continue
            found.tell("query", f"writing out {point.construction}")
            began = time.monotonic()
            try:
                schedule = written_out(point, self.network, self.task, self.most_sends)
            except VerificationError as error:
                found.note(refused(point.construction, error))
                continue
            if schedule is None:
                self.too_long.append(point)
                continue
            yield point, schedule  # and is replayed
            first, slowness = False, max(1.0, (time.monotonic() - began) / self.seconds(schedule.sends))

    def seconds(self, sends: int) -> float:
        """Return the seconds that a schedule of so many sends takes on an idle machine."""
        return SECONDS_PER_SEND * (sends + len(self.network.routes))

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


def written_out(point: Point, network: Network, task: Collective, most_sends: int) -> Schedule | None:
    """Return the schedule of a point at scale, or None where it has more sends, or is of another problem."""
    try:
        compressed = point.schedule
        if compressed.sends > most_sends:
            return None
        expansion = compressed.written_out()
    except VerificationError:
        raise
    except SynthError:
        return None
    if (expansion.collective.pre, expansion.collective.post) != (task.pre, task.post):
        return None
    return Schedule(network, task, expansion.chunks, expansion.steps)


def least_sends(point: Point, task: Collective) -> int:
    """Return the minimum number of sends of a schedule with the point's chunks.

    Each chunk reaches every rank that lacks it, and each sum needs all inputs.
    """
    pairs = zip(task.pre, task.post, strict=True)
    if not task.combining:
        return point.chunks * sum(len(post - pre) for pre, post in pairs)
    return point.chunks * sum(len(pre) - 1 + max(0, len(post) - 1) for pre, post in pairs)
