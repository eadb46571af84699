"""Times of one program at many sizes, by the event loop of the reference executor.

The tables of the program are made once. Chunks of many slices pass in a steady rhythm once all FIFOs have been full.
From there on each slice costs the same, so that few runs give the time of the largest calls. Where flows share links
the rhythm may take many slices to become steady, so it is compared over two spans of slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

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
from synth.solvers.deadline import check_deadline


@dataclass(frozen=True)
class ProgramTimeSettings:
    """Slices from which times are extrapolated.

    Attributes:
        steady_depths: FIFO depths in slices beyond which a time is extrapolated, from half as many slices and from so
            many.
        steady_slices: Slices beyond which a time is extrapolated where that would be more than `long` ops.
        long: Ops of a program from which on few slices count as steady, and up to which slices are doubled until the
            time of a slice differs by `tolerance` at most.
        tolerance: Relative difference of the time of a slice up to which the rhythm is steady.
    """

    steady_depths: int = 2
    steady_slices: int = 4
    long: int = 8000
    tolerance: Fraction = Fraction(1, 250)


SETTINGS = ProgramTimeSettings()
FLOAT32 = dtype("float32")


class ProgramTimes:
    """Times of `program`, called with float32 out of place where it can be, on the links of `network`.

    `per_send`: the cost of a message at either end. `launch`: picoseconds before the first op. `exact`: every time is
    that of a whole run, as `synth run` has it. Else those of many slices are extrapolated.
    """

    def __init__(
        self, program: Program, network: Network, per_send: MessageCost = NO_COST, launch: int = 0, exact: bool = False
    ) -> None:
        collective = program.collective
        if collective is None:
            raise ValueError(f"{program.name} does not say which collective it computes, so it has no sizes")
        self.program, self.network, self.launch, self.exact = program, network, launch, exact
        self._message_cost = per_send.picoseconds
        self._layout = Layout(collective, program.chunks)
        self._in_place = program.in_place == "in"
        self._code = compile_program(program, self._arena(1), in_place=self._in_place)
        slice_bytes = RUNTIMES["synth"].operation_bytes(program.protocol, collective.name)
        slices = SETTINGS.steady_depths * FIFO_DEPTH[program.protocol]
        if slices * program.ops > SETTINGS.long:
            slices = SETTINGS.steady_slices
        self._slices, self._slice = slices, slice_bytes // FLOAT32.size
        self._computed: dict[int, int] = {}

    def seconds(self, size: int) -> float:
        """Return the seconds of a call of `size` bytes, padded to whole elements of each chunk."""
        elements = max(1, ceil(Fraction(size, FLOAT32.size * self.program.loop_chunks)))
        slices = ceil(Fraction(elements, self._slice))
        whole = self._slices if slices <= self._slices // 2 + 1 else self._steady_slices
        half = whole // 2
        more = slices - half - 1
        if self.exact or more <= 0:
            return self.computed(elements) * 1e-12
        each = Fraction(self._of_slices(whole) - self._of_slices(half), whole - half)
        return float(self.computed(elements - more * self._slice) + more * each) * 1e-12

    def computed(self, elements: int) -> int:
        """Return the ps of a call whose chunks have `elements` elements, by a run of the event loop.

        Raises DeadlockError; TimeUp where it is too late for a run.
        """
        if elements not in self._computed:
            check_deadline()
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

    def _arena(self, slices: int) -> Arena:
        return Arena(self.program, self._layout, in_place=self._in_place, slices=slices)
