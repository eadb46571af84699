"""Small things that the command line says: sizes, spellings, one step, roots, and options that go together."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from synth.commands import api, root
from synth.commands.framework.types import Sizes
from synth.errors import InfeasibleError, unknown
from synth.model.rational import counted


def said(words: str):
    return CliRunner().invoke(root, words.split())


def test_sizes_step_as_nccl_tests_does_and_the_help_says_so():
    sizes = Sizes()
    assert sizes.convert("1KiB:8KiB:x8", None, None) == (1024, 8192)
    assert sizes.convert("1KiB:9KiB:x8", None, None) == (1024, 8192)  # for (size = b; size <= e; size *= f)
    for command in ("tune", "bench"):
        assert "uptoHIGH,asnccl-testscounts" in "".join(said(f"{command} -h").output.split())


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("dgx", ["dgx-1", "dgx1", "dgx2", "dgx-2"], 2),
        ("all-gathr", ["all-gather", "allgather", "all_gather"], 1),
        ("zzz", ["dgx1"], 0),
    ],
)
def test_each_name_is_suggested_in_one_spelling(name, known, near):
    line = unknown("thing", name, known, "things")
    assert (line.count(" or ") + 1 if "did you mean" in line else 0) == near


def test_one_step_is_one_step():
    with pytest.raises(InfeasibleError, match="at most 1 was allowed") as raised:
        api.frontier("ring:4", "allgather", max_steps=1)
    doc = api.infeasible_document("ring:4", "allgather", raised.value, max_steps=1)
    assert "no schedule of 1 step or fewer" in api.verify(doc or {})[0]


@pytest.mark.parametrize("command", ["pareto --max-steps 2", "bound --max-steps 2"])
def test_the_roots_that_nobody_gave_are_said(command):
    assert "multi-broadcast from 0, 1 on ring:4" in said(f"{command} --topo ring:4 --coll multi-broadcast").output
    assert "therootsofamulti-rootcollective,bydefault0,1" in "".join(said(f"{command.split()[0]} -h").output.split())


def test_what_is_counted_agrees_with_its_number():
    for what, messages in (
        ("rank", "0 ranks, 1 rank, 2 ranks"), ("class", "1 class, 2 classes"), ("latency", "3 latencies"),
        ("switch", "2 switches"), ("way", "2 ways"),
    ):  # fmt: skip
        for message in messages.split(", "):
            assert counted(int(message[0]), what) == message


def test_complete_up_to_one_step():
    assert "complete up to 1 step:" in said("pareto --topo fully-connected:3 --coll scan --max-steps 1").stdout


COMMANDS = ["pareto --max-steps 2", "bound --max-steps 2", "explain", "pareto --engine flow", "bound --engine flow"]


@pytest.mark.parametrize("command", [*COMMANDS, "solve --chunks 1 --steps 2 --rounds 2"])
def test_a_root_on_part_of_a_machine_is_named_as_the_machine_does(command):
    shown = said(f"{command} --topo dgx1 --ranks 0-3,5-7 --coll broadcast --root 5").stdout.splitlines()[0]
    assert shown.startswith("broadcast from 5 (the machine's 6) on dgx1-v100 --ranks 0,1,2,3,5,6,7: 7 ranks")
    shown = said(f"{command} --topo dgx1 --ranks 0-3,5-7 --coll broadcast --root 2").stdout.splitlines()[0]
    assert shown.startswith("broadcast from 2 on dgx1-v100")


def test_the_file_is_written_where_nobody_reads_the_table(tmp_path):
    words = f"bound --topo dgx1 --coll allgather -o {tmp_path}/a.json".split()
    words = [sys.executable, "-c", "from synth.commands import main; main()", *words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.wait() == 1 and process.stderr.read() == ""
    process.stderr.close()
    assert len(api.verify(tmp_path / "a.json")) == 5


def test_where_nothing_is_to_be_done_it_is_said(tmp_path):
    (tmp_path / "done.yaml").write_text("pre: [[0, [0, 1]]]\npost: [[0, 1]]\n")
    shown = said(f"pareto --topo ring:4 --coll {tmp_path}/done.yaml").stdout
    assert "complete: nothing is to be done, every rank has what it must have" in shown and "is better" not in shown


@pytest.mark.parametrize("group", ["", "topo", "catalog"])
def test_a_group_without_a_command_prints_its_help(group):
    bare, asked = said(group), said(f"{group} -h")
    assert bare.exit_code == 2 and bare.stdout == "" and bare.stderr == asked.stdout
    assert bare.stderr.startswith("Usage: ") and bare.stderr.count("\n") > 10


@pytest.fixture(scope="module")
def frontier(tmp_path_factory) -> str:
    """A file with two points, of 1 and 2 steps."""
    file = tmp_path_factory.mktemp("points") / "f.json"
    assert said(f"pareto --topo fully-connected:4 --coll broadcast --max-steps 2 -o {file}").exit_code == 0
    assert [point["steps"] for point in json.loads(file.read_text())["points"]] == [1, 2]
    return str(file)


@pytest.mark.parametrize("command", ["lint", "show", "run --size 96KB", "export --assume-root 0", "bench --sizes 96KB"])
def test_a_point_may_be_named_by_its_steps(frontier, command):
    by_number, by_steps = (said(f"{command} {frontier} {point}") for point in ("--point 2", "--step 2"))
    assert by_number.exit_code == by_steps.exit_code == 0, by_steps.stderr
    assert by_number.stdout == by_steps.stdout != said(f"{command} {frontier} --step 1").stdout
    found = said(f"{command} {frontier} --step 7")
    assert found.exit_code == 2 and "no point has 7 steps; the points have 1, 2" in found.stderr
    found = said(f"{command} {frontier} --step 2 --point 2")
    assert found.exit_code == 2 and "--point and --step exclude each other" in found.stderr


def test_sizes_are_message_sizes_in_every_command_and_units_are_of_bandwidth():
    context = click.Context(root)
    for name, command in [(name, root.get_command(context, name)) for name in root.list_commands(context)]:
        for option in command.params:
            if "--sizes" in option.opts:
                assert option.type.name == "sizes", name
            assert "unit of data" not in (getattr(option, "help", "") or ""), name
    assert said("bound --topo ring:3 --coll allgather --size 1KB").stdout.startswith("allgather on ring:3")
    assert said("solve --topo ring:3 --coll allgatherv --counts 1,0,1 --chunks 1 --steps 2 --rounds 2").exit_code == 0


WRITING = [
    "bound --topo ring:3 --coll allgather -o a.json",
    "solve --topo ring:3 --coll allgather --chunks 1 --steps 1 --rounds 1 -o a.json",
    "show {frontier} --step 1 -o a.txt",
    "show {frontier} --step 1 --svg a.svg",
    "lint {frontier} --step 1 -o a.json",
    "run {frontier} --step 1 --size 96KB --trace a.json",
    "export {frontier} --step 1 --assume-root 0 -o a.xml",
    "topo draw ring:4 -o a.svg",
    "topo show ring:4 -o a.json",
    "report {frontier} -o a.html",
    "list collectives -o a.json",
]


@pytest.mark.parametrize("command", WRITING)
def test_a_command_says_which_file_it_wrote(command, frontier, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = command.format(frontier=frontier)
    loud, quiet = said(words), said(f"{words} --quiet")
    (name,) = [file.name for file in tmp_path.iterdir()]
    assert loud.exit_code == quiet.exit_code == 0, loud.stderr
    assert [line for line in loud.stderr.splitlines() if line.startswith(f"synth: wrote {name}")]
    assert "wrote" not in quiet.stderr and quiet.stdout == loud.stdout
    if " -o " in words:
        assert "wrote" not in said(words.replace(name, "-")).stderr


@pytest.mark.parametrize("command", ["run --size", "bench --sizes"])
def test_a_size_that_does_not_divide_is_rounded_and_padded_alike(command, frontier):
    name, option = command.split()
    found = said(f"{name} {frontier} {option} 1000003")
    assert found.exit_code == 0, found.stderr
    (line,) = found.stderr.splitlines()
    assert "sizes are rounded to whole float32 elements: 1000003 to 1000000 bytes" in line
    assert said(f"{name} {frontier} {option} 1000000").stdout == found.stdout
    assert said(f"{name} {frontier} {option} 1").stdout == said(f"{name} {frontier} {option} 4").stdout
