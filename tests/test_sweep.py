"""The guided sweep end to end: known frontiers, resumption, interruption, honesty about budgets."""

import copy
import json
from fractions import Fraction

import pytest
from test_forged_at_scale import changed

import synth
from synth.checker.documents import exact_frontier
from synth.errors import InfeasibleError, UsageError, VerificationError
from synth.pareto.events import SweepInterrupted

F = Fraction


def frontier(tmp_path, topology, collective, **options):
    return synth.frontier(topology, collective, log=tmp_path / "log.jsonl", **options)


def values(found):
    return {p.steps: p.rounds_per_chunk for p in found.points}


def interrupted(tmp_path, *asked, at, **options):
    """Return what Ctrl-C leaves at the first point of `at` steps."""

    def interrupt(event):
        if event.kind == "point" and event.steps == at:
            raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted) as stopped:
        frontier(tmp_path, *asked, on_event=interrupt, **options)
    return stopped.value


def questions(tmp_path, *asked, **options):
    """Return the frontier, and the questions that it took."""
    events = []
    found = frontier(tmp_path, *asked, on_event=events.append, **options)
    return found, [event for event in events if event.kind == "query"]


def test_an_infinite_frontier_says_what_its_end_is(tmp_path):
    found = synth.frontier("dgx1", "broadcast", max_steps=3, log=tmp_path / "log")
    (note,) = [note for note in found.notes if "any number of steps" in note]
    assert "at least 1/6 rounds per chunk" in note
    assert "pipelined spanning trees" in note
    assert "up to 3 steps it is not attained (at least 9/22)" in note
    scatter = synth.frontier("dgx1", "scatter", log=tmp_path / "other")
    assert not [note for note in scatter.notes if "any number of steps" in note]


def test_a_spent_budget_leaves_intervals_not_claims(tmp_path):
    found = frontier(tmp_path, "dgx1", "broadcast", max_steps=8, time_limit=0.01)
    assert not found.complete
    assert found.open
    assert found.open[-1].reason == "time"
    exact_frontier.document(found.to_json())


def test_an_interrupted_sweep_continues_from_its_log(tmp_path):
    path, asked = tmp_path / "log.jsonl", ("dgx1", "broadcast")
    left = interrupted(tmp_path, *asked, at=3, max_steps=4)
    assert values(left.frontier) == {2: 1, 3: F(9, 22)} and left.log == path
    found, queries = questions(tmp_path, *asked, max_steps=4)
    assert values(found) == {2: 1, 3: F(9, 22), 4: F(4, 13)}
    assert {query.steps for query in queries} == {4}, "only what was in flight is asked again"
    assert not path.exists(), "a finished sweep leaves no log"


def test_a_log_with_a_torn_or_false_line_is_not_believed(tmp_path):
    path, asked = tmp_path / "log.jsonl", ("dgx1", "broadcast")
    interrupted(tmp_path, *asked, at=3, max_steps=3)
    forged = []
    for line in path.read_text().splitlines():
        record = json.loads(line) if line else {}
        if record.get("kind") == "point" and record["point"]["steps"] == 3:
            record["point"]["schedule"]["steps"][0]["sends"].pop()
        forged.append(json.dumps(record))
    path.write_text("\n".join(forged) + '\n{"kind": "poi')
    found, queries = questions(tmp_path, *asked, max_steps=3)
    assert values(found) == {2: 1, 3: F(9, 22)}
    assert 3 in {query.steps for query in queries}


def test_the_blind_sweep_claims_nothing_beyond_its_chunk_counts(tmp_path):
    found = frontier(tmp_path, "ring:4", "allgather", sweep="blind", max_chunks=1, encoding="path", solver="z3")
    assert values(found) == {2: 2}
    (interval, *_) = found.open
    assert (interval.steps, interval.lower, interval.upper) == (2, F(3, 2), 2)
    assert interval.reason == "decided up to C = 1, no proof beyond"
    assert not found.complete


def test_sccls_sweep_asks_each_question_once_and_no_other_engine(tmp_path):
    """Table 4 of the paper has (C, S, R) = (2, 2, 3) for two steps of DGX-1's allgather."""
    options = {"sweep": "blind", "encoding": "sccl", "max_chunks": 3, "max_steps": 2}
    found, queries = questions(tmp_path, "dgx1", "allgather", **options)
    assert [query.text for query in queries] == ["C=3 S=2 R=4", "C=2 S=2 R=3"]
    assert [answer.verdict for answer in found.answers] == ["infeasible", "schedule"]
    assert [(p.chunks, p.steps, p.rounds, p.construction) for p in found.points] == [(2, 2, 3, "sccl/z3")]
    exact_frontier.document(found.to_json())


def test_sccls_sweep_composes_an_allreduce(tmp_path):
    found = frontier(tmp_path, "ring:4", "allreduce", sweep="blind", encoding="sccl")
    assert [(p.chunks, p.steps, p.rounds, p.status) for p in found.points] == [(8, 4, 6, "optimal")]
    assert any("an allreduce is a reduce-scatter and then an allgather" in note for note in found.notes)
    assert not found.complete
    exact_frontier.document(found.to_json())
    few = frontier(tmp_path, "ring:4", "allreduce", sweep="blind", encoding="sccl", max_chunks=4)
    assert (values(few), {answer.verdict for answer in few.answers}) == ({4: 1}, {"schedule"})
    with pytest.raises(UsageError, match="take 4 steps and 4 chunks or more"):
        frontier(tmp_path, "ring:4", "allreduce", sweep="blind", encoding="sccl", max_steps=3)


def test_sccls_sweep_continues_from_its_log(tmp_path):
    options = {"sweep": "blind", "encoding": "sccl", "max_chunks": 1, "max_steps": 3}
    interrupted(tmp_path, "ring:4", "allgather", at=2, **options)
    found, queries = questions(tmp_path, "ring:4", "allgather", **options)
    assert values(found) == {2: 2} and not queries


def test_uneven_and_custom_collectives(tmp_path):
    found = synth.frontier("ring:4", "allgatherv", sizes=[2, 1, 0, 1], log=tmp_path / "a")
    assert found.complete
    file = tmp_path / "mine.yaml"
    file.write_text("pre: [[0, 0], [1, 3]]\npost: [[0, [2, 3]], [1, 0]]\n")
    found = synth.frontier("ring:4", str(file), log=tmp_path / "b")
    assert found.complete
    exact_frontier.document(found.to_json())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("points.0.bandwidth", "7/5"), ("points.0.rounds", 10), ("points.0.steps", 3), ("points.0.chunks", 9),
        ("points.0.status", "best-known"), ("points.0.bound.value", "7/5"), ("max_steps", True),
        ("points.0.bound.certificate.prices.0.3", 10**6),
        ("open", [{"steps": 3, "lower": "1", "upper": "7/6", "reason": "time"}]),
    ],
)  # fmt: skip
def test_a_frontier_altered_in_one_place_fails(tmp_path, path, value):
    doc = frontier(tmp_path, "dgx1", "allgather").to_json()
    exact_frontier.document(copy.deepcopy(doc))
    with pytest.raises(VerificationError):
        exact_frontier.document(changed(copy.deepcopy(doc), path, value))
    doc["points"].pop()
    with pytest.raises(VerificationError):
        exact_frontier.document(doc)


@pytest.mark.parametrize(("collective", "sweep"), [("broadcast", "guided"), ("allgather", "blind")])
def test_too_few_steps_are_proved_infeasible(tmp_path, collective, sweep):
    with pytest.raises(InfeasibleError, match="needs at least 2 steps"):
        frontier(tmp_path, "ring:4", collective, max_steps=1, sweep=sweep)


def test_labels_belong_to_ranks(tmp_path):
    doc = frontier(tmp_path, "ring:4", "allgather").to_json()
    exact_frontier.document(doc | {"labels": [3, 2, 1, 0]})
    with pytest.raises(VerificationError, match="label"):
        exact_frontier.document(doc | {"labels": [0, 0, 1, 2]})


def test_nothing_is_complete_without_the_bounds_that_say_so(tmp_path, monkeypatch):
    """Where the time limit comes between a point and the bound at more steps, an interval is left open."""
    whole = frontier(tmp_path, "ring:4", "allreduce")
    first = whole.points[0]
    weak = next(bound for steps, bound in whole.bounds if steps is None)

    def sweep(sweep, steps):
        yield weak
        sweep.found.bounds.append((steps + 1, weak))
        yield first
        sweep.found.complete, sweep.found.last = True, steps + 1

    monkeypatch.setattr("synth.pareto.sweep.Sweep._sweep", sweep)
    found = synth.frontier("ring:4", "allreduce", log=tmp_path / "again", engine="exact")
    assert not found.complete
    assert [(o.steps, o.lower, o.upper) for o in found.open] == [(first.steps + 1, weak.value, first.rounds_per_chunk)]
    exact_frontier.document(found.to_json())
