"""Solvers behind one port: ``solve(model) -> Answer``. One file a solver, the library imported nowhere else."""
