"""The host executor beside the reference executor: what the tests of the kernel on CPU threads share."""

import pytest
from programs import broadcast_chain, direct_allgather, recursive_doubling_allreduce, ring_allgather, ring_allreduce

from synth.program.buffer_layout import Layout
from synth.runtime import reference_data
from synth.runtime.dtypes import DTYPES, dtype
from synth.runtime.host.executor import Host
from synth.runtime.kernel import build_host
from synth.runtime.reference.executor import Reference

needs_compiler = pytest.mark.skipif(build_host.compiler() is None, reason="no C++ compiler here: apt install g++")
KNOWN = (
    ring_allgather(4, 2),
    direct_allgather(4),
    ring_allreduce(4),
    recursive_doubling_allreduce(4, 3),
    broadcast_chain(4, 5),
)
# Types of the quick tests: what is rounded, what is rounded by hand, and both sorts of integers.
QUICK = ("float32", "bfloat16", "int32", "uint8")
EVERY_TYPE = [pytest.param(kind.name, marks=() if kind.name in QUICK else pytest.mark.slow) for kind in DTYPES]


def fifo_options(options):
    """The host's options that the reference executor takes too."""
    return {name: options[name] for name in ("protocol", "depth", "part") if name in options}


def same_outputs(program, elements=37, kind="float32", op="sum", in_place=False, seed=0, **options):
    """Run `program` by both executors: the outputs are right, and the same to the bit."""
    layout = Layout(program.collective, program.chunks)
    given = reference_data.random_inputs(layout, elements, dtype(kind), op, seed)
    found = Host(**options).run(program, given, dtype=kind, op=op, in_place=in_place).outputs
    wanted = Reference(**fifo_options(options)).run(program, given, dtype=kind, op=op, in_place=in_place).outputs
    reference_data.check(layout, dtype(kind), op, given, found)
    for rank, (mine, right) in enumerate(zip(found, wanted, strict=True)):
        assert mine.tobytes() == right.tobytes(), f"rank {rank}"
