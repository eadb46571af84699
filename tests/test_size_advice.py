"""`synth pareto --size`: what speaks against the point that the model names, and the point to take in that case."""

from __future__ import annotations

from fractions import Fraction as F

import pytest
from click.testing import CliRunner

from synth import api
from synth.cli import root
from synth.model.frontier import Frontier
from synth.view import tables
from synth.view.frontier_text import choice
from synth.view.scale_table import choice as large_choice
from synth.view.size_advice import CostModel, PointCost, advice

MB = 1 << 20
ALLREDUCE = CostModel(F(7, 10), F(25), F(1))
POINTS = [PointCost(2, 2, 43e-6), PointCost(4, 12, 17e-6), PointCost(5, 144, 15e-6)]


def test_a_size_that_does_not_divide_is_said_with_the_point_that_it_does():
    first, second = advice(MB, ALLREDUCE, POINTS, POINTS[2])
    assert first == (
        "1 MB does not divide into 144 chunks of whole float32 elements; the executors here pad it, for MSCCL and "
        "MSCCL++ pad it to 1048896"
        " bytes, or take the 2-step point (C=2; 43 µs), whose chunks do"
    )
    assert 1048896 % (144 * 4) == 0 and 0 < 1048896 - MB < 144 * 4
    assert second.startswith("a chunk is 7.11 KB, 0.291 µs on a link, less than a latency")
    assert second.endswith("measures it; with longer chunks there is the 4-step point (C=12; 17 µs)")


def test_elements_are_whole_not_bytes_alone():
    assert not ALLREDUCE.divides(2 * 144, 144) and ALLREDUCE.divides(4 * 144, 144)
    assert CostModel(F(1), F(25), F(1, 8)).divides(8 * 6 * 4, 6) and not CostModel(F(1), F(25), F(1, 8)).divides(
        4 * 6, 6
    )


def test_nothing_is_said_where_nothing_speaks_against_it():
    assert advice(144 * 4 * MB, ALLREDUCE, POINTS, POINTS[2]) == []
    assert advice(1 << 30, ALLREDUCE, POINTS, POINTS[0]) == []


def test_where_no_point_does_better_none_is_named():
    (only,) = advice(
        MB, CostModel(F(0), F(25), F(1)), POINTS[2:], POINTS[2]
    )  # no latency known: nothing to compare a chunk with
    assert only.endswith("as no point's chunks divide it")
    (short,) = advice(1024, ALLREDUCE, POINTS[:1], POINTS[0])
    assert short.endswith("times of programs, `synth bench` measures it")


def test_the_command_says_it_and_still_names_the_models_point():
    done = CliRunner().invoke(root, ["pareto", "--topo", "dgx1", "--coll", "allgather", "--size", "1MB"])
    assert "at 1 MB take the 3-step point in LL128: C=6" in done.stdout
    assert (
        "1 MB does not divide into 48 chunks of whole float32 elements (C=6 for each part of the data); the"
        in done.stdout
    )
    assert "for MSCCL and MSCCL++ pad it to 1048704" in done.stdout
    assert "or take the 2-step point (C=2; 22.7 µs), whose chunks do" in done.stdout
    assert (
        "does not divide"
        not in CliRunner().invoke(root, ["pareto", "--topo", "dgx1", "--coll", "allgather", "--size", "6MB"]).stdout
    )


@pytest.mark.parametrize("engine", ["exact", "flow"])
def test_both_engines_say_it(engine):
    found = api.frontier("ring:6", "allgather", engine=engine)
    advice = choice(found, MB) if isinstance(found, Frontier) else large_choice(found, MB)
    assert any("does not divide into" in line for line in advice.sentences)


def test_the_document_says_which_points_divide_the_size():
    found = api.frontier("dgx1", "allgather", engine="exact")
    assert isinstance(found, Frontier)
    rows = tables.choice_document(found, MB)["points"]
    assert [(row["chunk_bytes"], row["divides"]) for row in rows] == [("65536", True), ("65536/3", False)]
