"""Lanes of scans over relays: on machines of all shapes, and over ranks that take their sum again."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, permutations
from random import Random

import pytest

from synth.checker.schedule import replay
from synth.frontiers.pipelined_scans import Way, _Group
from synth.frontiers.scan_lanes import LaneRouter, NoPathError, chain, one_after_another, side_by_side, through_hubs
from synth.model.collective import collective
from synth.model.topology import Link, Topology


def group_of(network, lanes):
    """Return the group of lanes that are written already."""
    way = Way("lanes of a test", lambda router, k: lanes[k % len(lanes)], (0,) * network.ranks)
    return _Group(way, network, lanes)


def replayed(network, lanes, groups=2):
    made = group_of(network, lanes).pipelined(collective("scan", network.ranks), len(lanes), groups)
    found = replay.schedule(made)
    assert (found.steps, found.rounds_per_chunk) == (len(made.steps), made.rounds_per_chunk)


def both_ways(ranks, pairs, widths=(1,)):
    """Return the network with links both ways between these pairs of ranks."""
    links = []
    for i, ends in enumerate(pairs):
        links += [Link(*way, widths[i % len(widths)]) for way in permutations(ends)]
    return Topology("a machine", ranks, links).network()


def random_machine(rng):
    """Return a connected network, of a tree in any order and some links more, and boxes of its ranks."""
    ranks = rng.randint(4, 10)
    order = rng.sample(range(ranks), ranks)
    pairs = [(order[i], order[rng.randrange(i)]) for i in range(1, ranks)]
    pairs += [tuple(rng.sample(range(ranks), 2)) for _ in range(rng.randint(0, 2 * ranks))]
    widths = rng.choices((1, 2, 3, 5), k=3)
    pairs = [tuple(sorted(pair)) for pair in pairs]
    network = both_ways(ranks, list(dict.fromkeys(pairs)), widths)
    count = rng.randint(2, ranks // 2)
    sizes = [2] * count
    for _ in range(ranks - 2 * count):
        sizes[rng.randrange(count)] += 1
    ends = accumulate(sizes)
    return network, [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("make", [chain, side_by_side, one_after_another, through_hubs])
def test_lanes_are_scans_on_machines_of_all_shapes(make, balanced):
    """Where links go both ways, a chain has a path to each next rank; hubs may have none for inputs of ranks that hold
    sums, which do not change with others, and none to exchange their sums."""
    rng = Random(7)
    machines = 0
    for _ in range(300):
        network, boxes = random_machine(rng)
        by_box = rng.random() < 1 / 4
        nodes = [b for b, box in enumerate(boxes) for _ in box]
        router = LaneRouter(network, nodes if by_box else [0] * network.ranks, balanced)
        lanes = []
        for k in range(5):
            try:
                lanes.append(chain(router) if make is chain else make(router, boxes, k))
            except NoPathError:
                assert make is not chain or by_box
        if lanes:
            replayed(network, lanes)
            machines += 1
    assert machines >= (100 if make is through_hubs else 200)


def sends_between_ranks(lane):
    return sum(not send.local for step in lane for send in step)


def without_taking_again(monkeypatch):
    monkeypatch.setattr(LaneRouter, "_can_take_again", lambda *_: False)


@pytest.mark.parametrize("balanced", [False, True])
def test_a_relay_takes_its_sum_again(balanced, monkeypatch):
    """Rank 1 is the hub of a star. It holds the sum of 0 and 1 when the others' sums pass."""
    network = both_ways(6, [(1, rank) for rank in (0, 2, 3, 4, 5)])
    lane = chain(LaneRouter(network, (0,) * 6, balanced))
    replayed(network, [lane], 3)
    assert sends_between_ranks(lane) == 2 + 3 * 3  # the value to rank 1, on to the next rank, and that of 0 again
    without_taking_again(monkeypatch)
    other = chain(LaneRouter(network, (0,) * 6, balanced))
    replayed(network, [other], 3)
    assert sends_between_ranks(other) == 2 + 5 * 3  # two to change values, one on, two to change them back


def test_a_relay_takes_the_sum_of_a_rank_that_holds_one_again(monkeypatch):
    """Rank 2 has links to all but rank 0, and takes the sum of ranks 0 and 1 from rank 1."""
    network = both_ways(6, [(0, 1), (2, 1), (2, 3), (2, 4), (2, 5)])
    lane = chain(LaneRouter(network, (0,) * 6))
    replayed(network, [lane], 3)
    assert sends_between_ranks(lane) == 3 + 3 * 2
    assert Counter(send.kind for step in lane for send in step if (send.src, send.dst) == (1, 2))["copy"] == 2
    without_taking_again(monkeypatch)
    assert sends_between_ranks(chain(LaneRouter(network, (0,) * 6))) == 3 + 5 * 2


def test_a_relay_that_has_no_link_from_the_rank_before_changes_values():
    """Rank 2 is the hub of 0, 3, 4 and 5, and rank 1 is behind rank 0."""
    network = both_ways(6, [(0, 1), (2, 0), (2, 3), (2, 4), (2, 5)])
    lane = chain(LaneRouter(network, (0,) * 6))
    replayed(network, [lane], 3)
    assert sends_between_ranks(lane) == 1 + 2 + 1 + 5 * 2


def test_two_relays_in_a_row_take_their_sums_again():
    """From rank 3 to 4 ranks 1 and 2 are on the way: 1 takes its sum from 0, and then 2 takes that of 1. The other way,
    from 4 to 5, the value comes to rank 2 first, which could not take the sum of rank 1, whose slot is not free."""
    network = both_ways(6, [(0, 1), (1, 2), (1, 3), (2, 4), (1, 5)])
    lane = chain(LaneRouter(network, (0,) * 6))
    replayed(network, [lane], 3)
    kinds = Counter((send.src, send.dst, send.kind) for step in lane for send in step)
    assert kinds[0, 1, "copy-input"] >= 1 and kinds[1, 2, "copy"] >= 1


def test_a_link_one_way_is_enough_for_a_relay_that_takes_its_sum_again():
    """The value could not change with that of rank 1, which has no link back to rank 2."""
    links = [Link(*ends, 1) for ends in [(0, 1), (1, 2), (2, 1), (1, 3)]]
    network = Topology("one way", 4, links).network()
    lane = chain(LaneRouter(network, (0,) * 4))
    replayed(network, [lane], 3)
    assert sends_between_ranks(lane) == 2 + 3


def test_the_rank_before_may_hold_the_sum_with_the_input_of_the_relay():
    """The hub of the first box is rank 0. Its sum of both ranks passes rank 1, whose own prefix is that sum, too."""
    network = both_ways(4, [(0, 1), (1, 2), (2, 3)])
    lane = side_by_side(LaneRouter(network, (0, 0, 1, 1)), [range(2), range(2, 4)], 1)
    replayed(network, [lane], 3)
