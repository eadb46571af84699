"""First rows: points of engines without a solver, which the sweep of exact synthesis begins with."""

from dataclasses import replace
from fractions import Fraction

import pytest
from sweeps import begun, first_rows, swept

from synth.checker.schedule import replay as verify
from synth.commands import api
from synth.encodings import bounds
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.encodings.engine import FrontierProblem, Options
from synth.errors import UncheckedError
from synth.model import scale_collectives
from synth.model.collective import collective
from synth.model.frontier import Point
from synth.model.outcome import Unknown
from synth.model.schedule import Schedule
from synth.model.topology import Link, Topology
from synth.pareto import close_step_count
from synth.pareto import first_rows as quick
from synth.pareto.events import SweepInterrupted
from synth.pareto.first_rows import direct_schedule
from synth.pareto.flow import QuickFlow
from synth.pareto.flow_frontier import synthesize_flow
from synth.pareto.portfolio import portfolio
from synth.pareto.step_search import PrefetchedBounds
from synth.pareto.sweep import Sweep
from synth.pareto.synthesize import synthesize
from synth.scale.search import ScaleSearch
from synth.solvers import pool
from synth.solvers.deadline import current_deadline
from synth.topologies import topology


def rows_of(name, coll, root=()):
    machine = topology(name)
    return first_rows(machine, collective(coll, machine.ranks, root)).points


@pytest.mark.parametrize("coll", ["allgather", "allreduce"])
def test_links_in_two_limits_of_one_side_are_read_by_both_engines(coll):
    """PCIe slots on a socket are an example of such machines."""
    machine = topology("fully-connected:2*2")
    across = [i for i, link in enumerate(machine.links) if link.src < 2 <= link.dst]
    shared = replace(machine.limits[0], name="box out", links=across)
    machine = replace(machine, limits=(*machine.limits, shared))
    assert QuickFlow().applies(FrontierProblem(machine, collective(coll, machine.ranks)))
    found = api.frontier(machine, coll, max_steps=1)
    assert found.points
    flow = api.frontier(machine, coll, engine="flow")
    assert flow.points[-1].rounds_per_chunk >= flow.bound > 0
    api.verify(found)
    assert api.bound(machine, coll, max_steps=1)


@pytest.mark.parametrize("coll", scale_collectives.COLLECTIVES[:5])
@pytest.mark.parametrize("name", ["torus:3x3", "fully-connected:4*2", "hypercube:16"])
def test_rows_do_the_collective(name, coll):
    root = (4,) if coll in ("broadcast", "reduce") else ()
    found = rows_of(name, coll, root)
    assert found
    for point in found:
        assert verify.schedule(point.schedule).steps == point.steps and point.construction
        assert point.schedule.collective == collective(coll, point.schedule.network.ranks, root)


def test_long_direct_sends_are_no_first_row(monkeypatch):
    task = collective("gather", 9)
    assert quick.DirectSends().applies(FrontierProblem(topology("torus:3x3"), task))
    monkeypatch.setattr(quick, "FEW_SENDS", 10)
    assert not quick.DirectSends().applies(FrontierProblem(topology("torus:3x3"), task))


@pytest.mark.parametrize(("name", "coll", "steps", "rounds"), [
    ("torus:3x3", "alltoall", 2, None), ("dgx-a100*8", "alltonext", 1, 1), ("dgx-a100*2", "scatter", 1, 8),
    ("dgx-a100*2", "reduce-scatter", 1, 8), ("torus:5x4", "sendrecv", 2, 2), ("dgx1", "allreduce", 4, None),
])  # fmt: skip
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
    found = first_rows(topology(name), collective("scan", topology(name).ranks))
    assert [point.construction for point in found.points] == rows
    for point in found.points:
        assert verify.schedule(point.schedule).rounds_per_chunk == point.rounds_per_chunk >= found.floor.value


@pytest.mark.parametrize("coll", ["allgather", "reduce", "allreduce", "alltoall", "scatter", "sendrecv"])
@pytest.mark.parametrize(
    "machine", ["dgx1", SEVEN, pytest.param("dgx-a100*2", marks=pytest.mark.slow), "random-regular:12"]
)
def test_first_rows_come_before_any_solver_and_search(machine, coll, monkeypatch):
    """A bound and a replayed schedule are announced before scale methods and exact synthesis begin."""
    events = []
    monkeypatch.setattr(Sweep, "run", lambda *_: events.append("sweep") or iter(()))
    for name in ("advance", "advance_quickly"):
        monkeypatch.setattr(ScaleSearch, name, lambda *_: events.append("scale"))
    machine = topology(machine) if isinstance(machine, str) else machine
    synthesize(FrontierProblem(machine, collective(coll, machine.ranks)), lambda event: events.append(event.kind))
    assert events[:2] == ["bound", "point"] and events[-1] == "sweep"


def test_quick_stages_leave_time_to_write_out_their_points(monkeypatch):
    """The bound comes alone, then each stage; none takes all the time that is left."""
    points, shares = [], []
    advance = ScaleSearch.advance_quickly

    def recorded(search):
        shares.append(current_deadline().remaining())
        done = advance(search)
        points.append(len(search.state.points()))
        return done

    monkeypatch.setattr(ScaleSearch, "advance_quickly", recorded)
    found = first_rows(topology("dgx1*2"), collective("allgather", 16), time_limit=25_000, deterministic=True)
    assert points[0] == 0 and found.points and max(shares) < 6_000


def test_no_schedule_is_begun_when_the_time_is_over_but_the_first():
    """All were written out, for a minute under a limit of a second."""
    machine = topology("switch:20")
    whole = first_rows(machine, collective("scan", 20))
    cut_short = first_rows(machine, collective("scan", 20), late=9.0, time_limit=1.0)
    assert len(whole.points) == 2
    assert [point.construction for point in cut_short.points] == [whole.points[0].construction]


def interrupted_at_row(count):
    """Return the rows that were announced, and the frontier that Ctrl-C at the last of them leaves."""
    rows = []

    def listen(event):
        rows.extend([event.point] if event.kind == "point" else [])
        if len(rows) == count:
            raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted) as stop:
        synthesize(FrontierProblem(topology("dgx-a100*2"), collective("scatter", 16)), listen)
    return rows, stop.value.frontier


def test_ctrl_c_keeps_the_rows_so_far():
    """Each row stands as soon as it is announced."""
    rows, kept = interrupted_at_row(2)
    assert rows[0].construction == "direct sends" and rows[1].construction.startswith("boxes: ")
    assert [point.construction for point in kept.points] == [row.construction for row in rows]
    api.verify(kept)


def test_each_number_of_steps_of_interrupted_rows_is_open_at_the_row_that_it_has():
    """One interval at the first row with the rounds of the last would be refused by `verify`."""
    _, kept = interrupted_at_row(4)
    assert len(kept.points) > 1
    uppers = {interval.steps: interval.upper for interval in kept.open}
    for point in kept.points:
        assert point.status == "optimal" or uppers[point.steps] == point.rounds_per_chunk
    api.verify(kept)


def test_a_row_that_meets_the_bound_asks_no_solver(monkeypatch):
    monkeypatch.setattr(portfolio, "solve", lambda *given, **named: pytest.fail("a solver was asked"))
    for name, steps, bandwidth, construction in [
        ("torus:3x3", 2, Fraction(2), "breadth-first broadcast"),
        ("hypercube:16", 4, Fraction(15, 4), "recursive-doubling-rotated"),
    ]:
        machine = topology(name)
        found = synthesize(
            FrontierProblem(machine, collective("allgather", machine.ranks), Options(jobs=1)), fresh=True
        )
        assert found.complete and [(p.steps, p.rounds_per_chunk, p.construction) for p in found.points] == [
            (steps, bandwidth, construction)
        ]  # fmt: skip
        assert api.verify(found)[-2].startswith("complete")


def test_the_best_row_is_taken_and_long_ones_wait_for_the_solver():
    short = next(p for p in rows_of("torus:3x3", "allgather") if p.construction == "breadth-first broadcast")
    schedule = short.schedule
    bound = bounds.flow(schedule.network, schedule.collective, 2)
    slow = replace(schedule, steps=(schedule.steps[0]._replace(rounds=9), *schedule.steps[1:]))
    found = begun(schedule.network, schedule.collective, [Point.of(slow, short.bound, "slow"), short])
    found.rows = found.points
    point = close_step_count.row_at(found, 2)
    assert point is not None and point.schedule is schedule and close_step_count.has_few_chunks(found, point, bound)
    assert close_step_count.row_at(found, 3) is None
    few = begun(schedule.network, schedule.collective, [short], max_chunks=schedule.chunks - 1)
    assert not few.points

    # each chunk three times
    steps = []
    for step in schedule.steps:
        sends = [send._replace(chunk=3 * send.chunk + k) for send in step.sends for k in range(3)]
        steps.append(step._replace(rounds=3 * step.rounds, sends=tuple(sorted(sends))))
    many = Schedule(schedule.network, schedule.collective, 3 * schedule.chunks, tuple(steps))
    long = begun(schedule.network, schedule.collective, [Point.of(many, short.bound, "long")])
    long.rows = long.points
    assert long.rows[0].rounds_per_chunk == 2 and not close_step_count.has_few_chunks(long, long.rows[0], bound)


@pytest.mark.parametrize("coll", scale_collectives.COLLECTIVES)
@pytest.mark.parametrize("name", [
    "switch:66", pytest.param("random-regular:66", marks=pytest.mark.slow),
    pytest.param("dgx-a100*9", marks=pytest.mark.slow),
])  # fmt: skip
def test_rows_at_scale_come_before_long_searches(name, coll):
    """Above the ranks of exact synthesis, too: a checked bound, then replayed schedules, which the frontier keeps."""
    events = []
    slow = ("forests", "least congestion")
    found = synthesize_flow(topology(name), coll, 0, events.append)
    first = next(i for i, event in enumerate(events) if event.kind == "point")
    assert any(event.kind == "bound" for event in events[:first])
    assert not any(event.text in slow for event in events[:first])
    for event in events:
        if event.kind == "bound":
            assert event.bound <= found.bound
        if event.kind == "point":
            assert any(
                p.steps <= event.steps and p.rounds_per_chunk <= event.point.rounds_per_chunk for p in found.points
            )


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
    assert frontier.complete and [(p.steps, p.rounds_per_chunk, p.status) for p in frontier.points] == [
        (1, 15, "optimal")
    ]
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


def test_rows_are_kept_when_the_time_is_over():
    """The search for a higher bound was ended, but a row attains the one that there is."""
    machine, task = topology("torus:3x3"), collective("allgather", 9)
    rows = first_rows(machine, task).points
    found = swept(machine.network(), task, rows, jobs=1, time_limit=1.0, late=2.0)
    assert found.points and found.complete and not found.notes
    api.verify(found)


@pytest.mark.parametrize(("name", "coll"), [("random-regular:20", "allgather"), ("switch:20", "scan")])
def test_later_rows_are_kept_too_also_beyond_the_steps_of_the_sweep(name, coll):
    machine = topology(name)
    network, task = machine.network(), collective(coll, 20)
    first = int(bounds.steps(network, task).value)
    rows = [row for row in first_rows(machine, task).points if row.steps > first]
    found = swept(network, task, rows, jobs=1, time_limit=1.0, late=2.0)
    assert rows and found.points[0].steps == min(row.steps for row in rows)
    if coll == "scan":
        longest = max(row.steps for row in rows)
        assert longest > first + 6 and found.points[-1].steps == longest and not found.complete
    api.verify(found)
