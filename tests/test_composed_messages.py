"""Collectives whose units go to one rank each, composed over the boxes of a machine."""

from dataclasses import replace
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import first_rows

from synth.checker.schedule import replay
from synth.commands import api
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.model.collective import collective, pattern
from synth.program import analysis, checked_lowering
from synth.scale.composition.compose import composed_messages
from synth.topologies import topology
from synth.topologies.modify import broken, with_ranks
from tests.test_composition import clusters


def schedules(machine, task, most_sends=1_000, most=None, **options):
    """The first composed schedules, after a replay agrees with the numbers of each."""
    result = []
    for candidate in islice(composed_messages(machine, task, most_sends=most_sends, **options), most):
        schedule = replace(candidate.make().written_out(task), network=machine.network())
        replay.schedule(schedule)
        assert (len(schedule.steps), schedule.rounds_per_chunk) == (candidate.steps, candidate.rounds_per_chunk)
        result.append(schedule)
    return result


@pytest.mark.parametrize(
    ("name", "steps", "most"),
    [
        ("alltonext", 4, Fraction(3, 16)),  # balanced paths: 10/49, and 3/16 in 5 steps
        ("alltonext", 8, Fraction(7, 50)),
        ("scatter", 3, Fraction(6, 5)),  # balanced paths: 79/62; bound 15/13
    ],
)
def test_all_nics_of_a_box_are_used_in_few_steps(name, steps, most):
    machine = topology("dgx-a100*2")
    found = schedules(machine, collective(name, 16), 10_000, most=8)
    assert min(schedule.rounds_per_chunk for schedule in found if len(schedule.steps) <= steps) <= most


@pytest.mark.parametrize(
    ("machine", "ranks", "name", "roots"),
    [
        ("ring:4*2:nic=1", range(8), "sendrecv", ()),  # paths of several links inside the boxes
        ("ring:3*2:nic=1", range(6), "gather", (3,)),
        ("dgx1*2", (0, 1, 2, 8, 9, 10, 11, 12), "alltonext", ()),  # boxes of three and five GPUs
        ("dgx1*2", (0, 1, 8, 9, 10), "multi-scatter", (1, 3)),
        ("fully-connected:2*4:pod=2,over=2", range(8), "scatter", (5,)),  # behind switches
    ],
)
def test_programs_of_composed_messages_are_right(machine, ranks, name, roots):
    chosen = with_ranks(topology(machine), list(ranks))
    found = schedules(chosen, collective(name, chosen.ranks, roots), 400, most=3)
    program = checked_lowering.lower(found[-1])
    assert analysis.check(program).ok
    assert api.run(program, executor="reference").checked is not None


@settings(max_examples=5, deadline=None)
@given(clusters(), st.data())
def test_messages_on_random_clusters_are_no_better_than_the_bound(machine, data):
    rank = st.integers(0, machine.ranks - 1)
    pairs = data.draw(st.lists(st.tuples(rank, rank), min_size=1, max_size=6))
    task = pattern(machine.ranks, pairs)
    bound = single_cut_bound(machine.network(), task).value
    for schedule in schedules(machine, task, 100, most=3):
        assert schedule.rounds_per_chunk >= bound


def test_other_collectives_and_machines_have_no_composed_messages():
    two, one = topology("ring:3*2"), topology("ring:3")
    assert not schedules(one, collective("scatter", 3))
    for name in ("broadcast", "reduce", "allgather", "multi-broadcast", "allreduce", "scan"):
        assert not schedules(two, collective(name, 6))


def test_a_rank_without_nic_sends_over_the_others():
    machine = topology("fully-connected:3*2")
    for rank in (3, 4, 5):
        machine = broken(machine, 2, rank)
    found = schedules(machine, collective("alltonext", 6))
    assert min(schedule.rounds_per_chunk for schedule in found) <= Fraction(7, 10)


def test_schedules_end_with_the_first_one_that_is_enough():
    machine, task = topology("rail:2x3"), collective("alltonext", 6)
    every = [schedule.rounds_per_chunk for schedule in schedules(machine, task, most=6)]
    some = [schedule.rounds_per_chunk for schedule in schedules(machine, task, enough=min(every))]
    assert some == every[: every.index(min(every)) + 1] and len(some) > 1


def test_the_first_rows_have_composed_messages_where_direct_sends_are_worse():
    machine = topology("fully-connected:3*2")
    direct, *others = first_rows(machine, collective("alltonext", 6)).points
    assert direct.construction == "direct sends"
    composed = [row for row in others if row.construction.startswith("boxes: ")]
    assert composed and composed[-1].rounds_per_chunk < direct.rounds_per_chunk
