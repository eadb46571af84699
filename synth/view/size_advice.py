"""Reasons against the point that the cost model recommends at a size: indivisible sizes and very short chunks.

The synchronous model is T = S α + R/C · bytes / bandwidth. It omits the cost of each send beyond the link, which
`--per-send` counts in the times of programs, and assumes that chunks divide every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from synth.model.number_text import number, size_text

ELEMENT = 4  # bytes of a float32, in which messages are counted


class PointCost(NamedTuple):
    """A point of a frontier: its steps S, its chunks C, and its predicted seconds at the size in question."""

    steps: int
    chunks: int
    seconds: float


class CostModel(NamedTuple):
    """The constants of the cost model: α in µs, GB/s of one unit, and the share of the size in one unit of data."""

    latency: Fraction
    unit: Fraction
    share: Fraction

    def chunk(self, size: int, chunks: int) -> Fraction:
        """Return the bytes of one chunk of a message of `size` bytes."""
        return size * self.share / chunks

    def divides(self, size: int, chunks: int) -> bool:
        """Return True if a message of `size` bytes divides into chunks of whole elements."""
        return (self.chunk(size, chunks) / ELEMENT).denominator == 1

    def microseconds(self, size: int, chunks: int) -> Fraction:
        """Return the time in µs of one chunk on a link of one unit."""
        return self.chunk(size, chunks) / self.unit / 1000

    def short(self, size: int, chunks: int) -> bool:
        """Return True where a chunk occupies a link of one unit for less than a latency."""
        return self.microseconds(size, chunks) < self.latency


def advice(
    size: int, wire: CostModel, points: Sequence[PointCost], best: PointCost, per_send: bool = False
) -> list[str]:
    """Return a sentence for each reason against `best`; it names a better point for that reason, if there is one.

    `per_send`: the times of programs beside the points include the cost of messages.
    """
    sentences: list[str] = []
    divisible = [p for p in points if wire.divides(size, p.chunks)]
    if best not in divisible:
        pieces = best.chunks / wire.share * ELEMENT
        pad = -(-size // pieces) * pieces
        padded = f"pad it to {pad} bytes" if pad.denominator == 1 else "pad it"
        other = f"or take the {_point(divisible)}, whose chunks do" if divisible else "as no point's chunks divide it"
        count = best.chunks / wire.share
        each = "" if wire.share == 1 else f" (C={best.chunks} for each part of the data)"
        sentences.append(
            f"{size_text(size)} does not divide into {count} chunks of whole float32 elements{each}; the executors "
            f"here pad it,"
            f" for MSCCL and MSCCL++ {padded}, {other}"
        )
    if wire.short(size, best.chunks):
        longer = [p for p in points if not wire.short(size, p.chunks)]
        instead = f"; with longer chunks there is the {_point(longer)}" if longer else ""
        length, time = size_text(wire.chunk(size, best.chunks)), number(wire.microseconds(size, best.chunks))
        counts = "the times of programs count it" if per_send else "`--per-send` counts it in the times of programs"
        sentences.append(
            f"a chunk is {length}, {time} µs on a link, less than a latency: what each send costs beside the wire is "
            f"not in the synchronous model; {counts}, `synth bench` measures it{instead}"
        )
    return sentences


def _point(points: Sequence[PointCost]) -> str:
    """Return the fastest of `points` in words."""
    least = min(points, key=lambda p: (p.seconds, p.steps))
    return f"{least.steps}-step point (C={least.chunks}; {number(least.seconds * 1e6)} µs)"
