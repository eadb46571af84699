"""One thread block of an MSCCL++ plan: its ops in the plan's terms, within the plan's limits."""

from __future__ import annotations

from typing import NoReturn

from synth.errors import SynthError
from synth.export.mscclpp.connections import (
    Connections,
    access_kind,
    place,
    remote,
    switch_channel,
)
from synth.program import plan_limits as limits
from synth.program.program import PORT_KINDS, SWITCHED, Gpu, Op, Port, Span


def block_document(number: int, gpu: Gpu, wiring: Connections) -> dict:
    """Return the entry `threadblocks[number]` of `gpu`. Raises SynthError that names a limit that is exceeded."""
    return _Block(number, gpu, wiring).document()


class _Block:
    def __init__(self, number: int, gpu: Gpu, wiring: Connections) -> None:
        self.number, self.gpu, self.wiring = number, gpu, wiring
        self.block = gpu.blocks[number]
        self.kinds = [access_kind(gpu, number, i) for i in range(len(self.block.ops))]
        self.channels = {}  # the block's ports by kind
        self.buffers = {}  # the remote buffers that it reaches, by kind of channel
        for kind in PORT_KINDS:
            self.channels[kind] = [port for port in self.block.ports if port.kind == kind]
            reached = set()
            for op, op_kind in zip(self.block.ops, self.kinds, strict=True):
                if op_kind == kind:
                    reached.update((span.rank, span.buffer) for span in remote(op))
            self.buffers[kind] = [i for i, key in enumerate(wiring.buffers) if key in reached]
        used = set()
        for op in self.block.ops:
            if op.code in SWITCHED:
                used.update(switch_channel(gpu.rank, spans) for spans in (op.src, op.dst) if len(spans) > 1)
        self.switches = [channel for channel in wiring.switches if channel in used]

    def document(self) -> dict:
        where = f"rank {self.gpu.rank} block {self.number}"
        ops = []
        merged = self.merged()
        for i, op in enumerate(self.block.ops):
            if merged.get(i) == "":
                continue
            instruction = self.instruction(i, op)
            ops.append(instruction | {"name": merged.get(i, instruction["name"])})
        if len(ops) > limits.BLOCK_OPS:
            raise SynthError(
                f"{where} has {len(ops)} operations, MSCCL++ takes {limits.BLOCK_OPS}: spread the chunks over more "
                "blocks"
            )
        for kind in PORT_KINDS:
            if len(self.channels[kind]) > limits.BLOCK_CHANNELS:
                raise SynthError(
                    f"{where} uses {len(self.channels[kind])} {kind} channels, MSCCL++ takes {limits.BLOCK_CHANNELS}"
                )
            if len(self.buffers[kind]) > limits.BLOCK_BUFFERS:
                raise SynthError(
                    f"{where} reaches {len(self.buffers[kind])} remote buffers, MSCCL++ takes {limits.BLOCK_BUFFERS}"
                )
        channels = []
        for kind, ports in self.channels.items():
            if ports:
                ids = [self.wiring.channels[kind].index(port) for port in ports]
                channels.append({"channel_type": kind, "channel_ids": ids})
        if len(self.switches) > limits.BLOCK_CHANNELS:
            raise SynthError(
                f"{where} uses {len(self.switches)} switch channels, MSCCL++ takes {limits.BLOCK_CHANNELS}"
            )
        if self.switches:
            ids = [self.wiring.switches.index(channel) for channel in self.switches]
            channels.append({"channel_type": "switch", "channel_ids": ids})
        return {
            "id": self.number,
            "ops": ops,
            "channels": channels,
            "remote_buffer_refs": [
                {"access_channel_type": kind, "remote_buffer_ids": ids} for kind, ids in self.buffers.items() if ids
            ],
        }

    def merged(self) -> dict[int, str]:
        """Return the names of puts through port channels that signal, and flush, in the same operation: thread k does
        all that for the k-th channel. The ops that they do beside have the name ""."""
        names = {}
        ops = self.block.ops
        for i, op in enumerate(ops):
            if op.code != "put" or self.kinds[i] != "port" or op.src[0].packet or op.dst[0].packet:
                continue
            for k, code, name in ((i + 1, "signal", "pws"), (i + 2, "flush", "pwsf")):
                if k == len(ops) or ops[k] != Op(code, ports=op.ports):
                    break
                if code == "flush" and not self.wiring.put_signal_flush:
                    break
                names |= {i: name, k: ""}
        return names

    def instruction(self, i: int, op: Op) -> dict:
        if op.code == "nop":
            return {"name": "nop"}
        if op.count < 1:
            self.refuse(i, "moves no chunk; MSCCL++ wants at least 1")
        if op.code in ("signal", "wait", "flush"):
            if not op.ports:
                self.refuse(i, "names no port")
            if op.code == "flush":
                if self.kinds[i] != "port":
                    self.refuse(i, "flushes a memory channel; only port channels are flushed")
                # the kernel takes the number of channels from the number of destinations
                return {
                    "name": "flush",
                    **self.ports(i, op),
                    "dst_buff": [{"type": "o", "index": 0, "size": 1}] * len(op.ports),
                }
            return {"name": op.code, **self.ports(i, op)}
        if op.code == "put":
            return self.put(i, op)
        if op.code == "cpy":
            return self.copy(i, op)
        if op.code == "reduce":
            return self.reduce(i, op)
        if op.code == "glres":
            buffers = {"src_buff": self.switch_span(op, op.src), "dst_buff": self.switch_span(op, op.dst)}
            return {"name": "glres", **buffers, "channel_type": "switch", "reduce_op": "sum"}
        if op.code == "gstore":
            buffers = {"src_buff": self.spans(i, op, op.src), "dst_buff": self.switch_span(op, op.dst)}
            packets = {span.packet for span in (*op.src, *op.dst)}
            if len(packets) > 1:
                self.refuse(i, "stores packets from packets, and plain chunks from plain chunks")
            return {"name": "gstorepkt" if True in packets else "gstore", **buffers, "channel_type": "switch"}
        return self.refuse(i, "has no counterpart in a plan")

    def put(self, i: int, op: Op) -> dict:
        own = [*remote(op._replace(dst=())), *(span for span in op.dst if span.rank is None)]
        if own or not op.dst:
            self.refuse(i, "puts chunks of the rank into other ranks' memory")
        if len(op.src) not in (1, len(op.dst)) or len({(span.buffer, span.packet) for span in op.src}) > 1:
            self.refuse(i, "puts from one buffer, one chunk to all or one to each")
        peers = [self.block.ports[p].peer for p in op.ports]
        if op.ports and peers != [span.rank for span in op.dst]:
            self.refuse(i, "has ports to other ranks than it puts to")
        kind, packets = self.kinds[i], {span.packet for span in op.dst}
        if kind == "port" and not op.ports:
            self.refuse(i, "names no port")
        first, *more = op.src
        each = op.src if more else op.src * len(op.dst)
        if packets == {False} and not first.packet:
            name, src = "put", each
        elif packets == {True} and first.packet:
            name, src = "rppkt", op.src
        elif packets == {True} and (kind == "memory" or first.buffer == "s"):
            name, src = "ppkt", each
        else:
            self.refuse(
                i, "a port channel carries packets only from packets, and nothing is put from packets to plain memory"
            )
        ports = self.ports(i, op) if op.ports else {"channel_type": kind}
        return {
            "name": name,
            "src_buff": self.spans(i, op, src),
            "dst_buff": self.spans(i, op, op.dst),
            **ports,
        }

    def copy(self, i: int, op: Op) -> dict:
        if len(op.src) != 1 or len(op.dst) != 1 or remote(op):
            self.refuse(i, "copies one chunk of the rank to one place of the rank")
        name = {(False, False): "copy", (False, True): "cpkt", (True, False): "upkt"}.get(
            (op.src[0].packet, op.dst[0].packet)
        )
        if name is None:
            self.refuse(i, "packets are not copied to packets: put them")
        return {"name": name, "src_buff": self.spans(i, op, op.src), "dst_buff": self.spans(i, op, op.dst)}

    def reduce(self, i: int, op: Op) -> dict:
        away = [span for span in op.src if span.rank is not None]
        far = [span for span in op.dst if span.rank is not None]
        own = op.dst[: len(op.dst) - len(far)]
        if len(op.src) < 2 or not own or own[0].packet or any(s.rank is not None for s in own):
            self.refuse(i, "adds two or more chunks up into plain memory of the rank first, then into others' memory")
        if (away or far) and self.kinds[i] != "memory":
            self.refuse(i, "adds up over a port channel; only memory channels can")
        if any(s.packet for s in op.src):
            *packets, plain = op.src
            if (
                plain.packet
                or plain.rank is not None
                or away
                or not all(s.packet for s in (*packets, *own[1:], *far))
                or len(own) > 2
            ):
                self.refuse(
                    i, "adds up packets of the rank and, last, one plain chunk; into plain memory and then packets"
                )
            name = "re" + "c" * (len(own) - 1) + "s" * bool(far) + "pkt"
            src = (plain, *packets)
        else:
            if len(own) > 1 or any(s.packet for s in op.dst) or (away and tuple(away) != op.src[1:]):
                self.refuse(i, "adds plain chunks up into one plain chunk of the rank")
            name, src = "r" * bool(away) + "re" + "s" * bool(far), op.src
        ports = {"channel_type": "memory"} if away or far else {}
        ports = self.ports(i, op) if op.ports else ports
        return {"name": name, "src_buff": self.spans(i, op, src), "dst_buff": self.spans(i, op, op.dst), **ports}

    # ------------------------------------------------------------ operands

    def ports(self, i: int, op: Op) -> dict:
        if len(op.ports) > limits.OP_CHANNELS:
            self.refuse(i, f"uses {len(op.ports)} channels, MSCCL++ takes {limits.OP_CHANNELS}")
        block_ports: list[Port] = self.channels[self.kinds[i]]
        return {
            "channel_ids": [block_ports.index(self.block.ports[p]) for p in op.ports],
            "channel_type": self.kinds[i],
        }

    def spans(self, i: int, op: Op, spans: tuple[Span, ...]) -> list[dict]:
        if len(spans) > limits.OP_BUFFERS:
            self.refuse(i, f"has {len(spans)} buffers on one side, MSCCL++ takes {limits.OP_BUFFERS}")
        return [self.span(i, op, span) for span in spans]

    def switch_span(self, op: Op, spans: tuple[Span, ...]) -> list[dict]:
        number = self.switches.index(switch_channel(self.gpu.rank, spans))
        return [{"switch_channel_id": number, "index": spans[0].offset, "size": op.count}]

    def span(self, i: int, op: Op, span: Span) -> dict:
        if span.packet and span.buffer != "s":
            self.refuse(i, "has packets outside scratch")
        if span.rank is None:
            return {"type": span.buffer, "index": span.offset, "size": op.count}
        number = self.buffers[self.kinds[i]].index(self.wiring.buffers.index((span.rank, span.buffer)))
        return {"buffer_id": number, "index": span.offset, "size": op.count}

    def refuse(self, i: int, reason: str) -> NoReturn:
        raise SynthError(f"{place(self.gpu, self.number, i)}: {reason}")
