"""The `quotient` encoding: `step` restricted to schedules invariant under a group of automorphisms.

Variables are orbit representatives, so the formula shrinks by about the order of the group. A solution is a schedule of
the whole problem; "unsat" proves nothing about it. The group acts on (unit, chunk index) as (unit image, same index).
As in the orbit programs of Margot, "Symmetry in integer linear programming", 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.encodings.quotient_orbits import Automorphism, orbits
from synth.encodings.step import Inverse, build, read
from synth.model.schedule import Problem, Schedule
from synth.solvers.boolean_model import Model


@dataclass(frozen=True)
class Quotient:
    """Encoding of the schedules that are invariant under `generators`, automorphisms of the problem's network and
    collective (see `synth.model.symmetry`)."""

    complete = False

    generators: tuple[Automorphism, ...]

    def apply(self, problem: Problem) -> tuple[Model, Inverse]:
        """Return the model on orbits, and the data to expand its solution."""
        return build(problem, orbits(problem, self.generators))

    def invert(self, inverse: Inverse, values: Sequence[bool]) -> Schedule:
        """Return the schedule of a solution, expanded over the group."""
        return read(inverse, values)
