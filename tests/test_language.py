"""The chunk language: its errors, steps and options, and random programs against an interpreter on sets."""

import doctest
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synth
from synth.checker.schedule import replay
from synth.commands import api
from synth.commands.programs.compile import load_algorithm
from synth.commands.root import root
from synth.errors import SynthError, UsageError
from synth.language import ChunkAlgorithm, Data, RankGroup, algorithm
from synth.language.algorithm import CompileOptions
from synth.language.library import direct, hierarchical, recursive_doubling, ring, rooted_trees
from synth.program.analysis import check
from tests.finer_units import finer
from tests.random_programs import OUTPUTS, fault, play, random_plan

PROGRAMS = Path(__file__).parent / "data" / "language"


@pytest.mark.parametrize("file", sorted(path.name for path in PROGRAMS.glob("*.py")))
def test_errors_name_the_line(file, monkeypatch):
    monkeypatch.chdir(PROGRAMS)
    topology, expected = (line.partition(": ")[2] for line in Path(file).read_text().splitlines()[:2])
    program = load_algorithm(file)
    with pytest.raises(SynthError) as error:
        program.schedule(topology)
    assert str(error.value) == expected


@algorithm("broadcast")
def chain(a, pieces=1):
    for part in a.input(a.root).split(pieces):
        part.to(*a.others(a.root))


@algorithm("allreduce")
def two_shot(a):
    for owner in a.ranks:
        total = a.sum(owner, [a.input(rank).part(owner, a.size) for rank in a.ranks])
        for rank in a.others(owner):
            total.to(rank)


def test_a_chain_is_pipelined_where_steps_are_paced():
    for n, pieces in ((4, 3), (5, 6)):
        schedule = chain.schedule(f"line:{n}", steps="paced", pieces=pieces)
        assert schedule.step_count == n - 2 + pieces
        assert schedule.rounds_per_chunk == Fraction(n - 2 + pieces, pieces)
    assert chain.schedule("line:4", steps="paced=2", pieces=4).step_count == 4
    assert chain.schedule("line:4", pieces=4).step_count == 3


def test_chunks_let_no_step_waste_a_part_of_a_round():
    machine = finer(synth.topology("switch:8").network(), 12)
    schedule = two_shot.schedule(machine)
    assert (schedule.chunks, schedule.rounds_per_chunk) == (96, Fraction(7, 48))
    assert two_shot.schedule(machine, chunks=1).rounds_per_chunk == Fraction(2, 8)


@algorithm("scan")
def chain_of_sums(a):
    held = a.input(0)
    for rank in a.ranks[1:]:
        held = a.input(rank).add(held)


@algorithm("scan")
def total_passes_first(a):
    """Rank 1 passes on a sum that is not its own result, and takes its input back."""
    other = a.input(2).to(1)
    last = other.to(3)
    a.sum(3, [last, a.input(0), a.input(1), a.input(3)])
    a.sum(1, [a.input(1), a.input(0)])
    a.sum(2, [a.input(2), a.input(1), a.input(0)])


def test_inputs_come_back_in_the_place_of_sums():
    assert chain_of_sums.schedule("line:5").step_count == 4
    schedule = total_passes_first.schedule("fully-connected:4")
    assert "copy-input" in {send.kind for step in schedule.steps for send in step.sends}


def test_paths_through_other_ranks():
    @algorithm("broadcast")
    def far(a):
        for rank in a.others(0):
            a.input(0).to(rank, via="shortest")

    assert far.schedule("ring:5").step_count == 2
    assert far.schedule("dgx1").step_count == 2


def test_torus_and_rails_are_groups():
    sizes = []

    @algorithm("allgather")
    def look(a):
        sizes.append([[group.ranks for group in a.torus(dimension)] for dimension in range(2)])
        raise UsageError("seen")

    with pytest.raises(UsageError, match="seen"):
        look.schedule("torus:2x3")
    assert sizes == [[[(0, 3), (1, 4), (2, 5)], [(0, 1, 2), (3, 4, 5)]]]


def disagreement(seed):
    """Return the outcome of a random program: right, wrong, or refused for a second sum; raises where looks differ."""
    topology, task, linked, plan = random_plan(seed)
    program = ChunkAlgorithm(lambda a: play(a, plan), task.name, "random")
    right = fault(task, linked, plan) is None
    outcomes, counts = set(), []
    for steps in ("asap", "paced"):
        try:
            schedule = program.compile(topology, task, CompileOptions(steps, 1 if steps == "asap" else None)).schedule
        except SynthError as error:
            assert not right or (task.combining and "a rank holds one sum" in str(error)), (seed, str(error))
            outcomes.add("second sum" if right else "wrong")
            continue
        assert right, f"seed {seed}: compiled, but an output is missing or a line makes no sense"
        replay.schedule(schedule)
        outcomes.add("right")
        counts.append(schedule.step_count)
    assert len(outcomes) == 1, seed
    assert counts == sorted(counts), seed  # no steps are fewer than those as soon as possible
    return outcomes.pop()


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 2060), marks=pytest.mark.slow)])
def test_random_programs_of_known_outcomes(seeds):
    outcomes = [disagreement(seed) for seed in seeds]
    assert outcomes.count("right") > len(seeds) // 3
    assert outcomes.count("wrong") > len(seeds) // 12


@settings(max_examples=20)
@given(st.integers(0, 10**9))
def test_random_programs_agree_with_sets(seed):
    disagreement(seed)


def written_out(plan, task):
    """Return a plan as a program with an operation a line, from line 9 on."""
    lines = [
        "from synth.language import algorithm", "", "", f"@algorithm({task.name!r})", "def plan(a):", "    v = []",
        "    for r in a.ranks:", "        v += [a.input(r).unit(u) for u in a.input(r).units]",
    ]  # fmt: skip
    for kind, first, second, *count in plan:
        words = {"part": f"part({second}, {sum(count)})", "to": f"to({second})", "add": f"add(v[{second}])"}
        lines.append(f"    v.append(v[{first}].{words[kind]})")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 1500), marks=pytest.mark.slow)])
def test_a_copy_that_is_sent_elsewhere_is_named_by_line_or_right(seeds, tmp_path):
    outcomes = Counter()
    for seed in seeds:
        topology, task, linked, plan = random_plan(seed)
        copies = [at for at, (kind, *_) in enumerate(plan) if kind == "to"]
        if not copies or fault(task, linked, plan) is not None:
            continue
        at = copies[seed % len(copies)]
        plan = [*plan[:at], ("to", plan[at][1], (plan[at][2] + 1) % topology.ranks), *plan[at + 1 :]]
        place, file = fault(task, linked, plan), tmp_path / "plan.py"
        file.write_text(written_out(plan, task))
        said = "are missing" if place == OUTPUTS else f"plan.py:{(place or 0) + 9}: "
        try:
            load_algorithm(str(file)).compile(topology, task, CompileOptions("asap"))
        except SynthError as error:
            assert "a rank holds one sum" in str(error) or (place is not None and said in str(error)), (
                seed,
                str(error),
            )
        else:
            assert place is None, seed
        outcomes["right" if place is None else "outputs" if place == OUTPUTS else "line"] += 1
    assert min(outcomes[what] for what in ("right", "outputs", "line")) >= len(seeds) // 50, outcomes


def test_compile_prints_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(
        "from synth.language import algorithm\n\n\n@algorithm('allgather')\ndef shift(a, by=1):\n"
        "    for rank in a.ranks:\n        rest = [(rank + by * k) % a.size for k in range(1, a.size)]\n"
        "        a.input(rank).to(*rest)\n"
    )
    with pytest.raises(SystemExit) as done:
        root(["compile", "my.py", "--topo", "fully-connected:5", "-p", "by=2", "-o", "s.json", "--format", "json"])
    printed = capsys.readouterr()
    assert done.value.code == 0
    document = json.loads(printed.out)
    assert (document["steps"], document["chunks"], document["distance"]["bound"]) == (4, 1, "1")
    assert "running my.py as Python code" in printed.err
    assert synth.verify("s.json")
    with pytest.raises(SystemExit) as refused:
        root(["compile", "my.py", "--topo", "ring:5", "-p", "by=2"])
    assert refused.value.code == 2
    assert "my.py:8: ring:5 has no link 0 -> 2" in capsys.readouterr().err
    with pytest.raises(SystemExit) as wrong:
        root(["compile", "my.py", "--topo", "fully-connected:5", "-p", "by=5"])
    assert wrong.value.code == 5
    assert "are missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("collective", "body", "says"),
    [
        ("allgather", "a.input(r).to(a.others(r)[0])", "): copy it there with .to(...)"),
        ("reduce-scatter", "a.sum(r, [a.input(0).unit(r)])", "): add what it lacks with a.sum(...)"),
        (
            "reduce-scatter",
            "[a.input(r) for _ in a]",
            "my.py:5: a group is not iterable: write a.ranks, or",
        ),
    ],
)
def test_errors_say_what_to_do(tmp_path, monkeypatch, capsys, collective, body, says):
    monkeypatch.chdir(tmp_path)
    head = f"from synth.language import algorithm\n@algorithm('{collective}')\ndef my(a):\n    for r in a.ranks:\n"
    Path("my.py").write_text(f"{head}        {body}\n")
    with pytest.raises(SystemExit):
        root(["compile", "my.py", "--topo", "fully-connected:3", "--no-bounds"])
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("value", [ChunkAlgorithm, Data, RankGroup, algorithm, synth.api.distance, synth.api.library])
def test_examples_of_the_documentation_run(value):
    (found,) = doctest.DocTestFinder(recurse=False).find(value, module=False, globs={})
    assert doctest.DocTestRunner().run(found).failed == 0


def test_the_newest_data_of_a_rank_are_held():
    @algorithm("allreduce")
    def by_halves(a):
        for i in range(2):
            near, far = a.input(i).part(i, 2), a.input(1 - i).part(i, 2)
            near.add(far)
        assert [(lo, hi) for _, lo, hi in a.held(0).pieces] == [(0, Fraction(1, 2)), (Fraction(1, 2), 1)]
        assert a.held(0).contents == (frozenset([0, 1]), frozenset([0]))
        a.held(0).part(0, 2).to(1)
        a.held(1).part(1, 2).to(0)

    assert by_halves.schedule("fully-connected:2").step_count == 2


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda a: a.input(4), "4 is no rank; there are 0 to 3"),
        (lambda a: a.input(0).to("1"), "'1' is no rank"),
        (lambda a: a.input(0).to(1.0), "1.0 is no rank"),
        (lambda a: a.input(0)[0 : 1 / 3], "write Fraction(1, 3) for a third, or part(i, 3)"),
        (lambda a: a.input(0)[0], "data are cut by fractions"),
        (lambda a: a.input(0)[0:2], "2 is no fraction of data"),
        (lambda a: a.input(0).part(2, 2), "parts of n are numbered from 0 to n - 1"),
        (lambda a: a.input(0).to(1, via="longest"), 'only "shortest" is known'),
        (lambda a: a.sum(0, []), "the sum on rank 0 has no parts"),
        (lambda a: a.input(0).add(a.input(1)), "allgather sums nothing"),
        (lambda a: a.group([0, 0]), "a rank is twice in a group"),
        (lambda a: a.group([0, 1]).others(3), "rank 3 is not in the group (0, 1)"),
        (lambda a: a.cube(5), "4 ranks are no cube with a dimension 5"),
        (lambda a: a.root, "allgather has no single root"),
        (lambda a: ring.allgather(a, {0: a.input(0)}), "ring is called without data of rank 1"),
    ],
)
def test_mistakes_are_named(mistake, says):
    with pytest.raises(UsageError) as error:
        ChunkAlgorithm(mistake, "allgather", "mistaken").schedule("fully-connected:4")
    assert says in str(error.value)
    assert "test_language.py:" in str(error.value)


def test_numbers_of_numpy_are_ranks():
    @algorithm("broadcast")
    def by_numpy(a):
        data = a.input(np.int64(0))
        for rank in np.arange(1, a.size):
            data.part(np.int32(0), np.int64(1)).to(rank)

    assert by_numpy.schedule("fully-connected:4").step_count == 1


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("ring:4", "allgather"),
        ("ring:3", "allreduce"),
        ("line:3", "scan"),
        ("star:3", "alltoall"),
        ("ring:3", "reduce"),
    ],
)
def test_a_schedule_does_the_same_in_a_program(machine, name):
    for point in synth.frontier(machine, name).points:
        program = ChunkAlgorithm(lambda a, found=point.schedule: a.apply(found), name, "applied")
        again = program.schedule(machine)
        assert (again.step_count, again.rounds_per_chunk) == (point.steps, point.rounds_per_chunk)


def test_a_found_schedule_is_a_part_of_a_program():
    found = synth.frontier("fully-connected:3", "allgather").points[0].schedule

    @algorithm("allgather")
    def rails_then_found(a):
        held = a.inputs()
        for rail in a.rails:
            held |= ring.allgather(rail, held)
        for box in a.boxes:
            box.apply(found, held)

    assert rails_then_found.schedule("rail:2x3").step_count == 2
    with pytest.raises(UsageError, match="the schedule is for 3 ranks, not 2"):
        rails_then_found.schedule("rail:3x2")


def test_a_program_on_stdout_stands_alone(capsys):
    with pytest.raises(SystemExit) as done:
        root(["compile", "two-shot", "--topo", "fully-connected:3", "--no-bounds", "--to", "mscclpp", "-o", "-"])
    assert done.value.code == 0
    assert json.loads(capsys.readouterr().out)["collective"] == "allreduce"


def test_a_limit_of_the_runtime_names_the_program(monkeypatch, capsys):
    monkeypatch.chdir(PROGRAMS.parent.parent.parent)
    words = ["compile", "examples/language/my.py", "--topo", "dgx-a100", "--no-bounds", "--to", "msccl-xml"]
    with pytest.raises(SystemExit) as done:
        root([*words, "--instances", "4", "-o", "-"])
    assert done.value.code == 1
    error = capsys.readouterr().err
    assert "examples/language/my.py:4: msccl-executor has at most" in error
    assert "1 instance would fit" in error


def test_copies_are_added_as_they_come():
    @algorithm("allreduce")
    def by_copies(a):
        held = a.inputs()
        for bit in range(2):
            now = dict(held)
            for rank in a.ranks:
                held[rank] = now[rank].add(now[rank ^ 1 << bit].to(rank))

    compiled = by_copies.compile("hypercube:4")
    assert compiled.schedule.step_count == 2
    assert compiled.unused == ()


@pytest.mark.parametrize(
    ("program", "machine", "most"),
    [
        # msccl-tools' programs of the same algorithms have 104, 1224, 298 and 544 instructions
        (recursive_doubling.halving_doubling, "dgx-a100", 104),
        (direct.one_shot, "dgx-a100", 168),
        (two_shot, "dgx-a100", 224),
        pytest.param(hierarchical.allreduce, "dgx-a100*2", 576, marks=pytest.mark.slow),
        (rooted_trees.double_tree, "switch:6", 106),
    ],
)
def test_one_lane_joins_chunks_of_several_steps(program, machine, most):
    """At most the instructions that are known, clean and right under delays; more lanes keep the chunks apart."""
    parameters = {"inside": ring} if program is hierarchical.allreduce else {}
    steps = "paced=4" if program is rooted_trees.double_tree else None
    options = CompileOptions(multiple=1 if parameters else None, steps=steps, parameters=parameters)
    schedule = program.compile(machine, None, options).schedule
    for protocol in ("Simple", "LL"):
        made = api.lower(schedule, runtime="msccl", protocol=protocol, lanes=1)
        assert made.ops <= most
        report = check(made)
        assert report.ok
        assert report.safe is None
        api.run(made, size=1 << 12, topology=machine, delays=3)


def test_one_lane_makes_the_fewest_instructions(capsys):
    counts = []
    for lanes in ([], ["--lanes", "1"]):
        with pytest.raises(SystemExit) as done:
            root(["compile", "two-shot", "--topo", "dgx-a100", "--no-bounds", "--to", "msccl-xml", "-o", "-", *lanes])
        assert done.value.code == 0
        counts.append(capsys.readouterr().out.count("<step "))
    assert counts == [1344, 224]
    with pytest.raises(SystemExit) as refused:
        root(["compile", "two-shot", "--topo", "dgx-a100", "--no-bounds", "--to", "mscclpp", "-o", "-", "--lanes", "1"])
    assert refused.value.code == 2


def test_lines_that_nobody_uses_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(
        "from synth.language import algorithm\n\n\n@algorithm('broadcast')\ndef twice(a):\n"
        "    a.input(0).to(1)\n    a.input(0).to(2, 1)\n    a.input(0).to(2)\n"
    )
    with pytest.raises(SystemExit) as done:
        root(["compile", "my.py", "--topo", "fully-connected:3", "--no-bounds", "--chunks", "2"])
    assert done.value.code == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "used by" in line]
    assert said == [
        "synth: my.py:7 used by nobody (2 chunk sends): left out",
        "synth: my.py:8 used by nobody (2 chunk sends): left out",
    ]
