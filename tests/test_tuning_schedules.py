"""Schedules that are candidates of a plan: those that its runtime can hold, and the library's."""

from __future__ import annotations

from fractions import Fraction

import synth
from synth.catalog.tuner.candidates import NamedSchedule
from synth.catalog.tuner.request import TuningRequest
from synth.commands.inputs import named_topology
from synth.commands.programs.baselines import baseline
from synth.commands.tuning import schedules as tuning_schedules
from synth.commands.tuning.inputs import CollectiveInputs
from synth.errors import SynthError
from synth.export.request import Machine
from synth.model.collective import collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.program import plan_limits
from synth.program.checked_lowering import onesided, reason_against_plan
from synth.program.lowering_options import LoweringOptions


def test_schedules_that_no_plan_can_hold_are_no_candidates():
    """On 4 boxes of 8 direct sends of an allgather need 24 port channels for a chunk: such a plan was chosen, then
    refused, and the sizes were left to the library."""
    machine = named_topology("dgx-a100*4")
    named = []
    for name in ("direct", "grid"):
        named.append(NamedSchedule(name, baseline(name, machine.network(), collective("allgather", machine.ranks))))
    held, notes = tuning_schedules.without_plans(named, Machine.of(machine))
    assert [one.name for one in held] == ["grid"]
    assert notes == [
        "no MSCCL++ plan can hold direct (rank 0 uses 24 port channels for chunk 0 alone, a thread block of MSCCL++ "
        "has 16)"
    ]
    refusals = 0
    for one in named:
        try:
            onesided(one.schedule, LoweringOptions("mscclpp", nodes=machine.nodes))
        except SynthError as error:
            refusals += "24 port channels" in str(error)
    assert refusals == 1


def test_no_more_sends_than_a_plan_is_written_of_in_bounded_time(monkeypatch):
    schedule = baseline("direct", named_topology("switch:4").network(), collective("alltoall", 4))
    assert reason_against_plan(schedule, (0,) * 4) is None
    monkeypatch.setattr(plan_limits, "PLAN_SENDS", 11)
    assert reason_against_plan(schedule, (0,) * 4) == "it has 12 sends, plans are made of at most 11"


def test_of_more_ranks_than_a_block_has_channels_rows_and_columns_are_candidates():
    """Direct sends of 18 ranks meet 17 others in a chunk, a thread block of MSCCL++ has 16 channels."""
    for name in ("switch:18", "switch:9*2"):
        machine = named_topology(name)
        task = collective("allgather", machine.ranks)
        direct = baseline("direct", machine.network(), task)
        point = Point.of(direct, LowerBound(Fraction(1), {"kind": "none"}), "by hand")
        found = Frontier(machine.network(), task, (point,))
        inputs = CollectiveInputs("allgather", machine.ranks, None, machine.network(), (found,), ())
        known = tuning_schedules.candidate_schedules(inputs, TuningRequest(machine, "allgather", plans=True))
        schedules = {one.name: one.schedule for one in known}
        assert reason_against_plan(schedules["grid"], machine.nodes) is None
        assert len(schedules["grid"].steps) == 2 + (name == "switch:9*2")


def test_baselines_know_the_boxes_of_the_machine():
    """All links of `rail:2x4` have one latency, so the links alone do not tell the boxes."""
    machine = named_topology("rail:2x4")
    found = synth.frontier(machine, "allgather", time_limit=1)
    inputs = CollectiveInputs("allgather", 8, None, machine.network(), (found,), ())
    for topology, known in ((machine, True), (None, False)):
        schedules = tuning_schedules.candidate_schedules(inputs, TuningRequest(topology, "allgather"))
        assert ("hierarchical" in [one.name for one in schedules]) == known
