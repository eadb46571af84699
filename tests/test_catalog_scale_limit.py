"""A job's time limit for each task holds for flow methods too; what it left undone is open, and gone on with when there
is more time."""

from __future__ import annotations

from catalog_jobs import entries, run

from synth import api
from synth.catalog.store.store import Store
from synth.frontiers import engine_choice
from synth.model.scale_frontier import ScaleFrontier

TEXT = "topologies: ['torus:5x5']\ncollectives: [alltoall]\noptions: {engine: flow, time-limit: 0.001s}\n"


def test_a_flow_task_ends_at_its_limit_and_is_gone_on_with(tmp_path, monkeypatch):
    given = []
    whole = engine_choice.synthesize_flow

    def noted(*args, **more):
        given.append(more.get("time_limit"))
        return whole(*args, **more)

    monkeypatch.setattr(engine_choice, "synthesize_flow", noted)
    assert run(tmp_path, TEXT).exit_code == 4
    with Store.open(tmp_path / "catalog.db") as store:
        (short,) = map(store.get, store.fingerprints("open"))
        assert isinstance(short.frontier, ScaleFrontier)
        assert short.reason and short.frontier.unfinished and short.provenance.time_limit == 0.001
        assert short.reason == ", ".join(short.frontier.unfinished)
        assert [one.error for one in api.catalog.verify(store)] == [None]
    assert run(tmp_path, TEXT.replace(", time-limit: 0.001s", "")).exit_code == 0
    with Store.open(tmp_path / "catalog.db") as store:
        assert not list(store.fingerprints("open"))
        (done,) = map(store.get, store.fingerprints("done"))
        assert isinstance(done.frontier, ScaleFrontier)
        assert not done.frontier.unfinished and done.id == short.id
        assert done.frontier.points and not short.frontier.points
    assert given == [0.001, None]
    assert len(entries(tmp_path)) == 1
