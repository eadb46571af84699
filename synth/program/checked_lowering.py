"""The one door into lowering: a schedule is replayed first, and one that is wrong becomes no program.

`lower` and `onesided` are those of synth.program, which themselves believe the schedule that they are given. Beside
what those raise, they raise VerificationError with the place in the schedule, and UsageError for more than `MOST_SENDS`
sends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from synth.checker.schedule import replay
from synth.errors import UsageError, VerificationError
from synth.model.gc_pause import collector_off
from synth.model.schedule import Schedule
from synth.program.lowering import lower as two_sided
from synth.program.onesided import lower as one_sided
from synth.program.program import Program

# Sends of a schedule up to which it becomes a program: about 0.1 ms and 4 kB each.
MOST_SENDS = 1 << 20

Options = ParamSpec("Options")
Lowering = Callable[Concatenate[Schedule, Options], Program]


def _replayed(lowering: Lowering[Options]) -> Lowering[Options]:
    @wraps(lowering)
    @collector_off()
    def behind(schedule: Schedule, *args: Options.args, **options: Options.kwargs) -> Program:
        sends = sum(len(step.sends) for step in schedule.steps)
        if sends > MOST_SENDS:
            raise UsageError(
                f"{sends} sends: programs are made of at most {MOST_SENDS}, which takes minutes and some 5 GB;"
                " choose a point of fewer chunks"
            )
        try:
            replay.schedule(schedule)
        except VerificationError as error:
            what = f"{schedule.collective.name} on {schedule.network.name}"
            raise VerificationError(f"{what}: no program is made of a wrong schedule: {error}") from None
        return lowering(schedule, *args, **options)

    return behind


lower = _replayed(two_sided.lower)
onesided = _replayed(one_sided.onesided)
