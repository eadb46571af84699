"""Pipelined schedules through one switch that multicasts and reduces (NVLS, SHARP).

An allreduce of S ≥ 2 steps splits the chunks into S − 1 equal groups. At step t the owner of each chunk of group t
fetches its sum, and the owner of each chunk of group t − 1 multicasts it. Owners take turns. With n equal ports of u
units the rounds per chunk tend to (1 + (1 − 2/n)/(S − 1))/u where own data stay on their rank (`own: local`), and to
((n + 1)/n + (1 − 1/n)/(S − 1))/u where they use the port (`own: through`). In one step each rank fetches one half of
the sums and receives the contributions to the other half by multicast. A broadcast is one multicast for each chunk, a
reduce one fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from synth.model.collective import Collective
from synth.model.schedule import Schedule, Step, SwitchSend
from synth.model.topology import MulticastSwitch, Network

COLLECTIVES = ("allreduce", "broadcast", "reduce")
# Chunks times ranks of one schedule, at most: a document lists so many pairs before and after.
MAX_ADDRESSES = 250_000
# A smaller group whose R/C is at most this factor above the least is preferred: its documents are shorter.
LOSS = Fraction(101, 100)


def whole_switch(network: Network) -> MulticastSwitch | None:
    """Return the switch that all ranks have ports at, the first of them; None where there is none."""
    for switch in network.multicast:
        if len(switch.ports) == network.ranks:
            return switch
    return None


def schedules(
    network: Network, collective: Collective, steps: Iterable[int], max_chunks: int | None = None
) -> Iterator[Schedule]:
    """Yield a schedule for each of `steps` that the family has, of at most `max_chunks` chunks a unit.

    `network` has a `whole_switch`, and `collective` is one of `COLLECTIVES`.
    """
    family = MulticastPipelining(network, collective, max_chunks)
    for count in steps:
        schedule = family.schedule(count)
        if schedule is not None:
            yield schedule


class MulticastPipelining:
    """Schedules of a collective through the switch that all ranks of `network` have ports at.

    `max_chunks`: the most chunks into which a unit is split. `loss`: R/C may be so many times the least one.

    Attributes:
        units: chunks that the narrowest port carries in a round.
        through: True if own data use the port.
    """

    def __init__(
        self, network: Network, collective: Collective, max_chunks: int | None = None, loss: Fraction = LOSS
    ) -> None:
        switch = whole_switch(network)
        if switch is None or collective.name not in COLLECTIVES:
            raise ValueError(f"{collective.name} on {network.name} is not of this family")
        self.network, self.collective, self.switch = network, collective, switch
        self.ranks, self.through, self.loss = network.ranks, switch.own == "through", loss
        limits = {k for port in switch.ports for k in (*port.up, *port.down)}
        self.units = min(network.caps[k].units for k in limits)
        self.max_chunks = MAX_ADDRESSES // self.ranks
        if max_chunks is not None:
            self.max_chunks = min(self.max_chunks, max_chunks)

    def schedule(self, steps: int) -> Schedule | None:
        """Return the schedule of so many steps; None where the family has none, or none of so few chunks."""
        if self.collective.name != "allreduce":
            return self._one_rank() if steps == 1 else None
        return self._one_step() if steps == 1 else self._pipelined(steps)

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
        """Fetches of group t at step t, and their multicasts one step later."""
        largest = min(self.ranks * self.units, self.max_chunks // (steps - 1))
        if not largest:
            return None
        costs = {size: self._rounds_per_chunk(size, steps) for size in range(1, largest + 1)}
        allowed = min(costs.values()) * self.loss
        size = next(size for size, cost in costs.items() if cost <= allowed)
        first, middle = self._group_rounds(size)
        rows = []
        for t in range(steps):
            sends = []
            for chunk in range(t * size, (t + 1) * size) if t < steps - 1 else ():
                sends.append(self._send(chunk, chunk % size % self.ranks, "fetch-reduce"))
            for chunk in range((t - 1) * size, t * size) if t else ():
                sends.append(self._send(chunk, chunk % size % self.ranks, "multicast"))
            rows.append(Step(middle if 0 < t < steps - 1 else first, (), tuple(sends)))
        return Schedule(self.network, self.collective, size * (steps - 1), tuple(rows))

    def _rounds_per_chunk(self, size: int, steps: int) -> Fraction:
        """R/C of groups of `size` chunks."""
        first, middle = self._group_rounds(size)
        return Fraction(2 * first + (steps - 2) * middle, size * (steps - 1))

    def _group_rounds(self, size: int) -> tuple[int, int]:
        """Rounds of a step with the fetches, or the multicasts, of a group of `size`, and of a step with both.

        A rank owns ⌊size/n⌋ or ⌈size/n⌉ chunks of a group. Where own data use the port, both directions carry all
        chunks of the group and, in a step with both, those that the rank owns once more. Where they do not, those that
        it owns take the place of those that it does not send.
        """
        least, most = size // self.ranks, -(-size // self.ranks)
        if self.through:
            return self._rounds(size), self._rounds(size + most)
        return self._rounds(max(size - least, most)), self._rounds(size)

    def _rounds(self, load: int) -> int:
        return -(-load // self.units)

    def _send(self, chunk: int, rank: int, kind: str) -> SwitchSend:
        return SwitchSend(chunk, rank, tuple(range(self.ranks)), kind, self.switch.switch)
