"""Lowering of a schedule to a one-sided Program for MSCCL++: puts, signals and waits, or packets.

A switch send becomes an op of the rank that issues it (`tasks.switch_moves`).

Thread block k of every rank moves the same chunks, in the order of the schedule's steps, and talks only to block k of
other ranks through channels of its own. So no block waits for another of its rank, and ops are ordered only as a
chunk's path through the ranks demands. Chunks of one unit that always travel together are moved by one op. A block that
does not fit the runtime's limits (plan_limits.py) is split in two. A single group of chunks that does not fit is
refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import add

from synth.errors import SynthError, UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.sends.dead_sends import prune
from synth.program import plan_limits as limits
from synth.program.buffer_layout import Layout
from synth.program.lowering_options import DEFAULT_LOWERING, LoweringOptions
from synth.program.onesided.block_writer import WrittenBlock
from synth.program.onesided.packets import PacketWriter
from synth.program.onesided.simple import SimpleWriter
from synth.program.onesided.tasks import BufferOffsets, ChunkGroup, groups
from synth.program.program import SWITCHED, Block, Gpu, InPlace, Op, Port, Program

DEFAULT_BLOCKS = 16  # thread blocks per rank and instance to start from, as far as there are chunks


def onesided(schedule: Schedule, options: LoweringOptions = DEFAULT_LOWERING) -> Program:
    """Return the one-sided program of a verified schedule, without unneeded sends; equal inputs give equal programs.

    Unit chunks become ``chunks * instances``, instance k taking the k-th run of each unit. The program's `max_bytes` is
    the largest size that 32-bit offsets reach. Raises UsageError for a request that makes no sense, SynthError that
    names the runtime's limit if the program exceeds one.
    """
    n, protocol, instances = schedule.collective.ranks, options.protocol, options.instances
    in_place = options.in_place or "out"
    boxes = (0,) * n if options.nodes is None else options.nodes
    if protocol not in ("Simple", "LL"):
        raise UsageError(f"MSCCL++ has no protocol {protocol}; Simple and LL (packets) exist")
    if protocol == "LL" and schedule.uses_multicast:
        raise UsageError("packets do not pass switches that multicast; use the Simple protocol")
    if protocol == "LL" and options.reads:
        raise UsageError("sums of packets read nothing where it lies on other ranks; use the Simple protocol for reads")
    if len(boxes) != n:
        raise UsageError(f"{len(boxes)} boxes are given for {n} ranks")
    layout = Layout(schedule.collective, schedule.chunks * instances)
    if in_place != "out" and not layout.shares_chunks:
        raise UsageError(f"{schedule.collective.name} cannot be called in place; leave it out of place")
    memory = BufferOffsets(layout, in_place)
    work = groups(prune(schedule), instances)
    shares = _shares(work, options.blocks) if options.blocks else _few_ports(work, DEFAULT_BLOCKS * instances, boxes)
    if protocol == "LL":
        drafts = _packets(shares, memory, boxes)
    else:
        reads = options.reads
        if reads is None:  # unless one rank adds up several groups in one step
            sums = Counter()
            for group in work:
                for t, moves in enumerate(group.moves):
                    sums.update({(t, move.dst) for move in moves if move.kind == "reduce"})
            reads = max(sums.values(), default=0) == 1
        drafts = _fitting(shares, lambda share: SimpleWriter(share, memory, boxes, reads).write())
    name = options.name
    if not name:
        name = f"{schedule.collective.name}-n{n}-c{schedule.chunks}-s{len(schedule.steps)}-r{schedule.rounds}"
        name += f"-i{instances}" * (instances > 1)
    program = _assemble(name, drafts, layout, protocol, in_place)
    return replace(program, max_bytes=limits.largest_size(program))


def reason_against(schedule: Schedule, boxes: Sequence[int]) -> str | None:
    """Return why no plan of `schedule` fits MSCCL++, or none is written in bounded time, without lowering it; None
    where nothing speaks against it.

    A thread block that moves one chunk has a channel to each rank that its rank sends it to or has it from.
    `boxes[rank]`: the box of the rank.
    """
    if schedule.sends > limits.PLAN_SENDS:
        return f"it has {schedule.sends} sends, plans are made of at most {limits.PLAN_SENDS}"
    peers = {}
    for step in schedule.steps:
        for send in step.sends:
            if send.src != send.dst:
                peers.setdefault((send.chunk, send.src), set()).add(send.dst)
                peers.setdefault((send.chunk, send.dst), set()).add(send.src)
    for (chunk, rank), others in peers.items():
        inside = sum(boxes[other] == boxes[rank] for other in others)
        most = max(inside, len(others) - inside)
        if most > limits.BLOCK_CHANNELS:
            kind = "memory" if inside == most else "port"
            return (
                f"rank {rank} uses {most} {kind} channels for chunk {chunk} alone, a thread block of MSCCL++ has "
                f"{limits.BLOCK_CHANNELS}"
            )
    return None


def too_many_ranks(collective: Collective) -> str | None:
    """Return why every schedule of `collective` has too many sends for a plan; None where that is not known.

    Each rank has to be sent what it wants and does not have; sums that end on one rank each are such copies, reversed.
    """
    task = collective.reversed() if collective.reversible else collective
    if task.combining:
        return None
    least = sum(len(post - pre) for pre, post in zip(task.pre, task.post, strict=True))
    if least <= limits.PLAN_SENDS:
        return None
    return (
        f"no MSCCL++ plan can hold {collective.name} on {collective.ranks} ranks: it has at least {least} sends, plans "
        f"are made of at most {limits.PLAN_SENDS}"
    )


def _shares(work: tuple[ChunkGroup, ...], blocks: int) -> list[tuple[ChunkGroup, ...]]:
    """Return `work` in at most `blocks` runs of about equal length."""
    blocks = min(blocks, len(work))
    return [work[k * len(work) // blocks : (k + 1) * len(work) // blocks] for k in range(blocks)]


def _few_ports(work: tuple[ChunkGroup, ...], blocks: int, boxes: Sequence[int]) -> list[tuple[ChunkGroup, ...]]:
    """Return `work` in at most `blocks` runs, in fewer where a rank would have more port channels than `RANK_PORTS`.

    A rank has a port channel for each run and each rank of another box that it sends to or receives from there. Where
    even one run has more, there are as many runs as have the fewest.
    """
    tried = []
    while True:
        shares = _shares(work, blocks)
        ports = Counter()
        for share in shares:
            across = set()
            for moves in (moves for group in share for moves in group.moves):
                for move in moves:
                    if boxes[move.src] != boxes[move.dst]:
                        across |= {(move.src, move.dst), (move.dst, move.src)}
            ports.update(rank for rank, _ in across)
        most = max(ports.values(), default=0)
        if most <= limits.RANK_PORTS:
            return shares
        tried.append((most, -blocks, shares))
        if blocks == 1:
            return min(tried)[2]
        blocks //= 2


def _fitting(
    shares: list[tuple[ChunkGroup, ...]], write: Callable[[tuple[ChunkGroup, ...]], WrittenBlock]
) -> list[WrittenBlock]:
    """Return drafts of all shares in order; a share whose draft exceeds a limit is halved."""
    drafts = []
    pending = shares[::-1]
    while pending:
        share = pending.pop()
        draft = write(share)
        fault = _misfit(draft)
        if fault is None:
            drafts.append(draft)
        elif len(share) == 1:
            first = share[0].first
            raise SynthError(f"moving chunk {first} alone, {fault}; use a schedule in which a chunk meets fewer ranks")
        else:
            pending += [share[len(share) // 2 :], share[: len(share) // 2]]
    used = 0
    for rank in range(len(drafts[0].ops) if drafts else 0):
        used = max(used, sum(bool(draft.ops[rank]) for draft in drafts))
    if used > limits.GPU_BLOCKS:
        raise SynthError(
            f"the schedule needs {used} thread blocks on a rank, at most {limits.GPU_BLOCKS} can be resident at once; "
            "use fewer instances or a schedule of fewer chunks"
        )
    return drafts


def _packets(shares: list[tuple[ChunkGroup, ...]], memory: BufferOffsets, boxes: Sequence[int]) -> list[WrittenBlock]:
    """Return drafts that use packets; a rank that one of its writers could be two launches ahead of signals first.

    The first drafts show which writers cannot end before the rank has begun; the second ones add the signals for the
    other pairs.
    """
    n = len(boxes)
    known = {(a, a) for a in range(n)}
    pairs = set()

    by_port = False

    def write(share: tuple[ChunkGroup, ...]) -> WrittenBlock:
        nonlocal by_port
        block = PacketWriter(share, memory, boxes)
        draft = block.write()
        by_port |= bool(block.handed_over)
        if _misfit(draft) is None:
            pairs.update(block.pairs)
            known.update((a, b) for a in range(n) for b in range(n) if block.clocks_at_end[a][b])
        return draft

    drafts = _fitting(shares, write)
    signal_first, entered = frozenset(pairs - known), frozenset(pairs | known)
    if not signal_first and not by_port:
        return drafts
    return _fitting(shares, lambda share: PacketWriter(share, memory, boxes, signal_first, entered).write())


def _misfit(draft: WrittenBlock) -> str | None:
    """Return a sentence on the first limit of a thread block that `draft` exceeds on some rank, or None."""
    for rank, (ops, ports) in enumerate(zip(draft.ops, draft.ports, strict=True)):
        if (count := limits.plan_op_count(ops)) > limits.BLOCK_OPS:
            return f"a thread block of rank {rank} has {count} operations, MSCCL++ takes {limits.BLOCK_OPS}"
        for kind, count in Counter(kind for kind, _ in ports).items():
            if count > limits.BLOCK_CHANNELS:
                return (
                    f"a thread block of rank {rank} uses {count} {kind} channels, MSCCL++ takes {limits.BLOCK_CHANNELS}"
                )
        reached = set()
        for op in ops:
            kind = ports[op.ports[0]][0] if op.ports else "memory"
            far = [span for span in op.spans if span.rank is not None and op.code not in SWITCHED]
            reached.update((kind, span.rank, span.buffer) for span in far)
        for count in Counter(kind for kind, _, _ in reached).values():
            if count > limits.BLOCK_BUFFERS:
                return (
                    f"a thread block of rank {rank} reaches {count} remote buffers, MSCCL++ takes "
                    f"{limits.BLOCK_BUFFERS}"
                )
    return None


def _assemble(name: str, drafts: list[WrittenBlock], layout: Layout, protocol: str, in_place: InPlace) -> Program:
    """Return the program of all drafts; a rank's scratch holds the plain chunks of all blocks, then their packets.

    The bytes of a packet lie twice as far as those of a plain chunk. With packets all ranks have as much scratch as the
    rank that needs most: in every second launch the kernel counts the offset of a packet on another rank from the
    middle of the *sender's* scratch.
    """
    n = layout.collective.ranks
    # the scratch offset of every rank for each draft, and after the last
    plain = list(accumulate((draft.plain for draft in drafts), _sums, initial=(0,) * n))
    packets = list(accumulate((draft.packets for draft in drafts), _sums, initial=plain[-1]))
    idle = Block(None, None, 0, (Op("nop"),))  # a kernel has at least one block, and both ends of a port list it
    channels = Counter()  # channels so far of a kind between two ranks
    blocks = [[] for _ in range(n)]
    for draft, plain_starts, packet_starts in zip(drafts, plain[:-1], packets[:-1], strict=True):
        used = set()
        for r in range(n):
            ends = [(kind, min(r, peer), max(r, peer)) for kind, peer in draft.ports[r]]
            used.update(ends)
            ports = tuple(Port(*port, channels[end]) for port, end in zip(draft.ports[r], ends, strict=True))
            ops = []
            for op in draft.ops[r]:
                spans = []
                for span in op.spans:
                    if span.buffer == "s":
                        starts = packet_starts if span.packet else plain_starts
                        owner = span.owner(r)
                        span = span._replace(offset=span.offset + starts[owner])
                    spans.append(span)
                ops.append(op._replace(src=tuple(spans[: len(op.src)]), dst=tuple(spans[len(op.src) :])))
            if ops or ports:
                blocks[r].append(Block(None, None, 0, tuple(ops) or idle.ops, (), ports))
        channels.update(used)
    scratch = (max(packets[-1]),) * n if protocol == "LL" else packets[-1]
    gpus = []
    for r in range(n):
        buffers = len(layout.inputs[r]), len(layout.outputs[r]), scratch[r]
        gpus.append(Gpu(r, *buffers, tuple(blocks[r]) or (idle,)))
    return Program(name, layout.collective, layout.chunks, tuple(gpus), protocol, in_place)


def _sums(starts: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(add, starts, counts))
