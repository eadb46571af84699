"""Drawings of machines, programs and frontiers."""
