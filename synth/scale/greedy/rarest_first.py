"""Rarest first: an allgather grown step by step, each link sending what the receiver lacks and fewest ranks hold.

A greedy of the kind of TACOS (Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer", MICRO 2024), in
arrays: all receivers of a step choose at once, one in-link after the other. Under symmetries one receiver of each orbit
chooses for all. Each step has one round, and the schedule ends when every rank holds everything.
"""

from __future__ import annotations

import numpy as np

from synth.errors import InfeasibleError, UsageError
from synth.model.compressed_schedule import CompressedSchedule
from synth.scale.fabric.fabric import Fabric
from synth.scale.greedy.group_action import ArrivalColumns, GroupAction, compressed_allgather
from synth.solvers.processes.deadline import check_deadline

# Entries (receiver, owner, chunk) of the table of held chunks, of which each step makes several copies of floats.
MAXIMUM_ENTRIES = 1 << 25


def applies(fabric: Fabric) -> bool:
    """Return True if ranks are joined by links alone, and few enough for the tables of the method."""
    return fabric.nodes == fabric.ranks and fabric.ranks * fabric.ranks <= MAXIMUM_ENTRIES


def rarest_first_schedule(fabric: Fabric, chunks: int = 1, seed: int = 0) -> CompressedSchedule:
    """Return the greedy allgather with `chunks` chunks a shard.

    Raises UsageError where `applies` is False, InfeasibleError where a rank cannot be reached, TimeUp.
    """
    if not applies(fabric):
        raise UsageError(
            f"{fabric.name}: rarest-first needs links from rank to rank, and at most {MAXIMUM_ENTRIES} pairs of ranks"
        )
    return _Greedy(fabric, chunks, seed).run()


class _Greedy:
    """State of the greedy.

    `held[i, u, c]`: receiver i (a representative) holds chunk c of rank u. `slots[i, j]`: the edge of the j-th unit of
    capacity into receiver i, or -1. `row[r]`: the number i of representative r, -1 for other ranks.
    """

    def __init__(self, fabric: Fabric, chunks: int, seed: int) -> None:
        self.fabric, self.chunks, self.random = fabric, chunks, np.random.default_rng(seed)
        self.copies = GroupAction(fabric)
        receivers, ranks = self.copies.representatives, fabric.ranks
        if chunks < 1 or len(receivers) * ranks * chunks > MAXIMUM_ENTRIES:
            raise UsageError(f"{chunks} chunks on {ranks} ranks are too many for rarest-first")
        self.row = np.full(ranks, -1)
        self.row[receivers] = np.arange(len(receivers))
        incoming = [np.flatnonzero(fabric.dst == v) for v in receivers]
        slots = [np.repeat(edges, fabric.cap[edges]) for edges in incoming]
        self.slots = np.full((len(receivers), max(map(len, slots))), -1)
        for i, slot in enumerate(slots):
            self.slots[i, : len(slot)] = slot
        self.held = np.zeros((len(receivers), ranks, chunks), bool)
        self.held[np.arange(len(receivers)), receivers] = True

    def run(self) -> CompressedSchedule:
        """Make steps until every receiver holds everything. Raises InfeasibleError, TimeUp."""
        fabric, copies = self.fabric, self.copies
        columns: list[tuple[np.ndarray, ...]] = []
        step = 0
        while not self.held.all():
            check_deadline()
            arrivals = self._step()
            receiver, owner, part, edge = arrivals
            if not len(receiver):
                i, missing, _ = np.argwhere(~self.held)[0]
                raise InfeasibleError(
                    f"{fabric.name}: rank {copies.representatives[i]} cannot hear from rank {missing}"
                )
            self.held[receiver, owner, part] = True
            columns.append((np.full(len(receiver), step), owner, part, edge))
            step += 1
        joined = [np.zeros(0, np.int64)] * 4
        if columns:
            joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
        rounds = np.ones(step, np.int64)
        return compressed_allgather(fabric, copies, self.chunks, rounds, ArrivalColumns(*joined))

    def _step(self) -> tuple[np.ndarray, ...]:
        """(receiver, owner, chunk, edge) of what each in-link brings in the next step."""
        fabric, copies = self.fabric, self.copies
        holders = self._holders()
        # jitter breaks ties differently at each receiver, so that neighbours do not all choose the same chunk
        rarity = holders + self.random.random(self.held.shape, dtype=np.float32) * 0.9
        lacking = ~self.held
        result: list[tuple[np.ndarray, ...]] = []
        order = self.random.permutation(self.slots.shape[1])
        for j in order:
            edge = self.slots[:, j]
            rows = np.flatnonzero(edge >= 0)
            sender = fabric.src[edge[rows]]
            # What the sender holds of owner u, its representative holds of the owner that is moved to u.
            owners = copies.back[sender][:, : fabric.ranks]
            offered = self.held[self.row[copies.representative[sender]][:, None], owners]
            score = np.where(offered & lacking[rows], rarity[rows], np.inf).reshape(len(rows), -1)
            best = score.argmin(axis=1)
            available = np.isfinite(score[np.arange(len(rows)), best])
            rows, best = rows[available], best[available]
            owner, part = best // self.chunks, best % self.chunks
            lacking[rows, owner, part] = False
            result.append((rows, owner, part, edge[rows]))
        return tuple(np.concatenate(column) for column in zip(*result, strict=True))

    def _holders(self) -> np.ndarray:
        """Number of ranks that hold each chunk, with the indices of `held`."""
        copies = self.copies
        if len(copies.representatives) == self.fabric.ranks:
            return np.broadcast_to(self.held.sum(axis=0, dtype=np.float32), self.held.shape)
        # Owners of one orbit are alike, so holders in an orbit of receivers are counted over an orbit of owners.
        total = np.zeros((len(copies.representatives), self.chunks), np.float32)
        np.add.at(total, self.row[copies.representative], self.held.sum(axis=0, dtype=np.float32))
        return np.broadcast_to(total[self.row[copies.representative]], self.held.shape)
