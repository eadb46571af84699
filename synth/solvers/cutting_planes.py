"""Cutting planes: the loop over a relaxation and the cuts that its solutions violate (Kelley, "The cutting-plane method
for solving convex programs", 1960)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from synth.solvers.linear_program import LinearProgram

S = TypeVar("S")
T = TypeVar("T")


def cutting_planes(
    solve: Callable[[], S | None], add_violated: Callable[[S], bool], rounds: int
) -> tuple[S | None, bool]:
    """Solve a relaxation and add cuts in turns, until its solution violates none.

    ``solve()`` returns the solution of the relaxation with the cuts so far, or None. ``add_violated(solution)`` adds
    cuts that the solution violates and returns False where there are none.

    Returns:
        The last solution, None only where there never was one, and True if it violates no cut; False if the relaxation
        has no solution, or was solved `rounds` times.
    """
    last = None
    for _ in range(rounds):
        solution = solve()
        if solution is None:
            return last, False
        last = solution
        if not add_violated(solution):
            return solution, True
    return last, False


class CutRow(NamedTuple, Generic[T]):
    """The constraint that the sum of ``row[column]`` · x[column] is at least `least`. `label` names it."""

    label: T
    row: dict[int, float]
    least: float


class CutProgram(Generic[T]):
    """A linear program to which cuts are added. All its other rows must be there before; each distinct cut is a row
    once.

    Attributes of the last solution:
        optimum: its objective, 0 before there is one.
        solution: the value of each column.
        duals: the dual of each row that is no cut.
        weights: (label, dual) of each cut.
    """

    def __init__(self, program: LinearProgram) -> None:
        self._program = program
        self._known: set[tuple] = set()
        self._labels: list[T] = []
        self.optimum = 0.0
        self.solution: list[float] = []
        self.duals: list[float] = []
        self.weights: list[tuple[T, float]] = []

    def add(self, cuts: Iterable[CutRow[T]]) -> bool:
        """Add the new ones of `cuts`; return False if there are none."""
        rows = []
        for label, row, least in cuts:
            key = (least, *sorted(row.items()))
            if key not in self._known:
                self._known.add(key)
                self._labels.append(label)
                rows.append((least, row, None))
        if rows:
            self._program.add_rows(rows)
        return bool(rows)

    def run(self, violated: Callable[[list[float]], Iterable[CutRow[T]]], rounds: int) -> bool:
        """Solve and add the cuts that ``violated(x)`` returns for a solution x, until there are no new ones.

        Returns True where the last solution violates no cut, False where the program has no solution or was solved
        `rounds` times.
        """
        return cutting_planes(self._solve, lambda solution: self.add(violated(solution)), rounds)[1]

    def _solve(self) -> list[float] | None:
        answer = self._program.solve()
        if answer is None:
            return None
        self.optimum, self.solution, duals = answer
        first = len(duals) - len(self._labels)
        self.duals, self.weights = duals[:first], list(zip(self._labels, duals[first:], strict=True))
        return self.solution
