"""Predicted times of schedules: runs of the reference executor by the clock of `synth.program.overheads`.

A schedule's program runs without data. That of a MSCCL++ plan is one-sided; so is that of a schedule with sends through
switches, on the ports of the switches, for ranks of one box. Where the nominal model, which adds up synchronous steps,
predicts `SETTINGS.screen` times the least of its predictions, or the program is too long to run, that prediction is the
time. Few runs give a rough time of the others, more of them the time of those that are within `SETTINGS.near` times the
least. The steps of a timed schedule say nothing about its time, so it always runs. So does a variant that others are
compared with, at the judged sizes: a ring over several boxes was seen to take 0.35 times its nominal prediction. Where
the program of such a variant is too long or too late to run, its time is the least that it can take (`least_time`, and
the certified bound for all programs), so that nothing looks faster beside it than it is. Other candidates with the same
schedule have the same time. No run begins when the time is over, so what will be chosen runs first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import NamedTuple

from synth.catalog.tuner.cost_model import TimeModel, nominal
from synth.catalog.tuner.cost_terms import Shape
from synth.catalog.tuner.least_time import LeastTime
from synth.errors import SynthError, UsageError, VerificationError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program.checked_lowering import lower, onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import NCCL, Overheads
from synth.program.plan_limits import PLAN_SENDS
from synth.program.runtimes import RUNTIMES
from synth.runtime.reference.program_times import FLOAT32, ProgramTimes
from synth.solvers.processes.deadline import TimeUp


@dataclass(frozen=True)
class PredictedTimeSettings:
    """Which programs are run, and how often.

    Attributes:
        screen: Multiple of the least nominal prediction at a size from which a schedule is no longer run there.
        near: Multiple of the least rough time at a size from which a time stays rough. Rough times smooth the jumps at
            slices. They were compared with those of more runs in four cases of machine and collective only, where they
            were at most 7% too short.
        maximum_sends: Sends of a schedule, times instances, up to which its program is run: no MSCCL++ plan has more.
            To lower it takes about 20 µs a send, a run at least 5.
    """

    screen: float = 2.5
    near: float = 1.1
    maximum_sends: int = PLAN_SENDS


SETTINGS = PredictedTimeSettings()

Predict = Callable[[int], float | None]


class Variant(NamedTuple):
    """A schedule, the terms of its nominal time, and the protocol and the number of instances that it runs with.

    `plan`: it runs as a MSCCL++ plan.
    """

    schedule: Schedule
    shape: Shape
    protocol: str
    instances: int = 1
    plan: bool = False


Key = tuple[int, str, int, bool]


def _key(variant: Variant) -> Key:
    """Return what variants with the same program have in common: the schedule's id, and how it runs."""
    return id(variant.schedule), variant.protocol, variant.instances, variant.plan


@dataclass(frozen=True)
class Prediction:
    """The time of a variant: `seconds` at a size in bytes, and sizes in low+1..high before and after it may jump.

    `quick` needs no times of other variants: away from judged sizes it is rough. Two others need no run: `estimate` is
    the nominal time, or of what others are compared with the least one, and no program takes less than `least`.
    """

    variant: Variant
    seconds: Predict
    quick: Predict
    estimate: Predict
    least: Callable[[int], float]
    jumps: Callable[[int, int], list[int]]

    def __call__(self, size: int) -> float | None:
        """Return `seconds` at `size`."""
        return self.seconds(size)


class PredictedTimes:
    """Predicted times on `network` of all variants that are added, in seconds by size in bytes.

    `per_send`: the cost of a message at either end. `late`: returns True when the time is over; no run begins then.
    `judged`: the sizes at which times are not interpolated. `model` is the nominal model. `slower(protocol)` returns
    the network with the protocol's costs. `nodes`: the box of each rank, for variants that run as MSCCL++ plans. None:
    there are none but those of schedules with sends through switches.
    """

    def __init__(
        self,
        network: Network,
        per_send: MessageCost = NO_COST,
        late: Callable[[], bool] = lambda: False,
        overheads: Overheads = NCCL,
        judged: Sequence[int] = (),
        nodes: Sequence[int] | None = None,
    ) -> None:
        self.network, self.per_send, self.late = network, per_send, late
        self.overheads, self.judged, self.nodes = overheads, judged, nodes
        self.model: TimeModel = nominal(network, per_send, overheads)
        self._variants: list[Variant] = []
        self._compared: set[int] = set()  # ids of schedules
        # One program, and one least time, for a schedule's own candidate and the library's algorithm of the same sends.
        self._programs: dict[Key, Callable[[], ProgramTimes | None]] = {}
        self._least_times: dict[Key, Callable[[], LeastTime]] = {}
        self._refused: dict[Key, str] = {}  # why no program is run at any size
        self._too_late: dict[Key, set[int]] = {}  # the judged sizes at which no run began in time
        self._rough: list[Predict] = []
        self.slower = cache(lambda protocol: overheads.links(network, protocol))
        self._certified = cache(self._certified_least)
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
            try:
                if times := program_times():
                    return times.rough_seconds(size)
            except TimeUp:
                if self._judges(variant, size):
                    self._too_late.setdefault(key, set()).add(size)
            if self.is_least(variant):
                certified = self._certified(variant.schedule.collective)
                bounds = [seconds for judged, seconds in certified.items() if judged <= size]
                return max(least(size), *bounds, 0.0)
            # instances that share links are what the nominal model knows least about
            return predicted if variant.instances == 1 else None

        def seconds(size: int) -> float | None:
            runs = self._runs_at(variant, size)
            if not (runs and self._judges(variant, size)):
                time = rough(size)
                if not runs or time is None or self.late() or time > SETTINGS.near * self._least_rough(size):
                    return time
            with suppress(TimeUp):
                if times := program_times():
                    return times.seconds(size)
            return rough(size)

        def least(size: int) -> float:
            if variant.instances > 1 or variant.schedule.uses_multicast:
                return 0.0
            return self._least_seconds(variant, least_time(), size)

        def estimate(size: int) -> float | None:
            compared = id(variant.schedule) in self._compared and variant.instances == 1
            return least(size) if compared else self._nominal(variant, size)

        def quick(size: int) -> float | None:
            return seconds(size) if self._judges(variant, size) else rough(size)

        def jumps(low: int, high: int) -> list[int]:
            with suppress(TimeUp):
                if (self._runs_at(variant, low) or self._runs_at(variant, high)) and (times := program_times()):
                    return times.jumps(low, high)
            return []

        self._rough.append(rough)
        return Prediction(variant, seconds, quick, estimate, least, jumps)

    def run_fastest(self, sized: Sequence[tuple[Prediction, int]], surely: bool = False) -> None:
        """Run variants, each at the size beside it, by rising estimate, until a run is as fast as the next estimate.

        No estimate is then below the fastest run, unless the time ended before, or a program was too long to run.
        `surely`: estimates may be above the time of a run, so they do not end it; only variants whose least time is no
        less than the fastest run are left out.
        """
        waiting = []
        for place, (one, size) in enumerate(sized):
            estimate = one.estimate(size)
            if estimate is not None:
                waiting.append((estimate, place))
        fastest = inf
        for estimate, place in sorted(waiting):
            one, size = sized[place]
            if self.late():
                return
            if estimate >= fastest:
                if not surely:
                    return
                if one.least(size) >= fastest:
                    continue
            time = one.quick(size)
            if time is not None and self.ran(one.variant, size):
                fastest = min(fastest, time)

    def ran(self, variant: Variant, size: int) -> bool:
        """Return True if the time of the variant at this judged size, which was asked for, is that of its runs."""
        key = _key(variant)
        late = key in self._refused or size in self._too_late.get(key, ())
        return not late and self._runs_at(variant, size)

    def not_run(self, variant: Variant) -> bool:
        """Return True if a time of the variant was asked for that no run could tell."""
        return bool(self.reason_not_run(variant))

    def reason_not_run(self, variant: Variant) -> str:
        """Return why no run could tell a time of the variant that was asked for; "" where none was missing."""
        key = _key(variant)
        return self._refused.get(key, "the time limit left no time for a run" if key in self._too_late else "")

    def is_least(self, variant: Variant) -> bool:
        """Return True if the times of the variant are lower bounds, since its program was not run."""
        return self.not_run(variant) and id(variant.schedule) in self._compared and variant.instances == 1

    def _judges(self, variant: Variant, size: int) -> bool:
        """Return True at a judged size, and at one to which its chunks pad it."""
        chunks = variant.schedule.chunks * variant.instances * variant.schedule.collective.buffer_units
        whole = FLOAT32.size * chunks
        return -(-size // whole) in {-(-judged // whole) for judged in self.judged}

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

    def _certified_least(self, collective: Collective) -> dict[int, float]:
        """Return for each judged size a lower bound on the seconds of any program."""
        from synth.scale.time_bound import time_bound

        return time_bound(self.network, collective, self.judged, overheads=self.overheads).seconds

    def _least_nominal(self, size: int) -> float:
        times = [self._nominal(variant, size) for variant in self._variants]
        return min((time for time in times if time is not None), default=0.0)

    def _least_rough_time(self, size: int) -> float:
        return min((time for rough in self._rough if (time := rough(size)) is not None), default=0.0)

    def _program_times(self, variant: Variant) -> ProgramTimes | None:
        """Return the times of the variant's program; None where it cannot be lowered or is too long. Raises TimeUp."""
        schedule, _, protocol, instances, plan = variant
        sends = sum(len(step.sends) for step in schedule.steps) * instances
        reason = "no program can be made"
        try:
            if sends > SETTINGS.maximum_sends:
                reason = "too long to run"
            elif self.late():
                raise TimeUp
            else:
                network = self.slower(protocol)
                if schedule.uses_multicast:
                    if self.per_send:
                        raise UsageError("nothing is known of the cost of messages in programs of switches")
                    network = self.overheads.links(schedule.network, protocol)
                if plan or schedule.uses_multicast:
                    options = LoweringOptions("mscclpp", protocol, instances, nodes=self.nodes)
                    program = onesided(schedule, options)
                else:
                    program = lower(schedule, LoweringOptions(protocol=protocol, instances=instances))
                launch = self.overheads.launch(protocol)
                return ProgramTimes(program, network, self.per_send, launch, self.judged, self.late)
        except (VerificationError, TimeUp):
            raise
        except SynthError:
            pass
        self._refused[_key(variant)] = reason
        return None
