"""Linear and integer programs by HiGHS as SciPy ships it, in a process that Ctrl-C and the end of the time kill
(`until.apart`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.solvers.processes.deadline import apart

# What processes that solve these programs import first.
LIBRARY = ("scipy.optimize", "scipy.sparse")


def linear(cost: np.ndarray, **given: Any) -> Any:
    """As `scipy.optimize.linprog`. Raises TimeUp."""
    return apart(_linear, cost, given, imports=LIBRARY)


def integer(cost: np.ndarray, rows: Sequence[tuple[Any, Any, Any]], upper: Any = np.inf, **options: Any) -> Any:
    """As `scipy.optimize.milp` for whole x, 0 <= x <= `upper`, with `rows` (matrix, low, high): low <= matrix x <=
    high. Raises TimeUp."""
    return apart(_integer, cost, rows, upper, options, imports=LIBRARY)


def _linear(cost: np.ndarray, given: dict[str, Any]) -> Any:
    from scipy.optimize import linprog

    return linprog(cost, **given)


def _integer(cost: np.ndarray, rows: Sequence[tuple[Any, Any, Any]], upper: Any, options: dict[str, Any]) -> Any:
    from scipy.optimize import Bounds, LinearConstraint, milp

    constraints = [LinearConstraint(*row) for row in rows]
    return milp(cost, integrality=np.ones(len(cost)), bounds=Bounds(0, upper), constraints=constraints, options=options)
