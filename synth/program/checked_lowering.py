"""Lowering of schedules that are replayed first, so that a wrong schedule never becomes a program.

`lower` makes a two-sided program (synth.program.lowering.lower), `onesided` a one-sided one
(synth.program.onesided.lower); `reason_against_plan` says without lowering why there is no one-sided one. The functions
behind `lower` and `onesided` trust their schedule. Beside their errors, these here raise VerificationError with the
place in the schedule, and TooManySendsError for more than `MAX_SENDS` sends. Two-sided programs emulate the sends of
switches that multicast by sends from rank to rank.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Protocol

from synth.checker.schedule import replay
from synth.errors import TooManySendsError, VerificationError
from synth.model.gc_pause import collector_off
from synth.model.schedule import Schedule
from synth.model.sends.unicast import unicast
from synth.program.connections import on_connections
from synth.program.lowering import lower as two_sided
from synth.program.lowering_options import DEFAULT_LOWERING, LoweringOptions
from synth.program.onesided import lower as one_sided
from synth.program.program import Program

# The most sends of a schedule that is lowered; each takes about 0.1 ms and 4 kB.
MAX_SENDS = 1 << 20


class Lowering(Protocol):
    """A lowering of a schedule by options."""

    def __call__(self, schedule: Schedule, options: LoweringOptions = DEFAULT_LOWERING) -> Program:
        """Return the program of `schedule`."""
        ...


def check_sends(sends: int) -> None:
    """Raise TooManySendsError where no program is made of a schedule of so many `sends`."""
    if sends > MAX_SENDS:
        raise TooManySendsError(
            sends,
            f"{sends} sends: programs are made of at most {MAX_SENDS}, which takes minutes and some 5 GB; choose a "
            "schedule of fewer chunks",
        )


def _replayed(lowering: Lowering, *, emulates: bool) -> Lowering:
    @wraps(lowering)
    @collector_off()
    def checked(schedule: Schedule, options: LoweringOptions = DEFAULT_LOWERING) -> Program:
        check_sends(schedule.sends)
        try:
            replay.schedule(schedule)
        except VerificationError as error:
            title = f"{schedule.collective.name} on {schedule.network.name}"
            raise VerificationError(f"{title}: no program is made of a wrong schedule: {error}") from None
        if emulates and schedule.uses_multicast:
            schedule = unicast(schedule)
            check_sends(schedule.sends)
        cut = on_connections(schedule, options.lanes)
        if options.hints and cut.chunks > schedule.chunks:
            pieces, hints = cut.chunks // schedule.chunks, {}
            for (step, chunk, src, dst), hint in options.hints.items():
                for k in range(pieces):
                    hints[step, chunk * pieces + k, src, dst] = hint
            options = replace(options, hints=hints)
        return lowering(cut, options)

    return checked


lower = _replayed(two_sided.lower, emulates=True)
onesided = _replayed(one_sided.onesided, emulates=False)
reason_against_plan = one_sided.reason_against
too_many_ranks_for_plan = one_sided.too_many_ranks
