"""Counts that a program's chunks do not divide: the last chunks of every unit of data are filled up.

A unit of u elements in C chunks has chunks of ceil(u/C) elements, for every rank and every unit alike. The elements of
chunk i are those from i * ceil(u/C) on; what lies beyond u is padding, which is moved like data and never seen by the
caller. So a program serves every count, and whatever is right for counts that it divides is right for all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synth.model.collective import Collective
from synth.program.buffer_layout import Layout


class Padding(NamedTuple):
    """A unit of `unit` elements in `chunks` chunks."""

    unit: int
    chunks: int

    @property
    def elements(self) -> int:
        """Elements of one chunk, padding included."""
        return -(-self.unit // self.chunks)

    @property
    def padded(self) -> bool:
        """Whether a unit is shorter than its chunks together."""
        return self.unit != self.elements * self.chunks

    def rows(self, values: np.ndarray, chunks: int) -> np.ndarray:
        """`values`, `chunks` chunks of whole units, as rows of one chunk each, padding 0; a view where there is
        none."""
        if not self.padded:
            return values.reshape(chunks, self.elements)
        found = np.zeros((chunks // self.chunks, self.chunks * self.elements), values.dtype)
        found[:, : self.unit] = values.reshape(-1, self.unit)
        return found.reshape(chunks, self.elements)

    def units(self, rows: np.ndarray) -> np.ndarray:
        """`rows` of one chunk each without the padding, as rows of one unit each: a view. As they are where there is
        none."""
        return rows.reshape(-1, self.chunks * self.elements)[:, : self.unit] if self.padded else rows

    def layout(self, task: Collective) -> Layout:
        """The layout of the buffers that `units` returns: a chunk for each unit where there is padding, else as in the
        program."""
        return Layout(task, 1 if self.padded else self.chunks)

    def count(self, chunks: int) -> int:
        """Elements of so many chunks of whole units, without the padding."""
        return chunks // self.chunks * self.unit
