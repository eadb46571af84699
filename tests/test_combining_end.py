"""The end of an infinite frontier of a combining collective: complete up to the last number of steps, and says so."""

from __future__ import annotations

from synth.checker.documents import exact_frontier
from synth.commands import api


def test_every_number_of_steps_has_a_point(tmp_path):
    frontier = api.frontier(api.topology("dgx1", ranks="0,3,7"), "allreduce", jobs=1, log=tmp_path / "log.jsonl")
    assert [str(p.rounds_per_chunk) for p in frontier.points[:3]] == ["2", "3/2", "4/3"]
    assert frontier.complete
    assert frontier.max_steps == frontier.points[-1].steps
    assert exact_frontier.frontier(frontier.to_json())[-1].endswith(f"up to {frontier.max_steps} steps")
