"""Allreduce where directions differ: trees up to a rank and other trees down from it, against bounds and the replay of
every send."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.api.inputs import named_topology as read
from synth.checker.schedule import compressed_replay
from synth.cli import root
from synth.model.bitwise_equality import same_bits
from synth.scale.allreduce import paired_arborescences
from synth.scale.fabric.fabric import Fabric, fabric
from synth.scale.search import frontier


def machine(folder: Path, ranks: int, widths: dict[tuple[int, int], Fraction | int]) -> Path:
    file = folder / "machine.json"
    links = [{"src": a, "dst": b, "bandwidth": str(width)} for (a, b), width in widths.items()]
    file.write_text(json.dumps({"name": "machine", "ranks": ranks, "links": links}))
    return file


@st.composite
def unequal(draw) -> tuple[int, dict[tuple[int, int], Fraction]]:
    """A ring or a line, each way of its own width, and some links beside it."""
    ranks = draw(st.integers(2, 6))
    width = st.builds(Fraction, st.integers(1, 6), st.sampled_from([1, 1, 2]))
    widths = {}
    for n in range(ranks - 1):
        widths[n, n + 1], widths[n + 1, n] = draw(width), draw(width)
    for a, b in draw(st.lists(st.permutations(range(ranks)).map(lambda order: tuple(order[:2])), max_size=8)):
        widths.setdefault((a, b), draw(width))
    return ranks, widths


def best(found, kind: str) -> Fraction:
    return min((p.rounds_per_chunk for p in found.points if p.construction.startswith(kind)), default=Fraction(10**9))


def test_a_line_that_is_narrow_one_way_reaches_the_cut(tmp_path):
    """It took 4/3 rounds per chunk, for a reduce-scatter and an allgather, where one is the bound."""
    found = frontier(read(machine(tmp_path, 3, {(0, 1): 1, (1, 0): 4, (1, 2): 1, (2, 1): 4})), "allreduce")
    assert found.bound == 1
    least = best(found, "paired arborescences")
    assert 1 < least < Fraction(102, 100) < best(found, "reduce-scatter")


@settings(max_examples=40, deadline=None)
@given(unequal())
def test_every_send_is_replayed_and_no_bound_is_beaten(tmp_path_factory, drawn):
    found = frontier(read(machine(tmp_path_factory.mktemp("unequal"), *drawn)), "allreduce")
    for point in found.points:
        assert point.rounds_per_chunk >= found.bound
        if point.construction.startswith("paired arborescences"):
            checked = compressed_replay.replay(point.schedule)
            made = point.schedule
            assert checked and (made.step_count, made.rounds_per_chunk, made.chunks) == (
                point.steps,
                point.rounds_per_chunk,
                point.chunks,
            )
            if point.chunks <= 64:
                assert same_bits(made.written_out())


@settings(max_examples=40, deadline=None)
@given(unequal())
def test_pairs_keep_to_the_links_in_some_parts(tmp_path_factory, drawn):
    graph = fabric(read(machine(tmp_path_factory.mktemp("pairs"), *drawn)))
    made = paired_arborescences.arborescence_pairs(graph)
    assert made
    load: dict[tuple[int, int], int] = {}
    for pair in made:
        assert pair.weight > 0 and [n for n, to in enumerate(pair.up.parents) if to < 0] == [
            n for n, of in enumerate(pair.down.parents) if of < 0
        ]
        for n in range(graph.ranks):
            for edge in ((n, pair.up.parents[n]), (pair.down.parents[n], n)):
                if min(edge) >= 0:
                    load[edge] = load.get(edge, 0) + pair.weight
    assert any(
        all(load.get(ends, 0) <= parts * width for ends, width in _widths(graph).items())
        for parts in paired_arborescences.SETTINGS.parts
    )
    assert load.keys() <= _widths(graph).keys()


def _widths(graph: Fabric) -> dict[tuple[int, int], int]:
    return dict(zip(zip(graph.src.tolist(), graph.dst.tolist(), strict=True), graph.cap.tolist(), strict=True))


def test_where_it_is_not_for(tmp_path):
    from synth.topologies import topology

    assert not paired_arborescences.applies(fabric(topology("dgx-a100*2"))) and not paired_arborescences.applies(
        fabric(topology("torus:8x8"))
    )
    assert not any(
        p.construction.startswith("paired arborescences") for p in frontier(topology("dgx1"), "allreduce").points
    )  # both ways alike


def test_the_command_line_shows_and_verifies_it(tmp_path):
    file = machine(tmp_path, 3, {(0, 1): 1, (1, 0): 4, (1, 2): 1, (2, 1): 4})
    words = [
        "pareto",
        "--topo-file",
        str(file),
        "--coll",
        "allreduce",
        "--engine",
        "flow",
        "--schedules",
        str(tmp_path / "out"),
    ]
    shown = CliRunner().invoke(root, words)
    assert shown.exit_code == 0 and "paired arborescences" in shown.stdout
    files = [str(f) for f in sorted((tmp_path / "out").iterdir())]
    checked = CliRunner().invoke(root, ["verify", *files])
    assert checked.exit_code == 0, checked.output
