"""A limit counts every crossing of its links: a route through a switch with two of its links in one limit counts
twice."""

import copy
import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from synth.catalog import relabelling as relabel
from synth.catalog.isomorphism import invariant
from synth.checker.certificates.cuts import check
from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.encodings.step import StepEncoding
from synth.errors import FormatError, SynthError, VerificationError
from synth.model import symmetry
from synth.model.collective import collective
from synth.model.documents.file_reader import parse_json
from synth.model.outcome import Sat, Unsat
from synth.model.schedule import Problem, Schedule, Send, Step, problem_fingerprint
from synth.model.sends.step_routes import rounds_for
from synth.model.symmetry import renumbering
from synth.model.topology import Cap, Limit, Link, Network, Route, Topology
from synth.runtime.link_schedule import LinkSchedule
from synth.scale.baselines.rings import disjoint_rings
from synth.scale.search import bound as flow_bound
from synth.solvers.python_sat import Cadical
from synth.topologies import topology
from synth.topologies.modify import apply
from synth.topologies.topology_files import from_document
from synth.view.page import animation_data
from tests.automorphisms import route_permutation

# A link that leads nowhere, of 1 GB/s: the unit of these machines.
IDLE = {"src": 0, "dst": "end", "bandwidth": 1}
# Two GPUs on each of two PCIe switches; the root of a switch carries 2 units, whatever crosses it.
PCIE = {
    "ranks": 4, "switches": ["p", "q", "end"],
    "links": [
        *({"src": r, "dst": "pq"[r // 2], "bandwidth": 2, "both": True} for r in range(4)),
        {"src": "p", "dst": "q", "bandwidth": 4, "both": True},
        IDLE,
    ],
    "limits": [
        {"name": "root p", "links": [[0, "p"], ["p", 0], [1, "p"], ["p", 1]], "bandwidth": 2},
        {"name": "root q", "links": [[2, "q"], ["q", 2], [3, "q"], ["q", 3]], "bandwidth": 2},
    ],
}  # fmt: skip
# One way through a switch, both of its links in one limit; and the same both ways.
ONE_WAY = {
    "ranks": 2,
    "switches": ["s", "end"],
    "links": [{"src": 0, "dst": "s", "bandwidth": 2}, {"src": "s", "dst": 1, "bandwidth": 2}, IDLE],
    "limits": [{"name": "root", "links": [[0, "s"], ["s", 1]], "bandwidth": 2}],
}
BOTH = {
    "ranks": 2,
    "switches": ["s", "end"],
    "links": [*({"src": r, "dst": "s", "bandwidth": 2, "both": True} for r in (0, 1)), IDLE],
    "limits": [
        {"name": "there", "links": [[0, "s"], ["s", 1]], "bandwidth": 2},
        {"name": "back", "links": [[1, "s"], ["s", 0]], "bandwidth": 2},
    ],
}


def read(doc):
    return from_document(parse_json(json.dumps(doc), "machine"), "machine")


def frontier(doc, name, **options):
    return api.frontier(read(doc), name, engine="exact", jobs=1, fresh=True, **options)


# ---------------------------------------------------------------- the network, its document, the replay


def test_routes_are_listed_once_for_each_crossing():
    network = read(PCIE).network()
    times = Counter((network.routes[i].src, network.routes[i].dst) for i in network.caps[-2].routes)
    inside = {(0, 1): 2, (1, 0): 2}
    assert times == inside | {pair: 1 for a in (0, 1) for b in (2, 3) for pair in ((a, b), (b, a))}
    assert sum(k == len(network.caps) - 2 for k in network.caps_of[0]) == 2
    again = Network.from_json(json.loads(json.dumps(network.to_json())))
    assert (again.routes, again.caps, again.wires) == (network.routes, network.caps, network.wires)
    assert network.reversed().caps == network.caps


def test_a_limit_is_a_set_of_links():
    doc = copy.deepcopy(ONE_WAY)
    doc["limits"][0]["links"].append([0, "s"])
    with pytest.raises(FormatError, match="listed twice in this limit"):
        read(doc)
    with pytest.raises(SynthError, match="t: limit 'm' lists a link twice; a limit is a set of links"):
        Topology("t", 2, (Link(0, 1, Fraction(1)),), (Limit("m", (0, 0), Fraction(1)),)).network()


def test_replay_counts_every_crossing():
    network = read(ONE_WAY).network()
    sends = tuple(Send(chunk, 0, 1, "copy", ("s",)) for chunk in range(2))
    made = Schedule(network, collective("broadcast", 2), 2, (Step(1, sends),))
    with pytest.raises(VerificationError, match="limit 0 carries 4 chunks, 1 rounds allow 2"):
        replay.schedule(made)
    assert rounds_for(made.network, sends) == 2
    assert replay.schedule(replace(made, steps=(Step(2, sends),))).rounds_per_chunk == 1


def test_changed_machines_keep_the_count():
    machine = apply(read(PCIE), without=["p-q"], ranks="0,1")
    assert machine.network().caps == (Cap((0, 0, 1, 1), 2),)
    assert symmetry.isomorphism(machine.network(), read(BOTH).network()) is None  # one limit, not two
    slower = apply(read(ONE_WAY), degrade=["0-s:1/2"]).network()
    assert slower.caps == (Cap((0, 0), 2),) and slower.routes[0].units == 1


# Of machines no route of which uses a limit twice: the same as ever.
FINGERPRINTS = {
    "dgx1": "feacc32c95902501954a3cbca506b5bccd3ff677496de668f6506b4f413d7e4f",
    "dgx2": "f31e75f497da445be18eec81d0c2244f7c423bc817c068d2ad6ab6b9aa8939be",
    "dgx-a100*2": "d5673c9e79578fffad74b7b202b6da3539922b8c4091be4b11ed15c79f8e8e7e",
    "dgx-h100*2": "dc56d2c3d617ed4c708f97af611b51e7348c06e2d4b3240156ceed68e41141d7",
    "mi250": "57a831f94a88919005445690214b3d5f6644adba256b3648d6355e34b9b9a88b",
    "switch:4": "d1cf4d194e677461eb47955ed6fce19d915e7f23e3fedf0c0a24921415c234fd",
    "fat-tree:8": "4ccfa4569add20a5287f76fe365d96bd2f7c14244f84f75bea292acf384d7c24",
}


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprints_stay(name):
    machine = topology(name)
    network, task = machine.network(), collective("allgather", machine.ranks)
    assert problem_fingerprint(network, task) == FINGERPRINTS[name] and "multicast" not in network.document
    with_switches = problem_fingerprint(machine.multicast_network(), task)
    assert (with_switches != FINGERPRINTS[name]) == bool(machine.multicast)


# ---------------------------------------------------------------- both engines


@pytest.mark.parametrize(("doc", "name", "points", "least"), [
    (PCIE, "alltoall", [(1, 6)], 6), (PCIE, "allgather", [(1, 6)], 4),
    (PCIE, "broadcast", [(1, 2), (2, Fraction(3, 2))], 1), (PCIE, "reduce-scatter", [(1, 6)], 4),
    (ONE_WAY, "broadcast", [(1, 1)], Fraction(1, 2)), (BOTH, "allgather", [(1, 1)], Fraction(1, 2)),
    (BOTH, "alltoall", [(1, 1)], 1), (BOTH, "reduce", [(1, 1)], Fraction(1, 2)),
    (BOTH, "allreduce", [(1, 1)], Fraction(1, 2)),
])  # fmt: skip
def test_frontiers_of_both_engines(doc, name, points, least):
    found = frontier(doc, name)
    assert [(p.steps, p.rounds_per_chunk, p.status) for p in found.points] == [
        (s, value, "optimal") for s, value in points
    ]
    assert found.complete
    exact_frontier.document(json.loads(json.dumps(found.to_json())))
    assert api.bound(read(doc), name)[-1][1].value == min(p.rounds_per_chunk for p in found.points)
    assert flow_bound(read(doc), name).bound == least  # what cuts of the fabric see, never above the optimum


@pytest.mark.parametrize("encoding", ["path", "step", "quotient", "tree", "auto"])
def test_encodings(encoding):
    for doc, name, rounds in ((PCIE, "alltoall", 6), (BOTH, "allgather", 1)):
        answer = api.solve(read(doc), name, 1, 1, rounds, encoding=encoding, jobs=1)
        assert isinstance(answer, Sat) and answer.schedule.rounds == rounds
    if encoding not in ("quotient", "tree"):  # which refute nothing
        assert isinstance(api.solve(read(PCIE), "alltoall", 1, 1, 5, encoding=encoding, jobs=1), Unsat)


# ---------------------------------------------------------------- symmetries, bounds and certificates


def pair(*routes, units=2):
    """Two ranks with a link each way of 2 units, and a limit on them."""
    return Network("pair", 2, (Route(0, 1, 2), Route(1, 0, 2)), (Cap(routes, units),))


def test_symmetries_keep_the_counts():
    swap = [1, 0]
    assert route_permutation(pair(0, 1), swap) and route_permutation(pair(0, 1, 0, 1), swap)
    assert route_permutation(pair(0, 0, 1), swap) is None
    assert symmetry.isomorphism(pair(0, 0, 1), pair(1, 0, 1)) == (1, 0)
    assert symmetry.isomorphism(pair(0, 0, 1), pair(0, 1)) is None


def test_no_certificate_moves_a_limit_onto_one_that_counts_otherwise():
    network, task = pair(0, 0, 1), collective("allgather", 2)
    made = bounds.flow(network, task, None)
    assert made.value == Fraction(3, 2)  # one send each way: 3 crossings, 2 units
    assert check(made.certificate, network.to_json(), task.to_json(1)) == made.value
    forged = made.certificate | {"generators": [[[1, 0], [1, 0]]]}
    with pytest.raises(VerificationError, match="limits are not kept"):
        check(forged, network.to_json(), task.to_json(1))


def test_bounds_count_every_crossing():
    network = pair(0, 0, 1)
    gather = collective("allgather", 2)
    assert bounds.flow(network, gather, 1).value == Fraction(3, 2)
    assert bounds.rounds(network, gather, 1, 2)[0] == 3
    for name, value in (("allreduce", Fraction(3, 2)), ("reduce", Fraction(1, 2)), ("broadcast", 1)):
        task = collective(name, 2)
        assert bounds.flow(network, task, None).value == bounds.flow(network, task, 1).value == value
    # the sum enters rank 1 over route 0, which counts twice
    assert single_cut_bound(network, collective("scan", 2)).value == 1
    assert single_cut_bound(pair(0, 0, 0, 1), collective("allreduce", 2)).value == Fraction(3, 2)


def test_bounds_of_random_limits_stay_below_schedules():
    """Trees, flows and sums against each other where limits list routes several times."""
    for seed in range(12):
        rng = Random(seed)
        ends = [(a, b) for a in range(3) for b in range(3) if a != b]
        routes = tuple(Route(a, b, rng.randint(1, 2)) for a, b in ends)
        caps = tuple(Cap(tuple(rng.choices(range(6), k=rng.randint(1, 5))), rng.randint(1, 3)) for _ in range(2))
        network = Network("random", 3, routes, caps)
        task = collective(rng.choice(("allgather", "broadcast", "alltoall")), 3)
        group = symmetry.generators(network, task)
        flow = bounds.flow(network, task, 2, group).value
        assert flow == bounds.flow(network, task, 2, ()).value
        rounds = 2
        while not _decided(Problem(network, task, 1, 2, rounds)):
            assert rounds < 20
            rounds += 1
        assert flow <= rounds


def _decided(problem):
    model, inverse = StepEncoding().apply(problem)
    answer = Cadical().solve(model)
    if answer.status == "sat":
        replay.schedule(StepEncoding().invert(inverse, answer.values))
    return answer.status == "sat"


# ---------------------------------------------------------------- catalog, rings, drawing


def test_a_renumbered_machine_is_the_same_problem():
    doc = copy.deepcopy(PCIE)
    moved = {0: 2, 1: 0, 2: 3, 3: 1, "p": "p", "q": "q", "end": "end"}
    for row in doc["links"]:
        row["src"], row["dst"] = moved[row["src"]], moved[row["dst"]]
    for row in doc["limits"]:
        row["links"] = [[moved[a], moved[b]] for a, b in row["links"]]
    task = collective("broadcast", 4, (1,))
    kept, asked = (read(PCIE).network(), task), (read(doc).network(), collective("broadcast", 4, (0,)))
    assert invariant(*kept) == invariant(*asked)
    where = renumbering(kept, asked)
    assert where is not None
    found = api.frontier(read(PCIE), "broadcast", roots=(1,), engine="exact", jobs=1, fresh=True)
    again = relabel.frontier(found, *asked, where)
    assert [p.rounds_per_chunk for p in again.points] == [2, Fraction(3, 2)]
    exact_frontier.document(json.loads(json.dumps(again.to_json())))
    gather = collective("allgather", 2)
    assert renumbering((pair(0, 0, 1), gather), (pair(0, 1, 1, 0), gather)) is None
    assert invariant(pair(0, 0, 1), gather) != invariant(pair(0, 1), gather)


def test_a_transfer_is_served_once_for_each_crossing():
    links = LinkSchedule(read(ONE_WAY).network())
    assert links.send(0, 1000, 0)[:2] == (0, 1_000_000)  # ps: 2 GB/s, twice
    assert links.send(0, 1000, 0)[:2] == (1_000_000, 2_000_000)


def test_rings_take_a_limit_once_for_each_crossing():
    for doc, units in ((BOTH, 1), (PCIE, 0)):
        machine = read(doc)
        assert disjoint_rings(machine).units == units
    wide = copy.deepcopy(PCIE)
    for row in wide["limits"]:
        row["bandwidth"] = 5  # 2 within a switch and 2 between: a ring crosses each root 4 times
    assert disjoint_rings(read(wide)).units == 1


def test_the_drawing_counts_every_crossing():
    drawn = animation_data.machine(read(ONE_WAY).network())
    assert [routes for _, _, routes in drawn.caps] == [(0, 0)]
