"""Tori and meshes: the arrays of large ones say the same as the lists of small ones."""

import pytest

from synth.topologies import families
from synth.topologies.grids import grid, large_grid


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (3, 3), (4, 1, 4), (3, 2, 3), (2, 2, 2), (1, 1)])
@pytest.mark.parametrize("wrap", [True, False])
def test_both_ways_give_the_same_edges_and_permutations(sizes, wrap):
    edges, symmetries = grid(sizes, wrap)
    rows, found = large_grid(sizes, wrap)
    assert [tuple(row) for row in rows.tolist()] == edges
    assert list(found) == symmetries


@pytest.mark.parametrize("build", [families.torus, families.mesh])
def test_a_table_of_links_is_the_same_topology(build, monkeypatch):
    few = build((4, 5), {"units": "3/2"})
    monkeypatch.setattr(families, "LARGE", 0)
    many = build((4, 5), {"units": "3/2"})
    assert not isinstance(many.links, tuple)
    assert many == few and few.generators
