"""Linear programs by HiGHS as SciPy ships it, which keep their basis between added rows and columns.

Only the extension module is loaded, not `scipy.optimize` around it: 0.02 s instead of 0.4 s of import. It is entered in
`sys.modules` under its own name, so that a later `import scipy.optimize` finds it there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from synth.errors import MissingDependencyError
from synth.solvers.deadline import TimeUp, current_deadline

# Seconds that a program may take however late it is: small ones are short work that must be completed.
SHORT = 1.0
_CORE = "scipy.optimize._highspy._core"


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
