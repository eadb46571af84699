"""From a schedule to a one-sided Program for MSCCL++: puts, signals and waits, or packets.

Thread block k of every rank moves the same chunks, in the order of the schedule's steps, and talks only to block k of
other ranks through channels of its own. So no block waits for another of its rank, and only what a chunk's way through
the ranks demands is ordered. Chunks of one unit that always travel together are moved by one op. A block that does not
fit the runtime's limits (plan_limits.py) is split in two; one group of chunks that does not fit is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from synth.errors import SynthError, UsageError
from synth.model.dead_sends import prune
from synth.model.schedule import Schedule
from synth.program import plan_limits as limits
from synth.program.buffer_layout import Layout
from synth.program.onesided.block_writer import Draft
from synth.program.onesided.packets import Packets
from synth.program.onesided.simple import Simple
from synth.program.onesided.tasks import Group, Memory, groups
from synth.program.program import MOST_INSTANCES, Block, Gpu, InPlace, Op, Port, Program, Span

DEFAULT_BLOCKS = 16


def onesided(
    schedule: Schedule,
    *,
    protocol: str = "Simple",
    instances: int = 1,
    in_place: InPlace = "out",
    nodes: Sequence[int] | None = None,
    blocks: int | None = None,
    name: str | None = None,
    min_bytes: int = 0,
    max_bytes: int | None = None,
) -> Program:
    """The one-sided program of a verified schedule, without the sends that nothing needs; the same input gives the same
    program.

    `nodes`: the box of each rank (default: one box); ranks of one box are connected by memory channels, others by port
    channels. `blocks`: thread blocks per rank to start from, as far as there are chunks (default 16 per instance).
    Unit chunks become ``chunks * instances``, instance k taking the k-th run of each unit. `max_bytes` is lowered to
    what 32-bit offsets reach. Raises UsageError for a request that makes no sense, SynthError naming the runtime's
    limit that is met.
    """
    n = schedule.collective.ranks
    boxes = (0,) * n if nodes is None else tuple(nodes)
    if protocol not in ("Simple", "LL"):
        raise UsageError(f"MSCCL++ has no protocol {protocol}; Simple and LL (packets) exist")
    if len(boxes) != n:
        raise UsageError(f"{len(boxes)} boxes are given for {n} ranks")
    if instances > MOST_INSTANCES:
        raise UsageError(f"instances are at most {MOST_INSTANCES}; got {instances}")
    if instances < 1 or (blocks is not None and blocks < 1):
        raise UsageError(f"instances ({instances}) and blocks ({blocks}) must be at least 1")
    layout = Layout(schedule.collective, schedule.chunks * instances)
    if in_place != "out" and not layout.placeable:
        raise UsageError(f"{schedule.collective.name} cannot be called in place; leave it out of place")
    memory = Memory(layout, in_place)
    work = groups(prune(schedule), instances)
    wanted = blocks or DEFAULT_BLOCKS * instances
    shares = _shares(work, wanted)
    if protocol == "LL":
        drafts = _packets(shares, memory, boxes)
    else:
        drafts = _fitting(shares, lambda share: Simple(share, memory, boxes).write())
    program = _assemble(schedule, drafts, layout, protocol, instances, in_place, name)
    reach = limits.largest_size(program)
    top = reach if max_bytes is None else min(max_bytes, reach)
    if top < min_bytes:
        raise SynthError(
            f"32-bit offsets reach {reach} bytes, --min-size is {min_bytes}; use a schedule of more chunks or fewer "
            f"scratch slots"
        )
    return Program(program.name, program.collective, program.chunks, program.gpus, protocol, in_place, min_bytes, top)


def _shares(work: tuple[Group, ...], blocks: int) -> list[tuple[Group, ...]]:
    blocks = min(blocks, len(work))
    return [work[k * len(work) // blocks : (k + 1) * len(work) // blocks] for k in range(blocks)]


def _fitting(shares: list[tuple[Group, ...]], write: Callable[[tuple[Group, ...]], Draft]) -> list[Draft]:
    """A draft of each share, in order, shares halved until they fit."""
    found = []
    todo = shares[::-1]
    while todo:
        share = todo.pop()
        draft = write(share)
        fault = _misfit(draft)
        if fault is None:
            found.append(draft)
        elif len(share) == 1:
            first = share[0].first
            raise SynthError(f"moving chunk {first} alone, {fault}; use a schedule in which a chunk meets fewer ranks")
        else:
            todo += [share[len(share) // 2 :], share[: len(share) // 2]]
    used = max(
        (sum(bool(draft.ops[r]) for draft in found) for r in range(len(found[0].ops) if found else 0)), default=0
    )
    if used > limits.GPU_BLOCKS:
        raise SynthError(
            f"the schedule needs {used} thread blocks on a rank, at most {limits.GPU_BLOCKS} can be resident at once; "
            "use fewer instances or a schedule of fewer chunks"
        )
    return found


def _packets(shares: list[tuple[Group, ...]], memory: Memory, boxes: Sequence[int]) -> list[Draft]:
    """Drafts with packets; where a writer could be two launches ahead of a rank, that rank signals first."""
    n = len(boxes)
    known = {(a, a) for a in range(n)}
    pairs: set[tuple[int, int]] = set()

    def write(share: tuple[Group, ...], hold: frozenset[tuple[int, int]] = frozenset()) -> Draft:
        block = Packets(share, memory, boxes, hold)
        draft = block.write()
        if _misfit(draft) is None:
            pairs.update(block.pairs)
            known.update((a, b) for a in range(n) for b in range(n) if block.known[a][b])
        return draft

    drafts = _fitting(shares, write)
    hold = frozenset(pairs - known)
    return _fitting(shares, lambda share: write(share, hold)) if hold else drafts


def _misfit(draft: Draft) -> str | None:
    """The first limit of a thread block that `draft` breaks on some rank."""
    for rank, (ops, ports) in enumerate(zip(draft.ops, draft.ports, strict=True)):
        if (count := limits.plan_ops(ops)) > limits.BLOCK_OPS:
            return f"a thread block of rank {rank} has {count} operations, MSCCL++ takes {limits.BLOCK_OPS}"
        for kind, count in Counter(kind for kind, _ in ports).items():
            if count > limits.BLOCK_CHANNELS:
                return (
                    f"a thread block of rank {rank} uses {count} {kind} channels, MSCCL++ takes {limits.BLOCK_CHANNELS}"
                )
        reached = {
            (ports[p][0], span.rank, span.buffer) for op in ops for p, span in zip(op.ports, op.dst, strict=False)
        }
        for count in Counter(kind for kind, _, _ in reached).values():
            if count > limits.BLOCK_BUFFERS:
                return (
                    f"a thread block of rank {rank} reaches {count} remote buffers, MSCCL++ takes "
                    f"{limits.BLOCK_BUFFERS}"
                )
    return None


def _assemble(
    schedule: Schedule,
    drafts: list[Draft],
    layout: Layout,
    protocol: str,
    instances: int,
    in_place: InPlace,
    name: str | None,
) -> Program:
    """Scratch of a rank: the plain chunks of all blocks, then their packets, whose bytes lie twice as far.

    With packets all ranks have as much as the one that needs most: in every second launch the kernel counts the place
    of a packet on another rank from the middle of the *sender's* scratch.
    """
    task = schedule.collective
    n = task.ranks
    plain = [[sum(draft.plain[r] for draft in drafts[:b]) for r in range(n)] for b in range(len(drafts) + 1)]
    ends = plain[-1] if plain else [0] * n
    packets = [
        [ends[r] + sum(draft.packets[r] for draft in drafts[:b]) for r in range(n)] for b in range(len(drafts) + 1)
    ]
    idle = Block(None, None, 0, (Op("nop"),))  # a kernel has at least one block, and both ends of a port list it
    numbers: Counter[tuple[str, int, int]] = Counter()
    found: list[list[Block]] = [[] for _ in range(n)]
    for b, draft in enumerate(drafts):

        def place(span: Span, rank: int, b: int = b) -> Span:
            owner = rank if span.rank is None else span.rank
            base = 0 if span.buffer != "s" else packets[b][owner] if span.packet else plain[b][owner]
            return span._replace(offset=span.offset + base)

        def moved(op: Op, rank: int) -> Op:
            return op._replace(src=tuple(place(s, rank) for s in op.src), dst=tuple(place(s, rank) for s in op.dst))

        for r in range(n):
            if draft.ops[r] or draft.ports[r]:
                ports = tuple(
                    Port(kind, peer, numbers[kind, min(r, peer), max(r, peer)]) for kind, peer in draft.ports[r]
                )
                found[r].append(Block(None, None, 0, tuple(moved(op, r) for op in draft.ops[r]) or idle.ops, (), ports))
        for used in {(kind, min(r, peer), max(r, peer)) for r in range(n) for kind, peer in draft.ports[r]}:
            numbers[used] += 1
    scratch = [max(packets[-1])] * n if protocol == "LL" else packets[-1]
    gpus = tuple(
        Gpu(r, len(layout.inputs[r]), len(layout.outputs[r]), scratch[r], tuple(found[r]) or (idle,)) for r in range(n)
    )
    own = (
        name
        or f"{task.name}-n{n}-c{schedule.chunks}-s{len(schedule.steps)}-r{schedule.rounds}"
        + f"-i{instances}" * (instances > 1)
    )
    return Program(own, task, layout.chunks, gpus, protocol, in_place)
