"""One-sided programs launched many times on CPU threads: right in every launch, no race; broken ones are reported.

Where each rank launches on its own, and renews its data before each launch, a rank that is late or ahead is seen, too.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import thread_sanitizer
from thread_sanitizer import Executable, RaceReport, find_races

from synth.export import program_reader
from synth.export.mscclpp.read import read
from synth.program import analysis
from synth.program.program import Program
from synth.runtime.kernel import sources
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


def broken(original: Program) -> list[tuple[str, Program]]:
    """Return copies of `original` that each lack one order: a wait, a signal's place, a barrier, a dependency."""
    found = []

    def keep(name: str, rank: int, b: int, ops: tuple) -> None:
        block = original.gpus[rank].blocks[b]._replace(ops=ops)
        blocks = (*original.gpus[rank].blocks[:b], block, *original.gpus[rank].blocks[b + 1 :])
        gpus = list(original.gpus)
        gpus[rank] = gpus[rank]._replace(blocks=blocks)
        found.append((f"{name} {rank}.{b}", replace(original, gpus=tuple(gpus))))

    for one in original.gpus:
        for b, block in enumerate(one.blocks):
            for i, op in enumerate(block.ops):
                rest = (*block.ops[:i], op._replace(code="nop", ports=(), group=()), *block.ops[i + 1 :])
                if op.code in ("wait", "barrier", "signal"):
                    keep(f"no {op.code} at {i}", one.rank, b, rest)
                if op.code == "signal" and i:
                    keep(f"early signal at {i}", one.rank, b, (op, *block.ops[:i], *block.ops[i + 1 :]))
                if op.deps:
                    free = (*block.ops[:i], op._replace(deps=()), *block.ops[i + 1 :])
                    keep(f"no dependency at {i}", one.rank, b, free)
    return found


@pytest.mark.parametrize("name", [name for name in PLANS if name != "packets"])
def test_programs_without_an_order_that_they_need_are_reported(name):
    chosen = read(json.dumps(PLANS[name]))
    options: dict[str, Any] = {"threads": 1, "elements": 96, "launches": 10, "ranks_on": (0, 0), "timeout": 0.3}
    assert launched(chosen, **options) == SILENT
    reported = 0
    for change, wrong in broken(chosen):
        verdict = analysis.check(wrong, "mscclpp")
        if verdict.ok:
            assert launched(wrong, **options) == SILENT, change
        elif {finding.rule for finding in verdict.errors} != {"deadlock"}:  # those wait for the timeout
            assert launched(wrong, **options) != SILENT, change
            reported += 1
    assert reported >= 6


def test_outputs_of_every_launch_are_compared(tmp_path, monkeypatch):
    """The second launch of this kernel leaves its outputs as they were before it."""
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    folder = tmp_path / "kernel"
    shutil.copytree(sources.FOLDER, folder)
    text = (folder / "ports.cuh").read_text()
    assert text.count("if (act.kind == MOVES) {") == 1
    (folder / "ports.cuh").write_text(text.replace("if (act.kind == MOVES) {", "if (act.kind == MOVES && run != 1) {"))
    chosen = read(json.dumps(PLANS["group"]))
    options: dict[str, Any] = {"threads": 1, "elements": 9, "executable": Executable(folder, watch=False)}
    assert launched(chosen, launches=1, **options) == SILENT
    assert not launched(chosen, launches=2, **options).right


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
