"""From rates to schedules: the trees of a forest, pipelined, as a step-synchronous bulk schedule.

Each unit of a tree's weight is cut into `depth` chunks that follow each other down the tree, one step behind the other:
S = height + depth - 1 steps, C = weight * depth chunks a unit. A step has as many rounds as its most loaded link or
limit needs. R / C falls towards the forest's rate as `depth` grows; the height is the price of few chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from synth.errors import UsageError
from synth.model.compressed_schedule import COPY, REDUCE, Bulk
from synth.model.link_table import ends, widths
from synth.model.spanning_forest import Forest
from synth.model.topology import Topology
from synth.scale.fabric.automorphisms import orbits

MOST_SENDS = 1 << 28
TURNED = ("reduce-scatter", "reduce")


class Pipeline:
    """A forest with the loads of its levels: `rate` and `bulk` at any depth."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self.levels = _levels(forest)
        self.height = int(self.levels.max(initial=0))
        room, base = _loads(forest, self.levels, self.height)
        self.room, self.upto = room, np.concatenate([np.zeros((1, base.shape[1]), np.int64), np.cumsum(base, axis=0)])

    def rounds(self, depth: int) -> np.ndarray:
        """Rounds of each step, data spreading from the roots: the load of a step is that of the levels that are busy in
        it."""
        found: dict[tuple[int, int], int] = {}
        rounds = []
        for t in range(self.height + depth - 1):
            window = (max(0, t - depth + 1), min(t, self.height - 1) + 1)
            if window not in found:
                load = self.upto[window[1]] - self.upto[window[0]]
                found[window] = max(1, int((-(-load // self.room)).max(initial=0)))
            rounds.append(found[window])
        return np.array(rounds, np.int64)

    def rate(self, depth: int) -> tuple[int, Fraction]:
        """(S, R / C) of `bulk` at that depth, without listing sends."""
        rounds = self.rounds(depth)
        return len(rounds), Fraction(int(rounds.sum()), self.forest.weight * depth)

    def sends(self, depth: int) -> int:
        """How many sends `bulk` lists at that depth."""
        return int(self.forest.weights.sum()) * (self.forest.topology.ranks - 1) * depth

    def bulk(self, depth: int) -> Bulk:
        """The forest's collective with `depth` chunks for each unit of weight. Raises UsageError where that is too many
        sends to list."""
        forest, levels, height = self.forest, self.levels, self.height
        if depth < 1:
            raise UsageError(f"a pipelining depth of {depth}; it must be at least 1")
        backwards, total = forest.collective in TURNED, self.sends(depth)
        if total > MOST_SENDS:
            raise UsageError(
                f"{total} sends at a pipelining depth of {depth}; at most {MOST_SENDS} are listed, choose a smaller "
                f"depth"
            )
        tree, rank = np.nonzero(forest.parents >= 0)
        weight = forest.weights[tree].astype(np.int64)
        first = _offsets(forest)[tree]
        # one row per (edge of a tree, unit of its weight, chunk of that unit)
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
        return Bulk(
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


def bulk(forest: Forest, depth: int) -> Bulk:
    """`Pipeline(forest).bulk(depth)`."""
    return Pipeline(forest).bulk(depth)


def rate(forest: Forest, depth: int) -> tuple[int, Fraction]:
    """`Pipeline(forest).rate(depth)`."""
    return Pipeline(forest).rate(depth)


def _levels(forest: Forest) -> np.ndarray:
    """How far each rank is from the root of each tree, in edges."""
    level = np.zeros(forest.parents.shape, np.int64)
    level[forest.parents >= 0] = -1
    done = np.take_along_axis(level, np.maximum(forest.parents, 0).astype(np.int64), 1)
    while (level < 0).any():
        ready = (level < 0) & (done >= 0)
        level[ready] = done[ready] + 1
        done = np.take_along_axis(level, np.maximum(forest.parents, 0).astype(np.int64), 1)
    return level


def _offsets(forest: Forest) -> np.ndarray:
    """Where each tree's units of weight start within its root's shard."""
    start = np.zeros(len(forest.roots), np.int64)
    used: dict[int, int] = {}
    for k, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        start[k] = used.get(root, 0)
        used[root] = start[k] + weight
    return start


def _loads(forest: Forest, levels: np.ndarray, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Units of the links and limits that are used at all, and the chunks that each level puts on them when all trees
    send one."""
    topology = forest.topology
    label = link_orbits(topology, forest.generators)
    copies = group_order(topology, forest.generators)
    sizes = np.bincount(label, minlength=len(label))
    tree, rank = np.nonzero(forest.parents >= 0)
    via, level, weight = forest.via[tree, rank], levels[tree, rank] - 1, forest.weights[tree].astype(np.int64)
    lengths = np.array([len(p) for p in forest.paths], np.int64)
    flat = np.array([i for p in forest.paths for i in p], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    count = lengths[via]
    hop = flat[np.repeat(starts[via] - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(count.sum())]
    used, column = np.unique(label[hop], return_inverse=True)
    base = np.zeros((height, len(used)), np.int64)
    np.add.at(base, (np.repeat(level, count), column), np.repeat(weight, count))
    base = base * copies // sizes[used]
    unit = topology.unit_bandwidth()
    wide, which = widths(topology.links)
    room = np.array([int(width / unit) for width in wide], np.int64)[which[used]]
    where = np.full(len(label), -1, np.int64)
    where[used] = np.arange(len(used))
    rows, rooms, seen = [], [], set()
    for limit in topology.limits:
        columns = where[label[np.asarray(limit.links, np.int64)]]
        members, times = np.unique(columns[columns >= 0], return_counts=True)
        key = (members.tobytes(), times.tobytes(), limit.bandwidth)
        if len(members) and key not in seen:
            seen.add(key)
            rows.append((base[:, members] * times).sum(axis=1))
            rooms.append(int(limit.bandwidth / unit))
    if rows:
        base, room = np.concatenate([base, np.array(rows).T], axis=1), np.concatenate([room, np.array(rooms, np.int64)])
    return room, base


def link_orbits(topology: Topology, generators: Sequence[np.ndarray]) -> np.ndarray:
    """For each link the least link of its orbit under permutations of ranks and switches."""
    links = topology.links
    if not len(generators):
        return np.arange(len(links))
    nodes = topology.ranks + len(topology.switches)
    src, dst = ends(links)
    keys = src * nodes + dst
    order = np.argsort(keys, kind="stable")
    images = [order[np.searchsorted(keys[order], g[src] * nodes + g[dst])] for g in map(np.asarray, generators)]
    return orbits(len(links), images)


def group_order(topology: Topology, generators: Sequence[np.ndarray]) -> int:
    """How many images a send has: the size of the orbits of ranks under a commuting group that acts freely on them."""
    if not len(generators):
        return 1
    label = orbits(topology.ranks, [np.asarray(g)[: topology.ranks] for g in generators])
    return int(np.bincount(label).max())


def composed(scatter: Bulk, gather: Bulk) -> Bulk:
    """An allreduce: the reduce-scatter, and after its last step the allgather, of the same chunks and symmetries.
    Raises UsageError."""
    same = (
        scatter.chunks == gather.chunks
        and scatter.generators == gather.generators
        and scatter.topology == gather.topology
    )
    if not same or (scatter.collective, gather.collective) != ("reduce-scatter", "allgather"):
        raise UsageError("an allreduce is made of a reduce-scatter and an allgather of equal chunks and symmetries")
    ranks = scatter.topology.ranks
    return Bulk(
        scatter.topology, "allreduce", None, scatter.chunks * ranks, np.concatenate([scatter.rounds, gather.rounds]),
        np.concatenate([scatter.step, gather.step + scatter.steps]), np.concatenate([scatter.chunk, gather.chunk]),
        np.concatenate([scatter.path, gather.path + len(scatter.paths)]), np.concatenate([scatter.kind, gather.kind]),
        scatter.paths + gather.paths, scatter.generators,
    )  # fmt: skip


def turned(made: Bulk) -> Bulk:
    """The reduce-scatter that is an allgather backwards in time; each link it uses must be there both ways. Raises
    UsageError."""
    if made.collective != "allgather":
        raise UsageError(f"{made.collective} is not turned")
    back = {(k.src, k.dst): i for i, k in enumerate(made.topology.links)}
    links = made.topology.links
    try:
        paths = tuple(tuple(back[links[i].dst, links[i].src] for i in reversed(path)) for path in made.paths)
    except KeyError as error:
        raise UsageError(f"{made.topology.name} has no link {error.args[0][0]} -> {error.args[0][1]}") from None
    if any(
        links[a].bandwidth != links[b].bandwidth
        for p, q in zip(made.paths, paths, strict=True)
        for a, b in zip(p, reversed(q), strict=True)
    ):
        raise UsageError(f"{made.topology.name} is not equally fast both ways")
    return Bulk(
        made.topology,
        "reduce-scatter",
        None,
        made.chunks,
        made.rounds[::-1].copy(),
        made.steps - 1 - made.step,
        made.chunk,
        made.path,
        np.full(len(made.step), REDUCE),
        paths,
        made.generators,
    )
