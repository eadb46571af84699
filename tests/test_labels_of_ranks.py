"""An allocation renumbers ranks; what is proved impossible names the machine's own."""

from dataclasses import replace

import pytest

import synth
from synth.commands import api
from synth.errors import InfeasibleError


def test_an_unreachable_rank_is_named_as_the_machine_names_it(tmp_path) -> None:
    apart = api.topology("line:6", ranks="0,1,4,5")
    with pytest.raises(InfeasibleError, match=r"unit \d must reach rank (\d) .*; rank \1 here is the machine's [45]$"):
        synth.frontier(apart, "scatter", log=tmp_path / "log")
    with pytest.raises(
        InfeasibleError, match=r"must reach rank 0 but cannot from rank 1; .*; rank 1 here is the machine's 5$"
    ):
        api.explain(api.topology("dgx1", ranks="0,5,2"), "allreduce")
    whole = api.topology("line:6", without=["2-3"])
    with pytest.raises(InfeasibleError) as caught:
        synth.frontier(whole, "scatter", log=tmp_path / "log")
    assert "here is the machine's" not in str(caught.value)


def test_a_box_without_a_nic_is_named(tmp_path) -> None:
    machine = api.topology("dgx1*3")
    links = tuple(k for k in machine.links if k.src // 8 == k.dst // 8 or min(k.src, k.dst) >= 8)
    apart = replace(machine, links=links, limits=(), generators=())
    for engine in ("exact", "flow"):
        with pytest.raises(InfeasibleError, match=r"; no link joins box 0 \(ranks 0-7\) to other boxes$") as caught:
            synth.frontier(apart, "allgather", log=tmp_path / "log" if engine == "exact" else None, engine=engine)
        assert caught.value.certificate


@pytest.mark.parametrize("engine", ["exact", "flow"])
def test_boxes_that_no_link_leaves_or_enters_are_named(engine, tmp_path) -> None:
    machine = api.topology("dgx1*3")
    links = tuple(k for k in machine.links if k.src // 8 == k.dst // 8 or k.dst // 8 == 1)
    apart = replace(machine, links=links, limits=(), generators=())
    for collective in ("allgather", "allreduce", "alltoall"):
        with pytest.raises(InfeasibleError, match=r"; no link (leaves box 1|enters box [02]) \(ranks ") as caught:
            synth.frontier(apart, collective, log=tmp_path / "log" if engine == "exact" else None, engine=engine)
        assert caught.value.certificate
    with pytest.raises(
        InfeasibleError, match=r"no link leaves box 1 \(ranks 8-15\), no link enters box 0 \(ranks 0-7\)$"
    ):
        synth.bound(apart, "gather")
    assert synth.bound(apart, "gather", roots=[8])[0][1].value > 0


def test_boxes_that_more_steps_join_are_not_named(tmp_path) -> None:
    with pytest.raises(InfeasibleError, match=r"needs at least 2 steps, at most 1 was allowed$"):
        synth.frontier("rail:2x3", "allgather", max_steps=1, log=tmp_path / "log")


def test_ranks_that_are_cut_off_inside_a_box_name_no_box(tmp_path) -> None:
    machine = api.topology("fully-connected:3*2", ranks="0-5")
    links = tuple(k for k in machine.links if k.src != 1)
    apart = replace(machine, links=links, limits=(), generators=())
    with pytest.raises(InfeasibleError) as caught:
        synth.frontier(apart, "gather", log=tmp_path / "log")
    assert " box " not in str(caught.value)
