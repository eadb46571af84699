"""Frontiers: the guided sweep, the blind one, the race of engines."""
