"""The protocol of engines: what the loop does with the points and bounds of a right one, and of a wrong one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings.engine import FrontierProblem, Options
from synth.errors import VerificationError
from synth.model.collective import collective
from synth.model.frontier import LowerBound, Point
from synth.model.schedule import Step
from synth.pareto import synthesize as loop
from synth.pareto.events import SweepInterrupted
from synth.pareto.first_rows import direct_schedule
from synth.pareto.synthesize import ENGINES, Row, synthesize
from synth.topologies import topology

PROBLEM = FrontierProblem(topology("ring:5"), collective("allgather", 5))
SCHEDULE = direct_schedule(PROBLEM.network, PROBLEM.collective)


@dataclass(frozen=True)
class Mine:
    """An engine that yields what it is made of."""

    items: Iterable[Point | LowerBound]

    def applies(self, problem: FrontierProblem) -> bool:
        return problem.collective.name == "allgather"

    def improve(self, problem, found, deadline) -> Iterator[Point | LowerBound]:
        yield from self.items


def point(schedule, **changed) -> Point:
    return replace(Point.of(schedule, LowerBound(Fraction(0), {}), "mine"), **changed)


def frontier(monkeypatch, *items, ranks=(2, 8), problem=PROBLEM, listen=None):
    first, *others = ENGINES
    monkeypatch.setattr(loop, "ENGINES", (first, Row(Mine(items), ranks), *others))
    return synthesize(problem, listen, fresh=True)


def test_an_engine_is_a_class_and_a_row(monkeypatch):
    events = []
    found = frontier(monkeypatch, point(SCHEDULE), listen=events.append)
    assert found.complete and [p.construction for p in found.points] == ["mine"]
    assert replay.schedule(found.points[0].schedule).rounds_per_chunk == found.points[0].rounds_per_chunk == 2
    assert next(event for event in events if event.kind == "point").point.construction == "mine"
    api.verify(found)


def test_it_has_no_turn_on_other_problems_and_numbers_of_ranks(monkeypatch):
    assert frontier(monkeypatch, point(SCHEDULE), ranks=(6, 8)).points[0].construction == "direct sends"
    other = replace(PROBLEM, task=collective("gather", 5))
    assert "mine" not in [p.construction for p in frontier(monkeypatch, point(SCHEDULE), problem=other).points]
    for options in (Options(encoding="step"), Options(solver="cadical")):
        named = replace(PROBLEM, options=options)
        assert "mine" not in [p.construction for p in frontier(monkeypatch, point(SCHEDULE), problem=named).points]


def test_wrong_points_are_left_out_with_a_note(monkeypatch):
    *steps, last = SCHEDULE.steps
    lacking = replace(SCHEDULE, steps=(*steps, Step(last.rounds, last.sends[1:])))
    crowded = replace(SCHEDULE, steps=tuple(step._replace(rounds=0) for step in SCHEDULE.steps))
    elsewhere = direct_schedule(topology("ring:6").network(), collective("allgather", 6))
    wrong = [point(s, construction=f"mine {k}") for k, s in enumerate((lacking, crowded, elsewhere))]
    found = frontier(monkeypatch, *wrong, point(SCHEDULE, rounds=1, same_bits=False))
    notes = [note for note in found.notes if "is left out, since its replay fails" in note]
    assert len(notes) == 3 and all(f"'mine {k}'" in note for k, note in enumerate(notes))
    (only,) = found.points  # its own numbers count, not those that the engine gives
    assert only.construction == "mine" and only.rounds == SCHEDULE.rounds and only.same_bits


def test_a_bound_that_is_not_proved_is_an_error(monkeypatch):
    floor = next(bound for steps, bound in synthesize(PROBLEM, fresh=True).bounds if steps is None)
    false = replace(floor, value=floor.value + 1)
    for item in (false, point(SCHEDULE, bound=false)):
        with pytest.raises(VerificationError):
            frontier(monkeypatch, item)
    assert frontier(monkeypatch, floor).complete


def test_ctrl_c_keeps_the_points_of_every_engine(monkeypatch):
    def stopped():
        yield point(SCHEDULE)
        raise KeyboardInterrupt

    first, *others = ENGINES
    monkeypatch.setattr(loop, "ENGINES", (first, Row(Mine(stopped())), *others))
    with pytest.raises(SweepInterrupted) as stop:
        synthesize(PROBLEM, fresh=True)
    assert [p.construction for p in stop.value.frontier.points] == ["mine"]
    api.verify(stop.value.frontier)
