"""Exact frontiers with multicast on few ranks: the formula against the replay, an exhaustive search, and forgeries."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from bench import multicast_exact as brute_force
from bench.multicast import Instance
from synth import api
from synth.bounds.multicast import bound_at_steps, multicast_bound
from synth.bounds.single_chunk import MixtureGeneration
from synth.catalog import relabelling
from synth.checker.certificates import cuts, single_chunk
from synth.checker.certificates.instance import Instance as Problem
from synth.checker.schedule import replay
from synth.encodings.multicast_mixtures import MixtureSearch
from synth.errors import FormatError, VerificationError
from synth.frontiers.multicast import multicast_frontier
from synth.model.collective import Collective, collective
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.model.symmetry import renumbering as isomorphism
from synth.model.topology import OWN, Limit, Link, Multicast, MulticastSwitch, Network, Topology
from synth.pareto.events import Options
from synth.solvers.boolean_model import Model
from synth.solvers.cadical import Cadical
from synth.solvers.cadical_lrat import refute
from synth.topologies import topology

UNEVEN = Instance("allreduce", (1, 1, 3), (1, 2, 2), True)


def machine(rng: random.Random) -> Network:
    ranks = rng.randint(2, 4)
    up, down = (tuple(rng.randint(1, 3) for _ in range(ranks)) for _ in range(2))
    network = Instance("allreduce", up, down, rng.random() < 0.5).network()
    switch = network.multicast[0]
    if rng.random() < 0.5:
        return network
    second = MulticastSwitch("second", rng.choice(OWN), switch.ports[-2:])
    return replace(network, multicast=tuple(rng.sample((switch, second), 2)))


def random_schedule(rng: random.Random, network: Network, steps: int) -> Schedule:
    """A valid schedule for one chunk of sums: sends at random, and whatever the ranks end with is what they want."""
    ranks = range(network.ranks)
    sources = frozenset(rng.sample(ranks, rng.randint(2, network.ranks)))
    held = [frozenset({n}) & sources for n in ranks]
    rows = []
    for _ in range(steps):
        row: list[Send | SwitchSend] = []
        for _ in range(rng.randint(1, 6)):
            send = random_send(rng, network)
            if landed(held, sources, [*row, send]) is not None:
                row.append(send)
        after = landed(held, sources, row)
        assert after is not None
        held = after
        plain = tuple(sorted(send for send in row if isinstance(send, Send)))
        rows.append(Step(20, plain, tuple(sorted(send for send in row if isinstance(send, SwitchSend)))))
    wanted = {n: kept for n, kept in enumerate(held) if kept}
    task = Collective("random", network.ranks, (sources,), (frozenset(wanted),), True, (), (tuple(wanted.items()),))
    return Schedule(network, task, 1, tuple(rows))


def random_send(rng: random.Random, network: Network) -> Send | SwitchSend:
    rank = rng.randrange(network.ranks)
    others = [other for other in range(network.ranks) if other != rank]
    if rng.random() < 0.4:
        kind = rng.choice(["copy", "reduce", "copy-input", "reduce-input"])
        return Send(0, rank, rank if kind.endswith("input") and rng.random() < 0.2 else rng.choice(others), kind)
    switch = rng.choice(network.multicast)
    ranks = [port.rank for port in switch.ports]
    group = tuple(sorted(rng.sample(ranks, rng.randint(2, len(ranks)))))
    kind = rng.choice(["multicast", "multicast-reduce", "fetch-reduce"])
    return SwitchSend(0, rng.choice(group), group, kind, switch.switch)


def landed(
    held: list[frozenset[int]], sources: frozenset[int], row: list[Send | SwitchSend]
) -> list[frozenset[int]] | None:
    """Return what ranks hold after the sends of `row`; None where these are not valid, or one is there twice."""
    alike = [(send.switch, send.rank, send.kind) for send in row if isinstance(send, SwitchSend)]
    plain = [send if isinstance(send, Send) else None for send in row]
    pairs = [(send.src, send.dst, send.kind[-6:] == "-input") for send in plain if send is not None]
    if len(set(alike)) < len(alike) or len(set(pairs)) < len(pairs):
        return None
    moves = []
    for send in row:
        moves += [send] if isinstance(send, Send) else send.expanded()
    after = list(held)
    copied = set()
    for send in sorted(moves, key=lambda send: not send.kind.startswith("copy")):
        value = frozenset({send.src}) & sources if send.kind.endswith("-input") else held[send.src]
        if not value:
            return None
        if send.kind.startswith("copy"):
            if send.dst in copied:
                return None
            copied.add(send.dst)
            after[send.dst] = value
        elif after[send.dst] & value:
            return None
        else:
            after[send.dst] |= value
    return after


def literals(schedule: Schedule, names: single_chunk.Variables) -> list[list[int]]:
    """Unit clauses: these sends and no others."""
    at = {(route.src, route.dst): i for i, route in enumerate(schedule.network.routes)}
    true: set[int] = set()
    every: list[int] = []
    for t, step in enumerate(schedule.steps):
        every += [x for both in names.sent[t] for x in both] + names.own[t]
        for send in step.sends:
            raw = send.kind.endswith("-input") and t > 0
            true.add(names.own[t][send.src] if send.local else names.sent[t][at[send.src, send.dst]][raw])
        rows = {(schedule.network.multicast[row.switch].switch, row.rank, row.kind): row for row in names.switched[t]}
        every += [x for row in rows.values() for x in (row.used, *row.members.values())]
        for group in step.switch_sends:
            row = rows[group.switch, group.rank, group.kind]
            true |= {row.used, *(row.members[member] for member in group.group if member != group.rank)}
    return [[x if x in true else -x] for x in every]


def cost_of(schedule: Schedule, links: list[list[int]], limits: list[list[int]]) -> int:
    at = {(route.src, route.dst): i for i, route in enumerate(schedule.network.routes)}
    switches = {switch.switch: switch for switch in schedule.network.multicast}
    cost = 0
    for t, step in enumerate(schedule.steps):
        cost += sum(links[at[send.src, send.dst]][t] for send in step.sends if not send.local)
        for send in step.switch_sends:
            counted = switches[send.switch].caps(send.rank, send.group, fetches=send.kind == "fetch-reduce")
            cost += sum(limits[k][t] for k in counted)
    return cost


@pytest.mark.parametrize("seed", range(30))
def test_every_valid_schedule_fulfils_the_formula_and_costs_what_it_costs(seed: int) -> None:
    rng = random.Random(seed)
    network, steps = machine(rng), rng.randint(1, 3)
    schedule = random_schedule(rng, network, steps)
    replay.schedule(schedule)
    problem = Problem(network.to_json(), schedule.collective.to_json(1), False)
    links, limits = (
        [[rng.randint(0, 3) for _ in range(steps)] for _ in rows] for rows in (network.routes, network.caps)
    )
    cost = cost_of(schedule, links, limits)
    sends = literals(schedule, single_chunk.Variables(problem, 0, steps))
    assert refute([*single_chunk.clauses(problem, 0, steps, links, cost + 1, limits), *sends]) is None
    if cost:
        assert refute([*single_chunk.clauses(problem, 0, steps, links, cost, limits), *sends]) is not None


@pytest.mark.parametrize("name", ["allreduce", "reduce", "scan", "broadcast", "allgather", "alltoall"])
def test_every_model_of_the_formula_is_a_schedule(name: str) -> None:
    rng = random.Random(name)
    for seed in range(6):
        network, steps = machine(rng), rng.randint(1, 3)
        task = collective(name, network.ranks)
        generation = MixtureGeneration(network, task, steps, 0, 0)
        for unit in generation.names:
            model = Model()
            limits = [[rng.randint(0, 3) for _ in range(steps)] for _ in network.caps]
            links = [[0] * steps for _ in network.routes]
            model.clauses = single_chunk.clauses(generation.problem, unit, steps, links, rng.randint(9, 40), limits)
            model.variables = max(abs(x) for clause in model.clauses for x in clause)
            answer = Cadical(seed).solve(model)
            if answer.status != "sat":
                continue
            column = generation._column(unit, answer.values)
            rows = []
            for row in column.steps:
                plain = tuple(send for send in row if isinstance(send, Send))
                rows.append(Step(20, plain, tuple(send for send in row if isinstance(send, SwitchSend))))
            units = (task.pre[unit],), (task.post[unit],)
            wants = None if task.wants is None else (task.wants[unit],)
            alone = Collective("alone", network.ranks, *units, task.combining, (), wants)
            replay.schedule(Schedule(network, alone, 1, tuple(rows)))


CHEAP = [
    (Instance(name, (1, 3), (2, 1), through), steps)
    for name in brute_force.SUMS
    for through in (False, True)
    for steps in (1, 2, 3)
]
CHEAP += [(Instance("allreduce", (1, 2, 3), (3, 1, 1), through), 1) for through in (False, True)]
CHEAP += [
    (Instance(name, (3, 1, 2, 2)[:ranks], (1, 2, 3, 3)[:ranks], ranks == 4), steps)
    for name in ("broadcast", "allgather", "alltoall")
    for ranks in (3, 4)
    for steps in (1, 2)
]


@pytest.mark.parametrize(("instance", "steps"), CHEAP)
def test_an_exhaustive_search_agrees(instance: Instance, steps: int) -> None:
    row = brute_force.judged(instance, steps)
    assert not row["false"] and row["bound met"] and row["schedule met"]


@pytest.mark.slow
def test_an_exhaustive_search_of_three_ranks_agrees() -> None:
    for instance, steps in brute_force.instances(42, 7):
        row = brute_force.judged(instance, steps)
        assert not row["false"] and row["bound met"] and row["schedule met"], row


def uneven() -> Topology:
    network = UNEVEN.network()
    links = tuple(Link(route.src, route.dst, Fraction(route.units)) for route in network.routes)
    limits = [Limit(f"port {k}", cap.routes, Fraction(cap.units)) for k, cap in enumerate(network.caps)]
    return Topology("uneven", 3, links, tuple(limits), unit=Fraction(1), multicast=(Multicast("nvs", (0, 1, 2)),))


@pytest.fixture(scope="module")
def document() -> dict:
    """The document of a frontier whose points of one and two steps are proved with switch sends."""
    machine, task = uneven(), collective("allreduce", 3)
    plain = Frontier(machine.network(), task, ())
    found = multicast_frontier(machine, task, plain, Options(max_steps=2))
    assert found is not None
    return json.loads(json.dumps(replace(plain, multicast=found).to_json()))


def test_a_frontier_of_three_ranks_is_proved(document: dict) -> None:
    lines = api.verify(copy.deepcopy(document))
    complete = "complete: no schedule in this model, with any number of chunks, is better up to 2 steps"
    assert f"with multicast: {complete}" in lines
    inner = Frontier.from_json(document["multicast"])
    assert inner.complete and inner.max_steps == 2
    values = [point.rounds_per_chunk for point in inner.points]
    assert values == [2, Fraction(4, 3)] and all(point.status == "optimal" for point in inner.points)
    assert multicast_bound(inner.network, inner.collective).value == 1  # what is known without a refutation
    assert inner.points[1].bound.certificate["kind"] == "one-chunk"


@pytest.mark.slow
def test_three_steps_gain_by_multicast() -> None:
    network, task = uneven().multicast_network(), collective("allreduce", 3)
    schedule, bound = MixtureSearch(network, task).at_steps(3, Fraction(1))
    assert schedule is not None and schedule.uses_multicast and bound is not None
    assert replay.schedule(schedule).rounds_per_chunk == bound.value == Fraction(8, 7)  # 6/5 without


@pytest.mark.parametrize("name", ["broadcast", "allgather", "reduce-scatter", "alltoall"])
def test_even_ports_take_one_step(name: str) -> None:
    network, task = topology("switch:3:multicast=through").multicast_network(), collective(name, 3)
    value = 1 if name == "broadcast" else 2
    for steps in (1, 2):
        schedule, bound = MixtureSearch(network, task).at_steps(steps, Fraction(1, 2))
        assert schedule is not None and bound is not None and bound.value == value
    assert bound.certificate["kind"] == "one-chunk"


@pytest.mark.parametrize("change", ["least", "proof", "price", "scale", "switch", "port", "steps", "kind", "value"])
def test_a_false_refutation_is_refused(document: dict, change: str) -> None:
    doc = copy.deepcopy(document)
    inner = doc["multicast"]
    certificate = inner["points"][1]["bound"]["certificate"]
    least, proof = certificate["chunk"]["0"]
    if change == "least":
        certificate["chunk"]["0"] = [least + 1, proof]
    elif change == "proof":
        certificate["chunk"]["0"] = [least, single_chunk.packed(single_chunk.unpacked(proof, "$")[1:])]
    elif change == "price":
        row = next(row for row in certificate["prices"] if row[0] == "limit" and row[2])
        row[2] -= 1
    elif change == "scale":
        certificate["scale"] -= 1
    elif change == "switch":  # the same with a switch that leaves own data where they are
        for row in (inner, *(point["schedule"] for point in inner["points"])):
            row["topology"]["multicast"][0]["own"] = "local"
    elif change == "port":
        for row in (inner, *(point["schedule"] for point in inner["points"])):
            row["topology"]["multicast"][0]["ports"].pop()
    elif change == "steps":
        certificate["steps"] = 1
    elif change == "kind":
        certificate["kind"] = "too-few-steps"
    else:
        inner["points"][1]["bound"]["value"] = "7/5"
    with pytest.raises((VerificationError, FormatError)):
        api.verify(doc)


def test_the_refutation_holds_for_renumbered_ranks() -> None:
    network, task = UNEVEN.network(), collective("allreduce", 3)
    bound = MixtureGeneration(network, task, 2, 150, 20_000).run(Fraction(6, 5))
    assert bound is not None and bound.value == Fraction(4, 3)
    moved = Instance("allreduce", (3, 1, 1), (2, 1, 2), True).network()
    found = isomorphism((network, task), (moved, task))
    assert found is not None
    move = relabelling.ProblemMap((network, task), (moved, task), found)
    certificate = relabelling.certificate(bound.certificate, move)
    assert cuts.check(certificate, moved.document, task.document, steps=2) == Fraction(4, 3)
    with pytest.raises(VerificationError):
        cuts.check(certificate | {"problem": bound.certificate["problem"]}, moved.document, task.document, steps=2)
    doc = copy.deepcopy(moved.to_json())
    doc["multicast"][0]["ports"][0][1:] = doc["multicast"][0]["ports"][0][:0:-1]
    with pytest.raises(VerificationError):
        cuts.check(certificate, doc, task.document, steps=2)


def test_chunks_that_several_ranks_hold_have_no_mixture() -> None:
    network = UNEVEN.network()
    held = frozenset({0, 1})
    task = Collective("two holders", 3, (held,), (frozenset({2}),), False)
    assert not MixtureSearch(network, task).applies(1)
    assert MixtureSearch(network, collective("broadcast", 3)).applies(1)
    assert not MixtureSearch(replace(network, multicast=()), collective("broadcast", 3)).applies(1)
    certificate = {
        "kind": "one-chunk",
        "problem": "",
        "steps": 1,
        "scale": 1,
        "prices": [],
        "generators": [],
        "chunk": {},
    }
    certificate["problem"] = Problem(network.to_json(), task.to_json(1), False).digest
    certificate["chunk"] = {"0": [1, single_chunk.packed(["1 0 1 0"])]}
    with pytest.raises(VerificationError, match="several ranks"):
        cuts.check(certificate, network.to_json(), task.to_json(1), steps=1)


def test_limits_of_chunks_and_bits_hold_for_mixtures() -> None:
    network, task = UNEVEN.network(), collective("allreduce", 3)
    floor = bound_at_steps(network, task, 2, multicast_bound(network, task)).value
    schedule, bound = MixtureSearch(network, task, 1).at_steps(2, floor)
    assert schedule is not None and schedule.chunks == 1 and bound is not None
    assert replay.schedule(schedule).rounds_per_chunk >= bound.value
