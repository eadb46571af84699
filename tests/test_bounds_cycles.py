"""Bounds whose search for cuts is stopped early: lower than they could be, and valid."""

from __future__ import annotations

import pytest

from synth import api, bounds
from synth.bounds import master
from synth.collective import collective


@pytest.mark.parametrize("name", ["broadcast", "allgather", "alltoall"])
def test_a_search_that_ends_with_unsolved_cuts_still_gives_a_bound(monkeypatch, name):
    network = api.topology("dgx1").network()
    task = collective(name, network.ranks)
    whole = bounds.flow(network, task, 3).value
    monkeypatch.setattr(master, "MAX_CYCLES", 1)
    early = bounds.flow(network, task, 3).value
    assert 0 < early <= whole
