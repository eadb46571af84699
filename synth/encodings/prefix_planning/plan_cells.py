"""What a plan of `synth.encodings.prefix_planning.prioritized_planner` is made of: slots, how each comes to hold its
sum, and what a sum is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Slot = tuple[int, int]  # a rank and a time: 0 after the last step, -1 before it


class Parts(NamedTuple):
    """What a sum is made of: ``(sum, rank)`` that are to be held somewhere, and the ranks whose inputs are added. Sums
    are bit sets."""

    sums: tuple[tuple[int, int], ...]
    inputs: tuple[int, ...]


class Stuck(Exception):
    """There is no free way for something that is needed."""


@dataclass(eq=False)
class Cell:
    """How a slot comes to hold its sum: whether it keeps what it held, adds its rank's input, and what arrives over
    which routes."""

    keeps: bool = False
    own: bool = False
    totals: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
