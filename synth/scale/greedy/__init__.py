"""Greedy schedules at scale: breadth-first broadcast and rarest chunk first."""
