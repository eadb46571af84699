"""Schedules as programs of the chunk language: they compile back to the same schedule."""

from dataclasses import replace

import pytest
from test_language import play, random_plan

import synth
from synth import api
from synth.algorithms import LIBRARY
from synth.cli.root import root
from synth.errors import SynthError, UsageError
from synth.language import ChunkAlgorithm
from synth.language.algorithm import CompileOptions
from synth.language.source import python_source
from synth.language.source_file import algorithms_in
from synth.model.dead_sends import prune

MACHINES = ("ring:4", "ring:8", "fully-connected:4", "hypercube:8", "torus:3x3", "dgx-a100", "dgx-a100*2", "line:5")


def rows(schedule):
    """Return each step's rounds and sends between ranks; links between the same ranks are alike.

    A rank that puts its own input back may do so at another step.
    """
    steps = []
    for step in schedule.steps:
        sends = [send for send in step.sends if not send.local]
        steps.append((step.rounds, sorted((send.chunk, send.src, send.dst, send.kind) for send in sends)))
    return schedule.chunks, steps


def round_trip(schedule, folder) -> str:
    """Write a schedule as a program, and compare what it compiles to; return the program."""
    text = python_source(schedule)
    path = folder / "alg.py"
    path.write_text(text)
    program = next(iter(algorithms_in(path).values()))
    compiled = program.compile(schedule.network.as_topology(), schedule.collective, CompileOptions(multiple=1))
    assert rows(compiled.schedule) == rows(schedule)
    return text


def library_schedules(machines=MACHINES):
    for machine in machines:
        for one in LIBRARY:
            try:
                schedule = one.schedule(machine)
            except SynthError:
                continue
            if schedule.sends < 4000:
                yield schedule


def random_schedules(seeds):
    for seed in seeds:
        topology, task, _, plan = random_plan(seed)
        program = ChunkAlgorithm(lambda a, plan=plan: play(a, plan), task.name, "random")
        try:
            schedule = program.compile(topology, task, CompileOptions("asap")).schedule
        except SynthError:
            continue
        if rows(prune(schedule)) == rows(schedule) and (task.combining or not repeats(schedule)):
            yield schedule


def repeats(schedule) -> bool:
    """Return True if a chunk comes to a rank that has it: such a send may be left out of what comes back."""
    sends = [(send.chunk, send.dst) for step in schedule.steps for send in step.sends]
    for unit, ranks in enumerate(schedule.collective.pre):
        for chunk in range(unit * schedule.chunks, (unit + 1) * schedule.chunks):
            sends += [(chunk, rank) for rank in ranks]
    return len(sends) > len(set(sends))


@pytest.mark.parametrize(
    "machine, collective", [("ring:5", "allgather"), ("hypercube:8", "allreduce"), ("ring:5", "broadcast")]
)
def test_found_schedules_come_back(machine, collective, tmp_path):
    for point in synth.frontier(machine, collective, max_steps=6).points:
        round_trip(point.schedule, tmp_path)


def test_some_of_the_library_and_random_programs_come_back(tmp_path):
    for schedule in library_schedules(["hypercube:8", "torus:3x3"]):
        round_trip(schedule, tmp_path)
    for schedule in random_schedules(range(12)):
        round_trip(schedule, tmp_path)


@pytest.mark.slow
def test_two_hundred_schedules_come_back(tmp_path):
    count = 0
    for source in (library_schedules(), random_schedules(range(400))):
        for schedule in source:
            round_trip(schedule, tmp_path)
            count += 1
    assert count >= 200


def test_orbits_are_loops(tmp_path):
    ring = api.library("allgather")
    schedule = next(one for one in ring if one.name == "ring").schedule("ring:16")
    text = round_trip(schedule, tmp_path)
    assert len(text.splitlines()) < 16 + 40 + 12 * schedule.step_count
    assert text.count("(0, 0, 1)") == 1
    assert "(0, 1, 2)" in text
    assert "(2, 2, 3)" not in text  # an image of the first send


def test_no_text_of_strangers(tmp_path):
    schedule = next(library_schedules())
    evil = 'ring"""\nimport os\n"""'
    network = replace(schedule.network, name=evil)
    assert "os" not in python_source(replace(schedule, network=network)).replace("synth compile", "")
    with pytest.raises(UsageError, match="names its collective"):
        python_source(replace(schedule, collective=replace(schedule.collective, name=evil)))


def test_lift_and_export_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    schedule = next(one for one in api.library("allreduce") if one.name == "ring").schedule("ring:4")
    api.export_program(schedule, "msccl-xml").write("theirs.xml")
    for command in (
        "lift theirs.xml --topo ring:4 -o s.json",
        "export s.json --to python -o alg.py",
        "compile alg.py --topo ring:4 --chunks 1 --no-bounds -o again.json",
    ):
        with pytest.raises(SystemExit) as done:
            root(command.split())
        assert done.value.code == 0, capsys.readouterr().err
    assert rows(api.import_schedule("again.json").schedule) == rows(api.import_schedule("s.json").schedule)
    with pytest.raises(SystemExit) as refused:
        root(["export", "s.json", "--to", "python", "--size", "1MB"])
    assert refused.value.code == 2


def test_all_roots_are_named():
    found = api.frontier("ring:4", "multi-scatter", roots=(0, 2), max_steps=2)
    text = api.python_source(found.points[0].schedule)
    assert "Compile it with `synth compile` and --root 0,2.\n" in text
