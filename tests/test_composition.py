"""Schedules composed of phases over the boxes of a machine."""

from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import first_rows

import synth
from synth.checker.schedule import compressed_replay
from synth.checker.schedule import replay as ordinary
from synth.commands import api
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.encodings.trees.cheapest_trees import SteinerTreeDP
from synth.errors import VerificationError
from synth.model.collective import collective, pattern
from synth.model.sends.bitwise_equality import same_bits
from synth.model.topology import Limit, Link, Topology
from synth.program import analysis, checked_lowering
from synth.scale import search
from synth.scale.composition.compose import composed_messages, composed_points
from synth.scale.composition.loads import PathIndex, Resources
from synth.scale.composition.phases import Phase, Template, TemplateBuilder
from synth.scale.composition.pipelining_lp import PipeliningProgram
from synth.scale.composition.tree_columns import descend, generate
from synth.scale.fabric.automorphisms import free_group, symmetries
from synth.scale.fabric.fabric import fabric
from synth.scale.fabric.graphs import distances
from synth.solvers.deadline import Deadline
from synth.topologies import modify, topology
from synth.topologies.modify import broken, with_ranks
from tests.command_line import synth as cli

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")


def points(machine, collective, root=0, most_sends=20_000, alike=False, most=None, priced=True):
    graph = fabric(machine)
    group = () if collective in ("broadcast", "reduce") else free_group(symmetries(graph), graph.ranks)
    limits = {"same_bits": alike, "most_sends": most_sends, "priced": priced}
    found = composed_points(machine, collective, root, group, **limits)
    return list(islice(found, most))


def replayed(point):
    """The point's schedule, after both replays agree with the point's numbers."""
    bulk = point.make()
    assert (bulk.step_count, bulk.rounds_per_chunk, bulk.chunks) == (point.steps, point.rounds_per_chunk, point.chunks)
    assert compressed_replay.replay(bulk).rounds_per_chunk == point.rounds_per_chunk
    ordinary.schedule(bulk.written_out())
    return bulk


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("dgx-a100*2", {3: Fraction(13, 55), 6: Fraction(3, 20)}),  # 13/55 is the lower bound of exact synthesis
        ("dgx-a100*4", {3: Fraction(50, 96), 8: Fraction(21, 100)}),  # 50/96: three phases one after the other
        pytest.param("dgx1*2", {6: Fraction(5, 4), 10: Fraction(104, 100)}, marks=pytest.mark.slow),
    ],
)
def test_allreduce_is_at_least_as_good_as_known(name, known):
    """`known` has rounds per chunk by number of steps."""
    found = points(topology(name), "allreduce", most_sends=60_000, most=8)
    for steps, most in known.items():
        assert min(p.rounds_per_chunk for p in found if p.steps <= steps) <= most
    for point in found[:4]:
        replayed(point)


def slow_but(name, quick):
    """Return the pairs of a machine and each collective, slow but for the collectives in `quick`."""
    return [pytest.param(name, each, marks=() if each in quick else pytest.mark.slow) for each in COLLECTIVES]


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        *slow_but("dgx-a100*2", COLLECTIVES),
        *slow_but("mi300x*2", ()),
        *slow_but("ring:4*2:nic=1", ("allgather", "reduce-scatter", "broadcast", "alltoall")),
    ],
)
def test_every_point_is_replayed_and_no_better_than_the_bound(name, collective):
    machine = topology(name)
    bound = search.bound(machine, collective).bound
    found = points(machine, collective, 3 if collective in ("broadcast", "reduce") else 0, 5_000, most=6)
    assert [p.steps for p in found] == sorted({p.steps for p in found})
    for point in found:
        assert replayed(point).rounds_per_chunk >= bound


def test_no_points_without_two_boxes():
    assert points(topology("dgx1"), "allreduce") == []


def test_phases_of_successive_groups_overlap():
    """Two ranks in a row after the root: with m groups the last arrives one step after the first has all."""
    links = tuple(Link(a, b, Fraction(1)) for a, b in ((0, 1), (1, 2), (2, 0)))
    index = PathIndex(Topology("row", 3, links, nodes=(0, 0, 0)))
    build = TemplateBuilder("row", 0)
    build.spread("row", [[(0, 1)], [(1, 2)]])
    template = build.template()
    resources = Resources(index)
    program = PipeliningProgram([template], resources.loads(template.phases), resources.capacity)
    assert program.shares(1) is None
    for steps in (2, 3, 5, 40):
        shares = program.shares(steps)
        assert shares is not None
        assert shares.value == pytest.approx(1 + 1 / (steps - 1))
        whole = program.whole(shares.tables, steps - 1)
        assert whole is not None
        assert whole.rounds_per_chunk == Fraction(steps, steps - 1)


@st.composite
def clusters(draw):
    """Two or three boxes of unequal sizes, random links inside (a ring at least), NICs alone or shared."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    width = st.integers(1, 4).map(Fraction)
    links, nodes = [], []
    boxes = []
    for box, size in enumerate(sizes):
        ranks = range(len(nodes), len(nodes) + size)
        nodes += [box] * size
        boxes.append(ranks)
        for i, a in enumerate(ranks):
            for j, b in enumerate(ranks):
                if a != b and (abs(i - j) in (1, size - 1) or draw(st.booleans())):
                    links.append(Link(a, b, draw(width)))
    limits = []
    start = len(links)
    nic = draw(width)
    for a in range(len(nodes)):
        links += [Link(a, b, nic) for b in range(len(nodes)) if nodes[a] != nodes[b]]
    shared = draw(st.booleans())
    for ranks in boxes:
        for group in [ranks] if shared else [[r] for r in ranks]:
            out = tuple(i for i in range(start, len(links)) if links[i].src in group)
            into = tuple(i for i in range(start, len(links)) if links[i].dst in group)
            limits += [Limit("out", out, nic), Limit("in", into, nic)]
    return Topology("random", len(nodes), tuple(links), tuple(limits), (), tuple(nodes))


@settings(max_examples=5, deadline=None)
@given(clusters(), st.sampled_from(COLLECTIVES), st.integers(0, 8))
def test_random_clusters(machine, collective, start):
    start %= machine.ranks
    found = points(machine, collective, start, most_sends=1_000, most=5)
    if not found:
        return
    bound = search.bound(machine, collective, start).bound
    for point in found:
        assert replayed(point).rounds_per_chunk >= bound


@pytest.mark.parametrize("name", ["dgx-a100*2", pytest.param("mi300x*3", marks=pytest.mark.slow)])
def test_same_bits_on_all_ranks(name):
    for point in points(topology(name), "allreduce", most_sends=5_000, alike=True, most=5):
        assert same_bits(point.make().written_out())
    (other,) = points(topology(name), "allreduce", most_sends=5_000, most=1)
    assert not same_bits(other.make().written_out())


def exchanged():
    """An allreduce in which boxes exchange sums: chunks have no root."""
    machine = topology("dgx-a100*2")
    group = free_group(symmetries(fabric(machine)), machine.ranks)
    found = composed_points(machine, "allreduce", 0, group, same_bits=False, most_sends=20_000)
    return next(point for point in found if point.steps == 3).make()


def test_an_exchange_without_roots_is_replayed():
    bulk = exchanged()
    assert compressed_replay.replay(bulk).sends == 30 * bulk.chunks
    rows = np.ones(len(bulk.step), bool)

    def changed(**columns):
        return replace(bulk, **columns)

    final = np.flatnonzero(bulk.step == 2)[0]
    first = np.flatnonzero(bulk.step == 0)[0]
    rows[final] = False
    short = changed(step=bulk.step[rows], chunk=bulk.chunk[rows], path=bulk.path[rows], kind=bulk.kind[rows])
    late = bulk.step.copy()
    late[first] = 2
    twice = bulk.kind.copy()
    twice[final] = 1
    wide = bulk.step_rounds * 4
    for bad, text in (
        (short, "sends|contributions"),
        (changed(step=late, step_rounds=wide), "contributions|twice"),
        (changed(kind=twice), "counted twice"),
        (changed(step_rounds=np.maximum(bulk.step_rounds - 1, 1)), "carries"),
    ):
        with pytest.raises(VerificationError, match=text):
            compressed_replay.replay(bad)


def test_the_command_line_prints_composed_schedules_of_unequal_boxes(tmp_path):
    words = "--topo fully-connected:2*2:nic=1 --ranks 0,1,2 --coll allreduce --max-steps 3 --fresh"
    assert "boxes: " in cli("pareto", words, f"-o {tmp_path}/f.json").stdout
    cli(f"verify {tmp_path}/f.json")


PARTS = {
    "dgx1*2": (0, 1, 2, 8, 9, 10, 11, 12),  # boxes of three and five GPUs
    "pcie-4x2*2": (0, 1, 4, 8, 9, 12),  # behind switches
}


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        *slow_but("ring:4*2:nic=1", ("reduce-scatter", "broadcast", "alltoall")),
        *slow_but("fully-connected:3*3:nic=2,nics=1", COLLECTIVES),
        *slow_but("dgx1*2", ("broadcast", "allreduce", "alltoall")),
        *slow_but("pcie-4x2*2", ("reduce-scatter", "reduce", "allreduce")),
    ],
)
def test_programs_of_composed_schedules_are_right(name, collective):
    """The last of the first few points is lowered, linted, and run on two executors."""
    machine = topology(name)
    machine = modify.with_ranks(machine, list(PARTS.get(name, range(machine.ranks))))
    program = checked_lowering.lower(points(machine, collective, 3, most_sends=400, most=3)[-1].make().written_out())
    assert analysis.check(program).ok
    assert api.run(program, executor="reference").checked is not None
    assert api.run(program, executor="host", threads=1).checked is not None


def test_points_have_few_chunks_where_many_save_next_to_nothing():
    """In 2 steps 23,303 chunks were taken where 3 need no more rounds per chunk."""
    machine = topology("fully-connected:2*2")
    points = {point.steps: point for point in composed_points(machine, "reduce", same_bits=False, most_sends=10**6)}
    assert (points[2].rounds_per_chunk, points[3].rounds_per_chunk) == (1, Fraction(3, 4))
    assert points[2].chunks <= 4 and points[3].chunks <= 8


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 6), st.integers(3, 5))
def test_trees_by_descent_are_trees_and_not_cheaper_than_the_cheapest(seed, ranks, steps):
    random = np.random.default_rng(seed)
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    kept = [pair for pair in pairs if pair[1] == (pair[0] + 1) % ranks or random.random() < 0.5]
    network = Topology("random", ranks, tuple(Link(a, b, Fraction(1)) for a, b in kept)).network()
    prices = np.full((steps, ranks, ranks), np.inf)
    for route in network.routes:
        prices[:, route.src, route.dst] = random.random(steps)
    exact = SteinerTreeDP(network, steps, [0], range(ranks))
    cheapest = exact.price(np.array([prices[:, route.src, route.dst] for route in network.routes]))
    src, dst = zip(*kept, strict=True)
    hops = distances(ranks, src, dst, 0)
    (cost,), (sends,) = descend(prices, np.array([0]), np.minimum(hops, steps)[None])
    assert np.isfinite(cost) == (hops.max() <= steps) == np.isfinite(cheapest) == (sends is not None)
    if sends is not None:
        assert sorted(dst for _, _, dst in sends) == list(range(1, ranks))
        held = {0: 0} | {dst: t + 1 for t, _, dst in sends}
        assert all(held[src] <= t for t, src, _ in sends)
        assert cost == pytest.approx(sum(prices[send] for send in sends))
        assert cost >= cheapest * (1 - 1e-9)


def test_descent_postpones_sends_to_cheap_steps():
    """A row of three ranks: the second step is free for its first link, the third for its second."""
    prices = np.full((3, 3, 3), np.inf)
    prices[:, 0, 1], prices[:, 1, 2] = (5, 0, 5), (5, 5, 0)
    cost, trees = descend(prices, np.array([0]), np.array([[0, 1, 2]]))
    assert cost == [0] and trees == [[(1, 0, 1), (2, 1, 2)]]


def test_generation_of_trees_ends_at_its_deadline_with_those_so_far():
    """Each search yields a tree of half the load; without a deadline they go on while they save rounds."""

    def value(**deadline):
        loads = {}

        def halved(prices):
            name = str(len(loads))
            loads[name] = np.full((1, 1), 0.5 ** min(len(loads), 4))
            yield Template(name, (Phase(name, ((0, 0, 1),), False, ()),), 0, (0,), 1, (0,))

        def loads_of(trees):
            return [loads[tree.name] for tree in trees]

        rounds, carriers = generate(np.ones(1), 1, [0], loads_of, [], halved, **deadline)
        assert carriers
        return rounds

    assert value() == pytest.approx(1 / 16)
    assert value(deadline=Deadline.after(0)) == pytest.approx(1)


def without_nic(name, rank):
    machine = topology(name)
    for other in range(machine.ranks):
        if machine.nodes[other] != machine.nodes[rank]:
            machine = modify.broken(machine, rank, other)
    return machine


@pytest.mark.parametrize(
    ("name", "collective", "most"),
    [
        # Blocks of many ranks move together.
        pytest.param("fully-connected:6*3:units=6", "allgather", "1.25", marks=pytest.mark.slow),
        ("fully-connected:3*2:units=4", "reduce-scatter", "1.15"),
        ("fully-connected:3*2:units=4", "allreduce", "1.35"),
    ],
)
def test_blocks_of_a_rank_without_nic_go_over_those_of_all_others(name, collective, most):
    """Over the next rank alone a box would lose the bandwidth of another NIC."""
    machine = without_nic(name, 1)
    bound = search.bound(machine, collective).bound
    found = points(machine, collective, most_sends=6_000, most=4, priced=False)
    assert found[-1].steps <= 8 and found[-1].rounds_per_chunk <= bound * Fraction(most)
    replayed(found[0])


# ---------------------------------------------------------------- collectives whose units go to one rank each


def schedules(machine, task, most_sends=1_000, most=None, **options):
    """The first composed schedules, after a replay agrees with the numbers of each."""
    result = []
    for candidate in islice(composed_messages(machine, task, most_sends=most_sends, **options), most):
        schedule = replace(candidate.make().written_out(task), network=machine.network())
        ordinary.schedule(schedule)
        assert (len(schedule.steps), schedule.rounds_per_chunk) == (candidate.steps, candidate.rounds_per_chunk)
        result.append(schedule)
    return result


@pytest.mark.parametrize(
    ("name", "steps", "most"),
    [
        ("alltonext", 4, Fraction(3, 16)),  # balanced paths: 10/49, and 3/16 in 5 steps
        ("alltonext", 8, Fraction(7, 50)),
        ("scatter", 3, Fraction(6, 5)),  # balanced paths: 79/62; bound 15/13
    ],
)
def test_all_nics_of_a_box_are_used_in_few_steps(name, steps, most):
    machine = topology("dgx-a100*2")
    found = schedules(machine, collective(name, 16), 10_000, most=8)
    assert min(schedule.rounds_per_chunk for schedule in found if len(schedule.steps) <= steps) <= most


@pytest.mark.parametrize(
    ("machine", "ranks", "name", "roots"),
    [
        ("ring:4*2:nic=1", range(8), "sendrecv", ()),  # paths of several links inside the boxes
        ("ring:3*2:nic=1", range(6), "gather", (3,)),
        ("dgx1*2", (0, 1, 2, 8, 9, 10, 11, 12), "alltonext", ()),  # boxes of three and five GPUs
        ("dgx1*2", (0, 1, 8, 9, 10), "multi-scatter", (1, 3)),
        ("fully-connected:2*4:pod=2,over=2", range(8), "scatter", (5,)),  # behind switches
    ],
)
def test_programs_of_composed_messages_are_right(machine, ranks, name, roots):
    chosen = with_ranks(topology(machine), list(ranks))
    found = schedules(chosen, collective(name, chosen.ranks, roots), 400, most=3)
    program = checked_lowering.lower(found[-1])
    assert analysis.check(program).ok
    assert api.run(program, executor="reference").checked is not None


@settings(max_examples=5, deadline=None)
@given(clusters(), st.data())
def test_messages_on_random_clusters_are_no_better_than_the_bound(machine, data):
    rank = st.integers(0, machine.ranks - 1)
    pairs = data.draw(st.lists(st.tuples(rank, rank), min_size=1, max_size=6))
    task = pattern(machine.ranks, pairs)
    bound = single_cut_bound(machine.network(), task).value
    for schedule in schedules(machine, task, 100, most=3):
        assert schedule.rounds_per_chunk >= bound


def test_other_collectives_and_machines_have_no_composed_messages():
    two, one = topology("ring:3*2"), topology("ring:3")
    assert not schedules(one, collective("scatter", 3))
    for name in ("broadcast", "reduce", "allgather", "multi-broadcast", "allreduce", "scan"):
        assert not schedules(two, collective(name, 6))


def test_a_rank_without_nic_sends_over_the_others():
    machine = topology("fully-connected:3*2")
    for rank in (3, 4, 5):
        machine = broken(machine, 2, rank)
    found = schedules(machine, collective("alltonext", 6))
    assert min(schedule.rounds_per_chunk for schedule in found) <= Fraction(7, 10)


def test_schedules_end_with_the_first_one_that_is_enough():
    machine, task = topology("rail:2x3"), collective("alltonext", 6)
    every = [schedule.rounds_per_chunk for schedule in schedules(machine, task, most=6)]
    some = [schedule.rounds_per_chunk for schedule in schedules(machine, task, enough=min(every))]
    assert some == every[: every.index(min(every)) + 1] and len(some) > 1


def test_the_first_rows_have_composed_messages_where_direct_sends_are_worse():
    machine = topology("fully-connected:3*2")
    direct, *others = first_rows(machine, collective("alltonext", 6)).points
    assert direct.construction == "direct sends"
    composed = [row for row in others if row.construction.startswith("boxes: ")]
    assert composed and composed[-1].rounds_per_chunk < direct.rounds_per_chunk


# -------------------------------- boxes with one-way links: they ended in RecursionError, KeyError or ValueError


def machine(name, nodes, rows, limits=(), switches=()):
    links = [synth.Link(src, dst, bandwidth) for src, dst, bandwidth in rows]
    return synth.Topology(name, len(nodes), links, limits, switches, nodes)


# No link from the first rank of one box to that of another; distances of boxes that differ by direction.
TRIANGLE = machine("triangle", (0, 1, 1), [(0, 1, 1), (1, 2, 1), (2, 0, 1), (1, 0, 1)])
LIMITED = machine(
    "limited", (0, 1, 1), [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 0, 2)], [synth.Limit("in", [1, 3], 2)]
)  # fmt: skip
PAIRS = machine(
    "pairs", (1, 1, 0, 0),
    [(2, 0, 1), (3, 2, 1), (2, 3, 1), (1, 0, 1), (0, 3, 1), (1, 2, 1), (0, 2, 1), (3, 0, 1), (3, 1, 1)],
    [synth.Limit("a", [4, 6], 2), synth.Limit("b", [2, 3], 2), synth.Limit("c", [3, 5], 1)],
)  # fmt: skip
SWITCHED = machine(
    "switched", (0, 0, 1, 1, 2),
    [(1, 5, 1), (5, 4, 2), (1, 0, 1), (4, 0, 2), (2, 0, 2), (3, 5, 2), (3, 0, 1), (0, 1, 1), (0, 4, 2), (4, 5, 1),
     (5, 1, 1), (0, 2, 2), (0, 3, 2), (5, 3, 1)],
    [synth.Limit("out", [7, 8, 11, 12], 3)], ("s",),
)  # fmt: skip


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("boxes", [TRIANGLE, LIMITED, PAIRS, SWITCHED], ids=lambda value: value.name)
def test_phases_over_boxes_take_one_way_links(boxes, collective):
    """Of the triangle's allgather one rank's unit had no template, and the schedule left it out."""
    found = composed_points(boxes, collective, same_bits=False, most_sends=100, step_counts=(2, 3))
    for candidate in found:
        assert compressed_replay.replay(candidate.make()).rounds_per_chunk == candidate.rounds_per_chunk


@pytest.mark.parametrize("collective", ["allgather", "reduce-scatter", "alltoall"])
def test_frontiers_at_scale_of_them_hold(collective):
    for boxes in (TRIANGLE, LIMITED, PAIRS):
        found = synth.frontier(boxes, collective, engine="flow")
        assert found.points and not found.notes
        synth.verify(found)
