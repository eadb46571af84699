"""What time limits and Ctrl-C cut short: nothing that was held by then is lost, and every stage is named once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from synth import auditlarge, bounds
from synth.collective import collective
from synth.flows import alltoall, forests, large
from synth.flows.found import Found
from synth.flows.until import TimeUp, until
from synth.frontier import Frontier, Open, Point
from synth.pareto import allreduce, atsteps, frontiers, mixed
from synth.pareto.events import Options, SweepInterrupted
from synth.topologies import topology
from synth.verdict import Budget


def empty(name: str, coll: str):
    """What exact synthesis says that has a bound and had no time for more."""
    machine = topology(name)
    network, task = machine.network(), collective(coll, machine.ranks)
    least, floor = bounds.steps(network, task), bounds.flow(network, task, None)
    gap = Open(int(least.value), floor.value, None, "time", floor.certificate)
    return machine, Frontier(network, task, (), (gap,), bounds=((0, least), (None, floor)))


def test_ctrl_c_in_the_last_flow_stage_keeps_the_points_before_it(monkeypatch):
    machine, found = empty("torus:3x3", "allgather")
    whole = large.frontier

    def stopped(*given, progress, **asked):
        def tell(text: str) -> None:
            if text == "forest":
                raise KeyboardInterrupt

        return whole(*given, progress=tell, **asked)

    monkeypatch.setattr(large, "frontier", stopped)
    with pytest.raises(SweepInterrupted) as kept:
        frontiers.helped(found, machine, "auto", None, Options())
    assert isinstance(kept.value.frontier, Frontier) and kept.value.frontier.points
    assert all(p.construction.startswith("flow: ") for p in kept.value.frontier.points)


def test_ctrl_c_while_points_are_written_out_keeps_those_before_it():
    machine, found = empty("dgx-a100*2", "allgather")
    written = []

    def tell(text: str) -> None:
        if text.startswith("writing out"):
            written.append(text)
            if len(written) == 2:
                raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted) as kept:
        mixed.mixed(found, machine, "allgather", progress=tell)
    assert len(kept.value.frontier.points) == 1


def test_shortest_ways_are_tried_after_a_search_that_was_cut_short(monkeypatch):
    flows = alltoall.flows

    def late(fabric, group=None, *, shortest=False):
        if not shortest:
            raise TimeUp
        return flows(fabric, group, shortest=True)

    monkeypatch.setattr(alltoall, "flows", late)
    found = large.frontier(topology("torus:3x4"), "alltoall", time_limit=1000)
    assert found.points and all(p.engine == "flows, shortest ways" for p in found.points)
    assert found.open == ("a sharper bound: ended by the time limit", "ways of least congestion: not tried")
    assert not any("within" in note for note in found.notes)


@pytest.mark.parametrize("error", [TimeUp, KeyboardInterrupt])
def test_a_sharper_bound_is_kept_when_the_search_for_a_forest_ends(error, monkeypatch):
    machine = topology("dgx2*2")
    whole = large.frontier(machine, "allgather")
    assert whole.certificate["kind"] == "throughput-cuts"

    def late(*_):
        raise error

    monkeypatch.setattr(forests, "balanced", late)  # what comes after the sharper bound
    found = large.frontier(machine, "allgather", time_limit=1000)
    assert found.bound == whole.bound == auditlarge.bound(found.certificate, machine)
    assert any(line.startswith("forest: ") for line in found.open)


@pytest.mark.parametrize("name", ["random-regular:24", "line:9", "dgx-a100*2:net=odd-even"])
@pytest.mark.parametrize("what", ["allgather", "reduce", "alltoall"])
def test_frontier_and_bound_count_the_same_steps_under_a_limit(name, what):
    machine = topology(name)
    whole = large.bound(machine, what).least_steps
    assert large.frontier(machine, what, time_limit=0).least_steps == whole
    assert large.bound(machine, what, time_limit=0).least_steps == whole


def test_where_the_machine_is_large_both_count_from_the_same_ranks(monkeypatch):
    monkeypatch.setattr(large, "HURRIED", 200)
    machine = topology("random-regular:24")
    one, other = (call(machine, "allgather", time_limit=1000).least_steps for call in (large.bound, large.frontier))
    assert one == other <= large.bound(machine, "allgather").least_steps


def test_a_stage_is_named_once():
    found = Found(lambda text: None)
    with until(0):
        found.cut("a sharper bound", "ended by the time limit")
        found.stage("a sharper bound", lambda: None)
    assert found.open == ["a sharper bound: ended by the time limit"]
    made = large.bound(topology("random-regular:24"), "allgather", time_limit=0)
    assert len([line for line in made.open if line.startswith("a sharper bound")]) == 1
    assert replace(made, bound=Fraction(1)).open == made.open


def test_ctrl_c_while_sums_are_searched_for_keeps_what_was_found(monkeypatch):
    network, task = topology("ring:4").network(), collective("scan", 4)
    whole = atsteps.AtSteps.run

    def stopped(here):
        whole(here)
        raise KeyboardInterrupt

    monkeypatch.setattr(atsteps.AtSteps, "run", stopped)
    kept = []
    with pytest.raises(KeyboardInterrupt):
        for item in allreduce.points(network, task, budget=Budget(), max_steps=3):
            kept.append(item)  # noqa: PERF402 - what came before the interrupt is asked for
    assert any(isinstance(item, Point) for item in kept)
