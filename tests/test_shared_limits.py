"""Allreduce in one box whose links share limits: streams of single GPUs behind PCIe switches, and limits at random."""

import json
from fractions import Fraction
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.schedule import compressed_replay
from synth.encodings import bounds
from synth.model.collective import collective
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import Limit, Link, Topology
from synth.scale.fabric.fabric import fabric
from synth.scale.search import bound, frontier
from tests.command_line import synth

UNIT = Fraction(8)


def behind_switches(sizes: list[int], stream: int, switches: list[int]) -> Topology:
    """GPUs with one stream of `stream` units out and one in, behind switches with `switches` units to the others."""
    switch = [i for i, size in enumerate(sizes) for _ in range(size)]
    ranks = range(len(switch))
    links = [Link(a, b, stream * UNIT) for a in ranks for b in ranks if a != b]
    limits = []
    for rank in ranks:
        for side in ("src", "dst"):
            own = tuple(i for i, link in enumerate(links) if getattr(link, side) == rank)
            limits.append(Limit(f"{side} {rank}", own, stream * UNIT))
    for s, units in enumerate(switches):
        for side in ("src", "dst"):
            own = []
            for i, link in enumerate(links):
                if switch[getattr(link, side)] == s and switch[link.src] != switch[link.dst]:
                    own.append(i)
            limits.append(Limit(f"switch {side} {s}", tuple(own), units * UNIT))
    return Topology("switches", len(switch), tuple(links), tuple(limits))


def exact_bound(machine: Topology, name: str) -> Fraction:
    task = collective(name, machine.ranks)
    certified = bounds.flow
    return certified(machine.network(), task, None).value


def test_a_limit_behind_the_streams_of_single_gpus_has_its_exact_bound():
    """It was refused: a link shares two limits on one side."""
    machine = behind_switches([2, 3], 4, [4, 8])
    assert fabric(machine).inner_limits
    for name in ("allreduce", "allgather", "alltoall"):
        assert bound(machine, name).bound == exact_bound(machine, name)


def test_an_allreduce_on_unlike_switches_attains_the_bound_in_few_steps():
    machine = behind_switches([2, 3], 4, [4, 8])
    found = frontier(machine, "allreduce")
    *_, point = (point for point in found.points if point.steps <= 4)
    assert "trees by column generation" in point.construction
    assert found.bound == Fraction(8, 5) <= point.rounds_per_chunk <= found.bound * Fraction(101, 100)
    assert compressed_replay.replay(point.schedule).rounds_per_chunk == point.rounds_per_chunk
    assert same_bits(point.schedule.written_out())


@st.composite
def limited(draw) -> Topology:
    """A ring with further links, some of which share limits, in any combination."""
    ranks = draw(st.integers(2, 4))
    ends = {(a, (a + 1) % ranks) for a in range(ranks)}
    ends |= set(draw(st.lists(st.permutations(range(ranks)).map(lambda order: tuple(order[:2])), max_size=6)))
    links = tuple(Link(a, b, draw(st.integers(1, 4)) * UNIT) for a, b in sorted(ends))
    limits = []
    for i in range(draw(st.integers(1, 4))):
        held = draw(st.sets(st.integers(0, len(links) - 1), min_size=1))
        limits.append(Limit(f"limit {i}", tuple(sorted(held)), draw(st.integers(1, 4)) * UNIT))
    return Topology("limited", ranks, links, tuple(limits))


@settings(max_examples=5, deadline=None)
@given(limited())
def test_bounds_of_random_limits_are_not_above_exact_ones_and_schedules_are_replayed(machine):
    for name in ("allgather", "alltoall"):
        assert bound(machine, name).bound <= exact_bound(machine, name)
    least = max(bound(machine, "allreduce").bound, exact_bound(machine, "allreduce"))
    for point in frontier(machine, "allreduce").points[:2]:
        assert compressed_replay.replay(point.schedule).rounds_per_chunk == point.rounds_per_chunk >= least
        assert same_bits(point.schedule.written_out())


def test_the_command_line_prints_and_verifies_schedules_within_limits(tmp_path):
    machine = behind_switches([2, 2], 2, [2, 2])
    links = [{"src": link.src, "dst": link.dst, "bandwidth": str(link.bandwidth)} for link in machine.links]
    limits = []
    for limit in machine.limits:
        held = [[machine.links[i].src, machine.links[i].dst] for i in limit.links]
        limits.append({"name": limit.name, "links": held, "bandwidth": str(limit.bandwidth)})
    file: Path = tmp_path / "machine.json"
    file.write_text(json.dumps({"name": "switches", "ranks": 4, "links": links, "limits": limits}))
    frontier_file = tmp_path / "frontier.json"
    shown = synth("pareto --topo", file, "--coll allreduce --engine flow --max-steps 4 -o", frontier_file).output
    assert "trees by column generation" in shown + frontier_file.read_text()
    synth("verify", frontier_file)
