"""Machines in coarser units: no link gains, and their schedules are schedules of the machine in parts of a round."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from synth.checker.schedule import replay
from synth.frontiers.coarse_machine import LEAST_USED, MOST_CARRIED, coarse_machine, coarse_parts
from synth.frontiers.pipelined_scans import chain_ways, pipelined_scans
from synth.model.collective import collective
from synth.model.schedule import Schedule
from synth.model.topology import Limit, Link, Topology
from synth.scale.search import packed_points
from synth.topologies import topology


@pytest.mark.parametrize(("capacities", "parts"), [
    ([8, 25, 50, 100], 8),  # 25 keeps 24
    ([25, 32], 8),  # in units of 25 or 12 the links of 32 keep too little
    ([1], 1), ([], 1), ([7], 7), ([2, 3], 1),  # in units of 2 the links of 3 keep 2
    ([16, 18], 16), ([16, 19], 1),  # 16 is more than 7/8 of 18, and less of 19
    ([400, 400, 3], 3),
])  # fmt: skip
def test_parts_of_known_capacities(capacities, parts):
    assert coarse_parts(capacities) == parts


@pytest.mark.parametrize("seed", range(5))
def test_links_keep_nearly_all_and_the_narrowest_has_few_units(seed):
    rng, seen = Random(seed), Counter()
    for _ in range(200):
        capacities = [rng.randint(1, rng.choice((4, 40, 400))) for _ in range(rng.randint(1, 4))]
        parts, narrowest = coarse_parts(capacities), min(capacities)

        def keeps(unit, capacities=capacities):
            return all(units % unit <= (1 - LEAST_USED) * units for units in capacities)

        seen[parts > 1] += 1
        assert parts >= 1 and (parts == 1 or keeps(parts))
        tried = [narrowest // carried for carried in range(1, MOST_CARRIED + 1)]
        assert parts == max([unit for unit in tried if unit > 1 and keeps(unit)], default=1)
    assert min(seen[True], seen[False]) > 20


def with_limits():
    """Return a ring of links of 25 and 17 units whose ranks send at most 34 of them."""
    links = []
    for rank in range(6):
        links += [Link(rank, (rank + 1) % 6, 25), Link(rank, (rank - 1) % 6, 17)]
    limits = tuple(Limit(f"out of {rank}", (2 * rank, 2 * rank + 1), 34) for rank in range(6))
    return Topology("ring with limits", 6, links, limits, unit=Fraction(1))


MACHINES = {
    "mi250*2": topology("mi250*2"),
    "mi300x*2": topology("mi300x*2"),
    "dgx-h100*2": topology("dgx-h100*2"),
    "limits": with_limits(),
}


@pytest.mark.parametrize("parts", [3, 8])
@pytest.mark.parametrize("name", MACHINES)
def test_units_are_whole_and_links_have_no_more(name, parts):
    machine = MACHINES[name]
    if parts > min(item.units for item in (*machine.network().routes, *machine.network().caps)):
        parts = 1
    coarse = coarse_machine(machine, parts)
    assert coarse.unit_bandwidth() == parts * machine.unit_bandwidth()
    for before, after in ((machine.links, coarse.links), (machine.limits, coarse.limits)):
        for real, whole in zip(before, after, strict=True):
            assert real.bandwidth - coarse.unit_bandwidth() < whole.bandwidth <= real.bandwidth
            assert whole.bandwidth % coarse.unit_bandwidth() == 0
    real, whole = machine.network(), coarse.network()
    assert [(route.src, route.dst, route.via) for route in whole.routes] == [
        (route.src, route.dst, route.via) for route in real.routes
    ]
    assert [route.units for route in whole.routes] == [route.units // parts for route in real.routes]
    assert [cap.units for cap in whole.caps] == [cap.units // parts for cap in real.caps]


def on(network, schedule, parts):
    """Return a schedule of a coarse machine on the machine: its rounds are parts of a round there."""
    steps = tuple(step._replace(rounds=Fraction(step.rounds, parts)) for step in schedule.steps)
    return Schedule(network, schedule.collective, schedule.chunks, steps)


@pytest.mark.parametrize(("name", "parts"), [("mi250*2", 8), ("limits", 8), ("mi300x*2", 5)])
def test_schedules_are_those_of_the_machine_in_parts_of_a_round(name, parts):
    machine = MACHINES[name]
    network, coarse = machine.network(), coarse_machine(machine, parts)
    count = 0
    for _, schedule in pipelined_scans(
        coarse.network(), collective("scan", network.ranks), chain_ways(coarse.network(), machine.nodes)
    ):
        if schedule.sends <= 5_000:
            made = on(network, schedule, parts)
            assert replay.schedule(made).rounds_per_chunk == schedule.rounds_per_chunk / parts
            count += 1
    assert count > 3


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_packed_trees_are_schedules_of_the_machine_and_reach_its_bound(name):
    machine, parts = MACHINES["mi250*2"], 8
    network = machine.network()
    assert parts == coarse_parts([item.units for item in (*network.routes, *network.caps)])
    points = packed_points(coarse_machine(machine, parts), name, 3)
    assert [point.steps for point in points] == sorted({point.steps for point in points})
    bound = packed_points(machine, name, 3)[0].bound.value
    for point in points:
        schedule = point.schedule.written_out()
        if schedule.sends <= 20_000:
            found = replay.schedule(
                on(network, replace(schedule, collective=collective(name, network.ranks, (3,))), parts)
            )
            assert bound <= found.rounds_per_chunk == point.rounds_per_chunk / parts
    assert points[-1].rounds_per_chunk / parts <= bound * Fraction(5, 4)
