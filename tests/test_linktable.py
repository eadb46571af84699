"""Links by column: the same topologies, symmetries, certificates and files as with tuples of links."""

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from spanning_forest_check import verify

from synth import topologies
from synth.checker.certificates import machine_digest, throughput_cuts
from synth.checker.certificates.path_lengths import alltoall_digest
from synth.checker.documents import schedule_archive
from synth.model.link_table import LinkTable, Sort
from synth.model.topology import Limit, Link, Topology
from synth.scale.bounds.throughput_cut import throughput
from synth.scale.fabric.fabric import fabric
from synth.scale.forests.build import build
from synth.scale.forests.pipelining import Pipeline
from synth.topologies import builders, clusters
from synth.topologies.builders import with_generators
from tests.compressed_columns import columns as held

MACHINES = (
    "dgx-a100*3", "dgx-a100*4:net=odd-even", "dgx-h100*3:net=rail", "dgx-a100*2:nics=2", "dgx-a100*2:nic=100,nics=4",
    "mi250*2", "ndv2*2", "dgx1*3", "dgx-a100*2:nics=1",
)  # fmt: skip
SHARED = Fraction(25)
LINKS = (
    Link(0, 1, SHARED, Fraction(1), "net"),
    Link(1, 0, SHARED, Fraction(1), "net"),
    Link(1, 2, Fraction(50)),
    Link(2, 0, Fraction(25)),
)


@pytest.fixture
def columns(monkeypatch):
    """Every cluster is made with a table of links."""

    def make(name):
        monkeypatch.setattr(clusters, "LARGE", 0)
        monkeypatch.setattr(builders, "LARGE", 0)
        try:
            return topologies.topology(name)
        finally:
            monkeypatch.undo()

    return make


@pytest.mark.parametrize("name", MACHINES)
def test_a_table_makes_the_same_machine(columns, name):
    usual, table = topologies.topology(name), columns(name)
    assert isinstance(table.links, LinkTable) and isinstance(usual.links, tuple)
    assert tuple(table.links) == usual.links and table.links == usual.links and len(table.links) == len(usual.links)
    assert table.limits == usual.limits
    assert table.generators == usual.generators and table.unit_bandwidth() == usual.unit_bandwidth()
    assert table.network() == usual.network() and table.nodes == usual.nodes
    assert machine_digest.digest(table) == machine_digest.digest(usual)
    assert alltoall_digest(table) == alltoall_digest(usual)


@pytest.mark.parametrize("name", ["dgx-a100*4", "dgx-h100*3:net=rail"])
def test_flows_find_the_same_on_it(columns, name, tmp_path):
    found = []
    for machine in (topologies.topology(name), columns(name)):
        graph = fabric(machine)
        limit = throughput(graph, "allgather")
        assert throughput_cuts.check(limit.certificate, machine) == limit.time / graph.unit
        forest = build(graph, "allgather").forest
        made = Pipeline(forest).schedule(2)
        made.save(tmp_path / "s.npz")
        again = schedule_archive.load(tmp_path / "s.npz")
        assert again.topology.links == tuple(machine.links) and held(again) == held(made)
        found.append((limit.time, limit.certificate, verify(forest), forest.parents.tolist(), held(made)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["dgx-a100*3", "dgx-a100*2:nics=2", "dgx-a100*4:net=odd-even"])
def test_symmetries_are_judged_the_same(columns, name, monkeypatch):
    machine = columns(name)
    random = np.random.default_rng(1)
    tries = [tuple(pi) for pi in machine.generators]
    tries += [tuple(random.permutation(machine.ranks).tolist()) for _ in range(20)]
    for pi in machine.generators:  # nearly right ones
        wrong = list(pi)
        a, b = random.choice(machine.ranks, 2, replace=False).tolist()
        wrong[a], wrong[b] = wrong[b], wrong[a]
        tries.append(tuple(wrong))
    tries += [(0, *range(machine.ranks - 1)), (1, 0)]
    slow = with_generators(machine, tries)
    monkeypatch.setattr(builders, "LARGE", 0)
    assert with_generators(machine, tries) == slow
    assert 0 < len(slow.generators) < len(tries)


def test_limits_decide_where_links_alone_do_not(monkeypatch):
    links = tuple(Link(a, b, SHARED) for a in range(4) for b in range(4) if a != b)
    shift = (1, 2, 3, 0)
    for groups, widths_, keeps in [
        ([[0, 1], [3, 4]], [25, 25], False),
        ([[i for i, k in enumerate(links) if k.src == r] for r in range(4)], [50] * 4, True),
        ([[i for i, k in enumerate(links) if k.src == r] for r in range(4)], [50, 50, 50, 25], False),
        ([[i for i, k in enumerate(links) if k.src == r] for r in (0, 1, 2, 3, 0)], [50] * 5, False),
        ([[0, 0, 1]], [25], False),
        ([[]], [25], True),
    ]:
        rows = enumerate(zip(groups, widths_, strict=True))
        machine = Topology("four", 4, links, [Limit(f"m{i}", tuple(g), Fraction(w)) for i, (g, w) in rows])
        for least in (6_000, 0):
            monkeypatch.setattr(builders, "LARGE", least)
            assert with_generators(machine, [shift]).generators == ((shift,) if keeps else ())


def test_a_table_acts_like_a_tuple():
    table = LinkTable.of(LINKS)
    assert table[0] == LINKS[0] and table[-1] == LINKS[-1] and tuple(table[1:3]) == LINKS[1:3] and LINKS[2] in table
    assert table == LINKS and tuple(table) == LINKS and table == LinkTable.of(LINKS)
    assert table != LinkTable.of(LINKS[:2]) and table != LINKS[:2]
    assert hash(table) == hash(LINKS) and pickle.loads(pickle.dumps(table)) == LINKS
    assert table != LinkTable.of((*LINKS[:3], replace(LINKS[3], kind="xgmi"))) and table != list(LINKS)
    turned = LinkTable(table.src, table.dst, np.asarray(len(table.sorts) - 1 - table.sort), table.sorts[::-1])
    assert table == turned != LinkTable(table.src, table.dst, table.sort, turned.sorts)
    with pytest.raises(IndexError):
        table[4]


def test_the_digest_of_a_table_is_that_of_the_same_links_one_by_one():
    machine = topologies.topology("dgx-a100*12")
    assert isinstance(machine.links, LinkTable)
    assert machine_digest.digest(machine) == machine_digest.digest(replace(machine, links=tuple(machine.links)))
    sorts = [Sort(Fraction(77), Fraction(0), "net"), *machine.links.sorts]
    table = LinkTable(machine.links.src, machine.links.dst, machine.links.sort + 1, sorts)
    assert machine_digest.digest(replace(machine, links=table)) == machine_digest.digest(machine)
    wrong = LinkTable(machine.links.src, machine.links.dst, machine.links.sort * 0, machine.links.sorts)
    assert machine_digest.digest(replace(machine, links=wrong)) != machine_digest.digest(machine)
