"""Names that the shell completes, by click's own classes."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from synth.cli import root


def completed(words: str, shell: type = BashComplete) -> list[str]:
    """Return the values offered for the last of `words`."""
    *args, incomplete = words.split(" ")
    return [item.value for item in shell(root, {}, "synth", "_SYNTH_COMPLETE").get_completions(args, incomplete)]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("par", ["pareto"]),
        ("catalog ex", ["export"]),
        ("pareto --topo dgx-a", ["dgx-a100"]),
        ("pareto --topo ring:4 --coll ALLT", ["alltoall", "alltonext", "alltoallv"]),
        ("build dgx-h1", ["dgx-h100"]),
        ("build dgx1 --coll allreduce,allg", ["allreduce,allgather", "allreduce,allgatherv"]),
        ("bench --baseline rec", ["recursive-doubling", "recursive-doubling-rotated", "recursive-halving"]),
        ("run --baseline bi", ["binomial"]),
        ("export f.json --to mscc", ["msccl-xml", "mscclpp", "msccl-dir", "mscclpp-dir"]),
        ("export --runtime rc", ["rccl"]),
        ("solve --solver cad", ["cadical"]),
        ("solve --encoding quo", ["quotient"]),
        ("run f.json --executor ref", ["reference"]),
        ("pareto --sweep bl", ["blind"]),
        ("pareto --max-s", ["--max-steps"]),
    ],
)
def test_names_are_completed(words, offered):
    assert completed(words) == offered


@pytest.mark.parametrize("words", ["verify f", "topo show machine.j", "pareto --coll halo.y", "build topo.t"])
def test_files_are_left_to_the_shell(words):
    *args, incomplete = words.split(" ")
    (item,) = BashComplete(root, {}, "synth", "_SYNTH_COMPLETE").get_completions(args, incomplete)
    assert item.type == "file"


@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
def test_each_shell_gets_a_script_and_the_same_names(shell):
    source = shell(root, {}, "synth", "_SYNTH_COMPLETE").source()
    assert "_SYNTH_COMPLETE" in source and shell.name in source
    assert completed("topo show ring", shell) == ["ring"]


def test_every_option_that_takes_a_listed_name_completes_it():
    named = {"--topo", "--coll", "--baseline", "--to", "--executor", "--runtime", "--encoding", "--solver"}

    def walk(group: click.Group) -> None:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                walk(command)
                continue
            assert command is not None
            for option in command.params:
                if named & set(option.opts) and name not in ("ls", "report"):  # names in a catalog
                    assert option._custom_shell_complete is not None, (name, option.opts)

    walk(root)
