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
from synth.errors import SynthError, UsageError
from synth.language import ChunkAlgorithm, Data, RankGroup, algorithm
from synth.language.algorithm import CompileOptions
from synth.language.library import direct, hierarchical, recursive_doubling, ring, rooted_trees
from synth.program.analysis import check
from tests.command_line import synth as run
from tests.finer_units import finer
from tests.random_programs import OUTPUTS, fault, play, random_plan

MY = """from synth.language import algorithm
from synth.language.library import direct, ring

@algorithm({!r})
def my(a{}):
{}
"""


@pytest.fixture
def my(tmp_path, monkeypatch):
    """`my(collective, body, parameters)`: an algorithm in my.py of the working directory, its body from line 6 on."""
    monkeypatch.chdir(tmp_path)

    def write(collective, body, parameters=""):
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        Path("my.py").write_text(MY.format(collective, parameters, lines))

    return write


# Machine and collective, the error, and the body of a program, from line 6 of my.py on.
MISTAKES = """
ring:4 allreduce
my.py:6: `+` is ambiguous: write .add(data) for a sum, .join(data) for both pieces
a.input(0) + a.input(1)

fully-connected:4 allreduce
my.py:8: rank 3 would count rank 1 twice in unit 0 [0:1/2]: it holds {1, 3} (my.py:6), what comes from rank 2 is {0, 1, 2} (my.py:7)
near = a.input(3)[0 : 1 / 2].add(a.input(1)[0 : 1 / 2])
far = a.sum(2, [a.input(rank)[0 : 1 / 2] for rank in (0, 1, 2)])
near.add(far)

dgx-a100 allgather
my.py: 14 of 64 outputs are missing: rank 0 ends without unit 6 (nearest: rank 6, its input): copy it there with .to(...)
for rank in range(6):
    for other in a.others(rank):
        a.input(rank).to(other)

dgx-a100 alltoall
my.py: 1 of 64 outputs are missing: rank 4 ends without unit 20 of rank 2 (nearest: rank 2, its input): copy it there with .to(...)
for src in a.ranks:
    for dst in a.others(src):
        if (src, dst) != (2, 4):
            a.input(src).part(dst, a.size).to(dst)
a.input(2).part(4, a.size).to(0)

ring:4 allreduce
my.py: 3 of 4 outputs are missing: rank 0 ends without the sum {0, 1, 2, 3} of unit 0 (nearest: rank 3, my.py:8): copy it there with .to(...)
total = a.input(0)
for rank in (1, 2, 3):
    total = a.input(rank).add(total)

dgx1 allgather
my.py:8: dgx1-v100 has no link 0 -> 5; two hops: 0-1-5: write .to(1, 5) or via="shortest"
for rank in a.ranks:
    for other in a.others(rank):
        a.input(rank).to(other)

fully-connected:4 allreduce
my.py:6: add of [0:1/3] of unit 0 to [0:1/2] of unit 0: the same pieces are needed
a.input(0)[0 : 1 / 2].add(a.input(1).part(0, 3))

fully-connected:6 allgather
my.py:8: data of rank 2 used as rank 4's: it came there at my.py:7; copies return the new data: data = data.to(4)
data = a.input(2)
data.to(4)
direct.allgather(a.group([2, 4]), {2: data, 4: data})

ring:4 all_gather
my.py:6: ValueError: invalid literal for int() with base 10: 'half'
int("half")

dgx1 allgather
ring.py:19 (my.py:6): dgx1-v100 has no link 3 -> 4; two hops: 3-0-4: write .to(0, 4) or via="shortest"
ring.allgather_one_way(a, a.inputs())

fully-connected:4 allreduce
my.py:11: rank 3 still reads its sum of my.py:8 after my.py:9 replaced it; a rank holds one sum of a chunk: send before adding
pair = a.input(0).add(a.input(1))
three = pair.add(a.input(2))
copy = three.to(3)
other = a.input(3).add(pair).add(a.input(2))
other.to(1, 2)
copy.add(a.input(3)).to(0)

fully-connected:6 allreduce
my.py:12: rank 0 still reads its sum of my.py:7 after my.py:8 replaced it; a rank holds one sum of a chunk: send before adding
far = a.input(2).add(a.input(5))
pair = a.input(0).add(a.input(1))
three = pair.add(a.input(4))
sent = three.to(3)
five = three.add(far)
five.add(a.input(3)).to(1, 4, 5)
late = pair.to(2)
a.sum(2, [late, a.input(2), a.input(3), a.input(4), a.input(5)])
a.sum(3, [sent, a.input(3), a.input(2), a.input(5)])

ring:4 broadcast
my.py:8: reads what my.py:8 makes in the same or a later step; sends of a step read the state before it: write each hop in a step() of its own, or no step()
with a.step():
    data = a.input(0)
    data.to(1, 2, 3)
"""  # noqa: E501


@pytest.mark.parametrize("mistake", MISTAKES.strip().split("\n\n"), ids=lambda mistake: mistake.splitlines()[1][:40])
def test_errors_name_the_line(my, mistake):
    on, expected, *body = mistake.splitlines()
    topology, collective = on.split()
    my(collective, "\n".join(body))
    with pytest.raises(SynthError) as error:
        load_algorithm("my.py").schedule(topology)
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


def test_compile_prints_and_writes(my):
    my(
        "allgather",
        "for rank in a.ranks:\n    rest = [(rank + by * k) % a.size for k in range(1, a.size)]\n"
        "    a.input(rank).to(*rest)",
        ", by=1",
    )
    done = run("compile my.py --topo fully-connected:5 -p by=2 -o s.json --format json")
    document = json.loads(done.stdout)
    assert (document["steps"], document["chunks"], document["distance"]["bound"]) == (4, 1, "1")
    assert "running my.py as Python code" in done.stderr
    assert synth.verify("s.json")
    assert "my.py:8: ring:5 has no link 0 -> 2" in run("compile my.py --topo ring:5 -p by=2", code=2).stderr
    assert "are missing" in run("compile my.py --topo fully-connected:5 -p by=5", code=5).stderr


@pytest.mark.parametrize(
    ("collective", "body", "code", "says"),
    [
        ("allgather", "a.input(r).to(a.others(r)[0])", 5, "): copy it there with .to(...)"),
        ("reduce-scatter", "a.sum(r, [a.input(0).unit(r)])", 5, "): add what it lacks with a.sum(...)"),
        ("reduce-scatter", "[a.input(r) for _ in a]", 2, "my.py:7: a group is not iterable: write a.ranks, or"),
    ],
)
def test_errors_say_what_to_do(my, collective, body, code, says):
    my(collective, f"for r in a.ranks:\n    {body}")
    assert says in run("compile my.py --topo fully-connected:3 --no-bounds", code=code).stderr


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


TWO_SHOT = "compile two-shot --no-bounds -o - --topo"


def test_a_program_on_stdout_stands_alone():
    assert json.loads(run(TWO_SHOT, "fully-connected:3 --to mscclpp").stdout)["collective"] == "allreduce"


def test_a_limit_of_the_runtime_names_the_program(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent.parent)
    words = "compile examples/language/my.py --topo dgx-a100 --no-bounds --to msccl-xml --instances 4 -o -"
    error = run(words, code=1).stderr
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


def test_one_lane_makes_the_fewest_instructions():
    counts = [run(TWO_SHOT, "dgx-a100 --to msccl-xml", lanes).stdout.count("<step ") for lanes in ("", "--lanes 1")]
    assert counts == [1344, 224]
    run(TWO_SHOT, "dgx-a100 --to mscclpp --lanes 1", code=2)


def test_lines_that_nobody_uses_are_named(my):
    my("broadcast", "a.input(0).to(1)\na.input(0).to(2, 1)\na.input(0).to(2)")
    said = run("compile my.py --topo fully-connected:3 --no-bounds --chunks 2").stderr.splitlines()
    assert [line for line in said if "used by" in line] == [
        "synth: my.py:7 used by nobody (2 chunk sends): left out",
        "synth: my.py:8 used by nobody (2 chunk sends): left out",
    ]
