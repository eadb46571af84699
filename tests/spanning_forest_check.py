"""Checks forests from nothing but the topology and the forest: every tree is written out, and every link counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from synth.scale.forests.spanning_forest import COLLECTIVES, ROOTED, TURNED, SpanningForest


class Verified(NamedTuple):
    """Figures of a forest: seconds per GB of a shard, GB/s of algorithmic bandwidth, depth of the trees, trees, links
    in use."""

    time: Fraction
    bandwidth: Fraction
    depth: int
    trees: int
    busy: int


def trees_of(forest: SpanningForest) -> Iterator[tuple[int, int, np.ndarray, int, np.ndarray]]:
    """Every tree of the whole forest: root, weight, parents, and the listed tree and the element it is the image of."""
    ranks = forest.topology.ranks
    queue = [np.arange(ranks + len(forest.topology.switches))]
    seen = {queue[0].tobytes()}
    for element in queue:
        for generator in forest.generators:
            product = generator[element]
            if product.tobytes() not in seen:
                seen.add(product.tobytes())
                queue.append(product)
    for element in queue:
        for k, root in enumerate(forest.roots.tolist()):
            above = forest.parents[k]
            parents = np.empty_like(above)
            parents[element[:ranks]] = np.where(above < 0, -1, element[np.maximum(above, 0)])
            yield int(element[root]), int(forest.weights[k]), parents, k, element


def verify(forest: SpanningForest) -> Verified:
    """Raises AssertionError, with what is wrong, unless the forest does its collective in the time it states."""
    machine, ranks, links = forest.topology, forest.topology.ranks, forest.topology.links
    assert forest.collective in COLLECTIVES, "is not moved by forests"
    assert (forest.root is None) == (forest.collective not in ROOTED), "a root is for broadcast and reduce"

    # Hops of the trees as they are listed: ways of links through switches, between the ranks that they join.
    hops: list[list[int]] = []
    for k in range(len(forest.roots)):
        listed = []
        for rank, parent in enumerate(forest.parents[k].tolist()):
            if parent < 0:
                continue
            way = forest.paths[forest.via[k, rank]]
            assert way and all(links[a].dst == links[b].src >= ranks for a, b in pairwise(way)), (
                "is no way through switches"
            )
            ends = (rank, parent) if forest.collective in TURNED else (parent, rank)
            assert (links[way[0]].src, links[way[-1]].dst) == ends, "does not lead from rank to rank"
            listed += way
        hops.append(listed)

    # Images of links: of the same ends' images, width and place among parallel ones.
    alike: dict[tuple, list[int]] = defaultdict(list)
    place = []
    for i, link in enumerate(links):
        row = alike[link.src, link.dst, link.bandwidth]
        place.append(len(row))
        row.append(i)
    limits = Counter((limit.bandwidth, frozenset(limit.links)) for limit in machine.limits)

    load, shards = Counter[int](), Counter[int]()
    depth = trees = 0
    image: dict[bytes, list[int]] = {}
    for root, weight, parents, k, element in trees_of(forest):
        assert weight > 0 and sorted(element.tolist()) == list(range(ranks + len(machine.switches))), "no permutation"
        key = element.tobytes()
        if key not in image:
            moved = []
            for i, link in enumerate(links):
                row = alike.get((int(element[link.src]), int(element[link.dst]), link.bandwidth), ())
                assert len(row) > place[i], "does not keep links"
                moved.append(row[place[i]])
            kept = Counter((limit.bandwidth, frozenset(moved[i] for i in limit.links)) for limit in machine.limits)
            assert kept == limits, "does not keep limits"
            image[key] = moved
        assert parents[root] == -1 and (np.delete(parents, root) >= 0).all(), "a rank has no parent, or a root has one"
        at, far = parents.copy(), 1
        while (at >= 0).any():  # every rank goes to its parent, until all are above the root
            at = np.where(at < 0, -1, parents[at])
            far += 1
            assert far <= ranks + 1, "does not hang on its root"
        depth, trees = max(depth, far - 1), trees + 1
        shards[root] += weight
        moved = image[key]
        for i in hops[k]:
            load[moved[i]] += weight

    wanted = range(ranks) if forest.root is None else [forest.root]
    assert shards == dict.fromkeys(wanted, forest.weight), "the trees do not carry the shards whole"
    time = max((Fraction(count, forest.weight) / links[i].bandwidth for i, count in load.items()), default=Fraction(0))
    for limit in machine.limits:
        time = max(time, Fraction(sum(load[i] for i in limit.links), forest.weight) / limit.bandwidth)
    assert time <= forest.time, f"needs {time} s per GB of a shard, more than the {forest.time} it states"
    return Verified(time, len(wanted) / time, depth, trees, len(load))
