"""Timelines: what the reference executor reports, in the form that Perfetto reads."""

import json

from synth.commands import api
from synth.errors import SynthError
from synth.export.chrome_trace import PICOSECONDS, Trace, chrome
from synth.export.request import Target
from synth.program.events import OpEvent
from tests.programs import put_allgather, ring_allgather


def test_work_waits_and_links():
    program = ring_allgather(2)
    link = (0, 1, ())
    first = OpEvent(0, 0, 0, 0, 0, "s", 0, 0, 2_000_000, link, 500_000, 2_500_000, 64)
    events = [first, OpEvent(1, 0, 2, 0, 0, "r", 1_000_000, 2_500_000, 3_000_000)]
    text = chrome(program, events)
    found = json.loads(text)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {
        (0, 0): "block 0: to 1, from 1, channel 0",
        (1, 0): "block 0: to 0, from 0, channel 0",
        (2, 0): "0 to 1",
    }
    drawn = [(e["pid"], e["name"], e["ts"], e["dur"]) for e in found if e["ph"] == "X"]
    assert drawn == [(0, "s", 0, 2), (2, "s", 0.5, 2), (1, "waits", 1, 1.5), (1, "r", 2.5, 0.5)]
    assert found[-1]["args"]["text"] == "r -> o[0]"
    assert chrome(program, events) == text


def test_an_op_of_several_transfers_is_drawn_once():
    program = put_allgather(3)
    put = OpEvent(0, 0, 0, 0, 0, "put", 0, 0, 10, (0, 1, ()), 0, 8, 4)
    found = json.loads(chrome(program, [put, put._replace(link=(0, 2, ()))]))["traceEvents"]
    assert [e["cat"] for e in found if e["ph"] == "X"] == ["op", "link", "link"]


def test_a_timeline_of_a_schedule_covers_its_makespan():
    schedule = api.solve("ring:4", "allgather", 1, 3, 3, jobs=1).schedule
    ((_, text),) = api.export_program(schedule, "trace", size=1 << 20).files
    ran = api.run(api.lower(schedule), topology="ring:4", size=1 << 20, data=False)
    slices = [e for e in json.loads(text)["traceEvents"] if e["ph"] == "X"]
    assert max(round((e["ts"] + e["dur"]) * PICOSECONDS) for e in slices) == ran.execution.picoseconds
    assert {e["cat"] for e in slices} >= {"op", "link"}


def test_times_must_be_known():
    for target in (Target(), Target(timeline=lambda program, network, size: ())):
        try:
            Trace().emit(ring_allgather(2), target)
        except SynthError as error:
            assert "--topo" in str(error)
        else:
            raise AssertionError("no times, no timeline")
