"""Checks forests at any scale, from nothing but the topology and the forest: no code of what builds them is used.

Trees span and hang on their roots; each hop is a way of links and switches that the topology has; generators keep
links, limits and bandwidths, commute, and move every rank unless they are the identity; every rank's shard is moved
whole; and the load of each link and each limit is counted exactly, on orbits of links, without making the images of
trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NoReturn

import numpy as np

from synth.errors import VerificationError
from synth.model.link_table import ends, members, widths
from synth.model.spanning_forest import COLLECTIVES, ROOTED, TURNED, SpanningForest
from synth.model.topology import Topology

MOST = 1 << 62


@dataclass(frozen=True)
class Verified:
    """Figures of a forest: seconds per GB of a shard, GB/s of algorithmic bandwidth, depth of the trees, trees, links
    in use."""

    time: Fraction
    bandwidth: Fraction
    depth: int
    trees: int
    busy: int


def verify(forest: SpanningForest) -> Verified:
    """Raises VerificationError, with the place, unless the forest does its collective in the time it states."""
    _shapes(forest)
    wires = _Wires(forest.topology)
    depth = _spanning(forest)
    _hops(forest, wires)
    images = [_link_images(wires, pi, f"generators[{g}]") for g, pi in enumerate(forest.generators)]
    order, label = _group(forest)
    _shards(forest, label)
    load = _loads(forest, len(wires.src), images, order)
    time = max(
        _slowest(load, wires.width, forest.weight),
        _slowest(_limit_loads(wires, load), wires.limit_width, forest.weight),
    )
    if time > forest.time:
        _fail(f"needs {time} s per GB of a shard, more than the {forest.time} it states", "time")
    shards = 1 if forest.collective in ROOTED else forest.topology.ranks
    return Verified(time, shards / time, depth, len(forest.roots) * order, int((load > 0).sum()))


def _fail(message: str, place: str) -> NoReturn:
    raise VerificationError(message, place)


def _shapes(forest: SpanningForest) -> None:
    ranks, count = forest.topology.ranks, len(forest.roots)
    if forest.collective not in COLLECTIVES:
        _fail(f"{forest.collective[:40]!r} is not moved by forests", "collective")
    if (forest.root is None) == (forest.collective in ROOTED):
        _fail("a root is for broadcast and reduce", "root")
    if ranks < 2 or not count:
        _fail("expected two ranks and one tree or more", "roots")
    for name in ("parents", "via"):
        rows = getattr(forest, name)
        if rows.shape != (count, ranks) or rows.dtype.kind != "i":
            _fail(f"expected integers of shape {(count, ranks)}", name)
    if ((forest.roots < 0) | (forest.roots >= ranks)).any():
        _fail("is no rank", "roots")
    if (
        forest.weights.shape != (count,)
        or forest.weights.dtype.kind != "i"
        or (forest.weights <= 0).any()
        or forest.weight <= 0
    ):
        _fail("are positive integers, one a tree", "weights")
    longest = max(map(len, forest.paths), default=0)
    if forest.weight * ranks * ranks * max(longest, 1) >= MOST or int(forest.weights.max()) * count >= MOST:
        _fail("are too large to add up in 64 bits", "weights")
    if forest.generators and forest.collective in ROOTED:
        _fail("a group that moves every rank moves the root", "generators")


def _spanning(forest: SpanningForest) -> int:
    """Follows all parents at once, by doubling; returns the depth."""
    ranks = forest.topology.ranks
    rows = np.arange(len(forest.roots))
    above = forest.parents.astype(np.int64)
    if (above[rows, forest.roots] != -1).any():
        _fail("a root has a parent", "parents")
    above[rows, forest.roots] = forest.roots
    if ((above < 0) | (above >= ranks)).any():
        _fail("a rank has no parent", "parents")
    far = (above != np.arange(ranks)).astype(np.int64)
    if (far.sum(axis=1) != ranks - 1).any():
        _fail("a rank is its own parent", "parents")
    hops = 1
    while hops < ranks:
        far += np.take_along_axis(far, above, 1)
        above = np.take_along_axis(above, above, 1)
        hops *= 2
    wrong = np.argwhere(above != forest.roots[:, None])
    if len(wrong):
        k, r = wrong[0].tolist()
        _fail(f"rank {r} does not hang on root {int(forest.roots[k])}", f"parents[{k}]")
    return int(far.max())


class _Wires:
    """The topology's links and limits as arrays; equal widths have equal numbers."""

    def __init__(self, topology: Topology) -> None:
        self.ranks, self.nodes = topology.ranks, topology.ranks + len(topology.switches)
        self.src, self.dst = ends(topology.links)
        (wide, kind), (narrow, limit) = widths(topology.links), widths(topology.limits)
        values = list(dict.fromkeys([*wide, *narrow]))
        self.kind = kind  # its numbers come first
        self.limit_kind = np.array([values.index(width) for width in narrow], np.int64)[limit]
        self.width = [(value, self.kind == i) for i, value in enumerate(values)]
        self.limit_width = [(value, self.limit_kind == i) for i, value in enumerate(values)]
        self.members = np.concatenate([np.zeros(0, np.int64), *members(topology.limits)])
        self.owner = np.repeat(np.arange(len(topology.limits)), [len(m.links) for m in topology.limits])

        self.here = self.order(self.src, self.dst)

    @cached_property
    def limit_sets(self) -> list[tuple[int, bytes]]:
        """Return the limits as `_limit_sets` has them, of the limits where they are."""
        return _limit_sets(self, self.members)

    def order(self, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        """Links by ends and width; parallel ones of a width stay as they are listed."""
        return np.argsort((src * self.nodes + dst) * (len(self.width) + 1) + self.kind, kind="stable")


def _hops(forest: SpanningForest, wires: _Wires) -> None:
    """Every hop's path begins and ends where it should, and leads through switches only."""
    count = len(forest.paths)
    rows, ranks = np.nonzero(forest.parents >= 0)
    via = forest.via[rows, ranks].astype(np.int64)
    if ((via < 0) | (via >= count)).any():
        _fail("is no path", "via")
    if any(not path or not all(0 <= i < len(wires.src) for i in path) for path in forest.paths):
        _fail("is empty or holds no link", "paths")
    first = np.fromiter((wires.src[path[0]] for path in forest.paths), np.int64, count)
    last = np.fromiter((wires.dst[path[-1]] for path in forest.paths), np.int64, count)
    for k, path in enumerate(forest.paths):
        for a, b in pairwise(path):
            if wires.dst[a] != wires.src[b] or wires.dst[a] < wires.ranks:
                _fail("is no way through switches", f"paths[{k}]")
    above = forest.parents[rows, ranks]
    start, end = (ranks, above) if forest.collective in TURNED else (above, ranks)
    wrong = np.flatnonzero((first[via] != start) | (last[via] != end))
    if len(wrong):
        i = int(wrong[0])
        _fail(f"does not lead from rank {int(start[i])} to rank {int(end[i])}", f"via[{int(rows[i])}][{int(ranks[i])}]")


def _link_images(wires: _Wires, permutation: np.ndarray, place: str) -> np.ndarray:
    """Where the links go; fails unless links, widths and limits are kept."""
    if permutation.shape != (wires.nodes,) or (np.sort(permutation) != np.arange(wires.nodes)).any():
        _fail(f"is no permutation of {wires.nodes} ranks and switches", place)
    if (permutation[: wires.ranks] >= wires.ranks).any():
        _fail("carries a rank to a switch", place)
    src, dst = permutation[wires.src], permutation[wires.dst]
    here, there = wires.here, wires.order(src, dst)
    if (
        (wires.src[here] != src[there]).any()
        or (wires.dst[here] != dst[there]).any()
        or (wires.kind[here] != wires.kind[there]).any()
    ):
        _fail("does not keep links and their bandwidths", place)
    image = np.empty(len(here), np.int64)
    image[there] = here
    if len(wires.owner) and wires.limit_sets != _limit_sets(wires, image[wires.members]):
        _fail("does not keep limits", place)
    return image


def _limit_sets(wires: _Wires, members: np.ndarray) -> list[tuple[int, bytes]]:
    """The width of each limit and its links, sorted: by limits of one size, a row each."""
    sizes = np.bincount(wires.owner, minlength=len(wires.limit_kind))
    small = members.astype(np.int32 if len(wires.src) < 1 << 31 else np.int64)
    found: list[tuple[int, bytes]] = []
    for size in np.unique(sizes).tolist():
        chosen = sizes == size
        rows = np.sort(small[np.repeat(chosen, sizes)].reshape(int(chosen.sum()), size), axis=1)
        found += zip(wires.limit_kind[chosen].tolist(), map(np.ndarray.tobytes, rows), strict=True)
    return sorted(found)


def _orbits(size: int, images: Sequence[np.ndarray]) -> np.ndarray:
    """The least member of each one's orbit: along each permutation by doubling its power, until nothing changes."""
    label = np.arange(size)
    while True:
        before = label
        for image in images:
            power, reach = image, 1
            while reach < size:
                low = np.minimum(label, label[power])
                if (low == label).all():
                    break
                label, power, reach = low, power[power], 2 * reach
        if (label == before).all():
            return label


def _group(forest: SpanningForest) -> tuple[int, np.ndarray]:
    """The order of the group and the orbits of ranks, after checking that it is commutative and moves all ranks or
    none."""
    ranks = forest.topology.ranks
    moves = [pi[:ranks] for pi in forest.generators]
    for a, pi in enumerate(forest.generators):
        for b, other in enumerate(forest.generators[:a]):
            if (pi[other] != other[pi]).any():
                _fail(f"do not commute: {b} and {a}", "generators")
    label = _orbits(ranks, moves)
    sizes = np.bincount(label)
    sizes = sizes[sizes > 0]
    order = int(sizes[0])
    if (sizes != order).any():
        _fail("have orbits of unequal size", "generators")
    # In a commutative group an element that fixes a rank fixes its orbit: one rank of an orbit distinguishes elements.
    start = np.flatnonzero(label == np.arange(ranks))
    if len(start) > 1 and moves:
        seen, queue = {start.tobytes()}, [start]
        for points in queue:
            for pi in moves:
                image = pi[points]
                if image.tobytes() not in seen:
                    seen.add(image.tobytes())
                    queue.append(image)
            if len(seen) > order:
                _fail("fix some ranks and move others", "generators")
    return order, label


def _shards(forest: SpanningForest, label: np.ndarray) -> None:
    """Each rank's shard is moved whole, or the root's."""
    moved = np.zeros(forest.topology.ranks, np.int64)
    np.add.at(moved, label[forest.roots], forest.weights)
    want = np.zeros_like(moved)
    want[label if forest.root is None else forest.root] = forest.weight
    wrong = np.flatnonzero(moved != want)
    if len(wrong):
        r = int(wrong[0])
        _fail(f"rank {r}'s trees carry {int(moved[r])} of {int(want[r])} units", "weights")


def _loads(forest: SpanningForest, links: int, images: Sequence[np.ndarray], order: int) -> np.ndarray:
    """Units over each link, all trees and images together."""
    rows, ranks = np.nonzero(forest.parents >= 0)
    uses = np.zeros(len(forest.paths), np.int64)
    np.add.at(uses, forest.via[rows, ranks], forest.weights[rows].astype(np.int64))
    flat = np.concatenate([np.array(path, np.int64) for path in forest.paths])
    load = np.zeros(links, np.int64)
    np.add.at(load, flat, np.repeat(uses, [len(path) for path in forest.paths]))
    if not images:
        return load
    label = _orbits(links, images)
    total = np.zeros(links, np.int64)
    np.add.at(total, label, load)
    sizes = np.bincount(label, minlength=links)
    return (total * (order // np.maximum(sizes, 1)))[label]


def _limit_loads(wires: _Wires, load: np.ndarray) -> np.ndarray:
    found = np.zeros(len(wires.limit_kind), np.int64)
    np.add.at(found, wires.owner, load[wires.members])
    return found


def _slowest(load: np.ndarray, widths: Sequence[tuple[Fraction, np.ndarray]], weight: int) -> Fraction:
    """The longest time of a link or limit: units over it, as parts of a shard, by its bandwidth."""
    return max(
        (Fraction(int(load[chosen].max()), weight) / value for value, chosen in widths if chosen.any()),
        default=Fraction(0),
    )
