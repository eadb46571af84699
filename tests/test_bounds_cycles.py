"""Bounds whose search for cuts is stopped early: lower than they could be, and valid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from synth import api, bounds
from synth.bounds import cut_lp
from synth.model.collective import collective

DGX1 = api.topology("dgx1").network()


@pytest.mark.parametrize("name", ["broadcast", "allgather", "alltoall"])
def test_a_search_that_ends_with_unsolved_cuts_still_gives_a_bound(monkeypatch, name):
    task = collective(name, DGX1.ranks)
    whole = bounds.flow(DGX1, task, 3).value
    monkeypatch.setattr(cut_lp, "SETTINGS", replace(cut_lp.SETTINGS, max_cycles=1))
    early = bounds.flow(DGX1, task, 3).value
    assert 0 < early <= whole
