"""The tree engine: column generation, and schedules out of trees."""

import sys
import time
from fractions import Fraction
from itertools import product

import dozing
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.schedule import replay as verify
from synth.encodings import bounds
from synth.encodings.step import StepEncoding
from synth.encodings.trees.cheapest_trees import MOST_FREE, SteinerTreeDP, make_pricer
from synth.encodings.trees.column_generation import FoldedProblem, generate
from synth.encodings.trees.search import meet, near, solve
from synth.encodings.trees.time_expanded_trees import Tree, TreeSearch
from synth.model import symmetry
from synth.model.collective import Collective, collective
from synth.model.outcome import Sat, Unknown
from synth.model.schedule import Problem
from synth.model.topology import Cap, Network, Route
from synth.pareto.portfolio import portfolio
from synth.pareto.portfolio.members import Member
from synth.solvers import pool
from synth.solvers.deadline import Budget, Deadline
from synth.solvers.python_sat import Cadical
from synth.topologies import topology

TWO_BOXES = "dgx1*2:cross=0+2+5+7"


def network(name: str) -> Network:
    return topology(name).network()


@pytest.mark.parametrize(("name", "what", "steps", "value"), [
    ("dgx1", "allgather", 2, "3/2"), ("dgx1", "allgather", 3, "7/6"), ("dgx1", "alltoall", 2, "8/3"),
    ("dgx1", "broadcast", 3, "9/22"), ("dgx1", "broadcast", 5, "5/19"), ("hypercube:16", "allgather", 4, "15/4"),
    (TWO_BOXES, "allgather", 3, "4"), (TWO_BOXES, "allgather", 4, "14/5"), (TWO_BOXES, "allgather", 5, "18/7"),
])  # fmt: skip
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


@pytest.mark.parametrize(("name", "what", "csr"), [
    ("dgx1", "allgather", (1, 2, 2)), ("dgx1", "allgather", (2, 2, 3)), ("dgx1", "allgather", (6, 3, 7)),
    ("dgx1", "broadcast", (22, 3, 9)), ("dgx1", "broadcast", (13, 4, 4)), ("dgx1", "alltoall", (1, 3, 3)),
    ("dgx1", "alltoall", (3, 2, 8)), ("dgx1", "alltoall", (3, 8, 8)), ("ring:8", "allgather", (2, 4, 7)),
    ("dgx2", "allgather", (1, 1, 15)), ("dgx1", "gather", (1, 3, 3)), ("hypercube:16", "allgather", (4, 4, 15)),
    (TWO_BOXES, "allgather", (1, 3, 4)), pytest.param(TWO_BOXES, "allgather", (5, 4, 14), marks=pytest.mark.slow),
    pytest.param("dgx1", "broadcast", (37, 8, 8), marks=pytest.mark.slow),
])  # fmt: skip
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
    every = [(u, v) for u in range(ranks) for v in range(ranks) if u != v]
    ends = {(order[i - 1], order[i]) for i in range(ranks)} | set(draw(st.lists(st.sampled_from(every), max_size=8)))
    routes = tuple(Route(u, v, draw(st.integers(1, 2))) for u, v in sorted(ends))
    caps = ()
    if draw(st.booleans()):
        caps = (Cap(draw(st.sampled_from([(0, len(routes) - 1), (0, 0, 1)])), draw(st.integers(1, 2))),)
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


# ---------------------------------------------------------------- whole chunks on trees, and budgets of work


DGX1 = topology("dgx1").network()
TWO_ROOTS = collective("multi-broadcast", 8, roots=(0, 5))


@pytest.mark.parametrize(("steps", "value"), [(2, "1"), (3, "9/22"), (5, "5/19"), (6, "6/25")])
def test_a_broadcast_meets_its_bound(steps, value):
    task = collective("broadcast", 8)
    verdict = meet(DGX1, task, steps, Fraction(value), 100)
    assert isinstance(verdict, Sat)
    assert verify.schedule(verdict.schedule).rounds_per_chunk == Fraction(value) == bounds.flow(DGX1, task, steps).value


def test_the_number_of_chunks_is_the_one_at_which_rounds_are_whole():
    verdict = meet(DGX1, TWO_ROOTS, 4, Fraction(7, 17), 1000)
    assert isinstance(verdict, Sat)
    assert verify.schedule(verdict.schedule).rounds_per_chunk == Fraction(7, 17)
    assert verdict.schedule.chunks % 17 == 0
    assert isinstance(meet(DGX1, TWO_ROOTS, 4, Fraction(7, 17), 18), Unknown)  # 17 chunks have no whole rounds


def test_a_thousand_chunks_are_no_more_work():
    verdict = meet(DGX1, TWO_ROOTS, 6, Fraction(491, 1361), 5000)
    assert isinstance(verdict, Sat)
    assert verify.schedule(verdict.schedule).rounds_per_chunk == Fraction(491, 1361)


def test_below_the_infimum_nothing_is_found():
    verdict = meet(DGX1, collective("broadcast", 8), 3, Fraction(2, 5), 100)
    assert isinstance(verdict, Unknown)
    assert verdict.detail == f"the trees found allow no less than {9 / 22:.6g} rounds per chunk"


def test_near_a_bound_that_takes_too_many_chunks():
    bound = bounds.flow(DGX1, TWO_ROOTS, 5).value
    assert bound.denominator == 415
    verdict = near(DGX1, TWO_ROOTS, 5, bound, 100)
    assert isinstance(verdict, Sat)
    replay = verify.schedule(verdict.schedule)
    assert replay.chunks <= 100
    assert bound < replay.rounds_per_chunk < bound * Fraction(11, 10)
    more = near(DGX1, TWO_ROOTS, 5, bound, 300)
    assert isinstance(more, Sat) and more.schedule.rounds_per_chunk < replay.rounds_per_chunk


def test_a_process_that_sleeps_spends_nothing():
    job = pool.submit(Member("step", "minicard").imports, time.sleep, (1.0,))
    assert pool.result(job, Deadline.after(60)) is None
    assert job.pid > 0
    spent = job.cpu_seconds()
    assert spent is None or spent < 0.5


def test_a_race_counts_work_and_not_time(monkeypatch):
    monkeypatch.setattr(portfolio, "run_member", dozing.doze)
    problem = Problem(DGX1, collective("allgather", 8), 7, 3, 8)
    began = time.monotonic()
    verdict = portfolio.solve(problem, budget=Budget(Deadline.after(1.5), 0.3), encoding="step")
    assert isinstance(verdict, Unknown)
    assert verdict.reason == "time"
    if sys.platform.startswith("linux"):
        assert time.monotonic() - began > 1.4  # its 0.3 s of work were not used up, so that it had five times as long


def test_a_solver_counts_its_work_the_same_each_time():
    model, _ = StepEncoding().apply(Problem(DGX1, collective("allgather", 8), 6, 3, 7))
    first, second = (Cadical(conflicts=20).solve(model) for _ in range(2))
    assert first.work == second.work > 0
    assert Cadical(conflicts=5000).solve(model).work > first.work


# -------------------------------- exact pricing over the sets of ranks that hold the chunk


def every_tree(network: Network, steps: int, sources: set[int], targets: set[int]) -> list[Tree]:
    """All trees without idle relays, by trying every receive of every rank."""
    free = [n for n in range(network.ranks) if n not in sources]
    ways = [
        [None, *((t, i) for i, r in enumerate(network.routes) if r.dst == n for t in range(1, steps + 1))] for n in free
    ]
    found = []
    for chosen in product(*ways):
        at = dict.fromkeys(sources, 0) | {n: way[0] for n, way in zip(free, chosen, strict=True) if way is not None}
        sends = [way for way in chosen if way is not None]
        used = {network.routes[i].src for _, i in sends}
        in_time = all(at.get(network.routes[i].src, steps) < t for t, i in sends)
        if in_time and targets <= at.keys() and at.keys() - sources <= used | targets:
            found.append(tuple(sorted(sends)))
    return found


@st.composite
def cases(draw):
    ranks = draw(st.integers(2, 4))
    every = [(u, v) for u in range(ranks) for v in range(ranks) if u != v]
    ends = draw(st.lists(st.sampled_from(every), min_size=1, max_size=7))
    network = Network("random", ranks, tuple(Route(u, v, 1) for u, v in sorted(set(ends))))
    steps = draw(st.integers(1, 3))
    sources = draw(st.sets(st.integers(0, ranks - 1), min_size=1, max_size=2))
    targets = draw(st.sets(st.integers(0, ranks - 1), min_size=1))
    prices = [[draw(st.integers(0, 4)) for _ in range(steps)] for _ in network.routes]
    return network, steps, sources, targets, np.array(prices, dtype=float)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_cheapest_of_all_trees_is_found_and_the_cheapest_through_every_send_step(case):
    network, steps, sources, targets, prices = case
    if targets <= sources:
        return
    trees = every_tree(network, steps, sources, targets)
    found = SteinerTreeDP(network, steps, sources, targets).search(prices)
    assert bool(found) == bool(trees)
    if not trees:
        return

    def cost(tree: Tree) -> float:
        return sum(prices[i, t - 1] for t, i in tree)

    assert found[0][0] == min(map(cost, trees))
    assert {tree for _, tree in found} <= set(trees)
    assert all(cost(tree) == value for value, tree in found)
    # at least as good as any tree in which n is of use at t
    for n, t in product(range(network.ranks), range(1, steps + 1)):
        through = [tree for tree in trees if any(network.routes[i].dst == n and s == t for s, i in tree)]
        if through and n in targets:
            ours = [value for value, tree in found if any(network.routes[i].dst == n and s == t for s, i in tree)]
            assert ours and min(ours) == min(map(cost, through))


def test_no_search_finds_a_cheaper_tree():
    network = topology("dgx1").network()
    chance = np.random.default_rng(1)
    for steps in (2, 4):
        prices = chance.random((len(network.routes), steps))
        exact = SteinerTreeDP(network, steps, [0], range(8)).search(prices)[0][0]
        searched = TreeSearch(network, steps, [0], range(8), 1).search(prices, [], 64, 40)[0][0]
        assert exact <= searched * (1 + 1e-12)
        assert searched <= exact * 1.05


@pytest.mark.parametrize(("name", "kind"), [("dgx1", SteinerTreeDP), ("hypercube:16", TreeSearch)])
def test_many_ranks_are_searched(name, kind):
    network = topology(name).network()
    assert isinstance(make_pricer(network, 4, [0], range(network.ranks), 0), kind)
    assert SteinerTreeDP.fits(network, range(network.ranks - MOST_FREE))


def test_too_far_in_so_few_steps():
    assert SteinerTreeDP(topology("ring:6").network(), 2, [0], [3]).search(np.ones((12, 2))) == []
