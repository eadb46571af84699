"""Non-negative linear least squares by SciPy, for the fit of α and β: the active-set method of Lawson and Hanson
(Solving Least Squares Problems, 1974, ch. 23)."""

from __future__ import annotations

import numpy as np


def nonnegative(matrix: np.ndarray, target: np.ndarray, iterations: int) -> np.ndarray:
    """Return the vector x >= 0 that minimises the Euclidean norm of `matrix` x - `target`.

    Raises RuntimeError where the active-set method does not end within `iterations`.
    """
    from scipy.optimize import nnls

    solution, _ = nnls(matrix, target, maxiter=iterations)
    return solution
