"""Reader of MSCCL++ execution plans from any source as Programs.

An op dealt out over a group of thread blocks becomes ops with a `Part`, a pipeline a `Loop` of its block, and
`reuse_resources` a scratch with a fixed number of bytes. Features without a counterpart in a Program are refused with
their place: semaphores whose acquisitions do not wait for a certain release. `pws` on a port channel becomes put and
signal; on a memory channel the kernel never signals, so it is refused. `rlxsignal` and `rlxwait` are read as `signal`
and `wait`. A `flush` without destinations does nothing in the kernel and is omitted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from synth.errors import UsageError
from synth.export.mscclpp.emit import COLLECTIVE_NAMES, message_ratios
from synth.export.mscclpp.json_fields import Node
from synth.export.mscclpp.read_block import BlockReader
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.model.documents.foreign_forms import OLD_PLAN, named_form
from synth.program import plan_limits as limits
from synth.program.buffer_layout import Layout
from synth.program.program import BUFFERS, PORT_KINDS, Block, Dep, Gpu, InPlace, Loop, Port, Program, owners

MAX_RANKS, MAX_BLOCKS, MAX_CHANNELS, MAX_CHUNKS = 512, 1024, 1 << 16, 1 << 24  # bounds of a plan that is read
MAX_VALUE = 1 << 15  # the initial value of a semaphore that is read
UNLIMITED = (1 << 64) - 1  # `max_message_size` of a plan without a largest size
_TOP = ("name", "collective", "protocol", "inplace", "gpus")
_TOP_DEFAULTS = {
    "reuse_resources": False,
    "use_double_scratch_buffer": False,
    "buffer_alignment": limits.ALIGNMENT,
    "num_threads_per_block": 1024,
    "min_message_size": 0,
    "max_message_size": UNLIMITED,
}
_GPU = ("id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers")


def read(text: str, file: str | None = None, task: Collective | None = None, root: int | None = None) -> Program:
    """Return the program of a plan.

    `task`: the collective if the plan's name for it is not known. `root`: the root of a rooted collective; by default
    the rank whose input is read (broadcast, scatter) or whose output is written (reduce, gather). Raises FormatError
    with the place in the document.
    """
    top = Node.parse(text, file)
    if named_form(top.value) == OLD_PLAN:
        top.fail(OLD_PLAN)
    fields = top.fields(_TOP, defaults=_TOP_DEFAULTS)
    name, in_place = fields["name"].text(), fields["inplace"].flag()
    protocol = fields["protocol"].text(("Simple", "LL"))
    if fields["buffer_alignment"].whole(1, 1 << 20) % limits.ALIGNMENT:
        fields["buffer_alignment"].fail(f"is no multiple of {limits.ALIGNMENT}")
    fields["num_threads_per_block"].whole(1, 1024)
    nodes = fields["gpus"].items(MAX_RANKS)
    gpus = [_Gpu(node, rank, len(nodes)) for rank, node in enumerate(nodes)]
    if not gpus:
        fields["gpus"].fail("is empty")
    _check_channels(gpus, fields["gpus"])

    # Launches may use two scratches in turn, or one that plans share.
    sizes = [gpu.sizes for gpu in gpus]
    scratch = any(size["s"] for size in sizes)
    double, shared = fields["use_double_scratch_buffer"].flag(), fields["reuse_resources"].flag()
    if double and scratch and protocol == "Simple":
        fields["use_double_scratch_buffer"].fail("is true: plain puts into scratch do not know which half is in turn")
    scratch_bytes = limits.scratch_bytes(double) if scratch and shared else None
    read_gpus = tuple(gpu.program(sizes) for gpu in gpus)
    plan_collective = task or _collective(fields["collective"].text(), read_gpus, root, fields["collective"])
    if plan_collective is not None and plan_collective.ranks != len(gpus):
        fields["gpus"].fail(f"has {len(gpus)} ranks, {plan_collective.name} is over {plan_collective.ranks}")
    chunks, read_gpus = _chunks(plan_collective, read_gpus, fields["gpus"])
    place: InPlace = "in" if in_place else "out"
    program = Program(name, plan_collective, chunks, read_gpus, protocol, place, 0, None, scratch_bytes)
    if not double and (protocol == "LL" or program.has_packets):
        program = replace(program, one_scratch=True)

    # The sizes that the loader compares are those of the input, or of the output.
    low, high = (fields[f"{end}_message_size"].whole(0, UNLIMITED) for end in ("min", "max"))
    least, greatest = message_ratios(program)
    top_bytes = None if high == UNLIMITED else int(high / greatest)
    return replace(program, min_bytes=math.ceil(low / least), max_bytes=top_bytes)


def _check_channels(gpus: list[_Gpu], node: Node) -> None:
    """Refuse channels that ranks cannot set up together.

    Both ends have equally many channels. Switch channels are set up one by one, each by the whole group at a time, so
    every rank of a group must come to it next.
    """
    # The next channel of each rank is the last of its list.
    pending = [gpu.switches[::-1] for gpu in gpus]
    ready = list(range(len(gpus)))[::-1]
    while ready:
        rank = ready.pop()
        if pending[rank] and all(pending[member][-1:] == pending[rank][-1:] for member in pending[rank][-1][0]):
            members = pending[rank][-1][0]
            for member in members:
                pending[member].pop()
            ready += members
    for rank, channels in enumerate(pending):
        for ranks, _ in channels[-1:]:
            late = next(member for member in ranks if pending[member][-1:] != channels[-1:])
            listed = " ".join(map(str, ranks))
            node.fail(f"rank {late} lists the switch channel of rank {rank} over ranks {listed} later, or not at all")
    counts = Counter((gpu.rank, port.peer, kind) for gpu in gpus for kind in PORT_KINDS for port in gpu.ports[kind])
    for (rank, peer, kind), count in counts.items():
        if (back := counts[peer, rank, kind]) != count:
            node.fail(f"rank {rank} has {count} {kind} channels to rank {peer}, which has {back} back")


def _collective(plan_name: str, gpus: tuple[Gpu, ...], root: int | None, node: Node) -> Collective | None:
    """Return the collective that a plan calls `plan_name`; None if the name is not known."""
    # Plans from other hands write names in several ways.
    our_names = {theirs: ours for ours, theirs in COLLECTIVE_NAMES.items()}
    name = our_names.get(plan_name, plan_name).replace("_", "-")
    if name not in COLLECTIVES or name.endswith("v"):
        return None
    roots: tuple[int, ...] = ()
    if "root" in COLLECTIVES[name][1]:
        # The ranks whose input is read, or whose output is written.
        spreads = name.removeprefix("multi-") in ("broadcast", "scatter")
        used = set()
        for (rank, _, _), op in Program("", None, 1, gpus).placed_ops():
            spans = [span for span in op.src if span.buffer == "i"]
            if not spreads:
                spans = [span for span in op.dst if span.buffer == "o"]
            used.update(owners(rank, spans))
        roots = (root,) if root is not None else tuple(sorted(used))
        if not name.startswith("multi-") and len(roots) != 1:
            node.fail(f"the root of this {name} does not follow from the plan; give it")
    try:
        return collective(name, len(gpus), roots)
    except UsageError as error:
        node.fail(str(error))


def _chunks(task: Collective | None, gpus: tuple[Gpu, ...], node: Node) -> tuple[int, tuple[Gpu, ...]]:
    """Return the chunks per unit, and the gpus with their actual buffers.

    A plan declares an empty buffer as large as the rank's other one.
    """
    if task is None:
        return max(max(gpu.input, gpu.output) for gpu in gpus), gpus
    # Every rank with a buffer says how many chunks a unit has; they must agree.
    layout = Layout(task, 1)
    declared = list(zip(gpus, layout.inputs, layout.outputs, strict=True))
    rates = {Fraction(gpu.input, len(inputs)) for gpu, inputs, _ in declared if inputs}
    rates |= {Fraction(gpu.output, len(outputs)) for gpu, _, outputs in declared if outputs}
    chunks = rates.pop() if len(rates) == 1 else Fraction(0)
    if not chunks or chunks.denominator > 1:
        node.fail(f"the buffers of the ranks do not have the sizes that {task.name} gives them")
    c = int(chunks)
    actual = []
    for gpu, inputs, outputs in declared:
        buffers = gpu._replace(input=len(inputs) * c, output=len(outputs) * c)
        counts = limits.chunk_counts(buffers)
        if (gpu.input, gpu.output) != counts:
            node.fail(
                f"rank {gpu.rank} declares {gpu.input} and {gpu.output} chunks, a plan of {task.name} {counts[0]} and "
                f"{counts[1]}; an empty buffer is declared as large as the other"
            )
        actual.append(buffers)
    return c, tuple(actual)


class _Gpu:
    """One entry of `gpus`, read in two passes: the bounds of spans depend on the buffer sizes of all ranks."""

    def __init__(self, node: Node, rank: int, ranks: int) -> None:
        self.rank = rank
        self.fields = fields = node.fields(_GPU, defaults={"semaphores": []})
        fields["id"].place_in_list(rank)
        inputs, outputs = (fields[key].whole(1, MAX_CHUNKS) for key in ("input_chunks", "output_chunks"))
        self.sizes = {"i": inputs, "o": outputs, "s": fields["scratch_chunks"].whole(0, MAX_CHUNKS)}
        self.ports = {kind: [] for kind in PORT_KINDS}
        self.switches = []
        seen = Counter()
        for channels in fields["channels"].items(MAX_CHANNELS):
            if isinstance(channels.value, dict) and channels.value.get("channel_type") == "switch":
                # a channel for each of its groups, which all have the rank itself
                found = channels.fields(("channel_type", "buffer_type", "rank_groups"))
                buffer = found["buffer_type"].text(BUFFERS)
                for entry in found["rank_groups"].items(MAX_CHANNELS):
                    group = entry.fields(("size", "ranks"))
                    members = [member.whole(0, ranks - 1) for member in group["ranks"].items(MAX_RANKS)]
                    if len(set(members)) < len(members) or len(members) < 2 or rank not in members:
                        group["ranks"].fail(f"is no group of two ranks or more, once each, with rank {rank}")
                    if group["size"].whole(0, MAX_RANKS) != len(members):
                        group["size"].fail(f"is {group['size'].value}, the group has {len(members)} ranks")
                    self.switches.append((tuple(members), buffer))
                continue
            found = channels.fields(("channel_type", "connected_to"))
            kind = found["channel_type"].text(PORT_KINDS)
            for entry in found["connected_to"].items(MAX_CHANNELS):
                peer = entry.whole(0, ranks - 1)
                if peer == rank:
                    entry.fail("a channel from a rank to itself")
                self.ports[kind].append(Port(kind, peer, seen[kind, peer]))
                seen[kind, peer] += 1

    def program(self, sizes: list[dict[str, int]]) -> Gpu:
        """Return the rank's part of the program; ``sizes[rank][buffer]`` in chunks."""
        buffers = []
        for node in self.fields["remote_buffers"].items(MAX_CHANNELS):
            fields = node.fields(("rank", "type", "access_channel_types"))
            kinds = tuple(entry.text(PORT_KINDS) for entry in fields["access_channel_types"].items(len(PORT_KINDS)))
            owner = fields["rank"].whole(0, len(sizes) - 1)
            if owner == self.rank:
                fields["rank"].fail("a remote buffer of the rank itself")
            buffers.append((owner, fields["type"].text(BUFFERS), kinds))
        counts = []
        for node in self.fields["semaphores"].items(MAX_CHANNELS):
            counts.append(node.fields(("init_value",))["init_value"].whole(0, MAX_VALUE))
        nodes = self.fields["threadblocks"].items(MAX_BLOCKS)
        if not nodes:
            self.fields["threadblocks"].fail("is empty; a kernel has at least one thread block")
        # Blocks are read one by one, then matched by their barriers and semaphores.
        readers = [BlockReader(node, b, self, buffers, sizes) for b, node in enumerate(nodes)]

        # The group of each barrier is the blocks that name it; several of one group are met in one order.
        groups, orders = defaultdict(list), {}
        for reader in readers:
            for number in reader.barriers:
                groups[number].append(reader.number)
        for reader in readers:
            for number, (size, node) in reader.barriers.items():
                if size != len(groups[number]):
                    node.fail(f"{len(groups[number])} thread blocks use barrier {number}, it waits for {size}")
            reader.groups = {number: tuple(groups[number]) for number in reader.barriers}
            own = defaultdict(list)
            for op in reader.ops:
                if op.code == "barrier":
                    own[reader.groups[op.group[0]]].append(op.group[0])
            for group, numbers in own.items():
                if len(set(numbers)) > 1 and orders.setdefault(group, numbers) != numbers:
                    reader.barriers[numbers[0]][1].fail(
                        f"blocks {', '.join(map(str, group))} meet at several barriers, in different orders"
                    )
        blocks = _with_semaphores(readers, counts)
        return Gpu(self.rank, self.sizes["i"], self.sizes["o"], self.sizes["s"], tuple(blocks))


class _Use(NamedTuple):
    """A release of a semaphore after op `op` of a block, or an acquisition before it."""

    block: int
    op: int
    loop: Loop | None
    node: Node


def _with_semaphores(readers: list[BlockReader], initial: list[int]) -> list[Block]:
    """Return the blocks of a rank whose `readers` have read its semaphores, as blocks with dependencies.

    ``initial[semaphore]``: its value before any release. Acquisitions that do not wait for a certain release have no
    counterpart in a program: raises FormatError.
    """
    released, acquired = defaultdict(list), defaultdict(list)
    for b, reader in enumerate(readers):
        for by_number, uses in ((released, reader.releases), (acquired, reader.acquires)):
            for op, number, node in uses:
                if number >= len(initial):
                    node.fail(f"semaphore {number} does not exist; the rank has {len(initial)}")
                loop = next((loop for loop in reader.loops if loop.first <= op < loop.end), None)
                by_number[number].append(_Use(b, op, loop, node))
    # Semaphores become dependencies of ops on ops of other blocks.
    deps = defaultdict(set)
    for number in sorted({*released, *acquired}):
        for use, dep in _waits(number, released[number], acquired[number], initial[number]):
            deps[use.block, use.op].add(dep)
    flags = {(dep.block, dep.op) for waits in deps.values() for dep in waits}
    blocks = []
    for b, reader in enumerate(readers):
        ops = []
        for i, op in enumerate(reader.ops):
            group = reader.groups[op.group[0]] if op.code == "barrier" else ()
            ops.append(op._replace(deps=tuple(sorted(deps[b, i])), flag=(b, i) in flags, group=group))
        blocks.append(Block(None, None, 0, tuple(ops), (), reader.ports, tuple(reader.loops)))
    return blocks


def _waits(number: int, released: list[_Use], acquired: list[_Use], initial: int) -> list[tuple[_Use, Dep]]:
    """Return, for each acquisition of a semaphore, the releases that it surely waits for.

    One block releases and one acquires, in one loop each or outside loops: the k-th waits for the k-th, less the
    initial value. Otherwise all releases, or all acquisitions, stand at one place outside loops: then all wait for all.
    """
    node = (released or acquired)[0].node
    turns = {use.loop and use.loop[2:] for use in (*released, *acquired)}
    blocks, places, loops = ([], [], [])  # how many of each the two sides have
    for uses in (released, acquired):
        blocks.append(len({use.block for use in uses}))
        places.append(len({use[:2] for use in uses}))
        loops.append(len({use.loop for use in uses}))
    if len(released) != len(acquired) or len(turns) > 1 or max(loops) > 1:
        node.fail(
            f"semaphore {number} is released {len(released)} times and acquired {len(acquired)} times, or in other "
            f"pipelines: which release an acquisition waits for depends on the size, or on the launch"
        )
    loop = released[0].loop
    pairs = []
    if blocks == [1, 1]:
        for k, use in enumerate(acquired):
            back, place = divmod(k - initial, len(released))
            if back == 0 or loop is not None:
                pairs.append((use, Dep(released[place].block, released[place].op, -back)))
        return pairs
    if initial or loop is not None or min(places) != 1:
        node.fail(
            f"semaphore {number} counts releases of several blocks, or is acquired by several: nothing says which "
            f"release an acquisition waits for, no counterpart in a program"
        )
    for use in acquired:
        pairs += [(use, Dep(*release[:2])) for release in released]
    return pairs
