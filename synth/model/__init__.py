"""Values that every other package shares: machines, collectives, schedules, frontiers. They know no engine."""
