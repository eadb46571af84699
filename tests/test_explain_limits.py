"""`explain` under a time limit: there is a bound in any case, nothing long is begun too late, and what is missing is
named."""

from __future__ import annotations

import pytest

from synth.commands import api
from synth.scale import search
from synth.scale.baselines import comparison


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
