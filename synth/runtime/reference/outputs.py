"""What is done when all blocks of a rank have ended: its output is complete, divided for avg, and its input
untouched."""

from __future__ import annotations

import numpy as np

from synth.errors import VerificationError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.dtypes import Dtype, divide
from synth.runtime.reference.buffers import Arena


def complete(program: Program, arena: Arena, layout: Layout, rank: int) -> None:
    """Raises VerificationError naming a chunk of the rank's output that nothing wrote."""
    hole = arena.unwritten(rank, "o", len(layout.outputs[rank]))
    if hole is not None:
        raise VerificationError(f"{program.name}: nothing writes chunk {hole} of the output of rank {rank}")


def output(arena: Arena, layout: Layout, kind: Dtype, op: str, rank: int) -> np.ndarray:
    """The rank's output, rows being chunks: a view of its memory. For avg the sums are divided there, once."""
    task, wanted = layout.collective, layout.outputs[rank]
    view = arena.view(rank, "o", len(wanted))
    if op == "avg" and task.combining:
        for first in range(0, len(wanted), layout.chunks):
            count = len(task.wanted(wanted[first] // layout.chunks, rank))
            view[first : first + layout.chunks] = divide(kind, view[first : first + layout.chunks], count)
    return view


def unchanged(arena: Arena, layout: Layout, rank: int, given: np.ndarray) -> None:
    """Raises VerificationError where an out-of-place call changed the rank's input `given`."""
    if arena.view(rank, "i", len(layout.inputs[rank])).tobytes() != np.ascontiguousarray(given).tobytes():
        raise VerificationError(f"the input of rank {rank} was changed by an out-of-place call")
