"""The buffers of all ranks: one array a rank, of which input, output and scratch are parts.

Rows are chunks. In place, input and output share rows as `Layout.overlaps` says, so a write to one is visible in the
other. Unwritten memory holds poison and is marked unwritten, chunk by chunk and slice by slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from synth.errors import SynthError, UsageError
from synth.program.buffer_layout import Layout
from synth.program.program import Program, Span
from synth.runtime.dtypes import Dtype, poison

MAX_BYTES = 4 << 30  # maximum bytes of all ranks' buffers in the host's memory
_NAMES = {"i": "input", "o": "output", "s": "scratch"}


def maximum_bytes(executor: str) -> int:
    """Return the maximum bytes of all ranks' buffers.

    For a GPU's buffers it is a quarter of this machine's free memory, which holds copies of them for the comparison,
    and never less than `MAX_BYTES`.
    """
    if executor.lower() != "cuda":
        return MAX_BYTES
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return MAX_BYTES
    return max(MAX_BYTES, free // 4)


def check_memory(chunks: int, elements: int, kind: Dtype, most: int = MAX_BYTES) -> None:
    """Raise SynthError where `chunks` chunks, of all ranks together, take more than `most` bytes."""
    needed = chunks * elements * kind.size
    if needed > most:
        raise SynthError(
            f"the buffers of all ranks take {needed / 2**30:.1f} GiB, at most {most >> 30} GiB are allocated;"
            " choose a smaller size, or only the time (--no-data)"
        )


class Arena:
    """The memory of a run.

    `rows[rank]`: the number of rows, one for each chunk. `data[rank]`: an array with these rows; `data` is None in a
    run without data. `written[rank]`: a byte for each slice and row. `second`: the run is a second launch, which uses
    the upper half of a doubled scratch (MSCCL++'s, with packets).
    """

    def __init__(
        self, program: Program, layout: Layout | None, *, in_place: bool, slices: int, second: bool = False
    ) -> None:
        self.second = second
        self.rows: list[int] = []
        self._base: list[dict[str, int]] = []
        self._size: list[dict[str, int]] = []
        for gpu in program.gpus:
            inputs = len(layout.inputs[gpu.rank]) if layout else 0
            outputs = len(layout.outputs[gpu.rank]) if layout else 0
            if gpu.output < outputs:
                raise SynthError(
                    f"{program.name}: rank {gpu.rank} has {gpu.output} chunks of output; {_collective(program)} ends "
                    f"with {outputs} there"
                )
            size = {"i": max(gpu.input, inputs), "o": gpu.output, "s": gpu.scratch}
            at = _overlap(program, layout, gpu.rank) if in_place else None
            first = {"i": 0, "o": size["i"]} if at is None else {"i": max(0, -at), "o": max(0, at)}
            first["s"] = max(first["i"] + size["i"], first["o"] + size["o"]) + size["s"] * second
            self._base.append(first)
            self._size.append(size)
            self.rows.append(first["s"] + size["s"])
        self.written = [bytearray(rows * slices) for rows in self.rows]
        self.data: list[np.ndarray] | None = None

    def allocate(self, kind: Dtype, elements: int) -> None:
        """Allocate poisoned arrays. Raises SynthError where they are too large for one process."""
        check_memory(sum(self.rows), elements, kind)
        self.data = [np.full((rows, elements), poison(kind), kind.numpy) for rows in self.rows]

    def row(self, rank: int, span: Span, count: int, where: Callable[[], str], user: int) -> int:
        """Return the first row of `count` chunks of `span` on `rank`, as rank `user` addresses it.

        In a second launch `user` counts packets on other ranks from the middle of its own scratch, not of theirs.
        Raises SynthError beyond the buffer; `where` names the op.
        """
        size = self._size[rank][span.buffer]
        if span.offset + count > size:
            last = span.offset + count - 1
            raise SynthError(
                f"{where()}: chunk {last} is beyond the {_NAMES[span.buffer]} of rank {rank}, which has {size} chunks"
            )
        astray = self._size[user]["s"] - size if self.second and span.packet else 0
        if not -size <= span.offset + astray <= size - count:
            raise SynthError(
                f"{where()}: in every second launch chunk {span.offset} of the scratch of rank {rank}, which has "
                f"{size} chunks, is sought {astray} farther, as rank {user} has {size + astray}: give all ranks "
                f"equally many"
            )
        return self._base[rank][span.buffer] + span.offset + astray

    def first(self, rank: int, buffer: str) -> int:
        """Return the row at which a buffer begins."""
        return self._base[rank][buffer]

    def name(self, rank: int, row: int) -> str:
        """Return the name of a row, as in ``o[3]``; in place a row of both is named as output."""
        for buffer in "ois":
            at = row - self._base[rank][buffer]
            if 0 <= at < self._size[rank][buffer]:
                return f"{buffer}[{at}]"
        return f"row {row}"

    def view(self, rank: int, buffer: str, chunks: int) -> np.ndarray:
        """Return the first `chunks` rows of a buffer, without a copy."""
        if self.data is None:
            raise SynthError("this run has no data")
        first = self._base[rank][buffer]
        return self.data[rank][first : first + chunks]

    def unwritten(self, rank: int, buffer: str, chunks: int) -> int | None:
        """Return the first chunk, of the first `chunks` of a buffer, that some slice has not written; None: none."""
        first, rows = self._base[rank][buffer], self.rows[rank]
        for base in range(first, len(self.written[rank]), rows or 1):
            hole = self.written[rank].find(0, base, base + chunks)
            if hole >= 0:
                return hole - base
        return None

    def fill(self, inputs: Sequence[np.ndarray | None], layout: Layout, slices: int) -> None:
        """Copy the inputs, in a run with data, and mark their chunks as written."""
        for rank, chunks in enumerate(layout.inputs):
            first, rows = self._base[rank]["i"], self.rows[rank]
            for s in range(slices):
                self.written[rank][s * rows + first : s * rows + first + len(chunks)] = b"\x01" * len(chunks)
            values = inputs[rank] if self.data is not None else None
            if values is not None:
                self.view(rank, "i", len(chunks))[:] = values


def _overlap(program: Program, layout: Layout | None, rank: int) -> int:
    offset = layout.overlaps[rank] if layout else 0
    if offset is None:
        raise UsageError(
            f"{program.name}: {_collective(program)} cannot be called in place: input and output share no consecutive "
            f"chunks"
        )
    return offset


def _collective(program: Program) -> str:
    return program.collective.name if program.collective else "the collective"
