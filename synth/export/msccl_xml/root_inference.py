"""Inference of the root of a broadcast, reduce, gather or scatter from the movement of the data; no file names it."""

from __future__ import annotations

from synth.program.program import Gpu, Op, Program, Span

Piece = tuple[str, int, int]  # buffer, first chunk, one past the last


def root_of(program: Program, name: str) -> int | None:
    """Return the root, or None if it does not follow.

    The root of a broadcast or scatter is the one rank that reads chunks that it never wrote. The root of a reduce or
    gather is the one rank that wrote chunks of the user's buffers and never sent them on.
    """
    decide = _originates if name in ("broadcast", "scatter") else _collects
    same = program.in_place == "in"  # these collectives then have input and output at the same address
    roots = [gpu.rank for gpu in program.gpus if decide(gpu, same)]
    return roots[0] if len(roots) == 1 else None


class _Marks:
    """A set of chunks of the buffers of one rank."""

    def __init__(self) -> None:
        self.bytes = {buffer: bytearray() for buffer in "ios"}

    def add(self, piece: Piece | None) -> None:
        if piece is not None:
            buffer, start, stop = piece
            marks = self.bytes[buffer]
            marks.extend(bytes(max(0, stop - len(marks))))
            marks[start:stop] = b"\1" * (stop - start)

    def beyond(self, other: _Marks, buffers: str) -> bool:
        """True if some chunk of `buffers` is marked here and not in `other`."""
        return any(int.from_bytes(self.bytes[b], "little") & ~int.from_bytes(other.bytes[b], "little") for b in buffers)


def _originates(gpu: Gpu, same: bool) -> bool:
    written, read = _Marks(), _Marks()
    for op in _ops(gpu):
        src, dst = _piece(op.src, op.count, same), _piece(op.dst, op.count, same)
        written.add(_without(dst, src))  # a copy onto itself, as in place, brings nothing
        read.add(src)
    return read.beyond(written, "ios")


def _collects(gpu: Gpu, same: bool) -> bool:
    stored, sent = _Marks(), _Marks()
    for op in _ops(gpu):
        src, dst = _piece(op.src, op.count, same), _piece(op.dst, op.count, same)
        if op.code in ("r", "rrc", "cpy", "re"):
            stored.add(dst)
        # a sum onto itself stays where it is
        sent.add(src if op.code in ("s", "rrs", "rrcs") else _without(src, dst))
    return stored.beyond(sent, "io")


def _ops(gpu: Gpu) -> list[Op]:
    return [op for block in gpu.blocks for op in block.ops]


def _piece(spans: tuple[Span, ...], count: int, same: bool) -> Piece | None:
    if not spans:
        return None
    buffer, offset = spans[0].buffer, spans[0].offset
    return ("o" if same and buffer == "i" else buffer), offset, offset + count


def _without(piece: Piece | None, other: Piece | None) -> Piece | None:
    """Return the part of `piece` outside `other`, which has the same length; None if there is none."""
    if piece is None or other is None or piece[0] != other[0]:
        return piece
    buffer, start, stop = piece
    low, high = (max(start, other[2]), stop) if other[1] <= start else (start, min(stop, other[1]))
    return (buffer, low, high) if low < high else None
