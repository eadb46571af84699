"""Logical time in the kernel: the memory that it reads, and the times that it leaves there.

The kernel computes by itself when every transfer begins and ends (kernel/clock.cuh). The reference executor supplies
one input: the order in which transfers take a link, or links that share a limit, as numbered tickets. So equal times
show that the lowered arrays, run by many threads with real data, take the time that the model gives them.
"""

from __future__ import annotations

from itertools import chain
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from synth.errors import SynthError, UsageError
from synth.model.graphs import components
from synth.model.topology import Network
from synth.program.buffer_layout import Layout
from synth.runtime.dtypes import Dtype
from synth.runtime.executor import Execution, Usage
from synth.runtime.kernel.tables import record
from synth.runtime.link_schedule import LinkSchedule
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import diagnose
from synth.runtime.reference.event_loop import Engine, Simulation
from synth.runtime.reference.op_tables import CompiledProgram
from synth.runtime.slicing import Slicing

SAYS = (
    "an execution-driven model of {network}, not a measurement: programs run over FIFOs and links with the α and "
    "β of the topology"
)
ROUTE = record("u8 free busy carried; i8 num den alpha; i4 cap0 ncaps line padding")
LIMIT = record("u8 served; i8 num den")
CLOCK = record(
    "u8 routes limits caps turns route_of tickets ticket0 sent_at freed_at ends clocks walls start; i8 nops bytes"
)
RECORDS = (ROUTE, LIMIT, CLOCK)
ALIGNED = 64  # bytes: the alignment of every array within the clock's memory


class Timetable(NamedTuple):
    """The order of all transfers, from a run of the reference executor.

    `route_of[connection]`: its route. `line[route]`: the queue that the route belongs to; routes that share limits have
    one queue. `tickets[connection]`: the position of each of its messages in that queue. `picoseconds`: the makespan.
    """

    network: Network
    route_of: tuple[int, ...]
    line: tuple[int, ...]
    tickets: tuple[tuple[int, ...], ...]
    picoseconds: int


class ClockTimes(NamedTuple):
    """The times of a launch: logical makespan in ps, use of links, and the ns until the last block had ended."""

    picoseconds: int
    links: tuple[Usage, ...]
    nanoseconds: int


def timetable(code: CompiledProgram, cut: Slicing, size: int, network: Network, *, in_place: bool) -> Timetable:
    """Return the order of transfers when the reference executor runs `code`, without data, over the links of `network`.

    `size`: bytes of an element. Raises SynthError where a link is missing, DeadlockError, VerificationError.
    """
    program = code.program
    if program.collective is None or network.ranks != program.ranks:
        raise SynthError(f"{program.name} is for {program.ranks} ranks, {network.name} has {network.ranks}")
    layout = Layout(program.collective, program.chunks)
    arena = Arena(program, layout, in_place=in_place, slices=len(cut.bounds))
    arena.fill((), layout, len(cut.bounds))
    engine = Engine(code, arena, cut, size, None, Simulation(LinkSchedule(network), trace=True))
    makespan = engine.run()
    if not all(engine.done):
        raise diagnose(engine)
    # A queue for the routes that share limits, directly or through others.
    by_cap: dict[int, int] = {}
    shared = []
    for route, caps in enumerate(network.caps_of):
        shared += [(route, by_cap.setdefault(cap, route)) for cap in caps]
    line = tuple(components(range(len(network.routes)), shared).values())
    first = {rank: b for b, (rank, block) in enumerate(code.place) if block == 0}
    next_ticket = [0] * (max(line, default=0) + 1)
    tickets: list[list[int]] = [[] for _ in code.wires]
    for event in engine.events or ():  # in the order in which links were taken
        if event.link is not None:
            wire = code.out[first[event.rank] + event.block]
            queue = line[engine.routes[wire]]
            tickets[wire].append(next_ticket[queue])
            next_ticket[queue] += 1
    return Timetable(network, tuple(engine.routes), line, tuple(map(tuple, tickets)), makespan)


def timed_execution(outputs: tuple[np.ndarray, ...] | None, times: ClockTimes | None) -> Execution:
    """Return the result of a launch with these outputs, and with logical times if a clock kept them."""
    if times is None:
        return Execution(outputs, None)
    return Execution(outputs, times.picoseconds, times.links, nanoseconds=times.nanoseconds)


class ClockMemory:
    """The kernel's Clock and the arrays that it points to, as one piece of memory."""

    def __init__(self, table: Timetable, code: CompiledProgram, cut: Slicing, most: int) -> None:
        """Lay out the memory. `most`: bytes of the largest transfer. Raises SynthError where times exceed 64 bits."""
        network, blocks = table.network, max(1, len(code.place))
        self.network, self.nops = network, sum(map(len, code.steps))
        routes, caps = np.zeros(max(1, len(network.routes)), ROUTE), [0]
        for row, route, held in zip(routes, network.routes, network.caps_of, strict=False):
            row["num"], row["den"] = _pace(network, route.units, most)
            row["alpha"] = ceil(route.latency * 10**6)
            row["cap0"], row["ncaps"] = len(caps), len(held)
            caps += held
        routes["line"][: len(table.line)] = table.line
        limits = np.zeros(max(1, len(network.caps)), LIMIT)
        for row, cap in zip(limits, network.caps, strict=False):
            row["num"], row["den"] = _pace(network, cap.units, most)
        slots = max(1, len(code.wires)) * cut.depth
        self._parts = {
            "routes": routes,
            "limits": limits,
            "caps": np.array(caps, np.int32),
            "turns": np.zeros(len(routes), np.uint64),
            "route_of": np.array([*table.route_of, 0], np.int32),
            "tickets": np.array([*chain.from_iterable(table.tickets), 0], np.uint32),
            "ticket0": np.array([0, *np.cumsum([len(tickets) for tickets in table.tickets])], np.int64),
            "sent_at": np.zeros(slots, np.uint64),
            "freed_at": np.zeros(slots, np.uint64),
            "ends": np.zeros(max(1, self.nops * len(cut.bounds)), np.uint64),
            "clocks": np.zeros(blocks, np.uint64),
            "walls": np.zeros(blocks, np.uint64),
            "start": np.zeros(1, np.uint64),
        }
        self.at: dict[str, int] = {}
        self.size = -(-CLOCK.itemsize // ALIGNED) * ALIGNED
        for name, array in self._parts.items():
            self.at[name] = self.size
            self.size += -(-array.nbytes // ALIGNED) * ALIGNED

    def image(self, base: int, size: int) -> np.ndarray:
        """Return the bytes that must lie at address `base` before each launch.

        `size`: bytes of an element of the instantiation.
        """
        image = np.zeros(self.size, np.uint8)
        head = image[: CLOCK.itemsize].view(CLOCK)
        head["nops"], head["bytes"] = self.nops, size
        for name, array in self._parts.items():
            head[name] = base + self.at[name]
            image[self.at[name] : self.at[name] + array.nbytes] = array.view(np.uint8).reshape(-1)
        return image

    def read(self, raw: np.ndarray) -> ClockTimes:
        """Return the times of a launch from the bytes `raw` that it left in the clock's memory."""
        left = {}
        for name in ("routes", "clocks", "walls"):
            array = self._parts[name]
            left[name] = np.frombuffer(raw[self.at[name] : self.at[name] + array.nbytes].tobytes(), array.dtype)
        used = []
        for route, row in zip(self.network.routes, left["routes"], strict=False):
            if row["carried"]:
                used.append(Usage((route.src, route.dst, route.via), int(row["busy"]), int(row["carried"])))
        used.sort(key=lambda use: (-use.busy, use.link))
        return ClockTimes(int(left["clocks"].max()), tuple(used), int(left["walls"].max()))


def make_clock(options: Any, code: CompiledProgram, cut: Slicing, kind: Dtype, in_place: bool) -> ClockMemory | None:
    """Return the clock that an executor's options `clock`, `network` and `ranks_on` select, or None.

    Raises UsageError for options that contradict each other, and whatever `timetable` raises.
    """
    if options.clock is None:
        return None
    if options.clock != "logical":
        raise UsageError(f"unknown clock {options.clock!r}; logical exists")
    if options.network is None:
        raise UsageError("logical time needs the α and β of links: name the machine (--topo)")
    if options.ranks_on is not None:
        raise UsageError("logical time is kept within one launch; leave out --ranks-on")
    if code.program.one_sided:
        raise UsageError(
            f"{code.program.name} is one-sided: the kernel keeps logical time for programs of sends and receives; for "
            f"its time use --executor reference"
        )
    chunks = max((step.count for steps in code.steps for step in steps), default=1)
    table = timetable(code, cut, kind.size, options.network, in_place=in_place)
    return ClockMemory(table, code, cut, cut.elements * kind.size * chunks)


def _pace(network: Network, units: int, most: int) -> tuple[int, int]:
    """Picoseconds per byte as a fraction, for transfers of at most `most` bytes.

    Raises SynthError where the product of bytes and numerator does not fit the kernel's 64-bit arithmetic.
    """
    rate = 1000 / (units * network.unit)
    if rate.numerator * most >= 1 << 62:
        raise SynthError(
            f"{network.name}: a transfer of {most} bytes at {float(1000 / rate):g} GB/s does not fit the kernel's clock"
        )
    return rate.numerator, rate.denominator
