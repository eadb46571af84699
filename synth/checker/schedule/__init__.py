"""Replay of schedules, step by step: holdings, contributions counted once, the load of every link and limit."""
