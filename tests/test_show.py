"""`synth show`: programs as text and as pictures."""

import json
from xml.etree import ElementTree

import pytest
from programs import ring_allgather

from synth.commands import api
from synth.errors import SynthError
from synth.model.schedule import Schedule
from synth.program.onesided.lower import onesided
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.program.text import dump, parse
from synth.view.drawings import space_time_diagram
from tests.command_line import synth

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def schedule_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("show") / "s.json"
    path.write_text(json.dumps(api.solve("ring:4", "allgather", 2, 2, 3, jobs=1).schedule.to_json()))
    return path


def test_what_it_writes_can_be_shown_again(schedule_file, tmp_path):
    shown = synth("show", schedule_file, "--instances 2").stdout
    assert parse(shown) == api.load_program(schedule_file, instances=2)
    for form, name in (("text", "p.txt"), ("json", "p.json")):
        synth("show", schedule_file, "--format", form, "-o", tmp_path / name)
        assert synth("show", tmp_path / name).stdout == dump(api.load_program(schedule_file))


def test_the_picture_has_every_instruction_and_message(schedule_file, tmp_path):
    assert synth("show", schedule_file, "--svg", tmp_path / "p.svg").stdout == ""
    drawing, program = ElementTree.parse(tmp_path / "p.svg").getroot(), api.load_program(schedule_file)
    assert len(drawing.findall(f"{SVG}g")) == program.ops
    receives = sum(op.code == "r" for gpu in program.gpus for block in gpu.blocks for op in block.ops)
    assert len(drawing.findall(f"{SVG}line")) == receives
    printed = synth("show", schedule_file, "--svg -")
    assert (printed.stdout, printed.stderr) == ((tmp_path / "p.svg").read_text(), "")


def test_columns_are_the_steps_of_the_longest_chain():
    drawn = space_time_diagram.timeline(ring_allgather(5))
    assert not drawn.stuck
    assert [drawn.columns[0, 0, i] for i in range(5)] == [0, 1, 2, 3, 4]
    assert all(drawn.columns[a] < drawn.columns[b] for a, b in drawn.arrows)
    assert len(drawn.arrows) == 5 * 4


def test_signals_of_one_sided_programs_are_arrows(schedule_file):
    program = onesided(Schedule.from_json(json.loads(schedule_file.read_text())))
    drawn = space_time_diagram.timeline(program)
    assert not drawn.stuck
    waits = sum(len(op.ports) for gpu in program.gpus for block in gpu.blocks for op in block.ops if op.code == "wait")
    assert len(drawn.arrows) == waits > 0


def test_barriers_are_met_as_often_as_they_stand_there():
    ops = (Op("barrier", group=(0, 1)), Op("barrier", group=(0, 1)))
    late = (Op("cpy", (Span("i", 0),), (Span("o", 0),)), *ops)
    program = Program("p", None, 1, (Gpu(0, 1, 1, 0, (Block(None, None, 0, ops), Block(None, None, 0, late))),))
    drawn = space_time_diagram.timeline(program)
    assert [drawn.columns[0, 0, i] for i in range(2)] == [1, 2] == [drawn.columns[0, 1, i] for i in (1, 2)]


def test_what_never_starts_is_drawn_as_such():
    program = ring_allgather(3)
    cut = program.gpus[0]._replace(blocks=())
    drawn = space_time_diagram.timeline(Program("p", program.collective, 1, (cut, *program.gpus[1:])))
    assert (1, 0, 2) in drawn.stuck
    assert "never starts" in space_time_diagram.program_svg(
        Program("p", program.collective, 1, (cut, *program.gpus[1:]))
    )


def test_a_picture_that_no_viewer_opens_is_refused(monkeypatch):
    monkeypatch.setattr(space_time_diagram, "MOST", 5)
    with pytest.raises(SynthError, match="a picture holds 5"):
        space_time_diagram.program_svg(ring_allgather(3))
