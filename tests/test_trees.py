"""The tree engine: column generation, and schedules out of trees."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.schedule import replay as verify
from synth.encodings import bounds
from synth.encodings.trees.column_generation import FoldedProblem, generate
from synth.encodings.trees.search import near, solve
from synth.model import symmetry
from synth.model.collective import Collective, collective
from synth.model.outcome import Sat, Unknown
from synth.model.schedule import Problem
from synth.model.topology import Cap, Network, Route
from synth.solvers.deadline import Budget, Deadline
from synth.topologies import topology

TWO_BOXES = "dgx1*2:cross=0+2+5+7"


def network(name: str) -> Network:
    return topology(name).network()


@pytest.mark.parametrize(
    ("name", "what", "steps", "value"),
    [
        ("dgx1", "allgather", 2, "3/2"),
        ("dgx1", "allgather", 3, "7/6"),
        ("dgx1", "alltoall", 2, "8/3"),
        ("dgx1", "broadcast", 3, "9/22"),
        ("dgx1", "broadcast", 5, "5/19"),
        ("hypercube:16", "allgather", 4, "15/4"),
        (TWO_BOXES, "allgather", 3, "4"),
        (TWO_BOXES, "allgather", 4, "14/5"),
        (TWO_BOXES, "allgather", 5, "18/7"),
    ],
)
def test_column_generation_reaches_the_known_infimum(name, what, steps, value):
    net = network(name)
    coll = collective(what, net.ranks)
    found = generate(FoldedProblem(net, coll, steps, symmetry.generators(net, coll)), float(Fraction(value)))
    assert found is not None
    assert found.value == pytest.approx(float(Fraction(value)), rel=1e-6)
    for unit, trees in found.trees.items():
        assert sum(found.share[unit]) == pytest.approx(1)
        for tree in trees:
            assert_tree(net, tree, coll.pre[unit], coll.post[unit], steps)


def assert_tree(net, tree, pre, post, steps):
    at = dict.fromkeys(pre, 0)
    for step, route in tree:
        r = net.routes[route]
        assert r.src in at and at[r.src] < step <= steps
        assert r.dst not in at
        at[r.dst] = step
    assert post <= at.keys()


def test_too_few_steps_have_no_trees():
    net = network("ring:6")
    assert generate(FoldedProblem(net, collective("allgather", 6), 2)) is None


def test_equal_limits_keep_their_order_under_symmetries():
    """Two limits on the same links, twice: the NIC of one box sends what that of the other receives."""
    net = network("line:2*2:nics=1")
    assert [cap.routes for cap in net.caps] == [net.caps[k].routes for k in (3, 2, 1, 0)]
    coll = collective("allgather", net.ranks)
    folded = FoldedProblem(net, coll, 2, symmetry.generators(net, coll))
    limits = folded.orbit[len(net.routes) :].tolist()
    assert limits[0] == limits[1] != limits[2] == limits[3]


@pytest.mark.parametrize(
    ("name", "what", "csr"),
    [
        ("dgx1", "allgather", (1, 2, 2)),
        ("dgx1", "allgather", (2, 2, 3)),
        ("dgx1", "allgather", (6, 3, 7)),
        ("dgx1", "broadcast", (22, 3, 9)),
        ("dgx1", "broadcast", (13, 4, 4)),
        ("dgx1", "alltoall", (1, 3, 3)),
        ("dgx1", "alltoall", (3, 2, 8)),
        ("dgx1", "alltoall", (3, 8, 8)),
        ("ring:8", "allgather", (2, 4, 7)),
        ("dgx2", "allgather", (1, 1, 15)),
        ("dgx1", "gather", (1, 3, 3)),
        ("hypercube:16", "allgather", (4, 4, 15)),
        (TWO_BOXES, "allgather", (1, 3, 4)),
        pytest.param(TWO_BOXES, "allgather", (5, 4, 14), marks=pytest.mark.slow),
        pytest.param("dgx1", "broadcast", (37, 8, 8), marks=pytest.mark.slow),
    ],
)
def test_known_schedules_are_found_and_replayed(name, what, csr):
    chunks, steps, rounds = csr
    net = network(name)
    verdict = solve(Problem(net, collective(what, net.ranks), chunks, steps, rounds), Budget(Deadline.after(120)))
    assert isinstance(verdict, Sat), verdict
    replay = verify.schedule(verdict.schedule)
    assert (replay.chunks, replay.steps, replay.rounds) == csr
    assert verdict.cost.engine == "tree"


@pytest.mark.parametrize(
    ("what", "csr"),
    [("allgather", (6, 2, 7)), ("allgather", (3, 1, 9)), ("allgather", (2, 3, 2)), ("reduce", (1, 2, 2))],
)
def test_nothing_is_claimed_where_nothing_is_found(what, csr):
    net = network("dgx1")
    verdict = solve(Problem(net, collective(what, 8), *csr), Budget(Deadline.after(20)))
    assert isinstance(verdict, Unknown)


def test_the_same_seed_gives_the_same_schedule():
    net = network("dgx1")
    problem = Problem(net, collective("broadcast", 8), 13, 4, 4)
    first, second = (solve(problem, Budget(Deadline.after(120), seed=3)) for _ in range(2))
    assert isinstance(first, Sat) and isinstance(second, Sat)
    assert first.schedule == second.schedule


@st.composite
def problems(draw):
    ranks = draw(st.integers(3, 6))
    order = draw(st.permutations(range(ranks)))
    ends = {(order[i - 1], order[i]) for i in range(ranks)}
    ends |= set(
        draw(
            st.lists(
                st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(lambda e: e[0] != e[1]),
                max_size=8,
            )
        )
    )
    routes = tuple(Route(u, v, draw(st.integers(1, 2))) for u, v in sorted(ends))
    caps = (
        (Cap(draw(st.sampled_from([(0, len(routes) - 1), (0, 0, 1)])), draw(st.integers(1, 2))),)
        if draw(st.booleans())
        else ()
    )
    units = draw(st.integers(1, 3))
    pre = tuple(frozenset([draw(st.integers(0, ranks - 1))]) for _ in range(units))
    post = tuple(frozenset(draw(st.sets(st.integers(0, ranks - 1), min_size=1))) for _ in range(units))
    return Network("random", ranks, routes, caps), Collective("custom", ranks, pre, post)


@settings(max_examples=25, deadline=None)
@given(problems())
def test_bounds_stay_below_schedules(problem):
    net, coll = problem
    if all(post <= pre for pre, post in zip(coll.pre, coll.post, strict=True)):
        return
    steps = int(bounds.steps(net, coll).value) + 1
    flow = bounds.flow(net, coll, steps).value
    group = symmetry.generators(net, coll)
    folded, plain = (generate(FoldedProblem(net, coll, steps, g), float(flow)) for g in (group, ()))
    assert folded is not None and plain is not None
    assert folded.value >= float(flow) * (1 - 1e-6)
    assert folded.value == pytest.approx(plain.value, rel=1e-5)
    rounds = max(steps, -int(-2 * flow // 1) + 1)
    verdict = solve(Problem(net, coll, 2, steps, rounds), Budget(Deadline.after(10)))
    if isinstance(verdict, Sat):
        assert verify.schedule(verdict.schedule).rounds_per_chunk >= flow


# machines of 16 ranks, where trees are searched, not priced exactly


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
@pytest.mark.parametrize(("name", "steps"), [("dgx-a100*2", 4), ("mi250", 5)])
def test_a_search_leaves_the_steps_that_its_first_trees_send_in(name, steps, seed):
    net = network(name)
    task = collective("allgather", net.ranks)
    group = symmetry.generators(net, task)
    bound = float(bounds.flow(net, task, steps).value)
    found = generate(FoldedProblem(net, task, steps, group), bound, seed=seed)
    assert found is not None
    assert found.value == pytest.approx(bound, rel=1e-6)
    assert found.iterations <= 40


@pytest.mark.slow
def test_near_stops_once_fractions_are_close_enough():
    net = network("mi250")
    task = collective("allgather", net.ranks)
    bound = Fraction(191, 78)
    verdict = near(net, task, 6, bound, 60, Budget(Deadline.after(20.0)), close=0.05)
    assert isinstance(verdict, Sat)
    verify.schedule(verdict.schedule)
    assert bound < verdict.schedule.rounds_per_chunk <= bound * Fraction(11, 10)
