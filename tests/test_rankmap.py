"""Schedules renumbered: still right, still on links that exist."""

from dataclasses import replace

import pytest

from synth.checker.schedule import replay
from synth.commands.api import baseline
from synth.errors import SynthError, UsageError
from synth.export import rank_map
from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step
from synth.topologies import topology

CASES = [(name, ()) for name in ("allgather", "reduce-scatter", "alltoall", "allreduce")]
CASES += [("broadcast", [1]), ("reduce", [1]), ("gather", [3]), ("scatter", [2])]
CASES += [("multi-broadcast", [3, 1]), ("multi-gather", [0, 2])]


@pytest.mark.parametrize(("name", "roots"), CASES)
def test_a_renumbered_schedule_replays(name, roots):
    before = baseline("direct", "full:4", name, roots=roots)
    replay.schedule(before.to_json())
    ranks = [2, 0, 3, 1]
    after = rank_map.relabelled(before, ranks)
    replay.schedule(after.to_json())
    assert after.collective.name == name
    assert after.collective.roots == tuple(ranks[r] for r in before.collective.roots)
    back = rank_map.relabelled(after, [ranks.index(r) for r in range(len(ranks))])
    assert back.steps == before.steps
    assert back.collective == before.collective


def test_what_no_map_can_be():
    ring = baseline("direct", "full:4", "allgather")
    assert rank_map.relabelled(ring, [0, 1, 2, 3]) is ring
    for ranks in ([0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4]):
        with pytest.raises(UsageError, match=r"each of 0\.\.3 once"):
            rank_map.relabelled(ring, ranks)
    with pytest.raises(SynthError, match="depends on the numbers"):
        rank_map.relabelled(replace(ring, collective=collective("alltonext", 4)), [1, 0, 2, 3])


def test_links_that_do_not_exist_are_named():
    ring = topology("ring:4").network()
    around = Schedule(ring, collective("sendrecv", 4), 1, (Step(1, tuple(Send(r, r, (r + 1) % 4) for r in range(4))),))
    rank_map.check_links(around, ring)
    with pytest.raises(SynthError, match=r"2 links that ring:4 does not have: 0 to 2, .*--rank-map"):
        rank_map.check_links(Schedule(ring, around.collective, 1, (Step(1, (Send(0, 0, 2), Send(1, 1, 3))),)), ring)


def test_labels_become_the_order_of_the_devices():
    assert rank_map.ranks_from_labels((), 3) == (0, 1, 2)
    assert rank_map.ranks_from_labels((0, 1, 5), 3) == (0, 1, 2)
    assert rank_map.ranks_from_labels((5, 0, 1), 3) == (2, 0, 1)
    assert rank_map.ranks_from_labels((3, 2, 1, 0), 4) == (3, 2, 1, 0)
