"""Pipelined schedules through one switch that multicasts and reduces (NVLS, SHARP).

An allreduce of S ≥ 2 steps splits the chunks into S − 1 groups. At step t the owner of each chunk of group t fetches
its sum, and the owner of each chunk of group t − 1 multicasts it. Owners take turns. That leaves the ports downwards
nearly idle in the first step, and those upwards in the last one. Where own data use the port (`own: through`), the
first group is summed, and the last one copied, over links. With n equal ports of u units an allreduce then takes
((n + 1)/n + (1 − 3/n)/(S − 1))/u rounds per chunk, which is optimal (`encodings.bounds.multicast`). Where they stay on
their rank (`own: local`) it takes (1 + (1 − 2/n)/(S − 1))/u.

Without links, two steps are plain: every sum is fetched, then multicast. Its few chunks can divide every size. As a
program, in which steps are no barriers, it keeps the ports as busy as a pipelined one.

In one step each rank fetches one half of the sums and receives the contributions to the other half by multicast. A
broadcast is one multicast for each chunk, a reduce one fetch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations
from math import gcd

from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.model.sends.unicast import switch_routes
from synth.model.topology import MulticastSwitch, Network

COLLECTIVES = ("allreduce", "broadcast", "reduce")
# Chunks times ranks of one schedule, at most: a document lists so many pairs before and after.
MAX_ADDRESSES = 250_000
# Above so many chunks, a smaller group whose R/C is at most this factor above the least is preferred: documents are
# shorter.
EXACT_CHUNKS = 1024
LOSS = Fraction(101, 100)
# Chunks for each rank, at most, of a plain schedule: with so many, uneven shares differ by an eighth.
PLAIN_CHUNKS = 8


def whole_switch(network: Network) -> MulticastSwitch | None:
    """Return the switch that all ranks have ports at, the first of them; None where there is none."""
    for switch in network.multicast:
        if len(switch.ports) == network.ranks:
            return switch
    return None


class MulticastPipelining:
    """Schedules of a collective through the switch that all ranks of `network` have ports at.

    `max_chunks`: the most chunks into which a unit is split.

    Attributes:
        units: chunks that the narrowest port carries in a round.
        through: True if own data use the port.
        linked: True if groups are summed and copied over links, too, which are wide enough for a share of a port.
    """

    def __init__(self, network: Network, collective: Collective, max_chunks: int | None = None) -> None:
        switch = whole_switch(network)
        if switch is None or collective.name not in COLLECTIVES:
            raise ValueError(f"{collective.name} on {network.name} is not of this family")
        self.network, self.collective, self.switch = network, collective, switch
        self.ranks, self.through = network.ranks, switch.own == "through"
        limits = {k for port in switch.ports for k in (*port.up, *port.down)}
        self.units = min(network.caps[k].units for k in limits)
        self.max_chunks = MAX_ADDRESSES // self.ranks
        if max_chunks is not None:
            self.max_chunks = min(self.max_chunks, max_chunks)
        self._routes = switch_routes(network)
        widths = [network.routes[network.route_index[u, v, via]].units for u, v, via in self._links()]
        complete = len(widths) == self.ranks * (self.ranks - 1)
        self.linked = self.through and complete and min(widths) * (self.ranks - 1) >= self.units

    def _links(self) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """Yield the ends and the path of the first route through the switch between every two ranks that have one."""
        for u, v in permutations(range(self.ranks), 2):
            via = self._routes.get((u, v, self.switch.switch), self._routes.get((u, v, "")))
            if via is not None:
                yield u, v, via

    def schedule(self, steps: int) -> Schedule | None:
        """Return the schedule of so many steps; None where the family has none, or none of so few chunks."""
        if self.collective.name != "allreduce":
            return self._one_rank() if steps == 1 else None
        if steps == 1:
            return self._one_step()
        return self._pipelined(steps)

    def plain(self, sizes: Sequence[int], granularity: int) -> Schedule:
        """Return the allreduce of two steps and few chunks: every sum is fetched by its owner, then multicast.

        Where it can be, the chunks divide `sizes` (bytes) into multiples of `granularity` bytes. Sizes of less than so
        much for each rank do not count.
        """
        n = self.ranks
        count = gcd(*(size for size in sizes if size >= n * granularity)) // granularity
        chunks = [c for c in range(n, n * PLAIN_CHUNKS + 1) if count and count % c == 0]
        best = min(chunks, key=lambda c: (Fraction(-(-c // n), c), c), default=n)
        fetched = [self._send(chunk, chunk % n, "fetch-reduce") for chunk in range(best)]
        copied = [self._send(chunk, chunk % n, "multicast") for chunk in range(best)]
        steps = (Step(self._rounds_of(fetched), (), tuple(fetched)), Step(self._rounds_of(copied), (), tuple(copied)))
        return Schedule(self.network, self.collective, best, steps)

    def _one_rank(self) -> Schedule:
        """A multicast, or a fetch, of every chunk by the root."""
        kind = "multicast" if self.collective.name == "broadcast" else "fetch-reduce"
        chunks = min(self.units, self.max_chunks)
        sends = [self._send(chunk, self.collective.roots[0], kind) for chunk in range(chunks)]
        return Schedule(self.network, self.collective, chunks, (Step(1, (), tuple(sends)),))

    def _one_step(self) -> Schedule | None:
        """Every rank fetches the first half of the sums, and multicasts its contributions to the second."""
        if self.max_chunks < 2:
            return None
        members = self.ranks if self.through else self.ranks - 1
        best = min(
            range(1, min(self.units, self.max_chunks // 2) + 1),
            key=lambda half: Fraction(self._rounds(half * (members + 1)), half),
        )
        sends = []
        for rank in range(self.ranks):
            sends += [self._send(chunk, rank, "fetch-reduce") for chunk in range(best)]
            sends += [self._send(chunk, rank, "multicast-reduce") for chunk in range(best, 2 * best)]
        step = Step(self._rounds(best * (members + 1)), (), tuple(sends))
        return Schedule(self.network, self.collective, 2 * best, (step,))

    def _pipelined(self, steps: int) -> Schedule | None:
        """Sums of group t at step t, and their copies one step later."""
        costs: dict[int, Fraction] = {}  # R/C by the number of chunks of a group
        for size in range(1, min(self.ranks * self.units, self.max_chunks // (steps - 1)) + 1):
            first, middle = self._group_rounds(size)
            costs[size] = Fraction(2 * first + (steps - 2) * middle, size * (steps - 1))
        if not costs:
            return None
        size = min(costs, key=lambda size: (costs[size], size))
        if size * (steps - 1) > EXACT_CHUNKS:
            allowed = costs[size] * LOSS
            size = next(size for size, cost in costs.items() if cost <= allowed)
        first, middle = self._group_rounds(size)
        rows = []
        for t in range(steps):
            links: list[Send] = []
            sends: list[SwitchSend] = []
            for chunk in range(t * size, (t + 1) * size) if t < steps - 1 else ():
                owner = chunk % size % self.ranks
                if self.linked and t == 0:
                    links += [Send(chunk, u, v, "reduce", via) for u, v, via in self._links() if v == owner]
                else:
                    sends.append(self._send(chunk, owner, "fetch-reduce"))
            for chunk in range((t - 1) * size, t * size) if t else ():
                owner = chunk % size % self.ranks
                if self.linked and t == steps - 1:
                    links += [Send(chunk, u, v, "copy", via) for u, v, via in self._links() if u == owner]
                else:
                    sends.append(self._send(chunk, owner, "multicast"))
            rows.append(Step(middle if 0 < t < steps - 1 else first, tuple(links), tuple(sends)))
        return Schedule(self.network, self.collective, size * (steps - 1), tuple(rows))

    def _group_rounds(self, size: int) -> tuple[int, int]:
        """Rounds of the first or the last step, and of one between.

        A rank owns ⌊size/n⌋ or ⌈size/n⌉ chunks of a group. Fetches and multicasts of a group load one direction with
        all its chunks where own data use the port, else with those that a rank does not own; and the other one with
        those that it owns. Over links these count n − 1 times there.
        """
        least, most = size // self.ranks, -(-size // self.ranks)
        if self.linked:
            return self._rounds(max(size - least, most * (self.ranks - 1))), self._rounds(size + most)
        if self.through:
            return self._rounds(size), self._rounds(size + most)
        return self._rounds(max(size - least, most)), self._rounds(size)

    def _rounds(self, load: int) -> int:
        return -(-load // self.units)

    def _rounds_of(self, sends: Sequence[SwitchSend]) -> int:
        """Return the fewest rounds in which the ports carry `sends`, also where several ports share a limit."""
        load: Counter[int] = Counter()
        for send in sends:
            load.update(self.switch.caps(send.rank, send.group, fetches=send.kind == "fetch-reduce"))
        return max(-(-count // self.network.caps[cap].units) for cap, count in load.items())

    def _send(self, chunk: int, rank: int, kind: str) -> SwitchSend:
        return SwitchSend(chunk, rank, tuple(range(self.ranks)), kind, self.switch.switch)
