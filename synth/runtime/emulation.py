"""Predicted beside emulated: the synchronous cost of schedules, and what an executor of their programs makes of the same links.

The prediction is S·α + (R/C)·bytes/β, steps as barriers; the emulation runs the lowered program over FIFOs and links, without
barriers. What the prediction chooses is judged by the emulated times: the *regret* is how much longer its choice takes than
the best. A negative control shows that the emulation hears what it is told: one link at half its β, all α ten times. Both
are models of a machine that nobody has measured, and every table says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from synth.program.program import Program
from synth.runtime.calls import Call, run
from synth.runtime.links import Key
from synth.schedule import Schedule
from synth.topology import Network

SCHEMA = "synth.emulated/1"
SAYS = "an execution-driven model of {network}, not a measurement: programs run over FIFOs and links with the α and β of the topology"
ELEMENT = 4  # bytes: float32, the default everywhere


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
    """One change of the network. `heard`: times went where they must: above `floor`, and above before unless there was slack."""

    change: str
    size: int
    before: int
    after: int
    floor: Fraction
    best_before: int
    best_after: int
    heard: bool


@dataclass(frozen=True)
class Emulated:
    """What `synth emulate` found."""

    executor: str
    network: Network
    entries: tuple[Entry, ...]
    sizes: tuple[Sized, ...]
    controls: tuple[Control, ...]

    def to_json(self) -> dict:
        """The document; times in integer picoseconds."""
        task = self.entries[0].program.collective
        return {
            "schema": SCHEMA, "says": SAYS.format(network=self.network.name), "executor": self.executor, "topology": self.network.name,
            "collective": task.name if task else None,
            "entries": [
                {"label": e.label, "program": e.program.name, "steps": len(e.schedule.steps), "rounds": e.schedule.rounds,
                 "chunks": e.schedule.chunks, "choice": e.choice}
                for e in self.entries
            ],
            "sizes": [
                {"size": s.size, "predicted": [-(-p.numerator // p.denominator) for p in s.predicted], "emulated": list(s.emulated),
                 "chosen": s.chosen, "best": s.best, "regret": float(s.regret)}
                for s in self.sizes
            ],
            "controls": [
                {"change": c.change, "size": c.size, "before": c.before, "after": c.after, "best_before": c.best_before,
                 "best_after": c.best_after, "heard": c.heard}
                for c in self.controls
            ],
        }  # fmt: skip


def emulate(network: Network, entries: Sequence[Entry], sizes: Sequence[int], executor: str = "reference") -> Emulated:
    """All `entries` at all `sizes` (rounded up to what every one of them divides), and the controls at the ends."""
    each = lcm(*(entry.program.loop_chunks for entry in entries)) * ELEMENT
    rounded = sorted({-(-size // each) * each for size in sizes})
    found = tuple(_sized(network, entries, size, executor) for size in rounded)
    return Emulated(executor, network, tuple(entries), found, _controls(network, entries, found, executor))


def predicted(schedule: Schedule, network: Network, size: int) -> Fraction:
    """Picoseconds of the synchronous model: steps are barriers, each pays the greatest α."""
    share = size * schedule.collective.unit_share
    return len(schedule.steps) * network.latency * 10**6 + schedule.bandwidth * share * 1000 / network.unit


def _sized(network: Network, entries: Sequence[Entry], size: int, executor: str) -> Sized:
    costs = tuple(predicted(entry.schedule, network, size) for entry in entries)
    times = tuple(_time(network, entry.program, size, executor)[0] for entry in entries)
    choices = [k for k, entry in enumerate(entries) if entry.choice]
    return Sized(size, costs, times, min(choices, key=lambda k: costs[k]), min(choices, key=lambda k: times[k]))


def _time(network: Network, program: Program, size: int, executor: str) -> tuple[int, dict[Key, int]]:
    call = Call(program, network, size, in_place=program.in_place == "in", values=False, bound=False)
    done = run(call, None, executor, {}).execution
    return done.picoseconds or 0, {used.link: used.busy for used in done.links}


def _controls(network: Network, entries: Sequence[Entry], found: Sequence[Sized], executor: str) -> tuple[Control, ...]:
    """Half the β of the link that the best program uses most, at the largest size; ten times all α, at the smallest."""
    large, small = found[-1], found[0]
    _, busy = _time(network, entries[large.best].program, large.size, executor)
    made = []
    if busy:
        link = max(busy, key=lambda key: (busy[key], key))
        floor = Fraction(2 * busy[link])
        name = f"half the bandwidth from rank {link[0]} to rank {link[1]}"
        made.append(_control(name, slower(network, link), entries, large, floor, executor))
    if network.latency:
        times = replace(network, routes=tuple(replace(route, latency=10 * route.latency) for route in network.routes))
        least = min(route.latency for route in network.routes) * 10**7
        made.append(_control("10 times every latency", times, entries, small, least, executor))
    return tuple(made)


def _control(change: str, network: Network, entries: Sequence[Entry], at: Sized, floor: Fraction, executor: str) -> Control:
    after = _sized(network, entries, at.size, executor)
    before, now = at.emulated[at.best], after.emulated[at.best]
    # a link that was idle for half of the time may hide a slower one
    return Control(change, at.size, before, now, floor, at.best, after.best, now >= floor and (now > before or floor <= before))


def slower(network: Network, link: Key) -> Network:
    """`network` with half the bandwidth on the route `link`."""
    routes = tuple(
        route if (route.src, route.dst, route.via) == link else replace(route, units=2 * route.units) for route in network.routes
    )
    caps = tuple(replace(cap, units=2 * cap.units) for cap in network.caps)
    return replace(network, routes=routes, caps=caps, unit=network.unit / 2, wires=(), generators=())
