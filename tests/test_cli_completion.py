"""Names that the shell completes, by click's own classes."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from synth.commands import root


def completed(words: str) -> list[str]:
    """Return the values offered for the last of `words`."""
    *args, incomplete = words.split(" ")
    return [item.value for item in BashComplete(root, {}, "synth", "_SYNTH_COMPLETE").get_completions(args, incomplete)]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("par", ["pareto"]),
        ("catalog ex", ["export"]),
        ("pareto --topo dgx-a", ["dgx-a100"]),
        ("pareto --topo ring:4 --coll ALLT", ["alltoall", "alltonext", "alltoallv"]),
        ("build dgx-h1", ["dgx-h100"]),
        ("build dgx1 --coll allreduce,allg", ["allreduce,allgather", "allreduce,allgatherv"]),
        ("export f.json --to mscc", ["msccl-xml", "mscclpp"]),
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
