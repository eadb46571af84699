"""Frontiers by exact synthesis: the guided sweep, SCCL's sweep, and the algorithm portfolio that answers queries."""
