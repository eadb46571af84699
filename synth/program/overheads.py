"""The clock of predicted times: launch, hops and bandwidth by protocol, as NCCL's own model counts them.

The time of a program is that of its lowered form in the event loop of the reference executor, on the links of
`Overheads.links`, after a launch. Every command predicts times of programs by this clock. The constants are those that
NCCL 2.12 publishes for NVLink (src/graph/tuning.cc: base latencies of a call, hardware latencies of a hop, and the
protocols' shares of the bandwidth). A topology's α stands for a hop in LL, the protocol of least latency, so a hop in
another protocol takes the difference longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from synth.model.topology import Network
from synth.program.message_cost import NO_COST, MessageCost, decimal


class ProtocolCost(NamedTuple):
    """Costs of one protocol: µs of a `launch`, µs of a `hop` beside α, time on the `wire` in multiples of bytes/β."""

    launch: Fraction = Fraction(0)
    hop: Fraction = Fraction(0)
    wire: Fraction = Fraction(1)


@dataclass(frozen=True)
class Overheads:
    """The costs of each protocol; `by_protocol` are pairs (protocol, costs)."""

    by_protocol: tuple[tuple[str, ProtocolCost], ...]

    def of(self, protocol: str) -> ProtocolCost:
        """Return the costs of `protocol`."""
        return dict(self.by_protocol)[protocol]

    def links(self, network: Network, protocol: str) -> Network:
        """Return `network` as a protocol uses it: each α is longer by its hop, each β is its share of the bandwidth."""
        cost = self.of(protocol)
        if not cost.hop and cost.wire == 1:
            return network
        routes = tuple(route._replace(latency=route.latency + cost.hop) for route in network.routes)
        return replace(network, routes=routes, unit=network.unit / cost.wire)

    def launch(self, protocol: str) -> int:
        """Return the picoseconds of a launch in `protocol`."""
        return round(self.of(protocol).launch * 10**6)


def _costs(**costs: tuple[str, str, str]) -> Overheads:
    pairs = []
    for protocol, cost in costs.items():
        pairs.append((protocol, ProtocolCost(*map(Fraction, cost))))
    return Overheads(tuple(pairs))


# NCCL's ring over NVLink: LL moves data at a third of the bandwidth, LL128 at 92%.
NCCL = _costs(Simple=("8.4", "2.9", "1"), LL=("3.6", "0", "3"), LL128=("10", "1.4", "25/23"))
# Bare links: a program takes the α and β of the topology alone.
NO_OVERHEADS = _costs(Simple=("0", "0", "1"), LL=("0", "0", "1"), LL128=("0", "0", "1"))


def selected(included: bool) -> Overheads:
    """Return the overheads of the clock, or those of bare links."""
    return NCCL if included else NO_OVERHEADS


def label(overheads: Overheads, protocol: str, event_driven: bool = True, per_send: MessageCost = NO_COST) -> str:
    """Return the model of a predicted time in `protocol`, in words: of the event loop, or of synchronous steps.

    `per_send`: the cost of a message at either end.
    """
    model = "event-driven" if event_driven else "synchronous steps"
    message = f", {per_send.words}" if per_send else ""
    if overheads == NO_OVERHEADS:
        return f"predicted, {model}, {protocol} on bare links without a launch{message}"
    return f"predicted, {model}, {protocol}, launch {decimal(overheads.of(protocol).launch)} µs included{message}"


def describe(overheads: Overheads) -> str:
    """Return the overheads of all protocols, in words."""
    if overheads == NO_OVERHEADS:
        return "bare links, without a launch and without costs of protocols"
    launches, hops, shares = [], [], []
    for protocol, cost in overheads.by_protocol:
        launches.append(f"{protocol} {decimal(cost.launch)}")
        if cost.hop:
            hops.append(f"{protocol} +{decimal(cost.hop)}")
        if cost.wire != 1:
            shares.append(f"{protocol} {float(100 / cost.wire):.0f}%")
    return (
        f"with NCCL's constants of each protocol: a launch ({', '.join(launches)} µs), hops ({', '.join(hops)} µs) and "
        f"bandwidth ({', '.join(shares)})"
    )
