"""Rarest first: an allgather grown step by step, each link sending what the receiver lacks and fewest ranks have.

A greedy of the kind of TACOS (Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer", MICRO 2024), in
arrays: all receivers of a step choose at once, one in-link after the other. Under symmetries one receiver of each orbit
chooses for all. Each step has one round, and the schedule ends when every rank has everything.
"""

from __future__ import annotations

import numpy as np

from synth.errors import InfeasibleError, UsageError
from synth.model.compressed_schedule import Bulk
from synth.scale.fabric.fabric import Fabric
from synth.scale.greedy.group_action import Copies, listed
from synth.solvers.processes.deadline import check

MOST_CELLS = 1 << 25


def applies(fabric: Fabric) -> bool:
    """Whether ranks are joined by links alone, and not too many."""
    return fabric.nodes == fabric.ranks and fabric.ranks * fabric.ranks <= MOST_CELLS


def schedule(fabric: Fabric, chunks: int = 1, seed: int = 0) -> Bulk:
    """The greedy allgather with `chunks` chunks a shard. Raises UsageError where it does not apply, InfeasibleError."""
    if not applies(fabric):
        raise UsageError(
            f"{fabric.name}: rarest-first needs links from rank to rank, and at most {MOST_CELLS} pairs of ranks"
        )
    return _Greedy(fabric, chunks, seed).run()


class _Greedy:
    def __init__(self, fabric: Fabric, chunks: int, seed: int) -> None:
        self.fabric, self.chunks, self.random = fabric, chunks, np.random.default_rng(seed)
        self.copies = copies = Copies(fabric)
        reps, ranks = copies.reps, fabric.ranks
        if chunks < 1 or len(reps) * ranks * chunks > MOST_CELLS:
            raise UsageError(f"{chunks} chunks on {ranks} ranks are too many for rarest-first")
        self.row = np.full(ranks, -1)
        self.row[reps] = np.arange(len(reps))
        into = [np.flatnonzero(fabric.dst == v) for v in reps]
        # the j-th unit of capacity into each receiver: its edge, or -1
        slots = [np.repeat(edges, fabric.cap[edges]) for edges in into]
        width = max(map(len, slots))
        self.slots = np.full((len(reps), width), -1)
        for i, slot in enumerate(slots):
            self.slots[i, : len(slot)] = slot
        # where receiver i's neighbour over that edge stands in the table of listed receivers, and how it names owners
        self.held = np.zeros((len(reps), ranks, chunks), bool)
        self.held[np.arange(len(reps)), reps] = True

    def run(self) -> Bulk:
        """Steps until nothing is lacking."""
        fabric, copies = self.fabric, self.copies
        found: list[tuple[np.ndarray, ...]] = []
        step = 0
        while not self.held.all():
            check()
            fresh = self._step()
            if not len(fresh[0]):
                i, owner, _ = np.argwhere(~self.held)[0]
                raise InfeasibleError(f"{fabric.name}: rank {copies.reps[i]} cannot hear from rank {owner}")
            i, owner, part, _ = fresh
            self.held[i, owner, part] = True
            found.append((np.full(len(i), step), *fresh[1:]))
            step += 1
        columns = (
            [np.concatenate(column) for column in zip(*found, strict=True)] if found else [np.zeros(0, np.int64)] * 4
        )
        return self._bulk(step, *columns)

    def _step(self) -> tuple[np.ndarray, ...]:
        """(receiver, owner, chunk, edge) of what each in-link brings."""
        fabric, copies = self.fabric, self.copies
        seen = self._seen()
        # jitter breaks ties differently at each receiver, so that neighbours do not all ask for the same
        rare = seen + self.random.random(self.held.shape, dtype=np.float32) * 0.9
        lacking = ~self.held
        result: list[tuple[np.ndarray, ...]] = []
        order = self.random.permutation(self.slots.shape[1])
        for j in order:
            edge = self.slots[:, j]
            rows = np.flatnonzero(edge >= 0)
            sender = fabric.src[edge[rows]]
            # what the sender holds of owner u is what its listed copy holds of the owner that moves to u
            names = copies.back[sender][:, : fabric.ranks]
            offered = self.held[self.row[copies.least[sender]][:, None], names]
            score = np.where(offered & lacking[rows], rare[rows], np.inf).reshape(len(rows), -1)
            best = score.argmin(axis=1)
            good = np.isfinite(score[np.arange(len(rows)), best])
            rows, best = rows[good], best[good]
            owner, part = best // self.chunks, best % self.chunks
            lacking[rows, owner, part] = False
            result.append((rows, owner, part, edge[rows]))
        return tuple(np.concatenate(column) for column in zip(*result, strict=True))

    def _seen(self) -> np.ndarray:
        """How many ranks hold each chunk, as each listed receiver names it."""
        copies = self.copies
        if len(copies.reps) == self.fabric.ranks:
            return np.broadcast_to(self.held.sum(axis=0, dtype=np.float32), self.held.shape)
        # all owners of an orbit are alike: count over an orbit of receivers is count over an orbit of owners
        total = np.zeros((len(copies.reps), self.chunks), np.float32)
        np.add.at(total, self.row[copies.least], self.held.sum(axis=0, dtype=np.float32))
        return np.broadcast_to(total[self.row[copies.least]], self.held.shape)

    def _bulk(self, steps: int, step: np.ndarray, owner: np.ndarray, part: np.ndarray, edge: np.ndarray) -> Bulk:
        return listed(self.fabric, self.copies, self.chunks, np.ones(steps, np.int64), step, owner, part, edge)
