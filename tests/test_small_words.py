"""Small things that the command line says: sizes, spellings, one step, roots, and options that go together."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from synth import api
from synth.cli import root
from synth.cli.sizes import Sizes
from synth.errors import unknown
from synth.errors import InfeasibleError, UsageError


def said(words: str):
    return CliRunner().invoke(root, words.split())


def test_sizes_step_as_nccl_tests_does_and_the_help_says_so():
    sizes = Sizes()
    assert sizes.convert("1KiB:8KiB:x8", None, None) == (1024, 8192)
    assert sizes.convert("1KiB:9KiB:x8", None, None) == (1024, 8192)  # for (size = b; size <= e; size *= f)
    for command in ("tune", "bench", "emulate"):
        assert "uptoHIGH,asnccl-testscounts" in "".join(said(f"{command} -h").output.split())


@pytest.mark.parametrize("executor", ["host"])
@pytest.mark.parametrize("clock", [None, "logical"])
def test_a_stretch_needs_the_paced_clock(executor, clock):
    made = api.baseline("ring", "ring:4", "allgather")
    with pytest.raises(UsageError, match="--clock paced"):
        api.run(made, topology="ring:4", size=4096, executor=executor, stretch=4, **({"clock": clock} if clock else {}))


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [("dgx", ["dgx-1", "dgx1", "dgx2", "dgx-2"], 2), ("all-gathr", ["all-gather", "allgather", "all_gather"], 1), ("zzz", ["dgx1"], 0)],
)
def test_each_name_is_suggested_in_one_spelling(name, known, near):
    line = unknown("thing", name, known, "things")
    assert (line.count(" or ") + 1 if "did you mean" in line else 0) == near


def test_one_step_is_one_step():
    with pytest.raises(InfeasibleError, match="at most 1 was allowed") as raised:
        api.pareto("ring:4", "allgather", max_steps=1)
    doc = api.infeasible_document("ring:4", "allgather", raised.value, max_steps=1)
    assert "no schedule of 1 step or fewer" in api.verify(doc or {})[0]


@pytest.mark.parametrize("command", ["pareto --max-steps 2", "bound --max-steps 2"])
def test_the_roots_that_nobody_gave_are_said(command):
    assert "multi-broadcast from 0, 1 on ring:4" in said(f"{command} --topo ring:4 --coll multi-broadcast").output
    assert "therootsofamulti-rootone,0,1unlessgiven" in "".join(said(f"{command.split()[0]} -h").output.split())
