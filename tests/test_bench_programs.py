"""The benchmark of programs tells right from wrong: it is no rubber stamp."""

from dataclasses import replace

import pytest

from bench import measure, programs, roundtrip
from synth.errors import SynthError
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program
from synth.topologies import topology
from tests.test_lower import ring_allgather


def schedule():
    """A ring, with the network that its name stands for."""
    found = ring_allgather(4, 2)
    return replace(found, network=topology("ring:4").network())


@pytest.mark.parametrize(("runtime", "files"), [("msccl", 2), ("msccl-executor", 1), ("rccl", 1), ("mscclpp", 2)])
def test_a_good_schedule_is_right_all_the_way(runtime, files):
    row = roundtrip.attempt(schedule(), runtime, "LL", 2, "ring:4", "seed")
    assert (row["outcome"], row["modes"], row["files"]) == ("right", ["in", "out"], files), row
    assert row["ratio"] >= 1


def test_what_does_not_fit_is_refused_with_the_limit():
    row = roundtrip.attempt(schedule(), "rccl", "Simple", 200, "ring:4", "seed")
    assert row["outcome"] == "refused"
    assert "rccl has at most" in row["why"]
    assert programs.forbidden([row | {"collective": "allgather", "runtime": "rccl", "instances": 1}])
    assert not programs.forbidden([row | {"collective": "allgather", "runtime": "rccl", "instances": 4}])
    assert programs.forbidden([row | {"collective": "alltoall", "runtime": "rccl", "instances": 4, "why": "no reason"}])


def edited(program: Program, **changes) -> Program:
    """The program with its first send changed."""
    gpu = program.gpus[0]
    b, block = next((b, block) for b, block in enumerate(gpu.blocks) if block.ops[0].code == "s")
    block = block._replace(ops=(block.ops[0]._replace(**changes), *block.ops[1:]))
    return replace(
        program, gpus=(gpu._replace(blocks=(*gpu.blocks[:b], block, *gpu.blocks[b + 1 :])), *program.gpus[1:])
    )


def test_wrong_programs_and_files_are_seen(monkeypatch):
    program = lower(schedule(), LoweringOptions(runtime="msccl-executor"))
    sent = next(block.ops[0] for block in program.gpus[0].blocks if block.ops[0].code == "s")
    wrong = edited(program, src=(sent.src[0]._replace(buffer="o", offset=6),))
    with pytest.raises(AssertionError, match="lint"):
        roundtrip.clean(wrong, "msccl-executor")
    with pytest.raises(SynthError):
        roundtrip.right(wrong, "msccl-executor", schedule().network, 1)
    monkeypatch.setattr(roundtrip, "made", lambda *way: [wrong])
    assert roundtrip.attempt(schedule(), "msccl-executor", "Simple", 1, "ring:4", "seed")["outcome"] != "right"
    monkeypatch.setattr(roundtrip, "made", lambda *way: [program])
    monkeypatch.setattr(roundtrip.read, "read", lambda *given, **named: wrong)
    row = roundtrip.attempt(schedule(), "msccl-executor", "Simple", 1, "ring:4", "seed")
    assert row["outcome"] == "wrong"
    assert "another program" in row["why"]


def test_makespans_are_exact_and_tables_say_what_was_measured():
    rows = programs.makespans()
    assert [row["found"] for row in rows] == [row["expected"] for row in rows]
    row = {"collective": "allgather", "point": [2, 3, 2], "runtime": "rccl", "protocol": "LL", "instances": 4}
    good = {"outcome": "right", "ratio": 1.25, "modes": ["in", "out"]}
    document = {
        "rows": [row | {"outcome": "refused", "why": "rccl has at most 3"}, row | good],
        "makespans": rows,
        "torus": {"ops": 1, "lower": 1, "lint": 2, "run": 3},
        "digests": ["a", "b"],
        "time_limit": 60,
        "frontiers": {"allgather": {"complete": False, "points": 1}},
        "where": measure.where(),
    }
    shown = programs.table(document)
    assert "| allgather | rccl | 1 | out and in | 2 | 1 | 1 | 0 | 1.25, 1.25 |" in shown
    assert "| rccl | rccl has at most 3 | 1 |" in shown
    assert "NOT the same bytes" in shown
