"""Checks of the caller's arrays, and their addresses as the buffers of a call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from synth.errors import UsageError
from synth.program.buffer_layout import Layout
from synth.runtime.array_info import ArrayInfo, ArrayRequirements, by_rank, checked_array_info
from synth.runtime.dtypes import Dtype
from synth.runtime.slicing import Padding


class ArrayLayout(NamedTuple):
    """The sizes, type and places that the arrays of a call must have.

    `on`: the GPU of each rank; None: arrays in the host's memory.
    """

    layout: Layout
    padding: Padding
    kind: Dtype
    on: Sequence[int] | None
    in_place: bool


class BoundArrays(NamedTuple):
    """The arrays of a call. `pointers`: input, output and 0 for scratch, of each rank in turn.

    `inputs`, `outputs`: the arrays by rank; None where the call has none.
    """

    pointers: tuple[int, ...]
    inputs: tuple[ArrayInfo | None, ...]
    outputs: tuple[ArrayInfo | None, ...]


def bind_arrays(call: ArrayLayout, inputs: Any, outputs: Any) -> BoundArrays:
    """Return the addresses of the caller's arrays, which hold no padding.

    Raises UsageError for a wrong number of arrays, a wrong size, type or device, an array that is not contiguous or not
    aligned to an element, inputs and outputs that overlap out of place, and those that do not overlap as a call in
    place needs it.
    """
    layout, padding, kind, on, in_place = call
    ranks = layout.collective.ranks
    pointers = [0] * (3 * ranks)
    arrays: list[list[ArrayInfo | None]] = [[None] * ranks, [None] * ranks]
    buffers = (("input", inputs, layout.inputs), ("output", outputs, layout.outputs))
    for k, (name, values, chunks) in enumerate(buffers):
        for rank, array in enumerate(by_rank(values, ranks, name)):
            if not chunks[rank]:
                continue
            device, size = None if on is None else on[rank], padding.count(len(chunks[rank]))
            place = ArrayRequirements(
                f"the {name} of rank {rank}", size, kind.name, kind.size, device, writes=name == "output"
            )
            facts = checked_array_info(array, place)
            pointers[3 * rank + k] = facts.pointer
            arrays[k][rank] = facts
    for rank in range(ranks):
        if layout.inputs[rank] and layout.outputs[rank] and padding.unit:
            begins = pointers[3 * rank], pointers[3 * rank + 1]
            # Input and output of `rank`, with the addresses `begins`, must overlap as
            # the call needs it.
            read, written = begins
            read_bytes = padding.count(len(layout.inputs[rank])) * kind.size
            written_bytes = padding.count(len(layout.outputs[rank])) * kind.size
            if in_place:
                offset = padding.count(layout.overlaps[rank] or 0) * kind.size
                if written != read + offset:
                    if offset == 0:
                        rule = "begin together"
                    elif offset > 0:
                        rule = f"output {offset} bytes after input"
                    else:
                        rule = f"output {-offset} bytes before input"
                    raise UsageError(
                        f"in place, the buffers of rank {rank} are one ({rule}); these lie {written - read} bytes apart"
                    )
            elif read < written + written_bytes and written < read + read_bytes:
                raise UsageError(
                    f"the input and the output of rank {rank} overlap; a call in place says so (in_place=True)"
                )
    extents: list[tuple[int, int, int, int]] = []
    for rank, output in enumerate(arrays[1]):
        if output is not None and output.size:
            device = -1 if output.device is None else output.device
            extents.append((device, output.pointer, output.size * kind.size, rank))
    # No two ranks' outputs (device, address, bytes, rank) may share memory.
    for (device, begin, size, rank), (next_device, next_begin, _, next_rank) in pairwise(
        sorted(extents, key=lambda output: output[:2])
    ):
        if device == next_device and next_begin < begin + size:
            raise UsageError(
                f"the outputs of ranks {min(rank, next_rank)} and {max(rank, next_rank)} overlap; each rank needs its "
                f"own"
            )
    return BoundArrays(tuple(pointers), tuple(arrays[0]), tuple(arrays[1]))
