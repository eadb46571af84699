"""Predicted beside emulated: the synchronous cost of schedules, and what an executor of their programs makes of the
same links.

The prediction is S·α + (R/C)·bytes/β, steps as barriers; the emulation runs the lowered program over FIFOs and links,
without barriers. What the prediction chooses is judged by the emulated times: the *regret* is how much longer its
choice takes than the best. A negative control shows that the emulation hears what it is told: one link at half its β,
all α ten times. Both are models of a machine that nobody has measured, and every table says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

from synth.errors import UsageError
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.call import Call, run
from synth.runtime.executor import Execution
from synth.runtime.kernel.logical_clock import SAYS
from synth.runtime.link_schedule import Key

CHECKED = 256 << 20  # bytes of all ranks' buffers up to which a kernel's outputs are compared while it keeps the time
SCHEMA = "synth.emulated/1"
KERNELS = ("host", "cuda")  # executors that keep logical time in the kernel
ELEMENT = 4  # bytes: float32, the default everywhere


class How(NamedTuple):
    """Who emulates, with which options of the executor."""

    executor: str
    options: dict[str, Any]


class Entry(NamedTuple):
    """A schedule and its program. `choice`: one of those that the prediction chooses from, not only beside them."""

    label: str
    schedule: Schedule
    program: Program
    choice: bool = True


class Sized(NamedTuple):
    """All entries at one size: ps by entry. `chosen`: by the prediction; `best`: of the choices, as emulated."""

    size: int
    predicted: tuple[Fraction, ...]
    emulated: tuple[int, ...]
    chosen: int
    best: int

    @property
    def regret(self) -> Fraction:
        """What the chosen one takes longer than the best, as a share of the best."""
        return Fraction(self.emulated[self.chosen], self.emulated[self.best]) - 1


class Control(NamedTuple):
    """One change of the network. `heard`: times went where they must: above `floor`, and above before unless there was
    slack."""

    change: str
    size: int
    before: int
    after: int
    floor: Fraction
    best_before: int
    best_after: int
    heard: bool


class Paced(NamedTuple):
    """A run whose real time was held to `stretch` times its logical time of `picoseconds`: ns of it, and of one that
    was not held."""

    size: int
    entry: int
    stretch: int
    picoseconds: int
    nanoseconds: int
    unshaped: int

    @property
    def ratio(self) -> float:
        """Real time over `stretch`, over logical time: near 1 where the executor keeps up, and nearer the larger
        `stretch`."""
        return self.nanoseconds * 1000 / (self.stretch * self.picoseconds) if self.picoseconds else 1.0

    @property
    def valid(self) -> bool:
        """Whether the executor by itself takes less than half of what the run was held to."""
        return 2 * self.unshaped < self.nanoseconds


@dataclass(frozen=True)
class Emulated:
    """What `synth emulate` found. `paced`: of the best of each size, for each stretch that was asked for."""

    executor: str
    network: Network
    entries: tuple[Entry, ...]
    sizes: tuple[Sized, ...]
    controls: tuple[Control, ...]
    paced: tuple[Paced, ...] = ()

    def to_json(self) -> dict:
        """The document; times in integer picoseconds."""
        task = self.entries[0].program.collective
        return {
            "schema": SCHEMA,
            "says": SAYS.format(network=self.network.name),
            "executor": self.executor,
            "topology": self.network.name,
            "collective": task.name if task else None,
            "entries": [
                {
                    "label": e.label,
                    "program": e.program.name,
                    "steps": len(e.schedule.steps),
                    "rounds": e.schedule.rounds,
                    "chunks": e.schedule.chunks,
                    "choice": e.choice,
                }
                for e in self.entries
            ],
            "sizes": [
                {
                    "size": s.size,
                    "predicted": [-(-p.numerator // p.denominator) for p in s.predicted],
                    "emulated": list(s.emulated),
                    "chosen": s.chosen,
                    "best": s.best,
                    "regret": float(s.regret),
                }
                for s in self.sizes
            ],
            "controls": [
                {
                    "change": c.change,
                    "size": c.size,
                    "before": c.before,
                    "after": c.after,
                    "best_before": c.best_before,
                    "best_after": c.best_after,
                    "heard": c.heard,
                }
                for c in self.controls
            ],
            "paced": [run._asdict() | {"ratio": run.ratio, "valid": run.valid} for run in self.paced],
        }


def emulate(
    network: Network,
    entries: Sequence[Entry],
    sizes: Sequence[int],
    executor: str = "reference",
    *,
    stretches: Sequence[int] = (),
    **options: Any,
) -> Emulated:
    """All `entries` at all `sizes` (rounded up to what every one of them divides), and the controls at the ends.

    By the host or the cuda executor the kernel keeps the time while it moves the data, and its outputs are compared up
    to
    `CHECKED` bytes. `stretches`: there, the best of each size is also run at real time so many times longer. `options`
    are the executor's. Raises UsageError for one that keeps no time.
    """
    name = executor.lower()
    if name not in ("reference", *KERNELS):
        raise UsageError(f"the {executor} executor keeps no logical time; reference, {' and '.join(KERNELS)} do")
    if stretches and name not in KERNELS:
        raise UsageError(
            f"the {executor} executor has no real time to hold; --paced goes with --executor {' or '.join(KERNELS)}"
        )
    how = How(name, ({"clock": "logical"} if name in KERNELS else {}) | options)
    each = lcm(*(entry.program.loop_chunks for entry in entries)) * ELEMENT
    rounded = sorted({-(-size // each) * each for size in sizes})
    found = tuple(_sized(network, entries, size, how) for size in rounded)
    paced = tuple(_paced(network, entries, at, how, stretch) for at in found for stretch in stretches)
    return Emulated(name, network, tuple(entries), found, _controls(network, entries, found, how), paced)


def _paced(network: Network, entries: Sequence[Entry], at: Sized, how: How, stretch: int) -> Paced:
    program = entries[at.best].program
    held = _run(network, program, at.size, how._replace(options=how.options | {"clock": "paced", "stretch": stretch}))
    free = _run(network, program, at.size, how)
    return Paced(at.size, at.best, stretch, held.picoseconds or 0, held.nanoseconds or 0, free.nanoseconds or 0)


def predicted(schedule: Schedule, network: Network, size: int) -> Fraction:
    """Picoseconds of the synchronous model: steps are barriers, each pays the greatest α."""
    share = size * schedule.collective.unit_share
    return len(schedule.steps) * network.latency * 10**6 + schedule.bandwidth * share * 1000 / network.unit


def _sized(network: Network, entries: Sequence[Entry], size: int, how: How) -> Sized:
    costs = tuple(predicted(entry.schedule, network, size) for entry in entries)
    times = tuple(_time(network, entry.program, size, how)[0] for entry in entries)
    choices = [k for k, entry in enumerate(entries) if entry.choice]
    return Sized(size, costs, times, min(choices, key=lambda k: costs[k]), min(choices, key=lambda k: times[k]))


def _time(network: Network, program: Program, size: int, how: How) -> tuple[int, dict[Key, int]]:
    done = _run(network, program, size, how)
    return done.picoseconds or 0, {used.link: used.bytes for used in done.links}


def _run(network: Network, program: Program, size: int, how: How) -> Execution:
    """In memory that a kernel works in, the data that it moves are right; a model moves none."""
    task = program.collective
    layout = Layout(task, program.chunks) if task else None
    held = sum(map(len, (*layout.inputs, *layout.outputs))) * size // program.loop_chunks if layout else 0
    values = how.executor in KERNELS and held <= CHECKED
    call = Call(program, network, size, in_place=program.in_place == "in", values=values, bound=False)
    return run(call, None, how.executor, how.options).execution


def _controls(network: Network, entries: Sequence[Entry], found: Sequence[Sized], how: How) -> tuple[Control, ...]:
    """Half the β of the link that the best program uses most, at the largest size; ten times all α, at the smallest."""
    large, small = found[-1], found[0]
    _, carried = _time(network, entries[large.best].program, large.size, how)
    rates = {(route.src, route.dst, route.via): route.units * network.unit for route in network.routes}
    made = []
    if carried:  # what the link itself takes: a limit that it waits for is as wide as before
        link = max(carried, key=lambda key: (carried[key] / rates[key], key))
        floor = Fraction(2 * carried[link] * 1000) / rates[link]
        name = f"half the bandwidth from rank {link[0]} to rank {link[1]}"
        made.append(_control(name, slower(network, link), entries, large, floor, how))
    if network.latency:
        times = replace(network, routes=tuple(replace(route, latency=10 * route.latency) for route in network.routes))
        least = min(route.latency for route in network.routes) * 10**7
        made.append(_control("10 times every latency", times, entries, small, least, how))
    return tuple(made)


def _control(change: str, network: Network, entries: Sequence[Entry], at: Sized, floor: Fraction, how: How) -> Control:
    after = _sized(network, entries, at.size, how)
    before, now = at.emulated[at.best], after.emulated[at.best]
    # a link that was idle for half of the time may hide a slower one
    return Control(
        change, at.size, before, now, floor, at.best, after.best, now >= floor and (now > before or floor <= before)
    )


def slower(network: Network, link: Key) -> Network:
    """`network` with half the bandwidth on the route `link`."""
    routes = tuple(
        route if (route.src, route.dst, route.via) == link else replace(route, units=2 * route.units)
        for route in network.routes
    )
    caps = tuple(replace(cap, units=2 * cap.units) for cap in network.caps)
    return replace(network, routes=routes, caps=caps, unit=network.unit / 2, wires=(), generators=())
