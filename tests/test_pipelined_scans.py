"""Pipelined scans: along a chain of all ranks, over relays too, and over boxes with all their NICs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise, permutations
from random import Random

import numpy as np
import pytest

from synth.bounds.single_cut import single_cut_bound
from synth.checker.schedule import replay
from synth.encodings.prefix_planning.chunk_assembly import quick_plans
from synth.frontiers import pipelined_scans
from synth.frontiers.pipelined_scans import (
    NO_GOAL,
    Way,
    _Group,
    _group_sizes,
    box_ways,
    chain_ways,
    hub_ways,
    planned_ways,
)
from synth.frontiers.scan_lanes import LaneRouter, NoPathError, chain, one_after_another, side_by_side, through_hubs
from synth.model.collective import collective
from synth.model.dead_sends import with_fewest_rounds
from synth.model.schedule import Step
from synth.model.topology import Limit, Link, Topology
from synth.topologies import topology


def scans(network, ways, goal=NO_GOAL, known=()):
    """Yield the schedules of these ways in the order in which they are offered."""
    for _, schedule in pipelined_scans.pipelined_scans(network, collective("scan", network.ranks), ways, goal, known):
        yield schedule


def box_scans(network, nodes, goal=NO_GOAL, known=()):
    return scans(network, box_ways(nodes), goal, known)


def hub_scans(network, nodes=(), goal=NO_GOAL):
    return scans(network, hub_ways(network, nodes), goal)


def chain_scans(network, nodes=(), goal=NO_GOAL):
    return scans(network, chain_ways(network, nodes), goal)


def group_of(network, lanes, period=1):
    """Return the group of lanes that are written already."""
    way = Way("lanes of a test", lambda router, k: lanes[k % len(lanes)], (0,) * network.ranks)
    return _Group(way, network, lanes, period)


def sends_between_ranks(schedule):
    return sum(not send.local for step in schedule.steps for send in step.sends)


def check_that_they_improve_with_steps(found):
    """The first one has the fewest sends; of the others each has fewer rounds per chunk than those of fewer steps."""
    for schedule in found:
        assert replay.schedule(schedule).rounds_per_chunk == schedule.rounds_per_chunk
    least, *others = found
    assert sends_between_ranks(least) == min(map(sends_between_ranks, found))
    others.sort(key=lambda schedule: len(schedule.steps))
    for fewer, more in pairwise(others):
        assert len(fewer.steps) < len(more.steps) and fewer.rounds_per_chunk > more.rounds_per_chunk
    assert all(schedule.rounds_per_chunk <= least.rounds_per_chunk for schedule in others)


@pytest.mark.parametrize("name", ["dgx-a100*2", "rail:3x4", "rail:4x2", "switch:7", "fully-connected:9"])
def test_they_are_right_and_improve_with_steps(name, monkeypatch):
    monkeypatch.setattr(pipelined_scans, "SETTINGS", replace(pipelined_scans.SETTINGS, most_sends=5_000))
    machine = topology(name)
    network, ways = machine.network(), box_ways(machine.nodes)
    found = list(scans(network, ways))
    check_that_they_improve_with_steps(found)
    assert len(found) > 3
    side_by_side_sends, one_after_another_sends = (way.direct(network).shortest().sends for way in ways)
    assert sends_between_ranks(found[0]) == one_after_another_sends < side_by_side_sends


@pytest.mark.parametrize("name", ["dgx-a100*2", "rail:4x4", "mi300x*2", "mi250*2"])
@pytest.mark.parametrize("share", [Fraction(5, 4), Fraction(1), Fraction(1, 20)])
def test_they_improve_with_steps_beside_one_for_a_goal(name, share, monkeypatch):
    """The one for the goal comes second. Later ones have fewer steps, or much fewer rounds per chunk than it, or nearly
    the fewest."""
    few = replace(pipelined_scans.SETTINGS, most_sends=1_000, goal_sends=8_000, lane_sends=500)
    monkeypatch.setattr(pipelined_scans, "SETTINGS", few)
    machine = topology(name)
    network = machine.network()
    best = min(schedule.rounds_per_chunk for schedule in box_scans(network, machine.nodes))
    found = list(box_scans(network, machine.nodes, best * share))
    least, good, *others = found
    check_that_they_improve_with_steps([least, *others])
    assert others and replay.schedule(good).rounds_per_chunk == good.rounds_per_chunk
    nearly = min(schedule.rounds_per_chunk for schedule in found) * (1 + few.last_worth)
    for schedule in others:
        much_fewer = schedule.rounds_per_chunk <= good.rounds_per_chunk * (1 - few.worth)
        assert len(schedule.steps) < len(good.steps) or much_fewer or schedule.rounds_per_chunk <= nearly


def test_they_use_all_nics():
    machine = topology("dgx-a100*2")
    network = machine.network()
    bound = single_cut_bound(network, collective("scan", network.ranks)).value
    assert min(schedule.rounds_per_chunk for schedule in box_scans(network, machine.nodes)) <= 2 * bound


@pytest.mark.parametrize("sizes", [(4, 4, 4), (2, 2), (3, 5, 2, 4), (8, 8, 8, 8, 8)])
@pytest.mark.parametrize("make", [side_by_side, one_after_another, through_hubs])
def test_every_place_of_the_hubs_makes_a_scan(sizes, make):
    network = topology(f"switch:{sum(sizes)}").network()
    boxes = boxes_of(sizes)
    router = LaneRouter(network, [b for b, box in enumerate(boxes) for _ in box])
    lanes = [make(router, boxes, k) for k in range(3 * max(sizes))]
    replay.schedule(group_of(network, lanes).pipelined(collective("scan", network.ranks), len(lanes), 3))


def boxes_of(sizes):
    ends = [*accumulate(sizes)]
    return [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]


NO_MESH = ("mi250*2", "dgx1*3", "mesh:4x4")


@pytest.mark.parametrize(
    "name", ["mi300x*3", "mi250*2", "dgx1*3", "rail:3x4", "pcie-4x2*2", "fully-connected:10", "mesh:4x4"]
)
@pytest.mark.parametrize("make", [side_by_side, one_after_another, chain, through_hubs])
def test_lanes_of_even_loads_are_scans(name, make):
    """Values pass ranks that hold sums, too, and take other paths for each chunk."""
    machine = topology(name)
    network = machine.network()
    boxes = pipelined_scans._boxes(machine.nodes)
    router = LaneRouter(network, [b for b, box in enumerate(boxes) for _ in box], balanced=True)
    lanes = []
    try:
        for k in range(24):
            lanes.append(chain(router) if make is chain else make(router, boxes, k))
    except NoPathError:
        # its NICs are behind ranks that hold sums; hubs change values over links
        assert name == "dgx1*3" if make is side_by_side else make is through_hubs and name in NO_MESH
        return
    replay.schedule(group_of(network, lanes).pipelined(collective("scan", network.ranks), len(lanes), 2))


def test_even_loads_take_the_links_of_a_box_to_all_ranks():
    """The chain of a box of eight has 7 of its 56 links."""
    machine = topology("mi300x*3")
    network = machine.network()
    boxes = boxes_of((8, 8, 8))
    peaks = []
    for balanced in (False, True):
        router = LaneRouter(network, machine.nodes, balanced)
        peaks.append(group_of(network, [one_after_another(router, boxes, k) for k in range(48)]).peak)
    assert peaks[1] < peaks[0] / 2


def test_one_chain_of_a_box_has_half_as_many_sends_inside_it():
    network, boxes = topology("switch:32").network(), boxes_of((8,) * 4)
    router = LaneRouter(network, [rank // 8 for rank in range(32)])
    serial, parallel = one_after_another(router, boxes, 3), side_by_side(router, boxes, 3)
    sends = [sum(not send.local for step in lane for send in step) for lane in (serial, parallel)]
    assert 3 * sends[0] < 2 * sends[1] and len(parallel) < len(serial)


@pytest.mark.parametrize("sizes", [(1, 4, 1, 1, 2), (3,), (4,), (7,), (1, 1, 1), (2, 1)])
def test_hubs_serve_boxes_of_one_rank_and_one_box(sizes):
    network = topology(f"fully-connected:{sum(sizes)}").network()
    boxes = boxes_of(sizes)
    router = LaneRouter(network, [b for b, box in enumerate(boxes) for _ in box])
    lanes = [through_hubs(router, boxes, k) for k in range(2 * max(sizes))]
    replay.schedule(group_of(network, lanes).pipelined(collective("scan", network.ranks), len(lanes), 3))


@pytest.mark.parametrize("ranks", [4, 8, 13])
def test_hubs_load_all_links_of_a_full_mesh(ranks):
    """Each link carries two sends while each rank but the last is the hub once; a chain has one of its links a rank."""
    network = topology(f"fully-connected:{ranks}").network()
    least = Fraction(2, ranks - 1)
    found = list(hub_scans(network, (), least * 9 / 8))
    for schedule in found:
        assert replay.schedule(schedule).rounds_per_chunk == schedule.rounds_per_chunk
    assert least < min(schedule.rounds_per_chunk for schedule in found) <= least * 9 / 8


@pytest.mark.parametrize("name", ["switch:8", "ring:8", "dgx1", "fully-connected:2"])
def test_hubs_are_left_out_where_links_are_missing_or_carry_no_more_than_a_chain(name):
    network = topology(name).network()
    assert not list(hub_scans(network))


def test_hubs_of_several_boxes_bring_full_meshes_within_the_goal():
    """The chains of boxes have 7 of the 56 links of each."""
    machine = topology("mi300x*2")
    network = machine.network()
    goal = 2 * single_cut_bound(network, collective("scan", 16)).value
    found = hub_scans(network, machine.nodes, goal)
    assert next(found).rounds_per_chunk > goal >= next(found).rounds_per_chunk


@pytest.mark.parametrize("sizes", [(1, 8), (8, 1), (4, 1, 4), (1,) * 9])
def test_hubs_of_boxes_of_one_rank(sizes):
    """Boxes of one rank each are one box."""
    network = topology("fully-connected:9").network()
    nodes = [b for b, size in enumerate(sizes) for _ in range(size)]
    found = list(hub_scans(network, nodes))
    for schedule in found:
        replay.schedule(schedule)
    assert min(schedule.rounds_per_chunk for schedule in found) <= Fraction(3, 4)


def least_of_hubs(ranks, cap):
    """Return the least R/C through hubs of a full mesh whose ranks send at most `cap` times what a link carries."""
    machine = topology(f"fully-connected:{ranks}")
    limits = []
    for rank in range(ranks):
        links = [i for i, link in enumerate(machine.links) if link.src == rank]
        limits.append(Limit(f"out of {rank}", links, cap * machine.links[0].bandwidth))
    network = replace(machine, limits=tuple(limits)).network()
    found = hub_scans(network)
    return min((schedule.rounds_per_chunk for schedule in found), default=None)


def test_limits_inside_a_box_count_for_hubs():
    """Of 8 chunks a rank sends 15 values for hubs, at most 2 to each rank, and 8 along a chain."""
    assert Fraction(2, 8) < least_of_hubs(9, 8) < Fraction(2, 7)
    assert Fraction(15, 8) / 3 < least_of_hubs(9, 3) < Fraction(2, 3)
    assert least_of_hubs(9, 1) is None


def test_many_sends_are_left_out_where_they_gain_little():
    """A chain of 12 comes as near to 1 as one likes, with ever more steps; 600,000 sends were 54,555 steps."""
    machine = topology("line:12")
    found = list(chain_scans(machine.network(), (), Fraction(1, 2)))
    assert max(schedule.sends for schedule in found) < 80_000 and min(s.rounds_per_chunk for s in found) < Fraction(
        5, 4
    )


def test_one_within_the_goal_comes_second():
    machine = topology("rail:4x4")
    network = machine.network()
    goal = 2 * single_cut_bound(network, collective("scan", 16)).value
    found = list(box_scans(network, machine.nodes, goal))
    good = [schedule for schedule in found if schedule.rounds_per_chunk <= goal]
    assert found[0].rounds_per_chunk > goal >= found[1].rounds_per_chunk
    assert found[1].sends == min(schedule.sends for schedule in good)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2, 4), (5, 2), (2, 2, 2, 2), (4, 6)])
def test_boxes_of_unequal_sizes(sizes):
    machine = topology(f"switch:{sum(sizes)}")
    network = machine.network()
    nodes = [box for box, size in enumerate(sizes) for _ in range(size)]
    for schedule in box_scans(network, nodes):
        replay.schedule(schedule)
        break
    else:
        pytest.fail("none was found")


def test_nothing_is_found_where_boxes_mix_or_links_are_missing():
    for name, nodes in [
        ("switch:8", [0, 1] * 4),
        ("switch:3", [0] * 3),
        ("switch:4", [0, 1, 1, 1]),
    ]:
        network = topology(name).network()
        assert not list(box_scans(network, nodes))
    network = topology("switch:8").network()
    assert not list(pipelined_scans.pipelined_scans(network, collective("allreduce", 8), box_ways([0] * 4 + [1] * 4)))


@pytest.mark.parametrize("name", ["ring:2", "ring:9", "line:5", "switch:7"])
def test_chains_are_right_and_improve_with_steps(name, monkeypatch):
    monkeypatch.setattr(pipelined_scans, "SETTINGS", replace(pipelined_scans.SETTINGS, most_sends=2_000))
    network = topology(name).network()
    found = list(chain_scans(network))
    assert len(found[0].steps) == network.ranks - 1
    check_that_they_improve_with_steps(found)
    assert (len(found) > 3) == (network.ranks > 2)


def test_a_machine_without_nodes_is_one_box():
    network = topology("star:9").network()
    assert next(chain_scans(network, ())) == next(chain_scans(network, (0,) * 9))


def test_a_long_chain_comes_near_the_bound():
    network = topology("ring:32").network()
    task = collective("scan", network.ranks)
    best = min(schedule.rounds_per_chunk for schedule in chain_scans(network, (0,) * network.ranks))
    assert best <= Fraction(5, 2) * single_cut_bound(network, task).value


@pytest.mark.parametrize("name", ["star:9", "mesh:3x5", "random-regular:16", "mi250*2", "hypercube:16"])
def test_chains_lead_over_relays(name):
    """No route joins some rank to the next there, and the ranks between them hold prefixes of their own."""
    network = topology(name).network()
    shortest = next(chain_scans(network, (0,) * network.ranks))
    assert replay.schedule(shortest).rounds_per_chunk == shortest.rounds_per_chunk


@pytest.mark.parametrize("seed", range(20))
def test_chains_lead_through_any_connected_machine(seed):
    rng = Random(seed)
    ranks = rng.randint(3, 12)
    order = rng.sample(range(ranks), ranks)
    pairs = [(order[i], order[rng.randrange(i)]) for i in range(1, ranks)]  # a tree
    pairs += [tuple(rng.sample(range(ranks), 2)) for _ in range(rng.randint(0, 3))]
    links = [Link(*ends, 25) for pair in dict.fromkeys(map(frozenset, pairs)) for ends in permutations(pair)]
    network = Topology("random", ranks, links).network()
    shortest = next(chain_scans(network, (0,) * network.ranks))
    assert replay.schedule(shortest).rounds_per_chunk == shortest.rounds_per_chunk
    router = LaneRouter(network, (0,) * ranks, balanced=True)
    lanes = [chain(router) for _ in range(8)]
    replay.schedule(group_of(network, lanes).pipelined(collective("scan", ranks), len(lanes), 2))


@pytest.mark.parametrize("name", ["mi300x*2", "mi250*2"])
def test_the_best_one_comes_second_where_none_is_within_the_goal(name, monkeypatch):
    """Its chunks take different paths; it is left out where the caller has a better one."""
    few = replace(pipelined_scans.SETTINGS, most_sends=2_000, goal_sends=20_000, lane_sends=1_500)
    monkeypatch.setattr(pipelined_scans, "SETTINGS", few)
    machine = topology(name)
    network = machine.network()
    task = collective("scan", network.ranks)
    goal = 2 * single_cut_bound(network, task).value
    direct = min(schedule.rounds_per_chunk for schedule in box_scans(network, machine.nodes))
    found = list(box_scans(network, machine.nodes, goal))
    best = replay.schedule(found[1]).rounds_per_chunk
    assert goal < best < direct / 2 and best == min(schedule.rounds_per_chunk for schedule in found)
    known = [best / 2]
    assert all(schedule.rounds_per_chunk > best for schedule in box_scans(network, machine.nodes, goal, known))


def test_a_hub_is_a_relay_at_no_cost():
    """The prefix of rank 0 is its own input, which it takes again at the end: two steps for each further rank."""
    network = topology("star:9").network()
    shortest = next(chain_scans(network, (0,) * network.ranks))
    assert (len(shortest.steps), replay.schedule(shortest).sends) == (15, 15)


def test_a_chain_leaves_a_box_once_where_boxes_share_a_nic():
    """Rank 11 reaches rank 12 over a relay: one of its own box, as those of the other box are behind the one NIC."""
    machine = topology("dgx1*2")
    network = machine.network()
    task = collective("scan", 16)
    found = list(chain_scans(network, (0,) * network.ranks))
    between = [
        send for step in found[0].steps for send in step.sends if machine.nodes[send.src] < machine.nodes[send.dst]
    ]
    assert len(between) == found[0].chunks
    assert (
        min(schedule.rounds_per_chunk for schedule in found) <= Fraction(3, 2) * single_cut_bound(network, task).value
    )


@pytest.mark.parametrize(("load", "sizes"), [
    ([[3, 2], [2, 3]], [4, 8, 12, 16, 2, 1]),  # 5/2 of 10 units for a chunk: 4 fill a round
    ([[30, 0], [0, 30]], [1, 2, 4]),  # 3/2 rounds for a chunk of each lane: 4 chunks fill 6 rounds, 5 would take 9
    ([[1, 1], [1, 1]], [7, 3, 1]),
])  # fmt: skip
def test_groups_have_as_many_chunks_as_few_rounds_carry(load, sizes):
    units = np.array([10, 10])
    assert _group_sizes(np.array(load), units, 7 if sizes[0] == 7 else 16) == sizes


def test_no_chain_where_no_relays_lead_to_the_next_rank():
    one_way = [Link((rank + 1) % 5, rank, 25) for rank in range(5)]
    for network, task in [
        (Topology("one way", 5, one_way).network(), "scan"),
        (topology("ring:8").network(), "allgather"),
    ]:
        ways = chain_ways(network, (0,) * network.ranks)
        assert not list(pipelined_scans.pipelined_scans(network, collective(task, network.ranks), ways))


@pytest.mark.parametrize("rule", ["nearest", "sklansky"])
def test_plans_of_one_chunk_are_pipelined(rule):
    network = topology("torus:5x4").network()
    task = collective("scan", network.ranks)
    plan = dict(quick_plans(network, task))[rule]
    found = list(scans(network, planned_ways(plan, rule)))
    assert len(found[0].steps) == len(plan.steps)
    assert min(schedule.rounds_per_chunk for schedule in found) < Fraction(plan.rounds, 2)
    for schedule in found:
        replay.schedule(schedule)
    wrong = replace(plan, steps=(*plan.steps[:-1], Step(1, ())))
    assert not planned_ways(wrong, rule)


@pytest.mark.parametrize("name", ["ring:6", "switch:5"])
def test_rounds_are_predicted(name):
    """The choice of chunks and groups rests on the greatest load of a step, which lasts no longer than that needs."""
    network = topology(name).network()
    task = collective("scan", network.ranks)
    lanes = [chain(LaneRouter(network, (0,) * network.ranks))]
    group = group_of(network, lanes)
    for option in list(group.options())[:12]:
        made = group.pipelined(task, option.size, option.groups)
        assert (len(made.steps), made.rounds_per_chunk, made.sends) == (option.steps, option.rate, option.sends)
        assert with_fewest_rounds(made) == made
        assert all(list(step.sends) == sorted(step.sends) for step in made.steps)


@pytest.mark.parametrize("name", ["rail:4x4", "dgx-a100*3", "dgx-h100*3"])
def test_one_within_the_goal_may_have_more_sends_than_others(name, monkeypatch):
    """It is alone in that, and a group less would not do."""
    few = replace(pipelined_scans.SETTINGS, most_sends=500, goal_sends=20_000)
    monkeypatch.setattr(pipelined_scans, "SETTINGS", few)
    machine = topology(name)
    network = machine.network()
    task = collective("scan", network.ranks)
    goal = 2 * single_cut_bound(network, task).value
    found = list(box_scans(network, machine.nodes, goal))
    sends = [replay.schedule(schedule).sends for schedule in found]
    assert found[1].rounds_per_chunk <= goal and 500 < sends[1] <= 20_000
    assert all(count <= 500 for count in sends[:1] + sends[2:])
    monkeypatch.setattr(pipelined_scans, "SETTINGS", replace(few, goal_sends=sends[1] - 1))
    assert all(schedule.rounds_per_chunk > goal for schedule in box_scans(network, machine.nodes, goal))


def test_one_within_the_goal_is_offered_where_another_is_nearly_as_good(monkeypatch):
    monkeypatch.setattr(pipelined_scans, "SETTINGS", replace(pipelined_scans.SETTINGS, most_sends=5_000))
    machine = topology("rail:4x4")
    network = machine.network()
    best = min(schedule.rounds_per_chunk for schedule in box_scans(network, machine.nodes))
    goal = best * Fraction(99, 100)
    assert any(schedule.rounds_per_chunk <= goal for schedule in box_scans(network, machine.nodes, goal))


@pytest.mark.parametrize("size", [6, 8])
def test_the_first_rank_of_a_box_is_a_hub_for_no_more_chunks_than_others(size):
    """It sends most where it is one."""
    machine = topology(f"rail:4x{size}")
    network = machine.network()
    schedules = list(box_scans(network, machine.nodes))
    hubs = Counter()
    for schedule in schedules[:4]:
        for send in (send for step in schedule.steps for send in step.sends):
            if machine.nodes[send.src] != machine.nodes[send.dst]:
                hubs[send.src % size] += 1
        assert hubs[0] == min(hubs[place] for place in range(size))
