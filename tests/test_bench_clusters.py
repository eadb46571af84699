"""Benches of rows: random clusters are the same for a seed and have a bound; rows that are not measured again stay."""

import json
from types import SimpleNamespace

import pytest

from bench import clusters, rowwise
from bench.random_clusters import random_cluster
from synth.checker.schedule.compressed_replay import replay
from synth.scale import search
from synth.scale.composition.compose import composed_points


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_is_one_cluster_of_unlike_boxes(seed):
    machine = random_cluster(seed)
    assert machine == random_cluster(seed)
    sizes = [machine.nodes.count(box) for box in sorted(set(machine.nodes))]
    assert 2 <= len(sizes) <= 5
    assert all(3 <= size <= 8 for size in sizes)
    limited = {number for limit in machine.limits for number in limit.links}
    for number, link in enumerate(machine.links):
        same_box = machine.nodes[link.src] == machine.nodes[link.dst]
        assert (number in limited) != same_box  # links between boxes pass NICs


def test_seeds_differ_in_all_that_is_drawn():
    machines = [random_cluster(seed) for seed in range(20)]
    assert len({machine.ranks for machine in machines}) > 5
    alike = [len({machine.nodes.count(box) for box in set(machine.nodes)}) == 1 for machine in machines]
    assert {True, False} == set(alike)
    assert any("fabric" in limit.name for machine in machines for limit in machine.limits)


@pytest.mark.slow
def test_a_random_cluster_has_schedules_no_better_than_its_bound():
    machine = min((random_cluster(seed) for seed in range(10)), key=lambda one: one.ranks)
    point = next(composed_points(machine, "allgather", same_bits=False, most_sends=clusters.WRITTEN))
    assert replay(point.make()).rounds_per_chunk == point.rounds_per_chunk
    assert point.rounds_per_chunk >= search.bound(machine, "allgather").bound


def test_only_keeps_the_rows_that_are_not_measured_again(tmp_path, capsys):
    rows = [SimpleNamespace(name="allgather a"), SimpleNamespace(name="allgather b")]
    output = tmp_path / "rows.json"

    def drive(value, *arguments):
        def measure(row, runs):
            return {"name": row.name, "value": value, "wrong": ""}

        def table(document):
            return ", ".join(f"{row['name']} {row['value']}" for row in document["rows"])

        return rowwise.drive("rows", "", [*arguments, "-o", str(output)], rows, measure, clusters.inside, table, 1)

    assert drive(1) == 0
    assert drive(2, "--only", "b") == 0
    document = json.loads(output.read_text())
    assert [(row["name"], row["value"]) for row in document["rows"]] == [("allgather a", 1), ("allgather b", 2)]
    assert output.with_suffix(".md").read_text() == "allgather a 1, allgather b 2"
    document["setting"]["commit"] = "earlier"
    output.write_text(json.dumps(document))
    assert drive(3, "--only", "a") == 0
    assert "Of commit" in output.with_suffix(".md").read_text()
    assert "allgather b 2" in capsys.readouterr().out
