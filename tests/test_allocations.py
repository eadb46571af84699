"""Allocations of a machine: classes, optimal rates, rings and trees on the same links (Blink's setting)."""

import json
from collections import defaultdict
from fractions import Fraction
from math import prod
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from synth import bounds
from synth.checker.schedule import replay
from synth.cli import root
from synth.encodings import spanning_tree_packing
from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.topology import Network, Route
from synth.scale.baselines import allocations, double_binary_tree, nvlink_pcie_hybrid
from synth.scale.baselines.comparison import explain
from synth.scale.baselines.rings import search
from synth.scale.bounds import subset_cuts
from synth.topologies import topology

# GPUs: rates of broadcast in links, one for each class, and classes without an NVLink ring (Blink, MLSys 2020)
KNOWN = {
    "dgx1-v100": {
        3: ([1, 1, 2, 2, 3], 3), 4: ([1] * 7 + [2] * 5 + [3, 4], 10), 5: ([1] * 6 + [2] * 6 + [3] * 2, 8),
        6: ([2] * 4 + [3] * 4 + [4] * 2, 0), 7: ([4, 4], 0), 8: ([6], 0),
    },
    "dgx1-p100": {3: ([1, 2], 1), 4: ([1, 1, 2, 3], 2), 5: ([1, 1, 2], 2), 6: ([2, 2, 3], 0), 7: ([3], 0), 8: ([4], 0)},
}  # fmt: skip


@pytest.mark.parametrize("machine", KNOWN)
def test_the_classes_and_rates_of_blink(machine):
    found, ringless = defaultdict(list), defaultdict(int)
    ratios = []
    for made in allocations.allocation_classes(topology(machine).network()):
        rates = allocations.optimal_rates(made.network)
        assert rates.rings_proved_maximum
        found[len(made.ranks)].append(rates.best["broadcast"])
        ringless[len(made.ranks)] += rates.ring_units == 0
        assert all(rates.best[name] >= rates.ring[name] for name in rates.best)
        assert rates.best["allreduce"] >= rates.composed
        ratios.append(float(rates.best["allreduce"] / rates.composed))
    assert {n: (sorted(rates), ringless[n]) for n, rates in found.items()} == KNOWN[machine]
    if machine == "dgx1-v100":
        assert sum(ratio > 1 for ratio in ratios) == 43
        assert prod(ratios) ** (1 / len(ratios)) == pytest.approx(1.353, abs=0.001)


def test_each_class_counts_its_members():
    network = topology("dgx1").network()
    every = list(allocations.allocation_classes(network, [3], every=True))
    assert sum(made.members for made in every) == 56
    assert sum(made.members for made in allocations.allocation_classes(network, [3])) == sum(
        made.members for made in every if made.connected
    )


def test_trees_of_an_allocation_make_a_schedule_that_verifies_and_beats_the_composition():
    made = next(a for a in allocations.allocation_classes(topology("dgx1").network(), [4]) if a.ranks == (0, 1, 2, 5))
    packing = spanning_tree_packing.forest(made.network)
    schedule = spanning_tree_packing.schedule(packing, collective("allreduce", 4), 64 * len(packing.trees))
    replay.schedule(schedule)
    rates = allocations.optimal_rates(made.network, ("allreduce",))
    assert 1 / schedule.rounds_per_chunk > rates.composed * Fraction(12, 10)


@given(
    st.integers(2, 5).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.dictionaries(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1]),
                st.integers(1, 3),
                min_size=1,
            ),
        )
    )
)
def test_cuts_agree_with_the_linear_program(drawn):
    ranks, edges = drawn
    network = Network("random", ranks, tuple(Route(a, b, n) for (a, b), n in sorted(edges.items())))
    connected = all(d is not None for row in network.distances for d in row)
    assert bool(subset_cuts.allgather(network).value) == connected
    if connected:
        for name, cut in (
            ("broadcast", subset_cuts.broadcast(network, 0)),
            ("allgather", subset_cuts.allgather(network)),
        ):
            task = collective(name, ranks)
            assert 1 / (bounds.flow(network, task, None).value * task.unit_share) == cut.value


@pytest.mark.parametrize(
    ("name", "units", "most"),
    [
        ("dgx1", 6, True),
        ("dgx1-p100", 4, True),
        ("ring:8", 2, True),
        ("dgx-a100", 12, True),
        ("fully-connected:8", 7, True),
        ("line:4", 0, True),
    ],
)
def test_rings_that_fit_together(name, units, most):
    network = topology(name).network()
    found = search.disjoint_rings(network)
    assert (found.units, found.proved_maximum) == (units, most)
    load = defaultdict(int)
    for ring, n in found.rings:
        assert sorted(ring) == list(range(network.ranks))
        for pair in zip(ring, (*ring[1:], ring[0]), strict=True):
            load[pair] += n
    room = defaultdict(int)
    for route in network.routes:
        room[route.src, route.dst] += route.units
    assert all(load[pair] <= room[pair] for pair in load)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 13, 16])
def test_both_binary_trees_span_and_no_rank_is_inside_both(ranks):
    inner = []
    for parents in double_binary_tree.binary_trees(ranks):
        assert sum(p is None for p in parents) == 1
        for rank in range(ranks):
            seen = set()
            while rank is not None:
                assert rank not in seen
                seen.add(rank)
                rank = parents[rank]
        inner.append({p for p in parents if p is not None})
    if ranks % 2 == 0:
        # half of the ranks are leaves of one tree and inner in the other: both directions of a rank's links are used
        assert len(inner[0] & inner[1]) <= 1 or ranks == 2


def test_a_split_ends_on_both_fabrics_at_once():
    size, fast, slow, wait = 1 << 30, Fraction(50), Fraction(10), Fraction(500)
    made = nvlink_pcie_hybrid.split(size, fast, slow, wait)
    assert made.slow / slow + wait * 1000 == (size - made.slow) / fast == size / made.gbps
    assert nvlink_pcie_hybrid.split(1024, fast, slow, wait).slow == 0
    assert nvlink_pcie_hybrid.split(size, Fraction(0), slow, Fraction(0)).gbps == slow
    with pytest.raises(UsageError):
        nvlink_pcie_hybrid.split(size, Fraction(0), Fraction(0), wait)


def test_pcie_reaches_what_the_links_do_not():
    apart = next(
        a for a in allocations.allocation_classes(topology("dgx1").network(), [3], every=True) if not a.connected
    )
    assert allocations.optimal_rates(apart.network).best["broadcast"] == 0
    joined = nvlink_pcie_hybrid.rates_with_pcie(
        apart.network, dict.fromkeys(("broadcast",), Fraction(0)), False, Fraction(10), Fraction(0), 1 << 20
    )
    assert joined["broadcast"] == 10


def test_the_explanation_names_the_cut():
    network = allocations.induced(topology("dgx1").network(), (0, 1, 2, 5))
    made = explain(network, "allreduce", (0, 1, 2, 5))
    assert made.rates[0].units == 1
    assert "0,1,2 | 5" in made.limit
    assert "0,1,2 send 1 unit" in explain(network, "broadcast", (0, 1, 2, 5)).limit


def test_the_commands():
    shown = CliRunner().invoke(
        root, ["explain", "--topo", "dgx1", "--ranks", "0,1,2,5", "--coll", "allreduce", "--format", "json"]
    )
    assert json.loads(shown.stdout)["ways"][0]["gbps"] == 25
    shown = CliRunner().invoke(root, ["allocations", "--topo", "dgx1-v100", "--gpus", "8", "--format", "json"])
    rows = json.loads(shown.stdout)["classes"]
    assert [(row["ranks"], row["rates"]["broadcast"]) for row in rows] == [(list(range(8)), "6")]
    shown = CliRunner().invoke(root, ["allocations", "--topo", "dgx1", "--gpus", "3", "--pcie", "10"])
    table = [line.split() for line in shown.stdout.splitlines() if line.strip().startswith("3 ")]
    rates = [Fraction(row[4]) for row in table]
    assert len(set(rates)) > 1 and rates == sorted(rates, reverse=True)  # broadcast, the first collective
    assert "with PCIe" in shown.stdout and "0,1,6" in shown.stdout
    dump = str(Path(__file__).parent / "fixtures" / "nvidia-smi-bridges.txt")  # was an internal error
    shown = CliRunner().invoke(root, ["allocations", "--topo-file", dump, "--gpus", "2", "--coll", "broadcast"])
    assert shown.exit_code == 0 and "0,1 " in shown.stdout, shown.output
    for wrong in (["--coll", "alltoall"], ["--gpus", "9"], ["--pcie", "fast"], ["--coll", ","]):
        assert CliRunner().invoke(root, ["allocations", "--topo", "dgx1", *wrong]).exit_code == 2
