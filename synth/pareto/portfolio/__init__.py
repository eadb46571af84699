"""The algorithm portfolio: encodings, solvers and symmetry groups that run side by side on one query."""
