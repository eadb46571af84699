"""Ring, double binary tree, recursive doubling, direct: replayed, run, and as long as the formulas say."""

from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth import api
from synth.cli import root
from synth.errors import UsageError
from synth.model.collective import COLLECTIVES
from synth.scale.baselines import algorithms

SIZES = {"allgatherv", "reduce-scatterv", "alltoallv"}
SPREADS = ("broadcast", "reduce", "allgather", "reduce-scatter", "allreduce")


@pytest.mark.parametrize("name", [c for c in COLLECTIVES if c not in SIZES | {"scan"}])
def test_direct_does_every_collective_on_a_dgx1_right(name):
    done = api.run(api.baseline("direct", "dgx1", name), size=None, bound=False, dtype="int32")
    assert done.checked.elements > 0


@pytest.mark.parametrize("topology", ["dgx1", "ring:5", "torus:2x3"])
@pytest.mark.parametrize("name", SPREADS)
def test_rings_are_right_and_use_all_links(topology, name):
    made = api.baseline("ring", topology, name)
    done = api.run(made, bound=False, dtype="int64")
    assert done.checked.exact == done.checked.elements > 0
    root = (0,) if made.collective.roots else ()
    idle = {(u.link[0] if name == "reduce" else u.link[1]) for u in done.execution.links} & set(root)
    assert not idle  # nothing comes to a broadcast's root, and nothing leaves a reduce's
    if topology != "torus:2x3" and not root:  # where rings use up every link
        assert len(done.execution.links) == len(made.network.routes)


def test_costs_are_those_of_the_literature():
    def cost(name, topology, coll, **options):
        made = api.baseline(name, topology, coll, **options)
        return len(made.steps), Fraction(made.rounds, made.chunks)

    assert cost("ring", "dgx1", "allgather") == (7, Fraction(7, 6))
    assert cost("ring", "dgx1", "allreduce") == (14, Fraction(14, 48))
    assert cost("ring", "ring:6", "allreduce") == (10, Fraction(10, 12))
    assert cost("recursive-doubling", "dgx1", "allgather") == (3, 7)
    assert cost("recursive-doubling", "dgx1", "allreduce") == (3, 3)
    assert cost("direct", "full:8", "allgather") == (1, 1)
    assert cost("direct", "full:8", "allreduce") == (2, Fraction(2, 8))
    # 3 levels up and 3 down, pieces behind each other
    steps, _ = cost("tree", "full:8", "allreduce", pieces=1)
    assert steps == cost("tree", "full:8", "allreduce", pieces=5)[0] - 4


@pytest.mark.parametrize(("name", "coll"), [("recursive-doubling", c) for c in SPREADS] + [("tree", "allreduce")])
def test_trees_and_recursive_doubling_are_right_on_a_dgx1(name, coll):
    done = api.run(
        api.baseline(name, "dgx1", coll, roots=(3,) if coll in ("broadcast", "reduce") else ()),
        bound=False,
        dtype="int8",
    )
    assert done.checked.elements > 0


@pytest.mark.parametrize(
    ("name", "topology", "coll", "said"),
    [
        ("ring", "dgx1", "alltoall", "ring does not do alltoall; direct does"),
        ("ring", "star:5", "allgather", "no ring through all ranks"),
        ("recursive-doubling", "ring:6", "allgather", "a power of two"),
        ("recursive-doubling", "ring:8", "allgather", "no link from rank 0 to rank 2"),
        ("tree", "dgx1", "broadcast", "for allreduce"),
        ("tree", "ring:6", "allreduce", "no way to place"),
        ("direct", "dgx1", "scan", "does not do scan"),
        ("rings", "dgx1", "allgather", "unknown baseline 'rings'; there are ring, tree, recursive-doubling, direct"),
    ],
)
def test_what_an_algorithm_cannot_do_is_said(name, topology, coll, said):
    with pytest.raises(UsageError, match=said):
        api.baseline(name, topology, coll)


def test_direct_names_a_rank_that_cannot_be_reached():
    with pytest.raises(UsageError, match=r"rank \d of .* cannot be reached"):
        api.baseline("direct", api.topology("ring:4", without=("0-1", "0-3")), "allgather")


def test_a_load_is_spread_over_parallel_routes_and_rounds_follow_from_it():
    network = api.topology("dgx1").network()
    made = algorithms.direct(network, api.collective("alltoall", 8))
    for step in made.steps:
        load = {}
        for send in step.sends:
            load[send.src, send.dst] = load.get((send.src, send.dst), 0) + 1
        units = {(route.src, route.dst): route.units for route in network.routes}
        assert step.rounds == max(-(-n // units[pair]) for pair, n in load.items())


def test_from_the_command_line():
    def synth(words):
        return CliRunner().invoke(root, words.split())

    done = synth("run --baseline ring --topo dgx1 --coll allreduce --size 48KB --no-bound")
    assert done.exit_code == 0, done.stderr
    assert "right: 98,304 elements compared" in done.stdout
    assert "needs the machine" in synth("run --baseline ring --coll allreduce").stderr
    assert "nothing to run" in synth("run --topo dgx1").stderr
    assert synth("run x.json --baseline ring --topo dgx1 --coll allreduce").exit_code == 2
    rooted = synth("run --baseline direct --topo dgx1 --coll broadcast --root 5 --size 1KB --no-bound")
    assert rooted.exit_code == 0, rooted.stderr
