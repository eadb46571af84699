"""Blame: the rounds of a schedule, split by the prices of a bound's certificate."""

import json
from fractions import Fraction

import pytest
from test_language import disagreement, play, random_plan

import synth
from synth.commands import api
from synth.errors import VerificationError
from synth.language import ChunkAlgorithm, algorithm
from synth.language.algorithm import CompileOptions
from synth.language.library import direct, hierarchical, ring
from synth.model.bounds.blame import Blame, RoundParts
from tests.command_line import synth as cli


@algorithm("allgather")
def one_way(a):
    for rank in a.ranks:
        a.input(rank).to(*a.others(rank))


@algorithm("allgather")
def doubling(a):
    held = a.inputs()
    for bit in range(a.size.bit_length() - 1):
        with a.step():
            now = dict(held)
            for low, high in (pair.ranks for pair in a.cube(bit)):
                held[low], held[high] = now[low].join(now[high].to(low)), now[high].join(now[low].to(high))


def blamed(program, topology, task=None, options=None) -> tuple[Blame, synth.Schedule]:
    """Compile a program and blame it at its number of steps; the parts come to its rounds, and none is negative."""
    compiled = program.compile(topology, task, options)
    schedule = compiled.schedule
    bounds = dict(api.bound(topology, schedule.collective, steps=[schedule.step_count]))
    bound = bounds.get(schedule.step_count, bounds[None])
    found = api.blame(schedule, bound, places=compiled.places)
    assert found is not None
    assert [parts.rounds for parts in found.steps] == [step.rounds for step in schedule.steps]
    assert sum((row.parts for row in found.lines), RoundParts()) == found.total
    assert found.total.rounds == schedule.rounds
    assert found.total.needed == schedule.chunks * found.bound
    assert sum(row.count * row.rounds for row in found.idle) == found.total.idle
    for parts in (*found.steps, *[row.parts for row in found.lines]):
        assert min(parts.needed, parts.detours, parts.idle, parts.slack) >= 0
    return found, schedule


def test_known_blames():
    found, _ = blamed(hierarchical.allgather, "dgx-a100*2")
    assert found.total == RoundParts(Fraction(1824, 103), Fraction(0), Fraction(133, 103))
    assert found.steps[0].lost == 0  # all that is lost are 16 NICs in the second step
    assert (found.idle[0].step, found.idle[0].count) == (2, 16)
    found, _ = blamed(one_way, "ring:8")
    assert [parts.idle for parts in found.steps] == [Fraction(1, 2)] * 7
    found, schedule = blamed(doubling, "hypercube:8", None, CompileOptions("asap", 3))
    assert (schedule.rounds, found.total.needed) == (12, 7)
    found, _ = blamed(ring.allgather, "ring:6")
    assert found.total.lost == 0


def test_detours_are_named_by_their_line():
    @algorithm("alltoall")
    def one_long_way(a):
        for rank in a.ranks:
            for other in a.others(rank):
                data = a.input(rank).unit(a.size * rank + other)
                if (rank, other) == (0, 1):
                    data.to(3, 2, 1)
                else:
                    data.to(other, via="shortest")

    found, _ = blamed(one_long_way, "ring:4")
    first = one_long_way.function.__code__.co_firstlineno
    detours = {int(row.line.rpartition(":")[2]) - first: row.parts.detours for row in found.lines}
    assert detours[6] > 0
    assert detours[8] == 0


def random_blame(seed):
    topology, task, _, plan = random_plan(seed)
    program = ChunkAlgorithm(lambda a: play(a, plan), task.name, "random")
    return blamed(program, topology, task, CompileOptions("asap"))


def test_blame_of_random_programs_sums_to_the_rounds():
    kinds, lost = set(), 0
    for seed in range(24):
        if disagreement(seed) == "right":
            found, schedule = random_blame(seed)
            kinds.add(schedule.collective.name)
            lost += bool(found.total.lost)
    assert len(kinds) > 3
    assert lost > 4


def test_a_bound_of_another_problem_is_refused():
    bound = api.distance(ring.allgather.schedule("ring:6"), "ring:6").bound
    assert bound is not None
    with pytest.raises(VerificationError, match="another problem"):
        api.blame(direct.allgather.schedule("fully-connected:6"), bound)


def test_explain_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schedule = one_way.schedule("ring:5")
    schedule.save(tmp_path / "s.json")
    api.export_program(schedule, "msccl-xml").write("s.xml")
    for file, place in (("s.json", None), ("s.xml", "gpu 1 block 0 step 1")):
        document = json.loads(cli("explain", file, "--topo ring:5 --format json").stdout)
        assert document["distance"]["bound"] == "2"
        assert document["blame"]["total"] == {"needed": "2", "detours": "0", "idle": "2", "slack": "0"}
        lines = [row["line"] for row in document["blame"]["lines"]]
        assert lines == [""] if place is None else place in lines
    assert "synth compile my.py" in cli("explain my.py --topo ring:5", code=2).stderr


def test_explain_a_point_of_a_frontier(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frontier = api.frontier("ring:4", "allgather")
    (tmp_path / "f.json").write_text(json.dumps(frontier.to_json()))
    point = frontier.points[-1]
    point.schedule.save(tmp_path / "s.json")
    documents = []
    for words in (f"f.json --step {point.steps}", "s.json"):
        documents.append(json.loads(cli("explain", words, "--topo ring:4 --format json").stdout))
    by_steps, alone = documents
    assert (by_steps["distance"], by_steps["blame"]) == (alone["distance"], alone["blame"])
    for words, says in (
        ("f.json", "is a frontier: choose a point with --point K or --step S"),
        ("f.json --step 99", "no point has 99 steps"),
        ("s.json --point 1", "is no frontier"),
        ("--topo ring:4 --coll allgather --point 1", "name its FILE"),
    ):
        assert says in cli("explain", words, code=2).stderr
