"""The caller's arrays as the buffers of a call: checked, one pointer for each buffer of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from synth.errors import UsageError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.dlpack import Facts, Place, by_rank, pointer
from synth.runtime.dtypes import Dtype
from synth.runtime.padding import Padding


class Bound(NamedTuple):
    """`pointers`: by rank: input, output, 0 for scratch. `inputs`, `outputs`: the arrays by rank, None where the call
    has none."""

    pointers: tuple[int, ...]
    inputs: tuple[Facts | None, ...]
    outputs: tuple[Facts | None, ...]


def bound(
    program: Program,
    layout: Layout,
    padding: Padding,
    kind: Dtype,
    inputs: Any,
    outputs: Any,
    *,
    on: Sequence[int] | None,
    in_place: bool,
) -> Bound:
    """Where the arrays of a call lie, which hold no padding. `on`: the GPU of each rank; None: in the host's memory.

    Raises UsageError in one line: too few arrays, another size, type or device, not contiguous, not aligned to an
    element; inputs and outputs that overlap out of place, or do not lie in each other as in place they must.
    """
    pointers = [0] * (3 * program.ranks)
    found: list[list[Facts | None]] = [[None] * program.ranks, [None] * program.ranks]
    for k, (what, given, held) in enumerate((("input", inputs, layout.inputs), ("output", outputs, layout.outputs))):
        for rank, array in enumerate(by_rank(given, program.ranks, what)):
            if not held[rank]:
                continue
            device = None if on is None else on[rank]
            place = Place(
                f"the {what} of rank {rank}", padding.count(len(held[rank])), kind.name, kind.size, device, k == 1
            )
            at = pointer(array, place)
            pointers[3 * rank + k] = at.pointer
            found[k][rank] = at
    for rank in range(program.ranks):
        if layout.inputs[rank] and layout.outputs[rank] and padding.unit:
            _placed(padding, layout, rank, pointers[3 * rank], pointers[3 * rank + 1], kind.size, in_place)
    _apart(
        [(f.device, f.pointer, f.size * kind.size, rank) for rank, f in enumerate(found[1]) if f is not None and f.size]
    )
    return Bound(tuple(pointers), tuple(found[0]), tuple(found[1]))


def _apart(outputs: list[tuple[int | None, int, int, int]]) -> None:
    """Raises UsageError where two ranks' outputs (device, pointer, bytes, rank) share memory."""
    outputs.sort(key=lambda output: (-1 if output[0] is None else output[0], output[1]))
    for (here, at, size, rank), (there, begins, _, other) in pairwise(outputs):
        if here == there and begins < at + size:
            raise UsageError(
                f"the outputs of ranks {min(rank, other)} and {max(rank, other)} overlap; each rank needs its own"
            )


def _placed(padding: Padding, layout: Layout, rank: int, read: int, written: int, width: int, in_place: bool) -> None:
    held, wanted = (padding.count(len(chunks[rank])) * width for chunks in (layout.inputs, layout.outputs))
    if in_place:
        at = padding.count(layout.overlaps[rank] or 0) * width
        if written != read + at:
            where = "begin together" if not at else f"output {abs(at)} bytes {'after' if at > 0 else 'before'} input"
            raise UsageError(
                f"in place, the buffers of rank {rank} are one ({where}); these lie {written - read} bytes apart"
            )
    elif read < written + wanted and written < read + held:
        raise UsageError(f"the input and the output of rank {rank} overlap; a call in place says so (in_place=True)")
