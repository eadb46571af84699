"""Exact pricing over the sets of ranks that hold the chunk: against all trees, and against search."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.encodings.trees.cheapest_trees import MOST_FREE, SteinerTreeDP, make_pricer
from synth.encodings.trees.time_expanded_trees import Tree, TreeSearch
from synth.model.topology import Network, Route
from synth.topologies import topology


def every_tree(network: Network, steps: int, sources: set[int], targets: set[int]) -> list[Tree]:
    """All trees without idle relays, by trying every receive of every rank."""
    free = [n for n in range(network.ranks) if n not in sources]
    ways = [
        [None, *((t, i) for i, r in enumerate(network.routes) if r.dst == n for t in range(1, steps + 1))] for n in free
    ]
    found = []
    for chosen in product(*ways):
        at = dict.fromkeys(sources, 0) | {n: way[0] for n, way in zip(free, chosen, strict=True) if way is not None}
        sends = [way for way in chosen if way is not None]
        used = {network.routes[i].src for _, i in sends}
        in_time = all(at.get(network.routes[i].src, steps) < t for t, i in sends)
        if in_time and targets <= at.keys() and at.keys() - sources <= used | targets:
            found.append(tuple(sorted(sends)))
    return found


@st.composite
def cases(draw):
    ranks = draw(st.integers(2, 4))
    every = [(u, v) for u in range(ranks) for v in range(ranks) if u != v]
    ends = draw(st.lists(st.sampled_from(every), min_size=1, max_size=7))
    network = Network("random", ranks, tuple(Route(u, v, 1) for u, v in sorted(set(ends))))
    steps = draw(st.integers(1, 3))
    sources = draw(st.sets(st.integers(0, ranks - 1), min_size=1, max_size=2))
    targets = draw(st.sets(st.integers(0, ranks - 1), min_size=1))
    prices = [[draw(st.integers(0, 4)) for _ in range(steps)] for _ in network.routes]
    return network, steps, sources, targets, np.array(prices, dtype=float)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_cheapest_of_all_trees_is_found_and_the_cheapest_through_every_send_step(case):
    network, steps, sources, targets, prices = case
    if targets <= sources:
        return
    trees = every_tree(network, steps, sources, targets)
    found = SteinerTreeDP(network, steps, sources, targets).search(prices)
    assert bool(found) == bool(trees)
    if not trees:
        return

    def cost(tree: Tree) -> float:
        return sum(prices[i, t - 1] for t, i in tree)

    assert found[0][0] == min(map(cost, trees))
    assert {tree for _, tree in found} <= set(trees)
    assert all(cost(tree) == value for value, tree in found)
    # at least as good as any tree in which n is of use at t
    for n, t in product(range(network.ranks), range(1, steps + 1)):
        through = [tree for tree in trees if any(network.routes[i].dst == n and s == t for s, i in tree)]
        if through and n in targets:
            ours = [value for value, tree in found if any(network.routes[i].dst == n and s == t for s, i in tree)]
            assert ours and min(ours) == min(map(cost, through))


def test_no_search_finds_a_cheaper_tree():
    network = topology("dgx1").network()
    chance = np.random.default_rng(1)
    for steps in (2, 4):
        prices = chance.random((len(network.routes), steps))
        exact = SteinerTreeDP(network, steps, [0], range(8)).search(prices)[0][0]
        searched = TreeSearch(network, steps, [0], range(8), 1).search(prices, [], 64, 40)[0][0]
        assert exact <= searched * (1 + 1e-12)
        assert searched <= exact * 1.05


@pytest.mark.parametrize(("name", "kind"), [("dgx1", SteinerTreeDP), ("hypercube:16", TreeSearch)])
def test_many_ranks_are_searched(name, kind):
    network = topology(name).network()
    assert isinstance(make_pricer(network, 4, [0], range(network.ranks), 0), kind)
    assert SteinerTreeDP.fits(network, range(network.ranks - MOST_FREE))


def test_too_far_in_so_few_steps():
    assert SteinerTreeDP(topology("ring:6").network(), 2, [0], [3]).search(np.ones((12, 2))) == []
