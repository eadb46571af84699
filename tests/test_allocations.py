"""Allocations of a machine: classes, optimal rates, rings on the same links (Blink's setting)."""

import json
from collections import defaultdict
from itertools import combinations

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from synth import api, bounds
from synth.cli import root
from synth.model.collective import collective
from synth.model.topology import Network, Route
from synth.scale.baselines import allocations
from synth.scale.baselines.rings import disjoint_rings
from synth.scale.bounds import subset_cuts
from synth.topologies import modify, topology

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
    for made in allocations.allocation_classes(topology(machine).network()):
        found[len(made.ranks)].append(allocations.rate_bound(made.network, "broadcast").units)
        ringless[len(made.ranks)] += disjoint_rings(made.network).units == 0
    assert {n: (sorted(rates), ringless[n]) for n, rates in found.items()} == KNOWN[machine]


def test_each_class_counts_its_members():
    network = topology("dgx1").network()
    connected = 0
    for ranks in combinations(range(8), 3):
        part = allocations.induced(network, ranks)
        connected += all(d is not None for row in part.distances for d in row)
    assert sum(made.members for made in allocations.allocation_classes(network, [3])) == connected < 56


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


def test_the_explanation_names_the_cut():
    machine = modify.apply(topology("dgx1"), ranks="0,1,2,5")
    made = api.explain(machine, "allreduce")
    assert made.rates[0].units == 1
    assert "0-2 | 5" in made.limit and made.parts == ((0, 1, 2), (5,))
    assert "ranks 0-2: 1 unit to the others" in api.explain(machine, "broadcast").limit


def test_the_commands():
    shown = CliRunner().invoke(
        root, ["explain", "--topo", "dgx1", "--ranks", "0,1,2,5", "--coll", "allreduce", "--format", "json"]
    )
    assert json.loads(shown.stdout)["ways"][0]["gbps"] == 25
