"""Problems that are equal up to numbering: found, mapped, and what is moved over checks like anything else."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import randoms
from catalog_jobs import entry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweeps import swept

import synth
from synth.catalog import relabelling as relabel
from synth.catalog.isomorphism import invariant
from synth.catalog.store import Store
from synth.checker.certificates import cuts
from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.encodings.bounds.partition import partition_bound
from synth.errors import InfeasibleError
from synth.model.collective import Collective, collective
from synth.model.frontier import Frontier
from synth.model.symmetry import renumbering
from synth.model.topology import Cap, Network, Route
from synth.topologies import topology

SEEDS = st.integers(0, 1 << 30)


def shuffled(network: Network, rng: random.Random, name: str = "shuffled") -> tuple[Network, list[int]]:
    """The same network in another numbering of ranks, links, limits and switches, and where each rank went."""
    ranks = rng.sample(range(network.ranks), network.ranks)
    places = rng.sample(range(len(network.routes)), len(network.routes))
    wired = (x for a, b, _ in network.wires for x in (a, b) if isinstance(x, str))
    switches = sorted({*(s for route in network.routes for s in route.via), *wired})
    names = dict(zip(switches, rng.sample([f"x{i}" for i in range(len(switches))], len(switches)), strict=True))
    routes: list = [None] * len(places)
    for route, place in zip(network.routes, places, strict=True):
        via = tuple(names[s] for s in route.via)
        routes[place] = Route(ranks[route.src], ranks[route.dst], route.units, via, route.latency)
    caps = [Cap(tuple(places[i] for i in cap.routes), cap.units) for cap in network.caps]
    rng.shuffle(caps)

    def end(x):
        return names[x] if isinstance(x, str) else ranks[x]

    wires = tuple((end(a), end(b), units) for a, b, units in network.wires)
    return Network(name, network.ranks, tuple(routes), tuple(caps), network.unit, wires), ranks


def moved(task: Collective, ranks: list[int], rng: random.Random) -> Collective:
    """The collective after rank r became ranks[r]; its units in another order where no wishes of single ranks are
    stated by unit."""
    order = list(range(task.units))
    if task.wants is None:
        rng.shuffle(order)

    def images(rows):
        return tuple(frozenset(ranks[r] for r in rows[u]) for u in order)

    wants = None
    if task.wants is not None:
        wants = tuple(
            tuple(sorted((ranks[r], frozenset(ranks[i] for i in own)) for r, own in row)) for row in task.wants
        )
    name = "custom" if wants else task.name  # a scan is one only in its own order
    roots = tuple(ranks[r] for r in task.roots)
    return Collective(name, task.ranks, images(task.pre), images(task.post), task.combining, roots, wants)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_a_random_schedule_verifies_in_the_other_numbering(seed) -> None:
    rng, made = random.Random(seed), randoms.schedule(seed)
    other, ranks = shuffled(made.network, rng)
    task = moved(made.collective, ranks, rng)
    assert invariant(other, task) == invariant(made.network, made.collective)
    found = renumbering((made.network, made.collective), (other, task))
    assert found is not None
    again = relabel.schedule(made, relabel.ProblemMap((made.network, made.collective), (other, task), found))
    assert (again.network, again.collective) == (other, task)
    before, after = replay.schedule(made), replay.schedule(again)
    assert (before.steps, before.rounds_per_chunk, before.sends) == (after.steps, after.rounds_per_chunk, after.sends)


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(seed=SEEDS)
def test_a_found_frontier_and_its_certificates_are_accepted(seed, tmp_path) -> None:
    rng = random.Random(seed)
    network = randoms.network(rng, rng.randint(2, 4))
    name = rng.choice(["allgather", "broadcast", "reduce", "gather", "alltoall", "reduce-scatter"])
    roots = [rng.randrange(network.ranks)] if name in ("broadcast", "reduce", "gather") else ()
    task = collective(name, network.ranks, roots)
    other, ranks = shuffled(network, rng)
    root = [ranks[r] for r in task.roots]
    asked = collective(name, network.ranks, root)
    try:
        kept = swept(network, task, max_steps=4, max_chunks=3, jobs=1)
    except InfeasibleError:
        return
    with Store.open(tmp_path / f"{seed}.db", create=True) as store:
        store.put(entry(kept))
        answer = store.find(other, asked)
        assert answer is not None
        frontier = answer.frontier
        assert (frontier.network, frontier.collective) == (other, asked)
        exact_frontier.document(frontier.to_json())
        assert [(p.steps, p.rounds_per_chunk, p.bound.value) for p in frontier.points] == [
            (p.steps, p.rounds_per_chunk, p.bound.value) for p in kept.points
        ]


@pytest.fixture(scope="module")
def broadcast() -> Frontier:
    """From the end of a line: the root cannot be carried to the middle."""
    return synth.frontier("line:3", "broadcast", roots=[0])


def test_the_root_must_be_carried_too(broadcast, tmp_path) -> None:
    line = topology("line:3").network()
    with Store.open(tmp_path / "catalog.db", create=True) as store:
        store.put(entry(broadcast))
        assert store.find(line, collective("broadcast", 3, [1])) is None
        answer = store.find(line, collective("broadcast", 3, [2]))
        assert answer is not None and answer.frontier.roots == (2,)


def test_other_widths_and_other_options_are_other_problems(broadcast, tmp_path) -> None:
    line = broadcast.network
    wide = replace(line, routes=tuple(r._replace(units=2 * r.units) for r in line.routes))
    wider = replace(line, routes=tuple(r._replace(units=2 if i == 0 else r.units) for i, r in enumerate(line.routes)))
    with Store.open(tmp_path / "catalog.db", create=True) as store:
        store.put(entry(broadcast, **{"max-steps": "3"}))
        assert store.find(line, broadcast.collective, {"max-steps": "3"}) is not None
        for network, most in ((line, None), (line, "4"), (wide, "3"), (wider, "3")):
            options = {"max-steps": most} if most else {}
            assert store.find(network, broadcast.collective, options) is None


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_the_invariant_tells_most_networks_apart(seed) -> None:
    """One link wider: another problem, to the invariant too."""
    rng = random.Random(seed)
    network = randoms.network(rng, 5)
    task = collective("allgather", 5)
    i = rng.randrange(len(network.routes))
    routes = list(network.routes)
    routes[i] = routes[i]._replace(units=routes[i].units + 1)
    other = replace(network, routes=tuple(routes))
    assert invariant(network, task) != invariant(other, task)
    assert renumbering((network, task), (other, task)) is None


def test_every_kind_of_certificate_proves_the_same_after_the_move() -> None:
    """Certificates of every kind, as in the tests of the checker, and prices of limits and of paths through
    switches. No frontier has a proof that there is none."""
    from test_check import CASES

    kinds = {"switch-operations", "unreachable"}
    for number, (network, task, certificate, steps, value) in enumerate([*CASES, *_shared(), _partition()]):
        if certificate["kind"] == "unreachable":
            continue
        kinds.add(certificate["kind"])
        for seed in range(3):
            rng = random.Random(100 * number + seed)
            other, ranks = shuffled(network, rng)
            asked = moved(task, ranks, rng)
            found = renumbering((network, task), (other, asked))
            assert found is not None
            made = relabel.certificate(certificate, relabel.ProblemMap((network, task), (other, asked), found))
            assert cuts.check(made, other.to_json(), asked.to_json(1), steps=steps) == value, (number, seed)
    assert kinds == set(cuts.KEYS)


def _partition() -> tuple:
    """A bound on allreduce by a partition of the ranks, with parts and links that differ."""
    ring = topology("ring:5").network()
    network = replace(ring, routes=tuple(route._replace(units=1 + (route.src == 0)) for route in ring.routes))
    task = collective("allreduce", 5)
    bound = partition_bound(network, task, [[0, 1], [2], [3, 4]])
    return network, task, bound.certificate, None, bound.value


def _shared() -> list[tuple]:
    """Bounds where limits are priced, and where two routes have the same ends."""
    from synth.encodings import bounds

    found = []
    network, task = topology("switch:4").network(), collective("allgather", 4)
    for steps in (None, 2):
        bound = bounds.flow(network, task, steps)
        found.append((network, task, bound.certificate, steps, bound.value))
    for seed in range(10, 22):
        network = randoms.network(random.Random(seed), 4)
        if any(route.via for route in network.routes) and all(d is not None for row in network.distances for d in row):
            task = collective("allgather", 4)
            bound = bounds.flow(network, task, None)
            found.append((network, task, bound.certificate, None, bound.value))
    priced = {row[0] for _, _, certificate, _, _ in found for row in certificate["prices"]}
    assert priced == {"link", "limit"}
    links = [row for _, _, certificate, _, _ in found for row in certificate["prices"] if row[0] == "link"]
    assert any(isinstance(end, list) for row in links for end in row[3:4])
    return found
