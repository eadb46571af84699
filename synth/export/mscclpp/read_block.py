"""Reader of one thread block of an MSCCL++ plan as ops of a Program."""

from __future__ import annotations

from typing import Protocol

from synth.export.mscclpp.emit import SwitchChannel
from synth.export.mscclpp.forms import FORMS, Form, letters
from synth.export.mscclpp.json_fields import Node
from synth.program import plan_limits as limits
from synth.program.program import BUFFERS, PORT_KINDS, Loop, Op, Part, Port, Span, owners

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
_SIGNALS = {"signal": "signal", "wait": "wait", "rlxsignal": "signal", "rlxwait": "wait", "flush": "flush"}
MAX_UNIT = (1 << 32) - 16  # bytes of a turn of a pipeline, which the kernel counts in 32 bits
Buffers = list[tuple[int, str, tuple[str, ...]]]


class Channels(Protocol):
    """A rank with its ports by kind and its switch channels, in the order of the plan."""

    rank: int
    ports: dict[str, list[Port]]
    switches: list[SwitchChannel]


class BlockReader:
    """Reader of one entry of `threadblocks`: it converts the ops and collects the uses of semaphores and barriers.

    The caller matches those with the rank's other blocks. `channels`: the rank and its channels. `buffers`: its remote
    buffers as (rank, buffer, kinds of channel). `sizes`: chunks of buffers, by rank. `acquires` and `releases`: (op,
    semaphore, place) in order. `barriers`: number → (blocks that meet, place). Raises FormatError with the place in
    the document.
    """

    def __init__(
        self, node: Node, number: int, channels: Channels, buffers: Buffers, sizes: list[dict[str, int]]
    ) -> None:
        self.number, self.rank, self.sizes, self.node = number, channels.rank, sizes, node
        fields = node.fields(("id", "ops", "channels"), defaults={"remote_buffer_refs": []})
        fields["id"].place_in_list(number)

        # The channels of each kind, by their numbers among those of the rank.
        self.mine: dict[str, list[Port]] = {kind: [] for kind in PORT_KINDS}
        self.switches: list[SwitchChannel] = []
        for entry in fields["channels"].items(len(PORT_KINDS) + 1):
            found = entry.fields(("channel_type", "channel_ids"))
            kind = found["channel_type"].text((*PORT_KINDS, "switch"))
            ids = found["channel_ids"].items(limits.BLOCK_CHANNELS)
            if kind == "switch":
                self.switches += [channel.one_of(channels.switches, "switch channel") for channel in ids]
                continue
            self.mine[kind] += [channel.one_of(channels.ports[kind], f"{kind} channel") for channel in ids]
            if len(self.mine[kind]) > limits.BLOCK_CHANNELS:
                entry.fail(f"a thread block takes at most {limits.BLOCK_CHANNELS} {kind} channels")
        self.ports = (*self.mine["memory"], *self.mine["port"])

        # The remote buffers that the block reaches through each kind of channel.
        self.reached: dict[str, list[tuple[int, str]]] = {kind: [] for kind in PORT_KINDS}
        for entry in fields["remote_buffer_refs"].items(len(PORT_KINDS)):
            found = entry.fields(("access_channel_type", "remote_buffer_ids"))
            kind = found["access_channel_type"].text(PORT_KINDS)
            for buffer in found["remote_buffer_ids"].items(limits.BLOCK_BUFFERS):
                owner, name, kinds = buffer.one_of(buffers, "remote buffer")
                if kind not in kinds:
                    buffer.fail(f"remote buffer {buffer.value} is not reached through {kind} channels")
                self.reached[kind].append((owner, name))
            if len(self.reached[kind]) > limits.BLOCK_BUFFERS:
                entry.fail(f"a thread block takes at most {limits.BLOCK_BUFFERS} remote buffers")

        self.ops: list[Op] = []
        self.acquires: list[tuple[int, int, Node]] = []
        self.releases: list[tuple[int, int, Node]] = []
        self.barriers: dict[int, tuple[int, Node]] = {}
        self.groups: dict[int, tuple[int, ...]] = {}
        self.loops: list[Loop] = []
        self.listed = 0  # operations of the plan, those of pipelines included
        self._ops(fields["ops"])

    def _ops(self, node: Node, pipeline: bool = False) -> None:
        """Read a list of operations, of the block or of a `pipeline` in it."""
        # Operations inside pipelines count against the limit of the block, too.
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

        # The share of an op that several thread blocks do.
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
        if "reduce_op" in fields:
            fields["reduce_op"].text(("sum",))
        if name == "nop":
            self.ops.append(Op("nop"))
        elif name == "barrier":
            node.needs(fields, "barrier_id", "num_threadblocks")
            number = fields["barrier_id"].whole(0, limits.BARRIERS - 1)
            self.barriers[number] = fields["num_threadblocks"].whole(1, 1 << 20), node
            self.ops.append(Op("barrier", group=(number,)))  # the caller puts the blocks in place of the number
        elif name in ("sem_acquire", "sem_release"):
            node.needs(fields, "semaphore_ids")
            at = len(self.ops) - (name == "sem_release")
            found = self.acquires if name == "sem_acquire" else self.releases
            for entry in fields["semaphore_ids"].items(limits.OP_SEMAPHORES):
                found.append((at, entry.whole(0, 1 << 20), entry))
        elif name in _SIGNALS:
            self._signal(name, node, fields)
        elif name in ("pws", "pwsf"):
            if self._kind(fields) == "memory":
                node.fail(f"{name} on a memory channel never signals in the kernel; put, nop and signal do")
            self._move(FORMS["put"], node, fields)
            for code in ("signal", "flush")[: len(name) - 2]:
                self.ops.append(Op(code, ports=self._channels(fields)))
        elif name in FORMS:
            self._move(FORMS[name], node, fields)
        elif name in ("glres", "gstore", "gstorepkt"):
            self._switch_op(name, node, fields)
        else:
            fields["name"].fail(f"unknown operation {name[:40]!r}")

    def _signal(self, name: str, node: Node, fields: dict[str, Node]) -> None:
        """Read a signal, a wait, or a flush, which does nothing in the kernel without destinations."""
        ports = self._channels(fields)
        if not ports:
            node.fail(f"{name} names no channel")
        if name == "flush":
            if "dst_buff" not in fields:
                return
            kinds = {self.ports[port].kind for port in ports}
            if len(fields["dst_buff"].items(limits.OP_BUFFERS)) != len(ports) or kinds != {"port"}:
                node.fail("a flush has port channels, and as many destinations")
        self.ops.append(Op(_SIGNALS[name], ports=ports))

    def _move(self, form: Form, node: Node, fields: dict[str, Node]) -> None:
        """Read a put, get, copy or sum: operands of its form, those of 0 chunks left out."""
        srcs, dsts = (self._buffers(node, fields, key) for key in ("src_buff", "dst_buff"))
        ports = self._channels(fields)
        src, dst = self._spans(node, srcs, form.src), self._spans(node, dsts, form.dst)
        counts = [count for _, count in dsts]
        if form.code == "put":
            self._put(form, node, fields, src, dst, [count for _, count in srcs], counts)
            return
        if len({count for _, count in (*srcs, *dsts)}) > 1:
            node.fail("has operands of unlike numbers of chunks")
        if form.code == "get" and src[0].offset != dst[0].offset:
            node.fail("a get whose offsets differ: the kernel swaps them")
        if "p" in form.src and form.code == "reduce":
            src = (*src[1:], src[0])  # the kernel adds packets up first
        if counts[0]:
            self.ops.append(Op(form.code, src, dst, counts[0], ports=() if form.code == "cpy" else ports))

    def _put(
        self, form: Form, node: Node, fields: dict[str, Node], src: tuple[Span, ...], dst: tuple[Span, ...],
        source_counts: list[int], counts: list[int],
    ) -> None:  # fmt: skip
        """Append the puts of one operation: neighbours of equally many chunks are one op."""
        kind, ports = self._kind(fields), self._channels(fields)
        if form.src == "p":
            src, source_counts = src * len(dst), source_counts * len(dst)
        if source_counts != counts or (ports and len(ports) != len(dst)):
            node.fail("a put has for each destination a source of as many chunks, and a channel, or none at all")
        if kind == "port" and not ports:
            node.fail("names no port channel that it puts through")
        if kind == "memory" and len({span.buffer for span in src}) > 1:
            node.fail("has sources in different buffers; the kernel takes all from that of the first")
        if kind == "port" and form is FORMS["ppkt"] and {span.buffer for span in src} != {"s"}:
            node.fail("sends through a port channel as packets what is not in scratch")  # it waits for no flag
        for span, port in zip(dst, ports, strict=False):
            if self.ports[port].peer != span.rank:
                node.fail(f"puts to rank {span.rank} through a channel to rank {self.ports[port].peer}")
        # Neighbours of equally many chunks are one op of the program.
        start = 0
        for i in range(1, len(dst) + 1):
            if i == len(dst) or counts[i] != counts[start]:
                sources = src[start:i]
                if len(set(sources)) == 1:
                    sources = sources[:1]
                if counts[start]:
                    self.ops.append(Op("put", sources, dst[start:i], counts[start], ports=ports[start:i]))
                start = i

    def _switch_op(self, name: str, node: Node, fields: dict[str, Node]) -> None:
        node.needs(fields, "channel_type")
        fields["channel_type"].text(("switch",))
        node.needs(fields, "src_buff", "dst_buff")
        packet = name == "gstorepkt"
        dst, count = self._group(fields["dst_buff"].single(), packet)
        if name == "glres":
            src, other = self._group(fields["src_buff"].single(), False)
            if owners(self.rank, src) != owners(self.rank, dst):
                node.fail("a glres has one group of ranks on both sides")
        else:
            source = self._span(fields["src_buff"].single(), "memory")
            src, other = self._spans(node, [source], "p" if packet else "h"), source[1]
        if count != other:
            node.fail("stores another number of chunks than it reads")
        if count:
            self.ops.append(Op(name.removesuffix("pkt"), src, dst, count))

    def _group(self, entry: Node, packet: bool) -> tuple[tuple[Span, ...], int]:
        """Return the span on each rank of the group of a switch channel, and the number of chunks."""
        # A switch reaches one place on all ranks of its group, within the smallest buffer.
        found = entry.fields(("switch_channel_id", "index", "size"))
        ranks, buffer = found["switch_channel_id"].one_of(self.switches, "switch channel")
        if packet and buffer != "s":
            entry.fail("packets lie in scratch only")
        size = min(self.sizes[rank][buffer] for rank in ranks)
        offset = found["index"].whole(0, size)
        spans = []
        for rank in sorted(ranks):
            spans.append(Span(buffer, offset, None if rank == self.rank else rank, packet))
        return tuple(spans), found["size"].whole(0, size - offset)

    def _kind(self, fields: dict[str, Node]) -> str:
        return fields["channel_type"].text(PORT_KINDS) if "channel_type" in fields else "memory"

    def _channels(self, fields: dict[str, Node]) -> tuple[int, ...]:
        """Return the numbers of an op's channels among those of the block."""
        if "channel_ids" not in fields:
            return ()
        kind = self._kind(fields)
        mine = range(len(self.mine["memory"])) if kind == "memory" else range(len(self.mine["memory"]), len(self.ports))
        ids = fields["channel_ids"].items(limits.OP_CHANNELS)
        return tuple(entry.one_of(mine, f"{kind} channel") for entry in ids)

    def _buffers(self, node: Node, fields: dict[str, Node], key: str) -> list[tuple[Span, int]]:
        node.needs(fields, key)
        return [self._span(entry, self._kind(fields)) for entry in fields[key].items(limits.OP_BUFFERS)]

    def _span(self, node: Node, kind: str) -> tuple[Span, int]:
        """Return an operand and its number of chunks."""
        fields = node.fields(("index", "size"), ("type", "buffer_id", "switch_channel_id", "rank"))
        if "rank" in fields:  # written by MSCCL++'s language; its loader takes the rank's own memory, whatever it says
            fields["rank"].whole(0, len(self.sizes) - 1)
        if "switch_channel_id" in fields or ("type" in fields) == ("buffer_id" in fields):
            node.fail("expected one of 'type' and 'buffer_id'; glres and gstore alone use switch channels")
        owner, name = None, ""
        if "type" in fields:
            name = fields["type"].text(BUFFERS)
        else:
            owner, name = fields["buffer_id"].one_of(self.reached[kind], f"remote buffer through {kind} channels")
        size = self.sizes[self.rank if owner is None else owner][name]
        offset = fields["index"].whole(0, size)
        return Span(name, offset, owner), fields["size"].whole(0, size - offset)

    @staticmethod
    def _spans(node: Node, operands: list[tuple[Span, int]], form: str) -> tuple[Span, ...]:
        """Return operands with the packets that their form says."""
        spans = []
        expected = letters(form, len(operands))
        for (span, _), letter in zip(operands, expected, strict=False):
            if (span.rank is not None) != (letter in "tq"):
                expected = ""
            if letter in "pq" and span.buffer != "s":
                node.fail("packets lie in scratch only")
            spans.append(span._replace(packet=letter in "pq"))
        if not expected:
            node.fail(f"an op of this name has operands {form} (h, p: chunks and packets of the rank, t, q: of others)")
        return tuple(spans)
