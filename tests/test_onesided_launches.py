"""One-sided programs launched many times on CPU threads: right in every launch, no race.

Where each rank launches on its own, and renews its data before each launch, a rank that is late or ahead is seen, too.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import thread_sanitizer
from thread_sanitizer import Executable, RaceReport, find_races

from synth.export import program_reader
from synth.export.mscclpp.read import read
from synth.program.program import Program
from tests.test_foreign_plans import dealt_out, gpu, packet_allreduce, pipelined, plan, put_with_signal, swap

pytestmark = pytest.mark.skipif(thread_sanitizer.missing() is not None, reason=str(thread_sanitizer.missing()))

PEERS = Path(__file__).parents[2] / "shared" / "peer-plans"
SILENT = RaceReport((), False, True)
PLANS = {
    "put-with-signal": plan(
        "allgather", [gpu(r, (1, 2, 0), [put_with_signal("pwsf", r)], "port", "o") for r in (0, 1)]
    ),
    "packets": plan("allreduce", [gpu(r, (2, 2, 4), [packet_allreduce(r)]) for r in (0, 1)], "LL"),
    "alltoall": plan("alltoall", [gpu(r, (2, 2, 1), [swap(r)]) for r in (0, 1)]),
    "group": plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)]),
    "pipeline": pipelined(2, 64),
}


def launched(program: Program, **options: Any) -> RaceReport:
    return find_races(program, in_place=program.in_place == "in", **options)


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_every_form(name):
    chosen = read(json.dumps(PLANS[name]))
    assert launched(chosen, threads=4, elements=96, launches=3) == SILENT
    assert launched(chosen, threads=1, elements=96, launches=100, executable=Executable(watch=False)) == SILENT


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(PEERS.glob("*.json")), ids=lambda path: path.name)
def test_plans_of_others_a_thousand_times(path):
    chosen = program_reader.load(path)
    assert isinstance(chosen, Program)
    if chosen.collective is None:
        pytest.skip("names no collective")
    long = any(block.loops for one in chosen.gpus for block in one.blocks)
    elements = 1 << 16 if long else 9
    assert launched(chosen, threads=1, launches=3, elements=elements) == SILENT
    assert (
        launched(chosen, threads=1, launches=1000, elements=elements, executable=Executable(watch=False, limit=600))
        == SILENT
    )
