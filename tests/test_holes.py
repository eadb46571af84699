"""Holes of programs, `a.solve`: the machine of a group, one answer for equal groups, errors, and replay."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import synth
from synth.algorithms import direct, ring, two_shot
from synth.api.algorithms import hole_synthesizer
from synth.checker.schedule import replay
from synth.cli.root import root
from synth.errors import InfeasibleError, SynthError, UndecidedError, UsageError, VerificationError
from synth.language import CompileOptions, algorithm
from synth.language.holes import machine_of_group
from synth.model.schedule import Schedule

EXAMPLE = Path(__file__).parent.parent / "examples" / "language" / "rails_then_found.py"


@algorithm("allgather")
def boxes_found(a, steps=1, chunks=None, same_in="boxes"):
    held = a.inputs()
    for rail in a.rails:
        held |= ring.allgather(rail, held)
    for box in a.boxes:
        a.solve("allgather", box, held, steps=steps, chunks=chunks, same_in=same_in)


def compiled(program, topology, synthesizer, **parameters):
    options = CompileOptions(parameters=parameters, synthesizer=synthesizer)
    schedule = program.compile(topology, None, options).schedule
    assert isinstance(schedule, Schedule)
    return schedule


def directly(query):
    return direct.allgather.schedule(query.machine, chunks=1)


def test_one_answer_fills_all_boxes():
    asked = []

    def synthesizer(query):
        asked.append(query)
        return directly(query)

    schedule = compiled(boxes_found, "rail:2x3", synthesizer)
    (query,) = asked
    assert (query.machine.ranks, query.steps, query.chunks, query.collective.name) == (3, 1, None, "allgather")
    assert {(link.src, link.dst) for link in query.machine.links} == {(a, b) for a in range(3) for b in range(3)} - {
        (0, 0), (1, 1), (2, 2)
    }  # fmt: skip
    assert replay.schedule(schedule).steps == 2
    assert sum(len(step.sends) for step in schedule.steps) == schedule.chunks * 6 * 5


def test_exact_synthesis_fills_a_hole():
    @algorithm("allreduce")
    def composed(a):
        held = a.inputs()
        for box in a.boxes:
            held |= a.solve("reduce-scatter", box, held, steps=1)
        for rail in a.rails:
            held |= two_shot.allreduce(rail, held)
        for box in a.boxes:
            held |= a.solve("allgather", box, held, steps=1)

    links = [synth.Link(a, b, 1) for a in range(6) for b in range(6) if a != b]
    machine = synth.Topology("pairs", 6, links, nodes=(0, 0, 0, 1, 1, 1))
    synthesizer = hole_synthesizer(20)
    schedule = compiled(composed, machine, synthesizer)
    assert (replay.schedule(schedule).steps, schedule.collective.name) == (4, "allreduce")
    found = compiled(boxes_found, machine, synthesizer)
    assert (found.step_count, found.rounds_per_chunk) == (2, 3)


def test_the_machine_of_a_group_has_its_links_and_their_limits():
    links = [synth.Link(a, b, 2) for a in range(4) for b in range(4) if a != b]
    port = [i for i, link in enumerate(links) if link.src == 3]
    machine = synth.Topology("m", 4, links, [synth.Limit("port", port, 3)])
    part = machine_of_group(machine.network(), (3, 1))
    assert [(link.src, link.dst, link.bandwidth) for link in part.links] == [(0, 1, 2), (1, 0, 2)]
    assert [(limit.links, limit.bandwidth) for limit in part.limits] == [((0,), 3)]
    assert machine_of_group(machine.network(), (0, 1)) == machine_of_group(machine.network(), (1, 2))
    assert machine_of_group(machine.network(), (0, 1)) != part


def refuses(error):
    def synthesizer(query):
        raise error

    return synthesizer


def without_last_send(query):
    schedule = directly(query)
    step = schedule.steps[0]
    return replace(schedule, steps=(step._replace(sends=step.sends[:-1]),))


@pytest.mark.parametrize(
    ("synthesizer", "kind", "says"),
    [
        (None, UsageError, "a.solve of allgather on ranks 0, 1, 2: no synthesizer was given; `synth compile` has one"),
        (refuses(InfeasibleError("too few")), InfeasibleError, "a.solve of allgather on ranks 0, 1, 2: too few"),
        (refuses(UndecidedError("no time")), UndecidedError, "a.solve of allgather on ranks 0, 1, 2: no time"),
        (refuses(UsageError("no")), UsageError, "a.solve of allgather on ranks 0, 1, 2: no"),
        (lambda query: direct.alltoall.schedule(query.machine), UsageError, "answered another question"),
        (lambda query: ring.allgather.schedule(query.machine), UsageError, "answered another question"),
        (lambda query: direct.allgather.schedule("fully-connected:4"), UsageError, "answered another question"),
        (without_last_send, VerificationError, "rank"),
    ],
)
def test_what_a_synthesizer_answers_is_judged(synthesizer, kind, says):
    with pytest.raises(kind) as error:
        compiled(boxes_found, "rail:2x3", synthesizer)
    assert says in str(error.value)
    assert kind is VerificationError or "test_holes.py:" in str(error.value)


def test_groups_that_are_not_alike():
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1)]
    links = [synth.Link(a, b, 1 if a < 2 else 2) for a, b in pairs]
    machine = synth.Topology("uneven", 4, links, nodes=(0, 0, 1, 1))
    with pytest.raises(UsageError, match=r"the boxes are not alike: ranks 0, 1 and 2, 3 have other links in their"):
        compiled(boxes_found, machine, directly)
    assert compiled(boxes_found, machine, directly, same_in=None).step_count == 2
    with pytest.raises(UsageError, match="same_in='pods'; there are 'boxes' and 'rails'"):
        compiled(boxes_found, machine, directly, same_in="pods")
    with pytest.raises(UsageError, match=r"same_in='rails', but the group is none of a\.rails"):
        compiled(boxes_found, machine, directly, same_in="rails")
    with pytest.raises(UsageError, match="steps=0 is no number of steps"):
        compiled(boxes_found, machine, directly, steps=0)
    with pytest.raises(UsageError, match="chunks=True is no number of chunks"):
        compiled(boxes_found, machine, directly, chunks=True)


@algorithm("allgather")
def sketched(a, sketch=None, steps=3):
    a.solve("allgather", steps=steps, sketch=sketch)


def test_a_sketch_leaves_links_to_a_hole():
    line = synth.Sketch("line", without=((0, 3), (3, 0)))
    schedule = compiled(sketched, "ring:4", hole_synthesizer(10), sketch=line)
    pairs = {(send.src, send.dst) for step in schedule.steps for send in step.sends}
    assert (schedule.step_count, pairs) == (3, {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)})
    with pytest.raises(
        InfeasibleError, match=r"test_holes.py:\d+: .* 4 ranks of ring:4 under line needs at least 3 steps"
    ):
        compiled(sketched, "ring:4", hole_synthesizer(10), sketch=line, steps=2)


@pytest.mark.parametrize(
    ("sketch", "says"),
    [
        ("rails", "a.solve: sketch='rails' is no synth.Sketch"),
        (
            synth.Sketch(without=((0, 2),)),
            "a.solve: without[0]: 4 ranks of ring:4 has no such link from rank 0 to rank 2",
        ),
    ],
)
def test_mistakes_of_sketches_have_their_line(sketch, says):
    with pytest.raises(UsageError) as error:
        compiled(sketched, "ring:4", directly, sketch=sketch)
    assert says in str(error.value)
    assert "test_holes.py:" in str(error.value)


def test_groups_and_data_of_another_kind():
    def ranks_as_a_group(a):
        return a.solve("allgather", a.ranks)

    def data_of_one_rank(a):
        return a.solve("allgather", a, {0: a.input(0)})

    for program, says in ((ranks_as_a_group, r"a\.group\(ranks\)"), (data_of_one_rank, "no data are held on rank 1")):
        with pytest.raises(UsageError, match=says):
            compiled(algorithm("allgather")(program), "fully-connected:3", directly)


def test_unknown_is_not_infeasible(monkeypatch):
    @algorithm("allgather")
    def found(a):
        a.solve("allgather", steps=4)

    monkeypatch.setattr("synth.api.synthesis.frontier", lambda *_, **__: SimpleNamespace(points=()))
    with pytest.raises(UndecidedError, match=r"on ranks 0, 1, .*: no schedule was found in 2 s, which proves nothing"):
        compiled(found, "ring:4", hole_synthesizer(2))


def test_the_example_runs_through_the_command_line(capsys):
    with pytest.raises(SystemExit) as end:
        root.main(["compile", str(EXAMPLE), "--topo", "rail:2x3", "--no-bounds"])
    assert end.value.code == 0
    assert "right: every rank ends with what it must (replayed)" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        root.main(["compile", str(EXAMPLE), "--topo", "ring:8", "--no-bounds"])
    assert end.value.code == 3
    assert "rails_then_found.py:11: a.solve of allgather on ranks 0, 1, 2, 3" in capsys.readouterr().err


def test_errors_are_of_this_package():
    with pytest.raises(SynthError, match=r"a\.solve: .*halos"):
        algorithm("allgather")(lambda a: a.solve("halos")).schedule("ring:4")
