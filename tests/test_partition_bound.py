"""The bound on allreduce by a partition of the ranks: known answers, exact frontiers, false documents."""

import copy
from fractions import Fraction

import pytest

from synth.checker.certificates.cuts import check
from synth.commands import api
from synth.encodings.bounds.partition import partition_bound
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Limit, Link, Network, Route, Topology
from synth.pareto.first_rows import allreduce_parts_bound
from synth.topologies import topology

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
