"""Breadth-first broadcast: an allgather in as few steps as the diameter, balanced step by step.

After Zhao et al., "Efficient Direct-Connect Topologies for Collective Communications", arXiv 2202.03356: in step t
every rank receives the shards of all ranks at distance t, each from neighbours at distance t - 1 from its owner, spread
so that its fullest link carries least. Each (rank, step) is a small balance of its own: with J the links whose shards
have no other way, the least is the greatest (shards) / (capacity of J) over sets of links J, found by subset sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.errors import InfeasibleError, UsageError
from synth.model.compressed_schedule import Bulk
from synth.scale.fabric.fabric import Fabric
from synth.scale.greedy.group_action import Copies, listed
from synth.solvers.max_flow import MaxFlow
from synth.solvers.processes.deadline import check

# Links into a rank up to which all sets of them are looked at.
MOST_LINKS = 12
MOST_SENDS = 1 << 26


@dataclass(frozen=True)
class _Arrivals:
    """At rank `rank` in one step: owners by the set (bit mask) of in-edges `edges` that their shards may come over."""

    rank: int
    edges: list[int]
    owners: dict[int, list[int]]


def applies(fabric: Fabric) -> bool:
    """Whether ranks are joined by links alone, at most `MOST_LINKS` into each."""
    return (
        fabric.nodes == fabric.ranks
        and int(np.bincount(fabric.dst, minlength=fabric.nodes).max(initial=0)) <= MOST_LINKS
    )


class Breadth:
    """The balance of each step, ready to be cut into chunks. Raises UsageError where it does not apply,
    InfeasibleError."""

    def __init__(self, fabric: Fabric) -> None:
        if not applies(fabric):
            raise UsageError(
                f"{fabric.name}: breadth-first broadcast needs links from rank to rank, at most {MOST_LINKS} into each"
            )
        self.fabric, self.copies = fabric, Copies(fabric)
        into: list[list[int]] = [[] for _ in range(fabric.nodes)]
        for e, v in enumerate(fabric.dst.tolist()):
            into[v].append(e)
        self.into = into
        self.steps: list[list[_Arrivals]] = []
        for rank in self.copies.reps.tolist():
            self._look(rank)
        self.times = [max(self._time(found) for found in step) for step in self.steps]

    @property
    def bandwidth(self) -> Fraction:
        """R / C in the limit of many chunks."""
        return sum(self.times, Fraction(0))

    @property
    def chunks(self) -> int:
        """The least number of chunks that attains `bandwidth` (if each step has a round or more)."""
        return int(np.lcm.reduce([time.denominator for time in self.times])) if self.times else 1

    def _look(self, rank: int) -> None:
        check()
        src = self.fabric.src.tolist()
        far = self._distances(rank)
        edges = self.into[rank]
        near = [self._distances(src[e]) for e in edges]
        for owner in range(self.fabric.ranks):
            t = far[owner]
            if t < 0:
                raise InfeasibleError(f"{self.fabric.name}: rank {rank} cannot hear from rank {owner}")
            if t == 0:
                continue
            while len(self.steps) < t:
                self.steps.append([])
            step = self.steps[t - 1]
            if not step or step[-1].rank != rank:
                step.append(_Arrivals(rank, edges, {}))
            mask = sum(1 << j for j in range(len(edges)) if near[j][owner] == t - 1)
            step[-1].owners.setdefault(mask, []).append(owner)

    def _distances(self, rank: int) -> list[int]:
        """How many links lead from each rank to `rank`."""
        far, src = [-1] * self.fabric.nodes, self.fabric.src.tolist()
        far[rank], queue = 0, [rank]
        for v in queue:
            for e in self.into[v]:
                if far[src[e]] < 0:
                    far[src[e]] = far[v] + 1
                    queue.append(src[e])
        return far

    def _time(self, found: _Arrivals) -> Fraction:
        """The least greatest load of a link, in shards over capacity."""
        count = len(found.edges)
        shards, room = np.zeros(1 << count, np.int64), np.zeros(1 << count, np.int64)
        for mask, owners in found.owners.items():
            shards[mask] += len(owners)
        for j, e in enumerate(found.edges):
            bit = np.arange(1 << count) >> j & 1 == 1
            room[bit] += self.fabric.cap[e]
            shards[bit] += shards[np.flatnonzero(bit) ^ (1 << j)]  # sums over subsets, one link at a time
        at = int(np.argmax(shards[1:] / room[1:])) + 1
        return Fraction(int(shards[at]), int(room[at]))

    def schedule(self, chunks: int | None = None) -> Bulk:
        """With so many chunks a shard (by default those that attain `bandwidth`)."""
        chunks = self.chunks if chunks is None else chunks
        if chunks < 1 or chunks * self.fabric.ranks * len(self.copies.reps) > MOST_SENDS:
            raise UsageError(
                f"{chunks} chunks on {self.fabric.ranks} ranks; between 1 and {MOST_SENDS} sends are listed"
            )
        rounds = np.array([max(1, -(-time.numerator * chunks // time.denominator)) for time in self.times], np.int64)
        step: list[int] = []
        owner: list[int] = []
        part: list[int] = []
        edge: list[int] = []
        for t, arrivals in enumerate(self.steps):
            for found in arrivals:
                for u, i, e in self._assigned(found, chunks, int(rounds[t])):
                    step.append(t)
                    owner.append(u)
                    part.append(i)
                    edge.append(e)
        columns = (np.array(column, np.int64) for column in (step, owner, part, edge))
        return listed(self.fabric, self.copies, chunks, rounds, *columns)

    def _assigned(self, found: _Arrivals, chunks: int, rounds: int) -> list[tuple[int, int, int]]:
        """(owner, chunk, edge) of everything that arrives, within `rounds` rounds of each link."""
        masks = sorted(found.owners)
        pairs = [(k, j) for k, mask in enumerate(masks) for j in range(len(found.edges)) if mask >> j & 1]
        base, sink = len(masks), len(masks) + len(found.edges)
        source = sink + 1
        tails = [source] * len(masks) + [k for k, _ in pairs] + [base + j for j in range(len(found.edges))]
        heads = list(range(len(masks))) + [base + j for _, j in pairs] + [sink] * len(found.edges)
        flow = MaxFlow(tails, heads)
        total = [len(found.owners[mask]) * chunks for mask in masks]
        room = [int(self.fabric.cap[e]) * rounds for e in found.edges]
        flow.set(np.array(total + [sum(total)] * len(pairs) + room, np.int64))
        if flow.value(source, sink) != sum(total):
            raise UsageError(f"{self.fabric.name}: step loads do not balance")  # excluded by `_time`
        amounts = flow.flows()[len(masks) : len(masks) + len(pairs)].tolist()
        result = []
        waiting = [[(u, i) for u in found.owners[mask] for i in range(chunks)] for mask in masks]
        for (k, j), n in zip(pairs, amounts, strict=True):
            for u, i in (waiting[k].pop() for _ in range(n)):
                result.append((u, i, found.edges[j]))
        return result
