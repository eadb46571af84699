"""Mends of programs: fewer rounds in as many steps, replayed, never worse."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from test_language import disagreement, play, random_plan

import synth
from synth import api
from synth.algorithms import broadcast, direct, one_shot, recursive_doubling, ring, swing
from synth.cli.root import root
from synth.errors import UsageError
from synth.language import ChunkAlgorithm, algorithm
from synth.language.algorithm import CompileOptions
from synth.mends import regrowth
from synth.mends.regrowth import regrown
from synth.mends.rotation import rotated
from synth.model.topology import Link, Topology


@algorithm("broadcast")
def chain(a):
    a.input(0).to(*range(1, a.size))


@algorithm("allgather")
def far_in_a_block(a):
    with a.step():
        for rank in a.ranks:
            for other in a.others(rank):
                a.input(rank).to(other)


@pytest.fixture
def few_programs(monkeypatch):
    monkeypatch.setattr(regrowth, "SETTINGS", replace(regrowth.SETTINGS, failures=1, seconds=0.1))


def mended(program, machine, **options):
    """Improve a program: right, never worse, and each mend that was taken better than what was there before."""
    found = api.improve(program, machine, **options)
    synth.verify(found.schedule)
    last = found.improvement.start
    for mend in found.improvement.mends:
        if mend.taken and mend.schedule is not last:
            rates = mend.schedule.rounds_per_chunk, last.rounds_per_chunk
            assert rates[0] < rates[1] or (rates[0] == rates[1] and mend.schedule.step_count < last.step_count)
            last = mend.schedule
    assert found.schedule is last
    for steps, least in found.at_least.items():
        if found.schedule.step_count == steps and least is not None:
            assert found.schedule.rounds_per_chunk >= least
    return found


def names(found):
    return [mend.name for mend in found.improvement.mends if mend.taken]


@pytest.mark.parametrize(
    ("program", "machine", "rate"),
    [
        (recursive_doubling.allgather, "hypercube:8", Fraction(7, 3)),
        (recursive_doubling.allgather, "hypercube:16", Fraction(15, 4)),
        (recursive_doubling.reduce_scatter, "hypercube:8", Fraction(7, 3)),
        (recursive_doubling.allreduce, "hypercube:8", 1),
        (ring.allgather_one_way, "ring:8", Fraction(7, 2)),
        (ring.allgather_one_way, "ring:5", 2),
        (swing.allgather, "ring:8", Fraction(7, 2)),
        (broadcast.binomial, "hypercube:8", 1),
    ],
)
def test_images_under_symmetries_reach_the_bound(program, machine, rate):
    before = program.schedule(machine)
    after, _ = rotated(before)
    assert (after.step_count, after.rounds_per_chunk) == (before.step_count, rate)
    synth.verify(after)
    assert rotated(after) is None


@pytest.mark.slow
def test_a_table_of_mends_with_bounds():
    found = mended(recursive_doubling.allgather, "hypercube:8")
    assert names(found) == ["rotation"]
    assert [mend.name for mend in found.improvement.mends] == ["rotation", "no blocks", "regrowth", "pacing"]
    assert found.at_least == {3: Fraction(7, 3)}
    assert found.improvement.mends[2].note == "at the bound"


def test_blocks_of_steps_are_left_out_where_that_takes_fewer_rounds(few_programs):
    @algorithm("allgather")
    def late(a):
        for rank in a.ranks:
            with a.step():
                for other in a.others(rank):
                    a.input(rank).to(other)

    found = mended(late, "fully-connected:4", bounds=False)
    assert found.improvement.start.step_count == 4
    assert "no blocks" in names(found)
    assert (found.schedule.step_count, found.schedule.rounds_per_chunk) == (1, 1)


def test_relay_hops_take_the_least_loaded_links(few_programs):
    with pytest.raises(UsageError, match="has no link"):
        direct.allgather.compile("ring:6")
    for program in (direct.allgather, far_in_a_block):
        found = mended(program, "ring:6", bounds=False)
        assert names(found)[0] == "relay hops"
        assert found.improvement.mends[0].note.startswith("18 ways at ")
        assert found.improvement.start.step_count == 3
    with pytest.raises(UsageError, match="has no path from rank 0 to rank 2"):
        mended(direct.allgather, Topology("two parts", 3, (Link(0, 1, 1), Link(1, 0, 1))))


def test_sums_are_relayed(few_programs):
    @algorithm("reduce")
    def at_once(a):
        a.sum(0, [a.input(rank) for rank in a.ranks])

    found = mended(at_once, "line:4", bounds=False)
    assert names(found)[0] == "relay hops"
    assert found.schedule.step_count == 3
    with pytest.raises(UsageError, match="still reads its sum"):
        mended(one_shot.allreduce, "line:3", bounds=False)  # rank 1 would hold two sums


def test_trees_are_grown_again_up_to_the_bound():
    options = CompileOptions(relays=True)
    before = direct.allgather.compile("dgx1", None, options).schedule
    bound = api.distance(before, "dgx1").bound
    after = regrown(before, bound)
    synth.verify(after)
    assert (after.step_count, after.rounds_per_chunk) == (2, bound.value)
    assert regrown(after, bound) is None
    halving = recursive_doubling.reduce_scatter.schedule("hypercube:4")
    summed = regrown(halving, api.distance(halving, "hypercube:4").bound)
    synth.verify(summed)
    assert (halving.rounds_per_chunk, summed.rounds_per_chunk) == (3, Fraction(3, 2))
    assert regrown(one_shot.allreduce.schedule("fully-connected:4")) is None


def test_pacing_takes_more_steps_where_they_are_allowed(few_programs):
    found = mended(chain, "line:4")
    assert names(found) == []
    pacing = found.improvement.mends[-1]
    assert (pacing.schedule.step_count, pacing.schedule.rounds_per_chunk) == (10, Fraction(5, 4))
    assert "needs --most-steps 10" in pacing.note
    found = mended(chain, "line:4", most_steps=10, bounds=False)
    assert (names(found), found.schedule.rounds_per_chunk) == (["pacing"], Fraction(5, 4))


@pytest.mark.slow
def test_random_programs_are_never_worse(few_programs):
    better = 0
    for seed in range(40):
        if disagreement(seed) != "right":
            continue
        topology, task, _, plan = random_plan(seed)
        program = ChunkAlgorithm(lambda a, plan=plan: play(a, plan), task.name, "random")
        options = CompileOptions("asap")
        found = mended(program, topology, collective=task, options=options, bounds=False)
        before = program.compile(topology, task, options).schedule
        assert found.schedule.rounds_per_chunk <= before.rounds_per_chunk
        assert found.schedule.step_count <= before.step_count
        better += found.schedule.rounds_per_chunk < before.rounds_per_chunk
    assert better > 4


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as done:
        root(["compile", *arguments])
    out = capsys.readouterr()
    return done.value.code, out.out, out.err


def test_the_command(few_programs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ("ring-one-way", "--topo", "ring:6", "--improve", "--no-bounds")
    code, out, _ = run(capsys, *given, "--to", "python", "-o", "two.py")
    assert code == 0
    assert "mended: 5 steps, 5 rounds, C=2 (replayed)" in out
    code, out, _ = run(capsys, "two.py", "--topo", "ring:6", "--no-bounds", "--format", "json")
    assert (code, json.loads(out)["rounds"], json.loads(out)["chunks"]) == (0, 5, 2)
    code, out, _ = run(capsys, "ring-one-way", "--topo", "ring:6", "--improve", "--format", "json", "-o", "s.json")
    document = json.loads(out)
    assert code == 0
    assert document["rounds"] == 5  # of the program as it is written
    first = {"mend": "rotation", "taken": True, "steps": 5, "rounds": 5, "chunks": 2, "rounds_per_chunk": "5/2"}
    assert first.items() <= document["mends"][0].items()
    assert document["mends"][0]["bound_at_steps"] == "5/2"
    synth.verify("s.json")


def test_mistakes_of_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "ring", "--coll", "allgather", "--topo", "ring:4", "--most-steps", "3")
    assert (code, "add --improve" in err) == (2, True)
    python = ("--to", "python", "--protocol", "LL", "-o", "-")
    code, _, err = run(capsys, "ring", "--coll", "allgather", "--topo", "ring:4", *python)
    assert (code, "--protocol is of a file for a runtime" in err) == (2, True)
    code, _, err = run(capsys, "ring", "--coll", "allgather", "--topo", "ring:4", "--reads")
    assert (code, "write --to mscclpp\n" in err) == (2, True)
    code, _, err = run(capsys, "packed-tree", "--coll", "broadcast", "--topo", "ring:4")
    assert (code, "unknown algorithm 'packed-tree'; did you mean packed-trees?" in err) == (2, True)
    few = ("--no-bounds", "--improve", "--most-steps", "2")
    code, _, err = run(capsys, "ring", "--coll", "allgather", "--topo", "ring:4", *few)
    assert (code, "--most-steps 2: the program has 3 steps" in err) == (0, True)
    (tmp_path / "one.py").write_text(
        "from synth.language import algorithm\n@algorithm('allgather')\ndef f(a):\n"
        "    for rank in a.symmetric(1):\n        a.input(rank).to(*a.others(rank))\n"
    )
    code, _, err = run(capsys, "one.py", "--topo", "ring:80", "--improve")
    assert (code, "symmetric program on so many ranks" in err) == (2, True)
