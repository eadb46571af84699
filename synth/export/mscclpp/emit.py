"""MSCCL++ execution plans (JSON), as microsoft/mscclpp 0.9 and 0.10 load them (execution_{plan.cc,kernel.hpp}).

`forms` has the operations that put, copy and sum. Of the others, nop, signal, wait, flush, glres and gstore (gstorepkt)
are ops of the program, the last two once for each buffer that the ranks of a group reach through a switch; pws and pwsf
are a put, a signal (and a flush) of the same port channels, by the same threads.

`flush` gets as many destinations as channels: the kernel flushes as many channels as the op has destinations. A buffer
that a rank does not have is given as large as its other one, as the loader divides by the number of chunks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import NoReturn

from synth.errors import SynthError
from synth.export.msccl_xml.limits import check_root, root_warning
from synth.export.mscclpp.forms import name_of, operands, shape
from synth.export.request import Target
from synth.program import plan_limits as limits
from synth.program.program import BUFFERS, ONE_SIDED, PORT_KINDS, SWITCHED, Gpu, Op, Program, Span, owners

COLLECTIVE_NAMES = {"reduce-scatter": "reducescatter"}
THREADS = 1024  # of a thread block
# the ranks of the group of a switch channel, ascending, and the buffer
SwitchChannel = tuple[tuple[int, ...], str]
OP_DEPTH = 6  # containers around an operation: the plan, gpus, a GPU, its blocks, a block, ops


@dataclass(frozen=True)
class Mscclpp:
    """The exporter of MSCCL++ execution plans."""

    suffix: str = ".json"
    runtimes: tuple[str, ...] = ("mscclpp",)

    def emit(self, program: Program, target: Target) -> str:
        """Return the plan. Raises SynthError that names an exceeded limit of MSCCL++ and a remedy."""
        check_root(program, target)
        stores = any(op.code == "gstore" for _, op in program.placed_ops())
        if stores and target.request.plan_version == "0.9":
            raise SynthError("gstore is an operation of MSCCL++ 0.10, not of 0.9; choose --plan-version 0.10")
        return _text(document(program, target.request.plan_version), OP_DEPTH) + "\n"

    def remarks(self, program: Program, target: Target) -> tuple[str, ...]:
        """Return remarks for the user: the version and sizes served, the operator, the root, and where to read on."""
        top = limits.largest_size(program)
        served = f"{program.min_bytes} to {min(top, program.max_bytes or top)}"
        remarks = [
            f"the plan has the format of MSCCL++ {target.request.plan_version}",
            f"the plan serves sizes (the larger buffer) of {served} bytes that are multiples of "
            f"{program.loop_chunks * limits.ALIGNMENT}",
        ]
        if program.collective is not None and program.collective.combining:
            remarks.append("MSCCL++'s executor sums whatever the operator: use the plan for sums only")
        remarks += [said] if (said := ports_remark(program)) else []
        if switch_channels(program):
            remarks.append(
                "the plan's switch channels (NVLS) need GPUs from sm_90 on, and buffers of MSCCL++'s own allocator"
            )
        remarks += [warning] if (warning := root_warning(program)) else []
        return (*remarks, "docs/export.md says how the plan is registered, and what it asks of buffers")


def document(program: Program, version: str = limits.NEWEST) -> dict:
    """Return the plan of a one-sided program as a JSON document of a version of MSCCL++.

    Raises SynthError if MSCCL++ cannot take it.
    """
    ops = [op for _, op in program.placed_ops()]
    ordered = any(op.deps or op.flag or op.code == "barrier" for op in ops)
    reach = limits.largest_size(program)
    refusals = (
        (any(op.code not in ONE_SIDED for op in ops),
         f"{program.name} sends through FIFOs, MSCCL++ puts into peers' memory: export the schedule it was made from"),
        (ordered or not program.straight or program.one_scratch,
         f"{program.name} has blocks that wait for each other, shares, pipelines or one scratch for all launches: "
         "plans are written from schedules, and its file is a plan already"),
        (program.in_place == "both",
         "a plan is for calls in place or out of place, not both: choose one with --in-place in or --in-place out"),
        (program.protocol not in ("Simple", "LL"), f"MSCCL++ has no protocol {program.protocol}; Simple and LL exist"),
        (program.has_packets and program.protocol != "LL",
         "packets in two halves of the scratch need the protocol LL: the loader doubles no other plan's scratch"),
        (program.max_bytes is not None and program.max_bytes > reach,
         f"offsets are 32 bit: this program reaches {reach} bytes, not {program.max_bytes}; lower the largest size"),
    )  # fmt: skip
    for refused, reason in refusals:
        if refused:
            raise SynthError(reason)
    switches = switch_channels(program)
    low, high = message_sizes(replace(program, max_bytes=reach if program.max_bytes is None else program.max_bytes))
    return {
        "name": program.name,
        "collective": collective_name(program),
        "protocol": program.protocol,
        "inplace": program.in_place == "in",
        "reuse_resources": False,
        "gpus": [_Rank(gpu, switches, version != "0.9").document() for gpu in program.gpus],
        "num_threads_per_block": THREADS,
        "use_double_scratch_buffer": program.protocol == "LL",
        "buffer_alignment": limits.ALIGNMENT,
        "min_message_size": low,
        "max_message_size": high,
    }


def port_channels(program: Program) -> int:
    """Return the port channels of the rank with the most; MSCCL++ makes a connection (a queue pair) for each."""
    counts = []
    for gpu in program.gpus:
        counts.append(len({port for block in gpu.blocks for port in block.ports if port.kind == "port"}))
    return max(counts, default=0)


def ports_remark(program: Program) -> str:
    """Return a sentence on the port channels of a rank; "" where there are none."""
    entries = port_channels(program)
    if not entries:
        return ""
    said = f"a rank has up to {entries} port channels, each a queue pair (QP) of its NIC"
    if entries > limits.RANK_PORTS:
        said += f", more than the {limits.RANK_PORTS} that a NIC keeps at hand"
    return f"{said}; fewer thread blocks have fewer"


def collective_name(program: Program) -> str:
    """Return MSCCL++'s name for the collective of `program`; "custom" if it is not known."""
    if program.collective is None:
        return "custom"
    return COLLECTIVE_NAMES.get(program.collective.name, program.collective.name)


def message_ratios(program: Program) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest ratio, over all ranks, of MSCCL++'s message size to nccl-tests' size.

    MSCCL++'s message size is the bytes of a rank's input, for allgather those of its output.
    """
    counts = [limits.chunk_counts(gpu)[limits.counted_side(program)] for gpu in program.gpus]
    return Fraction(min(counts), program.loop_chunks), Fraction(max(counts), program.loop_chunks)


def message_sizes(program: Program) -> tuple[int, int]:
    """Return `min_message_size` and `max_message_size` of the plan, in bytes of MSCCL++'s message size.

    If ranks have different message sizes, the lower bound is exact for the ranks with the least data, and the upper
    one for the ranks with the most.
    """
    least, greatest = message_ratios(program)
    return ceil(program.min_bytes * least), int((program.max_bytes or 0) * greatest)


def switch_channel(rank: int, spans: Sequence[Span]) -> SwitchChannel:
    """Return the switch channel of the operands `spans` of an op of `rank`, one on each rank of the group.

    It joins one buffer of all ranks of a group. Every rank of the group lists it, in the same order.
    """
    return tuple(sorted(owners(rank, spans))), spans[0].buffer


def switch_channels(program: Program) -> list[SwitchChannel]:
    """Return the switch channels of all ranks, in the order in which the ranks list them."""
    # Both sides of a reduction through a switch are channels of their own.
    channels = set()
    for (rank, _, _), op in program.placed_ops():
        if op.code == "glres":
            channels.add(switch_channel(rank, op.src))
        if op.code in SWITCHED:
            channels.add(switch_channel(rank, op.dst))
    return sorted(channels)


class _Rank:
    """Writer of one rank of a plan: its numbered channels, its remote buffers, and its thread blocks.

    The number of a channel or buffer is its index: `ports[kind]`, `buffers` as (rank, buffer), `switches`. `merges`:
    the version of MSCCL++ has a sound `pwsf`.
    """

    def __init__(self, gpu: Gpu, switches: Iterable[SwitchChannel], merges: bool) -> None:
        self.gpu, self.merges = gpu, merges
        self.switches = [channel for channel in switches if gpu.rank in channel[0]]
        self.ports = {}
        for kind in PORT_KINDS:
            ports = {port for block in gpu.blocks for port in block.ports if port.kind == kind}
            self.ports[kind] = sorted(ports, key=lambda port: port[1:])
            for port in self.ports[kind]:
                if port.index and port._replace(index=port.index - 1) not in ports:
                    reason = f"{kind} channel {port.index} to rank {port.peer} without the one before it"
                    raise SynthError(f"rank {gpu.rank} uses {reason}")
        self.access = defaultdict(set)  # (rank, buffer) → the kinds of channel that reach it
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                for span in _remote(op):
                    self.access[span.rank, span.buffer].add(self.kind(b, i))
        self.buffers = sorted(self.access, key=lambda item: (item[0], BUFFERS.index(item[1])))

    def refuse(self, b: int, i: int, reason: str) -> NoReturn:
        """Raise SynthError with the place of op `i` of block `b`."""
        raise SynthError(f"rank {self.gpu.rank} block {b} op {i} ({self.gpu.blocks[b].ops[i].code}): {reason}")

    def kind(self, b: int, i: int) -> str:
        """Return the kind of channel through which an op reaches other ranks: that of its ports, "memory" without any.

        Raises SynthError if its ports are of both kinds.
        """
        block = self.gpu.blocks[b]
        kinds = {block.ports[port].kind for port in block.ops[i].ports}
        if len(kinds) > 1:
            self.refuse(b, i, "uses memory and port channels at once: split it")
        return kinds.pop() if kinds else "memory"

    def document(self) -> dict:
        """Return the entry of the rank in `gpus`."""
        # The blocks first: they refuse what MSCCL++ cannot take.
        inputs, outputs = limits.chunk_counts(self.gpu)
        blocks = [_Block(self, b).document() for b in range(len(self.gpu.blocks))]
        channels = []
        for kind, ports in self.ports.items():
            if ports:
                channels.append({"channel_type": kind, "connected_to": [port.peer for port in ports]})
        for ranks, buffer in self.switches:
            group = {"size": len(ranks), "ranks": list(ranks)}
            channels.append({"channel_type": "switch", "buffer_type": buffer, "rank_groups": [group]})
        buffers = []
        for rank, buffer in self.buffers:
            kinds = sorted(self.access[rank, buffer], key=PORT_KINDS.index)
            buffers.append({"rank": rank, "type": buffer, "access_channel_types": kinds})
        return {
            "id": self.gpu.rank,
            "input_chunks": inputs,
            "output_chunks": outputs,
            "scratch_chunks": self.gpu.scratch,
            "threadblocks": blocks,
            "channels": channels,
            "remote_buffers": buffers,
            "semaphores": [],
        }


def _remote(op: Op) -> list[Span]:
    """Return the spans of `op` on other ranks that it reaches without a switch."""
    if op.code in SWITCHED:
        return []
    return [span for span in op.spans if span.rank is not None]


class _Block:
    """Writer of thread block `number` of a rank: its ops in the plan's terms, within the plan's limits."""

    def __init__(self, rank: _Rank, number: int) -> None:
        self.rank, self.gpu, self.number = rank, rank.gpu, number
        self.block = self.gpu.blocks[number]
        self.kinds = [rank.kind(number, i) for i in range(len(self.block.ops))]
        self.channels = {}  # the block's ports by kind
        self.buffers = {}  # the remote buffers that it reaches, by kind of channel
        for kind in PORT_KINDS:
            self.channels[kind] = [port for port in self.block.ports if port.kind == kind]
            reached = set()
            for op, op_kind in zip(self.block.ops, self.kinds, strict=True):
                if op_kind == kind:
                    reached.update((span.rank, span.buffer) for span in _remote(op))
            self.buffers[kind] = [i for i, key in enumerate(rank.buffers) if key in reached]
        used = set()
        for op in self.block.ops:
            if op.code in SWITCHED:
                used.update(switch_channel(self.gpu.rank, spans) for spans in (op.src, op.dst) if len(spans) > 1)
        self.switches = [channel for channel in rank.switches if channel in used]

    def document(self) -> dict:
        """Return the entry in `threadblocks`. Raises SynthError that names a limit that is exceeded."""
        # A put through port channels signals, and flushes, in the same operation: thread k does all that for the k-th
        # channel. The ops that it does beside have the name "".
        names, ops = {}, self.block.ops
        for i, op in enumerate(ops):
            if op.code != "put" or self.kinds[i] != "port" or op.src[0].packet or op.dst[0].packet:
                continue
            for k, code, name in ((i + 1, "signal", "pws"), (i + 2, "flush", "pwsf")):
                if k == len(ops) or ops[k] != Op(code, ports=op.ports) or (code == "flush" and not self.rank.merges):
                    break
                names |= {i: name, k: ""}
        written = []
        for i, op in enumerate(ops):
            if names.get(i) != "":
                instruction = self.instruction(i, op)
                written.append(instruction | {"name": names.get(i, instruction["name"])})

        # The channels and buffers that the block uses, by their numbers in the rank.
        channels = []
        buffers = []
        counts = [(len(written), limits.BLOCK_OPS, "operations: spread the chunks over more blocks")]
        for kind in PORT_KINDS:
            ids = [self.rank.ports[kind].index(port) for port in self.channels[kind]]
            counts.append((len(ids), limits.BLOCK_CHANNELS, f"{kind} channels"))
            counts.append((len(self.buffers[kind]), limits.BLOCK_BUFFERS, "remote buffers"))
            if ids:
                channels.append({"channel_type": kind, "channel_ids": ids})
            if self.buffers[kind]:
                buffers.append({"access_channel_type": kind, "remote_buffer_ids": self.buffers[kind]})
        if self.switches:
            ids = [self.rank.switches.index(channel) for channel in self.switches]
            counts.append((len(ids), limits.BLOCK_CHANNELS, "switch channels"))
            channels.append({"channel_type": "switch", "channel_ids": ids})
        for count, most, what in counts:
            if count > most:
                place = f"rank {self.gpu.rank} block {self.number}"
                raise SynthError(f"{place} has {count}, and MSCCL++ takes {most} {what}")
        return {"id": self.number, "ops": written, "channels": channels, "remote_buffer_refs": buffers}

    def instruction(self, i: int, op: Op) -> dict:
        """Return the operation of op `i`. Raises SynthError where MSCCL++ has none."""
        if op.code == "nop":
            return {"name": "nop"}
        if op.count < 1 or max(len(op.src), len(op.dst)) > limits.OP_BUFFERS or len(op.ports) > limits.OP_CHANNELS:
            most = f"{limits.OP_BUFFERS} operands on a side and {limits.OP_CHANNELS} channels"
            self.refuse(i, f"MSCCL++ moves 1 chunk or more in one operation, with at most {most}")
        if any(span.packet and span.buffer != "s" for span in op.spans):
            self.refuse(i, "has packets outside scratch")
        known = self.channels[self.kinds[i]]
        ids = [known.index(self.block.ports[p]) for p in op.ports]
        ports = {"channel_ids": ids, "channel_type": self.kinds[i]}
        match op.code:
            case "signal" | "wait" if op.ports:
                return {"name": op.code, **ports}
            case "flush" if op.ports and self.kinds[i] == "port":
                # the kernel takes the number of channels from the number of destinations
                return {"name": "flush", **ports, "dst_buff": [{"type": "o", "index": 0, "size": 1}] * len(op.ports)}
            case "glres":
                switched = {"src_buff": self.switch_span(op, op.src), "dst_buff": self.switch_span(op, op.dst)}
                return {"name": "glres", **switched, "channel_type": "switch", "reduce_op": "sum"}
            case "gstore" if shape(op.src) in ("h", "p") and shape(op.src) in shape(op.dst):
                switched = {"src_buff": self.spans(i, op, op.src), "dst_buff": self.switch_span(op, op.dst)}
                return {"name": "gstorepkt" if op.src[0].packet else "gstore", **switched, "channel_type": "switch"}
        # All others move data by a form.
        name = name_of(op)
        if name in ("", "get"):
            moved = f"{shape(op.src) or 'nothing'} to {shape(op.dst) or 'nothing'}"
            letters = "h, p: chunks and packets of the rank, t, q: of others"
            self.refuse(i, f"has no counterpart in a plan: from {moved} ({letters})")

        # What the kernel wants beyond the form.
        src = operands(op)
        port_kind = self.kinds[i] == "port"
        if op.code == "put":
            peers = [self.block.ports[p].peer for p in op.ports]
            if peers and peers != owners(self.gpu.rank, op.dst):
                self.refuse(i, "has ports to other ranks than it puts to")
            if len(src) not in (1, len(op.dst)) or len({span.buffer for span in src}) > 1:
                self.refuse(i, "puts from one buffer, one chunk to all or one to each")
            if name == "ppkt" and port_kind and src[0].buffer != "s":
                self.refuse(i, "sends through a port channel as packets what is not in scratch")
            if name != "rppkt" and len(src) == 1:
                src *= len(op.dst)
        elif port_kind:
            self.refuse(i, "adds up over a port channel; only memory channels can")
        instruction = {"name": name, "src_buff": self.spans(i, op, src), "dst_buff": self.spans(i, op, op.dst)}
        if op.code == "cpy":
            return instruction
        if op.ports:
            return instruction | ports
        return instruction | ({"channel_type": self.kinds[i]} if _remote(op) else {})

    def spans(self, i: int, op: Op, spans: tuple[Span, ...]) -> list[dict]:
        """Return `spans` of op `i`, those of other ranks by the number of the remote buffer in the block."""
        found = []
        for span in spans:
            place = {"type": span.buffer}
            if span.rank is not None:
                number = self.rank.buffers.index((span.rank, span.buffer))
                place = {"buffer_id": self.buffers[self.kinds[i]].index(number)}
            found.append({**place, "index": span.offset, "size": op.count})
        return found

    def switch_span(self, op: Op, spans: tuple[Span, ...]) -> list[dict]:
        """Return the spans on all ranks of a group as one of a switch channel."""
        number = self.switches.index(switch_channel(self.gpu.rank, spans))
        return [{"switch_channel_id": number, "index": spans[0].offset, "size": op.count}]

    def refuse(self, i: int, reason: str) -> NoReturn:
        """Raise SynthError with the place of op `i`."""
        self.rank.refuse(self.number, i, reason)


def _text(value: object, depth: int, indent: str = "\n") -> str:
    """Return JSON whose containers have a line for each member down to `depth`, and are on one line below it."""
    if depth == 0 or not value or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, list):
        return f"[{inner}" + f",{inner}".join(_text(one, depth - 1, inner) for one in value) + f"{indent}]"
    rows = [f"{json.dumps(key)}: {_text(one, depth - 1, inner)}" for key, one in value.items()]
    return f"{{{inner}" + f",{inner}".join(rows) + f"{indent}}}"
