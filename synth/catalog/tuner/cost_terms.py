"""The terms of the cost model: the shape of an algorithm, and the terms whose sum is its time.

    Shape  share steps wire links ops block

A *class* of links is all routes of one latency (an NVLink, a NIC); its name is the latency in µs. The terms of a call:

    launch PROTO        1                                                     seconds a call
    step CLASS PROTO    steps whose slowest link is of the class              seconds a step: α and what a step costs
                                                                              beside it
    wire CLASS PROTO    chunks on the busiest link of the class, × b/β        1: the nominal bandwidth
    message PROTO       messages beyond one of the busiest rank of each step  seconds a message, at either end
    stall               times that the longest block waits for credit         seconds a wait
    block PROTO         bytes through the busiest thread block                seconds a byte
    op                  operations of the longest block, slices counted       seconds an operation

b is the bytes of a chunk, β the nominal bandwidth of a unit. The figures of thread blocks come from the program, since
a schedule has none.

Instances share the links, and one moves data while another waits for a latency. So a call takes the longer of two
times: the *chain*, all steps of one instance with its share of the data and one step of the others', each step as long
as its busiest link; and the *links*, all that the busiest link of the whole schedule carries, with one latency. Of a
chunk in slices the first goes the chain, the others follow at the pace of that busiest link. With one instance and one
slice the chain is the synchronous model, without its whole rounds, and always the longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from synth.model.rational import show
from synth.model.schedule import Schedule, Step
from synth.model.topology import Network
from synth.program.program import RECEIVING, SENDING, Block, Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES

MOVING = SENDING | RECEIVING


class Shape(NamedTuple):
    """One schedule. `share`: bytes of a chunk per byte of the size. `steps`: how many by class. `wire`: seconds per
    byte of a chunk, the busiest link of each step by class; `links`: of the busiest of all steps together. `ops`,
    `block`: messages and chunks of the longest and the busiest block of one instance (0: not known). `messages`: those
    beyond one that the busiest rank of each step sends or receives, summed over the steps."""

    share: Fraction
    steps: tuple[tuple[str, int], ...]
    wire: tuple[tuple[str, float], ...]
    links: tuple[tuple[str, float], ...]
    ops: int = 0
    block: int = 0
    messages: int = 0


class _Classes(NamedTuple):
    """The classes of links of a network, by rising latency: their names, and the number of the class of each route."""

    network: Network
    names: list[str]
    of_route: list[int]

    def of_cap(self, cap: int) -> int:
        """Return the class of the slowest route of a limit."""
        return max(self.of_route[i] for i in self.network.caps[cap].routes)

    def busiest(self, load: Mapping[int, int], ports: Counter[int]) -> dict[str, Fraction]:
        """Return the rounds for which the busiest link or shared limit is busy, by its class; {} without a load.

        `load` counts chunks by route, `ports` those of switch sends by limit.
        """
        network = self.network
        through = ports.copy()
        for i, count in load.items():
            for k in network.caps_of[i]:
                through[k] += count
        most: dict[int, int] = {}  # by units
        links, caps = (
            ((network.routes[i].units, n) for i, n in load.items()),
            ((network.caps[k].units, n) for k, n in through.items()),
        )
        for units, count in (*links, *caps):
            most[units] = max(count, most.get(units, 0))
        if not most:
            return {}
        maximum = max(Fraction(count, units) for units, count in most.items())
        tops = {(units, count) for units, count in most.items() if Fraction(count, units) == maximum}
        full = {self.of_route[i] for i, count in load.items() if (network.routes[i].units, count) in tops}
        for k, count in through.items():
            if (network.caps[k].units, count) in tops:
                full |= {self.of_route[i] for i in network.caps[k].routes if i in load}
                full |= {self.of_cap(k)} if k in ports else set()
        return {self.names[max(full)]: maximum}


def shape(schedule: Schedule, program: Program | None = None) -> Shape:
    """Return the shape of `schedule`. Switch sends count against the limits of their ports.

    `program`: its lowering in one instance, for the figures of blocks (None: 0).
    """
    network = schedule.network
    index = network.route_index
    steps: Counter[str] = Counter()
    rounds: dict[str, Fraction] = {}
    total: Counter[int] = Counter()
    total_ports: Counter[int] = Counter()
    order = sorted({route.latency for route in network.routes})
    place = {latency: k for k, latency in enumerate(order)}
    latency_of = [place[route.latency] for route in network.routes]
    classes = _Classes(network, [show(latency) for latency in order], latency_of)
    for step in schedule.steps:
        load = Counter(index[send.src, send.dst, send.via] for send in step.sends if not send.local)
        ports = _port_loads(network, step)
        total += load
        total_ports += ports
        latencies = {latency_of[i] for i in load}
        latencies.update(classes.of_cap(k) for k in ports)
        steps[classes.names[max(latencies)] if latencies else show(network.latency)] += 1
        for name, busy in classes.busiest(load, ports).items():
            rounds[name] = rounds.get(name, Fraction(0)) + busy
    unit = float(network.unit) * 1e9
    blocks: list[Block] = []
    for gpu in program.gpus if program else ():
        blocks += gpu.blocks
    return Shape(
        schedule.collective.unit_share / schedule.chunks,
        tuple(sorted(steps.items())),
        tuple((name, float(busy) / unit) for name, busy in sorted(rounds.items())),
        tuple((name, float(busy) / unit) for name, busy in classes.busiest(total, total_ports).items()),
        max((_messages(block) for block in blocks), default=0),
        max((_chunks(block) for block in blocks), default=0),
        sum(map(_further_messages, schedule.steps)),
    )


def _further_messages(step: Step) -> int:
    """Return the messages beyond one that the busiest rank of the step sends or receives."""
    pairs = {(send.src, send.dst) for send in step.sends if not send.local}
    ends = Counter(("sends", src) for src, _ in pairs)
    ends.update(("receives", dst) for _, dst in pairs)
    return max(ends.values(), default=1) - 1


def _port_loads(network: Network, step: Step) -> Counter[int]:
    """Return the chunks of the step's switch sends by the limit, of a port, that they count against."""
    switches = {switch.switch: switch for switch in network.multicast}
    loads: Counter[int] = Counter()
    for send in step.switch_sends:
        loads.update(switches[send.switch].caps(send.rank, send.group, fetches=send.kind == "fetch-reduce"))
    return loads


def _messages(block: Block) -> int:
    return sum(1 for op in block.ops if op.code in MOVING)


def _chunks(block: Block) -> int:
    return sum(op.count for op in block.ops if op.code in MOVING)


def terms(found: Shape, protocol: str, instances: int, size: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the terms by name of a call of `size` bytes: those of its chain, and those of its links.

    The chain and the links take the sum of their terms times the coefficients of a `TimeModel`. The call takes the
    longer of the two.
    """
    chunk = float(size * found.share)
    slices = max(1, -(-chunk / instances // RUNTIMES["synth"].operation_bytes(protocol, "")))
    common = {
        f"launch {protocol}": 1.0, "stall": float(max(0, -(-found.ops // FIFO_DEPTH[protocol]) - 1)),
        f"message {protocol}": float(found.messages),
        f"block {protocol}": found.block * chunk / instances, "op": found.ops * slices,
    }  # fmt: skip
    count = max(1, sum(n for _, n in found.steps))
    part = 1 / instances + (1 - 1 / instances) / count
    chain = {f"step {name} {protocol}": float(n) for name, n in found.steps}
    wire, through = dict(found.wire), dict(found.links)
    for name in wire.keys() | through.keys():
        paced = wire.get(name, 0.0) / slices + through.get(name, 0.0) * (1 - 1 / slices)
        chain[f"wire {name} {protocol}"] = paced * chunk * part
    links = {f"step {name} {protocol}": n / count for name, n in found.steps}
    links |= {f"wire {name} {protocol}": cost * chunk for name, cost in found.links}
    return chain | common, links | common
