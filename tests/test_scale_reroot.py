"""Broadcast and reduce on symmetric machines: the trees of the allgather, re-rooted."""

from fractions import Fraction

import pytest
import spanning_forest_check as spanning_forest

from synth import topologies
from synth.errors import UndecidedError
from synth.scale.fabric.fabric import fabric
from synth.scale.forests import build, rerooting
from synth.scale.search import frontier


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize("root", [0, 5])
@pytest.mark.parametrize(("name", "most"), [
    ("dgx-a100*2", 0), ("dgx-a100*8", 0), ("dgx-h100*4:net=rail", 0), ("ndv2*4", 0), ("dgx-a100*3:nics=2", 0),
    ("mi300x*2", Fraction(1, 32)),
])  # fmt: skip
def test_trees_are_right_and_meet_the_bound_where_boxes_are_switched(name, most, collective, root):
    built = build.build(fabric(topologies.topology(name)), collective, root, methods=("symmetric",))
    forest = built.forest
    assert (forest.method, forest.collective, set(forest.roots.tolist())) == ("re-rooted", collective, {root})
    assert spanning_forest.verify(forest).time == forest.time and 0 <= built.gap <= most
    assert int(forest.weights.sum()) == forest.weight


def test_the_better_of_both_is_kept_and_both_are_rows(monkeypatch):
    graph = fabric(topologies.topology("dgx-a100*2"))
    first = []
    assert build.build(graph, "broadcast", on_forest=first.append).forest.method == "packing"  # it is as fast
    assert [forest.method for forest in first] == ["re-rooted"]
    engines = {point.construction.partition(" x ")[0] for point in frontier(graph.topology, "broadcast").points}
    assert "re-rooted forest" in engines

    # where a packing takes too long the re-rooted trees are the answer, and where they are too many there is none
    monkeypatch.setattr(build, "MOST_SWITCHED_WORK", 0)
    built = build.build(graph, "broadcast")
    assert built.forest.method == "re-rooted" and not built.gap
    monkeypatch.setattr(rerooting, "MOST_LOADS", 100)
    with pytest.raises(UndecidedError, match="no forest found for broadcast"):
        build.build(graph, "broadcast")
