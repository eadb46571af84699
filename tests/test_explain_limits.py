"""`explain` under a time limit: there is a bound in any case, nothing long is begun too late, and what is missing is
named."""

from __future__ import annotations

import pytest

from synth import api
from synth.scale import search
from synth.scale.baselines import comparison
from synth.solvers.processes.deadline import TimeUp

COLLECTIVES = ("allreduce", "allgather", "broadcast")


@pytest.mark.parametrize("name", COLLECTIVES)
def test_where_trees_take_too_long_flows_say_the_bound(monkeypatch, name):
    whole = api.explain("torus:3x6", name)

    def late(*_):
        raise TimeUp

    monkeypatch.setattr(comparison, "run_in_process", late)
    found = api.explain("torus:3x6", name, time_limit=1000)
    assert found.rates[0].units == whole.rates[0].units
    assert [(way.name, way.units) for way in found.rates[1:]] == [(way.name, way.units) for way in whole.rates[1:]]
    assert found.open[0] == f"a tighter bound of {name}, or trees that attain it" and not whole.open


@pytest.mark.parametrize("machine", ["torus:3x6", "dgx1", "dgx-a100*32"])
def test_without_time_there_is_a_bound_and_no_search(monkeypatch, machine):
    whole = api.explain(machine, "allgather").rates[0].units
    monkeypatch.setattr(comparison, "disjoint_rings", lambda *_, **__: pytest.fail("was begun too late"))
    found = api.explain(machine, "allgather", time_limit=0)
    assert found.rates[0].units is not None and whole is not None and found.rates[0].units >= whole
    assert "rings" in found.open
    assert {way.name: way.units for way in found.rates[1:]} == {"disjoint rings": None}


def test_bounds_that_are_asked_for_late_are_named_not_begun(monkeypatch):
    asked = []
    bound = search.bound
    monkeypatch.setattr(
        search,
        "bound",
        lambda machine, name, *given, **more: (asked.append(name), bound(machine, name, *given, **more))[1],
    )
    found = api.explain("dgx-a100*32", "allreduce", time_limit=0)
    assert asked == ["allreduce"]
    assert {"the bound of reduce-scatter", "the bound of allgather", "rings"} <= set(found.open)


def test_the_fabric_is_read_once_for_all_bounds(monkeypatch):
    read = []
    fabric = search.fabric
    monkeypatch.setattr(search, "fabric", lambda machine: (read.append(machine.name), fabric(machine))[1])
    assert api.explain("dgx-a100*20", "allreduce").rates[1].units
    assert len(read) == 1
