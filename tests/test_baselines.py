"""Ring, double binary tree, recursive doubling, direct: replayed, run, and as long as the formulas say."""

from fractions import Fraction

import pytest

from synth.commands import api
from synth.errors import UsageError
from synth.model.collective import COLLECTIVES
from synth.scale.baselines import algorithms
from tests.command_line import synth
from tests.finer_units import finer

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


def test_rings_of_many_units_have_as_few_chunks_as_is_asked_for():
    machine = finer(api.topology("switch:3").network(), 60)
    fine, coarse = (api.baseline("ring", machine, "allgather", channels=most) for most in (None, 32))
    assert (fine.chunks, fine.rounds, coarse.chunks, coarse.rounds) == (60, 2, 30, 2)
    one, other = (0, 1, 2), (0, 2, 1)
    for units, channels, left in (
        ((20, 30), 32, [10, 15]), ((97,), 32, [1]), ((18,), 32, [18]), ((31, 37), 32, [31, 37]), ((20, 30), 4, [2, 3]),
    ):  # fmt: skip
        rings = list(zip((one, other), units, strict=False))
        assert [share for _, share in algorithms.in_channels(rings, channels)] == left


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


@pytest.mark.parametrize(("name", "coll"), [("recursive-doubling", c) for c in SPREADS])
def test_recursive_doubling_is_right_on_a_dgx1(name, coll):
    roots = (3,) if coll in ("broadcast", "reduce") else ()
    done = api.run(api.baseline(name, "dgx1", coll, roots=roots), bound=False, dtype="int8")
    assert done.checked.elements > 0


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
    done = synth("run --baseline ring --topo dgx1 --coll allreduce --size 48KB --no-bound")
    assert "right: 98,304 elements compared" in done.stdout
    assert "needs the machine" in synth("run --baseline ring --coll allreduce", code=2).stderr
    assert "name a FILE, or a baseline on a machine" in synth("run --topo dgx1", code=2).stderr
    synth("run x.json --baseline ring --topo dgx1 --coll allreduce", code=2)
    synth("run --baseline direct --topo dgx1 --coll broadcast --root 5 --size 1KB --no-bound")


def test_data_pass_between_boxes_once():
    """Allgather on two boxes of 8: each part crosses once, alltoall: each message once."""
    for name, coll, crossing in (("hierarchical", "allgather", 16), ("two-step", "alltoall", 2 * 64)):
        made = api.baseline(name, "dgx-a100*2", coll)
        sends = [send for step in made.steps for send in step.sends if send.src // 8 != send.dst // 8]
        assert len(sends) == crossing
        assert {send.src % 8 == send.dst % 8 for send in sends} == {True}


def test_messages_of_alltoalls_by_boxes():
    """The peers that a rank of four boxes of 8 sends to, summed over the steps."""

    def messages(name):
        made = api.baseline(name, "dgx-a100*4", "alltoall")
        return sum(len({send.dst for send in step.sends if send.src == 5}) for step in made.steps)

    assert messages("direct") == 31
    assert messages("two-step") == 7 + 3 + 3  # what is on its rail already crosses in the first step


@pytest.mark.parametrize(
    ("name", "topology", "coll", "said"),
    [
        ("ring", "dgx1", "alltoall", "ring does not do alltoall; direct does"),
        ("ring", "star:5", "allgather", "no ring through all ranks"),
        ("recursive-doubling", "ring:6", "allgather", "a power of two"),
        ("tree", "full:8", "broadcast", "tree does not do broadcast; direct does"),
        ("direct", "dgx1", "scan", "does not do scan"),
        ("rings", "dgx1", "allgather", "unknown baseline 'rings'; did you mean ring or "),
        ("zzzz", "dgx1", "allgather", "unknown baseline 'zzzz'; there are ring, direct, "),
        ("halving-doublng", "dgx1", "allgather", "did you mean halving-doubling"),
        ("hierarchical", "dgx1*2", "allgather", "hierarchical: dgx1-v100*2 has no link"),
        ("hierarchical", "dgx-a100*2", "alltoall", "hierarchical does not do alltoall"),
    ],
)
def test_an_algorithm_says_what_it_cannot_do(name, topology, coll, said):
    stderr = synth("run --baseline", name, "--topo", topology, "--coll", coll, code=2).stderr
    assert said in stderr and stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "topology", "coll", "steps", "rounds"),
    [
        ("one-shot", "full:4", "allreduce", 1, 1),
        ("pat", "full:6", "reduce-scatter", 3, 5),
        ("torus", "torus:3x3", "allgather", 4, 2),
    ],
)
def test_every_algorithm_of_the_library_is_a_baseline(name, topology, coll, steps, rounds):
    made = api.baseline(name, topology, coll)
    assert (made.step_count, made.rounds_per_chunk) == (steps, rounds)
    network = api.topology(topology).network()
    again = api.baseline(name, network, coll)
    assert again.network == network and again.steps == made.steps
    assert api.baseline("chain", "line:4", "broadcast", pieces=3).chunks == 3
