"""Scans over boxes: prefixes inside each box, and sums from box to box over all NICs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from synth.bounds.single_cut import single_cut_bound
from synth.checker.schedule import replay
from synth.frontiers import box_scan
from synth.frontiers.box_scan import box_scans
from synth.model.collective import collective
from synth.topologies import topology


def scans(name):
    machine = topology(name)
    network = machine.network()
    found = box_scans(network, collective("scan", network.ranks), machine.nodes)
    return network, sorted(found, key=lambda schedule: len(schedule.steps))


@pytest.mark.parametrize("name", ["dgx-a100*2", "rail:3x4", "rail:4x2", "switch:7", "fully-connected:9"])
def test_they_are_right_and_improve_with_steps(name, monkeypatch):
    monkeypatch.setattr(box_scan, "SETTINGS", replace(box_scan.SETTINGS, most_sends=5_000))
    _, found = scans(name)
    assert found
    for schedule in found:
        assert replay.schedule(schedule).rounds_per_chunk == schedule.rounds_per_chunk
    assert all(len(a.steps) < len(b.steps) and a.rounds_per_chunk > b.rounds_per_chunk for a, b in pairwise(found))


def test_they_use_all_nics():
    network, found = scans("dgx-a100*2")
    bound = single_cut_bound(network, collective("scan", network.ranks)).value
    assert found[-1].rounds_per_chunk <= 2 * bound


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2, 4), (5, 2), (2, 2, 2, 2), (4, 6)])
def test_boxes_of_unequal_sizes(sizes):
    machine = topology(f"switch:{sum(sizes)}")
    network = machine.network()
    nodes = [box for box, size in enumerate(sizes) for _ in range(size)]
    for schedule in box_scans(network, collective("scan", network.ranks), nodes):
        replay.schedule(schedule)
        break
    else:
        pytest.fail("none was found")


def test_nothing_is_found_where_boxes_mix_or_links_are_missing():
    for name, nodes in [
        ("switch:8", [0, 1] * 4),
        ("ring:9", [0] * 9),
        ("switch:3", [0] * 3),
        ("switch:4", [0, 1, 1, 1]),
    ]:
        network = topology(name).network()
        assert not list(box_scans(network, collective("scan", network.ranks), nodes))
    network = topology("switch:8").network()
    assert not list(box_scans(network, collective("allreduce", 8), [0] * 4 + [1] * 4))
