"""The library of the chunk language: steps and rounds per chunk of every algorithm, for several numbers of ranks."""

import importlib.metadata
import json
from fractions import Fraction
from math import ceil, floor, log2

import pytest

import synth
from synth.errors import UsageError
from synth.language import algorithm
from synth.language.library import FAMILIES, LIBRARY, direct, ring
from synth.model import registry
from tests.command_line import synth as run

ALGORITHMS = {(one.collective, one.name): one for one in LIBRARY}


def known(large=False):
    """Yield collective, name, machine, S, R/C at most, and options of algorithms with known steps and rounds."""
    for n in (12, 16) if large else (4, 5):
        machine = f"ring:{n}"
        yield "allgather", "ring-one-way", machine, n - 1, n - 1, {}
        yield "allgather", "ring", machine, n - 1, Fraction(n - 1, 2), {}
        yield "allgather", "ring-short", machine, n // 2, Fraction(n - 1, 2), {}
        yield "reduce-scatter", "ring", machine, n - 1, Fraction(n - 1, 2), {}
        yield "allreduce", "ring", machine, 2 * (n - 1), Fraction(n - 1, n), {}
        joined, switch = f"fully-connected:{n}", f"switch:{n}:units=12"
        for collective in ("allgather", "reduce-scatter", "alltoall"):
            yield collective, "direct", joined, 1, 1, {}
            yield collective, "direct", switch, 1, n - 1, {}
        yield "allreduce", "one-shot", joined, 1, 1, {}
        yield "allreduce", "one-shot", switch, 1, n - 1, {}
        yield "allreduce", "two-shot", joined, 2, Fraction(2, n), {}
        yield "allreduce", "two-shot", switch, 2, Fraction(2 * (n - 1), n), {}
    for k in (4, 5) if large else (2, 3):
        n = 2**k
        cube, switch = f"hypercube:{n}", f"switch:{n}:units=12"
        yield "allgather", "recursive-doubling", switch, k, n - 1, {}
        yield "allgather", "recursive-doubling", cube, k, n - 1, {}
        yield "allgather", "recursive-doubling", cube, k, n // 2, {"steps": "asap"}
        yield "allgather", "recursive-doubling-rotated", cube, k, Fraction(n - 1, k), {}
        yield "reduce-scatter", "recursive-halving", switch, k, n - 1, {}
        yield "allreduce", "recursive-doubling", switch, k, k, {}
        yield "allreduce", "recursive-doubling", cube, k, k, {}
        yield "allreduce", "recursive-doubling-rotated", cube, k, 1, {}
        yield "allreduce", "halving-doubling", switch, 2 * k, Fraction(2 * (n - 1), n), {}
        yield "allgather", "halving-doubling", switch, k, n - 1, {}
        yield "reduce-scatter", "halving-doubling", switch, k, n - 1, {}
        joined = f"fully-connected:{n}"
        yield "allreduce", "binomial", joined, 2 * k, 2 * k, {}
        yield "gather", "binomial", joined, k, n - 1, {}
        yield "scatter", "binomial", joined, k, n - 1, {}
        yield "allreduce", "halving-doubling-rotated", cube, 2 * k, Fraction(2 * (n - 1), n * k), {}
        yield "broadcast", "binomial", cube, k, k, {}
        yield "broadcast", "binomial", switch, k, k, {}
        yield "reduce", "binomial", cube, k, k, {}
        yield "reduce", "binomial", switch, k, k, {}
        yield "alltoall", "bruck", switch, k, Fraction(n * k, 2), {}
    for n in (8, 12, 17) if large else (3, 6, 7):
        switch = f"switch:{n}:units=12"
        for name in ("bruck", "pat"):
            yield "allgather", name, switch, ceil(log2(n)), n - 1, {}
            yield "allgather", name, switch, floor(log2(n)), n - 1, {"steps": "asap"}
        yield "reduce-scatter", "pat", switch, ceil(log2(n)), n - 1, {}
        yield "scan", "recursive-doubling", switch, ceil(log2(n)), ceil(log2(n)), {}
        yield "allreduce", "pat", switch, 2 * ceil(log2(n)), Fraction(2 * (n - 1), n), {}
        yield "alltoall", "bruck", switch, ceil(log2(n)), Fraction(n * ceil(log2(n)), 2), {}
    tori = [("3x3x3", 6, Fraction(13, 3))] if large else [("3x3", 4, 2), ("4x4", 6, Fraction(15, 4))]
    for sides, steps, rounds in tori:
        yield "allgather", "torus", f"torus:{sides}", steps, rounds, {}
    yield "allgather", "torus", "torus:3x5", 6, 4, {"steps": "asap"}
    for n in (4, 6):
        yield "broadcast", "chain", f"line:{n}", n + 6, Fraction(n + 6, 8), {}
        yield "broadcast", "chain", f"line:{n}", n + 1, Fraction(n + 1, 3), {"pieces": 3}
        yield "scan", "chain", f"line:{n}", n + 6, Fraction(n + 6, 8), {}
        yield "scan", "chain", f"line:{n}", n + 1, Fraction(n + 1, 3), {"pieces": 3}
    for n, steps in ((9, 2), (5, 2), (27, 3)):
        yield "broadcast", "binomial", f"fully-connected:{n}", steps, steps, {"radix": 3}
    for n in (5, 7, 11):
        # beyond a power of two a whole unit goes to a partner, and comes back
        power = 1 << n.bit_length() - 1
        known_rounds = 2 + Fraction(2 * (power - 1), power)
        steps = 2 * (n.bit_length() - 1) + 2
        yield "allreduce", "halving-doubling", f"fully-connected:{n}", steps, known_rounds, {}
        steps = (n - 1).bit_length()
        yield "gather", "binomial", f"fully-connected:{n}", steps, n - 1, {}
        yield "scatter", "binomial", f"fully-connected:{n}", steps, n - 1, {}
    # near partners exchange the most data
    yield "allreduce", "halving-doubling", "dgx-a100*2", 8, Fraction(13, 48), {}
    yield "alltoall", "direct", "dgx1", 2, 6, {}
    yield "broadcast", "scatter-allgather", "switch:4:units=12", 2, Fraction(3, 2), {}
    yield "broadcast", "scatter-allgather", "switch:8:units=12", 2, Fraction(7, 4), {}
    yield "allreduce", "double-tree", "dgx-a100", 7, Fraction(21, 4), {"steps": "paced=12"}
    yield "allgather", "hierarchical", "dgx-a100*2", 2, Fraction(19, 12), {}
    yield "allgather", "hierarchical", "dgx-h100*2", 2, Fraction(11, 6), {}
    yield "allreduce", "hierarchical", "dgx-a100*2", 4, Fraction(43, 192), {}
    yield "allreduce", "hierarchical", "dgx-h100*2", 4, Fraction(17, 72), {}
    for n in (16, 18) if large else (4, 12):
        switch = f"switch:{n}:units=12"
        yield "allgather", "grid", switch, 2, n - 1, {}
        yield "reduce-scatter", "grid", switch, 2, n - 1, {}
        yield "allreduce", "grid", switch, 4, Fraction(2 * (n - 1), n), {}
    yield "allgather", "grid", "dgx-a100*2", 3, Fraction(11, 6), {}
    yield "reduce-scatter", "grid", "dgx-a100*2", 3, Fraction(11, 6), {}
    yield "allreduce", "grid", "dgx-a100*2", 6, Fraction(1, 4), {}
    for machine, height, rate in (("torus:3x3", 4, Fraction(9, 4)), ("fully-connected:5", 2, Fraction(5, 2))):
        # packed spanning trees: M parts of each, in M + height - 1 levels, at the rate of Nash-Williams and Tutte
        for pieces in (4, 16):
            steps = pieces + 2 * height - 1
            yield "allreduce", "packed-trees", machine, steps, steps / (rate * pieces), {"pieces": pieces}
    yield "broadcast", "packed-trees", "fully-connected:5", 6, Fraction(3, 5), {"pieces": 4}
    yield "broadcast", "packed-trees", "torus:3x3", 22, Fraction(41, 72), {"pieces": 16}
    yield "alltoall", "direct", "dgx-a100*2", 1, 8, {}
    yield "alltoall", "two-step", "dgx-a100*2", 2, Fraction(49, 6), {}
    yield "alltoall", "three-step", "rail:3x2", 3, 8, {}


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("collective", "name"), ALGORITHMS)
def test_steps_and_rounds_are_as_known(collective, name, large):
    rows = [row[2:] for row in known(large) if row[:2] == (collective, name)]
    assert rows
    for machine, steps, rounds, options in rows:
        schedule = ALGORITHMS[collective, name].schedule(machine, **options)
        assert schedule.step_count == steps, machine
        assert schedule.rounds_per_chunk <= rounds, machine


@pytest.mark.slow
def test_algorithms_run_on_their_homes():
    done = {row[:3] for row in known()}
    for one in LIBRARY:
        assert one.formula
        if (one.collective, one.name, one.home) not in done:
            assert one.schedule(one.home).collective.name == one.collective


def test_roots_and_other_numbers_of_ranks():
    for name in ("binomial", "scatter-allgather", "chain"):
        task = synth.collective("broadcast", 6, roots=[4])
        assert ALGORITHMS["broadcast", name].schedule("fully-connected:6", task).collective.roots == (4,)
    for collective in ("gather", "scatter"):
        task = synth.collective(collective, 6, roots=[4])
        assert ALGORITHMS[collective, "binomial"].schedule("fully-connected:6", task).step_count == 3
    cube = ALGORITHMS["broadcast", "binomial"]
    assert cube.schedule("hypercube:8", synth.collective("broadcast", 8, roots=[5])).step_count == 3
    with pytest.raises(UsageError, match="power of two of ranks, not 6"):
        ALGORITHMS["allgather", "recursive-doubling"].schedule("fully-connected:6")


def test_packed_trees_come_near_the_bound():
    allreduce, broadcast = (ALGORITHMS[name, "packed-trees"] for name in ("allreduce", "broadcast"))
    rates = [allreduce.schedule("fully-connected:4", pieces=pieces).rounds_per_chunk for pieces in (1, 8, 64)]
    assert rates[0] > rates[1] > rates[2] > Fraction(1, 2)  # 6 pairs of one unit, 3 edges of a tree
    assert rates[2] < Fraction(21, 40)
    task = synth.collective("broadcast", 4, roots=[2])
    assert broadcast.schedule("ring:4", task).collective.roots == (2,)
    with pytest.raises(UsageError, match="packed trees need all ranks of a machine"):
        allreduce.schedule("dgx-a100")


def test_families_are_parts_of_programs():
    @algorithm("allreduce")
    def by_boxes(a, inside=ring):
        held = a.inputs()
        for box in a.boxes:
            held |= inside.reduce_scatter(box, held)
        for rail in a.rails:
            held |= FAMILIES["direct"].allreduce(rail, held)
        for box in a.boxes:
            inside.allgather(box, held)

    assert by_boxes.schedule("rail:2x4").step_count == 3 + 2 + 3
    assert by_boxes.schedule("rail:2x4", inside=direct).step_count == 4


def test_bounds_hold_and_the_library_is_ranked():
    rows = synth.api.library_on("hypercube:4", "allgather")
    assert all(row.factor >= 1 for row in rows if row.schedule)
    assert "recursive-doubling-rotated" in [row.algorithm.name for row in rows if row.factor == 1]
    words = "algorithms --coll allreduce --format json --topo"
    listed = json.loads(run(words, "ring:6 --no-bounds").stdout)
    assert [row["name"] for row in listed if "steps" in row] == ["ring", "packed-trees"]
    refused = {row["name"]: row["refused"] for row in listed if "refused" in row}
    assert refused["one-shot"] == "ring:6 has no link 2 -> 0"  # no line of the library, which a user cannot change
    listed = json.loads(run(words, "hypercube:4 --size 64MB").stdout)
    times = [row["microseconds"] for row in listed if "steps" in row]
    assert [*times[0]] == ["1 KB", "1 MB", "64 MB", "1 GB"]
    assert times == sorted(times, key=lambda row: row["64 MB"]) != sorted(times, key=lambda row: row["1 KB"])


@algorithm("allgather")
def by_hand(a):
    for rank in a.ranks:
        a.input(rank).to(*a.others(rank))


def test_plug_ins_are_listed_and_compiled(monkeypatch):
    registry.plugins.cache_clear()
    points = [importlib.metadata.EntryPoint("algorithms.mine", "tests.test_algorithms:by_hand", registry.GROUP)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    assert [one.name for one in synth.api.library("allgather")][-1] == "mine"
    for words in ("list algorithms", "compile mine --topo ring:4 --no-bounds"):
        assert "mine" in run(words).stdout
    registry.plugins.cache_clear()
