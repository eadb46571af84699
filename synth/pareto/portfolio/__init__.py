"""The algorithm portfolio: encodings, solvers and symmetry groups raced against each other."""
