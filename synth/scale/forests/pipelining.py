"""Pipelined schedules: send chunk after chunk down the trees of a forest.

Each unit of a tree's weight is cut into `depth` chunks, which follow each other down the tree one step apart. So there
are S = height + depth - 1 steps, and C = weight * depth chunks in a shard. A step has as many rounds as its most loaded
link or limit needs. R / C falls towards the forest's rate as `depth` grows.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from synth.errors import UsageError
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.model.scale_collectives import REVERSED
from synth.scale.fabric.link_loads import link_loads, path_links
from synth.scale.forests.spanning_forest import SpanningForest

# Limit on the sends that a schedule lists: about 9 GB in four arrays.
MOST_SENDS = 1 << 28


class Pipeline:
    """A forest and the loads of its levels, from which the schedule at any pipelining depth follows.

    `levels[k, r]` is the depth of rank r in tree k. `capacity` holds the chunks per round of each used
    link orbit or limit, and ``cumulative_load[l]`` its load from the hops of the first l levels.
    """

    def __init__(self, forest: SpanningForest) -> None:
        self.forest = forest
        self.levels = _levels(forest)
        self.height = int(self.levels.max(initial=0))
        self.capacity, base = _loads(forest, self.levels, self.height)
        self.cumulative_load = np.concatenate([np.zeros((1, base.shape[1]), np.int64), np.cumsum(base, axis=0)])

    def rounds(self, depth: int) -> np.ndarray:
        """Return the rounds of each step, for data that spreads from the roots.

        In step t the levels t - depth + 1 to t are busy, and the step has their load.
        """
        rounds_of: dict[tuple[int, int], int] = {}
        rounds = []
        for t in range(self.height + depth - 1):
            window = (max(0, t - depth + 1), min(t, self.height - 1) + 1)
            if window not in rounds_of:
                load = self.cumulative_load[window[1]] - self.cumulative_load[window[0]]
                rounds_of[window] = max(1, int((-(-load // self.capacity)).max(initial=0)))
            rounds.append(rounds_of[window])
        return np.array(rounds, np.int64)

    def rate(self, depth: int) -> tuple[int, Fraction]:
        """Return (S, R / C) of the schedule at this depth, without listing sends."""
        rounds = self.rounds(depth)
        return len(rounds), Fraction(int(rounds.sum()), self.forest.weight * depth)

    def sends(self, depth: int) -> int:
        """Return the number of sends that `schedule` lists at this depth."""
        return int(self.forest.weights.sum()) * (self.forest.topology.ranks - 1) * depth

    def schedule(self, depth: int) -> CompressedSchedule:
        """Return the schedule of the forest's collective with `depth` chunks for each unit of weight.

        Raises UsageError where there are too many sends to list.
        """
        forest, levels, height = self.forest, self.levels, self.height
        if depth < 1:
            raise UsageError(f"a pipelining depth of {depth}; it must be at least 1")
        backwards, total = forest.collective in REVERSED, self.sends(depth)
        if total > MOST_SENDS:
            raise UsageError(
                f"{total} sends at a pipelining depth of {depth}; at most {MOST_SENDS} are listed: "
                "choose a smaller depth"
            )
        tree, rank = np.nonzero(forest.parents >= 0)
        weight = forest.weights[tree].astype(np.int64)
        first = _offsets(forest)[tree]
        # One row for each (hop of a tree, unit of its weight, chunk of this unit): `edge`, `unit`, `turn`.
        edge = np.repeat(np.arange(len(tree)), weight)
        unit = np.arange(len(edge)) - np.repeat(np.concatenate([[0], np.cumsum(weight)[:-1]]), weight) + first[edge]
        edge, unit = np.repeat(edge, depth), np.repeat(unit, depth)
        turn = np.tile(np.arange(depth), len(edge) // depth) if len(edge) else np.zeros(0, np.int64)
        steps = height + depth - 1
        step = levels[tree, rank][edge] - 1 + turn
        step = steps - 1 - step if backwards else step
        rounds = self.rounds(depth)
        shard = forest.roots[tree].astype(np.int64)[edge] if forest.root is None else 0
        chunk = (shard * forest.weight + unit) * depth + turn
        return CompressedSchedule(
            forest.topology,
            forest.collective,
            forest.root,
            forest.weight * depth,
            rounds[::-1] if backwards else rounds,
            step,
            chunk,
            forest.via[tree, rank].astype(np.int64)[edge],
            np.full(len(step), REDUCE if backwards else COPY),
            forest.paths,
            tuple(tuple(pi.tolist()) for pi in forest.generators),
        )


def _levels(forest: SpanningForest) -> np.ndarray:
    """Return the depth of each rank in each tree, in hops."""
    level = np.zeros(forest.parents.shape, np.int64)
    level[forest.parents >= 0] = -1
    parents = np.maximum(forest.parents, 0).astype(np.int64)
    parent_level = np.take_along_axis(level, parents, 1)
    while (level < 0).any():
        ready = (level < 0) & (parent_level >= 0)
        level[ready] = parent_level[ready] + 1
        parent_level = np.take_along_axis(level, parents, 1)
    return level


def _offsets(forest: SpanningForest) -> np.ndarray:
    """Return the first unit of each tree within the shard of its root."""
    start = np.zeros(len(forest.roots), np.int64)
    used: dict[int, int] = {}
    for k, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        start[k] = used.get(root, 0)
        used[root] = start[k] + weight
    return start


def _loads(forest: SpanningForest, levels: np.ndarray, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the chunks per round of the links and limits that the forest uses, and the load ``base[level, resource]``.

    It is in chunks on one link, when every tree sends one chunk for each unit of its weight and all images of the trees
    run.
    """
    from scipy.sparse import csr_matrix

    usage, capacity = link_loads(forest.topology, forest.generators)
    tree, rank = np.nonzero(forest.parents >= 0)
    via, level, weight = forest.via[tree, rank], levels[tree, rank] - 1, forest.weights[tree].astype(np.int64)
    hops = csr_matrix((weight, (level, via)), shape=(height, len(forest.paths)))
    load = csr_matrix(hops @ path_links(forest.paths, len(forest.topology.links)) @ usage)
    used = np.unique(load.indices)
    return capacity[used], load[:, used].toarray()


def scatter_then_gather(scatter: CompressedSchedule, gather: CompressedSchedule) -> CompressedSchedule:
    """Return the allreduce that runs a reduce-scatter and then an allgather.

    Raises UsageError where they differ in topology, chunks or symmetries.
    """
    same = (
        scatter.chunks == gather.chunks
        and scatter.generators == gather.generators
        and scatter.topology == gather.topology
    )
    if not same or (scatter.collective, gather.collective) != ("reduce-scatter", "allgather"):
        raise UsageError("an allreduce is made of a reduce-scatter and an allgather of equal chunks and symmetries")
    ranks = scatter.topology.ranks
    return CompressedSchedule(
        scatter.topology, "allreduce", None, scatter.chunks * ranks,
        np.concatenate([scatter.step_rounds, gather.step_rounds]),
        np.concatenate([scatter.step, gather.step + scatter.step_count]), np.concatenate([scatter.chunk, gather.chunk]),
        np.concatenate([scatter.path, gather.path + len(scatter.paths)]), np.concatenate([scatter.kind, gather.kind]),
        scatter.paths + gather.paths, scatter.generators,
    )  # fmt: skip
