"""`synth solve` for collectives that combine and are no reversal: exact C, S and R, refutations that are complete, and
the rest."""

import pytest

from synth.checker.schedule import replay as verify
from synth.commands import api
from synth.errors import UsageError
from synth.model.collective import collective
from synth.model.outcome import Sat, Unknown, Unsat
from synth.model.schedule import Problem
from synth.pareto.combining.candidates import Candidates
from synth.pareto.combining.point_query import fit_to_query
from synth.topologies import topology
from tests.command_line import synth


@pytest.mark.parametrize(
    ("machine", "task", "asked"),
    [
        ("fully-connected:4", "allreduce", (4, 2, 2)),
        ("hypercube:8", "allreduce", (1, 3, 3)),
        ("ring:4", "allreduce", (3, 4, 9)),  # more rounds than a schedule needs
        ("line:3", "scan", (1, 2, 2)),
        ("line:2", "scan", (6, 1, 9)),
        ("dgx1", "scan", (2, 2, 3)),
        ("ring:4", "multi-reduce", (1, 2, 3)),
    ],
)
def test_a_schedule_has_exactly_what_was_asked(machine: str, task: str, asked: tuple) -> None:
    verdict = api.solve(machine, task, *asked)
    assert isinstance(verdict, Sat)
    replay = verify.schedule(verdict.schedule)
    assert (replay.chunks, replay.steps, replay.rounds) == asked


def test_bounds_refute_first_and_then_the_complete_encoding() -> None:
    by_bound = api.solve("fully-connected:4", "allreduce", 8, 2, 3)
    assert isinstance(by_bound, Unsat)
    assert "at least 4 rounds" in by_bound.reason
    too_few = api.solve("dgx1", "scan", 1, 1, 1)
    assert isinstance(too_few, Unsat)
    assert "2 steps are needed" in too_few.reason
    by_search = api.solve("star:5", "scan", 2, 3, 3)  # the bound by cuts is 3 rounds
    assert isinstance(by_search, Unsat)
    assert "complete" in by_search.reason


def test_only_what_sees_every_schedule_refutes() -> None:
    network, task = topology("dgx1").network(), collective("allreduce", 8)
    made = Candidates(network, task).exactly(3, 8, 4)
    whole = [c for c in made if c.complete]
    assert len(whole) == 1
    assert len(whole[0].translation.representatives) == 8
    assert len(made) > 1
    assert all(c.translation.chunks == 8 and c.rounds == 4 and c.translation.fits for c in made)


def test_what_is_not_decided_says_what_the_bounds_say() -> None:
    verdict = api.solve("dgx1", "scan", 24, 4, 8, time_limit=0.001)
    assert isinstance(verdict, Unknown)
    assert verdict.detail == "no schedule found; the bounds say at least 8 rounds"
    words = "solve --topo dgx1 --coll scan --chunks 24 --steps 4 --rounds 8 --time-limit 0.001"
    assert "at least 8 rounds" in synth(words, code=4).output


def test_a_schedule_that_does_not_go_into_the_chunks_is_not_stretched() -> None:
    verdict = api.solve("line:3", "scan", 2, 2, 4)
    assert isinstance(verdict, Sat)
    schedule = verdict.schedule
    network, task = schedule.network, schedule.collective
    assert fit_to_query(schedule, Problem(network, task, 3, 2, 9)) is None
    assert fit_to_query(schedule, Problem(network, task, 4, 2, 7)) is None
    assert fit_to_query(schedule, Problem(network, task, 4, 3, 8)) is None
    wide = fit_to_query(schedule, Problem(network, task, 4, 2, 8))
    assert wide is not None
    assert verify.schedule(wide).rounds == 8


def test_other_encodings_are_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="engines of its own"):
        api.solve("ring:4", "allreduce", 1, 2, 2, encoding="path")
