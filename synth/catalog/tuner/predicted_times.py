"""Predicted times of schedules: runs of the reference executor by the clock of `synth.program.overheads`.

A schedule's program runs without data. That of a schedule with sends through switches is MSCCL++'s one-sided one, on
the ports of the switches, for ranks of one box. Where the nominal model, which adds up synchronous steps, predicts
`SETTINGS.screen` times the least of its predictions, or the program is too long to run, that prediction is the time.
Few runs give a rough time of the others, more of them the time of those that are within `SETTINGS.near` times the
least. The steps of a timed schedule say nothing about its time, so it always runs. So does a variant that others are
compared with, at the judged sizes: a ring over several boxes was seen to take 0.35 times its nominal prediction. Where
the program of such a variant is too long or too late to run, its time is the least that it can take (`least_time`),
so that nothing looks faster beside it than it is. Other candidates with the same schedule have the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from synth.catalog.tuner.cost_model import TimeModel, nominal
from synth.catalog.tuner.cost_terms import Shape
from synth.catalog.tuner.least_time import LeastTime
from synth.errors import SynthError, UsageError, VerificationError
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program.checked_lowering import lower, onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import NCCL, Overheads
from synth.program.runtimes import RUNTIMES
from synth.runtime.reference.program_times import FLOAT32, ProgramTimes
from synth.runtime.reference.program_times import SETTINGS as RUNS


@dataclass(frozen=True)
class PredictedTimeSettings:
    """Which programs are run, and how often.

    Attributes:
        screen: Multiple of the least nominal prediction at a size from which a schedule is no longer run there.
        near: Multiple of the least rough time at a size from which a time stays rough. Rough times smooth the jumps at
            slices. They were compared with those of more runs in four cases of machine and collective only, where they
            were at most 7% too short.
        maximum_sends: Sends of a schedule, times instances, up to which its program is run; each run takes about 50 µs
            a send.
    """

    screen: float = 2.5
    near: float = 1.1
    maximum_sends: int = 12_000


SETTINGS = PredictedTimeSettings()

Predict = Callable[[int], float | None]


class Variant(NamedTuple):
    """A schedule, the terms of its nominal time, and the protocol and the number of instances that it runs with."""

    schedule: Schedule
    shape: Shape
    protocol: str
    instances: int = 1


Key = tuple[int, str, int]


def _key(variant: Variant) -> Key:
    """Return what variants with the same program have in common: the schedule's id, the protocol and the instances."""
    return id(variant.schedule), variant.protocol, variant.instances


@dataclass(frozen=True)
class Prediction:
    """The time of a variant: `seconds` at a size in bytes, and sizes in low+1..high before and after it may jump."""

    variant: Variant
    seconds: Predict
    jumps: Callable[[int, int], list[int]]

    def __call__(self, size: int) -> float | None:
        """Return `seconds` at `size`."""
        return self.seconds(size)


class PredictedTimes:
    """Predicted times on `network` of all variants that are added, in seconds by size in bytes.

    `per_send`: the cost of a message at either end. `late`: returns True when the time is over; programs that have not
    been run by then are not run any more, and times stay rough. `judged`: the sizes at which times are not
    interpolated. `model` is the nominal model. `slower(protocol)` returns the network with the protocol's costs.
    """

    def __init__(
        self,
        network: Network,
        per_send: MessageCost = NO_COST,
        late: Callable[[], bool] = lambda: False,
        overheads: Overheads = NCCL,
        judged: Sequence[int] = (),
    ) -> None:
        self.network, self.per_send, self.late = network, per_send, late
        self.overheads, self.judged = overheads, judged
        self.model: TimeModel = nominal(network, per_send, overheads)
        self._variants: list[Variant] = []
        self._compared: set[int] = set()  # ids of schedules
        # One program, and one least time, for a schedule's own candidate and the library's algorithm of the same sends.
        self._programs: dict[Key, Callable[[], ProgramTimes | None]] = {}
        self._least_times: dict[Key, Callable[[], LeastTime]] = {}
        self._not_run: dict[Key, str] = {}  # the reasons
        self._rough: list[Predict] = []
        self.slower = cache(lambda protocol: overheads.links(network, protocol))
        self._least = cache(self._least_nominal)
        self._least_rough = cache(self._least_rough_time)

    def add(self, variant: Variant, compared: bool = False) -> Prediction:
        """Add a variant. Returns its time as a function of the size, to be called when all variants are added.

        `compared`: other schedules are compared with this one, so it is run at the judged sizes however slow it is. If
        it cannot be, its time is the least that its program can take (of several instances the nominal time).
        """
        self._variants.append(variant)
        if compared:
            self._compared.add(id(variant.schedule))
        key, links = _key(variant), self.slower(variant.protocol)
        program_times = self._programs.setdefault(key, cache(lambda: self._program_times(variant)))
        least_time = self._least_times.setdefault(key, cache(lambda: LeastTime(variant.schedule, links)))

        @cache
        def rough(size: int) -> float | None:
            predicted = self._nominal(variant, size)
            if not self._runs_at(variant, size):
                return predicted
            if times := program_times():
                return times.rough_seconds(size)
            if self.is_least(variant):
                return self._least_seconds(variant, least_time(), size)
            # instances that share links are what the nominal model knows least about
            return predicted if variant.instances == 1 else None

        def seconds(size: int) -> float | None:
            runs = self._runs_at(variant, size)
            if not (runs and self._judges(variant, size)):
                time = rough(size)
                if not runs or time is None or self.late() or time > SETTINGS.near * self._least_rough(size):
                    return time
            times = program_times()
            return times.seconds(size) if times else rough(size)

        def jumps(low: int, high: int) -> list[int]:
            times = program_times() if self._runs_at(variant, low) or self._runs_at(variant, high) else None
            return times.jumps(low, high) if times else []

        self._rough.append(rough)
        return Prediction(variant, seconds, jumps)

    def ran(self, variant: Variant, size: int) -> bool:
        """Return True if the time of the variant at this size, which was asked for, is that of runs of its program."""
        return not self.not_run(variant) and self._runs_at(variant, size)

    def not_run(self, variant: Variant) -> bool:
        """Return True if a time of the variant was asked for whose program was too long or too late to run."""
        return bool(self.reason_not_run(variant))

    def reason_not_run(self, variant: Variant) -> str:
        """Return why the variant's program, of which a time was asked for, was not run; "" where it was."""
        return self._not_run.get(_key(variant), "")

    def is_least(self, variant: Variant) -> bool:
        """Return True if the times of the variant are lower bounds, since its program was not run."""
        return self.not_run(variant) and id(variant.schedule) in self._compared and variant.instances == 1

    def _judges(self, variant: Variant, size: int) -> bool:
        """Return True at a judged size, and where there are few of them also at one to which its chunks pad it."""
        if size in self.judged:
            return True
        chunks = variant.schedule.chunks * variant.instances * variant.schedule.collective.buffer_units
        counts = {-(-judged // (FLOAT32.size * chunks)) for judged in self.judged}
        return len(self.judged) <= RUNS.few and -(-size // (FLOAT32.size * chunks)) in counts

    def _runs_at(self, variant: Variant, size: int) -> bool:
        """Return True if the variant's program is to be run at this size."""
        predicted = self._nominal(variant, size)
        if predicted is None:
            return False
        compared = id(variant.schedule) in self._compared and (size in self.judged or self.not_run(variant))
        return compared or variant.schedule.timed or predicted <= SETTINGS.screen * self._least(size)

    def _nominal(self, variant: Variant, size: int) -> float | None:
        return self.model.seconds(variant.shape, variant.protocol, variant.instances, size)

    def _least_seconds(self, variant: Variant, least_time: LeastTime, size: int) -> float:
        """Return the least time that the variant's program, in one instance, can take with a launch."""
        slice_bytes = RUNTIMES["synth"].operation_bytes(variant.protocol, variant.schedule.collective.name)
        least = least_time.microseconds(float(size * variant.shape.share), slice_bytes)
        return self.overheads.launch(variant.protocol) * 1e-12 + least * 1e-6

    def _least_nominal(self, size: int) -> float:
        times = [self._nominal(variant, size) for variant in self._variants]
        return min((time for time in times if time is not None), default=0.0)

    def _least_rough_time(self, size: int) -> float:
        return min((time for rough in self._rough if (time := rough(size)) is not None), default=0.0)

    def _program_times(self, variant: Variant) -> ProgramTimes | None:
        """Return the times of the variant's program; None where it cannot be lowered, is too long, or time is over."""
        schedule, _, protocol, instances = variant
        sends = sum(len(step.sends) for step in schedule.steps) * instances
        reason = "no program can be made"
        try:
            if sends > SETTINGS.maximum_sends:
                reason = "too long to run"
            elif self.late():
                reason = "the time limit left no time for a run"
            else:
                options = LoweringOptions(protocol=protocol, instances=instances)
                network, lowering = self.slower(protocol), lower
                if schedule.uses_multicast:
                    if self.per_send:
                        raise UsageError("nothing is known of the cost of messages in programs of switches")
                    network, lowering = self.overheads.links(schedule.network, protocol), onesided
                launch = self.overheads.launch(protocol)
                return ProgramTimes(lowering(schedule, options), network, self.per_send, launch, self.judged)
        except VerificationError:
            raise
        except SynthError:
            pass
        self._not_run[_key(variant)] = reason
        return None
