"""Linear and integer programs by HiGHS as SciPy ships it, in a process that Ctrl-C and the deadline kill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.solvers.processes.pool import run_in_process

# Modules that the processes import first.
LIBRARY = ("scipy.optimize", "scipy.sparse")


def linear(cost: np.ndarray, **arguments: Any) -> Any:
    """Return the result of `scipy.optimize.linprog(cost, **arguments)`. Raises TimeUp at the ambient deadline."""
    return run_in_process(_linear, cost, arguments, imports=LIBRARY)


def integer(cost: np.ndarray, rows: Sequence[tuple[Any, Any, Any]], upper: Any = np.inf, **options: Any) -> Any:
    """Return the result of `scipy.optimize.milp`: the minimum of `cost` x over integers 0 <= x <= `upper`.

    `rows`: triples (matrix, low, high) that stand for low <= matrix x <= high. `options`: those of `milp`. Raises
    TimeUp at the ambient deadline.
    """
    return run_in_process(_integer, cost, rows, upper, options, imports=LIBRARY)


def _linear(cost: np.ndarray, arguments: dict[str, Any]) -> Any:
    from scipy.optimize import linprog

    return linprog(cost, **arguments)


def _integer(cost: np.ndarray, rows: Sequence[tuple[Any, Any, Any]], upper: Any, options: dict[str, Any]) -> Any:
    from scipy.optimize import Bounds, LinearConstraint, milp

    constraints = [LinearConstraint(*row) for row in rows]
    return milp(cost, integrality=np.ones(len(cost)), bounds=Bounds(0, upper), constraints=constraints, options=options)
