"""Compressed schedules: pipelined forests, their independent replay, files, and agreement with ordinary schedules."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.documents import schedule_archive
from synth.checker.schedule import compressed_replay, replay
from synth.errors import UsageError, VerificationError
from synth.model import compressed_schedule
from synth.scale.forests import pipelining
from synth.scale.forests.spanning_forest import SpanningForest
from synth.topologies import topology
from tests.compressed_columns import columns


def ring_forest(ranks, *, collective="allgather", symmetric=True):
    """Both ways round from each rank, half of the shard each."""
    machine = topology(f"ring:{ranks}")
    where = {(k.src, k.dst): i for i, k in enumerate(machine.links)}
    turned = collective == "reduce-scatter"
    parents, via, paths = [], [], {}
    roots = [0] if symmetric else list(range(ranks))
    for root in roots:
        for way in (1, -1):
            row, used = [-1] * ranks, [-1] * ranks
            for d in range(1, ranks):
                child, parent = (root + way * d) % ranks, (root + way * (d - 1)) % ranks
                row[child] = parent
                link = where[(child, parent) if turned else (parent, child)]
                used[child] = paths.setdefault((link,), len(paths))
            parents.append(row)
            via.append(used)
    generators = (np.array([(r + 1) % ranks for r in range(ranks)]),) if symmetric else ()
    return SpanningForest(
        machine, collective, None, Fraction(ranks - 1, 2), 2, np.repeat(roots, 2), np.ones(2 * len(roots), np.int64),
        np.array(parents, np.int32), np.array(via, np.int32), tuple(paths), generators, "by hand",
    )  # fmt: skip


@pytest.mark.parametrize("collective", ["allgather", "reduce-scatter"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("depth", [1, 3, 16])
def test_a_pipelined_forest_verifies_both_ways(collective, symmetric, depth):
    forest = ring_forest(6, collective=collective, symmetric=symmetric)
    made = pipelining.Pipeline(forest).schedule(depth)
    found = compressed_replay.replay(made)
    assert found.group == (6 if symmetric else 1)
    assert found.sends == 6 * 2 * 5 * depth
    assert found.busiest == 1
    assert (made.step_count, made.rounds_per_chunk) == pipelining.Pipeline(forest).rate(depth)
    assert made.step_count == 5 + depth - 1
    replay.schedule(made.written_out())
    assert compressed_replay.replay(made.expanded()).rounds_per_chunk == made.rounds_per_chunk


def test_depth_brings_the_rate_near_the_forests():
    forest = ring_forest(8)
    rates = [pipelining.Pipeline(forest).rate(depth)[1] for depth in (1, 8, 64, 512)]
    assert rates == sorted(rates, reverse=True)
    assert Fraction(7, 2) <= rates[-1] < Fraction(7, 2) * Fraction(51, 50)
    with pytest.raises(UsageError):
        pipelining.Pipeline(forest).schedule(0)


@settings(max_examples=120)
@given(st.data())
def test_an_altered_schedule_is_refused_or_just_as_right(data):
    collective = data.draw(st.sampled_from(["allgather", "reduce-scatter"]))
    made = pipelining.Pipeline(ring_forest(5, collective=collective, symmetric=data.draw(st.booleans()))).schedule(2)
    column = data.draw(st.sampled_from(["step", "chunk", "path", "kind", "step_rounds", "drop", "generators"]))
    if column == "drop":
        keep = np.arange(len(made.step)) != data.draw(st.integers(0, len(made.step) - 1))
        altered = replace(made, **{name: getattr(made, name)[keep] for name in ("step", "chunk", "path", "kind")})
    elif column == "generators":
        altered = replace(made, generators=(tuple(data.draw(st.permutations(range(5)))),))
    else:
        values = getattr(made, column).copy()
        at = data.draw(st.integers(0, len(values) - 1))
        values[at] += data.draw(st.sampled_from([-1, 1, 2]))
        altered = replace(made, **{column: values})
    try:
        compressed_replay.replay(altered)
    except VerificationError:
        return
    replay.schedule(altered.written_out())


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_file_gives_the_schedule_back(symmetric, tmp_path):
    made = pipelining.Pipeline(ring_forest(8, symmetric=symmetric)).schedule(4)
    made.save(tmp_path / "a.npz")
    again = schedule_archive.load(tmp_path / "a.npz")
    assert columns(again) == columns(made) and bool(again.generators) is symmetric
    assert (again.topology.links, again.topology.limits) == (made.topology.links, made.topology.limits)
    assert compressed_replay.replay(again) == compressed_replay.replay(made)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("depth", [1, 4])
def test_an_allreduce_is_made_of_two_halves(symmetric, depth):
    scatter = pipelining.Pipeline(ring_forest(5, collective="reduce-scatter", symmetric=symmetric)).schedule(depth)
    gather = pipelining.Pipeline(ring_forest(5, symmetric=symmetric)).schedule(depth)
    made = pipelining.scatter_then_gather(scatter, gather)
    found = compressed_replay.replay(made)
    assert found.sends == 2 * compressed_replay.replay(gather).sends
    assert made.rounds_per_chunk == (scatter.rounds_per_chunk + gather.rounds_per_chunk) / 5
    replay.schedule(made.written_out())
    with pytest.raises(UsageError):
        pipelining.scatter_then_gather(gather, scatter)
    early = replace(made, step=np.where(made.kind == compressed_schedule.COPY, made.step - 1, made.step))
    with pytest.raises(VerificationError):
        compressed_replay.replay(early)
