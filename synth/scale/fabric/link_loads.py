"""Loads that sends over links put on orbits of links and on limits, exact, all images under symmetries included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.model.link_table import ends, members, widths
from synth.model.topology import Topology
from synth.scale.fabric.automorphisms import orbits


def link_orbits(topology: Topology, generators: Sequence[np.ndarray]) -> np.ndarray:
    """Return for each link the least link of its orbit under permutations of ranks and switches."""
    links = topology.links
    if not len(generators):
        return np.arange(len(links))
    nodes = topology.ranks + len(topology.switches)
    src, dst = ends(links)
    keys = src * nodes + dst
    order = np.argsort(keys, kind="stable")
    images = []
    for generator in map(np.asarray, generators):
        images.append(order[np.searchsorted(keys[order], generator[src] * nodes + generator[dst])])
    return orbits(len(links), images)


def group_order(topology: Topology, generators: Sequence[np.ndarray]) -> int:
    """Return the order of a commuting group that acts freely on the ranks, which is the size of an orbit of ranks."""
    if not len(generators):
        return 1
    label = orbits(topology.ranks, [np.asarray(g)[: topology.ranks] for g in generators])
    return int(np.bincount(label).max())


def link_loads(topology: Topology, generators: Sequence[np.ndarray]) -> tuple[Any, np.ndarray]:
    """Return the sparse matrix ``usage[link, resource]`` and the chunks that each resource carries in a round.

    Resources are orbits of links and distinct limits: a send over a link, with all its images, takes `usage` chunks of
    one member. Links that a limit dominates are left out.
    """
    from scipy.sparse import csr_matrix, hstack

    names, column = np.unique(link_orbits(topology, generators), return_inverse=True)
    images = group_order(topology, generators) // np.bincount(column)
    unit = topology.unit_bandwidth()
    wide, which = widths(topology.links)
    capacity = np.array([int(width / unit) for width in wide], np.int64)[which[names]]

    # the narrowest limit on each set of orbits, which may count a link several times
    sets: dict[tuple[bytes, bytes], tuple[np.ndarray, np.ndarray]] = {}
    narrowest: dict[tuple[bytes, bytes], int] = {}
    for limit, held in zip(topology.limits, members(topology.limits), strict=True):
        inside, count = np.unique(column[held], return_counts=True)
        key, units = (inside.tobytes(), count.tobytes()), int(limit.bandwidth / unit)
        sets[key] = inside, count
        narrowest[key] = min(units, narrowest.get(key, units))
    limit_capacity = np.array(list(narrowest.values()), np.int64)
    nothing = np.zeros(0, np.int64)
    place = np.concatenate([nothing, *(inside for inside, _ in sets.values())])
    times = np.concatenate([nothing, *(count for _, count in sets.values())])
    limit_of = np.repeat(np.arange(len(sets)), [len(inside) for inside, _ in sets.values()])

    # a link is dominated where a limit takes at least as much of it, for its capacity
    dominated = np.zeros(len(names), bool)
    dominated[place[times * capacity[place] >= limit_capacity[limit_of]]] = True
    links = np.arange(len(column))
    by_orbit = csr_matrix((images[column], (links, column)), shape=(len(links), len(names)), dtype=np.int64)
    of_limits = csr_matrix((times, (place, limit_of)), shape=(len(names), len(sets)), dtype=np.int64)
    usage = csr_matrix(hstack([by_orbit[:, ~dominated], by_orbit @ of_limits]))
    return usage, np.concatenate([capacity[~dominated], limit_capacity])


def path_links(paths: Sequence[Sequence[int]], links: int) -> Any:
    """Return the sparse matrix that counts each link of each path."""
    from scipy.sparse import csr_matrix

    lengths = np.array([len(path) for path in paths], np.int64)
    flat = np.array([link for path in paths for link in path], np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    return csr_matrix((np.ones(len(flat), np.int64), (row, flat)), shape=(len(lengths), links))
