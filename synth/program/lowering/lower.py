"""Lowering: any verified schedule of any collective becomes a Program.

Passes: `messages` (a schedule as messages between values), `places` (where values live), `fuse` (receives that
forward),
`assemble` (thread blocks, channels, scratch, dependencies), `waits` (no deadlock), `fit` (instances, limits).

Steps are no barriers: what remains of them are the dependencies of the data, and one order that all blocks follow.
With that order a program without fused blocks cannot deadlock, whatever the depth of the FIFOs: of the messages that
are not through yet, the first in the order waits for nothing. Fusing sends some messages before their turn; so every
fused program is tried at the protocol's depth for every way in which its messages can be split, and the blocks of a
circle are taken apart. The result is right for every size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from synth.errors import SynthError, UsageError, unknown
from synth.model.schedule import Schedule
from synth.program.buffer_layout import Layout
from synth.program.lowering import runtime_limits
from synth.program.lowering.deadlock import deadlock
from synth.program.lowering.dependencies import flagged, single
from synth.program.lowering.messages import Lane, Message, trace
from synth.program.lowering.receive_fusion import NONE, fuse, lanes_of
from synth.program.lowering.thread_blocks import Plan, Seat, assemble
from synth.program.lowering.value_placement import place
from synth.program.program import MOST_INSTANCES, PROTOCOLS, Gpu, InPlace, Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES, Runtime

TRIES = 12  # times that blocks are taken apart or split before all are


def lower(
    schedule: Schedule,
    *,
    runtime: str = "synth",
    protocol: str = "Simple",
    instances: int = 1,
    in_place: InPlace | None = None,
    fuse: bool = True,
    aggregate: bool = True,
    lanes: int | None = None,
    name: str | None = None,
) -> Program:
    """The two-sided program of `schedule`, in the form and within the limits of `runtime`.

    `in_place`: for which calls ("both" is right for either; default: "both" where the collective can be called in
    place, else "out"). `instances`: copies side by side, each for its share of the data. `fuse`: receives may forward
    (rcs, rrs, rrcs) where the runtime has them. `aggregate`: neighbouring chunks travel as one message. `lanes`: the
    most connections of one route (default: its units, fewer where the runtime's limits ask for it).

    Raises UsageError for options that make no sense, VerificationError for a schedule that is wrong, SynthError naming
    the limit of the runtime that is met, and what would fit.
    """
    kind = _runtime(runtime)
    layout = Layout(schedule.collective, schedule.chunks)
    mode = _check(layout, protocol, instances, in_place, lanes)
    error: SynthError | None = None
    for width in _widths(schedule, lanes):
        gpus = _program(schedule, layout, kind, mode, FIFO_DEPTH[protocol], width, fuse, aggregate, instances > 1)
        try:
            runtime_limits.check(_formed(gpus, kind), kind, 1)
        except SynthError as found:
            error = error or found
            continue
        whole = _formed(runtime_limits.replicate(gpus, layout, instances), kind)
        runtime_limits.check(whole, kind, instances)
        title = (
            name
            or f"{schedule.collective.name}-{schedule.network.name}"
            f"-C{schedule.chunks}-S{len(schedule.steps)}-R{schedule.rounds}"
        )
        return Program(title, schedule.collective, schedule.chunks * instances, whole, protocol, mode)
    raise error or SynthError("no way to lower this schedule was tried")


def _runtime(name: str) -> Runtime:
    kind = RUNTIMES.get(name.lower())
    if kind is None:
        raise UsageError(unknown("runtime", name, list(RUNTIMES), "exporters"))
    if "s" not in kind.codes:
        raise UsageError(
            f"{kind.name} runs one-sided programs; lower for synth and convert, as the export to {kind.name} does"
        )
    return kind


def _check(layout: Layout, protocol: str, instances: int, in_place: InPlace | None, lanes: int | None) -> InPlace:
    if protocol not in PROTOCOLS:
        raise UsageError(f"unknown protocol {protocol!r}; {', '.join(PROTOCOLS)} exist")
    if instances > MOST_INSTANCES:
        raise UsageError(f"instances are at most {MOST_INSTANCES}; got {instances}")
    if instances < 1 or (lanes is not None and lanes < 1):
        raise UsageError(f"instances and lanes are at least 1; got {instances} and {lanes}")
    if in_place not in (None, "out", "in", "both"):
        raise UsageError(f"in_place is out, in or both; got {in_place!r}")
    if in_place in ("in", "both") and not layout.placeable:
        raise UsageError(f"{layout.collective.name} cannot be called in place; leave in_place out")
    return in_place or ("both" if layout.placeable else "out")


def _widths(schedule: Schedule, lanes: int | None) -> Iterator[int]:
    """How many lanes a route may have: as many as it has units or sends in a step, then ever fewer."""
    most = 1
    for step in schedule.steps:
        load: dict[tuple, int] = {}
        for send in step.sends:
            if send.local:
                continue
            load[send.src, send.dst, send.via] = load.get((send.src, send.dst, send.via), 0) + 1
        most = max(most, *load.values(), 1)
    width = min(lanes or most, most, max((route.units for route in schedule.network.routes), default=1))
    while width:
        yield width
        width //= 2


def _program(
    schedule: Schedule,
    layout: Layout,
    runtime: Runtime,
    mode: InPlace,
    depth: int,
    lanes: int,
    fused: bool,
    aggregate: bool,
    units: bool,
) -> tuple[Gpu, ...]:
    flow = trace(schedule, lanes=lanes, aggregate=aggregate, whole_units=units)
    storage = place(flow, layout, mode != "out", runtime.count, units)
    plan = Plan(layout, mode, runtime.codes, runtime.channel_blocks, runtime.block_ops)
    apart: set[tuple[int, Lane]] = set()
    pieces: dict[tuple, int] = {}
    for tries in range(2 * TRIES):
        _cut(storage.messages, pieces)
        fusion = (
            fuse(storage.messages, frozenset(apart)) if fused and "rcs" in runtime.codes and tries < TRIES else NONE
        )
        gpus, seats = assemble(storage, fusion, plan)
        changed = _shorten(gpus, seats, runtime, apart, pieces, storage.messages) or _untangle(
            gpus, seats, depth, apart
        )
        if not changed:
            break
    return gpus


def _cut(messages: Sequence[Message], pieces: dict[tuple, int]) -> None:
    """Gives the connections named in `pieces` that many channels, one after the other."""
    for lane, found in lanes_of([message for message in messages if message.lane[:4] in pieces], whole=True).items():
        for k, message in enumerate(found):
            message.lane = (*lane[:4], k * pieces[lane[:4]] // len(found))


def _shorten(
    gpus: Sequence[Gpu],
    seats: Sequence[Sequence[Seat]],
    runtime: Runtime,
    apart: set,
    pieces: dict[tuple, int],
    messages: Sequence[Message],
) -> bool:
    """Takes apart, or spreads over more channels, the blocks with more instructions than `runtime` allows. Whether
    there were any."""
    if runtime.block_ops is None:
        return False
    sizes = Counter(message.lane[:4] for message in messages)
    before, changed = dict(pieces), False
    for gpu, own in zip(gpus, seats, strict=True):
        for block, seat in zip(gpu.blocks, own, strict=True):
            length = sum(max(1, len(op.deps)) if runtime.single_dep else 1 for op in block.ops)
            lane = seat.recv or seat.send
            if length <= runtime.block_ops or lane is None:
                continue
            if seat.recv and seat.send:
                apart.add((gpu.rank, seat.recv))
                changed = True
                continue
            now = before.get(lane[:4], 1)
            more = min(max(now + 1, -(-now * length // runtime.block_ops)), sizes[lane[:4]])
            if more > (runtime.channels or more):
                return False  # hopeless: `fit.check` says so
            changed |= more > now
            pieces[lane[:4]] = max(more, pieces.get(lane[:4], 1))
    return changed


def _untangle(gpus: Sequence[Gpu], seats: Sequence[Sequence[Seat]], depth: int, apart: set) -> bool:
    """Takes apart the fused blocks of a circle of waits, at FIFOs of `depth` operations. Whether there were any."""
    if not any(seat.recv and seat.send for own in seats for seat in own):
        return False  # one order for all: the module's docstring
    counts = sorted({op.count for gpu in gpus for block in gpu.blocks for op in block.ops})
    tried = set()
    for whole in range(1, max(counts) + 1):
        parts = tuple(-(-count // whole) for count in counts)
        if parts in tried:
            continue
        tried.add(parts)
        circle = [(rank, seats[rank][block]) for rank, block, _ in deadlock(gpus, depth, whole)]
        fused = {(rank, seat.recv) for rank, seat in circle if seat.recv and seat.send}
        if fused:
            apart |= fused
            return True
    return False


def _formed(gpus: Sequence[Gpu], runtime: Runtime) -> tuple[Gpu, ...]:
    """`gpus` in the form that `runtime` needs."""
    found = []
    for gpu in gpus:
        gpu = runtime_limits.awaited_first(gpu, runtime.dep_block)
        if runtime.single_dep:
            ops = flagged(single([block.ops for block in gpu.blocks]))
            gpu = gpu._replace(
                blocks=tuple(block._replace(ops=row) for block, row in zip(gpu.blocks, ops, strict=True))
            )
        found.append(gpu)
    return tuple(found)
