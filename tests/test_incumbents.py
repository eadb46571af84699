"""Greedy schedules as first incumbents of exact synthesis."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest

from synth import api
from synth.checker.schedule import replay as verify
from synth.frontiers import engine_choice, incumbents
from synth.frontiers.direct_sends import direct_schedule
from synth.model import scale_collectives
from synth.model.collective import collective
from synth.model.schedule import Schedule
from synth.pareto import close_step_count
from synth.pareto.events import Options
from synth.pareto.log import Log
from synth.pareto.portfolio import portfolio
from synth.pareto.sweep import Sweep
from synth.topologies import topology


def seeds(name, coll, root=()):
    machine = topology(name)
    task = collective(coll, machine.ranks, root)
    search = incumbents.scale_search(machine, task)
    return incumbents.find_incumbents(machine.network(), task, search).schedules


@pytest.mark.parametrize("coll", scale_collectives.COLLECTIVES[:5])
@pytest.mark.parametrize("name", ["torus:3x3", "dgx-a100*2", "hypercube:16"])
def test_seeds_do_the_collective(name, coll):
    found = seeds(name, coll, (4,) if coll in ("broadcast", "reduce") else ())
    assert found
    for method, schedule in found:
        replay = verify.schedule(schedule)
        assert replay.steps == len(schedule.steps) and method
        assert schedule.collective == collective(
            coll, schedule.network.ranks, (4,) if coll in ("broadcast", "reduce") else ()
        )


def test_there_are_none_where_nothing_applies(monkeypatch):
    assert seeds("dgx1", "allgather") == ()  # eight ranks
    assert seeds("torus:3x3", "scan") == ()
    monkeypatch.setattr(incumbents, "MAX_SENDS", 10)
    assert seeds("torus:3x3", "allgather") == ()


@pytest.mark.parametrize(
    ("name", "coll", "steps", "rounds"),
    [
        ("torus:3x3", "alltoall", 2, None),
        ("dgx-a100*8", "alltonext", 1, 1),
        ("dgx-a100*2", "scatter", 1, 8),
        ("dgx-a100*2", "reduce-scatter", 1, 8),
        ("torus:5x4", "sendrecv", 2, 2),
    ],
)
def test_direct_sends_take_the_fewest_steps(name, coll, steps, rounds):
    """They are the first row of patterns, for which no other quick method is."""
    network = topology(name).network()
    schedule = direct_schedule(network, collective(coll, network.ranks))
    assert schedule is not None and len(schedule.steps) == steps
    assert rounds is None or schedule.rounds == rounds
    assert verify.schedule(schedule).rounds == schedule.rounds


def test_first_rows_come_before_the_sweep(monkeypatch):
    """A bound and a replayed schedule are announced before exact synthesis begins."""
    events = []
    empty = SimpleNamespace(open=())
    monkeypatch.setattr(engine_choice, "synthesize_exact", lambda *_: events.append("sweep") or empty)
    machine = topology("dgx-a100*2")
    query = engine_choice.Query(machine, collective("sendrecv", 16), Options())
    engine_choice.synthesize(query, lambda event: events.append(event.kind))
    assert events == ["bound", "point", "sweep"]


def test_a_seed_that_meets_the_bound_asks_no_solver(monkeypatch):
    monkeypatch.setattr(portfolio, "solve", lambda *given, **named: pytest.fail("a solver was asked"))
    for name, steps, bandwidth in [("torus:3x3", 2, Fraction(2)), ("hypercube:16", 4, Fraction(15, 4))]:
        machine = topology(name)
        query = engine_choice.Query(machine, collective("allgather", machine.ranks), Options(jobs=1), fresh=True)
        found = engine_choice.synthesize(query)
        assert found.complete and [(p.steps, p.rounds_per_chunk, p.construction) for p in found.points] == [
            (steps, bandwidth, "breadth-first broadcast")
        ]  # fmt: skip
        assert api.verify(found)[-2].startswith("complete")


def sweep(*schedules, **options):
    network = topology("torus:3x3").network()
    return Sweep(
        network,
        collective("allgather", 9),
        Options(jobs=1, **options),
        Log(None, ""),
        seeds=tuple(("mine", s) for s in schedules),
    )


def test_the_best_seed_is_taken_and_long_ones_wait_for_the_solver():
    from synth import bounds

    short = next(
        s
        for name, s in seeds("torus:3x3", "allgather")
        if name == "breadth-first broadcast" and s.rounds_per_chunk == 2
    )
    network = short.network
    bound = bounds.flow(network, short.collective, 2)
    slow = replace(short, steps=(short.steps[0]._replace(rounds=9), *short.steps[1:]))
    run = sweep(slow, short)
    point = close_step_count.seed(run, 2, bound)
    assert (
        point is not None
        and point.schedule is short
        and point.status == "optimal"
        and close_step_count.has_few_chunks(run, point, bound)
    )
    assert close_step_count.seed(sweep(slow), 2, bound).status == "best-known"
    assert (
        close_step_count.seed(run, 3, bound) is None
        and close_step_count.seed(sweep(short, max_chunks=short.chunks - 1), 2, bound) is None
    )
    many = Schedule(
        network, short.collective, short.chunks * 3,
        tuple(
            step._replace(rounds=step.rounds * 3, sends=tuple(sorted(
                s._replace(chunk=s.chunk // short.chunks * short.chunks * 3 + k * short.chunks + s.chunk % short.chunks)
                for s in step.sends for k in range(3)
            )))
            for step in short.steps
        ),
    )  # fmt: skip
    assert verify.schedule(many).rounds_per_chunk == 2
    run = sweep(many)
    assert not close_step_count.has_few_chunks(run, close_step_count.seed(run, 2, bound), bound)


def test_named_engines_are_not_helped():
    for options in (Options(jobs=1, encoding="step"), Options(jobs=1, solver="cadical")):
        machine, task = topology("torus:3x3"), collective("allgather", 9)
        found = engine_choice.synthesize(engine_choice.Query(machine, task, options, "exact", fresh=True))
        assert all(p.construction != "breadth-first broadcast" for p in found.points)
