"""Predicted and emulated times of schedules: the synchronous cost model against an executor over the same links.

The prediction is S·α + (R/C)·bytes/β, with steps as barriers. The emulation runs the lowered program over FIFOs and
links, without barriers, after a launch and with the costs of its protocol (`synth.program.overheads`). The prediction's
choice is judged by the emulated times: its *regret* is how much longer it takes than the best. Negative controls show
that the emulation responds to the machine: one link gets half its β, or every α is multiplied by ten. Both are models
of a machine that nobody has measured, and every table says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from synth.errors import UsageError
from synth.model.rational import number_or_text
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program.buffer_layout import Layout
from synth.program.overheads import label, selected
from synth.program.program import Program
from synth.runtime.call import Call, run
from synth.runtime.dtypes import dtype
from synth.runtime.executor import Execution
from synth.runtime.kernel.logical_clock import SAYS
from synth.runtime.link_schedule import Key
from synth.runtime.run_request import RunRequest
from synth.runtime.slicing import rounded_size

# Maximum bytes of all ranks' buffers up to which a kernel's outputs are compared while it keeps the time.
CHECKED = 256 << 20
SCHEMA = "synth.emulated/1"
KERNELS = ("host", "cuda")  # executors that keep logical time in the kernel
ELEMENT = 4  # bytes of an element: float32, the default everywhere


class EmulatedSchedule(NamedTuple):
    """A schedule and its program. `choice`: the prediction may choose it; otherwise it is only compared."""

    label: str
    schedule: Schedule
    program: Program
    choice: bool = True


class SizeTimes(NamedTuple):
    """Times in ps of all entries at one size.

    `chosen`: the choice with the least predicted time. `best`: the choice with the least emulated time.
    """

    size: int
    predicted: tuple[Fraction, ...]
    emulated: tuple[int, ...]
    chosen: int
    best: int

    @property
    def regret(self) -> Fraction:
        """The additional time of the chosen entry over the best, as a share of the best's time."""
        return Fraction(self.emulated[self.chosen], self.emulated[self.best]) - 1


class Control(NamedTuple):
    """The effect of a `change` of the network on the emulated time in ps of the program that was best `before`.

    `floor`: the least time that the changed links allow. `heard`: the emulation shows the change, which means that the
    time `after` is at least `floor`, and greater than `before` unless the links had slack. `best_before`, `best_after`:
    the index of the best entry.
    """

    change: str
    size: int
    before: int
    after: int
    floor: Fraction
    best_before: int
    best_after: int
    heard: bool


class PacedRun(NamedTuple):
    """A run of entry `entry` whose real time was held to `stretch` times its logical time of `picoseconds`.

    `nanoseconds`: its real time. `unshaped`: the real time in ns of the same run without being held.
    """

    size: int
    entry: int
    stretch: int
    picoseconds: int
    nanoseconds: int
    unshaped: int

    @property
    def ratio(self) -> float:
        """Real time over `stretch` times logical time.

        Near 1 where the executor keeps up, and nearer the larger `stretch`.
        """
        return self.nanoseconds * 1000 / (self.stretch * self.picoseconds) if self.picoseconds else 1.0

    @property
    def valid(self) -> bool:
        """True where the executor, not held, takes less than half of the real time of the held run."""
        return 2 * self.unshaped < self.nanoseconds


@dataclass(frozen=True)
class EmulationResult:
    """The result of `synth emulate`.

    `paced`: runs of the best entry at each size, one for each requested stretch. `left_out`: sentences on points that
    were not emulated; the document does not hold them. `model`: the clock of the emulated times.
    """

    executor: str
    network: Network
    entries: tuple[EmulatedSchedule, ...]
    sizes: tuple[SizeTimes, ...]
    controls: tuple[Control, ...]
    paced: tuple[PacedRun, ...] = ()
    left_out: tuple[str, ...] = ()
    model: str = ""

    def to_json(self) -> dict:
        """Return the document; times in integer picoseconds."""
        collective = self.entries[0].program.collective
        sizes = []
        for at in self.sizes:
            predicted = [-(-time.numerator // time.denominator) for time in at.predicted]
            sizes.append(
                {
                    "size": at.size,
                    "predicted": predicted,
                    "emulated": list(at.emulated),
                    "chosen": at.chosen,
                    "best": at.best,
                    "regret": float(at.regret),
                }
            )
        return {
            "schema": SCHEMA,
            "says": SAYS.format(network=self.network.name),
            "model": self.model,
            "executor": self.executor,
            "topology": self.network.name,
            "collective": collective.name if collective else None,
            "entries": [
                {
                    "label": e.label,
                    "program": e.program.name,
                    "steps": len(e.schedule.steps),
                    "rounds": number_or_text(e.schedule.rounds),
                    "chunks": e.schedule.chunks,
                    "choice": e.choice,
                }
                for e in self.entries
            ],
            "sizes": sizes,
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
    entries: Sequence[EmulatedSchedule],
    sizes: Sequence[int],
    request: RunRequest,
    stretches: Sequence[int] = (),
) -> EmulationResult:
    """Emulate all `entries` at all `sizes`, and the negative controls at the largest and the smallest size.

    Sizes are rounded to whole elements for each part of the data, and chunks that do not divide one are padded, as in
    `synth run`. `request`: the executor and its options. With the host or the cuda executor the kernel keeps the time
    while it moves the data, and its outputs are compared up to `CHECKED` bytes. `stretches`: with these executors, the
    best entry of each size also runs with real time held to so many times logical time. Raises UsageError for an
    executor that keeps no logical time.
    """
    name = request.executor
    if name not in ("reference", *KERNELS):
        raise UsageError(f"the {name} executor keeps no logical time; reference, {' and '.join(KERNELS)} do")
    if stretches and name not in KERNELS:
        raise UsageError(
            f"the {name} executor has no real time to hold; --paced goes with --executor {' or '.join(KERNELS)}"
        )
    clock = {"clock": "logical"} if name in KERNELS else {}
    request = replace(request, options=clock | {**request.options})
    rounded = sorted({rounded_size(entries[0].program, size, dtype("float32")) for size in sizes})
    rows = tuple(_sized(network, entries, size, request) for size in rounded)
    paced = tuple(_paced(network, entries, at, request, stretch) for at in rows for stretch in stretches)
    controls = _controls(network, entries, rows, request)
    model = label(selected(request.overheads), entries[0].program.protocol, per_send=request.per_send)
    return EmulationResult(name, network, tuple(entries), rows, controls, paced, model=model)


def _paced(
    network: Network, entries: Sequence[EmulatedSchedule], at: SizeTimes, request: RunRequest, stretch: int
) -> PacedRun:
    program = entries[at.best].program
    held = _run(
        network, program, at.size, replace(request, options={**request.options, "clock": "paced", "stretch": stretch})
    )
    free = _run(network, program, at.size, request)
    return PacedRun(
        at.size, at.best, stretch, (held.picoseconds or 0) - held.launch, held.nanoseconds or 0, free.nanoseconds or 0
    )


def predicted_time(schedule: Schedule, network: Network, size: int) -> Fraction:
    """Return the time in ps of `schedule` at `size` bytes in the synchronous model.

    Steps are barriers, and each costs the greatest α of the network.
    """
    share = size * schedule.collective.unit_share
    return len(schedule.steps) * network.latency * 10**6 + schedule.rounds_per_chunk * share * 1000 / network.unit


def _sized(network: Network, entries: Sequence[EmulatedSchedule], size: int, request: RunRequest) -> SizeTimes:
    costs = tuple(predicted_time(entry.schedule, network, size) for entry in entries)
    times = tuple(_time(network, entry.program, size, request)[0] for entry in entries)
    choices = [k for k, entry in enumerate(entries) if entry.choice]
    return SizeTimes(size, costs, times, min(choices, key=lambda k: costs[k]), min(choices, key=lambda k: times[k]))


def _time(network: Network, program: Program, size: int, request: RunRequest) -> tuple[int, dict[Key, int]]:
    done = _run(network, program, size, request)
    return done.picoseconds or 0, {used.link: used.bytes for used in done.links}


def _run(network: Network, program: Program, size: int, request: RunRequest) -> Execution:
    """Run `program` once; a kernel moves and checks data up to `CHECKED` bytes, the reference executor moves none."""
    total = 0
    if program.collective:
        layout = Layout(program.collective, program.chunks)
        total = sum(map(len, (*layout.inputs, *layout.outputs))) * size // program.loop_chunks
    data = request.executor in KERNELS and total <= CHECKED
    sized = replace(request, size=size, in_place=program.in_place == "in", data=data)
    return run(Call(program, network, sized)).execution


def _controls(
    network: Network, entries: Sequence[EmulatedSchedule], rows: Sequence[SizeTimes], request: RunRequest
) -> tuple[Control, ...]:
    """Run both negative controls.

    At the largest size, the link that the best program uses most gets half its β. At the smallest size, every α is
    multiplied by ten.
    """
    large, small = rows[-1], rows[0]
    _, carried = _time(network, entries[large.best].program, large.size, request)
    rates = {(route.src, route.dst, route.via): route.units * network.unit for route in network.routes}
    controls = []
    if carried:  # the floor counts the time of the link alone, as a limit that it shares keeps its bandwidth
        link = max(carried, key=lambda key: (carried[key] / rates[key], key))
        floor = Fraction(2 * carried[link] * 1000) / rates[link]
        name = f"half the bandwidth from rank {link[0]} to rank {link[1]}"
        controls.append(_control(name, with_half_bandwidth(network, link), entries, large, floor, request))
    if network.latency:
        routes = tuple(route._replace(latency=10 * route.latency) for route in network.routes)
        floor = min(route.latency for route in network.routes) * 10**7
        controls.append(
            _control("10 times every latency", replace(network, routes=routes), entries, small, floor, request)
        )
    return tuple(controls)


def _control(
    change: str,
    network: Network,
    entries: Sequence[EmulatedSchedule],
    at: SizeTimes,
    floor: Fraction,
    request: RunRequest,
) -> Control:
    after = _sized(network, entries, at.size, request)
    before, now = at.emulated[at.best], after.emulated[at.best]
    # where the floor is below the time before, the link had slack, and its slower transfers may cost nothing
    heard = now >= floor and (now > before or floor <= before)
    return Control(change, at.size, before, now, floor, at.best, after.best, heard)


def with_half_bandwidth(network: Network, link: Key) -> Network:
    """Return `network` with half the bandwidth on the route `link`."""
    routes = []  # the unit is halved, so all other routes and limits get twice the units
    for route in network.routes:
        halved = (route.src, route.dst, route.via) == link
        routes.append(route if halved else route._replace(units=2 * route.units))
    caps = tuple(replace(cap, units=2 * cap.units) for cap in network.caps)
    return replace(network, routes=tuple(routes), caps=caps, unit=network.unit / 2, wires=(), generators=())
