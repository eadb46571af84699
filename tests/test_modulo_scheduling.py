"""Lanes of pipelined scans, each send in a step of its own choice: right, within the capacities, and every period."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import ceil, lcm

import pytest

from synth.checker.schedule import replay
from synth.frontiers import pipelined_scans
from synth.frontiers.modulo_scheduling import _together, interleaved
from synth.frontiers.pipelined_scans import Way, _Group, box_ways, chain_ways, hub_ways
from synth.frontiers.scan_lanes import LaneRouter
from synth.model.collective import collective
from synth.model.schedule import Send
from synth.model.topology import Link, Topology
from synth.topologies import topology


def ways_of(machine):
    """Return all ways of scans on a machine for which it has paths."""
    network = machine.network()
    ways = [*hub_ways(network, machine.nodes), *box_ways(machine.nodes), *chain_ways(network, machine.nodes)]
    return [way for way in ways if way.direct(network) is not None]


def loads(network, sends):
    """Return the number of sends on each route and against each limit, and their capacities."""
    counts, units = Counter(), {}
    for send in sends:
        if send.src != send.dst:
            i = network.route_index[send.src, send.dst, send.via]
            counts["route", i] += 1
            units["route", i] = network.routes[i].units
            for c in network.caps_of[i]:
                counts["limit", c] += 1
                units["limit", c] = network.caps[c].units
    return counts, units


def wide(name, factor):
    """Return the machine with links and limits of `factor` times as many units."""
    machine = topology(name)
    return replace(machine, unit=machine.unit_bandwidth() / factor)


def balanced_lanes(way, network, count):
    router = LaneRouter(network, way.nodes, balanced=True)
    return [way.make(router, k) for k in range(count)]


MACHINES = {
    "mi250*2": topology("mi250*2"),
    "mi300x*2": topology("mi300x*2"),
    "mesh 3x3 of 6 units": wide("mesh:3x3", 6),
    "rails of 12 units": wide("rail:3x3", 12),
    "star of 5 units": wide("star:6", 5),
}


def cases():
    """Return the machines, the numbers of their ways, and the parts of a round."""
    found = []
    for name, machine in MACHINES.items():
        for place in range(len(ways_of(machine))):
            for parts in (1, 2, 5):
                found.append(pytest.param(machine, place, parts, id=f"{name}, way {place}, {parts} parts"))
    return found


@pytest.mark.parametrize(("machine", "place", "parts"), cases())
def test_a_chunk_of_each_lane_may_begin_every_period(machine, place, parts):
    network, way = machine.network(), ways_of(machine)[place]
    lanes = balanced_lanes(way, network, 7)
    everything = [send for lane in lanes for step in lane for send in step]
    counts, units = loads(network, everything)
    least = max(ceil(Fraction(count, units[at] // parts)) for at, count in counts.items())
    assert least == 1 or interleaved(network, lanes, parts, least - 1) is None
    for period in range(max(2, least), 4 * least + 8):
        placed = interleaved(network, lanes, parts, period)
        if placed is not None:
            break
    else:
        pytest.fail("no period was long enough")
    in_place = [[] for _ in range(period)]
    for k, (before, after) in enumerate(zip(lanes, placed, strict=True)):
        assert Counter(send for step in before for send in step) == Counter(send for step in after for send in step)
        assert not any(after[: k * period // len(lanes)])
        for t, step in enumerate(after):
            in_place[t % period] += step
    for sends in in_place:
        counts, units = loads(network, sends)
        assert all(count <= units[at] // parts for at, count in counts.items())
    group = _Group(way, network, placed, period)
    made = group.pipelined(collective("scan", network.ranks), len(placed), 4)
    found = replay.schedule(made)
    assert len(made.steps) == group.depth + 3 * period and max(step.rounds for step in made.steps) <= Fraction(1, parts)
    assert found.rounds_per_chunk == made.rounds_per_chunk == sum(step.rounds for step in made.steps) / (4 * len(lanes))


def test_periods_are_shorter_than_lanes_are_long():
    """All steps but the first and last ones have chunks of several groups."""
    network, way = MACHINES["mi250*2"].network(), ways_of(MACHINES["mi250*2"])[0]
    lanes = balanced_lanes(way, network, 16)
    found = [period for period in range(2, 60) if interleaved(network, lanes, 4, period) is not None]
    assert found and 2 * found[0] < max(map(len, interleaved(network, lanes, 4, found[0])))


def test_a_link_of_too_few_units_finds_no_step():
    """Of two units a part of three rounds has none."""
    network = Topology("pair", 2, [Link(0, 1, 2), Link(1, 0, 1)]).network()
    lane = [[Send(0, 0, 1, "reduce")]]
    assert interleaved(network, [lane], 2, 1) == [[[Send(0, 0, 1, "reduce")]]]
    assert interleaved(network, [lane], 3, 5) is None
    assert interleaved(network, [lane] * 3, 1, 1) is None
    assert interleaved(network, [lane] * 3, 1, 2) == [lane, lane, [[], *lane]]


def test_sends_of_a_step_that_wait_for_each_other_come_in_turn():
    """Rank 1 sends its value on before it takes that of rank 0, and adds its input only then; 2 and 3 change values."""
    on, copy = Send(0, 1, 4, "copy"), Send(0, 0, 1, "copy")
    own, there, back = Send(0, 1, 1, "reduce-input"), Send(0, 2, 3, "copy"), Send(0, 3, 2, "copy")
    found = list(_together([own, there, copy, back, on]))
    assert found.index([on]) < found.index([copy]) < found.index([own])
    assert [there, back] in found and sum(map(len, found)) == 5


def check_durations(network, schedule, parts):
    """Each step lasts exactly as long as its busiest link or limit needs, or the shortest step where it has none."""
    for step in schedule.steps:
        counts, units = loads(network, step.sends)
        needed = max((Fraction(count, units[at]) for at, count in counts.items()), default=Fraction(0))
        assert step.rounds == (max(needed, Fraction(1, parts)) if parts > 1 else max(1, ceil(needed)))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("most_parts", [1 << 20, 1])
def test_steps_last_as_long_as_their_busiest_link_needs(name, most_parts, monkeypatch):
    """Whole rounds where parts would be too many. Options say it of fewer groups than turns, and of more."""
    monkeypatch.setattr(pipelined_scans, "SETTINGS", replace(pipelined_scans.SETTINGS, most_parts=most_parts))
    machine = MACHINES[name]
    network = machine.network()
    for way in ways_of(machine):
        lanes = balanced_lanes(way, network, 3)
        period = next(period for period in range(2, 200) if interleaved(network, lanes, 1, period) is not None)
        placed = interleaved(network, lanes, 1, period)
        for group in (_Group(way, network, lanes), _Group(way, network, placed, period)):
            used, units = loads(network, [send for lane in lanes for step in lane for send in step])
            parts = lcm(*(units[at] for at in used))
            assert group.parts == (parts if parts <= most_parts else 1)
            turns = ceil(Fraction(group.depth, group.period))
            sizes = [len(lanes)] if group.period > 1 else [1, 2, 4]
            for size in sizes:
                load = group._load_before(size)
                for groups in sorted({1, turns - 1, turns, turns + 2} - {0}):
                    option = group._option(size, groups, load)
                    made = group.pipelined(collective("scan", network.ranks), size, groups)
                    sends = sum(send.src != send.dst for step in made.steps for send in step.sends)
                    assert option[:5] == (len(made.steps), made.rounds_per_chunk, sends, size, groups)
                    check_durations(network, made, group.parts)


@pytest.mark.parametrize("name", ["mesh 3x3 of 6 units", "rails of 12 units", "star of 5 units"])
def test_the_choice_of_groups_agrees_with_trying_all(name, monkeypatch):
    """Of fewest rounds per chunk, and of fewest sends with at most so many rounds per chunk."""
    monkeypatch.setattr(pipelined_scans, "SETTINGS", replace(pipelined_scans.SETTINGS, goal_sends=600))
    machine = MACHINES[name]
    network = machine.network()
    for way in ways_of(machine):
        lanes = balanced_lanes(way, network, 4)
        period = next(period for period in range(2, 99) if interleaved(network, lanes, 1, period) is not None)
        for group in (
            _Group(way, network, lanes),
            _Group(way, network, interleaved(network, lanes, 1, period), period),
        ):
            tried = []
            for size in group._sizes(600):
                for groups in range(1, 601):
                    made = group.pipelined(collective("scan", network.ranks), size, groups)
                    sends = sum(send.src != send.dst for step in made.steps for send in step.sends)
                    if sends > 600:
                        break
                    tried.append((made.rounds_per_chunk, sends))
            rates = sorted({rate for rate, _ in tried})
            assert group.best(600).rate == min(*rates, group.shortest().rate)
            for goal in (*rates[:3], rates[len(rates) // 2], rates[-1], rates[-1] + 1):
                found = group.within(goal)
                assert found is not None and found.rate <= goal
                assert found.sends == min(sends for rate, sends in tried if rate <= goal)
            assert group.within(rates[0] - Fraction(1, 10**6)) is None


def test_the_first_lanes_decide_whether_many_are_made(monkeypatch):
    """On a line there is one path from each rank to the next."""
    network = topology("line:6").network()
    way = chain_ways(network)[0]
    made = []
    counted = Way(way.name, lambda router, k: made.append(k) or way.make(router, k), way.nodes, way.places)
    direct = counted.direct(network)
    made.clear()
    assert counted.balanced(network, direct) is None
    assert len(made) == pipelined_scans.SETTINGS.first_lanes
