"""The frontiers that come with the package: found in any numbering, checked at each read, joined to a search."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner

import synth
from synth.catalog import shipped
from synth.checker.documents import exact_frontier
from synth.commands import root
from synth.encodings.engine import Options
from synth.model.frontier import Open

ANY = Options()


@pytest.fixture(scope="module")
def full():
    """The complete frontier of an allgather on a DGX-1: 3/2 in 2 steps, 7/6 in 3."""
    return synth.frontier("dgx1", "allgather", fresh=True)


@pytest.fixture
def cut_short(full):
    """The same, of a search that ended before 3 steps."""
    interval = Open(3, Fraction(7, 6), Fraction(3, 2), "time", full.points[1].bound.certificate)
    return replace(full, points=full.points[:1], open=(interval,), complete=False)


def entry_of(machine, collective="allgather"):
    topology = synth.topology(machine)
    return shipped.entry_of(topology.network(), synth.collective(collective, topology.ranks), topology.labels)


def test_a_renumbered_machine_has_its_frontier():
    entry = entry_of("dgx1")
    renumbered = synth.topology("dgx1", ranks=[3, 1, 4, 0, 5, 2, 7, 6])
    moved = shipped.entry_of(renumbered.network(), synth.collective("allgather", 8), renumbered.labels)
    for found in (entry.frontier, moved.frontier):
        assert [(p.steps, p.rounds_per_chunk) for p in found.points] == [(2, Fraction(3, 2)), (3, Fraction(7, 6))]
    assert moved.frontier.network.document == renumbered.network().document
    assert exact_frontier.document(moved.frontier.to_json())


def test_a_box_with_switches_and_one_nvlink_down_has_its_frontier(tmp_path):
    rows = [["X" if a == b else "NV17" if 3 in (a, b) else "NV18" for b in range(8)] for a in range(8)]
    lines = [[f"GPU{rank}", *row] for rank, row in enumerate(rows)]
    text = [" ".join(line) for line in [[f"GPU{rank}" for rank in range(8)], *lines]]
    (tmp_path / "topo.txt").write_text("\n".join(text) + "\n")
    entry = entry_of(tmp_path / "topo.txt")
    assert [(p.steps, p.rounds_per_chunk, p.status) for p in entry.frontier.points] == [(1, Fraction(7, 17), "optimal")]


def test_a_machine_that_is_not_in_the_package_has_none():
    assert entry_of("ring:5") is None


def test_better_points_join_a_search_that_was_cut_short(cut_short):
    joined = shipped.joined(cut_short, entry_of("dgx1"), ANY)
    assert [(p.steps, p.rounds_per_chunk, p.status) for p in joined.points] == [
        (2, Fraction(3, 2), "optimal"),
        (3, Fraction(7, 6), "optimal"),
    ]
    assert [p.construction.startswith(shipped.LABEL) for p in joined.points] == [False, True]
    assert "synth pareto --topo dgx1-v100 --coll allgather" in joined.notes[-1]
    assert joined.complete and not joined.open
    assert exact_frontier.document(joined.to_json())


def test_a_machine_of_another_name_keeps_its_notes_and_names_the_one_that_was_searched(cut_short):
    assumed = "25 GB/s a link assumed"
    network = replace(cut_short.network, name="topo")
    entry = shipped.entry_of(network, synth.collective("allgather", 8))
    found = replace(cut_short, machine=network, notes=(assumed, f"{shipped.UNWRITTEN} 1 more point"))
    joined = shipped.joined(found, entry, ANY)
    assert joined.complete and joined.notes[0] == assumed and len(joined.notes) == 2
    assert "synth pareto --topo dgx1-v100 --coll allgather" in joined.notes[1]


def test_points_that_the_options_exclude_do_not_join(cut_short):
    joined = shipped.joined(cut_short, entry_of("dgx1"), replace(ANY, max_chunks=5))
    assert [point.steps for point in joined.points] == [2]
    assert joined.notes == cut_short.notes and not joined.complete


def test_what_is_complete_is_complete_up_to_fewer_steps(cut_short):
    first = replace(cut_short, points=(), open=(), max_steps=2)
    joined = shipped.joined(first, entry_of("dgx1"), replace(ANY, max_steps=2))
    assert [point.steps for point in joined.points] == [2]
    assert joined.complete and joined.max_steps == 2
    assert exact_frontier.document(joined.to_json())


def test_a_complete_frontier_stays_as_it_is(full):
    assert shipped.joined(full, entry_of("dgx1"), ANY) is full


@pytest.mark.parametrize("content", [b"", b"no database", None])
def test_a_damaged_or_missing_file_ends_no_search(tmp_path, monkeypatch, content):
    file = tmp_path / "shipped.sqlite"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(shipped, "FILE", file)
    assert entry_of("dgx1") is None
    assert synth.frontier("ring:4", "allgather").complete


def test_ls_shows_commit_and_command():
    words = ["catalog", "ls", "--shipped", "--topo", "dgx1", "--coll", "alltoall", "--format", "json"]
    done = CliRunner().invoke(root, words)
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.output)
    assert row["command"] == "synth pareto --topo dgx1-v100 --coll alltoall --time-limit 90s --fresh"
    assert len(row["commit"]) >= 7


@pytest.mark.slow
def test_three_entries_are_made_again():
    for machine, collective in (("dgx1", "allgather"), ("mi250", "alltoall"), ("mi300x", "reduce-scatter")):
        entry, again = entry_of(machine, collective), synth.frontier(machine, collective, fresh=True)
        assert entry.frontier.complete and again.complete
        assert [(p.steps, p.rounds_per_chunk) for p in entry.frontier.points] == [
            (p.steps, p.rounds_per_chunk) for p in again.points
        ]
