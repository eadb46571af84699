"""ThreadSanitizer over the kernel: silent on right programs, and each kind of broken program or kernel is reported."""

import shutil

import pytest
from programs import broadcast_chain, direct_allgather, racing_broadcast, recursive_doubling_allreduce, ring_allreduce

from synth.program.program import Op, Span
from synth.runtime import kernels, race

pytestmark = pytest.mark.skipif(race.missing() is not None, reason=str(race.missing()))

PROGRAMS = (ring_allreduce(3), recursive_doubling_allreduce(4), direct_allgather(3), broadcast_chain(3, 4))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("threads", [1, 4])
def test_silent_on_right_programs(program, threads):
    assert race.race(program, threads=threads, launches=2) == race.Raced((), False, True)


def without_dependencies(program):
    """Every dependency dropped."""
    return changed(program, lambda r, b, ops: tuple(op._replace(deps=()) for op in ops))


def with_a_second_writer(program):
    """Rank 0: two blocks write output 1."""
    extra = Op("cpy", (Span("i", 0),), (Span("o", 1),))
    return changed(program, lambda r, b, ops: (*ops, extra) if r == 0 and b == len(program.gpus[0].blocks) - 1 else ops)


def changed(program, change):
    from dataclasses import replace

    gpus = tuple(g._replace(blocks=tuple(b._replace(ops=change(g.rank, i, b.ops)) for i, b in enumerate(g.blocks))) for g in program.gpus)
    return replace(program, gpus=gpus)


@pytest.mark.parametrize("program", [without_dependencies(recursive_doubling_allreduce(4, 8)), with_a_second_writer(direct_allgather(3)),
                                     racing_broadcast()], ids=["dropped dependency", "two writers", "unordered read"])  # fmt: skip
def test_races_of_a_program_are_reported_with_one_thread_a_block(program):
    found = race.race(program, threads=1, elements=64, launches=3)
    assert found.races and all(words.startswith("data race") for words in found.races)


KERNELS = {
    "relaxed release": ("wrap.cuh", "value, __ATOMIC_RELEASE", "value, __ATOMIC_RELAXED", 1),
    "relaxed acquire": ("wrap.cuh", "__atomic_load_n(at, __ATOMIC_ACQUIRE)", "__atomic_load_n(at, __ATOMIC_RELAXED)", 1),
    "dropped barrier after the data": ("interp.cuh", "          block_sync(team);\n        }\n", "        }\n", 4),
    "missing credit wait": ("interp.cuh", "if (op.flags & SENDS && sent >= (u64)p.nslots + room", "if (false", 1),
    "missing data wait": ("interp.cuh", "op.flags & RECEIVES && !await", "false && !await", 1),
    "dropped barrier before the data": ("interp.cuh", "if (block_any(team, why)) return;", "if (why) return;", 4),
}  # fmt: skip


def rebuilt(tmp_path, file, old, new):
    folder = tmp_path / "kernel"
    shutil.copytree(kernels.FOLDER, folder)
    text = (folder / file).read_text()
    assert text.count(old) == 1, "the kernel no longer has the place that this test breaks"
    (folder / file).write_text(text.replace(old, new))
    return race.build(folder)


@pytest.mark.parametrize("name", KERNELS)
def test_a_broken_kernel_is_reported(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    file, old, new, threads = KERNELS[name]
    found = race.race(ring_allreduce(4, 16), threads=threads, launches=4, executable=rebuilt(tmp_path, file, old, new))
    assert found.races


def test_a_cleared_flag_leaves_blocks_waiting(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path))
    executable = rebuilt(tmp_path, "interp.cuh", "if (flags & PUBLISHES && last)", "if (false)")
    assert race.race(recursive_doubling_allreduce(4), threads=1, executable=executable).stuck
