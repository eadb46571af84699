"""Algorithms to compare with: rings, direct sends; allocations and their optimal rates."""
