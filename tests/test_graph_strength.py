"""The bound on allreduce by partitions: the partition of the algorithm against all partitions, listed."""

import copy
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.certificates import partition, throughput_cuts
from synth.checker.certificates.cuts import check
from synth.checker.documents import scale_frontier
from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds.partition import partition_bound
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.errors import InfeasibleError, VerificationError
from synth.model.collective import collective
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Limit, Link, Network, Route, Topology
from synth.pareto.first_rows import allreduce_parts_bound
from synth.scale import search
from synth.scale.bounds import allreduce_partition, graph_strength
from synth.scale.fabric.automorphisms import symmetries
from synth.scale.fabric.fabric import fabric
from synth.solvers.deadline import Deadline, time_limited
from synth.topologies import topology


def listed(size: int) -> Iterator[list[int]]:
    """All partitions: the part of each of the ranks."""
    rows = [[0]]
    for _ in range(size - 1):
        rows = [[*row, part] for row in rows for part in range(max(row) + 2)]
    return (row for row in rows if max(row))


def leaving(machine: Topology, part: set[int], turned: bool) -> Fraction:
    """The least that leaves (turned: enters) a region of these ranks and any switches."""
    switches = range(machine.ranks, machine.ranks + len(machine.switches))
    totals = []
    for count in range(len(switches) + 1):
        for more in combinations(switches, count):
            inside = part | set(more)
            ends = (
                (link.dst, link.src, link.bandwidth) if turned else (link.src, link.dst, link.bandwidth)
                for link in machine.links
            )
            totals.append(sum((width for a, b, width in ends if a in inside and b not in inside), Fraction(0)))
    return min(totals)


def best(machine: Topology) -> Fraction:
    """The greatest bound, in seconds per GB, over all partitions and both directions."""
    found = []
    for turned in (False, True):
        known: dict[frozenset[int], Fraction] = {}
        for label in listed(machine.ranks):
            sets = [frozenset(r for r, p in enumerate(label) if p == part) for part in set(label)]
            for part in sets:
                if part not in known:
                    known[part] = leaving(machine, set(part), turned)
            if total := sum(known[part] for part in sets):
                found.append(Fraction(2 * (len(sets) - 1)) / total)
    return max(found)


def drawn(seed: int, ranks: int = 6) -> Topology:
    """Links of unequal directions between ranks, and up to two switches."""
    random = Random(seed)
    switches = seed % 3
    nodes = ranks + switches
    rows = [(a, (a + 1) % nodes) for a in range(nodes)] + [
        (a, b) for a in range(nodes) for b in range(nodes) if a != b and random.random() < 0.4
    ]
    links = tuple(Link(a, b, Fraction(random.choice((1, 1, 2, 3, 5, 8)))) for a, b in dict.fromkeys(rows))
    return Topology(f"drawn {seed}", ranks, links, switches=tuple(f"s{i}" for i in range(switches)))


@pytest.mark.parametrize("seed", range(24))
def test_no_partition_says_more(seed):
    machine = drawn(seed)
    graph = fabric(machine)
    value, certificate, short = allreduce_partition.partition(graph)
    assert not short
    assert partition.check(certificate, machine) == best(machine) == value / graph.unit


def chain(boxes: int, size: int, named: bool = False) -> Topology:
    """Rings of `size` ranks, joined to a ring by slower links."""
    pairs = [(size * b + i, size * b + (i + 1) % size, 25) for b in range(boxes) for i in range(size)]
    pairs += [(size * b, (size * (b + 1) + size // 2) % (size * boxes), 10) for b in range(boxes)]
    links = [Link(x, y, Fraction(width)) for a, b, width in pairs for x, y in ((a, b), (b, a))]
    return Topology(
        "chain", boxes * size, tuple(links), nodes=tuple(r // size for r in range(boxes * size)) if named else ()
    )


def test_boxes_need_not_be_declared():
    found = search.bound(chain(12, 6), "allreduce")
    assert found.bound_gbps == search.bound(chain(12, 6, named=True), "allreduce").bound_gbps == Fraction(10 * 12, 11)
    assert sorted(map(len, found.certificate["regions"])) == [6] * 12


@pytest.mark.parametrize("name", [
    "dgx1*2:cross=0+2+5+7", "mi250*2", "ndv2*4", "mesh:4x4", "torus:4x4", "fat-tree:16", "dragonfly:4x4", "dgx-a100*4",
])  # fmt: skip
def test_symmetries_change_nothing_but_the_work(name):
    graph = fabric(topology(name))
    moves = symmetries(graph)
    assert moves
    most = Fraction(int(graph.cap.sum()))
    *_, quick = graph_strength.partitions(graph, most, moves)
    *_, plain = graph_strength.partitions(graph, most)
    assert quick[0] == plain[0]
    kept = quick[1]
    for pi in moves:  # the partition found is kept by every symmetry
        image = np.empty_like(kept)
        image[pi[: graph.ranks]] = kept
        assert len(set(zip(kept.tolist(), image.tolist(), strict=True))) == kept.max() + 1


def test_what_enters_may_say_more_than_what_leaves():
    links = [(r, 4, 10) for r in range(4)] + [(4, r, 5) for r in range(4)]
    machine = Topology("switch", 4, tuple(Link(a, b, Fraction(w)) for a, b, w in links), switches=("s",))
    found = search.bound(machine, "allreduce")
    assert found.certificate["entering"] is True
    assert found.bound_gbps == Fraction(4 * 5, 2 * 3)
    assert partition.check({k: v for k, v in found.certificate.items() if k != "entering"}, machine) < partition.check(
        found.certificate, machine
    )
    with pytest.raises(VerificationError, match="entering"):
        partition.check({**found.certificate, "entering": 1}, machine)


def test_limits_on_what_enters_count_once():
    """Four ranks all joined, 10 each way, no rank taking in more than 12 of 30: not more than 4 * 12 / 6."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    links = tuple(Link(a, b, Fraction(10)) for a, b in pairs)
    limits = tuple(
        Limit(f"into {rank}", tuple(i for i, (_, b) in enumerate(pairs) if b == rank), Fraction(12))
        for rank in range(4)
    )
    machine = Topology("ports", 4, links, limits=limits)
    found = search.bound(machine, "allreduce")
    assert found.bound_gbps == 8
    assert partition.check(found.certificate, machine) == Fraction(1, 8)


def test_one_way_is_no_way():
    pairs = ((0, 1), (1, 0), (1, 2), (2, 3), (3, 2))
    machine = Topology("one way", 4, tuple(Link(a, b, Fraction(1)) for a, b in pairs))
    with pytest.raises(InfeasibleError, match="no link leads"):
        search.bound(machine, "allreduce")


def test_a_time_limit_or_very_large_capacities_leave_a_bound():
    machine = chain(12, 6, named=True)
    with time_limited(Deadline.after(0)):
        value, certificate, short = allreduce_partition.bound(fabric(machine))
    assert "time limit" in short
    graph = fabric(machine)
    assert partition.check(certificate, machine) * graph.unit == value > 0
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    wide = Topology("wide", 4, tuple(Link(a, b, Fraction((1 << 56) + i)) for i, (a, b) in enumerate(pairs)))
    graph = fabric(wide)
    value, certificate, short = allreduce_partition.bound(graph)
    assert "digits" in short and partition.check(certificate, wide) * graph.unit == value > 0


# -------------------------------- unequal directions: the cut around a rank beside partitions


def machine(ranks: int, rows, switches: int = 0, limits: tuple[Limit, ...] = ()) -> Topology:
    links = tuple(Link(a, b, Fraction(width)) for a, b, width in rows)
    return Topology("drawn", ranks, links, limits, tuple(f"s{i}" for i in range(switches)))


@st.composite
def machines(draw, most: int = 5, switches: int = 1):
    """Few ranks and a switch or none, on two circles against each other and more links, of very unequal directions."""
    ranks, more = draw(st.integers(2, most)), draw(st.integers(0, switches))
    nodes = range(ranks + more)
    circle = [(a, (a + 1) % len(nodes)) for a in nodes]
    free = draw(st.lists(st.sampled_from([(a, b) for a in nodes for b in nodes if a != b]), max_size=6))
    pairs = dict.fromkeys([*circle, *((b, a) for a, b in circle), *free])
    return machine(ranks, [(a, b, draw(st.sampled_from((1, 1, 2, 4, 9)))) for a, b in pairs], more)


def test_each_byte_leaves_once():
    """The partition's two crossings may both take the wide way: 2/5."""
    found = search.bound(machine(2, [(0, 1, 1), (1, 0, 4)]), "allreduce")
    assert found.bound_gbps == 1
    assert found.certificate["kind"] == "throughput-cut" and found.certificate["inside"] == [[0, 0]]
    back = search.bound(machine(2, [(0, 1, 4), (1, 0, 1)]), "allreduce")
    assert back.bound_gbps == 1 and back.certificate["inside"] == [[1, 1]]


def test_partitions_stay_where_they_say_more():
    assert search.bound(topology("mesh:3x3"), "allreduce").certificate["kind"] == "allreduce-parts"


@settings(max_examples=25, deadline=None)
@given(machines())
def test_the_best_of_all_partitions_and_ranks(given):
    found = search.bound(given, "allreduce")
    assert scale_frontier.bound(found.certificate, given) == found.bound
    alone = [leaving(given, {rank}, entering) for rank in range(given.ranks) for entering in (False, True)]
    said = max(best(given), 1 / min(alone)) * given.unit_bandwidth()
    assert found.bound == said if not given.switches else best(given) * given.unit_bandwidth() <= found.bound <= said


@settings(max_examples=8, deadline=None)
@given(machines(most=4))
def test_no_schedule_is_faster(given):
    found = search.frontier(given, "allreduce")
    assert found.points and all(point.rounds_per_chunk >= found.bound for point in found.points)


@settings(max_examples=10, deadline=None)
@given(machines(most=4, switches=0))
def test_no_more_than_a_reduction_and_then_a_broadcast_take(given):
    """Arborescences into the best rank, and others out of it, attain a rate: no bound is above it."""
    exact = bounds.flow(given.network(), collective("allreduce", given.ranks), None).value
    assert search.bound(given, "allreduce").bound <= _mixed(given) * given.unit_bandwidth()
    assert exact <= _mixed(given) * given.unit_bandwidth()


def _mixed(given: Topology) -> Fraction:
    """Seconds per GB of the reduction to rank r, in full, and then of the broadcast from there, for the best rank."""
    ranks = range(given.ranks)
    found = []
    for root in ranks:
        others = [r for r in ranks if r != root]
        sets = [set(part) for n in range(1, len(others) + 1) for part in combinations(others, n)]
        found.append(1 / min(leaving(given, s, False) for s in sets) + 1 / min(leaving(given, s, True) for s in sets))
    return min(found)


def test_limits_stand_for_links_of_a_cut():
    """Rank 3 may send 9 to each of three ranks, 2 in all: every byte of the buffer takes half a second for its part of
    the sums."""
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    out = Limit("out of 3", tuple(i for i, (a, _) in enumerate(pairs) if a == 3), Fraction(2))
    found = search.bound(machine(4, [(a, b, 9) for a, b in pairs], limits=(out,)), "allreduce")
    assert found.bound_gbps == 2 and found.certificate["limits"] == [0]


def test_a_time_limit_leaves_the_ranks_alone():
    given = machine(4, [(a, b, 9 - 8 * (a == 2)) for a in range(4) for b in range(4) if abs(a - b) in (1, 3)])
    with time_limited(Deadline.after(0)):
        value, certificate, short = allreduce_partition.bound(fabric(given))
    assert "time limit" in short and value == throughput_cuts.check(
        certificate, given
    ) * given.unit_bandwidth() == Fraction(1, 2)


def test_altered_certificates_are_refused():
    given = machine(4, [(0, 1, 1), (1, 0, 4), (1, 2, 9), (2, 1, 9), (2, 3, 4), (3, 2, 4)])
    found = search.bound(given, "allreduce")
    assert found.certificate["kind"] == "throughput-cut"
    doc = api.frontier_document(found)
    assert scale_frontier.document(doc, Path(), lambda: None)
    changes = [
        {"inside": [[0, 1]]}, {"inside": [[1, 3]]}, {"inside": []}, {"inside": [[0, 3]]}, {"inside": [[0, 4]]},
        {"inside": [[0.0, 0]]}, {"limits": [0]}, {"root": 0}, {"root": True}, {"collective": "allgather"},
        {"collective": "broadcast", "root": 0}, {"collective": "all"}, {"kind": "throughput-cuts"}, {"entering": True},
        {"kind": "allreduce-parts"}, {"topology": "0" * 64},
    ]  # fmt: skip
    for change in changes:
        wrong = copy.deepcopy(doc)
        wrong["bound"]["certificate"] |= change
        with pytest.raises(VerificationError):
            scale_frontier.document(wrong, Path(), lambda: None)
    wrong = copy.deepcopy(doc)
    wrong["bound"]["value"] = str(found.bound * Fraction(101, 100))
    with pytest.raises(VerificationError, match="is claimed"):
        scale_frontier.document(wrong, Path(), lambda: None)


# ---------------------------------------------------------------- partitions in certificates and frontiers


# Two triangles joined by one link each way, and a rank that hangs on by another.
ENDS = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3), (5, 6)]
SEVEN = Topology("seven", 7, tuple(Link(a, b, Fraction(25)) for u, v in ENDS for a, b in ((u, v), (v, u))))
NETWORK, TASK = SEVEN.network(), collective("allreduce", 7)
PARTS = [[0, 1, 2], [3, 4, 5], [6]]


def test_crossings_of_a_partition_are_counted():
    found = partition_bound(NETWORK, TASK, PARTS)
    assert found.value == Fraction(2 * 2, 4)
    alone = partition_bound(NETWORK, TASK, [[rank] for rank in range(7)])
    assert alone.value == Fraction(2 * 6, 2 * len(ENDS))


@pytest.mark.parametrize(("name", "value"), [("dgx-a100*4", Fraction(3, 16)), ("dgx1", Fraction(7, 24))])
def test_the_best_partition_is_that_of_scale_methods(name, value):
    machine = topology(name)
    network, task = machine.network(), collective("allreduce", machine.ranks)
    found = allreduce_parts_bound(machine, network, task)
    assert found is not None and found.value == value >= single_cut_bound(network, task).value


def test_limits_in_and_out_are_not_mixed():
    # three boxes of three ranks; each rank has one NIC, and NICs reach those in the same place of other boxes alone
    pairs = [(a, b) for a in range(9) for b in range(9) if a != b]
    inside = [Link(a, b, Fraction(100)) for a, b in pairs if a // 3 == b // 3]
    rails = [Link(a, b, Fraction(50)) for a, b in pairs if a // 3 != b // 3 and a % 3 == b % 3]
    links, limits = (*inside, *rails), []
    for rank in range(9):
        for end in ("src", "dst"):
            held = tuple(i for i, k in enumerate(links) if i >= len(inside) and getattr(k, end) == rank)
            limits.append(Limit(f"NIC {rank} {end}", held, Fraction(50)))
    machine = Topology("rails", 9, links, tuple(limits), (), (0, 0, 0, 1, 1, 1, 2, 2, 2))
    found = allreduce_parts_bound(machine, machine.network(), collective("allreduce", 9))
    assert found is not None and found.value == Fraction(4, 9)  # 2 (3 - 1) sends over nine NICs


def test_a_frontier_has_the_bound_and_verifies(tmp_path):
    found = api.frontier(SEVEN, "allreduce", max_steps=5, time_limit=30, log=tmp_path / "log")
    (floor,) = [bound for steps, bound in found.bounds if steps is None]
    assert floor.value >= 1
    assert found.points and all(point.rounds_per_chunk >= floor.value for point in found.points)
    api.verify(found)


def test_bounds_of_the_command_are_no_less():
    parts = allreduce_parts_bound(SEVEN, NETWORK, TASK)
    assert parts is not None
    for _, bound in api.bound(SEVEN, "allreduce")[1:]:
        assert bound.value >= parts.value


def false_documents():
    true = partition_bound(NETWORK, TASK, PARTS).certificate
    yield "more weight than crossings pay", true | {"weight": true["weight"] + 1}
    yield "no weight", true | {"weight": 0}
    yield "a part more", true | {"parts": [[0], [1, 2], [3, 4, 5], [6]]}
    yield "a rank twice", true | {"parts": [[0, 1, 2], [2, 3, 4, 5], [6]]}
    yield "a rank left out", true | {"parts": [[0, 1, 2], [3, 4, 5]]}
    yield "no such rank", true | {"parts": [[0, 1, 2], [3, 4, 5], [6, 7]]}
    yield "an empty part", true | {"parts": [*PARTS, []]}
    yield "a truth for a rank", true | {"parts": [[0, True, 2], [3, 4, 5], [6]]}
    yield "prices above the scale", true | {"scale": true["scale"] - 1}
    yield "another problem", true | {"problem": "0" * 64}
    cheap = copy.deepcopy(true)
    cheap["prices"].pop()
    yield "a crossing that pays nothing", cheap


@pytest.mark.parametrize(("what", "certificate"), [pytest.param(*row, id=row[0]) for row in false_documents()])
def test_false_documents_are_refused(what, certificate):
    with pytest.raises(VerificationError):
        check(certificate, NETWORK.document, TASK.document)


def test_other_collectives_are_refused():
    true = partition_bound(NETWORK, TASK, PARTS).certificate
    for name in ("allgather", "broadcast", "reduce-scatter", "scan"):
        task = collective(name, 7)
        with pytest.raises(VerificationError):
            check(true | {"problem": problem_fingerprint(NETWORK, task)}, NETWORK.document, task.document)


def test_no_schedule_of_three_ranks_beats_any_partition():
    """Exact frontiers of small uneven networks lie above the bound of every partition."""
    for units in ((1, 1, 1, 1, 1, 1), (1, 2, 1, 2, 1, 2), (3, 1, 1, 1, 1, 1), (2, 1, 1, 3, 1, 1)):
        ends = [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)]
        network = Network("three", 3, tuple(Route(u, v, n) for (u, v), n in zip(ends, units, strict=True)))
        task = collective("allreduce", 3)
        best = partition_bound(network, task, [[0], [1], [2]]).value
        for rank in range(3):
            others = [r for r in range(3) if r != rank]
            best = max(best, partition_bound(network, task, [[rank], others]).value)
        machine = Topology("three", 3, tuple(Link(u, v, Fraction(n)) for (u, v), n in zip(ends, units, strict=True)))
        found = api.frontier(machine, "allreduce", max_steps=4, fresh=True, jobs=1)
        assert min(point.rounds_per_chunk for point in found.points) >= best
