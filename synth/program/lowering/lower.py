"""Lowering of a verified schedule of any collective to a two-sided Program.

Passes: `messages` (a schedule as messages between values), `value_placement` (a place for every value),
`receive_fusion` (receives that forward), `thread_blocks` (thread blocks, channels, scratch, dependencies), `deadlock`
(no circle of waits), `runtime_limits` (instances, limits).

Steps are no barriers: only the dependencies of the data remain of them, and one order that all blocks follow. With that
order a program without fused blocks cannot deadlock, whatever the depth of the FIFOs: of the messages that have not
arrived yet, the first in the order waits for nothing. Fusing sends some messages before their turn. So every fused
program is checked at the protocol's depth for every number of parts that its messages can be split into, and the blocks
of a circle of waits are no longer fused. The result is right for every size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from synth.errors import SynthError, UsageError
from synth.model.schedule import Schedule
from synth.program.buffer_layout import Layout
from synth.program.lowering import runtime_limits
from synth.program.lowering.deadlock import deadlock
from synth.program.lowering.dependencies import flagged, single_dependencies
from synth.program.lowering.messages import Message, schedule_messages, without_unneeded_sends
from synth.program.lowering.receive_fusion import fuse, lanes_of
from synth.program.lowering.thread_blocks import BlockTarget, Ends, assemble
from synth.program.lowering.value_placement import place_values
from synth.program.lowering_options import DEFAULT_LOWERING, LoweringOptions
from synth.program.program import Gpu, Program
from synth.program.runtimes import FIFO_DEPTH, Runtime, named

# rounds of separating or splitting blocks after which no block is fused; as many rounds may follow without fusion
ATTEMPTS = 12


def lower(schedule: Schedule, options: LoweringOptions = DEFAULT_LOWERING) -> Program:
    """Return the two-sided program of `schedule`, in the form and within the limits of the options' runtime.

    Raises UsageError for options that make no sense, VerificationError for a schedule that is wrong, SynthError that
    names an exceeded limit of the runtime and a remedy.
    """
    runtime, instances = named(options.runtime), options.instances
    if "s" not in runtime.codes:
        raise UsageError(
            f"{runtime.name} runs one-sided programs; lower for synth and convert, as the export to {runtime.name} does"
        )
    if schedule.timed:
        options = replace(options, fuse=False, lanes=1)
    layout = Layout(schedule.collective, schedule.chunks)
    if options.in_place in ("in", "both") and not layout.shares_chunks:
        raise UsageError(f"{layout.collective.name} cannot be called in place; leave in_place out")
    in_place = options.in_place or ("both" if layout.shares_chunks else "out")
    try:
        runtime_limits.check_schedule(schedule, runtime)
    except SynthError:  # it may have sends that are left out
        runtime_limits.check_schedule(without_unneeded_sends(schedule), runtime)
    error: SynthError | None = None
    # The most lanes that a route may have: the greatest useful number, then half as many each time. More lanes than the
    # connections of a route, or its sends in one step, are of no use.
    useful = 1
    for step in schedule.steps:
        loads = Counter((send.src, send.dst, send.via) for send in step.sends if not send.local)
        useful = max(useful, *loads.values(), 1)
    widest = max((route.units for route in schedule.network.routes), default=1)
    lanes = 2 * min(options.lanes or useful, useful, widest * schedule.network.connections)
    while lanes := lanes // 2:
        chosen = replace(options, in_place=in_place, lanes=lanes)
        gpus = _one_instance(schedule, layout, runtime, chosen)
        try:
            runtime_limits.check(_in_form(gpus, runtime), runtime, 1)
        except SynthError as exceeded:
            error = error or exceeded
            continue
        replicas = _in_form(runtime_limits.replicate(gpus, layout, instances), runtime)
        runtime_limits.check(replicas, runtime, instances)
        title = (
            options.name
            or f"{schedule.collective.name}-{schedule.network.name}"
            f"-C{schedule.chunks}-S{len(schedule.steps)}-R{schedule.rounds}"
        )
        return Program(title, schedule.collective, schedule.chunks * instances, replicas, options.protocol, in_place)
    if error is not None and options.hints:
        raise SynthError(f"{error}, or without its hints")
    raise error or SynthError("no lowering of this schedule was tried")


def _one_instance(schedule: Schedule, layout: Layout, runtime: Runtime, options: LoweringOptions) -> tuple[Gpu, ...]:
    """Return the ranks' programs for one instance, free of deadlock; they may exceed limits of the runtime.

    `options`: `in_place` and `lanes` are set. Where several instances follow, no op spans two units.
    """
    in_place, lanes = options.in_place or "out", options.lanes or 1
    whole_units = options.instances > 1
    flow = schedule_messages(
        schedule, lanes=lanes, aggregate=options.aggregate, whole_units=whole_units, hints=options.hints
    )
    storage = place_values(flow, layout, in_place != "out", runtime.count, whole_units)
    target = BlockTarget(layout, in_place, runtime.codes, runtime.channel_blocks, runtime.block_ops)
    can_fuse = options.fuse and "rcs" in runtime.codes
    unfused = set()
    pieces = {}
    for attempt in range(2 * ATTEMPTS):
        # a connection in pieces is as many connections, which carry its messages one after the other
        split = [message for message in storage.messages if message.lane[:4] in pieces]
        for lane, lane_messages in lanes_of(split, merge_pieces=True).items():
            for k, message in enumerate(lane_messages):
                message.lane = (*lane[:4], k * pieces[lane[:4]] // len(lane_messages))
        fusion = fuse(storage.messages, frozenset(unfused), flow.named, can_fuse and attempt < ATTEMPTS)
        gpus, ends = assemble(storage, fusion, target)
        free = [message for message in storage.messages if message.lane[:4] not in flow.named]
        changed = _split_long_blocks(gpus, ends, runtime, unfused, pieces, free)
        if not changed and not _unfuse_deadlock(gpus, ends, FIFO_DEPTH[options.protocol], unfused):
            break
    return gpus


def _split_long_blocks(
    gpus: Sequence[Gpu],
    ends: Sequence[Sequence[Ends]],
    runtime: Runtime,
    unfused: set,
    pieces: dict[tuple, int],
    messages: Sequence[Message],
) -> bool:
    """Mark blocks with more instructions than `runtime` allows: fused ones in `unfused`, others for more `pieces`.

    `messages`: those of the connections that may be split. Returns False if there are none, or if no number of channels
    would do.
    """
    if runtime.block_ops is None:
        return False
    sizes = Counter(message.lane[:4] for message in messages)
    before, changed = dict(pieces), False
    for gpu, row in zip(gpus, ends, strict=True):
        for block, block_ends in zip(gpu.blocks, row, strict=True):
            length = len(block.ops)
            if runtime.single_dep:
                length = sum(max(1, len(op.deps)) for op in block.ops)
            lane = block_ends.recv or block_ends.send
            if length <= runtime.block_ops or lane is None:
                continue
            if block_ends.recv and block_ends.send:
                changed |= (gpu.rank, block_ends.recv) not in unfused
                unfused.add((gpu.rank, block_ends.recv))
                continue
            now = before.get(lane[:4], 1)
            more = min(max(now + 1, -(-now * length // runtime.block_ops)), sizes[lane[:4]])
            if more > (runtime.channels or more):
                return False  # the program cannot fit: `runtime_limits.check` raises
            changed |= more > now
            pieces[lane[:4]] = max(more, pieces.get(lane[:4], 1))
    return changed


def _unfuse_deadlock(gpus: Sequence[Gpu], ends: Sequence[Sequence[Ends]], depth: int, unfused: set) -> bool:
    """Add to `unfused` the fused blocks of a circle of waits, with FIFOs of `depth` operations; False if none exist.

    Only the number of parts of each message matters, so sizes of a part with equal numbers are checked once. Raises
    SynthError for a circle of blocks that hints make, which forward nothing any more.
    """
    if not any(block_ends.recv and block_ends.send for row in ends for block_ends in row):
        return False  # without fused blocks all follow one order, which cannot deadlock (the module's docstring)
    counts = sorted({op.count for gpu in gpus for block in gpu.blocks for op in block.ops})
    checked = set()
    for part_size in range(1, max(counts) + 1):
        parts = tuple(-(-count // part_size) for count in counts)
        if parts in checked:
            continue
        checked.add(parts)
        circle = [(rank, ends[rank][block]) for rank, block, _ in deadlock(gpus, depth, part_size)]
        fused = {(rank, block_ends.recv) for rank, block_ends in circle if block_ends.recv and block_ends.send}
        if fused - unfused:
            unfused |= fused
            return True
        if fused:
            rank, lane = min(fused)
            raise SynthError(
                f"hints put what rank {rank} receives from rank {lane[0]} into the block of its sends, where it may "
                f"wait for ever with {depth} slots of a connection; name another block for one direction"
            )
    return False


def _in_form(gpus: Sequence[Gpu], runtime: Runtime) -> tuple[Gpu, ...]:
    """Return `gpus` in the form that `runtime` needs: the dependencies of an op."""
    result = []
    for gpu in gpus:
        if runtime.single_dep:
            ops = flagged(single_dependencies([block.ops for block in gpu.blocks]))
            gpu = gpu._replace(
                blocks=tuple(block._replace(ops=row) for block, row in zip(gpu.blocks, ops, strict=True))
            )
        result.append(gpu)
    return tuple(result)
