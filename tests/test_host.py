"""The kernel on CPU threads: right to the bit for every type and operator, launch after launch, and no wait without
end."""

import ctypes
import random
import shutil

import numpy as np
import pytest
import random_programs
from host_runs import EVERY_TYPE, QUICK, needs_compiler
from host_runs import same_outputs as both
from programs import put_allgather, ring_allgather, ring_allreduce

from synth.commands import api
from synth.errors import MissingDependencyError, SynthError, UsageError, VerificationError
from synth.model.collective import collective
from synth.program.buffer_layout import Layout
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Block, Gpu, Op, Program, Span
from synth.runtime.dtypes import DTYPES, OPERATORS, dtype
from synth.runtime.host.executor import Host
from synth.runtime.kernel import build_host, logical_clock, sources, tables
from synth.runtime.reference.executor import Reference

pytestmark = needs_compiler


@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_every_type_and_operator_equals_the_reference_to_the_bit(kind):
    for op in OPERATORS:
        both(ring_allreduce(3), kind=kind, op=op, threads=2)


@pytest.mark.parametrize(
    "seeds", [range(20), pytest.param(range(20, 1000), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_programs_of_the_chunk_language(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        options = LoweringOptions(protocol=rng.choice(("Simple", "LL", "LL128")), instances=rng.randint(1, 2))
        program = lower(random_programs.schedule(seed), options)
        both(program, rng.choice((1, 7, 100)), rng.choice(QUICK), threads=rng.choice((1, 2, 4)))


def test_local_reductions_and_copies():
    ops = (Op("re", (Span("i", 0),), (Span("s", 0),)), Op("cpy", (Span("s", 0),), (Span("o", 0),)))

    def gpu(r):
        first = (Op("r", (), (Span("s", 0),)), *ops) if r else (Op("s", (Span("i", 0),)), Op("r", (), (Span("o", 0),)))
        peer = 1 - r
        back = (Op("s", (Span("o", 0),)),) if r else ()
        return Gpu(r, 1, 1, 1, (Block(peer, peer, 0, first + back),))

    program = Program("there-and-back", collective("allreduce", 2), 1, (gpu(0), gpu(1)))
    for op in OPERATORS:
        both(program, 5, "int32", op, threads=3)


def test_float16_is_rounded_as_numpy_does():
    """All 65 536 values and 200 000 random sums: infinities, subnormals and ties among them."""
    program, layout = ring_allreduce(2), Layout(collective("allreduce", 2), 2)
    rng = np.random.default_rng(1)
    for name in ("float16", "bfloat16"):
        kind = dtype(name)
        every = np.arange(65536, dtype=np.uint16).view(kind.numpy).reshape(2, -1)
        other = rng.integers(0, 65536, every.size, np.uint16).view(kind.numpy).reshape(2, -1)
        for op in ("sum", "prod", "max"):
            found, wanted = (
                made.run(program, [every, other], dtype=name, op=op, in_place=False).outputs
                for made in (Host(threads=2), Reference())
            )
            for mine, right in zip(found, wanted, strict=True):
                a, b = mine.astype(np.float32), right.astype(np.float32)
                assert np.array_equal(a, b, equal_nan=True)
    assert layout.inputs[0] == (0, 1)


def test_messages_left_behind_do_not_reach_the_next_launch():
    ops = (Op("s", (Span("i", 0),)), Op("s", (Span("i", 0),)))
    gpus = (
        Gpu(0, 1, 1, 0, (Block(1, None, 0, ops),)),
        Gpu(1, 0, 1, 0, (Block(None, 0, 0, (Op("r", (), (Span("o", 0),)),)),)),
    )
    cpy = Block(None, None, 0, (Op("cpy", (Span("i", 0),), (Span("o", 0),)),))
    program = Program(
        "one-too-many", collective("broadcast", 2), 1, (gpus[0]._replace(blocks=(*gpus[0].blocks, cpy)), gpus[1])
    )
    machine, arena = Host(threads=1).load(program, 4, dtype("int32"), in_place=False)
    for value in (1, 2, 3):
        arena.view(0, "i", 1)[:] = value
        machine.launch(build_host.library("copy").synth_copy, 1, 4)
        assert (arena.view(1, "o", 1) == value).all()


def test_records_are_as_large_as_the_kernels():
    sizes = (ctypes.c_longlong * 12)()
    build_host.library("copy").synth_sizes(sizes)
    records = (*tables.RECORDS, *logical_clock.RECORDS, *tables.ONE_SIDED_RECORDS)
    assert list(sizes) == [record.itemsize for record in records]


def test_what_it_refuses():
    given = [np.zeros((1, 4), np.float32)] * 3
    with pytest.raises(UsageError, match="one-sided: the kernel keeps logical time for programs of sends"):
        Host(clock="logical", network=api.topology("ring:3").network()).run(put_allgather(3), given, dtype="float32")
    with pytest.raises(UsageError, match="threads"):
        Host(threads=0).run(ring_allgather(3), given, dtype="float32")
    with pytest.raises(UsageError, match="no-data"):
        api.run(ring_allgather(3), executor="host", data=False)
    program = ring_allgather(3, 2)
    block = program.gpus[0].blocks[0]
    bad = Op("cpy", (Span("o", 0),), (Span("o", 1),), 2)
    broken = program.gpus[0]._replace(blocks=(block._replace(ops=(*block.ops, bad)),))
    with pytest.raises(SynthError, match="overlap in part"):
        Host().run(
            Program("p", program.collective, 2, (broken, *program.gpus[1:])),
            [np.zeros((2, 4), np.float32)] * 3,
            dtype="float32",
        )
    ops = (*block.ops[:-1], block.ops[-1]._replace(count=1), block.ops[-1]._replace(count=1))
    broken = program.gpus[0]._replace(blocks=(block._replace(ops=ops),))
    with pytest.raises(VerificationError, match="takes 1 chunks"):
        Host().run(
            Program("p", program.collective, 2, (broken, *program.gpus[1:])),
            [np.zeros((2, 4), np.float32)] * 3,
            dtype="float32",
        )


def test_a_wrong_program_is_found_wrong():
    program = ring_allgather(3)
    block = program.gpus[1].blocks[0]
    wrong = program.gpus[1]._replace(
        blocks=(block._replace(ops=(*block.ops[:-1], block.ops[-1]._replace(dst=(Span("o", 1),)))),)
    )
    with pytest.raises(VerificationError, match="rank 1 output chunk"):
        api.run(Program("p", program.collective, 1, (program.gpus[0], wrong, program.gpus[2])), executor="host")


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert Host().available() == "needs g++: apt install g++"
    with pytest.raises(SynthError, match="needs g\\+\\+: apt install g\\+\\+"):
        api.run(ring_allgather(3), executor="host")
    with pytest.raises(MissingDependencyError, match="apt install g"):
        build_host.build("int main() {}", tmp_path / "a")


def test_a_compiler_that_fails_is_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    with pytest.raises(SynthError) as error:
        build_host.build('#include "host.cpp"\nSYNTH_KERNEL(x, nonsense, Sum, 0)\n', tmp_path / "a")
    assert "cannot compile" in str(error.value) and "\n" not in str(error.value)


def test_groups_cover_every_instance():
    programs = (ring_allgather(3), ring_allreduce(3))
    made = {
        sources.instance(p, kind, op, way)
        for p in programs
        for kind in DTYPES
        for op in OPERATORS
        for way in sources.FEATURES
    }
    assert {m.symbol for m in made} == {symbol for group in sources.GROUPS for symbol in sources.symbols(group)}
