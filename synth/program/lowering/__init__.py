"""Lowering of a schedule to a two-sided Program: sends and receives of thread blocks."""
