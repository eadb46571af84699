"""Linear and integer programs by HiGHS as SciPy ships it, in a process that Ctrl-C and the deadline kill."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from synth.solvers.pool import run_in_process

# Modules that the processes import first.
LIBRARY = ("scipy.optimize", "scipy.sparse")


def linear(cost: np.ndarray, **arguments: Any) -> Any:
    """Return the fields of the result of `scipy.optimize.linprog(cost, **arguments)`.

    Raises TimeUp at the ambient deadline.
    """
    return run_in_process(_linear, cost, arguments, imports=LIBRARY)


def integer(cost: np.ndarray, rows: Sequence[tuple[Any, Any, Any]], upper: Any = np.inf, **options: Any) -> Any:
    """Return the fields of the result of `scipy.optimize.milp`: least `cost` x over integers 0 <= x <= `upper`.

    `rows`: triples (matrix, low, high) that stand for low <= matrix x <= high. `options`: those of `milp`. Raises
    TimeUp at the ambient deadline.
    """
    return run_in_process(_integer, cost, rows, upper, options, imports=LIBRARY)


def _linear(cost: np.ndarray, arguments: dict[str, Any]) -> Any:
    from scipy.optimize import linprog

    return _plain(linprog(cost, **arguments))


def _integer(cost: np.ndarray, rows: Sequence[tuple[Any, Any, Any]], upper: Any, options: dict[str, Any]) -> Any:
    from scipy.optimize import Bounds, LinearConstraint, milp

    constraints = [LinearConstraint(*row) for row in rows]
    bounds = Bounds(0, upper)
    return _plain(milp(cost, integrality=np.ones(len(cost)), bounds=bounds, constraints=constraints, options=options))


def _plain(result: dict[str, Any]) -> SimpleNamespace:
    """Return the fields of a result without SciPy's type, so that the process that reads it need not import SciPy."""
    fields = SimpleNamespace(**result)
    for name, value in result.items():
        if isinstance(value, dict):
            setattr(fields, name, _plain(value))
    return fields
