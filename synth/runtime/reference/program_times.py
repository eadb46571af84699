"""Times of one program at many sizes, by the event loop of the reference executor.

The tables of the program are made once. Its time is a function of the elements of a chunk that jumps where a chunk
needs one more slice, or an op one more part, and is nearly linear in pieces between. So it is computed at the ends of
these intervals and at a few numbers of elements within, at more of them where it bends, and interpolated in between.
Chunks of many slices pass in a steady rhythm once all FIFOs have been full. From there on each slice costs the same.
Where flows share links the rhythm may take many slices to become steady, so it is compared over two spans of slices.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, isqrt

from synth.model.topology import Network
from synth.program.buffer_layout import Layout
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.program import Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES
from synth.runtime.dtypes import dtype
from synth.runtime.link_schedule import LinkSchedule
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import diagnose
from synth.runtime.reference.event_loop import Engine, Simulation
from synth.runtime.reference.op_tables import compile_program
from synth.runtime.slicing import cut
from synth.solvers.processes.deadline import TimeUp


@dataclass(frozen=True)
class ProgramTimeSettings:
    """Sizes at which times are computed, extrapolated or interpolated.

    Attributes:
        steady_depths: FIFO depths in slices beyond which a time is extrapolated, from half as many slices and from so
            many.
        steady_slices: Slices beyond which a time is extrapolated where that would be more than `long` ops.
        long: Ops of a program from which on few slices count as steady, and up to which slices are doubled until the
            time of a slice differs by `tolerance` at most.
        spacing: Ratio of neighbouring numbers of elements at which the time is always computed.
        tolerance: Relative error of an interpolated time in the middle of an interval below which the interval is not
            divided.
        narrow: Width of an interval, relative to its least number of elements, up to which it is not divided.
        wide: Ratio of the ends of an interval from which its middle may lie on the line by chance, where the time grows
            by more than `steep`. It is straight if the middle of its half lies on a line, too.
        steep: Relative growth of the time from one end of an interval to the other up to which one middle shows enough.
        few: Numbers of judged sizes up to which long calls are run in full too.
    """

    steady_depths: int = 2
    steady_slices: int = 4
    long: int = 8000
    spacing: int = 4
    tolerance: Fraction = Fraction(1, 250)
    narrow: Fraction = Fraction(1, 64)
    wide: Fraction = Fraction(19, 10)
    steep: Fraction = Fraction(1, 10)
    few: int = 4


SETTINGS = ProgramTimeSettings()
FLOAT32 = dtype("float32")


class ProgramTimes:
    """Times of `program`, called with float32 out of place where it can be, on the links of `network`.

    `per_send`: the cost of a message at either end. `launch`: picoseconds before the first op. `judged`: sizes in bytes
    at which the time is that of a run, as `synth run` has it, and not interpolated. Of more than `few` sizes those of
    many slices are extrapolated. `late`: returns True when no further run is to begin; a time that needs one raises
    TimeUp then.
    """

    def __init__(
        self,
        program: Program,
        network: Network,
        per_send: MessageCost = NO_COST,
        launch: int = 0,
        judged: Sequence[int] = (),
        late: Callable[[], bool] = lambda: False,
    ) -> None:
        collective = program.collective
        if collective is None:
            raise ValueError(f"{program.name} does not say which collective it computes, so it has no sizes")
        self.program, self.network, self.launch, self._late = program, network, launch, late
        self._message_cost = per_send.picoseconds(program.protocol)
        self._layout = Layout(collective, program.chunks)
        self._in_place = program.in_place == "in"
        self._code = compile_program(program, self._arena(1), in_place=self._in_place)
        slice_bytes = RUNTIMES["synth"].operation_bytes(program.protocol, collective.name)
        slices = SETTINGS.steady_depths * FIFO_DEPTH[program.protocol]
        if slices * program.ops > SETTINGS.long:
            slices = SETTINGS.steady_slices
        self._slices, self._slice = slices, slice_bytes // FLOAT32.size
        self._judged = {self._elements(size) for size in judged}
        if len(judged) > SETTINGS.few:
            self._judged = {elements for elements in self._judged if elements <= slices * self._slice}
        self._computed: dict[int, int] = {}
        self._ends = cache(self._last_before_jumps)
        self._straight: set[tuple[int, int]] = set()  # intervals of elements in which the time is interpolated

    def seconds(self, size: int) -> float:
        """Return the seconds of a call of `size` bytes; chunks may have a fraction of an element, but one at least."""
        if (whole := self._elements(size)) in self._judged:
            return self.computed(whole) * 1e-12
        elements = Fraction(size, FLOAT32.size * self.program.loop_chunks)
        return float(self.picoseconds(max(Fraction(1), elements))) * 1e-12

    def jumps(self, low: int, high: int) -> list[int]:
        """Return the bytes in low+1..high before and after a chunk needs one more slice, or an op one more part.

        They end where times are extrapolated in a steady rhythm.
        """
        unit = FLOAT32.size * self.program.loop_chunks
        ends = self._ends(self._rhythm(ceil(Fraction(high, unit * self._slice))))
        sizes = [end * unit + after for end in ends[:-1] for after in (0, 1)]
        return [size for size in sizes if low < size <= high]

    def rough_seconds(self, size: int) -> float:
        """Return the seconds of a call of `size` bytes from few runs: jumps of calls of many slices are smoothed."""
        elements = max(Fraction(1), Fraction(size, FLOAT32.size * self.program.loop_chunks))
        if elements <= self._slice:
            return float(self.picoseconds(elements)) * 1e-12
        low = self._slice
        while 2 * low < min(elements, self._slices * self._slice):
            low *= 2
        return float(self._line(elements, low, 2 * low)) * 1e-12

    def _elements(self, size: int) -> int:
        """Return the elements of a chunk in a call of `size` bytes, with padding."""
        return max(1, ceil(Fraction(size, FLOAT32.size * self.program.loop_chunks)))

    def picoseconds(self, elements: Fraction | int) -> Fraction:
        """Return the ps of a call whose chunks have `elements` elements, interpolated where that is near enough."""
        slices = ceil(elements / Fraction(self._slice))
        whole = self._rhythm(slices)
        half = whole // 2
        if (more := slices - half - 1) > 0:
            each = Fraction(self._of_slices(whole) - self._of_slices(half), whole - half)
            return self.picoseconds(elements - more * self._slice) + more * each
        ends = self._ends(whole)
        place = bisect_left(ends, elements)
        low, end = ends[place - 1] + 1 if place else 1, ends[place]
        elements = max(elements, low)  # the call is padded to whole elements
        while low * SETTINGS.spacing <= elements:
            low *= SETTINGS.spacing
        return self._between(elements, low, min(low * SETTINGS.spacing, end))

    def computed(self, elements: int) -> int:
        """Return the ps of a call whose chunks have `elements` elements, by a run of the event loop.

        Raises DeadlockError; TimeUp where it is too late for a run.
        """
        if elements not in self._computed:
            if self._late():
                raise TimeUp
            parts = cut(self.program, elements, FLOAT32)
            arena = self._arena(len(parts.bounds))
            arena.fill((), self._layout, len(parts.bounds))
            simulation = Simulation(LinkSchedule(self.network), message_cost=self._message_cost)
            engine = Engine(self._code, arena, parts, FLOAT32.size, None, simulation)
            makespan = engine.run()
            if not all(engine.done):
                raise diagnose(engine)
            self._computed[elements] = self.launch + makespan
        return self._computed[elements]

    def _rhythm(self, slices: int) -> int:
        """Return the slices after half of which each costs the same, `self._slices` for calls of at most half of it."""
        return self._slices if slices <= self._slices // 2 + 1 else self._steady_slices

    @cached_property
    def _steady_slices(self) -> int:
        """The slices after half of which each costs the same, as far as `SETTINGS.long` ops show it."""
        slices = self._slices
        while 2 * slices * self.program.ops <= SETTINGS.long and not self._steady_before(slices):
            slices *= 2
        return slices

    def _steady_before(self, slices: int) -> bool:
        """Return True if the third and the last quarter of `slices` slices take the same time, within a tolerance."""
        half, middle = slices // 2, 3 * slices // 4
        third = Fraction(self._of_slices(middle) - self._of_slices(half), middle - half)
        last = Fraction(self._of_slices(slices) - self._of_slices(middle), slices - middle)
        return abs(last - third) <= SETTINGS.tolerance * last

    def _of_slices(self, slices: int) -> int:
        """Return the ps of a call whose chunks have so many full slices."""
        return self.computed(slices * self._slice)

    def _last_before_jumps(self, slices: int) -> list[int]:
        """Return the growing numbers of elements up to `slices` slices beyond which a chunk has one more slice, or an
        op one more part."""
        steady = slices * self._slice
        ends = {steady}
        if not self.program.one_sided:
            ends.update(range(self._slice, steady, self._slice))
            for count in {step.count for steps in self._code.steps for step in steps}:
                for part in range(1, count):
                    if ceil(count / part) > ceil(count / (part + 1)):
                        ends.add(self._slice // (part + 1))
        return sorted(ends - {0})

    def _arena(self, slices: int) -> Arena:
        return Arena(self.program, self._layout, in_place=self._in_place, slices=slices)

    def _between(self, elements: Fraction | int, low: int, high: int) -> Fraction:
        """Return the ps at `elements` in low..high; the interval is divided until its middle lies on a line."""
        if elements in (low, high):
            return Fraction(self.computed(int(elements)))
        fitting = 0  # middles in a row that lie on the line
        while elements not in self._computed and (low, high) not in self._straight:
            if high - low <= max(1, SETTINGS.narrow * low):
                break
            middle = max(low + 1, isqrt(low * high))
            found = self.computed(middle)
            fits = abs(found - self._line(middle, low, high)) <= SETTINGS.tolerance * found
            fitting = fitting + 1 if fits else 0
            if fitting > self._doubtful(low, high):
                self._straight |= {(low, middle), (middle, high)}
            if elements < middle:
                high = middle
            else:
                low = middle
        if elements in self._computed:
            return Fraction(self._computed[int(elements)])
        return self._line(elements, low, high)

    def _doubtful(self, low: int, high: int) -> bool:
        """Return True if the middle of an interval may lie on the line between its ends by chance."""
        first, last = self.computed(low), self.computed(high)
        return high >= SETTINGS.wide * low and last - first > SETTINGS.steep * first

    def _line(self, elements: Fraction | int, low: int, high: int) -> Fraction:
        """Return the ps at `elements` on the line through the times at `low` and `high`."""
        if low == high:
            return Fraction(self.computed(low))
        first, last = self.computed(low), self.computed(high)
        return first + (elements - low) * Fraction(last - first, high - low)
