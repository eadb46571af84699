"""Greedy schedules at scale: breadth-first broadcast, and list scheduling in time."""
