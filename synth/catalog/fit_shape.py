"""What the cost model knows of an algorithm, and the terms that its time is a sum of.

    Shape  share steps wire ops block

A *class* of links is all routes of one latency (an NVLink, a NIC); its name is the latency in µs. The terms of a call:

    launch              1                                                     seconds a call
    step CLASS PROTO    steps whose slowest link is of the class              seconds a step: α and what a step costs beside it
    wire CLASS PROTO    rounds of the steps that the class holds up, × b/β    1: the nominal bandwidth
    stall               times that the longest block waits for credit         seconds a wait
    block PROTO         bytes through the busiest thread block                seconds a byte
    op                  operations of the longest block, slices counted       seconds an operation

b is the bytes of a chunk, β the nominal bandwidth of a unit. What no schedule says (blocks) comes from its program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from synth.program.program import RECEIVING, SENDING, Block, Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES
from synth.rational import show
from synth.schedule import Schedule, Step
from synth.topology import Network

MOVING = SENDING | RECEIVING


class Shape(NamedTuple):
    """One schedule. `share`: bytes of a chunk per byte of the size. `steps`: how many by class. `wire`: seconds per byte of a
    chunk by class. `ops`, `block`: messages and chunks of the longest and the busiest block of one instance (0: not known)."""

    share: Fraction
    steps: tuple[tuple[str, int], ...]
    wire: tuple[tuple[str, float], ...]
    ops: int = 0
    block: int = 0


def shape(schedule: Schedule, program: Program | None = None) -> Shape:
    """The shape of `schedule`; `program`, its lowering in one instance, says what blocks do."""
    network = schedule.network
    index = {(route.src, route.dst, route.via): i for i, route in enumerate(network.routes)}
    steps: Counter[str] = Counter()
    rounds: Counter[str] = Counter()
    for step in schedule.steps:
        load = Counter(index[send.src, send.dst, send.via] for send in step.sends)
        slowest, holding = _classes(network, load, step)
        steps[slowest] += 1
        rounds[holding] += step.rounds
    per_byte = 1 / (float(network.unit) * 1e9)
    blocks = [block for gpu in program.gpus for block in gpu.blocks] if program else []
    return Shape(
        schedule.collective.unit_share / schedule.chunks,
        tuple(sorted(steps.items())),
        tuple((name, count * per_byte) for name, count in sorted(rounds.items())),
        max((_messages(block) for block in blocks), default=0),
        max((_chunks(block) for block in blocks), default=0),
    )


def _classes(network: Network, load: Mapping[int, int], step: Step) -> tuple[str, str]:
    """The class of the link with the greatest latency in a step, and of the one, or the limit, that is busy longest."""
    if not load:
        name = show(network.latency)
        return name, name
    slowest = max(network.routes[i].latency for i in load)
    busy = [(Fraction(count, network.routes[i].units), network.routes[i].latency) for i, count in load.items()]
    for cap in network.caps:
        used = [i for i in cap.routes if i in load]
        if used:
            busy.append((Fraction(sum(load[i] for i in used), cap.units), max(network.routes[i].latency for i in used)))
    return show(slowest), show(max(busy)[1])


def _messages(block: Block) -> int:
    return sum(1 for op in block.ops if op.code in MOVING)


def _chunks(block: Block) -> int:
    return sum(op.count for op in block.ops if op.code in MOVING)


def terms(found: Shape, protocol: str, instances: int, size: int) -> dict[str, float]:
    """The terms of a call of `size` bytes, by name; seconds of the call are their sum, each times its coefficient."""
    chunk = float(size * found.share)
    slices = max(1, -(-chunk / instances // RUNTIMES["synth"].operation_bytes(protocol, "")))
    row = {"launch": 1.0}
    row |= {f"step {name} {protocol}": float(count) for name, count in found.steps}
    row |= {f"wire {name} {protocol}": per_byte * chunk for name, per_byte in found.wire}
    row["stall"] = float(max(0, -(-found.ops // FIFO_DEPTH[protocol]) - 1))
    row[f"block {protocol}"] = found.block * chunk / instances
    row["op"] = found.ops * slices
    return row
