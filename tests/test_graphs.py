"""Distances and components of directed graphs, against plain searches."""

from __future__ import annotations

import numpy as np
import pytest

from synth.model.permutations import orbits
from synth.scale.fabric.automorphisms import orbits as orbit_labels
from synth.scale.fabric.graphs import components, distances


@pytest.mark.parametrize("seed", range(6))
def test_distances_are_those_of_relaxation(seed):
    random = np.random.default_rng(seed)
    nodes, edges = 12, 26
    src, dst = random.integers(nodes, size=(2, edges))  # with loops and parallel edges
    for costs in (None, (np.arange(nodes) < 7).astype(np.int64)):
        entering = np.ones(nodes, np.int64) if costs is None else costs
        expected = np.where(np.arange(nodes) == 3, 0, 1 << 30)
        for _ in range(nodes):
            np.minimum.at(expected, dst, expected[src] + entering[dst])
        expected[expected >= 1 << 20] = -1
        assert distances(nodes, src, dst, 3, costs).tolist() == expected.tolist()


def test_components_are_weak_or_strong():
    src, dst = np.array([0, 1, 2, 3]), np.array([1, 0, 1, 4])
    weak, strong = components(6, src, dst), components(6, src, dst, strong=True)
    assert len(set(weak.tolist())) == 3 and weak[0] == weak[1] == weak[2] and weak[3] == weak[4]
    assert len(set(strong.tolist())) == 5 and strong[0] == strong[1] != strong[2]


def test_orbits_are_named_by_their_least_members():
    moves = [(1, 2, 0, 3, 5, 4, 6), (0, 1, 2, 6, 4, 5, 3)]
    assert orbits(7, moves) == [0, 0, 0, 3, 4, 4, 3] == orbit_labels(7, list(map(np.array, moves))).tolist()
    assert orbits(3, ()) == [0, 1, 2]
