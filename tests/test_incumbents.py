"""Greedy schedules as first incumbents of exact synthesis."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest

from synth.checker.schedule import replay as verify
from synth.commands import api
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.errors import UncheckedError
from synth.model import scale_collectives
from synth.model.collective import collective
from synth.model.frontier import Frontier
from synth.model.outcome import Unknown
from synth.model.schedule import Schedule
from synth.model.topology import Link, Topology
from synth.pareto import close_step_count, engine_choice, incumbents
from synth.pareto.direct_sends import direct_schedule
from synth.pareto.events import Options, SweepInterrupted
from synth.pareto.log import Log
from synth.pareto.portfolio import portfolio
from synth.pareto.prefetched_bounds import PrefetchedBounds
from synth.pareto.sweep import Sweep
from synth.scale.search import ScaleSearch
from synth.solvers import pool
from synth.solvers.deadline import Deadline, current_deadline, time_limited
from synth.topologies import topology


def seeds(name, coll, root=()):
    machine = topology(name)
    task = collective(coll, machine.ranks, root)
    search = incumbents.scale_search(machine, task)
    *_, last = incumbents.find_incumbents(machine.network(), task, search)
    return last.schedules


@pytest.mark.parametrize("coll", ["allgather", "allreduce"])
def test_links_in_two_limits_of_one_side_are_read_by_both_engines(coll):
    """PCIe slots on a socket are an example of such machines."""
    machine = topology("fully-connected:2*2")
    across = [i for i, link in enumerate(machine.links) if link.src < 2 <= link.dst]
    shared = replace(machine.limits[0], name="box out", links=across)
    machine = replace(machine, limits=(*machine.limits, shared))
    task = collective(coll, machine.ranks)
    assert incumbents.scale_search(machine, task) is not None
    found = api.frontier(machine, coll, max_steps=1)
    assert found.points
    flow = api.frontier(machine, coll, engine="flow")
    assert flow.points[-1].rounds_per_chunk >= flow.bound > 0
    api.verify(found)
    assert api.bound(machine, coll, max_steps=1)


@pytest.mark.parametrize("coll", scale_collectives.COLLECTIVES[:5])
@pytest.mark.parametrize("name", ["torus:3x3", "fully-connected:4*2", "hypercube:16"])
def test_seeds_do_the_collective(name, coll):
    root = (4,) if coll in ("broadcast", "reduce") else ()
    found = seeds(name, coll, root)
    assert found
    for method, schedule in found:
        assert verify.schedule(schedule).steps == len(schedule.steps) and method
        assert schedule.collective == collective(coll, schedule.network.ranks, root)


def test_there_are_none_where_nothing_applies(monkeypatch):
    assert seeds("torus:3x3", "scan") == ()
    monkeypatch.setattr(incumbents, "SETTINGS", replace(incumbents.SETTINGS, max_sends=10))
    assert seeds("torus:3x3", "allgather") == ()


@pytest.mark.parametrize(
    ("name", "coll", "steps", "rounds"),
    [
        ("torus:3x3", "alltoall", 2, None),
        ("dgx-a100*8", "alltonext", 1, 1),
        ("dgx-a100*2", "scatter", 1, 8),
        ("dgx-a100*2", "reduce-scatter", 1, 8),
        ("torus:5x4", "sendrecv", 2, 2),
        ("dgx1", "allreduce", 4, None),
    ],
)
def test_direct_sends_take_the_fewest_steps(name, coll, steps, rounds):
    """They are the first row of patterns, for which no other quick method is."""
    network = topology(name).network()
    schedule = direct_schedule(network, collective(coll, network.ranks))
    assert schedule is not None and len(schedule.steps) == steps
    assert rounds is None or schedule.rounds == rounds
    assert verify.schedule(schedule).rounds == schedule.rounds


SEVEN = Topology("seven", 7, tuple(Link(i, (i + k) % 7, Fraction(25)) for i in range(7) for k in (1, 2)))


@pytest.mark.parametrize(
    ("name", "rows"), [("switch:20", ["chain", "recursive-doubling"]), ("ring:16", ["chain"]), ("torus:4x5", [])]
)
def test_every_program_of_the_library_that_fits_is_a_row_of_a_scan(name, rows):
    machine = topology(name)
    network, task = machine.network(), collective("scan", machine.ranks)
    *_, found = incumbents.find_incumbents(network, task, None, machine=machine)
    assert [method for method, _ in found.schedules] == rows
    for _, schedule in found.schedules:
        assert verify.schedule(schedule).rounds_per_chunk == schedule.rounds_per_chunk >= found.bound.value


@pytest.mark.parametrize("coll", ["allgather", "reduce", "allreduce", "alltoall", "scatter", "sendrecv"])
@pytest.mark.parametrize(
    "machine", ["dgx1", SEVEN, pytest.param("dgx-a100*2", marks=pytest.mark.slow), "random-regular:12"]
)
def test_first_rows_come_before_any_solver_and_search(machine, coll, monkeypatch):
    """A bound and a replayed schedule are announced before scale methods and exact synthesis begin."""
    events = []
    empty = SimpleNamespace(open=())
    monkeypatch.setattr(engine_choice, "synthesize_exact", lambda *_: events.append("sweep") or empty)
    for name in ("advance", "advance_quickly"):
        monkeypatch.setattr(ScaleSearch, name, lambda *_: events.append("scale"))
    machine = topology(machine) if isinstance(machine, str) else machine
    query = engine_choice.Query(machine, collective(coll, machine.ranks), Options())
    engine_choice.synthesize(query, lambda event: events.append(event.kind))
    assert events[:2] == ["bound", "point"] and events[-1] == "sweep"


def test_quick_stages_leave_time_to_write_out_their_points(monkeypatch):
    """The bound comes alone, then each stage; none takes all the time that is left."""
    network, task = topology("dgx1*2").network(), collective("allgather", 16)
    search = incumbents.scale_search(topology("dgx1*2"), task)
    points, shares = [], []
    advance = ScaleSearch.advance_quickly

    def recorded(search):
        shares.append(current_deadline().remaining())
        done = advance(search)
        points.append(len(search.state.points()))
        return done

    monkeypatch.setattr(ScaleSearch, "advance_quickly", recorded)
    with time_limited(Deadline.after(10_000)):
        latest = list(incumbents.find_incumbents(network, task, search))[-1]
    assert points[0] == 0 and latest.schedules and max(shares) < 6_000


def test_no_schedule_is_begun_when_the_time_is_over_but_the_first():
    """All were written out, for a minute under a limit of a second."""
    machine = topology("switch:20")
    network, task = machine.network(), collective("scan", 20)
    *_, whole = incumbents.find_incumbents(network, task, None, True, machine)
    with time_limited(Deadline(0.0)):
        *_, cut_short = incumbents.find_incumbents(network, task, None, True, machine)
    assert len(whole.schedules) == 2
    assert [name for name, _ in cut_short.schedules] == [whole.schedules[0][0]]


@pytest.mark.parametrize("count", [2, 4])
def test_ctrl_c_keeps_the_rows_so_far(count):
    """Each row stands as soon as it is announced, also where the next one is interrupted; each number of steps is open
    at the row that it has, as one interval at the first row with the rounds of the last would be refused."""
    rows = []

    def listen(event):
        rows.extend([event.point] if event.kind == "point" else [])
        if len(rows) == count:
            raise KeyboardInterrupt

    machine = topology("dgx-a100*2")
    with pytest.raises(SweepInterrupted) as stop:
        engine_choice.synthesize(engine_choice.Query(machine, collective("scatter", 16), Options()), listen)
    kept = stop.value.frontier
    assert rows[0].construction == "direct sends" and rows[1].construction.startswith("boxes: ")
    assert kept.points[0].construction == "direct sends" and (len(kept.points) > 1) == (count > 2)
    uppers = {interval.steps: interval.upper for interval in kept.open}
    for point in kept.points:
        assert point.status == "optimal" or uppers[point.steps] == point.rounds_per_chunk
    api.verify(kept)


def test_ctrl_c_in_exact_synthesis_keeps_the_rows_before_it(monkeypatch):
    machine = topology("dgx-a100*2")
    network, task = machine.network(), collective("scatter", 16)

    def stopped(*given):
        raise SweepInterrupted(Frontier(network, task, ()), None)

    monkeypatch.setattr(engine_choice, "synthesize_exact", stopped)
    kinds = []
    with pytest.raises(SweepInterrupted) as stop:
        query = engine_choice.Query(machine, task, Options())
        engine_choice.synthesize(query, lambda event: kinds.append(event.kind))
    assert kinds.count("point") >= len(stop.value.frontier.points) > 1
    api.verify(stop.value.frontier)


def test_a_seed_that_meets_the_bound_asks_no_solver(monkeypatch):
    monkeypatch.setattr(portfolio, "solve", lambda *given, **named: pytest.fail("a solver was asked"))
    for name, steps, bandwidth, construction in [
        ("torus:3x3", 2, Fraction(2), "breadth-first broadcast"),
        ("hypercube:16", 4, Fraction(15, 4), "recursive-doubling-rotated"),
    ]:
        machine = topology(name)
        query = engine_choice.Query(machine, collective("allgather", machine.ranks), Options(jobs=1), fresh=True)
        found = engine_choice.synthesize(query)
        (point,) = found.points
        assert (point.steps, point.rounds_per_chunk, point.construction) == (steps, bandwidth, construction)
        assert api.verify(found)[-2].startswith("complete")


def sweep(*schedules, **options):
    network, task = topology("torus:3x3").network(), collective("allgather", 9)
    mine = tuple(("mine", schedule) for schedule in schedules)
    return Sweep(network, task, Options(jobs=1, **options), Log(None, ""), seeds=mine)


def test_the_best_seed_is_taken_and_long_ones_wait_for_the_solver():
    from synth.encodings import bounds

    found = [s for name, s in seeds("torus:3x3", "allgather") if name == "breadth-first broadcast"]
    short = next(schedule for schedule in found if schedule.rounds_per_chunk == 2)
    network = short.network
    bound = bounds.flow(network, short.collective, 2)
    slow = replace(short, steps=(short.steps[0]._replace(rounds=9), *short.steps[1:]))
    run = sweep(slow, short)
    point = close_step_count.seed(run, 2, bound)
    assert point is not None and point.schedule is short and point.status == "optimal"
    assert close_step_count.has_few_chunks(run, point, bound)
    assert close_step_count.seed(sweep(slow), 2, bound).status == "best-known"
    assert close_step_count.seed(run, 3, bound) is None
    assert close_step_count.seed(sweep(short, max_chunks=short.chunks - 1), 2, bound) is None
    # the same with three times the chunks
    steps = []
    for step in short.steps:
        sends = []
        for send in step.sends:
            unit, chunk = divmod(send.chunk, short.chunks)
            sends += [send._replace(chunk=(3 * unit + k) * short.chunks + chunk) for k in range(3)]
        steps.append(step._replace(rounds=3 * step.rounds, sends=tuple(sorted(sends))))
    many = Schedule(network, short.collective, 3 * short.chunks, tuple(steps))
    assert verify.schedule(many).rounds_per_chunk == 2
    run = sweep(many)
    assert not close_step_count.has_few_chunks(run, close_step_count.seed(run, 2, bound), bound)


def test_named_engines_are_not_helped():
    for options in (Options(jobs=1, encoding="step"), Options(jobs=1, solver="cadical")):
        machine, task = topology("torus:3x3"), collective("allgather", 9)
        found = engine_choice.synthesize(engine_choice.Query(machine, task, options, "exact", fresh=True))
        assert all(p.construction != "breadth-first broadcast" for p in found.points)


@pytest.mark.parametrize("coll", scale_collectives.COLLECTIVES)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("random-regular:66", marks=pytest.mark.slow), pytest.param("dgx-a100*9", marks=pytest.mark.slow),
        "switch:66",
    ],
)  # fmt: skip
def test_rows_at_scale_come_before_long_searches(name, coll):
    """Above the ranks of exact synthesis, too: a checked bound, then replayed schedules, which the frontier keeps."""
    events = []
    slow = ("forest", "least congestion", "reduce-scatter and allgather by forests")
    found = engine_choice.synthesize_flow(topology(name), coll, 0, events.append)
    first = next(i for i, event in enumerate(events) if event.kind == "point")
    assert any(event.kind == "bound" for event in events[:first])
    assert not any(event.text in slow for event in events[:first])
    for event in events:
        if event.kind == "bound":
            assert event.bound <= found.bound
        if event.kind == "point":
            within = [p.rounds_per_chunk for p in found.points if p.steps <= event.steps]
            assert min(within) <= event.point.rounds_per_chunk


def _no_flow_bound(*_, **__):
    raise AssertionError("no higher bound than that of a schedule exists")


def _too_large(*_, **__):
    raise UncheckedError("is too large to check", "$")


def test_bounds_that_direct_sends_attain_are_final(monkeypatch):
    """On `fat-tree:128` flow bounds took 58 s to say the same, and their certificates were too large to check."""
    monkeypatch.setattr("synth.solvers.pool.run_in_process", _no_flow_bound)
    monkeypatch.setattr(PrefetchedBounds, "begin", _no_flow_bound)
    found = api.bound("fat-tree:16", "scatter")
    assert [(steps, bound.value) for steps, bound in found] == [(0, 1), (1, 15), (None, 15)]
    frontier = api.frontier("fat-tree:16", "scatter", fresh=True)
    (point,) = frontier.points
    assert frontier.complete and (point.steps, point.rounds_per_chunk, point.status) == (1, 15, "optimal")
    api.verify(frontier)


def test_bounds_whose_certificates_are_too_large_to_check_are_none(monkeypatch):
    monkeypatch.setattr("synth.solvers.pool.run_in_process", _too_large)
    network = topology("torus:3x3").network()
    task = collective("alltoall", 9)
    quick = single_cut_bound(network, task)
    assert [bound for _, bound in api.bound("torus:3x3", "alltoall")][1:] == [quick, quick]

    def outcome(job):
        pool.end([job])
        _too_large()

    monkeypatch.setattr(pool, "outcome", outcome)
    prefetched = PrefetchedBounds(network, task, None)
    assert isinstance(prefetched.bound(2), Unknown)
