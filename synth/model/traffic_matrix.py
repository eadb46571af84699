"""Traffic matrices of nccl-tests' alltoallv: bytes between blanks, row r is what rank r sends, square. So is CSV.

nccl-tests takes a matrix of at least as many rows as ranks, and multiples of 16 bytes. The parts of data of a
collective are equal, so a size is a number of parts: of the greatest common divisor of all sizes, or of a size that is
given.
"""

from __future__ import annotations

from math import gcd
from pathlib import Path
from typing import NamedTuple

from synth.errors import FormatError, UsageError
from synth.model.documents.text_file import text_of

ALIGNMENT = 16  # bytes, of nccl-tests
# The most bytes of a file: a matrix of 1024 ranks with sizes of 10 digits has 11 MB.
MAX_BYTES = 16 << 20
# The most parts of data of a matrix. Searches are quick with some hundred.
MAX_PARTS = 1024
# The largest size in bytes: beyond it no buffer of a rank is.
MAX_SIZE = 1 << 48


class TrafficMatrix(NamedTuple):
    """Numbers of parts: ``counts[src][dst]`` of `part` bytes each. `rounded`: sizes were rounded up to whole parts."""

    counts: tuple[tuple[int, ...], ...]
    part: int
    rounded: bool

    @property
    def size(self) -> int:
        """Bytes of the call: the most that a rank sends or receives, with what it keeps."""
        sent = max(map(sum, self.counts))
        return self.part * max(sent, *map(sum, zip(*self.counts, strict=True)))


def load(path: Path, ranks: int, part: int | None = None) -> TrafficMatrix:
    """Return the first `ranks` rows and columns of the matrix in a file.

    `part`: bytes of a part of the data, to whose multiples sizes are rounded up. Raises FormatError with the line, and
    UsageError for sizes that make more than `MAX_PARTS` parts, which names a size of parts that does not.
    """
    rows = _rows(path, ranks)
    sizes = [size for row in rows for size in row]
    divisor = gcd(*sizes)
    if not divisor:
        raise FormatError(f"all sizes between the {ranks} ranks are 0", str(path))
    if part is not None and (part < ALIGNMENT or part % ALIGNMENT):
        raise UsageError(f"parts of {part} bytes: give a multiple of {ALIGNMENT}")
    unit = part or divisor
    parts = _parts(sizes, unit)
    if parts > MAX_PARTS:
        raise UsageError(
            f"{path}: {parts} parts of {unit} bytes{'' if part else ', the greatest common divisor of the sizes'}; at "
            f"most {MAX_PARTS} are searched. --part with more bytes rounds the sizes up to fewer parts"
        )
    counts = []
    for row in rows:
        counts.append(tuple(-(-size // unit) for size in row))
    return TrafficMatrix(tuple(counts), unit, any(size % unit for size in sizes))


def _parts(sizes: list[int], unit: int) -> int:
    return sum(-(-size // unit) for size in sizes)


def _rows(path: Path, ranks: int) -> list[list[int]]:
    lines: list[tuple[int, list[int]]] = []
    for number, line in enumerate(text_of(path, MAX_BYTES).splitlines(), 1):
        # Sizes stand between blanks, or between commas or semicolons, each once.
        separator = next((mark for mark in ",;" if mark in line), None)
        if line.strip():
            lines.append((number, [_size(cell.strip(), path, number) for cell in line.split(separator)]))
    if not lines:
        raise FormatError("is empty; expected a line of bytes for each rank", str(path))
    rows: list[list[int]] = []
    for number, sizes in lines:
        if len(sizes) != len(lines):
            raise FormatError(f"has {len(sizes)} sizes, and the matrix {len(lines)} rows", str(path), number)
        rows.append(sizes)
    if len(rows) < ranks:
        raise FormatError(f"is a matrix of {len(rows)} ranks; the machine has {ranks}", str(path))
    return [row[:ranks] for row in rows[:ranks]]


def _size(text: str, path: Path, line: int) -> int:
    """Return a size in bytes."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 15 or int(text) > MAX_SIZE:
        reason = f"{text[:24]!r} is no size in bytes, a whole number from 0 to {MAX_SIZE} (no header, no fractions)"
        raise FormatError(reason, str(path), line)
    size = int(text)
    if size % ALIGNMENT:
        raise FormatError(f"{size} bytes are no multiple of {ALIGNMENT}, as nccl-tests asks", str(path), line)
    return size
