"""Lower bounds against known optima, against random schedules, and against what makes them invalid."""

import json
import random
from fractions import Fraction

import pytest
import randoms

from synth.checker.certificates import instance
from synth.checker.certificates.cuts import check
from synth.encodings import bounds
from synth.encodings.bounds import cut_lp, single_cut
from synth.errors import InfeasibleError
from synth.model.collective import Collective, collective
from synth.model.topology import Cap, Network, Route
from synth.solvers.deadline import Deadline, time_limited
from synth.topologies import topology


def net(name: str) -> Network:
    return topology(name).network()


def proved(network: Network, task: Collective, bound, steps: int | None, chunks: int | None = None) -> Fraction:
    """Return the checker's value of the certificate after a round trip through JSON."""
    sent = json.loads(json.dumps(bound.certificate))
    documents = (json.loads(json.dumps(each)) for each in (network.to_json(), task.to_json(1)))
    return check(sent, *documents, steps=steps, chunks=chunks)


FLOW = [
    ("dgx1", "allgather", {None: "7/6", 2: "3/2", 3: "7/6", 4: "7/6"}),
    ("dgx1", "reduce-scatter", {None: "7/6", 2: "3/2", 3: "7/6"}),
    ("dgx1", "alltoall", {None: "8/3", 2: "8/3"}),
    ("dgx1", "broadcast", {None: "1/6", 2: "1", 3: "9/22", 4: "4/13", 5: "5/19", 6: "6/25", 7: "7/31", 8: "8/37"}),
    ("dgx1", "reduce", {None: "1/6", 2: "1", 3: "9/22", 8: "8/37"}),
    ("dgx1", "gather", {None: "7/6"}),
    ("dgx1", "scan", {2: "1", 3: "1/2", 4: "1/3"}),
    ("hypercube:16", "allgather", {None: "15/4", 4: "15/4"}),
    ("torus:4x4", "allgather", {None: "15/4", 4: "15/4"}),
    ("ring:8", "allgather", {None: "7/2", 4: "7/2"}),
    ("dgx2", "allgather", {None: "15", 1: "15"}),
    ("dgx1*2:cross=0+2+5+7", "allgather", {None: "5/2", 3: "15/4", 4: "14/5"}),
    ("torus:8x8", "allgather", {8: "63/4"}),
    ("dgx1", "allreduce", {None: "7/24", 2: "1", 3: "1/2", 4: "1/3", 6: "7/24"}),
    ("ring:8", "allreduce", {None: "7/8", 4: "2", 5: "5/4", 7: "7/8"}),
    ("hypercube:8", "allreduce", {3: "1", 4: "2/3", 5: "7/12"}),
    ("fully-connected:8", "allreduce", {1: "1", 2: "1/4"}),
    ("switch:8:units=12", "allreduce", {1: "7", 2: "7/4"}),
    ("torus:4x4", "allreduce", {None: "15/32", 6: "1/2", 7: "15/32"}),
]


def test_a_large_program_ends_near_its_optimum_and_its_bound_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    network, coll = net("dgx1*2"), collective("allgather", 16)
    best = bounds.flow(network, coll, 5).value
    monkeypatch.setattr(cut_lp, "EXACT_RANKS", 1)
    monkeypatch.setattr(cut_lp, "MANY_COLUMNS", 1)
    bound = bounds.flow(network, coll, 5)
    assert best * Fraction(98, 100) <= bound.value <= best
    assert proved(network, coll, bound, 5) == bound.value


@pytest.mark.parametrize(("name", "task", "steps", "value"), [(n, c, s, v) for n, c, vs in FLOW for s, v in vs.items()])
def test_flow_bounds_are_the_known_optima(name: str, task: str, steps: int | None, value: str) -> None:
    network = net(name)
    coll = collective(task, network.ranks)
    bound = bounds.flow(network, coll, steps)
    assert bound.value == Fraction(value)
    assert bound.scope == "any-chunks"
    assert proved(network, coll, bound, steps) == bound.value
    assert len(json.dumps(bound.certificate)) < 20_000


def test_rounds_at_one_chunk_count_are_more_than_rounding_up() -> None:
    network, task = net("dgx1"), collective("broadcast", 8)
    least, bound = bounds.rounds(network, task, 3, 8)
    assert (least, bound.value, bound.scope) == (4, Fraction(1, 2), "this-chunks")
    assert proved(network, task, bound, 3, 8) == Fraction(1, 2)
    assert bounds.rounds(network, collective("allgather", 8), 2, 3)[0] == 5  # 3 chunks in 4 rounds: refuted
    more = 0
    for number in range(40):
        network = randoms.machine(5, number).network()
        task = collective("broadcast", network.ranks)
        steps = int(bounds.steps(network, task).value) + 2
        flow = bounds.flow(network, task, steps)
        for chunks in (1, 3, 4):
            plain = max(steps, -(-flow.value * chunks // 1))
            least, bound = bounds.rounds(network, task, steps, chunks, flow)
            assert least >= plain
            assert proved(network, task, bound, steps, chunks) == Fraction(least, chunks)
            more += least > plain
    assert more > 0


@pytest.mark.parametrize(("name", "task", "least"), [
    ("dgx1", "allgather", 2), ("dgx1", "scan", 2), ("ring:8", "reduce", 4), ("line:5", "scan", 4),
    ("mi250", "allgather", 5),
])  # fmt: skip
def test_steps_are_the_farthest_distance(name: str, task: str, least: int) -> None:
    network = net(name)
    coll = collective(task, network.ranks)
    bound = bounds.steps(network, coll)
    assert bound.value == least == proved(network, coll, bound, None)
    with pytest.raises(InfeasibleError, match=f"needs at least {least} steps") as caught:
        bounds.flow(network, coll, least - 1)
    assert caught.value.certificate == bound.certificate


def test_what_cannot_be_reached_is_proved() -> None:
    network = Network("split", 4, (Route(0, 1, 1), Route(1, 0, 1), Route(2, 3, 1), Route(3, 2, 1), Route(2, 0, 1)))
    for name, pair in (("broadcast", [0, 2]), ("allreduce", [0, 2])):
        task = collective(name, 4)
        with pytest.raises(InfeasibleError, match="unit 0 must reach rank 2") as caught:
            bounds.steps(network, task)
        certificate = caught.value.certificate
        assert certificate is not None
        assert certificate["pair"] == pair
        assert check(certificate, network.to_json(), task.to_json(1)) == 0
        with pytest.raises(InfeasibleError):
            bounds.flow(network, task, None)


def test_parallel_routes_and_limits() -> None:
    # two switches: 1 + 2 units from 0 to 1 by either, 2 units together into 1
    routes = (Route(0, 1, 1, ("a",)), Route(0, 1, 2, ("b",)), Route(1, 0, 3, ("a",)))
    task = collective("broadcast", 2)
    free = Network("two", 2, routes)
    assert bounds.flow(free, task, 1).value == Fraction(1, 3)
    limited = Network("two", 2, routes, (Cap((0, 1), 2),))
    bound = bounds.flow(limited, task, 1)
    assert bound.value == Fraction(1, 2) == proved(limited, task, bound, 1)


def test_equal_limits_are_no_trouble() -> None:
    routes = tuple(Route(u, v, 2) for u, v in ((0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)))
    caps = tuple(Cap(pair, 1) for pair in ((0, 5), (0, 5), (1, 2), (1, 2), (3, 4), (3, 4)))
    network = Network("twice", 3, routes, caps)
    for name, value in (("allgather", Fraction(2)), ("allreduce", Fraction(4, 3))):
        bound = bounds.flow(network, collective(name, 3), 2)
        assert bound.value == value == proved(network, collective(name, 3), bound, 2)


# random schedules ----------------------------------------------------------------------------------------------------


def random_schedule(rng: random.Random, network: Network, task: Collective, chunks: int) -> list[tuple[int, list]]:
    """Steps of (rounds, sends (unit, copy, route)). A sum is followed as the set of its contributions, which may
    overlap."""
    held: dict[tuple[int, int, int], set[int]] = {}
    for u in range(task.units):
        for c in range(chunks):
            for r in task.pre[u]:
                held[u, c, r] = {r} if task.combining else {-1}
    steps = []

    def wanted(u: int, r: int) -> set[int]:
        return set(task.wanted(u, r)) if task.combining else {-1}

    while any(
        not wanted(u, r) <= held.get((u, c, r), set())
        for u in range(task.units)
        for c in range(chunks)
        for r in task.post[u]
    ):
        before = {key: set(value) for key, value in held.items()}
        sends, load = [], [0] * len(network.routes)
        for (u, c, r), value in before.items():
            for i in network.out[r]:
                if not value <= before.get((u, c, network.routes[i].dst), set()) and rng.random() < 0.6:
                    sends.append((u, c, i))
                    load[i] += 1
                    held.setdefault((u, c, network.routes[i].dst), set()).update(value)
        rounds = max([1, *(-(-n // r.units) for n, r in zip(load, network.routes, strict=True))])
        rounds = max([rounds, *(-(-sum(load[i] for i in cap.routes) // cap.units) for cap in network.caps)])
        steps.append((rounds, sends))
    return steps


TASKS = ("allgather", "alltoall", "broadcast", "reduce", "reduce-scatter", "scatter", "gather", "allreduce", "scan")


@pytest.mark.parametrize("seed", range(60))
def test_no_random_schedule_beats_a_bound(seed: int) -> None:
    rng = random.Random(seed)
    network = randoms.machine(1, seed).network()
    task = collective(TASKS[seed % len(TASKS)], network.ranks)
    least, always = bounds.steps(network, task).value, bounds.flow(network, task, None).value
    for _ in range(6):
        chunks = rng.randint(1, 3)
        made = random_schedule(rng, network, task, chunks)
        total = sum(rounds for rounds, _ in made)
        assert len(made) >= least
        at_steps = bounds.flow(network, task, len(made)).value
        assert Fraction(total, chunks) >= max(at_steps, always)
        assert at_steps >= always * Fraction(98, 100)  # a large program ends near its optimum
        assert total >= bounds.rounds(network, task, len(made), chunks)[0]


def test_the_search_for_a_single_cut_ends_at_the_deadline():
    """The first cut that data cross is a bound, whose certificate is checked as ever."""
    network, task = net("ring:6"), collective("gather", 6)
    sets = [frozenset(ranks) for ranks in ({3}, {0, 1}, {0})]  # no data enter the first one
    assert single_cut.single_cut_bound(network, task, sets).value == Fraction(5, 2)
    with time_limited(Deadline(0.0)):
        assert single_cut.single_cut_bound(network, task, sets).value == 2


@pytest.mark.parametrize("name", ["switch:16", "fat-tree:16", "ring:8"])
@pytest.mark.parametrize("task", ["scatter", "gather", "alltoall", "scan"])
def test_the_units_of_a_single_cut_share_the_work_of_its_check(monkeypatch, name, task):
    """The sends into the cut are added up once, so a work limit of a few times the links leaves no unit out."""
    network = topology(name).network()
    kind = collective(task, network.ranks)
    whole = single_cut.single_cut_bound(network, kind)
    once = sum(len(cap.routes) for cap in network.caps) + len(network.caps) + 4 * len(network.routes)
    sums = 2 * network.ranks**2 if kind.wants is not None else 0
    for spare, complete in ((2, False), (kind.units + 1, True)):
        work = once + spare * (network.ranks + sums)
        monkeypatch.setattr(single_cut, "MOST_WORK", work)
        monkeypatch.setattr(instance, "MOST_WORK", work)
        bound = single_cut.single_cut_bound(network, kind)  # whose certificate has been checked
        assert bound.value == whole.value if complete else 0 < bound.value <= whole.value


@pytest.mark.parametrize("name", ["broadcast", "allgather", "alltoall"])
def test_a_search_that_ends_with_unsolved_cuts_still_gives_a_bound(monkeypatch, name):
    network, task = net("dgx1"), collective(name, 8)
    whole = bounds.flow(network, task, 3).value
    monkeypatch.setattr(cut_lp, "MAX_CYCLES", 1)
    early = bounds.flow(network, task, 3).value
    assert 0 < early <= whole
