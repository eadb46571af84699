"""The repr of a value in a notebook is one short line, however large the value."""

import synth


def test_values_show_as_one_line():
    found = synth.frontier("ring:4", "allgather")
    point = found.points[0]
    values = found, point, point.schedule, found.network, found.collective, synth.topology("dgx2")
    assert [repr(value) for value in values] == [
        "<Frontier of allgather on ring:4: 2: 3/2; complete>",
        "<Point C=2, S=2, R=3: 3/2 rounds per chunk, optimal>",
        "<Schedule of allgather on ring:4: C=2, S=2, R=3, 24 sends>",
        "<Network ring:4: 4 ranks, 8 routes of units of 1 GB/s>",
        "<Collective allgather: 4 ranks, 4 units>",
        "<Topology dgx2: 16 ranks, 240 links>",
    ]
    assert repr(synth.collective("broadcast", 4, roots=[1])) == "<Collective broadcast from 1: 4 ranks, 1 unit>"
