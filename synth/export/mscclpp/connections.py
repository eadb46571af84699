"""Connections of one rank of an MSCCL++ plan: channels and remote buffers.

A switch channel joins one buffer of all ranks of a group. Every rank of the group lists it, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from synth.errors import SynthError
from synth.program.program import BUFFERS, PORT_KINDS, SWITCHED, Gpu, Op, Port, Program, Span, owners

# The ranks of the group, ascending, and the buffer.
SwitchChannel = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Connections:
    """The numbered channels and remote buffers of one rank; the number of each is its index here.

    `channels[kind]`: ports. `buffers`: (rank, buffer). `access[rank, buffer]`: the kinds of channel that reach it.
    `switches`: the switch channels. `put_signal_flush`: the version of MSCCL++ has a sound `pwsf`.
    """

    channels: Mapping[str, tuple[Port, ...]]
    buffers: tuple[tuple[int, str], ...]
    access: Mapping[tuple[int, str], tuple[str, ...]]
    switches: tuple[SwitchChannel, ...]
    put_signal_flush: bool = True

    @staticmethod
    def of(gpu: Gpu, switches: Iterable[SwitchChannel], put_signal_flush: bool = True) -> Connections:
        """Return the connections of `gpu`. Raises SynthError if a plan cannot express them.

        `switches`: the switch channels of the program; the rank has those that it is a member of.
        """
        ports = {}
        for kind in PORT_KINDS:
            kind_ports = {port for block in gpu.blocks for port in block.ports if port.kind == kind}
            ports[kind] = tuple(sorted(kind_ports, key=lambda port: port[1:]))
        for kind, kind_ports in ports.items():
            for port in kind_ports:
                if port.index and Port(kind, port.peer, port.index - 1) not in kind_ports:
                    raise SynthError(
                        f"rank {gpu.rank} uses {kind} channel {port.index} to rank {port.peer} without the one "
                        f"before it"
                    )
        access = {}
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                kind = access_kind(gpu, b, i)
                for span in remote(op):
                    access.setdefault((span.rank or 0, span.buffer), set()).add(kind)
        buffers = tuple(sorted(access, key=lambda item: (item[0], BUFFERS.index(item[1]))))
        kinds = {}
        for key, buffer_kinds in access.items():
            kinds[key] = tuple(sorted(buffer_kinds, key=PORT_KINDS.index))
        mine = tuple(channel for channel in switches if gpu.rank in channel[0])
        return Connections(ports, buffers, kinds, mine, put_signal_flush)

    def channel_documents(self) -> list[dict]:
        """Return the field `channels` of the gpu."""
        documents = []
        for kind, ports in self.channels.items():
            if ports:
                documents.append({"channel_type": kind, "connected_to": [port.peer for port in ports]})
        for ranks, buffer in self.switches:
            group = {"size": len(ranks), "ranks": list(ranks)}
            documents.append({"channel_type": "switch", "buffer_type": buffer, "rank_groups": [group]})
        return documents

    def buffer_documents(self) -> list[dict]:
        """Return the field `remote_buffers` of the gpu."""
        return [
            {"rank": key[0], "type": key[1], "access_channel_types": list(self.access[key])} for key in self.buffers
        ]


def access_kind(gpu: Gpu, block: int, op: int) -> str:
    """Return the kind of channel through which an op reaches other ranks: that of its ports, "memory" without ports.

    Raises SynthError if its ports are of both kinds.
    """
    ports = gpu.blocks[block].ops[op].ports
    kinds = {gpu.blocks[block].ports[port].kind for port in ports}
    if len(kinds) > 1:
        raise SynthError(f"{place(gpu, block, op)} uses memory and port channels at once: split it")
    return kinds.pop() if kinds else "memory"


def place(gpu: Gpu, block: int, op: int) -> str:
    """Return the place of an op as text, for messages."""
    return f"rank {gpu.rank} block {block} op {op} ({gpu.blocks[block].ops[op].code})"


def remote(op: Op) -> list[Span]:
    """Return the spans of `op` on other ranks that it reaches without a switch."""
    if op.code in SWITCHED:
        return []
    return [span for span in (*op.src, *op.dst) if span.rank is not None]


def switch_channel(rank: int, spans: Sequence[Span]) -> SwitchChannel:
    """Return the switch channel of the operands `spans` of an op of `rank`, one on each rank of the group."""
    return tuple(sorted(owners(rank, spans))), spans[0].buffer


def switch_channels(program: Program) -> list[SwitchChannel]:
    """Return the switch channels of all ranks, in the order in which the ranks list them."""
    channels = set()
    for gpu in program.gpus:
        for block in gpu.blocks:
            for op in block.ops:
                if op.code == "glres":
                    channels.add(switch_channel(gpu.rank, op.src))
                if op.code in SWITCHED:
                    channels.add(switch_channel(gpu.rank, op.dst))
    return sorted(channels)
