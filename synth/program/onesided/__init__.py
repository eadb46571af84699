"""Lowering of a schedule to a one-sided Program: puts, signals and packets."""
