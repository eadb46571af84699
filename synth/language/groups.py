"""The handle of an algorithm's function: a call of the collective, or some of its ranks in an order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import prod
from typing import NoReturn

from synth.checker.schedule import replay
from synth.language.data import Data
from synth.language.place import error_at
from synth.language.trace import AlgorithmTrace
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.program.send_hints import NO_HINT, SendHint

# The least and the greatest number of a hint; no runtime has so many channels, and no unit so many chunks.
HINT_NUMBERS = {"channel": (0, 255), "lanes": (1, 4096), "pieces": (1, 4096)}


@dataclass(frozen=True, eq=False)
class RankGroup:
    """Some ranks of a call, in an order. The first handle, `a`, has all of them.

    Ranks are those of the whole call in every group; a group only gives them an order.

    Attributes
    ----------
    ranks : in their order.

    Examples
    --------
    >>> from synth.language import algorithm
    >>> @algorithm("allgather")
    ... def boxes_first(a):
    ...     held = a.inputs()
    ...     for group in [*a.boxes, *a.rails]:
    ...         now = dict(held)
    ...         for rank in group.ranks:
    ...             for other in group.others(rank):
    ...                 held[other] = held[other].join(now[rank].to(other))
    >>> boxes_first.schedule("dgx-a100*2").step_count
    2
    """

    ranks: tuple[int, ...]
    trace: AlgorithmTrace = field(repr=False)

    def __iter__(self) -> NoReturn:
        """Refuse `for rank in group`, which does not say whether ranks or data are meant."""
        raise error_at(self.trace.place(), "a group is not iterable: write a.ranks, or group.ranks")

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    @property
    def topology(self) -> Topology | None:
        """The machine of the call; None where there is none."""
        return self.trace.topology

    @property
    def collective(self) -> Collective:
        """The collective of the call."""
        return self.trace.collective

    @property
    def root(self) -> int:
        """The root of the collective."""
        if len(self.collective.roots) != 1:
            raise error_at(self.trace.place(), f"{self.collective.name} has no single root")
        return self.collective.roots[0]

    def position(self, rank: int) -> int:
        """Return the number of a rank in the order of the group."""
        if rank not in self.ranks:
            raise error_at(self.trace.place(), f"rank {rank} is not in the group {self.ranks}")
        return self.ranks.index(rank)

    def others(self, rank: int) -> tuple[int, ...]:
        """Return the other ranks, beginning behind `rank` in the order of the group, which is a cycle."""
        at = self.position(rank)
        return self.ranks[at + 1 :] + self.ranks[:at]

    def input(self, rank: int) -> Data:
        """Return what the rank holds before the collective."""
        number, known = self.trace.rank(rank), self.trace.input_data
        if number not in known:
            known[number] = Data(number, self.trace.input(number), self.trace)
        return known[number]

    def inputs(self) -> dict[int, Data]:
        """Return what each rank of the group holds before the collective."""
        return {rank: self.input(rank) for rank in self.ranks}

    def held(self, rank: int) -> Data:
        """Return the newest data on a rank."""
        return Data(self.trace.rank(rank), self.trace.newest(rank), self.trace)

    def sum(self, rank: int, parts: Iterable[Data]) -> Data:
        """Add data of any ranks on `rank`, its own first; return the sum."""
        given = list(parts)
        if not given:
            raise error_at(self.trace.place(), f"the sum on rank {rank} has no parts")
        # What is here already comes first, so that all others are added to it.
        ordered = sorted(given, key=lambda data: data.rank != rank)
        total = ordered[0].to(rank)
        for data in ordered[1:]:
            total = total.add(data)
        return total

    def step(self) -> AbstractContextManager[None]:
        """Return a context: what is done inside is one synchronous step, behind the last one of this group."""
        return self.trace.step(self.ranks)

    def hints(
        self, block: str | None = None, channel: int | None = None, lanes: int | None = None, pieces: int | None = None
    ) -> AbstractContextManager[None]:
        """Return a context: copies and sums inside say how a two-sided program is to send them; see docs/language.md.

        `block`: the thread block of this name on both ranks. `channel`: this channel. `lanes`: the most connections of
        a route. `pieces`: the messages into which each is cut. Of contexts inside others the inner one counts first.
        Raises UsageError for values that make no sense.
        """
        # The last fault counts: any of them is the user's mistake.
        hint = SendHint(block, channel, lanes, pieces)
        fault = ""
        if hint == NO_HINT:
            fault = " says nothing: give block=, channel=, lanes= or pieces="
        if block is not None and not (isinstance(block, str) and block.isprintable() and block):
            fault = f": block={block!r} is no name of a thread block, such as 'up'"
        for name, (least, most) in HINT_NUMBERS.items():
            number = getattr(hint, name)
            if number is not None and (type(number) is not int or not least <= number <= most):
                fault = f": {name}={number!r}: a number from {least} to {most}"
        if lanes is not None and hint.connects:
            fault = ": a block or a channel is one connection; leave lanes out"
        if fault:
            raise error_at(self.trace.place(), f"a.hints{fault}")
        return self.trace.hints(hint)

    def apply(self, schedule: Schedule, held: Mapping[int, Data] | None = None) -> dict[int, Data]:
        """Do what a schedule does, its rank i on the i-th rank of the group; return what each rank ends with.

        `held[rank]` takes the place of the rank's input, cut into its units in their order. Each step of the schedule
        is a step of the group. Raises VerificationError for a wrong schedule.
        """
        replay.schedule(schedule)
        if schedule.collective.ranks != self.size:
            raise error_at(
                self.trace.place(), f"the schedule is for {schedule.collective.ranks} ranks, not {self.size}"
            )
        given = self.inputs() if held is None else held
        inputs = {}
        for i, chunks in _chunks_of(schedule, schedule.collective.pre).items():
            if self.ranks[i] not in given:
                raise error_at(self.trace.place(), f"no data are held on rank {self.ranks[i]}, which has an input here")
            for chunk, part in zip(chunks, given[self.ranks[i]].split(len(chunks)), strict=True):
                inputs[chunk, i] = part
        now = dict(inputs)
        for step in schedule.steps:
            with self.step():
                # Sends of a step read the state before it; copies land before sums.
                before = dict(now)
                for send in sorted(step.unicast_sends, key=lambda send: send.kind.startswith("reduce")):
                    values = inputs if send.kind.endswith("-input") else before
                    source, end = values[send.chunk, send.src], (send.chunk, send.dst)
                    adds = send.kind.startswith("reduce") and end in now
                    now[end] = now[end].add(source) if adds else source.to(self.ranks[send.dst])
        results: dict[int, Data] = {}
        for i, chunks in _chunks_of(schedule, schedule.collective.post).items():
            parts = [now[chunk, i] for chunk in chunks]
            results[self.ranks[i]] = parts[0].join(*parts[1:])
        return results

    def group(self, ranks: Iterable[int]) -> RankGroup:
        """Return a group of these ranks, in this order."""
        chosen = tuple(map(self.trace.rank, ranks))
        if len(set(chosen)) < len(chosen):
            raise error_at(self.trace.place(), "a rank is twice in a group")
        return RankGroup(chosen, self.trace)

    @property
    def boxes(self) -> list[RankGroup]:
        """The ranks of each box of the machine. Without boxes all are in one."""
        # A machine without named boxes is one box.
        nodes = () if self.trace.topology is None else self.trace.topology.nodes
        members: dict[int, list[int]] = {}
        for rank in self.ranks:
            node = nodes[rank] if nodes else 0
            members.setdefault(node, []).append(rank)
        return [RankGroup(tuple(ranks), self.trace) for _, ranks in sorted(members.items())]

    @property
    def rails(self) -> list[RankGroup]:
        """The first ranks of all boxes, the second ranks, and so on. Raises UsageError for boxes of unequal sizes."""
        boxes = [box.ranks for box in self.boxes]
        if len({len(box) for box in boxes}) > 1:
            raise error_at(self.trace.place(), "rails need boxes with the same number of ranks")
        return [RankGroup(ranks, self.trace) for ranks in zip(*boxes, strict=True)]

    def cube(self, bit: int) -> list[RankGroup]:
        """Return the pairs of ranks whose numbers in the group differ in this bit alone."""
        if not 0 <= bit < self.size.bit_length() - 1 or self.size & (self.size - 1):
            raise error_at(self.trace.place(), f"{self.size} ranks are no cube with a dimension {bit}")
        low = [i for i in range(self.size) if not i >> bit & 1]
        return [RankGroup((self.ranks[i], self.ranks[i | 1 << bit]), self.trace) for i in low]

    @property
    def sides(self) -> tuple[int, ...]:
        """The sides of a grid or torus, as in the machine's name; the number of ranks for another machine."""
        # The name of a torus or grid says its sides.
        name = "" if self.trace.topology is None else self.trace.topology.name
        match = re.fullmatch(r"(?:torus|mesh|grid):(\d+(?:x\d+)*)(?:[:,].*)?", name)
        sides = tuple(map(int, match[1].split("x"))) if match else (self.size,)
        return sides if prod(sides) == self.size else (self.size,)

    def torus(self, dimension: int) -> list[RankGroup]:
        """Return the rings along a dimension of a torus. The last side counts fastest in the numbers of the ranks."""
        if not 0 <= dimension < len(self.sides):
            raise error_at(self.trace.place(), f"a torus {self.sides} has no dimension {dimension}")
        # Neighbours along the dimension are as far apart as all later sides make them.
        stride, side = prod(self.sides[dimension + 1 :]), self.sides[dimension]
        first = [i for i in range(self.size) if i // stride % side == 0]
        return [RankGroup(self.ranks[i : i + side * stride : stride], self.trace) for i in first]


def _chunks_of(schedule: Schedule, ends: Sequence[frozenset[int]]) -> dict[int, list[int]]:
    """Return the chunks of each rank, in the order of the units. `ends`: of each unit its ranks before, or after."""
    chunks: dict[int, list[int]] = {}
    for unit, ranks in enumerate(ends):
        for rank in sorted(ranks):
            chunks.setdefault(rank, []).extend(range(unit * schedule.chunks, (unit + 1) * schedule.chunks))
    return chunks
