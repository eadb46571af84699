"""Values of the prioritized planner (`synth.encodings.prefix_planning.prioritized_planner`): slots, the cells that say
how a slot receives its sum, and decompositions of a sum. A sum of inputs is a bit set: bit i is the input of rank i."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Slot = tuple[int, int]  # (rank, time): time 0 is after the last step, -1 before the last step


class Decomposition(NamedTuple):
    """Terms that add up to one sum.

    Attributes:
        sums: ``(sum, rank)`` pairs: a smaller sum, and the rank that is to hold it.
        inputs: the ranks whose inputs are added.
    """

    sums: tuple[tuple[int, int], ...]
    inputs: tuple[int, ...]


class PlanningFailed(Exception):
    """A demand has no free path, or a limit on effort is reached. It proves nothing about other plans."""


@dataclass(eq=False)
class Cell:
    """Origin of the sum in one slot.

    Attributes:
        keeps: the rank keeps the sum that it held a step earlier.
        adds_own_input: the rank adds its own input.
        sum_routes: routes (indices into `Network.routes`) over which sums of other ranks arrive.
        input_routes: routes over which plain inputs arrive.
    """

    keeps: bool = False
    adds_own_input: bool = False
    sum_routes: list[int] = field(default_factory=list)
    input_routes: list[int] = field(default_factory=list)
