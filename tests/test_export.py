"""`synth export`: which point serves which sizes, which machine it is for, what lies in a folder and beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import programs
import pytest
import strict_msccl
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.commands import api
from synth.errors import FormatError, SynthError, UsageError
from synth.export import exported_files, rank_map
from synth.export.msccl_xml.read import read
from synth.export.request import ExportRequest, Target
from synth.model.collective import collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.schedule import Schedule, Send, Step
from synth.program import text
from synth.topologies import rank_placement, topology
from tests.command_line import synth

BOUND = LowerBound(Fraction(1), {"kind": "none"})


def ring_schedule(n, topo=None):
    """allgather around a ring in n - 1 steps, one chunk each way of two."""
    network = topology(topo or f"ring:{n}").network()
    steps = []
    for k in range(n - 1):
        sends = [Send(2 * ((r - k) % n), r, (r + 1) % n) for r in range(n)] + [
            Send(2 * ((r + k) % n) + 1, r, (r - 1) % n) for r in range(n)
        ]
        steps.append(Step(1, tuple(sorted(sends))))
    return Schedule(network, collective("allgather", n), 2, tuple(steps))


def slow_schedule():
    """allgather on a ring of 4 in 2 steps: whole parts to both neighbours, then one of them onward."""
    network = topology("ring:4").network()
    first = [Send(r, r, (r + d) % 4) for r in range(4) for d in (1, 3)]
    second = [Send(r, (r + 1) % 4, (r + 2) % 4) for r in range(4)]
    return Schedule(
        network, collective("allgather", 4), 1, (Step(1, tuple(sorted(first))), Step(1, tuple(sorted(second))))
    )


def frontier():
    """2 steps at R/C 2 with one chunk, 3 steps at 3/2 with two: the second is better for large sizes."""
    two, three = slow_schedule(), ring_schedule(4)
    points = tuple(Point.of(s, BOUND, "", True, 0.0) for s in (two, three))
    return Frontier(two.network, two.collective, points)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "frontier.json"
    path.write_text(json.dumps(frontier().to_json()))
    return path


def test_msccl_gets_a_file_for_each_kind_of_call():
    made = api.export_program(frontier(), runtime="msccl", point=2)
    assert [name for name, _ in made.files] == ["", "-in-place"]
    for name, content in made.files:
        strict_msccl.load(content, "msccl")
        assert read(content, "f.xml").in_place == (name.removeprefix("-").partition("-")[0] or "out")


def test_scratch_of_msccl_gets_a_largest_size():
    made = exported_files.export_point(
        frontier().points[0].schedule,
        Target(ExportRequest(runtime="msccl", in_place="out")),
    )
    assert 'maxBytes="4611686018427387904"' in made.files[0][1]
    gpus = tuple(gpu._replace(scratch=1) for gpu in programs.ring_allgather(4).gpus)
    made = api.export_program(replace(programs.ring_allgather(4), gpus=gpus, in_place="out"), runtime="msccl")
    assert f'maxBytes="{(1 << 30) + 1}"' in made.files[0][1]


def test_what_would_wait_for_ever_is_bounded_or_refused():
    program = programs.direct_allgather(3, 3)  # all send three chunks before they receive: two FIFO operations must do
    made = api.export_program(program)
    assert f'maxBytes="{9 << 20}"' in made.files[0][1]
    assert 'maxBytes="100"' in api.export_program(program, max_size=100).files[0][1]
    assert f'maxBytes="{9 << 20}"' in api.export_program(program, max_size=1 << 30).files[0][1]
    assert 'maxBytes="0"' in api.export_program(replace(program, protocol="LL")).files[0][1]
    with pytest.raises(SynthError, match=r"all-send-first is wrong: .*waits for ever"):
        api.export_program(programs.all_send_first(3, 3), runtime="msccl")


def test_wrong_programs_are_not_written():
    good = programs.ring_allgather(4)
    wrong = replace(
        good,
        gpus=tuple(
            g._replace(blocks=tuple(b._replace(ops=b.ops[:1] + b.ops[2:]) for b in g.blocks)) for g in good.gpus
        ),
    )
    with pytest.raises(SynthError, match="is wrong: "):
        api.export_program(wrong)


def test_links_kinds_and_boxes_come_from_the_machine():
    ring = ring_schedule(4)
    with pytest.raises(SynthError, match="is unknown"):
        api.export_program(ring, protocol="LL128")
    assert api.export_program(ring, protocol="LL128", assume_nvlink=True)
    order = [0, 1, 3, 2, 6, 7, 5, 4]  # a ring of NVLink on that machine
    on_links = api.export_program(ring_schedule(8), protocol="LL128", topology="dgx1", rank_map=order)
    strict_msccl.load(on_links.files[0][1], "msccl-executor")
    with pytest.raises(SynthError, match=r"does not have: .*--rank-map"):
        api.export_program(ring_schedule(8), topology="dgx1", rank_map=range(8))
    named = replace(rank_map.relabelled(ring_schedule(8), order), network=topology("dgx1").network())
    for more in (
        {},
        {"rank_map": [7, 6, 5, 4, 3, 2, 1, 0]},
        {"rank_map": [1, 2, 3, 4, 5, 6, 7, 0]},
    ):  # the machine that it names
        strict_msccl.load(api.export_program(named, protocol="LL128", **more).files[0][1], "msccl-executor")
    with pytest.raises(SynthError, match="is unknown"):  # the name alone does not do
        api.export_program(
            replace(named, network=replace(topology("fully-connected:8").network(), name="dgx1-v100")), protocol="LL128"
        )
    with pytest.raises(UsageError, match="8 ranks, the schedule is for 4"):
        api.export_program(ring, topology="dgx1")
    with pytest.raises(UsageError, match="each of"):
        api.export_program(ring, rank_map=[0, 0, 1, 2])


def test_a_machine_numbered_otherwise_is_matched():
    turned = replace(topology("ring:4"), links=tuple(
        replace(link, src=[0, 2, 1, 3][link.src], dst=[0, 2, 1, 3][link.dst]) for link in topology("ring:4").links
    ), name="other", generators=())  # fmt: skip
    made = api.export_program(ring_schedule(4), topology=turned)
    assert "matched" in made.remarks[0]
    program = read(made.files[0][1], "f.xml")
    pairs = {(link.src, link.dst) for link in turned.links}
    assert {(a, b) for a, b, _ in program.senders} == pairs
    wide = {(0, 1), (2, 3)}  # the same links, but others are twice as fast
    links = [(link, 2 if tuple(sorted((link.src, link.dst))) in wide else 1) for link in topology("ring:4").links]
    links = tuple(replace(link, bandwidth=link.bandwidth * times) for link, times in links)
    machine = replace(topology("ring:4"), generators=(), links=links)
    placed, matched = rank_placement.place(
        rank_map.network(machine.network(), [1, 2, 3, 0]), machine.network(), range(4)
    )
    assert matched
    assert {tuple(sorted((placed[a], placed[b]))) for a, b in ((1, 2), (3, 0))} == wide
    assert rank_placement.place(machine.network(), machine.network(), range(4)) == ((0, 1, 2, 3), False)
    labelled = api.export_program(replace(frontier(), labels=(3, 2, 1, 0)), point=2)
    assert read(labelled.files[0][1], "f.xml").collective == collective("allgather", 4)
    assert any("none was checked" in line for line in labelled.remarks)
    part = api.export_program(replace(frontier(), labels=(0, 1, 4, 7)), point=1)
    assert any("devices 0,1,4,7, which must be ranks 0 to 3" in line for line in part.remarks)


def test_the_command_line_writes_one_file(file, tmp_path):
    out = tmp_path / "a.xml"
    said = synth("export", file, "--point", 2, "-o", out).stderr
    assert "point 2 (S=3, R=3, C=2)" in said
    assert "multiple of 2 (8 in the larger buffer)" in said
    assert synth("export", file, "--point", 2).stdout == out.read_text()
    first = out.read_bytes()
    synth("export", file, "--point", 2, "-o", out)
    assert out.read_bytes() == first
    synth("export", out, "--runtime", "msccl", "-o", tmp_path / "m.xml")
    assert {path.name for path in tmp_path.glob("m*")} == {"m.xml", "m-in-place.xml"}
    again = synth("export", tmp_path / "m.xml", "--runtime", "msccl-executor").stdout
    assert 'inplace="0" outofplace="1"' in again


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("", 2, "has 2 points; choose one with --point K"),
        ("--point 3 -o x.xml", 2, "points 1 to 2"),
        ("--point 1 --to xml", 2, "unknown exporter 'xml'"),
        ("--point 1 --to mscclpp --protocol LL --reads", 2, "use the Simple protocol for reads"),
        ("--point 1 --to nccl-tuner-csv", 2, "nccl-tuner-csv is made of a tuner's plan: `synth tune -o plan.json`"),
        ("--point 1 --runtime nccl", 2, "it is for msccl-executor, msccl, rccl"),
        ("--point 1 --runtime msccl", 2, "give -o FILE"),
        ("--point 1 -o no/such/x.xml", 1, "the folder no/such does not exist"),
        ("--point 1 --topo dgx9", 2, "dgx9"),
        ("--point 1 --protocol LL128", 1, "is unknown"),
        ("--point 1 --max-size 1QB", 2, "not a size"),
        ("--all -o d", 2, "o such option"),
        ("--point 0", 2, "not a whole number"),
        ("--point 1 --rank-map 0,1", 2, "each of 0..3 once"),
        ("--point 1 --min-size 2 --max-size 1", 1, "serves no size"),
    ],
)
def test_what_makes_no_sense_gets_one_line(file, tmp_path, monkeypatch, words, code, says):
    monkeypatch.chdir(tmp_path)
    outcome = synth("export", file, *words.split(), code=code)
    assert says in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"frontier.json"}


def test_rooted_collectives_want_the_root_said(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text(text.dump(programs.broadcast_chain(3)))
    assert "--assume-root 0" in synth("export", path, "--protocol", "ll", code=1).stderr
    outcome = synth("export", path, "--protocol", "ll", "--assume-root", 0)
    assert "with a root other than 0, with wrong data" in outcome.stderr
    strict_msccl.load(outcome.stdout, "msccl-executor")


def test_programs_are_loaded_from_any_file(tmp_path, file):
    program = programs.ring_allgather(4, 2)
    made = {
        "p.json": json.dumps(program.to_json()),
        "p.txt": text.dump(program),
        "p.xml": api.export_program(program).files[0][1],
        "s.json": json.dumps(ring_schedule(4).to_json()),
    }
    for name, content in made.items():
        (tmp_path / name).write_text(content)
    for name in ("p.json", "p.txt", "p.xml"):
        assert replace(api.load_program(tmp_path / name), max_bytes=None) == program
    assert api.load_program(tmp_path / "s.json").collective == program.collective
    assert api.load_program(file, point=1).chunks == 1
    assert api.load_program(file, point=2, instances=2).chunks == 4
    with pytest.raises(UsageError, match="2 points"):
        api.load_program(file)
    plan = api.export_program(ring_schedule(4), "mscclpp").files[0][1]
    (tmp_path / "plan.json").write_text(plan)
    assert api.load_program(tmp_path / "plan.json").one_sided


@pytest.mark.parametrize(
    "content",
    ["", "hello", "[]", "{}", '{"schema": "synth.program/1"}', '{"schema": 3}', "{", "program x", "<x/>", "\x00"],
)
def test_files_that_are_none_of_these_are_refused(tmp_path, content):
    path = tmp_path / "f"
    path.write_text(content)
    with pytest.raises(FormatError) as caught:
        api.load_program(path)
    assert str(path) in str(caught.value)
    with pytest.raises(FormatError):
        api.load_program(tmp_path / "missing")


@st.composite
def direct_schedules(draw):
    """Any standard collective over links between all: every part goes straight, or over a third rank, to where it is
    wanted."""
    n = draw(st.integers(2, 4))
    name = draw(st.sampled_from(["allgather", "reduce-scatter", "allreduce", "alltoall", "broadcast", "reduce"]))
    task, chunks = (
        collective(name, n, [draw(st.integers(0, n - 1))] if name in ("broadcast", "reduce") else []),
        draw(st.integers(1, 3)),
    )
    steps: list[list[Send]] = [[], [], []]
    for chunk in range(task.units * chunks):
        pre, post = task.pre[chunk // chunks], task.post[chunk // chunks]
        meet = draw(st.sampled_from(sorted(post))) if task.combining else min(pre)
        if task.combining:
            steps[0] += [Send(chunk, r, meet, "reduce") for r in sorted(pre) if r != meet]
        wanting = [r for r in sorted(post) if r != meet and (task.combining or r not in pre)]
        half = draw(st.integers(0, len(wanting)))
        for k, r in enumerate(wanting):
            relay = wanting[0] if k and half > k else meet
            steps[2 if relay != meet else 1].append(Send(chunk, relay, r))
    made = tuple(Step(len(sends), tuple(sorted(sends))) for sends in steps if sends)
    return Schedule(topology(f"fully-connected:{n}").network(), task, chunks, made)


@given(
    direct_schedules(),
    st.sampled_from(["msccl-executor", "rccl", "msccl"]),
    st.sampled_from(["Simple", "LL"]),
    st.integers(1, 3),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_schedules_lowered_with_any_options_are_written_and_come_back(
    schedule, runtime, protocol, instances, aggregate
):
    task = schedule.collective
    program = api.lower(schedule, runtime=runtime, protocol=protocol, instances=instances, aggregate=aggregate)
    made = api.export_program(
        program, runtime=runtime, assume_root=task.roots[0] if task.roots else None, assume_one_node=True
    )
    for _, content in made.files:
        strict_msccl.load(content, runtime)
        back = read(content, "f.xml", runtime=runtime)
        assert replace(back, max_bytes=None, in_place=program.in_place) == replace(program, name=back.name)


def test_the_same_input_gives_the_same_bytes_in_every_process(file):
    code = (
        f"from synth.commands import api; made = api.export_program({str(file)!r}, point=2, instances=2); "
        f"print(made.files, made.remarks)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] != b""
