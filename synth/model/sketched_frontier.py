"""SketchedFrontier: a frontier under a sketch, beside the bounds of the machine without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from synth.model.frontier import Frontier, LowerBound
from synth.model.sketch import Sketch
from synth.model.topology import Topology


@dataclass(frozen=True)
class SketchedFrontier:
    """A frontier of the machine under a sketch, and lower bounds without the sketch.

    Attributes
    ----------
    frontier : of the schedules that keep the sketch; its bounds and "complete" are of these alone.
    sketch, machine : the rules, and the machine without them.
    free : bounds of the machine without the sketch: pairs of steps and bound, as `synth.bound` returns them.
    unfinished : True if the time limit came before all bounds without the sketch.
    """

    frontier: Frontier
    sketch: Sketch
    machine: Topology
    free: Sequence[tuple[int | None, LowerBound]]
    unfinished: bool = False

    def free_bound(self, steps: int | None) -> Fraction | None:
        """Return the bound on R/C without the sketch in so many steps, None: in any number; None if not known."""
        values = {at: bound.value for at, bound in self.free}
        return values.get(steps, values.get(None))

    def cost(self, steps: int) -> Fraction | None:
        """Return the most that the sketch costs at a point: its R/C divided by the bound without the sketch, less 1."""
        free = self.free_bound(steps)
        rate = min(point.rounds_per_chunk for point in self.frontier.points if point.steps <= steps)
        return rate / free - 1 if free else None

    def to_json(self) -> dict[str, Any]:
        """Return the document of the frontier with its member ``sketch``, which `synth verify` checks."""
        bounds = []
        for steps, bound in self.free:
            bounds.append({"steps": steps, **bound.to_json()})
        sketch = {
            "name": self.sketch.name, "rules": self.sketch.rules, "topology": self.machine.network().to_json(),
            "nodes": list(self.machine.nodes), "bounds": bounds,
        }  # fmt: skip
        return self.frontier.to_json() | {"sketch": sketch}
