"""Reader of one thread block of an MSCCL++ plan as ops of a Program."""

from __future__ import annotations

from typing import Protocol

from synth.export.mscclpp.emit import SwitchChannel
from synth.export.mscclpp.json_fields import Node
from synth.program import plan_limits as limits
from synth.program.program import BUFFERS, PORT_KINDS, SWITCHED, Loop, Op, Part, Port, Span, owners

_OPERANDS = (
    "channel_type",
    "channel_ids",
    "src_buff",
    "dst_buff",
    "tbg_info",
    "barrier_id",
    "num_threadblocks",
    "semaphore_ids",
    "iter_context",
    "reduce_op",
    "ops",
    "buffer_type",
    "buffer_offset",
    "size",
    "dst_chunk",
    "src_chunk",
)
_REDUCTIONS = ("re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt")
_SIGNALS = {"signal": "signal", "wait": "wait", "rlxsignal": "signal", "rlxwait": "wait", "flush": "flush"}
_SWITCH_OPS = {**{code: code for code in SWITCHED}, "gstorepkt": "gstore"}
MAX_UNIT = (1 << 32) - 16  # bytes of a turn of a pipeline, which the kernel counts in 32 bits
Buffers = list[tuple[int, str, tuple[str, ...]]]


class Channels(Protocol):
    """A rank with its ports by kind and its switch channels, in the order of the plan."""

    rank: int
    ports: dict[str, list[Port]]
    switches: list[SwitchChannel]


class BlockReader:
    """Reader of one entry of `threadblocks`: it converts the ops and collects the uses of semaphores and barriers.

    The caller matches those with the rank's other blocks. `channels`: the rank and its
    channels. `buffers`: its remote buffers as (rank, buffer, kinds of channel). `sizes`: chunks of buffers, by rank.
    `acquires` and `releases`: (op, semaphore, place) in order. `barriers`: number → (blocks that meet, place). Raises
    FormatError with the place in the document.
    """

    def __init__(
        self,
        node: Node,
        number: int,
        channels: Channels,
        buffers: Buffers,
        sizes: list[dict[str, int]],
    ) -> None:
        self.number, self.rank, self.sizes, self.node = number, channels.rank, sizes, node
        fields = node.fields(("id", "ops", "channels"), ("remote_buffer_refs",))
        if fields["id"].whole(0, 1 << 20) != number:
            fields["id"].fail(f"is {fields['id'].value}; ids are places in the list, here {number}")
        self.mine = {kind: [] for kind in PORT_KINDS}
        self.switches = []
        for entry in fields["channels"].items(len(PORT_KINDS) + 1):
            # the channels of one kind, by their numbers among those of the rank
            found = entry.fields(("channel_type", "channel_ids"))
            kind = found["channel_type"].text((*PORT_KINDS, "switch"))
            known = channels.switches if kind == "switch" else channels.ports[kind]
            mine = self.switches if kind == "switch" else self.mine[kind]
            for channel in found["channel_ids"].items(limits.BLOCK_CHANNELS):
                if not known:
                    channel.fail(f"the rank has no {kind} channel")
                mine.append(known[channel.whole(0, len(known) - 1)])
            if kind != "switch" and len(mine) > limits.BLOCK_CHANNELS:
                entry.fail(f"a thread block takes at most {limits.BLOCK_CHANNELS} {kind} channels")
        self.reached = {kind: [] for kind in PORT_KINDS}
        for entry in fields["remote_buffer_refs"].items(len(PORT_KINDS)) if "remote_buffer_refs" in fields else ():
            # the remote buffers that the block reaches through one kind of channel
            found = entry.fields(("access_channel_type", "remote_buffer_ids"))
            kind = found["access_channel_type"].text(PORT_KINDS)
            for buffer in found["remote_buffer_ids"].items(limits.BLOCK_BUFFERS):
                owner, name, kinds = buffers[buffer.whole(0, len(buffers) - 1)] if buffers else (0, "", ())
                if kind not in kinds:
                    buffer.fail(f"remote buffer {buffer.value} is not reached through {kind} channels")
                self.reached[kind].append((owner, name))
            if len(self.reached[kind]) > limits.BLOCK_BUFFERS:
                entry.fail(f"a thread block takes at most {limits.BLOCK_BUFFERS} remote buffers")
        self.ports = (*self.mine["memory"], *self.mine["port"])
        self.ops = []
        self.acquires = []
        self.releases = []
        self.barriers = {}
        self.groups = {}
        self.loops = []
        self.listed = 0  # operations of the plan, those of pipelines included
        self._ops(fields["ops"])

    def _ops(self, node: Node, pipeline: bool = False) -> None:
        """Read a list of operations, of the block or of a `pipeline` in it."""
        first, released, entries = len(self.ops), len(self.releases), node.items(limits.BLOCK_OPS)
        self.listed += len(entries)
        if self.listed > limits.BLOCK_OPS:
            node.fail(f"makes {self.listed} operations of the block, at most {limits.BLOCK_OPS} are taken")
        for entry in entries:
            self._op(entry, pipeline)
            if len(self.ops) == first and self.releases[released:]:
                entry.fail("a semaphore is released before any op of its block or pipeline")
        if any(op >= len(self.ops) for op, _, _ in self.acquires):
            node.fail("a semaphore is acquired last, and nothing comes after it")

    def _op(self, node: Node, pipeline: bool) -> None:
        fields = node.fields(("name",), _OPERANDS)
        name = fields["name"].text()
        if name == "pipeline":
            if pipeline:
                node.fail("a pipeline in a pipeline: the kernel has one level")
            self._pipeline(node, fields)
            return
        start = len(self.ops)
        self._instruction(name, node, fields)
        if "tbg_info" not in fields:
            return
        # the share of an op that several thread blocks do
        group = fields["tbg_info"].fields(("tb_id", "tbg_size"))
        size = group["tbg_size"].whole(1, 1 << 10)
        part = Part(group["tb_id"].whole(0, size - 1), size)
        for i in range(start, len(self.ops)):
            if size > 1 and (self.ops[i].src or self.ops[i].dst):
                self.ops[i] = self.ops[i]._replace(part=part)

    def _pipeline(self, node: Node, fields: dict[str, Node]) -> None:
        if not {"iter_context", "ops"} <= fields.keys():
            node.fail("a pipeline needs 'iter_context' and 'ops'")
        context = fields["iter_context"].fields(("unit_size", "num_chunks"))
        unit, chunks = context["unit_size"].whole(1, MAX_UNIT), context["num_chunks"].whole(1, 1 << 20)
        if unit % limits.ALIGNMENT:
            context["unit_size"].fail(f"is no multiple of {limits.ALIGNMENT}: turns begin within an element")
        first = len(self.ops)
        self._ops(fields["ops"], pipeline=True)
        if len(self.ops) > first:
            self.loops.append(Loop(first, len(self.ops), chunks, unit))

    def _instruction(self, name: str, node: Node, fields: dict[str, Node]) -> None:
        if name == "nop":
            self.ops.append(Op("nop"))
        elif name == "barrier":
            if not {"barrier_id", "num_threadblocks"} <= fields.keys():
                node.fail("a barrier needs 'barrier_id' and 'num_threadblocks'")
            number = fields["barrier_id"].whole(0, limits.BARRIERS - 1)
            self.barriers[number] = fields["num_threadblocks"].whole(1, 1 << 20), node
            self.ops.append(Op("barrier", group=(number,)))  # the caller puts the blocks in place of the number
        elif name in ("sem_acquire", "sem_release"):
            if "semaphore_ids" not in fields:
                node.fail("'semaphore_ids' is missing")
            at = len(self.ops) - (name == "sem_release")
            found = self.acquires if name == "sem_acquire" else self.releases
            for entry in fields["semaphore_ids"].items(limits.OP_SEMAPHORES):
                found.append((at, entry.whole(0, 1 << 20), entry))
        elif name in _SIGNALS:
            ports = self._channels(fields)
            self._plain(node, bool(ports), "names at least one channel")
            if name == "flush" and "dst_buff" in fields:
                count = len(fields["dst_buff"].items(limits.OP_BUFFERS))
                self._plain(node, count == len(ports), "has as many destinations as channels")
                self._plain(node, all(self.ports[p].kind == "port" for p in ports), "flushes port channels only")
            if name != "flush" or "dst_buff" in fields:
                self.ops.append(Op(_SIGNALS[name], ports=ports))
        elif name in ("put", "ppkt", "rppkt", "pws", "pwsf"):
            self._put(name, node, fields)
        elif name == "get":
            (src, count), (dst, other) = (self._one(node, fields, key) for key in ("src_buff", "dst_buff"))
            if src.rank is None or dst.rank is not None or src.offset != dst.offset or count != other:
                node.fail("a get whose offsets differ: the kernel swaps them")
            self._move(Op("get", (src,), (dst,), count, ports=self._channels(fields)))
        elif name in ("copy", "cpkt", "upkt"):
            (src, count), (dst, other) = (self._one(node, fields, key) for key in ("src_buff", "dst_buff"))
            here = src.rank is None and dst.rank is None
            self._plain(node, count == other and here, "copies one chunk of the rank to another")
            src, dst = src._replace(packet=name == "upkt"), dst._replace(packet=name == "cpkt")
            self._move(Op("cpy", (self._packet(node, src),), (self._packet(node, dst),), count))
        elif name in _REDUCTIONS:
            self._reduce(name, node, fields)
        elif name in _SWITCH_OPS:
            self._switch_op(name, node, fields)
        else:
            fields["name"].fail(f"unknown operation {name[:40]!r}")

    # ------------------------------------------------------------ the kinds of op

    def _put(self, name: str, node: Node, fields: dict[str, Node]) -> None:
        ports = self._channels(fields)
        kind = self._kind(fields)
        if name in ("pws", "pwsf") and kind == "memory":
            node.fail(f"{name} on a memory channel never signals in the kernel; put, nop and signal do")
        srcs, dsts = self._buffers(node, fields, "src_buff"), self._buffers(node, fields, "dst_buff")
        if name == "rppkt":
            srcs *= len(dsts)
        self._plain(node, len(srcs) == len(dsts) > 0, "has one source for each destination")
        self._plain(node, not ports or len(ports) == len(dsts), "has one channel for each destination")
        self._plain(node, kind == "memory" or bool(ports), "names the port channels that it puts through")
        if kind == "memory" and len({src.buffer for src, _ in srcs}) > 1:
            node.fail("has sources in different buffers; the kernel takes all from that of the first")
        pairs = []
        for i, ((src, count), (dst, other)) in enumerate(zip(srcs, dsts, strict=True)):
            self._plain(
                node,
                src.rank is None and dst.rank is not None and count == other,
                "puts chunks of the rank to as many of another",
            )
            if ports and self.ports[ports[i]].peer != dst.rank:
                node.fail(f"puts to rank {dst.rank} through a channel to rank {self.ports[ports[i]].peer}")
            packets = name in ("ppkt", "rppkt")
            # through a port channel ppkt sends what lies in scratch as packets already, and waits for no flag
            src = self._packet(node, src._replace(packet=name == "rppkt"))
            self._plain(node, name != "ppkt" or kind == "memory" or src.buffer == "s", "sends packets from scratch")
            pairs.append((src, self._packet(node, dst._replace(packet=packets)), count, ports[i : i + 1]))
        start = 0
        for i in range(1, len(pairs) + 1):
            if i == len(pairs) or pairs[i][2] != pairs[start][2]:
                some = pairs[start:i]
                sources = tuple(pair[0] for pair in some)
                targets = tuple(pair[1] for pair in some)
                through = tuple(p for pair in some for p in pair[3])
                if len(set(sources)) == 1:
                    sources = sources[:1]
                self._move(Op("put", sources, targets, some[0][2], ports=through))
                start = i
        if name in ("pws", "pwsf"):
            self.ops.append(Op("signal", ports=ports))
        if name == "pwsf":
            self.ops.append(Op("flush", ports=ports))

    def _reduce(self, name: str, node: Node, fields: dict[str, Node]) -> None:
        if "reduce_op" in fields:
            fields["reduce_op"].text(("sum",))
        srcs, dsts = self._buffers(node, fields, "src_buff"), self._buffers(node, fields, "dst_buff")
        counts = {count for _, count in (*srcs, *dsts)}
        self._plain(
            node,
            len(srcs) > 1 and len(dsts) > 0 and len(counts) == 1,
            "adds up equally many chunks of two or more sources",
        )
        packets, own = name.endswith("pkt"), 2 if name in ("recpkt", "recspkt") else 1
        plain, away = srcs[0][0], [src for src, _ in srcs[1:]]
        local = [dst for dst, _ in dsts[:own]]
        far = [dst for dst, _ in dsts[own:]]
        self._plain(
            node,
            plain.rank is None
            and len(local) == own
            and all(s.rank is None for s in local)
            and all(s.rank is not None for s in far)
            and all((s.rank is not None) == name.startswith("rr") for s in away)
            and bool(far) == ("s" in name.removesuffix("pkt")),
            "has the rank's own chunk first on both sides, then what its name says",
        )
        away = [self._packet(node, s._replace(packet=packets)) for s in away]
        dst = (local[0], *(self._packet(node, s._replace(packet=packets)) for s in (*local[1:], *far)))
        src = (*away, plain) if packets else (plain, *away)  # the kernel adds packets up first
        self._move(Op("reduce", src, dst, counts.pop(), ports=self._channels(fields)))

    def _switch_op(self, name: str, node: Node, fields: dict[str, Node]) -> None:
        if "channel_type" not in fields:
            node.fail("'channel_type' is missing")
        fields["channel_type"].text(("switch",))
        if "reduce_op" in fields:
            fields["reduce_op"].text(("sum",))
        packets = name == "gstorepkt"
        dst, count = self._group(node, fields, "dst_buff")
        dst = tuple(self._packet(node, span._replace(packet=packets)) for span in dst)
        if name == "glres":
            src, other = self._group(node, fields, "src_buff")
            self._plain(node, owners(self.rank, src) == owners(self.rank, dst), "has one group of ranks on both sides")
        else:
            if "src_buff" not in fields or len(entries := fields["src_buff"].items(limits.OP_BUFFERS)) != 1:
                node.fail("expected one entry in 'src_buff'")
            span, other = self._span(entries[0], "memory")
            self._plain(node, span.rank is None, "stores a chunk of the rank")
            src = (self._packet(node, span._replace(packet=packets)),)
        self._plain(node, count == other, "stores as many chunks as it reads")
        self._move(Op(_SWITCH_OPS[name], src, dst, count))

    def _move(self, op: Op) -> None:
        """Append an op that moves data, unless it moves 0 chunks."""
        if op.count:
            self.ops.append(op)

    def _group(self, node: Node, fields: dict[str, Node], key: str) -> tuple[tuple[Span, ...], int]:
        """Return the span on each rank of the group of a switch channel, and the number of chunks."""
        if key not in fields or len(entries := fields[key].items(limits.OP_BUFFERS)) != 1:
            node.fail(f"expected one entry in {key!r}")
        found = entries[0].fields(("switch_channel_id", "index", "size"))
        if not self.switches:
            entries[0].fail("the thread block has no switch channel")
        ranks, buffer = self.switches[found["switch_channel_id"].whole(0, len(self.switches) - 1)]
        size = min(self.sizes[rank][buffer] for rank in ranks)
        offset = found["index"].whole(0, size)
        spans = []
        for rank in sorted(ranks):
            spans.append(Span(buffer, offset, None if rank == self.rank else rank))
        return tuple(spans), found["size"].whole(0, size - offset)

    # ------------------------------------------------------------ operands

    @staticmethod
    def _plain(node: Node, holds: bool, what: str) -> None:
        if not holds:
            node.fail(f"an op of this name {what}")

    def _kind(self, fields: dict[str, Node]) -> str:
        return fields["channel_type"].text(PORT_KINDS) if "channel_type" in fields else "memory"

    def _channels(self, fields: dict[str, Node]) -> tuple[int, ...]:
        if "channel_ids" not in fields:
            return ()
        kind = self._kind(fields)
        mine = self.mine[kind]
        shift = 0 if kind == "memory" else len(self.mine["memory"])
        found = []
        for entry in fields["channel_ids"].items(limits.OP_CHANNELS):
            if not mine:
                entry.fail(f"the thread block has no {kind} channel")
            found.append(shift + entry.whole(0, len(mine) - 1))
        return tuple(found)

    def _one(self, node: Node, fields: dict[str, Node], key: str) -> tuple[Span, int]:
        found = self._buffers(node, fields, key)
        if len(found) != 1:
            node.fail(f"expected one entry in {key!r}, found {len(found)}")
        return found[0]

    def _buffers(self, node: Node, fields: dict[str, Node], key: str) -> list[tuple[Span, int]]:
        if key not in fields:
            node.fail(f"{key!r} is missing")
        return [self._span(entry, self._kind(fields)) for entry in fields[key].items(limits.OP_BUFFERS)]

    def _span(self, node: Node, kind: str) -> tuple[Span, int]:
        fields = node.fields(("index", "size"), ("type", "buffer_id", "switch_channel_id", "rank"))
        if "rank" in fields:  # written by MSCCL++'s language; its loader takes the rank's own memory, whatever it says
            fields["rank"].whole(0, len(self.sizes) - 1)
        if "switch_channel_id" in fields or ("type" in fields) == ("buffer_id" in fields):
            node.fail("expected one of 'type' and 'buffer_id'; glres and gstore alone use switch channels")
        owner, name = None, ""
        if "type" in fields:
            name = fields["type"].text(BUFFERS)
        elif not self.reached[kind]:
            node.fail(f"the thread block reaches no remote buffer through {kind} channels")
        else:
            owner, name = self.reached[kind][fields["buffer_id"].whole(0, len(self.reached[kind]) - 1)]
        size = self.sizes[self.rank if owner is None else owner][name]
        offset = fields["index"].whole(0, size)
        return Span(name, offset, owner), fields["size"].whole(0, size - offset)

    @staticmethod
    def _packet(node: Node, span: Span) -> Span:
        if span.packet and span.buffer != "s":
            node.fail("packets lie in scratch only")
        return span
