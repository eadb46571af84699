"""Predicted times of programs: runs of the reference executor by the clock of `synth.program.overheads`, without data.

A message is on its way for the α of its link and for the bytes of its first slice; it leaves after every message to its
sender, in earlier steps, that brought or added to its chunk. The longest chain of such messages is one lower bound on
the time of a program. What the busiest link or shared limit carries in all is another. NCCL's rings took 1 to 1.09
times as long in runs (4 machines of 8 to 32 ranks, 4 KB to 64 MB). So candidates are run by rising lower bound, until
the bound of the next one is above the time of the fastest (branch and bound): the choice is exact, and few programs
run.

When the time is over, a program that has run takes its lower bound times the excess of its last run, as an estimate.
Another library's algorithm that has not run takes its lower bound: nothing looks faster beside it than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError, UsageError, VerificationError
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program.checked_lowering import lower, onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import NCCL, Overheads
from synth.program.plan_limits import PLAN_SENDS
from synth.program.runtimes import RUNTIMES
from synth.runtime.reference.program_times import ProgramTimes
from synth.solvers.deadline import TimeUp, check_deadline

# Sends of a schedule, times instances, up to which its program is run: no MSCCL++ plan has more.
MAXIMUM_SENDS = PLAN_SENDS
# Numbers of sizes up to which long calls are run in full.
FEW_SIZES = 4
LATE = "the time limit left no time for a run"


class Variant(NamedTuple):
    """A schedule, and the protocol and the number of instances that it runs with. `plan`: as a MSCCL++ plan.

    `library`: it stands for an algorithm of another library.
    """

    schedule: Schedule
    protocol: str
    instances: int = 1
    plan: bool = False
    library: bool = False


class Time(NamedTuple):
    """Seconds of a call. `estimated`: they are not those of a run."""

    seconds: float
    estimated: bool = False


class Clock:
    """Times of variants of schedules on `network`, in seconds by size in bytes.

    `per_send`: the cost of a message at either end. `sizes`: those that will be asked for. `nodes`: the box of each
    rank, for variants that run as MSCCL++ plans. No run begins after the ambient deadline.
    """

    def __init__(
        self,
        network: Network,
        per_send: MessageCost = NO_COST,
        overheads: Overheads = NCCL,
        sizes: Sequence[int] = (),
        nodes: Sequence[int] | None = None,
    ) -> None:
        self.network, self.per_send, self.overheads, self.nodes = network, per_send, overheads, nodes
        self.exact = len(sizes) <= FEW_SIZES
        self.links = cache(lambda protocol: overheads.links(network, protocol))
        # One program for a schedule's own candidate and the library's algorithm of the same sends.
        self._programs: dict[tuple, ProgramTimes] = {}
        self._refused: dict[tuple, str] = {}  # why a program is not run
        self._chains: dict[tuple, _LeastTime] = {}
        self._excess: dict[tuple, float] = {}  # time of the last run over its lower bound

    def time(self, variant: Variant, size: int) -> Time | None:
        """Return the time of a call; None where no program can be run, or none was before the time was over."""
        key = (id(variant.schedule), *variant[1:4])
        try:
            if key not in self._programs and self._refused.get(key, LATE) == LATE:
                self._programs[key] = self._program_times(variant)
                self._refused.pop(key, None)
            if key in self._programs:
                seconds = self._programs[key].seconds(size)
                least = self.least(variant, size)
                self._excess[key] = seconds / least if least else 0.0
                return Time(seconds)
        except TimeUp:
            self._refused[key] = LATE
        except VerificationError:
            raise
        except SynthError as error:
            self._refused[key] = str(error)
        excess = self._excess.get(key, float(variant.library))
        return Time(self.least(variant, size) * excess, estimated=True) if excess else None

    def not_run(self, variant: Variant) -> str:
        """Return why no run could tell a time of the variant that was asked for; "" where none was missing."""
        return self._refused.get((id(variant.schedule), *variant[1:4]), "")

    def least(self, variant: Variant, size: int) -> float:
        """Return a lower bound on the seconds of a call; 0 for sends through switches, of which nothing is known."""
        schedule, protocol, instances, *_ = variant
        if schedule.uses_multicast:
            return 0.0
        key = id(schedule), protocol
        if key not in self._chains:
            self._chains[key] = _LeastTime(schedule, self.links(protocol))
        slice_bytes = RUNTIMES["synth"].operation_bytes(protocol, schedule.collective.name)
        chunk = float(size * schedule.collective.unit_share / schedule.chunks)
        least = self._chains[key].microseconds(chunk, min(slice_bytes, chunk / instances))
        return self.overheads.launch(protocol) * 1e-12 + least * 1e-6

    def _program_times(self, variant: Variant) -> ProgramTimes:
        """Lower the variant. Raises SynthError where it has no program, or too long a one; TimeUp."""
        schedule, protocol, instances, plan, _ = variant
        if sum(len(step.sends) for step in schedule.steps) * instances > MAXIMUM_SENDS:
            raise UsageError("too long to run")
        check_deadline()
        network = self.links(protocol)
        if schedule.uses_multicast:
            if self.per_send:
                raise UsageError("nothing is known of the cost of messages in programs of switches")
            network = self.overheads.links(schedule.network, protocol)
        if plan or schedule.uses_multicast:
            program = onesided(schedule, LoweringOptions("mscclpp", protocol, instances, nodes=self.nodes))
        else:
            program = lower(schedule, LoweringOptions(protocol=protocol, instances=instances))
        return ProgramTimes(program, network, self.per_send, self.overheads.launch(protocol), self.exact)


class _LeastTime:
    """The least time of the program of `schedule` on the links of its protocol, `network`."""

    def __init__(self, schedule: Schedule, network: Network) -> None:
        index = network.route_index
        # by step: chunk, source, destination and route of each send
        self._steps: list[np.ndarray] = []
        for step in schedule.steps:
            sends = [send for send in step.unicast_sends if not send.local]
            rows = [(send.chunk, send.src, send.dst, index[send.src, send.dst, send.via]) for send in sends]
            self._steps.append(np.array(rows, dtype=np.int64).reshape(-1, 4))
        every = np.concatenate([np.empty((0, 4), dtype=np.int64), *self._steps])
        sends = np.bincount(every[:, 3], minlength=len(network.routes))
        unit = float(network.unit) * 1000  # bytes/µs
        self._latency = np.array([float(route.latency) for route in network.routes])
        self._rate = np.array([float(route.units) for route in network.routes]) * unit
        self._ends = network.ranks, 1 + int(every[:, 0].max(initial=-1))
        # of each route and limit that is used: its least latency, and its µs for a byte of each chunk
        used = sends > 0
        self._busy = list(zip(self._latency[used], (sends / self._rate)[used], strict=True))
        for cap in network.caps:
            routes = np.array([route for route in cap.routes if used[route]], dtype=np.int64)
            if len(routes):
                carried = float(sends[routes].sum()) / (float(cap.units) * unit)
                self._busy.append((self._latency[routes].min(), carried))

    def microseconds(self, chunk: float, first: float) -> float:
        """Return the least µs without a launch, for chunks of `chunk` bytes whose first slice has `first` bytes."""
        hop = self._latency + first / self._rate
        arrived = np.zeros(self._ends)
        for rows in self._steps:
            number, src, dst, route = rows.T
            np.maximum.at(arrived, (dst, number), arrived[src, number] + hop[route])
        return float(max(arrived.max(initial=0.0), *(latency + chunk * share for latency, share in self._busy), 0.0))
