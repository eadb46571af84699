"""The end of a rank's run: its output is checked for gaps, divided for avg, and its input checked for changes."""

from __future__ import annotations

import numpy as np

from synth.errors import VerificationError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.dtypes import Dtype, divide
from synth.runtime.reference.buffers import Arena


def check_complete(program: Program, arena: Arena, layout: Layout, rank: int) -> None:
    """Raise VerificationError, which names the chunk, if some chunk of the rank's output was never written."""
    hole = arena.unwritten(rank, "o", len(layout.outputs[rank]))
    if hole is not None:
        raise VerificationError(f"{program.name}: nothing writes chunk {hole} of the output of rank {rank}")


def output(arena: Arena, layout: Layout, kind: Dtype, op: str, rank: int) -> np.ndarray:
    """Return the rank's output, a view of its memory whose rows are chunks.

    For avg each call divides the sums there, so it must be called once.
    """
    collective, wanted = layout.collective, layout.outputs[rank]
    view = arena.view(rank, "o", len(wanted))
    if op == "avg" and collective.combining:
        for first in range(0, len(wanted), layout.chunks):
            count = len(collective.wanted(wanted[first] // layout.chunks, rank))
            view[first : first + layout.chunks] = divide(kind, view[first : first + layout.chunks], count)
    return view


def check_input_unchanged(arena: Arena, layout: Layout, rank: int, given: np.ndarray) -> None:
    """Raise VerificationError if the rank's input differs from `given`; to be called after a call out of place."""
    if arena.view(rank, "i", len(layout.inputs[rank])).tobytes() != np.ascontiguousarray(given).tobytes():
        raise VerificationError(f"the input of rank {rank} was changed by an out-of-place call")
