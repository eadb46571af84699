"""Random data and their comparison, piece by piece: large calls are made of periods and compared in blocks."""

import numpy as np
import pytest
from programs import direct_allgather, ring_allreduce

from synth.errors import VerificationError
from synth.program.buffer_layout import Layout
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.reference import buffers
from synth.runtime.reference.executor import Reference


@pytest.mark.parametrize("kind", ["float32", "int8", "bfloat16"])
def test_blocks_and_periods_compare_every_element_as_the_whole_does(monkeypatch, kind):
    for program in (direct_allgather(3), ring_allreduce(3)):
        layout, type_ = Layout(program.collective, program.chunks), dtype(kind)
        monkeypatch.setattr(reference_data, "PERIOD", 5)
        monkeypatch.setattr(reference_data, "FRESH", 0)
        given = reference_data.random_inputs(layout, 23, type_, "sum", 1)
        assert all((rows[:, 5:10] == rows[:, :5]).all() and (rows[:, 20:] == rows[:, :3]).all() for rows in given)
        assert all((rows[:, 5:10] != rows[:, 6:11]).any() for rows in given)
        outputs = Reference().run(program, given, dtype=kind, op="sum", in_place=False).outputs
        whole = reference_data.check(layout, type_, "sum", given, outputs)
        assert whole.elements == sum(rows.size for rows in outputs)
        monkeypatch.setattr(reference_data, "BLOCK", 4)
        assert reference_data.check(layout, type_, "sum", given, outputs) == whole
        for rank, chunk, element in ((0, 0, 0), (2, 1, 22), (1, 2, 7)):
            wrong = [rows.copy() for rows in outputs]
            bits = wrong[rank].view(f"u{type_.size}")
            bits[chunk, element] ^= 1 << (8 * type_.size - 2)
            with pytest.raises(VerificationError, match=f"rank {rank} output chunk {chunk} element {element}: found"):
                reference_data.check(layout, type_, "sum", given, wrong)


def test_how_large_a_call_may_be():
    assert buffers.maximum_bytes("host") == buffers.MAX_BYTES <= buffers.maximum_bytes("CUDA")
    kind = dtype("float32")
    buffers.check_memory(1, 1 << 30, kind)
    with pytest.raises(Exception, match="at most 4 GiB are allocated"):
        buffers.check_memory(2, 1 << 30, kind)
    buffers.check_memory(2, 1 << 30, kind, 8 << 30)
    assert np.dtype("f4").itemsize == kind.size
