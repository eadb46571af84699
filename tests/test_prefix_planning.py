"""Schedules of scans and custom sums for more ranks than solvers reach, planned without one, and the quick bound they
stand beside."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth import bounds
from synth.api import bound as api_bound
from synth.api import frontier, solve, synthesis
from synth.api.inputs import collective, topology
from synth.bounds.single_cut import single_cut_bound
from synth.checker.certificates import cuts
from synth.checker.schedule import replay
from synth.cli.root import root
from synth.encodings.prefix_planning import chunk_assembly
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.outcome import Sat
from synth.model.schedule import Schedule, Step
from synth.pareto.combining import combining_frontier, combining_sweep, unvisited_steps
from synth.solvers.processes.deadline import Deadline, current_deadline, time_limited


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few plans, to be quick: how many there are is no matter of time."""
    monkeypatch.setattr(chunk_assembly, "SETTINGS", replace(chunk_assembly.SETTINGS, enough=8, most_chunks=24))


def _best(name: str, task: Collective | str) -> dict[int, Fraction]:
    """Return the least R/C by S of planned chunks on a topology; every schedule is replayed."""
    network = topology(name).network()
    asked = collective(task, network.ranks)
    found: dict[int, Fraction] = {}
    for construction, schedule in chunk_assembly.schedules(network, asked):
        assert construction.startswith("planned chunks, ")
        assert schedule.collective == asked
        replayed = replay.schedule(schedule)
        assert replayed.rounds_per_chunk == schedule.rounds_per_chunk
        found[replayed.steps] = replayed.rounds_per_chunk
    assert found
    assert min(found) >= bounds.steps(network, asked).value
    floor = single_cut_bound(network, asked)
    assert floor is None or min(found.values()) >= floor.value
    return found


@pytest.mark.parametrize(
    ("name", "steps", "most"),
    [
        ("ring:18", 17, Fraction(2)),
        ("torus:5x4", 11, Fraction(4)),
        ("random-regular:18", 20, Fraction(8)),
        pytest.param("dgx-a100*3", 3, Fraction(12), marks=pytest.mark.slow),
    ],
)
def test_a_scan_from_few_steps_to_few_rounds(name: str, steps: int, most: Fraction) -> None:
    """The first point has few steps, more steps lower the rounds per chunk."""
    found = _best(name, "scan")
    assert min(found) <= steps
    assert min(found.values()) <= most
    assert min(found.values()) < found[min(found)]


def test_sums_that_do_not_contain_one_another() -> None:
    """Two units; of the first, ranks want their residue class modulo three, of the other some want all and some a
    half."""
    ranks = 18
    everyone, half = frozenset(range(ranks)), frozenset(range(9))
    classes = tuple((r, frozenset(range(r % 3, ranks, 3))) for r in range(ranks))
    halves = tuple((r, everyone if r % 2 else half) for r in range(0, ranks, 3))
    asked = Collective(
        "mine", ranks, (everyone, everyone), (everyone, frozenset(range(0, ranks, 3))), True, (), (classes, halves)
    )
    assert chunk_assembly.applies(topology("torus:6x3").network(), asked)
    _best("torus:6x3", asked)


def test_where_it_applies() -> None:
    """Not where reversal or hubs do better, nor where solvers reach."""
    network = topology("torus:5x4").network()
    assert chunk_assembly.applies(network, collective("scan", 20))
    assert not chunk_assembly.applies(network, collective("allreduce", 20))
    assert not chunk_assembly.applies(network, collective("reduce-scatter", 20))
    assert not chunk_assembly.applies(topology("ring:8").network(), collective("scan", 8))


@pytest.mark.parametrize(
    ("name", "value"), [("ring:18", Fraction(1, 2)), ("dgx-a100*8", Fraction(1, 8)), ("random-regular:18", None)]
)
def test_the_quick_bound_is_checked(name: str, value: Fraction | None) -> None:
    """The checker finds the value in the certificate alone, and another one where it was changed."""
    network = topology(name).network()
    asked = collective("scan", network.ranks)
    found = single_cut_bound(network, asked)
    assert found is not None
    assert value is None or found.value == value
    assert cuts.check(found.certificate, network.to_json(), asked.to_json(1)) == found.value
    twice = found.certificate | {"scale": 2 * found.certificate["scale"]}
    assert cuts.check(twice, network.to_json(), asked.to_json(1)) == found.value / 2


def test_the_quick_bound_sees_independent_sums() -> None:
    """On a torus every other rank wants a sum of its own, which flows do not see."""
    network = topology("torus:5x4").network()
    asked = collective("scan", 20)
    found = single_cut_bound(network, asked)
    assert found is not None
    assert found.value == Fraction(1, 2) > bounds.flow(network, asked, None).value


@pytest.mark.slow
def test_a_frontier_under_a_short_limit() -> None:
    """A scan of 24 ranks has points under a short limit, each with the bound it was measured against."""
    found = frontier("ring:24", "scan", time_limit=2.5, fresh=True)
    assert isinstance(found, Frontier)
    assert len(found.points) >= 2
    assert {p.construction.split(",")[0] for p in found.points} <= {
        "planned chunks",
        "pipelined plan",
        "prefixes along a chain",
    }
    assert all(p.status == "best-known" and p.rounds_per_chunk > p.bound.value == Fraction(1, 2) for p in found.points)
    assert not found.complete
    least = next(int(b.value) for steps, b in found.bounds if steps == 0)
    assert [o.steps for o in found.open] == list(range(least, found.points[-1].steps + 1))
    for interval in found.open:
        assert interval.upper == min(
            (p.rounds_per_chunk for p in found.points if p.steps <= interval.steps), default=None
        )


@pytest.mark.slow
def test_without_a_limit_there_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the default effort were a second: what is open is said to be open for that reason, and an entry in the log
    ends."""
    monkeypatch.setattr(chunk_assembly, "SETTINGS", replace(chunk_assembly.SETTINGS, effort=1.0))
    monkeypatch.setattr(combining_sweep, "DEFAULT_SECONDS", 1.0)
    found = frontier("torus:6x6", "scan", fresh=True)
    assert isinstance(found, Frontier)
    assert found.points
    assert not found.complete
    assert {o.reason for o in found.open} <= {"effort", "gave-up"}
    assert not any("time limit" in note for note in found.notes)


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_is_the_same_each_time_has_no_end_in_time(monkeypatch: pytest.MonkeyPatch, deterministic: bool) -> None:
    """Neither the assembly of chunks nor the search is run."""
    given: list[bool] = []
    monkeypatch.setattr(chunk_assembly, "schedules", lambda network, task, whole: given.append(whole) or [])
    monkeypatch.setattr(
        combining_frontier, "points", lambda *_, budget, **__: given.append(not budget.deadline.limited) or []
    )
    frontier("ring:17", "scan", fresh=True, deterministic=deterministic)
    assert given == [deterministic] * 2


@pytest.mark.parametrize(("limit", "code"), [([], 0), (["--time-limit", "0.001s"], 4)])
def test_bounds_end_by_themselves_and_the_quick_one_is_there(
    monkeypatch: pytest.MonkeyPatch, limit: list[str], code: int
) -> None:
    """Without time for any other."""
    monkeypatch.setattr(synthesis, "BOUND_EFFORT", 0.0)
    done = CliRunner().invoke(root, ["bound", "--topo", "torus:6x6", "--coll", "scan", *limit])
    assert done.exit_code == code
    assert re.search(r"any schedule +1/2 +static-cuts", done.stdout)
    assert "left open: the " + ("time limit" if limit else "default effort") in done.stderr


@pytest.mark.parametrize(("ranks", "limited"), [(17, False), (33, True)])
def test_bounds_on_copies_end_by_themselves_on_many_ranks(
    monkeypatch: pytest.MonkeyPatch, ranks: int, limited: bool
) -> None:
    """A multi-broadcast on 128 ranks ran for minutes; on few ranks no bound is left out."""
    monkeypatch.setattr(synthesis, "BOUND_EFFORT", 0.0)
    done = CliRunner().invoke(root, ["bound", "--topo", f"ring:{ranks}", "--coll", "multi-broadcast", "--root", "0,1"])
    assert done.exit_code == 0 and "any schedule" in done.stdout
    assert ("left open: the default effort" in done.stderr) == limited


def test_no_bound_at_some_steps_is_below_that_for_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where flows see less than the quick bound does, which holds at every S."""
    monkeypatch.setattr(bounds, "combining", lambda network, task, steps: LowerBound(Fraction(2, 5), {}))
    monkeypatch.setattr(
        "synth.solvers.processes.pool.run_in_process", lambda call, *arguments, **_: call(*arguments)
    )  # here, where it is replaced
    found = api_bound("torus:5x4", "scan")
    assert [bound.value for steps, bound in found if steps != 0] == [Fraction(1, 2)] * 2


def test_assembly_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit of the caller's, and with one, which is left as it was."""
    network, asked = topology("torus:6x6").network(), collective("scan", 36)
    monkeypatch.setattr(chunk_assembly, "SETTINGS", replace(chunk_assembly.SETTINGS, effort=0.0))
    assert list(chunk_assembly.schedules(network, asked)) == []
    next(chunk_assembly.schedules(network, asked, whole=True))
    monkeypatch.setattr(chunk_assembly, "SETTINGS", replace(chunk_assembly.SETTINGS, effort=1000.0))
    with time_limited(Deadline.after(500.0)):
        next(chunk_assembly.schedules(network, asked))
        assert 400 < current_deadline().remaining() <= 500
    next(chunk_assembly.schedules(network, asked))
    assert not current_deadline().limited


@pytest.mark.parametrize("reason", ["time", "gave-up"])
def test_what_a_search_did_not_come_to_is_open_step_by_step(reason: str) -> None:
    """After the third step of a search that found 4: the points that improve on it, with what is open from step to
    step."""
    network = topology("line:3").network()
    task, floor = collective("scan", 3), LowerBound(Fraction(1), {})
    known = [
        Point.of(Schedule(network, task, c, (Step(1, ()),) * s), floor, "best-known", "")
        for s, c in ((3, 3), (5, 2), (6, 1), (8, 6), (9, 9), (12, 4))
    ]
    found = list(unvisited_steps.items(known, 3, 6, Fraction(4), floor, reason))
    assert [(p.steps, p.rounds_per_chunk, p.status) for p in found if isinstance(p, Point)] == [
        (5, Fraction(5, 2), "best-known"), (8, Fraction(4, 3), "best-known"), (9, 1, "optimal")
    ]  # fmt: skip
    opened = [o for o in found if isinstance(o, Open)]
    half = Fraction(5, 2)
    assert [(o.steps, o.upper) for o in opened] == [(4, 4), (5, half), (6, half), (7, half), (8, Fraction(4, 3))]
    assert {(o.lower, o.reason) for o in opened} == {(1, reason)}
    assert [o.steps for o in unvisited_steps.items([], 3, 6, None, floor, reason)] == [4, 5, 6]


@pytest.mark.slow
def test_one_question_is_answered_too() -> None:
    """So many chunks, steps and rounds, with a round to spare."""
    found = solve("ring:20", "scan", chunks=3, steps=21, rounds=22, time_limit=20)
    assert isinstance(found, Sat)
    replayed = replay.schedule(found.schedule)
    assert (replayed.chunks, replayed.steps, replayed.rounds) == (3, 21, 22)
    assert found.cost.engine == "planned chunks"
