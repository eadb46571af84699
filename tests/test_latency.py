"""The latency that predictions count is that of a whole way, on machines of any size, and headers show it."""

import pytest

from synth.model.collective import collective
from synth.model.graphs import latency
from synth.scale.search import bound
from synth.topologies import topology, topology_files
from synth.view import rate_tables

UNLIKE = """
name: two-speeds
ranks: 4
switches: [near, far, top]
links:
  - {src: 0, dst: near, bandwidth: 10, latency: 1, both: true}
  - {src: 1, dst: near, bandwidth: 10, latency: 3, both: true}
  - {src: 2, dst: far, bandwidth: 10, latency: 1, both: true}
  - {src: 3, dst: far, bandwidth: 10, latency: 2, both: true}
  - {src: near, dst: top, bandwidth: 10, latency: 5, both: true}
  - {src: top, dst: far, bandwidth: 10, latency: 7, both: true}
"""


@pytest.mark.parametrize(
    "name", ["dgx1", "dgx-a100*2", "dgx2", "mi250", "ndv2*2", "fat-tree:4", "fat-tree:8", "torus:3x3", "dgx1*2"]
)
def test_as_where_all_ways_are_listed(name):
    machine = topology(name)
    assert latency(machine) == machine.network().latency
    assert bound(machine, "allgather").latency == machine.network().latency


def test_links_of_one_way_add_up(tmp_path):
    (tmp_path / "m.yaml").write_text(UNLIKE)
    machine = topology_files.load(tmp_path / "m.yaml")
    assert latency(machine) == machine.network().latency == 3 + 5 + 7 + 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("ring:16", "1 µs"), ("dgx-a100*17", "2.7 µs"), ("torus:9x16", "1 µs"), ("fat-tree:8", "2 µs")],
)
def test_the_title_of_explain_shows_it_at_any_size(name, message):
    machine = topology(name)
    assert rate_tables.title(machine, collective("broadcast", machine.ranks, roots=[3])).endswith(f"latency {message}")
    assert " from 3 on " in rate_tables.title(machine, collective("broadcast", machine.ranks, roots=[3]))
