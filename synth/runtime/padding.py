"""Padding of element counts that a program's chunks do not divide.

A unit of u elements in C chunks has chunks of ceil(u/C) elements, for every rank and every unit alike. Chunk i begins
at element i * ceil(u/C). Elements beyond u are padding, which is moved like data and never visible to the caller. So a
program serves every count, and a program that is right for counts that its chunks divide is right for all.
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
    def row_elements(self) -> int:
        """Elements of a row of `layout`: of a unit where there is padding, else of a chunk."""
        return self.unit if self.padded else self.elements

    @property
    def padded(self) -> bool:
        """True if the chunks do not divide the unit, so that they hold padding."""
        return self.unit != self.elements * self.chunks

    def rows(self, values: np.ndarray, chunks: int) -> np.ndarray:
        """Return `values`, which are `chunks` chunks of whole units, as rows of one chunk each.

        Padding is 0; without padding the result is a view.
        """
        if not self.padded:
            return values.reshape(chunks, self.elements)
        result = np.zeros((chunks // self.chunks, self.chunks * self.elements), values.dtype)
        result[:, : self.unit] = values.reshape(-1, self.unit)
        return result.reshape(chunks, self.elements)

    def units(self, rows: np.ndarray) -> np.ndarray:
        """Return `rows` of one chunk each as rows of one unit each, without the padding: a view.

        Without padding, `rows` are returned as they are.
        """
        return rows.reshape(-1, self.chunks * self.elements)[:, : self.unit] if self.padded else rows

    def layout(self, task: Collective) -> Layout:
        """Return the layout of the rows that `units` returns: one chunk a unit where there is padding."""
        return Layout(task, 1 if self.padded else self.chunks)

    def count(self, chunks: int) -> int:
        """Return the elements of `chunks` chunks of whole units, without the padding."""
        return chunks // self.chunks * self.unit
