"""MSCCL++ execution plans, anyone's, read as Programs.

What a plan can say and a Program cannot is refused with its place: switch channels (multimem), pipelines, thread-block
groups (an op dealt out over blocks), semaphores that several blocks share. `pws` on a port channel becomes put and
signal; on a memory channel the kernel never signals, so it is refused. `rlxsignal` and `rlxwait` are read as `signal`
and `wait`. A `flush` without destinations does nothing in the kernel and is left out.
"""

from __future__ import annotations

import math
from fractions import Fraction

from synth.errors import UsageError
from synth.export.mscclpp.emit import COLLECTIVE_NAMES, shares
from synth.export.mscclpp.json_fields import Node
from synth.export.mscclpp.read_block import BlockReader
from synth.export.mscclpp.read_semaphores import with_semaphores
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.program import plan_limits as limits
from synth.program.buffer_layout import Layout
from synth.program.program import BUFFERS, PORT_KINDS, Gpu, Port, Program

MAX_RANKS, MAX_BLOCKS, MAX_CHANNELS, MAX_CHUNKS = 512, 1024, 1 << 16, 1 << 24
UNLIMITED = (1 << 64) - 1
_TOP = ("name", "collective", "protocol", "inplace", "gpus")
_TOP_MORE = (
    "reuse_resources",
    "use_double_scratch_buffer",
    "buffer_alignment",
    "num_threads_per_block",
    "min_message_size",
    "max_message_size",
)
_GPU = ("id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers")


def read(text: str, file: str | None = None, task: Collective | None = None, root: int | None = None) -> Program:
    """The program of a plan. `task`: the collective, where its name does not give it; `root` of a rooted one.

    Without `root` it is the rank whose input is read (broadcast, scatter) or output written (reduce, gather). Raises
    FormatError with the place in the document.
    """
    top = Node.parse(text, file)
    fields = top.fields(_TOP, _TOP_MORE)
    name, in_place = fields["name"].text(), fields["inplace"].flag()
    protocol = fields["protocol"].text(("Simple", "LL"))
    if "reuse_resources" in fields and fields["reuse_resources"].flag():
        fields["reuse_resources"].fail("is true: large chunks then share scratch in turns, which a program cannot say")
    if "buffer_alignment" in fields and fields["buffer_alignment"].whole(1, 1 << 20) % limits.ALIGNMENT:
        fields["buffer_alignment"].fail(f"is no multiple of {limits.ALIGNMENT}")
    if "num_threads_per_block" in fields:
        fields["num_threads_per_block"].whole(1, 1024)
    gpus = [_Gpu(node, rank) for rank, node in enumerate(fields["gpus"].items(MAX_RANKS))]
    if not gpus:
        fields["gpus"].fail("is empty")
    sizes = [gpu.sizes for gpu in gpus]
    _check_scratch(fields, protocol, any(size["s"] for size in sizes))
    read_gpus = tuple(gpu.program(sizes) for gpu in gpus)
    called = fields["collective"].text()
    found = task or _task(called, read_gpus, root, fields["collective"])
    if found is not None and found.ranks != len(gpus):
        fields["gpus"].fail(f"has {len(gpus)} ranks, {found.name} is over {found.ranks}")
    chunks, read_gpus = _chunks(found, read_gpus, fields["gpus"])
    low = fields["min_message_size"].whole(0, UNLIMITED) if "min_message_size" in fields else 0
    high = fields["max_message_size"].whole(0, UNLIMITED) if "max_message_size" in fields else UNLIMITED
    program = Program(name, found, chunks, read_gpus, protocol, "in" if in_place else "out")
    least, most = shares(program)
    top_bytes = None if high == UNLIMITED else int(high / most)
    return Program(name, found, chunks, read_gpus, protocol, program.in_place, math.ceil(low / least), top_bytes)


def _check_scratch(fields: dict[str, Node], protocol: str, scratch: bool) -> None:
    """Packets need a double scratch; puts of plain data into one miss the half whose turn it is."""
    double = fields.get("use_double_scratch_buffer")
    if scratch and protocol == "Simple" and double is not None and double.flag():
        double.fail("is true: plain puts into scratch do not know which half is in turn")
    if scratch and protocol == "LL" and (double is None or not double.flag()):
        (double or fields["protocol"]).fail(
            "packets in a scratch that is not double: who is a launch ahead overwrites what was not read"
        )


def _task(called: str, gpus: tuple[Gpu, ...], root: int | None, node: Node) -> Collective | None:
    """The collective of a plan's name; None for one that is not known."""
    ours = {theirs: name for name, theirs in COLLECTIVE_NAMES.items()}.get(called, called).replace("_", "-")
    if ours not in COLLECTIVES or ours.endswith("v"):
        return None
    roots: tuple[int, ...] = ()
    if "root" in COLLECTIVES[ours][1]:
        spreads = ours in ("broadcast", "scatter", "multi-broadcast", "multi-scatter")
        roots = tuple(sorted(_readers(gpus) if spreads else _written(gpus))) if root is None else (root,)
        if not ours.startswith("multi-") and len(roots) != 1:
            node.fail(f"the root of this {ours} cannot be told from the plan; give it")
    try:
        return collective(ours, len(gpus), roots)
    except UsageError as error:
        node.fail(str(error))


def _readers(gpus: tuple[Gpu, ...]) -> set[int]:
    """The ranks whose input is read."""
    ops = ((gpu.rank, op) for gpu in gpus for block in gpu.blocks for op in block.ops)
    return {rank if span.rank is None else span.rank for rank, op in ops for span in op.src if span.buffer == "i"}


def _written(gpus: tuple[Gpu, ...]) -> set[int]:
    """The ranks whose output is written."""
    ops = ((gpu.rank, op) for gpu in gpus for block in gpu.blocks for op in block.ops)
    return {rank if span.rank is None else span.rank for rank, op in ops for span in op.dst if span.buffer == "o"}


def _chunks(task: Collective | None, gpus: tuple[Gpu, ...], node: Node) -> tuple[int, tuple[Gpu, ...]]:
    """Chunks per unit, and the gpus with the buffers that they have: a plan gives an empty one the size of the
    other."""
    if task is None:
        return max(max(gpu.input, gpu.output) for gpu in gpus), gpus
    layout = Layout(task, 1)
    units = [(len(layout.inputs[r]), len(layout.outputs[r])) for r in range(task.ranks)]
    rates = {
        Fraction(count, n)
        for gpu, pair in zip(gpus, units, strict=True)
        for count, n in zip(gpu[1:3], pair, strict=True)
        if n
    }
    chunks = rates.pop() if len(rates) == 1 else Fraction(0)
    if not chunks or chunks.denominator > 1:
        node.fail(f"the buffers of the ranks do not have the sizes that {task.name} gives them")
    c = int(chunks)
    return c, tuple(
        gpu._replace(input=held * c, output=wanted * c) for gpu, (held, wanted) in zip(gpus, units, strict=True)
    )


class _Gpu:
    """One entry of `gpus`, read in two passes: what spans may reach depends on the sizes of all ranks."""

    def __init__(self, node: Node, rank: int) -> None:
        self.rank = rank
        self.fields = fields = node.fields(_GPU, ("semaphores",))
        if fields["id"].whole(0, MAX_RANKS) != rank:
            fields["id"].fail(f"is {fields['id'].value}; ids are places in the list, here {rank}")
        held, wanted = (fields[key].whole(1, MAX_CHUNKS) for key in ("input_chunks", "output_chunks"))
        self.sizes = {"i": held, "o": wanted, "s": fields["scratch_chunks"].whole(0, MAX_CHUNKS)}

    def program(self, sizes: list[dict[str, int]]) -> Gpu:
        """The rank's part of the program."""
        ports = self._ports(len(sizes))
        buffers = [self._buffer(node, len(sizes)) for node in self.fields["remote_buffers"].items(MAX_CHANNELS)]
        counts = []
        if "semaphores" in self.fields:
            for node in self.fields["semaphores"].items(MAX_CHANNELS):
                counts.append(node.fields(("init_value",))["init_value"].whole(0, 0))
        nodes = self.fields["threadblocks"].items(MAX_BLOCKS)
        if not nodes:
            self.fields["threadblocks"].fail("is empty; a kernel has at least one thread block")
        readers = [BlockReader(node, b, self.rank, ports, buffers, sizes) for b, node in enumerate(nodes)]
        self._barriers(readers)
        blocks = with_semaphores(readers, len(counts))
        return Gpu(self.rank, self.sizes["i"], self.sizes["o"], self.sizes["s"], tuple(blocks))

    def _ports(self, ranks: int) -> dict[str, list[Port]]:
        found: dict[str, list[Port]] = {kind: [] for kind in PORT_KINDS}
        seen: dict[tuple[str, int], int] = {}
        for node in self.fields["channels"].items(MAX_CHANNELS):
            if isinstance(node.value, dict) and node.value.get("channel_type") == "switch":
                node.fail("switch channels (multimem) have no counterpart in a program")
            fields = node.fields(("channel_type", "connected_to"))
            kind = fields["channel_type"].text(PORT_KINDS)
            for entry in fields["connected_to"].items(MAX_CHANNELS):
                peer = entry.whole(0, ranks - 1)
                if peer == self.rank:
                    entry.fail("a channel from a rank to itself")
                seen[kind, peer] = seen.get((kind, peer), -1) + 1
                found[kind].append(Port(kind, peer, seen[kind, peer]))
        return found

    def _buffer(self, node: Node, ranks: int) -> tuple[int, str, tuple[str, ...]]:
        fields = node.fields(("rank", "type", "access_channel_types"))
        kinds = tuple(entry.text(PORT_KINDS) for entry in fields["access_channel_types"].items(len(PORT_KINDS)))
        owner = fields["rank"].whole(0, ranks - 1)
        if owner == self.rank:
            fields["rank"].fail("a remote buffer of the rank itself")
        return owner, fields["type"].text(BUFFERS), kinds

    def _barriers(self, readers: list[BlockReader]) -> None:
        """Who meets in a barrier is everyone who names it."""
        groups: dict[int, list[int]] = {}
        for reader in readers:
            for number in reader.barriers:
                groups.setdefault(number, []).append(reader.number)
        for reader in readers:
            for number, (size, node) in reader.barriers.items():
                if size != len(groups[number]):
                    node.fail(f"{len(groups[number])} thread blocks use barrier {number}, it waits for {size}")
            reader.groups = {number: tuple(groups[number]) for number in reader.barriers}
