"""Allocations of a machine: classes, optimal rates, rings on the same links (Blink's setting)."""

import json
from collections import defaultdict
from fractions import Fraction
from itertools import combinations
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.checker.schedule import replay
from synth.commands import api
from synth.commands.allocations import FewerAllocations
from synth.encodings import bounds
from synth.language.library import LIBRARY
from synth.model.collective import collective
from synth.model.topology import Network, Route
from synth.scale.baselines import allocations
from synth.scale.search import bound
from synth.solvers import deadline
from synth.topologies import modify, topology
from tests.command_line import synth

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
        rates = allocations.optimal_rates(made.network, bound)
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
    connected = 0
    for ranks in combinations(range(8), 3):
        part = allocations.induced(network, ranks)
        connected += all(d is not None for row in part.distances for d in row)
    assert sum(made.members for made in allocations.allocation_classes(network, [3])) == connected < 56


def test_trees_of_an_allocation_make_a_schedule_that_verifies_and_beats_the_composition():
    made = next(a for a in allocations.allocation_classes(topology("dgx1").network(), [4]) if a.ranks == (0, 1, 2, 5))
    (packed,) = (one for one in LIBRARY if (one.collective, one.name) == ("allreduce", "packed-trees"))
    schedule = packed.schedule(made.network.as_topology(), collective("allreduce", 4), pieces=64)
    replay.schedule(schedule)
    rates = allocations.optimal_rates(made.network, bound, ("allreduce",))
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
def test_rates_agree_with_the_linear_program(drawn):
    ranks, edges = drawn
    network = Network("random", ranks, tuple(Route(a, b, n) for (a, b), n in sorted(edges.items())))
    if all(d is not None for row in network.distances for d in row):
        rates = allocations.optimal_rates(network, bound, ("broadcast", "allgather")).best
        for name, rate in rates.items():
            task = collective(name, ranks)
            assert 1 / (bounds.flow(network, task, None).value * task.unit_share) == rate


def test_the_explanation_names_the_cut():
    machine = modify.apply(topology("dgx1"), ranks="0,1,2,5")
    made = api.explain(machine, "allreduce")
    assert made.rates[0].units == 1
    assert "0-2 | 5" in made.limit and made.parts == ((0, 1, 2), (5,))
    assert "ranks 0-2: 1 unit to the others" in api.explain(machine, "broadcast").limit


def test_the_commands():
    shown = synth("explain --topo dgx1 --ranks 0,1,2,5 --coll allreduce --format json").stdout
    assert json.loads(shown)["ways"][0]["gbps"] == 25
    rows = json.loads(synth("allocations --topo dgx1-v100 --gpus 8 --format json").stdout)["classes"]
    assert [(row["ranks"], row["rates"]["broadcast"]) for row in rows] == [(list(range(8)), "6")]
    dump = str(Path(__file__).parent / "fixtures" / "nvidia-smi-bridges.txt")  # was an internal error
    assert "0,1 " in synth(f"allocations --topo {dump} --gpus 2 --coll broadcast").stdout
    for wrong in ("--coll alltoall", "--gpus 9", "--coll ,"):
        synth("allocations --topo dgx1", wrong, code=2)


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_time_limit_leaves_what_was_rated_and_says_what_is_missing(form, monkeypatch):
    """The time is over after two classes have been rated."""
    rates, rated, missing = allocations.optimal_rates, [], "classes of 3 GPUs or more that are not listed"

    def counted(*given):
        if len(rated) == 2:
            monkeypatch.setattr(deadline.time, "monotonic", lambda: float("inf"))
        rated.append(given)
        return rates(*given)

    monkeypatch.setattr(allocations, "optimal_rates", counted)
    shown = synth("allocations --topo dgx1-v100 --coll broadcast --time-limit 1000s --format", form, code=4)
    if form == "table":
        assert "2 classes of allocations up to isomorphism" in shown.stdout and f"left open: {missing}" in shown.stdout
        return
    doc = json.loads(shown.stdout)
    assert sorted(row["ranks"] for row in doc["classes"]) == [[0, 1, 2], [0, 1, 3]] and doc["open"] == [missing]


def test_without_time_there_is_still_an_answer():
    with pytest.raises(FewerAllocations, match="0 classes of allocations rated") as fewer:
        api.allocations("dgx1-v100", ("broadcast",), [5], time_limit=0)
    assert (fewer.value.found, fewer.value.exit_code) == ([], 4) and "of 5 GPUs or more" in fewer.value.open
