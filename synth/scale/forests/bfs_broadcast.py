"""Breadth-first broadcast: an allgather in as few steps as the diameter, balanced step by step.

After Zhao et al., "Efficient Direct-Connect Topologies for Collective Communications", arXiv 2202.03356: in step t
every rank receives the shards of all ranks at distance t, each from neighbours at distance t - 1 from its owner, spread
so that its fullest link carries least. Each (rank, step) is a small balancing problem of its own. Its optimum is the
maximum, over sets J of links into the rank, of (shards that can arrive over J alone) / (capacity of J), by Hall's
theorem. The maximum is found by sums over subsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from synth.errors import InfeasibleError, SynthError, UsageError
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.scale.fabric.automorphisms import free_group, group_images, orbits, symmetries
from synth.scale.fabric.fabric import Fabric
from synth.scale.fabric.graphs import distances
from synth.solvers.deadline import check_deadline
from synth.solvers.max_flow import MaxFlow

# Links into a rank: all 2^12 sets of them are tried.
MAXIMUM_LINKS = 12
# Entries of the table (ranks x nodes) of a group; at 4 bytes each, two tables take half a gigabyte.
MAXIMUM_ENTRIES = 1 << 26
# Sends of a schedule that are listed; their columns then take about two gigabytes.
MAXIMUM_SENDS = 1 << 26


class _GroupAction:
    """A free group of automorphisms of a fabric, as a table: what one receiver of each orbit sees, all others see.

    `representatives`: the least rank of each orbit. `representative[u]`: that of the orbit of rank u. `back[u]`: the
    element, a permutation of the nodes, that takes u to it. `order`: the number of elements.
    """

    def __init__(self, fabric: Fabric) -> None:
        """Raises SynthError where the table is too large."""
        self.generators = generators = free_group(symmetries(fabric), fabric.ranks)
        if fabric.ranks * fabric.nodes > MAXIMUM_ENTRIES:
            raise SynthError(f"{fabric.name}: {fabric.ranks} ranks are too many for this method")
        self.representative = orbits(fabric.ranks, [pi[: fabric.ranks] for pi in generators])
        self.representatives = np.unique(self.representative)
        self.order = fabric.ranks // len(self.representatives)
        to = np.empty((fabric.ranks, fabric.nodes), np.int32)
        for element in group_images(generators, np.arange(fabric.nodes), self.order):
            to[element[self.representatives]] = element
        self.back = np.argsort(to, axis=1).astype(np.int32)


@dataclass(frozen=True)
class _Arrivals:
    """Arrivals at rank `rank` in one step.

    `owners`: the owners of the shards, by the set of links (a bit mask over `edges`, the links into the rank) that
    their shards may arrive over.
    """

    rank: int
    edges: list[int]
    owners: dict[int, list[int]]


def applies(fabric: Fabric) -> bool:
    """Return True if all nodes of the fabric are ranks, with at most `MAXIMUM_LINKS` edges into each."""
    return (
        fabric.nodes == fabric.ranks
        and int(np.bincount(fabric.dst, minlength=fabric.nodes).max(initial=0)) <= MAXIMUM_LINKS
    )


class BreadthFirstBroadcast:
    """Breadth-first broadcast on a fabric: the balanced load of each step, for any number of chunks.

    `steps[t]` are the arrivals at the representative ranks, `times[t]` is the load of the fullest link in shards over
    capacity.
    """

    def __init__(self, fabric: Fabric) -> None:
        """Raises UsageError where `applies` is False, InfeasibleError where a rank cannot be reached, TimeUp."""
        if not applies(fabric):
            raise UsageError(
                f"{fabric.name}: breadth-first broadcast needs links from rank to rank, at most {MAXIMUM_LINKS} into "
                f"each"
            )
        self.fabric, self.copies = fabric, _GroupAction(fabric)
        self.incoming = fabric.entering
        self.steps: list[list[_Arrivals]] = []
        for rank in self.copies.representatives.tolist():
            self._collect_arrivals(rank)
        self.times = [max(map(self._balanced_load, step)) for step in self.steps]

    @property
    def rounds_per_chunk(self) -> Fraction:
        """Rounds per chunk (R / C) in the limit of many chunks."""
        return sum(self.times, Fraction(0))

    @property
    def chunks(self) -> int:
        """The least number of chunks that attains `rounds_per_chunk` (if each step has at least one round)."""
        return lcm(*(time.denominator for time in self.times))

    def _collect_arrivals(self, rank: int) -> None:
        """Add the arrivals at `rank` to `steps`."""
        check_deadline()
        # the number of links to the rank, and to each rank with a link to it
        fabric, edges = self.fabric, self.incoming[rank]
        ends = [rank, *fabric.src[edges].tolist()]
        distance, *sender_distances = (distances(fabric.nodes, fabric.dst, fabric.src, end).tolist() for end in ends)
        for owner in range(fabric.ranks):
            t = distance[owner]
            if t < 0:
                raise InfeasibleError(f"{fabric.name}: rank {rank} cannot hear from rank {owner}")
            if t == 0:
                continue
            while len(self.steps) < t:
                self.steps.append([])
            step = self.steps[t - 1]
            if not step or step[-1].rank != rank:
                step.append(_Arrivals(rank, edges, {}))
            mask = sum(1 << j for j in range(len(edges)) if sender_distances[j][owner] == t - 1)
            step[-1].owners.setdefault(mask, []).append(owner)

    def _balanced_load(self, arrivals: _Arrivals) -> Fraction:
        """Return the minimum over all assignments of the greatest link load, in shards divided by the capacity."""
        count = len(arrivals.edges)
        shards, capacity = np.zeros(1 << count, np.int64), np.zeros(1 << count, np.int64)
        for mask, owners in arrivals.owners.items():
            shards[mask] += len(owners)
        # afterwards shards[J] counts the shards whose links all lie in J: sums over subsets, one link at a time
        for j, e in enumerate(arrivals.edges):
            bit = np.arange(1 << count) >> j & 1 == 1
            capacity[bit] += self.fabric.cap[e]
            shards[bit] += shards[np.flatnonzero(bit) ^ (1 << j)]
        at = int(np.argmax(shards[1:] / capacity[1:])) + 1
        return Fraction(int(shards[at]), int(capacity[at]))

    def schedule(self, chunks: int | None = None) -> CompressedSchedule:
        """Return the schedule with `chunks` chunks a shard, by default those that attain `rounds_per_chunk`.

        On a flipped fabric it is a reduce-scatter, in which time runs backwards. Raises UsageError for too many chunks.
        """
        chunks = self.chunks if chunks is None else chunks
        if chunks < 1 or chunks * self.fabric.ranks * len(self.copies.representatives) > MAXIMUM_SENDS:
            raise UsageError(
                f"{chunks} chunks on {self.fabric.ranks} ranks; between 1 and {MAXIMUM_SENDS} sends are listed"
            )
        rounds = np.array([max(1, -(-time.numerator * chunks // time.denominator)) for time in self.times], np.int64)
        blocks = [np.empty((0, 4), np.int64)]
        for t, arrived in enumerate(self.steps):
            for arrivals in arrived:
                sends = np.array(self._assign_links(arrivals, chunks, int(rounds[t])), np.int64)
                blocks.append(np.column_stack([np.full(len(sends), t), sends]))
        step, owner, part, edge = np.concatenate(blocks).T.copy()

        # each send is moved by the element that takes its owner to the owner's representative
        fabric, action = self.fabric, self.copies
        links = fabric.link[edge]
        if action.generators:
            keys = fabric.src * fabric.nodes + fabric.dst
            order = np.argsort(keys, kind="stable")
            src, dst = (action.back[owner, end[edge]].astype(np.int64) for end in (fabric.src, fabric.dst))
            links = fabric.link[order[np.searchsorted(keys[order], src * fabric.nodes + dst)]]
        used, path = np.unique(links, return_inverse=True)
        kind = COPY
        if fabric.flipped:
            kind, step, rounds = REDUCE, len(rounds) - 1 - step, rounds[::-1].copy()
        generators = tuple(tuple(pi[: fabric.ranks].tolist()) for pi in action.generators)
        return CompressedSchedule(
            fabric.topology, "reduce-scatter" if fabric.flipped else "allgather", None, chunks, rounds, step,
            action.representative[owner] * chunks + part, path, np.full(len(step), kind),
            tuple((int(link),) for link in used), generators,
        )  # fmt: skip

    def _assign_links(self, arrivals: _Arrivals, chunks: int, rounds: int) -> list[tuple[int, int, int]]:
        """(owner, chunk, edge) of all arrivals, at most `rounds` rounds of each link, by a maximum flow.

        The flow goes from a source through the sets of links (masks) and the links to a sink.
        """
        masks = sorted(arrivals.owners)
        pairs = [(k, j) for k, mask in enumerate(masks) for j in range(len(arrivals.edges)) if mask >> j & 1]
        base, sink = len(masks), len(masks) + len(arrivals.edges)
        source = sink + 1
        tails = [source] * len(masks) + [k for k, _ in pairs] + list(range(base, sink))
        heads = list(range(len(masks))) + [base + j for _, j in pairs] + [sink] * len(arrivals.edges)
        flow = MaxFlow(tails, heads)
        demand = [len(arrivals.owners[mask]) * chunks for mask in masks]
        capacity = [int(self.fabric.cap[e]) * rounds for e in arrivals.edges]
        flow.set_capacities(np.array(demand + [sum(demand)] * len(pairs) + capacity, np.int64))
        if flow.value(source, sink) != sum(demand):
            raise UsageError(f"{self.fabric.name}: step loads do not balance")  # excluded by `_balanced_load`
        amounts = flow.flows()[len(masks) : len(masks) + len(pairs)].tolist()
        waiting = []
        for mask in masks:
            waiting.append([(owner, i) for owner in arrivals.owners[mask] for i in range(chunks)])
        sends = []
        for (k, j), amount in zip(pairs, amounts, strict=True):
            for _ in range(amount):
                owner, i = waiting[k].pop()
                sends.append((owner, i, arrivals.edges[j]))
        return sends
