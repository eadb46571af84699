"""Counts that chunks do not divide: every program serves every count, on every executor, in place too, for every
collective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from host_runs import needs_compiler
from programs import put_allgather, recursive_doubling_allreduce, ring_allgather, ring_allreduce
from test_arrays import Tensor

import synth
from synth.commands import api
from synth.errors import UsageError, VerificationError
from synth.model.collective import COLLECTIVES, collective
from synth.program.buffer_layout import Layout
from synth.program.program import Span
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.slicing import Padding

CANARY = 77.0
RANKS = 4
SIZES = {
    "allgatherv": (1, 2, 0, 3),
    "reduce-scatterv": (1, 2, 0, 3),
    "alltoallv": ((0, 1, 2, 1), (1, 0, 0, 1), (2, 1, 0, 1), (1, 1, 1, 0)),
}


def program(name, instances=3):
    """`name` on a ring of four by shortest ways, each unit in 3 (allreduce: 12) chunks."""
    task = collective(name, RANKS, sizes=SIZES.get(name))
    return api.lower(api.baseline("direct", f"ring:{RANKS}", task), instances=instances)


@pytest.mark.parametrize("unit", [0, 1, 2, 5, 7, 11, 12, 13])
@pytest.mark.parametrize("chunks", [1, 3, 12])
def test_rows_hold_the_units_and_zeros(unit, chunks):
    padding = Padding(unit, chunks)
    values = np.arange(1, 2 * unit + 1)
    rows = padding.rows(values, 2 * chunks)
    assert rows.shape == (2 * chunks, -(-unit // chunks)) and rows.sum() == values.sum()
    assert padding.units(rows).reshape(-1).tolist() == values.tolist()
    assert padding.padded == (unit % chunks > 0) and padding.count(2 * chunks) == 2 * unit
    if padding.padded:
        assert not rows.reshape(2, -1)[:, unit:].any()


@pytest.mark.parametrize("name", sorted(set(COLLECTIVES) - {"scan"}))
def test_the_reference_serves_every_count_of_every_collective(name):
    """Compared element by element with the definition at the caller's counts."""
    made = program(name)
    units = made.loop_chunks // made.chunks
    for count in (1, 2, 5, 7):
        for in_place in (False, True) if made.in_place == "both" else (False,):
            done = api.run(made, size=count * units * 4, in_place=in_place)
            layout = Layout(made.collective, 1)
            assert done.size == count * units * 4 and [len(o) for o in done.outputs] == [
                count * len(w) for w in layout.outputs
            ]
            assert done.checked.elements == count * sum(map(len, layout.outputs))


def test_arrays_of_any_length_and_the_size_of_the_call():
    given = [np.arange(7, dtype=np.int64) * (r + 1) for r in range(3)]
    done = api.run(ring_allreduce(3, 6), given)
    assert done.size == 56
    assert [o.tolist() for o in done.outputs] == [(np.arange(7) * 6).tolist()] * 3
    gathered = api.run(ring_allgather(3, 2), np.arange(15).reshape(3, 5)).outputs
    assert [o.tolist() for o in gathered] == [list(range(15))] * 3


def test_what_is_sent_is_whole_chunks():
    """On a link go the bytes of padded chunks, and the time is that of the next count that divides."""
    made, ring = ring_allgather(4, 3), api.topology("ring:4")
    odd, whole = (api.run(made, size=4 * 4 * count, topology=ring) for count in (7, 9))
    assert odd.execution.picoseconds == whole.execution.picoseconds and odd.execution.links == whole.execution.links
    assert odd.size < whole.size and odd.ratio > 1
    assert api.run(made, size=4 * 4 * 7, topology=ring, data=False).execution.picoseconds == odd.execution.picoseconds


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max", "avg"])
def test_every_operator_in_short_types(op):
    for kind in ("float16", "bfloat16", "int8"):
        size = 7 * dtype(kind).size
        assert api.run(recursive_doubling_allreduce(4, 4), size=size, dtype=kind, op=op).checked.elements == 4 * 7


def test_one_sided_programs_and_small_fifos():
    assert api.run(put_allgather(4, 3), size=4 * 4 * 7).checked.elements == 4 * 4 * 7
    for options in ({"protocol": "LL"}, {"depth": 6, "part": 1}, {"delays": 5}):
        assert api.run(ring_allreduce(4, 12), size=4 * 50_003, **options).checked.elements == 4 * 50_003


def test_a_wrong_program_is_still_found_out():
    """An element is missing in the last chunk, of which the caller sees one element only."""
    good = ring_allgather(3, 2)
    block = good.gpus[1].blocks[0]
    early = block.ops[1]._replace(dst=(Span("o", 2),), src=(Span("i", 1),), count=1)
    wrong = replace(
        good,
        gpus=(good.gpus[0], good.gpus[1]._replace(blocks=(block._replace(ops=(*block.ops, early)),)), good.gpus[2]),
    )
    with pytest.raises(VerificationError, match="rank 1 output chunk 1 element 0"):
        api.run(wrong, size=3 * 4 * 3, seed=2)


# ---------------------------------------------------------------- the kernel


@needs_compiler
@pytest.mark.parametrize("name", ["allgather", "allreduce", "reduce-scatter", "alltoall", "broadcast", "allgatherv"])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_the_kernel_serves_every_count(name, protocol):
    made = program(name)
    units = made.loop_chunks // made.chunks
    for count in (1, 5, 7):
        for in_place in (False, True) if made.in_place == "both" else (False,):
            done = api.run(
                made, executor="host", threads=2, size=count * units * 4, in_place=in_place, protocol=protocol
            )
            assert done.size == count * units * 4
    if protocol == "Simple":
        assert api.run(made, executor="host", threads=1, size=5 * units * 4, ranks_on=(0, 0, 1, 1)).checked.elements


def guarded(count, kind=np.float32):
    """An array of `count` elements between two that nobody may touch, and the whole of it."""
    whole = np.full(count + 2, CANARY, kind)
    return whole[1:-1], whole


@needs_compiler
@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_callers_arrays_are_filled_to_their_ends_and_no_further(op, in_place):
    made = program("allreduce", instances=1)
    given = reference_data.random_inputs(Layout(made.collective, 1), 7, dtype("f32"), op, 3)
    held = [guarded(7) for _ in range(RANKS)]
    got = held if in_place else [guarded(7) for _ in range(RANKS)]
    for (array, _), rows in zip(held, given, strict=True):
        array[:] = rows[0]
    ready = synth.prepare(made, [a for a, _ in held], [a for a, _ in got], executor="host", op=op, in_place=in_place)
    for _ in range(1 if in_place else 3):
        ready.launch()
        ready.finish()
        reference_data.check(Layout(made.collective, 1), dtype("f32"), op, given, [a.reshape(1, 7) for a, _ in got])
    assert all(whole[0] == whole[-1] == CANARY for _, whole in (*held, *got))
    if not in_place:
        assert all((array == rows[0]).all() for (array, _), rows in zip(held, given, strict=True))


@needs_compiler
def test_in_place_parts_of_the_larger_buffer_lie_where_the_layout_says():
    made = ring_allgather(3, 4)
    whole = [np.zeros(15, np.float32) for _ in range(3)]
    for rank, array in enumerate(whole):
        array[5 * rank : 5 * rank + 5] = np.arange(5) + 10 * rank
    parts = [array[5 * rank : 5 * rank + 5] for rank, array in enumerate(whole)]
    ready = synth.prepare(made, parts, whole, executor="host", in_place=True)
    ready.launch()
    assert [array.tolist() for array in whole] == [[*range(5), *range(10, 15), *range(20, 25)]] * 3
    with pytest.raises(UsageError, match="output 20 bytes before input"):
        synth.prepare(made, [array[:5] for array in whole], whole, executor="host", in_place=True)


@needs_compiler
@pytest.mark.parametrize("ranks_on", [None, (0, 0, 1), (0, 1, 2)])
def test_arrays_on_gpus_are_copied_in_and_out_on_the_stream(gpu, ranks_on):
    """On the stand-in for CuPy: nothing allocates or waits in a launch, also while a graph is captured."""
    cupy = gpu(gpus=3)
    made, on = ring_allreduce(3, 6), ranks_on or (0, 0, 0)
    given = reference_data.random_inputs(Layout(made.collective, 1), 7, dtype("f32"), "sum", 4)
    got = [np.full(7, CANARY, np.float32) for _ in range(3)]
    arrays = [[Tensor(a.reshape(-1), gpu=on[rank]) for rank, a in enumerate(side)] for side in (given, got)]
    ready = synth.prepare(made, *arrays, ranks_on=ranks_on)
    stream, before = cupy.Stream(), (cupy.allocations, cupy.waits)
    stream.begin_capture()
    ready.launch(stream)
    graph = stream.end_capture()
    assert (cupy.allocations, cupy.waits) == before
    for _ in range(2):
        for array in got:
            array[:] = CANARY
        graph.launch(stream)
        ready.finish(stream)
        reference_data.check(Layout(made.collective, 1), dtype("f32"), "sum", given, [a.reshape(1, 7) for a in got])
    # inputs before all launches, outputs after
    last = max(k for k, what in enumerate(cupy.log) if what == "launch")
    assert cupy.log[:last].count("copy") == 3 and cupy.log[last:].count("copy") == 3
