"""ThreadSanitizer over the kernel: silent on right programs, and each kind of broken program or kernel is reported."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import thread_sanitizer
from programs import broadcast_chain, direct_allgather, racing_broadcast, recursive_doubling_allreduce, ring_allreduce
from thread_sanitizer import Executable, RaceReport, find_races

from synth.commands import api
from synth.export import program_reader
from synth.export.mscclpp.read import read
from synth.program import direct_writes
from synth.program.program import Dep, Op, Program, Span
from synth.runtime.kernel import sources, transports
from tests.test_foreign_plans import PLANS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(thread_sanitizer.missing() is not None, reason=str(thread_sanitizer.missing())),
]

SILENT = RaceReport((), False, True)
PROGRAMS = (ring_allreduce(4), recursive_doubling_allreduce(4), direct_allgather(4), broadcast_chain(4, 4))


NETWORK = api.topology("fully-connected:4").network()
WAYS = {
    "fifo": {"direct": False},
    "direct": {},
    "packets": {"protocol": "LL"},
    "clock": {"clock": "logical"},
    "a launch a rank": {"ranks_on": (0, 0, 0, 0)},
    "packets, a launch a rank": {"protocol": "LL", "ranks_on": (0, 0, 0, 0)},
}


@pytest.mark.parametrize("way", WAYS)
def test_silent_on_right_programs(way):
    for program in PROGRAMS:
        options = WAYS[way] | ({"network": NETWORK} if way == "clock" else {})
        found = find_races(program, threads=4, launches=3, **options)
        assert found == SILENT


def without_dependencies(program):
    """Every dependency dropped."""
    return changed(program, lambda r, b, ops: tuple(op._replace(deps=()) for op in ops))


def with_a_second_writer(program):
    """Rank 0: two blocks write output 1."""
    extra = Op("cpy", (Span("i", 0),), (Span("o", 1),))
    return changed(program, lambda r, b, ops: (*ops, extra) if r == 0 and b == len(program.gpus[0].blocks) - 1 else ops)


def changed(program, change):
    gpus = tuple(
        g._replace(blocks=tuple(b._replace(ops=change(g.rank, i, b.ops)) for i, b in enumerate(g.blocks)))
        for g in program.gpus
    )
    return replace(program, gpus=gpus)


BROKEN = {
    "dropped dependency": without_dependencies(recursive_doubling_allreduce(4, 8)),
    "two writers": with_a_second_writer(direct_allgather(4)),
    "unordered read": racing_broadcast(),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("options", [{"direct": False}, {}, {"protocol": "LL"}], ids=["fifo", "direct", "packets"])
def test_races_of_a_program_are_reported_with_one_thread_a_block(name, options):
    found = find_races(BROKEN[name], threads=1, elements=64, launches=3, **options)
    assert found.races and all(words.startswith("data race") for words in found.races)


def test_a_put_that_was_not_proved_safe_is_reported(monkeypatch):
    """Rank 1 reads what it has received in another block before it receives there again: the sender knows nothing of
    that."""
    program = api.lower(api.baseline("direct", "fully-connected:4", "alltoall"))
    gpus = []
    for gpu in program.gpus:
        copies = Op("cpy", (Span("o", 0),), (Span("s", 0),))
        block, at = next(
            (b, i)
            for b, held in enumerate(gpu.blocks)
            for i, op in enumerate(held.ops)
            if op.dst and op.dst[0] == ("o", 0, None, False)
        )
        reader = gpu.blocks[0]._replace(send=None, recv=None, channel=9, ops=(copies,) * 9)
        blocks = [
            held
            if b != block
            else held._replace(
                ops=tuple(
                    op._replace(deps=(*op.deps, Dep(len(gpu.blocks), 8))) if i == at else op
                    for i, op in enumerate(held.ops)
                )
            )
            for b, held in enumerate(gpu.blocks)
        ]
        gpus.append(gpu._replace(scratch=gpu.scratch + 1, blocks=(*blocks, reader)))
    odd = replace(program, gpus=tuple(gpus))
    assert find_races(odd, threads=1, elements=64) == SILENT

    def unproved(program, in_place, part):
        found = {}
        for send, receive in direct_writes._pairs(program).items():
            rank, block, at = receive
            if program.gpus[rank].blocks[block].ops[at].code in direct_writes.STORING:
                found[send] = receive
        return found

    monkeypatch.setattr(transports, "direct_sends", unproved)
    assert find_races(odd, threads=1, elements=64).races


FIFO, PACKETS, APART = {"direct": False}, {"protocol": "LL"}, {"ranks_on": (0, 0, 0, 0), "depth": 8}
TIMED = {"clock": "logical", "network": NETWORK}
KERNELS = {
    "relaxed release": ("wrap.cuh", "value, __ATOMIC_RELEASE", "value, __ATOMIC_RELAXED", 1, FIFO),
    "relaxed acquire": (
        "wrap.cuh",
        "__atomic_load_n(at, __ATOMIC_ACQUIRE)",
        "__atomic_load_n(at, __ATOMIC_RELAXED)",
        1,
        FIFO,
    ),
    "dropped barrier after the data": (
        "interp.cuh",
        "          block_sync(team);\n        }\n",
        "        }\n",
        4,
        FIFO,
    ),
    "missing credit wait": ("interp.cuh", "if (op.flags & SENDS && sent >= (u64)p.nslots + room", "if (false", 1, FIFO),
    "missing data wait": ("interp.cuh", "op.flags & RECEIVES && !await", "false && !await", 1, FIFO),
    "dropped barrier before the data": ("interp.cuh", "if (block_any(team, why)) return;", "if (why) return;", 4, FIFO),
    "put before the receiver has begun": (
        "interp.cuh",
        "if (F & DIRECT && !why && puts && !entered)",
        "if (false)",
        1,
        APART,
    ),
    "dropped barrier after packets": ("interp.cuh", "if (block_any(team, gone))", "if (gone)", 4, PACKETS),
    "link taken out of turn": ("clock.cuh", "if (!await(p, clock.turns + route.line, ticket))", "if (false)", 1, TIMED),
}


def rebuilt(tmp_path, file, old, new):
    folder = tmp_path / "kernel"
    shutil.copytree(sources.FOLDER, folder)
    text = (folder / file).read_text()
    assert text.count(old) == 1, "the kernel no longer has the place that this test breaks"
    (folder / file).write_text(text.replace(old, new))
    return folder


@pytest.mark.parametrize("name", KERNELS)
def test_a_broken_kernel_is_reported(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    file, old, new, threads, options = KERNELS[name]
    program = ring_allreduce(4, 16)
    if name == "link taken out of turn":  # two connections of one link
        program = api.lower(api.baseline("ring", "ring:4", "allreduce"), instances=2)
        options = options | {"network": api.topology("ring:4").network()}
    elif options == APART:  # rank 0 waits for nobody, but for room
        program = broadcast_chain(4, 4)
    elif options == PACKETS:  # what one thread writes another block's threads read
        program = recursive_doubling_allreduce(4, 4)
    folder = rebuilt(tmp_path, file, old, new)
    # a race is seen where two threads meet unordered; on a busy machine they may take turns, so a run that shows none
    # is tried again
    tries = (
        find_races(
            program, threads=threads, launches=4, elements=40, executable=Executable(folder, limit=20), **options
        )
        for _ in range(5)
    )
    assert any(found.races for found in tries)


@pytest.mark.parametrize("old, new", [
    ("return low >> 32 == flag && high >> 32 == flag;", "return true;"),  # data without their flags
    ("(u64)flag << 32 | data >> 32", "(u64)7 << 32 | data >> 32"),  # half of a line with another flag
], ids=["flags not looked at", "a flag of another message"])  # fmt: skip
def test_packets_without_right_flags_are_wrong_or_stuck(old, new, tmp_path, monkeypatch):
    """They are atomic, so there is no race to report: the results are wrong, or nobody takes them."""
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    folder = tmp_path / "kernel"
    shutil.copytree(sources.FOLDER, folder)
    text = (folder / "wrap.cuh").read_text()
    assert text.count(old) == 2  # of CPU threads, and of GPUs
    (folder / "wrap.cuh").write_text(text.replace(old, new, 1))
    found = find_races(
        ring_allreduce(4), threads=2, launches=2, timeout=0.5, executable=Executable(folder, limit=20), **PACKETS
    )
    assert found.stuck or not found.right


def test_a_cleared_flag_leaves_blocks_waiting(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    folder = rebuilt(tmp_path, "interp.cuh", "if (flags & PUBLISHES && last)", "if (false)")
    assert find_races(recursive_doubling_allreduce(4), threads=1, executable=Executable(folder), timeout=0.5).stuck


# ---------------------------------------------------------------- one-sided plans


PEERS = Path(__file__).parents[2] / "shared" / "peer-plans"


def launched(program: Program, **options: Any) -> RaceReport:
    return find_races(program, in_place=program.in_place == "in", **options)


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_every_form(name):
    chosen = read(json.dumps(PLANS[name]))
    assert launched(chosen, threads=4, elements=96, launches=3) == SILENT
    assert launched(chosen, threads=1, elements=96, launches=100, executable=Executable(watch=False)) == SILENT


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
