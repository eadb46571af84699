"""Options that flow methods do not know are refused; those that they do are heeded, or cost nothing."""

import json

import pytest

from synth.commands import api
from synth.errors import InfeasibleError, UsageError
from synth.model.sends.bitwise_equality import same_bits
from synth.pareto import flow_frontier
from synth.pareto.events import SweepInterrupted
from synth.pareto.synthesize import FINE_GRAINED, flow_task
from synth.scale.search import frontier
from synth.topologies import topology
from tests.command_line import synth

MACHINE = "fully-connected:4*2:nics=1"
PARETO = f"pareto --topo {MACHINE} --coll allgather --engine flow"


@pytest.fixture(scope="module")
def whole():
    """The frontier of flow methods on `MACHINE`."""
    return api.frontier(MACHINE, "allgather", engine="flow")


@pytest.fixture
def searched(whole, monkeypatch):
    """The frontier `whole`, which searches by flow methods then return at once."""
    monkeypatch.setattr(flow_frontier, "synthesize_flow", lambda *_, **__: whole)
    return whole


def test_steps_and_chunks_are_bounded(searched):
    whole = searched
    few = api.frontier(MACHINE, "allgather", engine="flow", max_steps=3)
    assert whole.engine == few.engine == "flow"
    assert (
        [p.steps for p in few.points]
        == [p.steps for p in whole.points if p.steps <= 3]
        != [p.steps for p in whole.points]
    )
    assert few.notes[-1] == "points of more than 3 steps are left out, as was asked"
    assert few.bound == whole.bound and api.verify(api.frontier_document(few))
    assert {p.chunks <= 13 for p in api.frontier(MACHINE, "allgather", engine="flow", max_chunks=13).points} == {True}
    both = api.frontier(MACHINE, "allgather", engine="flow", max_steps=9, max_chunks=13)
    assert both.notes[-1] == "points of more than 9 steps or 13 chunks are left out, as was asked"


@pytest.mark.usefixtures("searched")
def test_the_point_advised_is_one_of_those_asked_for():
    shown = synth(PARETO, "--max-steps 2").stdout
    assert "at 128 MB take the 2-step point" in shown and "left out, as was asked" in shown


@pytest.mark.usefixtures("searched")
def test_flow_methods_on_few_ranks_say_how_to_get_exact_synthesis():
    assert "--engine exact" in api.frontier("mi300x*3", "allgather").notes[-1]
    assert FINE_GRAINED not in api.frontier("mi300x*3", "allgather", engine="flow").notes
    assert FINE_GRAINED not in api.frontier("mi300x*9", "allgather").notes


@pytest.mark.parametrize(
    ("machine", "collective", "engine"),
    [("dgx-a100*4", "allreduce", "exact"), ("dgx-a100*5", "allreduce", "flow"), ("dgx-a100*5", "alltoall", "exact"),
     ("torus:7x7", "allreduce", "exact"), ("dgx1*9", "allreduce", "flow")],
)  # fmt: skip
def test_auto_means_flow_methods_on_fewer_ranks_of_several_boxes(machine, collective, engine):
    task = flow_task("auto", topology(machine), collective, by_ranks=False)
    assert (task is not None) == (engine == "flow")


def test_fewer_steps_than_any_schedule_has():
    with pytest.raises(InfeasibleError, match="needs at least 4 steps, at most 3 were allowed"):
        api.frontier("ring:8", "allgather", engine="flow", max_steps=3)


def test_what_ctrl_c_leaves_is_bounded_too(whole, monkeypatch):
    def stop(*_, **__):
        raise SweepInterrupted(whole, None)

    monkeypatch.setattr(flow_frontier, "synthesize_flow", stop)
    with pytest.raises(SweepInterrupted) as stopped:
        api.frontier(MACHINE, "allgather", engine="flow", max_steps=3)
    assert stopped.value.frontier.points and max(p.steps for p in stopped.value.frontier.points) <= 3


@pytest.mark.parametrize(("given", "message"), [
    ({"encoding": "path"}, "have no --encoding;"), ({"solver": "z3"}, "no --solver"),
    ({"sweep": "blind"}, "no --sweep"), ({"encoding": "path", "solver": "z3"}, "no --encoding and no --solver"),
])  # fmt: skip
def test_engines_of_exact_synthesis_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        api.frontier(MACHINE, "allgather", engine="flow", **given)
    with pytest.raises(UsageError, match="which are taken above 64 ranks, have no"):
        api.frontier("torus:9x9", "allgather", **given)
    with pytest.raises(UsageError, match="which are taken above 40 ranks, have no"):
        api.frontier("torus:6x7", "alltoall", **given)


def test_an_alltoall_of_many_pairs_is_for_flow_methods():
    """Exact synthesis took minutes for the same points on 64 ranks, with a weaker bound."""
    found = api.frontier("torus:6x7", "alltoall")
    assert found.engine == "flow" and found.bound == 36 and min(p.rounds_per_chunk for p in found.points) <= 37
    large = api.scale_bound("torus:6x7", "alltoall", engine="auto")
    assert large is not None and large.bound == 36
    assert flow_task("auto", topology("torus:6x6"), "alltoall") is None


@pytest.mark.parametrize(
    ("links", "collective", "message"),
    [
        ([[0, 1, 1], [1, 0, 4]], "allgather", "what rank 0 must send to 1"),
        ([[0, 1, 2], [1, 0, 2]], "broadcast", "takes fewer than 1 round per"),
    ],
)
def test_one_is_no_plural(tmp_path, links, collective, message):
    file = tmp_path / "two.json"
    listed = [{"src": a, "dst": b, "bandwidth": width} for a, b, width in links]
    file.write_text(json.dumps({"name": "two", "ranks": 2, "links": listed}))
    words = f"--topo {file} --coll {collective} --engine flow"
    assert message in synth("bound", words).stdout + synth("pareto", words).stdout


@pytest.mark.usefixtures("searched")
def test_a_frontier_of_flow_methods_is_drawn_above_its_bound():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; run: pip install 'ccl-synth[plot]'")
    found = api.frontier(MACHINE, "allgather", engine="flow", max_steps=3)
    (axes,) = found.plot().axes
    floor = axes.lines[0].get_ydata()
    assert set(floor) == {float(found.bound)}
    assert all(float(point.rounds_per_chunk) >= floor[0] for point in found.points)


@pytest.mark.parametrize("machine", ["dgx1", "ring:5", pytest.param("dgx-a100*2", marks=pytest.mark.slow)])
def test_sums_of_flow_methods_have_the_same_bits_on_all_ranks(machine):
    for point in frontier(topology(machine), "allreduce").points[:4]:
        assert same_bits(point.schedule.written_out())


def test_a_document_of_some_points_is_verified(tmp_path):
    synth(PARETO, "--max-steps 3 -o", tmp_path / "kept.json")
    doc = json.loads((tmp_path / "kept.json").read_text())
    files = list((tmp_path / "kept.schedules").glob("*.npz"))
    assert len(doc["points"]) == len(files) == len(api.verify(tmp_path / "kept.json")) - 3
