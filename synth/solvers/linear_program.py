"""Programs by SciPy: HiGHS, which keeps its basis between added rows and cuts; in another process; least squares.

For the first one only the extension module is loaded, not `scipy.optimize` around it: 0.02 s instead of 0.4 s of
import. It is entered in `sys.modules` under its own name, so that a later `import scipy.optimize` finds it there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from synth.errors import MissingDependencyError
from synth.solvers.deadline import TimeUp, current_deadline
from synth.solvers.pool import run_in_process

if TYPE_CHECKING:
    import numpy as np

# Seconds that a program may take however late it is: small ones are short work that must be completed.
SHORT = 1.0
_CORE = "scipy.optimize._highspy._core"
S = TypeVar("S")
T = TypeVar("T")


@cache
def _highs() -> ModuleType:
    if _CORE in sys.modules:
        return sys.modules[_CORE]
    scipy = importlib.util.find_spec("scipy")
    folders = (scipy and scipy.submodule_search_locations) or ()
    for folder in folders:
        for file in sorted(Path(folder, "optimize", "_highspy").glob("_core.*")):
            spec = importlib.util.spec_from_file_location(_CORE, file)
            if spec and spec.loader:
                module = importlib.util.module_from_spec(spec)
                sys.modules[_CORE] = module
                spec.loader.exec_module(module)
                return module
    raise MissingDependencyError(
        "lower bounds need HiGHS as in SciPy 1.15 or newer, not found; pip install 'scipy>=1.15'"
    )


class LinearProgram:
    """Minimise cost·x over x ≥ lower with rows low ≤ a·x ≤ high, by dual simplex from the last basis.

    Rows are added as sparse lists. Results are floating-point numbers. No proof may rest on them until the caller has
    made them exact.
    """

    def __init__(self, costs: Sequence[float], lower: Sequence[float] | None = None) -> None:
        core = _highs()
        self._inf = core.kHighsInf
        self._solver = core._Highs()
        for option, value in (("output_flag", False), ("threads", 1), ("solver", "simplex"), ("presolve", "off")):
            self._solver.setOptionValue(option, value)
        n = len(costs)
        self._solver.addVars(n, list(lower or [0.0] * n), [self._inf] * n)
        self._solver.changeColsCost(n, list(range(n)), [float(c) for c in costs])
        self._core = core

    def add_rows(self, rows: Sequence[tuple[float | None, dict[int, float], float | None]]) -> None:
        """Add ``(low, {column: coefficient}, high)`` rows; None is no bound on that side."""
        starts, index, value = [], [], []
        lows, highs = [], []
        for low, row, high in rows:
            lows.append(-self._inf if low is None else float(low))
            highs.append(self._inf if high is None else float(high))
            starts.append(len(index))
            index.extend(row)
            value.extend(float(a) for a in row.values())
        self._solver.addRows(len(rows), lows, highs, len(index), starts, index, value)

    def solve(self) -> tuple[float, list[float], list[float]] | None:
        """Return ``(objective, x, row duals)`` at an optimal vertex, or None without an optimum.

        Raises TimeUp at the ambient deadline, where the program has also taken `SHORT` seconds.
        """
        limit = max(SHORT, current_deadline().remaining())
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + limit)  # of all runs together
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == self._core.HighsModelStatus.kTimeLimit:
            raise TimeUp
        if status != self._core.HighsModelStatus.kOptimal:
            return None
        solution = self._solver.getSolution()
        return self._solver.getInfo().objective_function_value, list(solution.col_value), list(solution.row_dual)

    def change_costs(self, costs: Sequence[float]) -> None:
        """Replace the costs of all columns; the last basis is kept."""
        self._solver.changeColsCost(len(costs), list(range(len(costs))), list(costs))


def cutting_planes(
    solve: Callable[[], S | None], add_violated: Callable[[S], bool], rounds: int
) -> tuple[S | None, bool]:
    """Solve a relaxation and add cuts in turns, until its solution violates none (Kelley, "The cutting-plane method for
    solving convex programs", 1960).

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


def linear(cost: np.ndarray, **arguments: Any) -> Any:
    """Return the fields of the result of `scipy.optimize.linprog(cost, **arguments)`.

    It runs in a process that Ctrl-C and the ambient deadline kill. Raises TimeUp at that deadline.
    """
    return run_in_process(_linear, cost, arguments, imports=("scipy.optimize", "scipy.sparse"))


def _linear(cost: np.ndarray, arguments: dict[str, Any]) -> Any:
    from scipy.optimize import linprog

    return _plain(linprog(cost, **arguments))


def _plain(result: dict[str, Any]) -> SimpleNamespace:
    """Return the fields of a result without SciPy's type, so that the process that reads it need not import SciPy."""
    fields = SimpleNamespace(**result)
    for name, value in result.items():
        if isinstance(value, dict):
            setattr(fields, name, _plain(value))
    return fields


def nonnegative(matrix: np.ndarray, target: np.ndarray, iterations: int) -> np.ndarray:
    """Return the vector x >= 0 that minimises the Euclidean norm of `matrix` x - `target`.

    By the active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, ch. 23). Raises RuntimeError
    where that does not end within `iterations`.
    """
    from scipy.optimize import nnls

    solution, _ = nnls(matrix, target, maxiter=iterations)
    return solution
