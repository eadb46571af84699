"""Allreduce: the frontier of the known table, the engines, and their compositions; every schedule is replayed."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import swept

import synth
from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.encodings import contributions, spanning_tree_packing
from synth.encodings.hubs import reduce_broadcast
from synth.encodings.translated_chunks import TranslatedChunks
from synth.errors import SynthError
from synth.model.collective import collective
from synth.model.frontier import Open, Point
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.bitwise_equality import same_bits
from synth.model.sends.dead_sends import prune
from synth.model.topology import Link, Network, Route, Topology
from synth.pareto.combining.candidates import Candidates
from synth.pareto.combining.rs_ag_composition import compose
from synth.pareto.combining.symmetry_candidates import symmetry_candidates
from synth.solvers.python_sat import Cadical
from synth.topologies import topology


def net(name):
    return topology(name).network()


def everything(name, **options):
    network = net(name)
    found = swept(network, collective("allreduce", network.ranks), **options)
    return [*found.points, *found.open]


def solved(name, engine, moves, chunks, steps, rounds):
    network = net(name)
    task = collective("allreduce", network.ranks)
    group = next(group for group in symmetry_candidates(network, task) if len(group) == moves)
    model, read = engine.encode(TranslatedChunks(network, task, group, chunks), steps, rounds)
    answer = Cadical().solve(model)
    if answer.status != "sat":
        return None
    schedule = read({v for v, holds in enumerate(answer.values) if holds})
    found = replay.schedule(schedule)
    assert found.steps == steps
    assert found.rounds_per_chunk <= Fraction(rounds, chunks)
    return schedule


@pytest.mark.parametrize(("name", "moves", "chunks", "steps", "rounds", "possible"), [
    ("dgx1", 4, 8, 3, 4, True), ("dgx1", 4, 12, 4, 4, True), ("dgx1", 4, 8, 3, 3, False), ("ring:8", 8, 8, 7, 7, True),
    ("ring:8", 8, 8, 7, 6, False), ("switch:8:units=12", 8, 8, 2, 14, True), ("line:4", 1, 1, 3, 3, True),
])  # fmt: skip
def test_direct(name, moves, chunks, steps, rounds, possible):
    assert (solved(name, contributions, moves, chunks, steps, rounds) is not None) == possible


@pytest.mark.parametrize(("name", "moves", "chunks", "steps", "rounds", "possible"), [
    ("dgx1", 4, 12, 4, 4, True), ("ring:8", 8, 8, 7, 7, True), ("ring:8", 8, 8, 6, 8, False),
    ("hypercube:8", 8, 24, 5, 14, True), ("star:5", 1, 1, 2, 2, True), ("star:5", 1, 1, 1, 9, False),
])  # fmt: skip
def test_hub(name, moves, chunks, steps, rounds, possible):
    schedule = solved(name, reduce_broadcast, moves, chunks, steps, rounds)
    assert (schedule is not None) == possible
    if schedule is not None:
        sends = sum(len(step.sends) for step in schedule.steps)
        assert sends == 2 * (schedule.network.ranks - 1) * schedule.chunks
        assert same_bits(schedule)


@pytest.mark.parametrize(
    ("name", "steps"), [("ring:8", 7), ("hypercube:8", 5), ("dgx1", 3), ("star:5", 2), ("line:4", 3), ("torus:4x4", 7)]
)
def test_least_steps_of_hubs(name, steps):
    network = net(name)
    assert Candidates(network, collective("allreduce", network.ranks)).hub_steps == steps


def ring_allgather(network, forward=1):
    n = network.ranks
    steps = [Step(1, tuple(Send((i - forward * t) % n, i, (i + forward) % n) for i in range(n))) for t in range(n - 1)]
    return Schedule(network, collective("allgather", n), 1, tuple(steps))


@pytest.mark.parametrize("times", [1, 3])
def test_reduce_scatter_then_allgather(times):
    network, task = net("ring:5"), collective("allreduce", 5)
    forwards = ring_allgather(network)
    steps = []
    for step in forwards.steps:
        sends = (Send(s.chunk * times + i, s.src, s.dst) for s in step.sends for i in range(times))
        steps.append(Step(times, tuple(sends)))
    repeated = Schedule(network, forwards.collective, times, tuple(steps))
    made = compose(ring_allgather(network.reversed(), -1), repeated, task)
    found = replay.schedule(made)
    assert (found.steps, found.chunks, found.rounds_per_chunk) == (8, 5 * times, Fraction(8, 5))
    assert same_bits(made)


def test_only_allgathers_are_composed():
    network = net("ring:4")
    other = Schedule(network, collective("broadcast", 4), 1, ())
    with pytest.raises(SynthError, match="got one for broadcast"):
        compose(other, other, collective("allreduce", 4))


def by_hand(ranks, *steps):
    network = net(f"fully-connected:{ranks}")
    made = tuple(Step(9, tuple(Send(0, *send) for send in step)) for step in steps)
    return Schedule(network, collective("allreduce", ranks), 1, made)


def test_only_schedules_with_the_same_bits_on_request():
    items = everything("fully-connected:4", same_bits=True)
    (point,) = [item for item in items if isinstance(item, Point)]
    assert point.same_bits
    assert same_bits(point.schedule)
    assert (point.steps, str(point.rounds_per_chunk), point.status) == (2, "1/2", "optimal")
    (opened,) = [item for item in items if isinstance(item, Open)]
    assert (opened.steps, opened.lower, opened.upper) == (1, 1, None)


def test_pruning_drops_what_nobody_reads():
    lean = by_hand(3, [(1, 0, "reduce"), (2, 0, "reduce"), (1, 2, "reduce")], [(0, 1, "copy"), (0, 2, "copy")])
    pruned = prune(lean)
    assert [len(step.sends) for step in pruned.steps] == [2, 2]
    assert [step.rounds for step in pruned.steps] == [1, 1]
    replay.schedule(pruned)


def test_pruning_keeps_what_is_read_before_it_is_replaced():
    made = by_hand(3, [(1, 0, "reduce")], [(0, 2, "reduce"), (2, 0, "reduce")], [(0, 1, "copy")])
    replay.schedule(made)
    assert [len(step.sends) for step in prune(made).steps] == [1, 2, 1]


def test_a_budget_that_is_spent_leaves_open_intervals():
    opened = [i for i in everything("torus:4x4", time_limit=0.0) if isinstance(i, Open)]
    assert opened[0].steps == 4
    assert 0 < opened[0].lower <= 1  # that of 4 steps is 1
    assert opened[0].upper is None


def test_links_that_all_go_one_way_have_no_swap():
    oneway = Topology("oneway", 3, tuple(Link(r, (r + 1) % 3, Fraction(1)) for r in range(3))).network()
    assert Candidates(oneway, collective("allreduce", 3)).hub_steps == 4


def test_a_bound_of_more_representatives_than_are_usual_is_met_on_a_part_of_a_machine():
    found = synth.frontier(synth.topology("dgx1", ranks=range(7)), "allreduce", max_steps=3, fresh=True)
    assert [(p.steps, p.rounds_per_chunk, p.status) for p in found.points] == [(3, Fraction(5, 7), "optimal")]


def test_a_complete_frontier_without_end_has_a_point_at_every_number_of_steps():
    found = synth.frontier(synth.topology("dgx1", ranks=(0, 3, 7)), "allreduce", jobs=1, fresh=True)
    assert [str(p.rounds_per_chunk) for p in found.points[:3]] == ["2", "3/2", "4/3"]
    assert found.complete and found.max_steps == found.points[-1].steps
    assert exact_frontier.frontier(found.to_json())[-1].endswith(f"up to {found.max_steps} steps")


# ---------------------------------------------------------------- packings of spanning trees


def undirected(ranks, pairs):
    return Network("made", ranks, tuple(Route(*ends, units) for a, b, units in pairs for ends in ((a, b), (b, a))))


@pytest.mark.parametrize(("name", "rate"), [
    ("dgx1", "24/7"), ("ring:8", "8/7"), ("hypercube:8", "12/7"), ("fully-connected:8", "4"), ("line:5", "1"),
    ("star:6", "1"),
])  # fmt: skip
def test_known_rates(name, rate):
    network = topology(name).network()
    made = spanning_tree_packing.forest(network)
    assert str(made.rate) == rate
    assert spanning_tree_packing.partition_rate(network, made.partition) == made.rate


@st.composite
def networks(draw):
    ranks = draw(st.integers(2, 6))
    order = draw(st.permutations(range(ranks)))
    pairs = {tuple(sorted(pair)) for pair in pairwise(order)}
    pairs |= {(a, b) for a in range(ranks) for b in range(a + 1, ranks) if draw(st.booleans())}
    return undirected(ranks, [(a, b, draw(st.integers(1, 3))) for a, b in sorted(pairs)])


def partitions(ranks):
    """All ways to put ranks into parts, as tuples of part names."""
    made = [(0,)]
    for _ in range(1, ranks):
        made = [(*p, k) for p in made for k in range(max(p) + 2)]
    return [p for p in made if max(p)]


def check_trees(made):
    """Each tree spans the ranks, and all together take no pair more often than its units times the denominator."""
    network = made.network
    used = Counter()
    for tree in made.trees:
        assert all(tree.depth(rank) < network.ranks for rank in range(network.ranks))
        used.update(tuple(sorted((n, tree.parents[n]))) for n in range(network.ranks) if n != tree.root)
    units = Counter()
    for route in network.routes:
        units[route.src, route.dst] += route.units
    assert all(count <= units[pair] * made.rate.denominator for pair, count in used.items())
    assert len(made.trees) == made.rate.numerator


@settings(max_examples=40, deadline=None)
@given(networks())
def test_the_rate_is_the_least_over_all_partitions_and_is_attained(network):
    made = spanning_tree_packing.forest(network)
    assert made.rate == min(spanning_tree_packing.partition_rate(network, p) for p in partitions(network.ranks))
    check_trees(made)


def test_one_way_links_are_refused():
    network = Network("one way", 3, (Route(0, 1, 1), Route(1, 2, 1), Route(2, 0, 1)))
    with pytest.raises(SynthError, match="same units both ways"):
        spanning_tree_packing.forest(network)


def test_a_partition_has_two_parts():
    with pytest.raises(SynthError, match="two parts"):
        spanning_tree_packing.partition_rate(undirected(2, [(0, 1, 1)]), (0, 0))


def test_pairs_that_are_joined_through_several_switches_have_the_units_of_all():
    pairs = [(0, 3, 1), (3, 2, 1), (0, 4, 1), (4, 1, 1), (0, 5, 1), (5, 1, 1), (1, 2, 2)]
    links = [Link(*ends, Fraction(n)) for a, b, n in pairs for ends in ((a, b), (b, a))]
    made = spanning_tree_packing.forest(Topology("made", 3, links, switches=("s0", "s1", "s2")).network())
    assert made.rate == Fraction(5, 2)
    check_trees(made)


def test_a_line_of_unlike_links_is_packed_by_its_weakest():
    """No more trees than the weak links let through; a tree for each unit of all links would take minutes."""
    widths = (Fraction(127, 10), Fraction(7, 3), Fraction(11, 10), Fraction(3))
    links = [Link(*ends, width) for a, width in enumerate(widths) for ends in ((a, a + 1), (a + 1, a))]
    made = spanning_tree_packing.forest(Topology("line", 5, tuple(links)).network())
    assert (made.rate, len(made.trees)) == (33, 33)
