"""Fabrics, exact throughput bounds and the certificates that the checker accepts."""

import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest

from synth.checker.certificates import throughput_cuts
from synth.errors import UsageError, VerificationError
from synth.model.topology import Limit, Link, Topology
from synth.scale.bounds.throughput_cut import COLLECTIVES, throughput
from synth.scale.fabric.automorphisms import free_group, orbits, symmetries
from synth.scale.fabric.fabric import fabric
from synth.topologies import topology

# ForestColl's published bandwidths, and what TE-CCL's instance of four NDv2 allows.
SMALL = [
    "ring:5", "line:4", "star:5", "torus:2x3", "switch:4", "hypercube:8", "dgx1", "fat-tree:8", "switch:3*2",
    "mesh:2x3", "random-regular:8:degree=3", "dgx1*2:cross=0+2", "line:2*3:nics=1", "line:4*2:net=odd-even", "mi100",
    "line:4*2:nics=2,net=odd-even",
]  # fmt: skip


def brute(machine: Topology, collective: str, root: int) -> Fraction:
    """The least time over all cuts, each paid for by links, or by limits, whichever is cheaper for a limit's crossing
    links."""
    nodes = machine.ranks + len(machine.switches)
    best = Fraction(0)
    for inside in itertools.product((False, True), repeat=nodes):
        if all(inside[: machine.ranks]):
            continue
        shards = sum(inside[: machine.ranks]) if collective in ("allgather", "reduce-scatter") else inside[root]
        turned = collective in ("reduce-scatter", "reduce")
        crossing = {
            i
            for i, k in enumerate(machine.links)
            if inside[k.dst if turned else k.src] and not inside[k.src if turned else k.dst]
        }
        meets = [k for k in machine.limits if crossing & set(k.links)]
        width = min(
            sum((k.bandwidth for k in paid), Fraction(0))
            + sum((machine.links[i].bandwidth for i in crossing - {i for k in paid for i in k.links}), Fraction(0))
            for paid in _subsets(meets)
        )
        if shards:
            best = max(best, Fraction(shards) / width)
    return best


def _subsets(limits: list[Limit]) -> list[tuple[Limit, ...]]:
    return [s for n in range(min(len(limits), 5) + 1) for s in itertools.combinations(limits, n)]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    "name", ["ring:5", "line:4", "star:5", "torus:2x3", "switch:4", "random-regular:6:degree=3", "line:2*3:nics=1"]
)
def test_equals_the_best_of_all_cuts(name: str, collective: str) -> None:
    machine = topology(name)
    found = throughput(fabric(machine), collective, 1)
    assert found.time / found.fabric.unit == brute(machine, collective, 1)


@pytest.mark.parametrize("name", SMALL)
def test_symmetry_changes_nothing_and_the_checker_agrees(name: str) -> None:
    machine = topology(name)
    made = fabric(machine)
    for collective in COLLECTIVES:
        found, plain = throughput(made, collective), throughput(made, collective, generators=())
        assert found.time == plain.time and found.flows <= plain.flows
        assert throughput_cuts.check(found.certificate, machine) == found.time / made.unit


def test_unequal_directions() -> None:
    links = (Link(0, 1, Fraction(2)), Link(1, 2, Fraction(2)), Link(2, 0, Fraction(1, 3)), Link(1, 0, Fraction(1)))
    machine = Topology("uneven", 3, links)
    for collective in COLLECTIVES:
        found = throughput(fabric(machine), collective, 2)
        assert found.time / found.fabric.unit == brute(machine, collective, 2)
        assert throughput_cuts.check(found.certificate, machine) == found.time / found.fabric.unit


def test_a_thousand_ranks_behind_switches() -> None:
    """A torus of boxes has no pair to list; one flow serves all."""
    found = throughput(fabric(topology("torus:32x32")))
    assert found.bandwidth == Fraction(1024 * 4, 1023) and found.flows == 1


def test_ways_that_the_topology_does_not_have() -> None:
    """Through the network switch and back into the same box is a path of the fabric but no link."""
    machine = topology("dgx-a100*2:net=odd-even")
    made = fabric(machine)
    up = {(int(made.src[e]), int(made.cap[e])): int(e) for e in range(len(made.src)) if made.src[e] < 16}
    down = {(int(made.dst[e]), int(made.cap[e])): int(e) for e in range(len(made.src)) if made.dst[e] < 16}
    across, inside = made.links_of((up[0, 1], down[8, 1])), made.links_of((up[0, 12], down[1, 12]))
    assert [machine.links[across[0]].dst, machine.links[across[0]].kind] == [8, "net"]  # type: ignore[index]
    assert [machine.links[inside[0]].dst, machine.links[inside[0]].kind] == [1, "nvlink"]  # type: ignore[index]
    assert made.links_of((up[0, 1], down[2, 1])) is None
    turned = made.reversed()
    assert machine.links[turned.links_of((down[8, 1], up[0, 1]))[0]].dst == 8  # type: ignore[index]


def test_symmetries_are_checked() -> None:
    machine = topology("torus:4x4")
    made = fabric(machine)
    wrong = (1, 0, *range(2, 16))
    assert symmetries(made, [wrong, (0,) * 16, range(3)]) == ()
    group = free_group(symmetries(made), 16)
    assert not orbits(16, group).any()
    orders = {"dgx-a100*4:net=odd-even": 32, "hypercube:16": 16, "mi250*2": 8, "dgx2*2": 32, "random-regular:8": 1}
    for name, order in orders.items():
        found = fabric(topology(name))
        group = free_group(symmetries(found), found.ranks)
        sizes = np.bincount(orbits(found.ranks, [pi[: found.ranks] for pi in group]))
        assert set(sizes[sizes > 0].tolist()) == {order}, name


def test_one_clear_line() -> None:
    with pytest.raises(UsageError, match="cuts bound the throughput of"):
        throughput(fabric(topology("ring:4")), "alltoall")
    with pytest.raises(UsageError, match="root 4"):
        throughput(fabric(topology("ring:4")), "broadcast", 4)


def test_the_checker_refuses() -> None:
    machine = topology("dgx-a100*2:net=odd-even")
    good = throughput(fabric(machine)).certificate
    assert throughput_cuts.check(good, machine) == Fraction(15, 325)
    wrong: list[tuple[dict, str]] = [
        ({"kind": "cut"}, "kind"), ({"topology": "0" * 64}, "another topology"), ({"root": 1}, "root"),
        ({"collective": "alltoall"}, "collective"), ({"inside": [[0, 15]]}, "leaves no rank out"),
        ({"inside": []}, "holds no rank"), ({"inside": [[0, 99]]}, "stretch"), ({"limits": [9999]}, "limit"),
        ({"limits": ["0"]}, "limit"), ({"more": 1}, "keys"), ({"inside": None}, "expected a list"),
        ({"collective": "broadcast", "root": 15, "inside": [[0, 14]]}, "root"),
    ]  # fmt: skip
    for change, message in wrong:
        with pytest.raises(VerificationError, match=message):
            throughput_cuts.check({**good, **change}, machine)
    weaker = copy.deepcopy(good)
    weaker["limits"] = []
    assert throughput_cuts.check(weaker, machine) < throughput_cuts.check(good, machine)
    with pytest.raises(VerificationError, match="another topology"):
        throughput_cuts.check(good, topology("dgx-a100*2"))
