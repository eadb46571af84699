"""The formula of one chunk of a sum, which `too-few-steps` refutes, against the replay."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from synth.checker.certificates import single_chunk
from synth.checker.certificates.instance import Instance
from synth.checker.schedule import replay
from synth.model.collective import Collective, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.solvers.boolean_model import Model
from synth.solvers.python_sat import Cadical, refute
from synth.topologies import topology

DGX1 = topology("dgx1").network()
SCAN = collective("scan", 8)


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
def test_every_valid_schedule_fulfils_the_formula(seed: int) -> None:
    rng = random.Random(seed)
    network = topology(("ring:4", "fully-connected:4", "hypercube:8", "line:5")[seed % 4]).network()
    steps = rng.randint(1, 3)
    schedule = random_schedule(rng, network, steps)
    replay.schedule(schedule)
    problem = Instance(network.to_json(), schedule.collective.to_json(1), False)
    sends = literals(schedule, single_chunk.Variables(problem, 0, steps))
    assert refute([*single_chunk.formula(problem, 0, steps), *sends]) is None


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
    """Whatever is drawn: what the variables say replays."""
    network = topology(name).network()
    problem = Instance(network.to_json(), task.to_json(1), False)
    names = single_chunk.Variables(problem, 0, steps)
    model = Model()
    model.clauses = list(single_chunk.formula(problem, 0, steps))
    model.variables = max(abs(x) for clause in model.clauses for x in clause)
    for seed in range(5):
        answer = Cadical(seed).solve(model)
        assert answer.status == "sat"
        replay.schedule(decoded(network, task, names, answer.values))


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
