"""Bounds by what one chunk of a sum pays: the formula against the replay, the certificate, and that both can fail."""

from __future__ import annotations

import base64
import copy
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from synth import bounds
from synth.bounds import single_chunk as generation
from synth.checker.certificates import cuts, single_chunk
from synth.checker.certificates.instance import Instance
from synth.checker.schedule import replay
from synth.errors import VerificationError
from synth.model.collective import Collective, collective
from synth.model.frontier import LowerBound
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Cap, Network, Route
from synth.solvers.boolean_model import Model
from synth.solvers.cadical import Cadical
from synth.solvers.cadical_lrat import refute
from synth.topologies import topology

DGX1 = topology("dgx1").network()
SCAN = collective("scan", 8)


def satisfiable(clauses: list[list[int]]) -> bool:
    return refute(clauses) is None


def random_schedule(rng: random.Random, network: Network, steps: int) -> Schedule:
    """A valid schedule for one chunk: sends at random, and whatever the ranks end with is what they want."""
    ranks = range(network.ranks)
    sources = frozenset(rng.sample(ranks, rng.randint(2, network.ranks)))
    state = [frozenset({n}) & sources for n in ranks]
    made: list[list[Send]] = []
    for _ in range(steps):
        after, row = list(state), []
        for n in ranks:
            replaced = False
            for r in rng.sample(network.into[n], len(network.into[n])):
                route, raw = network.routes[r], rng.random() < 0.3
                value = frozenset({route.src}) & sources if raw else state[route.src]
                if not value or rng.random() < 0.4:
                    continue
                if rng.random() < 0.3 and not replaced and after[n] == state[n]:
                    after[n], kind, replaced = value, "copy", True
                elif not after[n] & value:
                    after[n], kind = after[n] | value, "reduce"
                else:
                    continue
                row.append(Send(0, route.src, n, kind + ("-input" if raw else ""), route.via))
            own = frozenset({n}) & sources
            if own and rng.random() < 0.5:  # the rank's own input, once more
                if not after[n] & own:
                    after[n], kind = after[n] | own, "reduce-input"
                elif not replaced and after[n] == state[n]:
                    after[n], kind = own, "copy-input"
                else:
                    continue
                row.append(Send(0, n, n, kind))
        state = after
        made.append(row)
    held = {n: kept for n, kept in enumerate(state) if kept}
    task = Collective("random", network.ranks, (sources,), (frozenset(held),), True, (), (tuple(held.items()),))
    return Schedule(network, task, 1, tuple(Step(20, tuple(sorted(row))) for row in made))


def literals(schedule: Schedule, names: single_chunk.Variables) -> list[list[int]]:
    """Unit clauses: these sends and no others, of ranks to themselves too."""
    at = {(r.src, r.dst, r.via): i for i, r in enumerate(schedule.network.routes)}
    sent = {
        names.own[t][s.src] if s.local else names.sent[t][at[s.src, s.dst, s.via]][s.kind.endswith("-input") and t > 0]
        for t, step in enumerate(schedule.steps)
        for s in step.sends
    }
    return [[x if x in sent else -x] for row in names.sent for both in row for x in both] + [
        [x if x in sent else -x] for row in names.own for x in row
    ]


@pytest.mark.parametrize("seed", range(40))
def test_every_valid_schedule_fulfils_the_formula_and_costs_what_it_costs(seed: int) -> None:
    rng = random.Random(seed)
    network = topology(("ring:4", "fully-connected:4", "hypercube:8", "line:5")[seed % 4]).network()
    steps = rng.randint(1, 3)
    schedule = random_schedule(rng, network, steps)
    replay.schedule(schedule)
    problem = Instance(network.to_json(), schedule.collective.to_json(1), False)
    prices = [[rng.randint(0, 3) for _ in range(steps)] for _ in network.routes]
    at = {(r.src, r.dst, r.via): i for i, r in enumerate(network.routes)}
    cost = sum(
        prices[at[s.src, s.dst, s.via]][t] for t, step in enumerate(schedule.steps) for s in step.sends if not s.local
    )
    sends = literals(schedule, single_chunk.Variables(problem, 0, steps))
    assert satisfiable([*single_chunk.clauses(problem, 0, steps, prices, cost + 1), *sends])
    if cost:
        assert not satisfiable([*single_chunk.clauses(problem, 0, steps, prices, cost), *sends])


@pytest.mark.parametrize(
    ("name", "task", "steps"),
    [
        ("dgx1", SCAN, 2),
        ("ring:4", collective("scan", 4), 4),
        ("ring:4", collective("allreduce", 4), 2),
        ("hypercube:8", collective("reduce", 8), 3),
    ],
)
def test_every_model_of_the_formula_is_a_schedule(name: str, task: Collective, steps: int) -> None:
    """Whatever is drawn: what the variables say replays, and costs less than was asked."""
    network = topology(name).network()
    problem = Instance(network.to_json(), task.to_json(1), False)
    names = single_chunk.Variables(problem, 0, steps)
    rng = random.Random(0)
    found = 0
    for seed in range(5):
        prices = [[rng.randint(0, 3) for _ in range(steps)] for _ in network.routes]
        model = Model()
        model.clauses = single_chunk.clauses(problem, 0, steps, prices, rng.randint(10, 60))
        model.variables = max(abs(x) for clause in model.clauses for x in clause)
        answer = Cadical(seed).solve(model)
        if answer.status == "sat":
            found += 1
            replay.schedule(decoded(network, task, names, answer.values))
    assert found


def decoded(network: Network, task: Collective, names: single_chunk.Variables, true: Sequence[bool]) -> Schedule:
    made = []
    for keep, own, sent in zip(names.keep, names.own, names.sent, strict=True):
        row: list[Send] = []
        replaced = {n for n, x in enumerate(keep) if not true[x]}
        for route, both in zip(network.routes, sent, strict=True):
            for x, suffix in zip(both, ("", "-input"), strict=True):
                if true[x]:
                    kind = "copy" if route.dst in replaced else "reduce"
                    replaced.discard(route.dst)
                    row.append(Send(0, route.src, route.dst, kind + suffix, route.via))
        row += [Send(0, n, n, "copy-input" if n in replaced else "reduce-input") for n, x in enumerate(own) if true[x]]
        made.append(Step(20, tuple(sorted(row))))
    return Schedule(network, task, 1, tuple(made))


def bound(network: Network, task: Collective, steps: int, above: Fraction) -> LowerBound | None:
    return generation.MixtureGeneration(network, task, steps, 64, 4_000).run(above)


STAR, STAR_SCAN = topology("star:5").network(), collective("scan", 5)


@pytest.fixture(scope="module")
def found() -> LowerBound:
    """The bound on a scan on a star of five in three steps."""
    made = bound(STAR, STAR_SCAN, 3, Fraction(3, 2))
    assert made is not None
    return made


def test_scan_on_a_star_in_three_steps_needs_two(found: LowerBound) -> None:
    """Cuts say 3/2: what they do not see is that the hub has one place for each chunk."""
    assert bounds.flow(STAR, STAR_SCAN, 3).value == Fraction(3, 2)
    assert found.value == 2
    assert len(str(found.certificate)) < 20_000
    docs = STAR.to_json(), STAR_SCAN.to_json(1)
    assert cuts.check(found.certificate, *docs, steps=3) == 2
    assert cuts.check(found.certificate, *docs, steps=3, chunks=3) == 2
    least, proof = found.certificate["chunk"]["0"]
    lines = single_chunk.unpacked(proof, "$")
    for change in (
        {"chunk": {"0": [least + 1, proof]}},
        {"chunk": {"0": [least, single_chunk.packed(lines[:-1])]}},
        {"chunk": {"0": [least, single_chunk.packed(["5000 0 1 0"])]}},
        {"chunk": {"0": [least, proof[:-8]]}},
        {"chunk": {"0": [least, proof * 2]}},
        {"chunk": {"0": [least, base64.b64encode(base64.b64decode(proof) * 2).decode()]}},
        {"chunk": {"0": [least, proof * 100]}},
        {"chunk": {"0": [1 << 60, proof]}},
        {"chunk": {"00": [least, proof]}},
        {"scale": found.certificate["scale"] - 1},
        {"steps": 4},
        {"prices": found.certificate["prices"][1:]},
        {"prices": [*found.certificate["prices"], ["link", 0, 1, 5, 0, 0]]},
    ):
        with pytest.raises(VerificationError):
            cuts.check(found.certificate | change, *docs, steps=3)
    with pytest.raises(VerificationError):
        cuts.check(found.certificate, *docs, steps=4)
    with pytest.raises(VerificationError):
        cuts.check(found.certificate, *docs)


def test_every_price_matters(found: LowerBound) -> None:
    for row, prices in enumerate(found.certificate["prices"]):
        for column in range(3, 6):
            if not prices[column]:
                continue
            doc = copy.deepcopy(found.certificate)
            doc["prices"][row][column] -= 1
            with pytest.raises(VerificationError):
                cuts.check(doc, STAR.to_json(), STAR_SCAN.to_json(1), steps=3)


def test_no_bound_where_a_mixture_attains_it() -> None:
    assert bound(STAR, STAR_SCAN, 3, Fraction(2)) is None
    assert bound(topology("line:4").network(), collective("scan", 4), 3, Fraction(3)) is None


def test_the_work_of_one_question_is_not_charged_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many questions as the machine takes, with room for little more than one each."""
    monkeypatch.setattr(generation, "MOST_WORK", 12_000)
    found = bound(topology("fully-connected:4").network(), collective("scan", 4), 2, Fraction(1, 2))
    assert found is not None
    assert found.value == Fraction(11, 18)


def test_too_many_clauses_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "MOST_WORK", 10)
    assert bound(STAR, STAR_SCAN, 3, Fraction(3, 2)) is None


def test_limits_have_prices_too() -> None:
    """Rank 0 sends two ranks one chunk each through one unit: two rounds a chunk, which the price of the limit
    shows."""
    network = Network("two", 3, (Route(0, 1, 4), Route(0, 2, 4)), (Cap((0, 1), 1),))
    everyone = frozenset({1, 2})
    task = Collective(
        "sums", 3, (frozenset({0, 1, 2}),), (everyone,), True, (), (((1, frozenset({0, 1})), (2, frozenset({0, 2}))),)
    )
    found = bound(network, task, 1, Fraction(1))
    assert found is not None
    assert found.value == 2
    assert found.certificate["prices"] == [["limit", 0, 1]]


def test_what_copies_is_refused(found: LowerBound) -> None:
    task = collective("allgather", 5)
    problem = Instance(STAR.to_json(), task.to_json(1), False).digest
    with pytest.raises(VerificationError, match="combine"):
        cuts.check(found.certificate | {"problem": problem}, STAR.to_json(), task.to_json(1), steps=3)
